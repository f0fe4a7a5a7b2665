"""What the commands about proposals do: verdicts that wait for a second person."""

from pathlib import Path
from uuid import UUID

import click

from gateway.core.model import RecordKey
from gateway.operate.commands.acting import Wanted, change, echo_json, operate, tell_change
from gateway.operate.commands.tables import instant, table
from gateway.operate.commands.work import How
from gateway.operate.operations import PAGE_MAX, Changed, Desk, waiting_json

_NONE = UUID(int=0)
"""No proposal's id: what is refused then says that there is none."""


def list_proposals(config: Path, *, as_json: bool) -> None:
    waiting = [waiting_json(one) for one in operate(config, lambda desk: desk.proposals(limit=PAGE_MAX))]
    if as_json:
        echo_json({"proposals": waiting})
        return
    rows = [
        (one["short_id"], one["verdict"], one["proposed_by"], instant(str(one["proposed_at"])), one["stale"], one["reason"])
        for one in waiting
    ]
    click.echo(table(("ID", "VERDICT", "BY", "AT", "STALE", "REASON"), rows))


def approve(config: Path, wanted: Wanted, how: How) -> None:
    async def work(desk: Desk) -> Changed:
        async def act(key: RecordKey, version: int | None) -> Changed:
            return await desk.approve(key, await _proposal_of(desk, key), how.grounds, version=version)

        return await change(desk, wanted, "Carry out what was proposed?", act, ask=how.ask)

    tell_change(operate(config, work, changes=True), as_json=how.as_json)


def reject(config: Path, wanted: Wanted, how: How) -> None:
    async def work(desk: Desk) -> Changed:
        async def act(key: RecordKey, _: int | None) -> Changed:
            return await desk.reject(key, await _proposal_of(desk, key), how.grounds)

        return await change(desk, wanted, "Drop what was proposed?", act, ask=how.ask)

    tell_change(operate(config, work, changes=True), as_json=how.as_json)


async def _proposal_of(desk: Desk, key: RecordKey) -> UUID:
    waiting = await desk.proposal(key)
    return _NONE if waiting is None else waiting.proposal.id
