"""Options that several commands share, and what is made of them.

What needs the rest of the gateway is imported when it is needed, so that `--help` answers at once.
"""

# ruff: noqa: PLC0415 - imports inside functions: see above

import datetime as dt
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gateway.operate.commands.token import given_token, token_option

if TYPE_CHECKING:
    from gateway.operate.commands.acting import Wanted
    from gateway.operate.commands.work import How
    from gateway.operate.operations import Grounds
    from gateway.ports.reconciliation import Selection

Command = TypeVar("Command", bound=Callable[..., None])

STATES = ("pending", "in_progress", "completed", "failed_retryable", "unknown", "dead_letter")


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")(command)


def limit_option(what: str) -> Callable[[Command], Command]:
    return click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help=f"How many {what} at most.")


def listing_options(command: Command) -> Command:
    """--limit and --cursor."""
    command = click.option("--cursor", metavar="CURSOR", help="Go on where the list before ended.")(command)
    return limit_option("records")(command)


def selection_options(*, state: bool) -> Callable[[Command], Command]:
    """--state, --route, --scope, --key, and what log lines have; and --token."""

    def add(command: Command) -> Command:
        command = click.option("--until", metavar="TIME", callback=_instant, help="Only records made before; as for --since.")(command)
        command = click.option(
            "--since", metavar="TIME", callback=_instant, help="Only records made since: 2026-11-28T04:21:59Z, or 2h for two hours ago."
        )(command)
        command = click.option("--key-digest", metavar="HEX", help="Only the key that log lines show so. Quick with --scope-id.")(command)
        command = click.option("--scope-id", metavar="ID", help="Only records of this caller, as log lines have it.")(command)
        command = click.option("--trace-id", metavar="HEX", help="Only records of this trace. Not of requests that brought an id.")(command)
        command = click.option("--request-id", metavar="ID", help="Only the record whose last attempt had this request id.")(command)
        command = click.option("--key", metavar="KEY", help="Only records of this key, exactly as the client sent it.")(command)
        command = click.option("--scope", metavar="SCOPE", help="Only records of this scope, by its name.")(command)
        command = click.option("--route", metavar="ID", help="Only records of this route.")(command)
        if state:
            command = click.option("--state", type=click.Choice(STATES), help="Only records in this state.")(command)
        return token_option(command)

    return add


def selection_of(given: Mapping[str, Any], state: str | None = None) -> "Selection":
    from gateway.ports.reconciliation import Selection

    names = ("route", "scope", "key", "scope_id", "request_id", "trace_id", "key_digest", "since", "until")
    return Selection(state or given.get("state"), **{name: given[name] for name in names})


def record_options(command: Command) -> Command:
    """One record: RECORD, or --key with --route and --scope; and --token."""
    command = token_option(command)
    command = click.option("--scope", metavar="SCOPE", help="With --key: the scope's name.")(command)
    command = click.option("--route", metavar="ID", help="With --key: the route.")(command)
    command = click.option("--key", metavar="KEY", help="The client's key, instead of RECORD, the ID that lists show.")(command)
    return click.argument("record", metavar="[RECORD]", required=False)(command)


def wanted_of(given: Mapping[str, Any], state: str | None = None) -> "Wanted":
    from gateway.operate.commands.acting import Wanted

    return Wanted(given["record"], given["key"], given["route"], given["scope"], state)


def seeing_options(command: Command) -> Command:
    """--body, with --reason and --actor."""
    command = _actor_option(command)
    command = click.option("--reason", metavar="TEXT", help="With --body: why. Kept in the audit table.")(command)
    return click.option("--body", is_flag=True, help="With the stored body. Needs --reason, and is audited.")(command)


def resolve_options(command: Command) -> Command:
    """The verdict, and the answer that goes with *completed*."""
    command = retention_option(command)
    command = click.option(
        "--body-file", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True), help="The answer's body; - for stdin."
    )(command)
    command = click.option("--no-body", is_flag=True, help="The answer has no body.")(command)
    command = click.option("--header", metavar="'NAME: VALUE'", multiple=True, help="A field of the answer. May be given repeatedly.")(
        command
    )
    command = click.option("--status", type=click.IntRange(200, 599), help="The answer's status.")(command)
    command = click.option("--not-executed", is_flag=True, help="It did not run: the next retry runs it.")(command)
    return click.option("--completed", is_flag=True, help="It ran: retries get this answer.")(command)


def retention_option(command: Command) -> Command:
    return click.option(
        "--retention", metavar="DURATION", callback=_duration, help="How long it is kept from now on, such as 24h.  [default: the route's]"
    )(command)


def change_options(command: Command) -> Command:
    """--reason, --actor and --yes."""
    command = click.option("--yes", is_flag=True, help="Do not ask before anything is changed. Only a terminal is asked.")(command)
    return grounds_options(command)


def proposal_option(command: Command) -> Command:
    return click.option(
        "--proposal", metavar="ID", type=click.UUID, help="This one, by its id in `dead-letters proposals`; needed where nobody is asked."
    )(command)


def grounds_options(command: Command) -> Command:
    """--reason and --actor."""
    command = _actor_option(command)
    return click.option("--reason", metavar="TEXT", required=True, help="Why. Kept in the audit table.")(command)


def how_of(given: Mapping[str, Any]) -> "How":
    from gateway.operate.commands.work import How

    return How(grounds_of(given["reason"], given["actor"]), not given["yes"], given["as_json"])


def grounds_of(reason: str, actor: str | None) -> "Grounds":
    """Without a token, and without an actor, the login name is who acts. Raises `click.UsageError`."""
    from gateway.operate.operations import Grounds, Wrong

    try:
        return Grounds(reason, login_name() if actor is None and given_token() is None else actor)
    except Wrong as wrong:
        raise click.UsageError(f"--{wrong}") from None


def login_name() -> str:
    """The name of the user; behind sudo, of the one who called it. Raises `click.UsageError` where the user has none."""
    import getpass

    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError, ImportError):  # which of them depends on Python's version
        raise click.UsageError("This user has no name here: say who you are with --actor.") from None


def _actor_option(command: Command) -> Command:
    text = "Who does this; with --token, for whom. Kept in the audit table.  [default: the login name]"
    return click.option("--actor", metavar="NAME", help=text)(command)


def _instant(_: click.Context, parameter: click.Parameter, value: str | None) -> "dt.datetime | None":
    from gateway.core.units import parse_duration
    from gateway.operate.operations import read_instant

    if value is None:
        return None
    try:
        return dt.datetime.now(dt.UTC) - dt.timedelta(seconds=parse_duration(value))  # noqa: TID251 - people say how long ago
    except (ValueError, OverflowError):
        pass  # no duration
    try:
        return read_instant(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}, or how long ago, such as 2h", param=parameter) from None


def _duration(_: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    from gateway.core.units import parse_duration

    if value is None:
        return None
    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from None
