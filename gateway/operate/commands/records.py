"""`records`: what operators see of records, and do to them."""

# ruff: noqa: PLC0415, D301, FBT001 - imports inside commands, so that help answers at once; click's mark \b; click passes flags by name

from pathlib import Path
from typing import Any

import click

from gateway.operate.commands.options import (
    change_options,
    grounds_of,
    grounds_options,
    how_of,
    json_option,
    listing_options,
    record_options,
    resolve_options,
    retention_option,
    seeing_options,
    selection_of,
    selection_options,
    wanted_of,
)
from gateway.operate.commands.shared import config_option


@click.group()
def records() -> None:
    """Look at records, and resolve those with an unknown outcome.

    \b
      idempotency-gateway records list --config gateway.yaml --state unknown
      idempotency-gateway records show --config gateway.yaml --key 8e03978e-40d5-43dd-bc93-6894a57f9324

    They work on the databases of the configuration, whether or not a gateway runs. Every change needs a --reason and is audited.
    """


@records.command("list")
@config_option()
@selection_options(state=True)
@listing_options
@json_option
def list_records(config: Path, limit: int, cursor: str | None, as_json: bool, **given: Any) -> None:
    """List records, in a stable order.

    \b
      idempotency-gateway records list --config gateway.yaml --state unknown --route create-charge
    """
    from gateway.operate.commands import work

    work.list_records(config, selection_of(given), limit, cursor, as_json=as_json)


@records.command("show")
@config_option()
@record_options
@seeing_options
@json_option
def show_record(config: Path, body: bool, as_json: bool, **given: Any) -> None:
    """Show one record with its history: what was asked, what came back, who decided what.

    \b
      idempotency-gateway records show --config gateway.yaml rec_Y2hhcmdlOm5vbmUAa2V5LTE
      idempotency-gateway records show --config gateway.yaml --key key-1 --body --reason "INC-7: compare with the provider"
    """
    show(config, None, body=body, as_json=as_json, **given)


def show(config: Path, state: str | None, *, body: bool, as_json: bool, reason: str | None, actor: str | None, **given: Any) -> None:
    """`state`: with a key, only records in it."""
    from gateway.operate.commands import work

    if body and reason is None:
        raise click.UsageError("--body needs a --reason: who sees stored bodies, and why, is written down.")
    by = grounds_of(reason, actor) if body and reason is not None else None
    work.show(config, wanted_of(given, state), by, as_json=as_json)


@records.command("resolve")
@config_option()
@record_options
@resolve_options
@change_options
@json_option
def resolve_record(config: Path, **given: Any) -> None:
    """Say what became of an operation: it ran, with this answer, or it did not.

    \b
      idempotency-gateway records resolve --config gateway.yaml rec_Y2hhcmdlOm5vbmUAa2V5LTE --reason "INC-7: found at the provider" \\
          --completed --status 201 --header 'Content-Type: application/json' --body-file answer.json
      idempotency-gateway records resolve --config gateway.yaml --key key-1 --not-executed --reason "INC-7: the provider has none"

    Completed: retries get the answer until the record expires; it cannot be changed any more. One that was created and then declined is
    completed, with that answer. Not executed: the next retry runs it; refused until the upstream has surely finished (`max_execution`).
    """
    resolve(config, None, **given)


def resolve(
    config: Path,
    state: str | None,
    *,
    completed: bool,
    not_executed: bool,
    status: int | None,
    header: tuple[str, ...],
    body_file: str | None,
    no_body: bool,
    retention: float | None,
    **given: Any,
) -> None:
    """`state`: with a key, only records in it."""
    from gateway.core.reconcile.found import BODILESS
    from gateway.operate.commands import work

    if completed == not_executed:
        raise click.UsageError("Say what became of it: --completed, or --not-executed.")
    if completed and status is None:
        raise click.UsageError("--completed needs the --status of the answer that retries get.")
    if not completed and (status is not None or header or body_file is not None or no_body):
        raise click.UsageError("What was not executed has no answer: --status, --header, --body-file and --no-body go with --completed.")
    if completed and (body_file is not None) == no_body and status not in BODILESS:
        raise click.UsageError("Say what body retries get, since it cannot be changed any more: --body-file FILE, or --no-body.")
    answer = work.Answer(status, work.read_headers(header), work.read_body(body_file)) if completed and status is not None else None
    work.resolve(config, wanted_of(given, state), answer, retention, how_of(given))


@records.command("release")
@config_option()
@record_options
@retention_option
@change_options
@json_option
def release_record(config: Path, retention: float | None, **given: Any) -> None:
    """Let the next retry run an unknown operation, by your word alone that it did not run.

    \b
      idempotency-gateway records release --config gateway.yaml rec_Y2hhcmdlOm5vbmUAa2V5LTE --reason "INC-7: the provider was down"

    Refused until the upstream has surely finished (`max_execution`).
    """
    from gateway.operate.commands import work

    work.release(config, wanted_of(given), retention, how_of(given))


@records.command("ask")
@config_option()
@record_options
@grounds_options
@json_option
def ask_upstream(config: Path, reason: str, actor: str | None, as_json: bool, **given: Any) -> None:
    """Ask the upstream about one, by the lookup of its route, and show what it says. The record stays as it is.

    \b
      idempotency-gateway records ask --config gateway.yaml rec_k4tq2mzv7a --reason "INC-7: does the provider have it?"
    """
    from gateway.operate.commands import work

    work.ask(config, wanted_of(given), grounds_of(reason, actor), as_json=as_json)


@records.command("look-now")
@config_option()
@record_options
@change_options
@json_option
def look_at_record(config: Path, **given: Any) -> None:
    """Have the next look of an unknown record made at once. A dead letter is requeued instead.

    \b
      idempotency-gateway records look-now --config gateway.yaml rec_k4tq2mzv7a --reason "INC-7: the provider is back"
    """
    from gateway.operate.commands import work

    work.look_now(config, wanted_of(given), how_of(given))


@records.command("delete")
@config_option()
@record_options
@change_options
@json_option
def delete_record(config: Path, **given: Any) -> None:
    """Forget a completed or failed_retryable record: the next request with its key runs. Of the key a digest is left.

    \b
      idempotency-gateway records delete --config gateway.yaml rec_Y2hhcmdlOm5vbmUAa2V5LTE --reason "GDPR-12"

    Redis forgets it, too; if it cannot be asked, the command says how long gateways may still answer from it. And it says for how long they
    may still replay it from their own memory.
    """
    from gateway.operate.commands import work

    work.delete(config, wanted_of(given), how_of(given))


@records.command("export")
@config_option()
@selection_options(state=True)
@click.option("--bodies", is_flag=True, help="With history and stored bodies (as base64); each record is audited.")
@grounds_options
def export_records(config: Path, bodies: bool, reason: str, actor: str | None, **given: Any) -> None:
    """Write records as JSON lines to stdout. That it was done is audited.

    \b
      idempotency-gateway records export --config gateway.yaml --state dead_letter --reason "weekly report" > dead-letters.jsonl
    """
    from gateway.operate.commands import work

    work.export(config, selection_of(given), grounds_of(reason, actor), bodies=bodies)
