"""What the commands do, once their arguments are read."""

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import click
import orjson

from gateway.background.probe import Finding
from gateway.core.model import Headers, RecordKey
from gateway.operate.commands.acting import Wanted, change, collect, echo_json, find, operate, tell_change, tell_page
from gateway.operate.commands.shared import FAILURE, fail
from gateway.operate.commands.tables import asked_text, audit_table, body_text, shown_text, table
from gateway.operate.operations import (
    LINE_MAX,
    PAGE_MAX,
    Changed,
    Desk,
    Grounds,
    NotFound,
    asked_json,
    audit_json,
    listed_json,
    never_stored,
    short_id_text,
    shown_json,
)
from gateway.ports.reconciliation import AuditLine, Selection, Shown

BODY_MAX = 16 * 1024 * 1024
"""Bytes of a body file, as for the admin API."""


@dataclass(frozen=True, slots=True)
class How:
    """How a change is made: by whom and why, whether to ask first, and how to tell."""

    grounds: Grounds
    ask: bool
    as_json: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of an operation that was executed."""

    status: int
    headers: Headers
    body: bytes


def list_records(config: Path, selection: Selection, limit: int, cursor: str | None, *, as_json: bool) -> None:
    tell_page(operate(config, lambda desk: collect(desk, selection, limit, cursor)), as_json=as_json)


def show(config: Path, wanted: Wanted, body: Grounds | None, *, as_json: bool) -> None:
    """`body`: who wants to see it, and why."""

    async def work(desk: Desk) -> Shown | NotFound:
        key = await find(desk, wanted)
        return await (desk.show(key) if body is None else desk.show_body(key, body))

    shown = operate(config, work)
    if isinstance(shown, NotFound):
        fail("No such record.", FAILURE)
    document = shown_json(shown)
    if as_json:
        echo_json(document)
        return
    click.echo(shown_text(document))
    if body is not None:
        click.echo(f"\n{body_text(None if shown.response is None else shown.response.body)}")


def resolve(config: Path, wanted: Wanted, answer: Answer | None, retention: float | None, how: How) -> None:
    """`answer` None: it was not executed."""

    async def work(desk: Desk) -> Changed:
        async def act(key: RecordKey, version: int | None) -> Changed:
            if answer is None:
                return await desk.resolve_not_executed(key, how.grounds, retention=retention, version=version)
            return await desk.resolve_completed(
                key, how.grounds, status=answer.status, headers=answer.headers, body=answer.body, retention=retention, version=version
            )

        question = (
            "Let the next retry run it?" if answer is None else f"Complete it with status {answer.status}? It cannot be changed any more."
        )
        return await change(desk, wanted, question, act, ask=how.ask)

    changed = operate(config, work, changes=True)
    for name in () if answer is None else never_stored(answer.headers):
        click.echo(f"warning: {name} is never stored with an answer: it is left out", err=True)
    tell_change(changed, as_json=how.as_json)


def release(config: Path, wanted: Wanted, retention: float | None, how: How) -> None:
    async def work(desk: Desk) -> Changed:
        async def act(key: RecordKey, version: int | None) -> Changed:
            return await desk.release(key, how.grounds, retention=retention, version=version)

        return await change(desk, wanted, "Let the next retry run it?", act, ask=how.ask)

    tell_change(operate(config, work, changes=True), as_json=how.as_json)


def delete(config: Path, wanted: Wanted, how: How) -> None:
    async def work(desk: Desk) -> Changed:
        async def act(key: RecordKey, version: int | None) -> Changed:
            return await desk.delete(key, how.grounds, version=version)

        return await change(desk, wanted, "Forget it, so that the next request with its key runs?", act, ask=how.ask)

    tell_change(operate(config, work, changes=True), as_json=how.as_json)


def requeue(config: Path, wanted: Wanted, how: How) -> None:
    async def work(desk: Desk) -> Changed:
        async def act(key: RecordKey, version: int | None) -> Changed:
            return await desk.requeue(key, how.grounds, version=version)

        return await change(desk, wanted, "Have it looked at again?", act, ask=how.ask)

    tell_change(operate(config, work, changes=True), as_json=how.as_json)


def look_now(config: Path, wanted: Wanted, how: How) -> None:
    async def work(desk: Desk) -> Changed:
        async def act(key: RecordKey, version: int | None) -> Changed:
            return await desk.look_now(key, how.grounds, version=version)

        return await change(desk, wanted, "Have it looked at now?", act, ask=how.ask)

    tell_change(operate(config, work, changes=True), as_json=how.as_json)


def ask(config: Path, wanted: Wanted, grounds: Grounds, *, as_json: bool) -> None:
    async def work(desk: Desk) -> Finding | NotFound | None:
        shown = await desk.show(await find(desk, wanted))
        return shown if isinstance(shown, NotFound) else await desk.ask(shown, grounds)

    found = operate(config, work)
    if isinstance(found, NotFound):
        fail("No such record.", FAILURE)
    if found is None:
        fail("Its route has no `probe: lookup`, so nothing can be asked that changes nothing.", FAILURE)
    document = asked_json(found)
    if as_json:
        echo_json(document)
        return
    click.echo(asked_text(document))
    if found.answer is not None:
        click.echo(f"\n{body_text(found.answer.body)}")


def requeue_all(config: Path, selection: Selection, limit: int, grounds: Grounds) -> None:
    requeued, refused = operate(config, lambda desk: desk.requeue_all(selection, grounds, limit=min(limit, PAGE_MAX)), changes=True)
    click.echo(f"OK: {requeued} requeued, {refused} could not be", err=True)


def list_by_amount(config: Path, selection: Selection, capture: str, limit: int, *, as_json: bool) -> None:
    records, whole = operate(config, lambda desk: desk.by_amount(selection, capture, limit=limit))
    if as_json:
        echo_json({"records": [listed_json(listed) for listed in records], "whole": whole})
        return
    rows = [(listed.captured.get(capture), short_id_text(listed.key), listed.route_id, listed.key.key) for listed in records]
    click.echo(table((capture.upper(), "ID", "ROUTE", "KEY"), rows))
    if not whole:
        click.echo("There are more.", err=True)


def export(config: Path, selection: Selection, grounds: Grounds, *, bodies: bool) -> None:
    """JSON lines on stdout, as they are read."""

    async def work(desk: Desk) -> int:
        count = 0
        out = sys.stdout.buffer
        lines = cast("AsyncGenerator[dict[str, object], None]", desk.export(selection, grounds, bodies=bodies))
        async with aclosing(lines):
            async for line in lines:
                out.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
                count += 1
        return count

    count = operate(config, work)
    click.echo(f"OK: {count} record{'' if count == 1 else 's'}", err=True)


def audit(config: Path, after: int, limit: int, *, newest: bool, as_json: bool) -> None:
    async def work(desk: Desk) -> list[AuditLine]:
        found: list[AuditLine] = []
        while len(found) < limit:
            wanted = min(PAGE_MAX, limit - len(found))
            if newest:
                page = await desk.audit_last(after=after, before=found[-1].id if found else LINE_MAX, limit=wanted)
            else:
                page = await desk.audit(after=found[-1].id if found else after, limit=wanted)
            if not page:
                break
            found += page
        return found

    lines = [audit_json(line) for line in operate(config, work)]
    if as_json:
        echo_json({"lines": lines})
        return
    click.echo(audit_table(lines))
    if len(lines) == limit:
        click.echo(f"There may be more: --after {lines[-1]['line']}", err=True)


def read_body(path: str | None) -> bytes:
    """The file's bytes, or stdin's for `-`; none without a path."""
    if path is None:
        return b""
    try:
        if path == "-":
            body = sys.stdin.buffer.read(BODY_MAX + 1)
        else:
            with Path(path).open("rb") as file:
                body = file.read(BODY_MAX + 1)
    except OSError as error:
        fail(f"{path}: {error.strerror or error}", FAILURE)
    if len(body) > BODY_MAX:
        fail(f"{path}: a body has at most {BODY_MAX} bytes", FAILURE)
    return body


def read_headers(lines: tuple[str, ...]) -> Headers:
    """`Name: value`, each. Raises `click.UsageError`."""
    found: list[tuple[bytes, bytes]] = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise click.UsageError(f"--header {line!r}: write it as 'Name: value'.")
        try:
            found.append((name.strip().encode("latin-1"), value.strip(" \t").encode("latin-1")))
        except UnicodeEncodeError:
            raise click.UsageError(f"--header {line!r}: a field holds ISO-8859-1.") from None
    return tuple(found)
