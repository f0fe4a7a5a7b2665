"""`dead-letters`: unknown records that only a person can resolve."""

# ruff: noqa: PLC0415, D301, FBT001 - imports inside commands, so that help answers at once; click's mark \b; click passes flags by name

from pathlib import Path
from typing import Any
from uuid import UUID

import click

from gateway.operate.commands.options import (
    change_options,
    grounds_of,
    grounds_options,
    how_of,
    json_option,
    limit_option,
    listing_options,
    proposal_option,
    record_options,
    resolve_options,
    seeing_options,
    selection_of,
    selection_options,
    wanted_of,
)
from gateway.operate.commands.records import resolve, show
from gateway.operate.commands.shared import config_option
from gateway.operate.commands.token import token_option

STATE = "dead_letter"


@click.group("dead-letters")
def dead_letters() -> None:
    """Unknown records that reconciliation gave up on, or that it has no probe for: a person's turn.

    \b
      idempotency-gateway dead-letters list --config gateway.yaml
      idempotency-gateway dead-letters show --config gateway.yaml rec_Y2hhcmdlOm5vbmUAa2V5LTE
    """


@dead_letters.command("list")
@config_option()
@selection_options(state=False)
@listing_options
@json_option
def list_dead_letters(config: Path, limit: int, cursor: str | None, as_json: bool, **given: Any) -> None:
    """List dead letters, the oldest first.

    \b
      idempotency-gateway dead-letters list --config gateway.yaml --route create-charge
    """
    from gateway.operate.commands import work

    work.list_records(config, selection_of(given, STATE), limit, cursor, as_json=as_json)


@dead_letters.command("show")
@config_option()
@record_options
@seeing_options
@json_option
def show_dead_letter(config: Path, body: bool, as_json: bool, **given: Any) -> None:
    """Show one with its history: what was asked and what came back, as far as status, length and digest tell.

    \b
      idempotency-gateway dead-letters show --config gateway.yaml rec_Y2hhcmdlOm5vbmUAa2V5LTE
    """
    show(config, STATE, body=body, as_json=as_json, **given)


@dead_letters.command("by-amount")
@config_option()
@selection_options(state=False)
@click.option("--capture", metavar="NAME", required=True, help="The captured value that is the amount.")
@limit_option("records")
@json_option
def list_by_amount(config: Path, capture: str, limit: int, as_json: bool, **given: Any) -> None:
    """List the dead letters with the largest captured amounts.

    \b
      idempotency-gateway dead-letters by-amount --config gateway.yaml --capture amount --limit 20
    """
    from gateway.operate.commands import work

    work.list_by_amount(config, selection_of(given, STATE), capture, min(limit, 1000), as_json=as_json)


@dead_letters.command("proposals")
@config_option()
@token_option
@json_option
def list_proposals(config: Path, as_json: bool) -> None:
    """List verdicts that wait for another user (`admin.second_approval`), the oldest first.

    \b
      idempotency-gateway dead-letters proposals --config gateway.yaml
    """
    from gateway.operate.commands import approving

    approving.list_proposals(config, as_json=as_json)


@dead_letters.command("approve")
@config_option()
@record_options
@proposal_option
@change_options
@json_option
def approve_proposal(config: Path, proposal: UUID | None, **given: Any) -> None:
    """Confirm the verdict that another user has proposed about a record: it is carried out. A terminal shows it, and asks.

    \b
      idempotency-gateway dead-letters approve --config gateway.yaml rec_k4tq2mzv7a --reason "INC-7: I see it at the provider, too"
    """
    from gateway.operate.commands import approving

    approving.approve(config, wanted_of(given), proposal, how_of(given))


@dead_letters.command("reject")
@config_option()
@record_options
@proposal_option
@change_options
@json_option
def reject_proposal(config: Path, proposal: UUID | None, **given: Any) -> None:
    """Drop the verdict that was proposed about a record. Who has proposed it may take it back.

    \b
      idempotency-gateway dead-letters reject --config gateway.yaml rec_k4tq2mzv7a --reason "INC-7: another order"
    """
    from gateway.operate.commands import approving

    approving.reject(config, wanted_of(given), proposal, how_of(given))


@dead_letters.command("requeue-all")
@config_option()
@selection_options(state=False)
@limit_option("records")
@grounds_options
def requeue_dead_letters(config: Path, limit: int, reason: str, actor: str | None, **given: Any) -> None:
    """Have many looked at again, the oldest first, each with a line of its own in the audit table.

    \b
      idempotency-gateway dead-letters requeue-all --config gateway.yaml --route create-charge --reason "INC-7: the provider is back"
    """
    from gateway.operate.commands import work

    work.requeue_all(config, selection_of(given, STATE), limit, grounds_of(reason, actor))


@dead_letters.command("requeue")
@config_option()
@record_options
@change_options
@json_option
def requeue_dead_letter(config: Path, **given: Any) -> None:
    """Have one looked at again, from the beginning: when the provider is back, say.

    \b
      idempotency-gateway dead-letters requeue --config gateway.yaml rec_Y2hhcmdlOm5vbmUAa2V5LTE --reason "INC-7: the provider is back"
    """
    from gateway.operate.commands import work

    work.requeue(config, wanted_of(given, STATE), how_of(given))


@dead_letters.command("resolve")
@config_option()
@record_options
@resolve_options
@change_options
@json_option
def resolve_dead_letter(config: Path, **given: Any) -> None:
    """Say what became of the operation: as `records resolve`.

    \b
      idempotency-gateway dead-letters resolve --config gateway.yaml rec_Y2hhcmdlOm5vbmUAa2V5LTE --reason "INC-7: found at the provider" \\
          --completed --status 201 --header 'Content-Type: application/json' --body-file answer.json
      idempotency-gateway dead-letters resolve --config gateway.yaml --key key-1 --not-executed --reason "INC-7: the provider has none"
    """
    resolve(config, STATE, **given)
