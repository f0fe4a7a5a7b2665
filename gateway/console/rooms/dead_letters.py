"""The queue of a person: dead letters, the oldest or the largest first, and giving many back to the reconciler at once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aiohttp import web

from gateway.console.searching import read_search, told
from gateway.console.visits import Visit, to
from gateway.console.words import DONE
from gateway.core.model import RecordKey
from gateway.operate.operations import AMOUNTS, Done, Wrong, parse_record_id
from gateway.ports.reconciliation import Listed, Selection

PAGE = 50
_LIST = "/console/dead-letters"


async def list_dead_letters(visit: Visit) -> web.Response:
    """A page of the queue."""
    return await _page(visit, {}, 200)


async def requeue_many(visit: Visit) -> web.Response:
    """Give the chosen ones back to the reconciler, each as it was seen. What has changed meanwhile, or cannot be looked for, stays."""
    form = await visit.form()
    chosen = form.every("shown" if "all" in form.values else "record")
    try:
        by = visit.grounds(form)
        if not chosen:
            raise Wrong("record", "choose at least one")
        wanted = [_chosen(text) for text in chosen[:PAGE]]
    except Wrong as wrong:
        return await _page(visit, told(wrong), 400, given=form.values, checked=set(chosen))
    done = 0
    for key, version in wanted:
        done += isinstance(await visit.desk.requeue(key, by, version=version), Done)
    query = {name: value for name, value in (("route", form.text("route")), ("order", _capture(visit))) if value}
    return to(_LIST, **query, requeued=str(done), refused=str(len(wanted) - done))


async def _page(visit: Visit, mistakes: dict[str, str], status: int, **values: object) -> web.Response:
    query = visit.request.query
    search = read_search(query, "dead_letter")
    queue, capture = _Queue([], None), _capture(visit)
    if not search.mistakes:
        try:
            queue = await _queue(visit, search.selection, capture)
        except Wrong as wrong:
            search = replace(search, mistakes=told(wrong))
    order = {"order": capture} if capture else {}
    known: dict[str, object] = {"given": {}, "checked": set()}
    return await visit.page(
        "dead_letters.html",
        400 if search.mistakes else status,
        **{**known, **values},
        mistakes=mistakes,
        search=search,
        routes=visit.console.guarded(),
        records=queue.records,
        captures=visit.captures if visit.sees_values else (),
        capture=capture,
        partly=queue.partly,
        looked_at=f"{AMOUNTS:,}",
        address=search.address(_LIST, **order),
        following=search.address(_LIST, cursor=queue.cursor) if queue.cursor else None,
        first=not query.get("cursor"),
        done=_told(visit),
    )


@dataclass(frozen=True, slots=True)
class _Queue:
    """A page of it. `partly`: there are more, and some of them may be larger."""

    records: Sequence[Listed]
    cursor: str | None
    partly: bool = False


async def _queue(visit: Visit, selection: Selection, capture: str) -> _Queue:
    if capture:
        records, whole = await visit.desk.by_amount(selection, capture, limit=PAGE)
        return _Queue(records, None, partly=not whole)
    page = await visit.desk.select(selection, limit=PAGE, cursor=visit.request.query.get("cursor") or None)
    return _Queue(page.records, page.cursor)


def _capture(visit: Visit) -> str:
    """The captured value by which the largest come first; "" for the oldest first."""
    given = visit.request.query.get("order", "")
    return given if given in visit.captures and visit.sees_values else ""


def _told(visit: Visit) -> str | None:
    """What the last change came to. Only numbers and known words of the address are shown."""
    query = visit.request.query
    requeued, refused = query.get("requeued", ""), query.get("refused", "")
    if requeued.isdecimal() and refused.isdecimal() and max(len(requeued), len(refused)) < 4:
        rest = f" {refused} stayed: they have changed, or nothing could look for them." if refused != "0" else ""
        return f"{requeued} queued for looks.{rest}"
    return next((text for change, text in DONE.items() if change == query.get("done")), None)


def _chosen(text: str) -> tuple[RecordKey, int]:
    """A record and the version that was shown."""
    name, _, version = text.partition("~")
    try:
        return parse_record_id(name), int(version)
    except ValueError:
        raise Wrong("record", "is none of this list") from None
