"""What the commands about proposals do: verdicts that wait for a second person."""

import sys
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import click

from gateway.core.model import RecordKey
from gateway.operate.commands.acting import Wanted, echo_json, find, operate, tell_change
from gateway.operate.commands.tables import body_text, instant, proposed_text, record_table, table, terminal_width
from gateway.operate.commands.work import How
from gateway.operate.operations import PAGE_MAX, Changed, Desk, NotFound, listed_json, waiting_json
from gateway.ports.approvals import Proposed as Waiting
from gateway.runtime.packing import unpack_body

_NONE = UUID(int=0)
"""No proposal's id: what is refused then says that there is none."""


def list_proposals(config: Path, *, as_json: bool) -> None:
    waiting = [waiting_json(one) for one in operate(config, lambda desk: desk.proposals(limit=PAGE_MAX))]
    if as_json:
        echo_json({"proposals": waiting})
        return
    names = ("short_id", "proposal", "verdict", "proposed_by", "proposed_at", "stale", "reason")
    rows = [[instant(str(one[name])) if name == "proposed_at" else one[name] for name in names] for one in waiting]
    click.echo(table(("ID", "PROPOSAL", "VERDICT", "BY", "AT", "STALE", "REASON"), rows))


def approve(config: Path, wanted: Wanted, proposal: UUID | None, how: How) -> None:
    """Only what the person has seen: its proposer may replace a proposal at any moment."""
    if proposal is None and not _asks(how):
        raise click.UsageError("Say which proposal you have seen: --proposal, by its id in `dead-letters proposals`. A terminal would ask.")

    async def work(desk: Desk) -> Changed:
        chosen = await _choose(desk, wanted, proposal, how, "Carry out what was proposed?")
        return chosen if isinstance(chosen, NotFound) else await desk.approve(chosen.key, chosen.id, how.grounds, version=chosen.version)

    tell_change(operate(config, work, changes=True), as_json=how.as_json)


def reject(config: Path, wanted: Wanted, proposal: UUID | None, how: How) -> None:
    async def work(desk: Desk) -> Changed:
        chosen = await _choose(desk, wanted, proposal, how, "Drop what was proposed?")
        return chosen if isinstance(chosen, NotFound) else await desk.reject(chosen.key, chosen.id, how.grounds)

    tell_change(operate(config, work, changes=True), as_json=how.as_json)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The proposal with this id about the record. `version`: as the person saw that."""

    key: RecordKey
    id: UUID
    version: int | None = None


async def _choose(desk: Desk, wanted: Wanted, proposal: UUID | None, how: How, question: str) -> _Chosen | NotFound:
    """The proposal that is named, or that is shown to the person at a terminal, who is asked."""
    key = await find(desk, wanted)
    waiting = await desk.proposal(key)
    chosen = proposal or (_NONE if waiting is None else waiting.proposal.id)
    if not _asks(how):
        return _Chosen(key, chosen)
    shown = await desk.show(key)
    if isinstance(shown, NotFound):
        return shown
    click.echo(record_table([listed_json(shown.listed)], width=terminal_width(sys.stderr)), err=True)
    if waiting is not None:
        click.echo(await _told(waiting), err=True)
    click.confirm(question, abort=True, err=True)
    return _Chosen(key, chosen, shown.listed.version)


async def _told(waiting: Waiting) -> str:
    """What a proposal says, with the body of its answer."""
    said, response = proposed_text(waiting_json(waiting)), waiting.proposal.response
    if response is None:
        return said
    try:
        return f"{said}\n\n{body_text(await unpack_body(response))}"
    except ValueError:  # it cannot be unpacked: its length and digest are told
        return said


def _asks(how: How) -> bool:
    return how.ask and sys.stdin is not None and sys.stdin.isatty()
