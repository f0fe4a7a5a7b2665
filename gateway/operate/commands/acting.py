"""How a command finds its record, asks, acts, and says what became of it."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar, assert_never

import click
import orjson

from gateway.config import Config
from gateway.core.model import RecordKey
from gateway.core.roles import Action
from gateway.operate.admin import Entrance, Settings
from gateway.operate.commands.shared import FAILURE, UNAVAILABLE, fail, load_config, reported
from gateway.operate.commands.tables import instant, record_table, terminal_width
from gateway.operate.commands.token import TOKEN, given_token
from gateway.operate.operations import (
    ANYBODY,
    PAGE_MAX,
    Caller,
    Changed,
    Conflict,
    Desk,
    Done,
    Forbidden,
    NotFound,
    Proposed,
    TooEarly,
    Wrong,
    changed_json,
    listed_json,
    page_json,
    record_id_text,
    short_id_text,
)
from gateway.ports import StoreUnavailable
from gateway.ports.reconciliation import Listed, Page, Selection
from gateway.run.server.operating import NotReady, operating

T = TypeVar("T")

SHOWN_MATCHES = 20
"""How many of several records under one key are listed."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which record a command is about: an id, or a key and what narrows it down. `state`: only one in this state
    counts.
    """

    record: str | None
    key: str | None
    route: str | None
    scope: str | None
    state: str | None = None


def operate(config: Path, work: Callable[[Desk], Awaitable[T]], *, changes: bool = False) -> T:
    """Do `work` over the configuration's stores, as whoever the token names. What people can put right becomes a message and an exit
    code.
    """

    async def run() -> T:
        loaded = load_config(config)
        caller = caller_for(loaded)
        async with operating(lambda: loaded, changes=changes, ready=True) as operator:
            return await work(Desk(operator, caller))

    # What stores and exporters log is for processes that serve. Without any handler, Python would print warnings among the output.
    for name in ("gateway", "opentelemetry"):
        logging.getLogger(name).addHandler(logging.NullHandler())

    with reported():
        try:
            return asyncio.run(run())
        except Forbidden as refusal:
            fail(f"Refused: {refusal}", FAILURE)
        except NotReady as error:
            fail(str(error), UNAVAILABLE)
        except Wrong as wrong:
            raise click.UsageError(str(wrong)) from None
        except StoreUnavailable as error:
            landed = changes and error.may_have_landed
            fail(f"{error}" + ("; the change may have been made: look before you repeat it" if landed else ""), UNAVAILABLE)


def caller_for(config: Config) -> Caller:
    """Who runs the command. Ends it if the token is nobody's, or is missing where there are users."""
    token = given_token()
    if token is not None:
        caller = Entrance(lambda: Settings.of_config(config)).of_token(token)
        if caller is None:
            fail(f"Refused: this is no user's token ({TOKEN} or --token).", FAILURE)
        return caller
    if config.admin.users:
        fail(f"Refused: the configuration has users, so say who you are: {TOKEN} or --token.", FAILURE)
    return ANYBODY


def permitted(config: Config, action: Action) -> Caller:
    """Who runs the command, if that one may do this. Ends it if not."""
    caller = caller_for(config)
    try:
        caller.check(action)
    except Forbidden as refusal:
        fail(f"Refused: {refusal}", FAILURE)
    return caller


async def collect(desk: Desk, selection: Selection, limit: int, cursor: str | None = None) -> Page:
    """Up to `limit` records, over as many pages as it takes."""
    found: list[Listed] = []
    while True:
        page = await desk.select(selection, limit=min(PAGE_MAX, limit - len(found)), cursor=cursor)
        found += page.records
        cursor = page.cursor
        if cursor is None or len(found) >= limit:
            return Page(found, cursor)


