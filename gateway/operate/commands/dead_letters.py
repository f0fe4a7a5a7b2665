"""`dead-letters`: unknown records that only a person can resolve."""

# ruff: noqa: PLC0415, D301, FBT001 - imports inside commands, so that help answers at once; click's mark \b; click passes flags by name

from pathlib import Path
from typing import Any

import click

from gateway.operate.commands.options import (
    change_options,
    how_of,
    json_option,
    listing_options,
    record_options,
    resolve_options,
    seeing_options,
    selection_of,
    selection_options,
    wanted_of,
)
from gateway.operate.commands.records import resolve, show
from gateway.operate.commands.shared import config_option

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
