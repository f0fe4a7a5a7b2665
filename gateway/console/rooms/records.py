"""The rooms with records in them: search, and one record."""

import datetime as dt
from dataclasses import dataclass, replace

from aiohttp import web

from gateway.console import concealing
from gateway.console.searching import WAYS, read_search, told
from gateway.console.timeline import timeline
from gateway.console.visits import Visit, to
from gateway.console.waiting import waits
from gateway.console.words import CHOOSE, DONE, NEEDS, PATHS, TITLES, retry_now
from gateway.core.model import RecordKey
from gateway.operate.operations import NotFound, TooEarly, Wrong, record_id_text
from gateway.operate.operations.rules import obstacle
from gateway.ports.reconciliation import Page, Shown

PAGE = 50


async def list_records(visit: Visit) -> web.Response:
    """Search, and a page of what it found. A record id leads to its record."""
    query = visit.request.query
    search = read_search(query)
    found = Page([], None)
    if search.id is not None:
        try:
            keys = await visit.desk.named(search.id)
        except Wrong as wrong:
            search = replace(search, mistakes=told(wrong))
        else:
            if len(keys) == 1:
                return to(f"/console/records/{record_id_text(keys[0])}")
            shown = [await visit.desk.show(key) for key in keys]
            found = Page([one.listed for one in shown if isinstance(one, Shown)], None)
    elif not search.mistakes:
        try:
            found = await visit.desk.select(search.selection, limit=PAGE, cursor=query.get("cursor") or None)
        except Wrong as wrong:
            search = replace(search, mistakes=told(wrong))
    return await visit.page(
        "records.html",
        400 if search.mistakes else 200,
        search=search,
        ways=WAYS,
        routes=visit.console.guarded(),
        records=found.records,
        following=search.address("/console/records", cursor=found.cursor) if found.cursor else None,
        first=not query.get("cursor"),
    )


async def show_record(visit: Visit) -> web.Response:
    """One record: where it stands, what may be done, what happened."""
    shown = await visit.desk.show(await key_of(visit))
    if isinstance(shown, NotFound):
        raise web.HTTPNotFound
    return await record_page(visit, shown)


async def show_body(visit: Visit) -> web.Response:
    """The record with its answer's body; the audit table says who read it, and why."""
    form = await visit.form()
    key = await key_of(visit)
    try:
        by = visit.grounds(form)
    except Wrong as wrong:
        plain = await visit.desk.show(key)
        if isinstance(plain, NotFound):
            raise web.HTTPNotFound from None
        return await record_page(visit, plain, 400, mistakes=told(wrong), given=form.values)
    shown = await visit.desk.show_body(key, by)
    if isinstance(shown, NotFound):
        raise web.HTTPNotFound
    return await record_page(visit, shown)


async def record_page(visit: Visit, shown: Shown, status: int = 200, **values: object) -> web.Response:
    """The page of one record."""
    policy = visit.console.policy(shown.listed.route_id)
    body = None if shown.response is None or shown.response.body is None else concealing.body(shown.response.body)
    word = visit.request.query.get("done")
    done = next((text for change, text in DONE.items() if change == word), None)
    known: dict[str, object] = {"mistakes": {}, "asked_for": {}, "given": {}, "refused": None}
    return await visit.page(
        "record.html",
        status,
        **{**known, **values},
        shown=shown,
        listed=shown.listed,
        now=shown.at,
        retry=retry_now(shown.listed, shown.at, policy),
        moments=timeline(shown),
        waits=await waits(visit, shown),
        changes=choices(visit, shown),
        sealed=not visit.sees_values,
        body=body,
        done=done,
        asks=visit.console.asks(shown.listed.route_id),
    )


@dataclass(frozen=True, slots=True)
class Choice:
    """A change that makes sense of a record. `path` is the last part of its address, `until` from when on it can be made, `needs` the
    role that the visitor lacks for it.
    """

    path: str
    title: str
    text: str
    until: dt.datetime | None
    needs: str | None


def choices(visit: Visit, shown: Shown) -> list[Choice]:
    """What may become of the record."""
    found: list[Choice] = []
    for path, change in PATHS.items():
        against = obstacle(change, shown)
        if against is None or isinstance(against, TooEarly):
            until = None if against is None else against.until
            needs = None if visit.may(NEEDS[change]) else visit.needed(NEEDS[change])
            found.append(Choice(path, TITLES[change], CHOOSE[change], until, needs))
    return found


async def key_of(visit: Visit) -> RecordKey:
    """The record that the address names. Raises 404."""
    try:
        keys = await visit.desk.named(visit.request.match_info["id"])
    except Wrong:
        raise web.HTTPNotFound from None
    if len(keys) != 1:
        raise web.HTTPNotFound
    return keys[0]