async def find(desk: Desk, wanted: Wanted) -> RecordKey:
    """The one record that is meant. Several are listed and refused: a guess could be another customer's."""
    if (wanted.record is None) == (wanted.key is None):
        raise click.UsageError("Name one record: RECORD, the id that a list shows, or --key.")
    if wanted.record is not None:
        if wanted.route is not None or wanted.scope is not None:
            raise click.UsageError("--route and --scope narrow a --key down; a RECORD is one already.")
        try:
            named = await desk.named(wanted.record)
        except Wrong as wrong:
            raise click.UsageError(f"{wanted.record}: {wrong.why}") from None
        if len(named) > 1:
            fail(f"Several records share this ID: {', '.join(map(record_id_text, named))}", FAILURE)
        if not named:
            fail("No such record.", FAILURE)
        return named[0]
    selection = Selection(wanted.state, wanted.route, wanted.scope, wanted.key)
    matches = (await collect(desk, selection, SHOWN_MATCHES)).records
    if (
        not matches
        and wanted.state is not None
        and (others := (await collect(desk, replace(selection, state=None), SHOWN_MATCHES)).records)
    ):
        click.echo(record_table([listed_json(listed) for listed in others], width=terminal_width(sys.stderr)), err=True)
        fail(f"Refused: no {wanted.state.replace('_', ' ')} has this key (any more).", FAILURE)
    if not matches:
        fail("No such record.", FAILURE)
    if len(matches) > 1:
        click.echo(record_table([listed_json(listed) for listed in matches], width=terminal_width(sys.stderr)), err=True)
        fail("Several records have this key: name one by its ID, or narrow the key down with --route or --scope.", FAILURE)
    return matches[0].key


async def change(
    desk: Desk, wanted: Wanted, question: str, act: Callable[[RecordKey, int | None], Awaitable[Changed]], *, ask: bool
) -> Changed:
    """Find the record, ask the person at a terminal, act. The person decides about the record as shown, and no
    other.
    """
    key = await find(desk, wanted)
    version = None
    if ask and sys.stdin is not None and sys.stdin.isatty():
        shown = await desk.show(key)
        if isinstance(shown, NotFound):
            return shown
        click.echo(record_table([listed_json(shown.listed)], width=terminal_width(sys.stderr)), err=True)
        click.confirm(question, abort=True, err=True)
        version = shown.listed.version
    return await act(key, version)


def tell_page(page: Page, *, as_json: bool) -> None:
    if as_json:
        echo_json(page_json(page))
        return
    click.echo(record_table([listed_json(listed) for listed in page.records], width=terminal_width(sys.stdout)))
    if page.cursor is not None:
        click.echo(f"There are more: --cursor {page.cursor}", err=True)


def tell_change(changed: Changed, *, as_json: bool) -> None:
    """What it came to; ends the command with 1 if nothing was changed."""
    if as_json:
        echo_json(changed_json(changed))
    match changed:
        case Done(now, redis_wait, memory_wait):
            if now is not None and not as_json:
                click.echo(record_table([listed_json(now)], width=terminal_width(sys.stdout)))
            click.echo("OK" if now is not None else "OK: it is gone", err=True)
            if redis_wait:
                click.echo(f"warning: Redis has not acknowledged; for {redis_wait:g} s at most gateways may still answer from it", err=True)
            elif memory_wait:
                click.echo(f"Gateways may still replay it from their own memory for {memory_wait:g} s at most.", err=True)
        case NotFound():
            fail("No such record.", FAILURE)
        case Conflict(now, why):
            fail(f"Refused: {why} ({short_id_text(now.key)})", FAILURE)
        case Proposed(proposal):
            named = f"{short_id_text(proposal.key)} --proposal {proposal.id}"
            click.echo(f"Proposed: another user confirms it, with: dead-letters approve {named} --reason …", err=True)
        case TooEarly(until):
            at = instant(until.isoformat())
            fail(f"Too early: until {at} the upstream may still execute it, so *not executed* cannot be known yet.", FAILURE)
        case _:
            assert_never(changed)


def echo_json(document: object) -> None:
    click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2))
