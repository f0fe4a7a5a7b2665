"""The operators' API, of verdicts: their preview, those that wait for a second person, looks at once, many dead letters together."""

from base64 import b64encode
from functools import partial
from uuid import UUID

from aiohttp import web

from gateway.core.roles import Action
from gateway.operate.admin.changes import VERSION_MAX, changed_by, key_of, not_found
from gateway.operate.admin.handlers import at_desk
from gateway.operate.admin.inputs import Document, Query, answer_of, read_document
from gateway.operate.admin.responses import answer, problem
from gateway.operate.operations import PAGE_MAX, Desk, NotFound, Operator, Wrong, asked_json, listed_json, waiting_json
from gateway.operate.operations.proposals import cursor_after, position_of
from gateway.ports.reconciliation import Selection

_GROUNDS = ("reason", "actor")
_NARROWED = ("route", "scope", "scope_id", "since", "until")
_PAGE = 100


def verdict_routes(operator: Operator | None) -> list[web.RouteDef]:
    """See the module."""
    bound = partial(at_desk, operator)
    record = "/admin/v1/records/{id}"
    return [
        web.post(f"{record}/preview", bound(_preview)),
        web.post(f"{record}/look-now", bound(_look_now)),
        web.post(f"{record}/ask", bound(_ask)),
        web.get(f"{record}/proposal", bound(_proposal)),
        web.post(f"{record}/approve", bound(_approve)),
        web.post(f"{record}/reject", bound(_reject)),
        web.get("/admin/v1/proposals", bound(_proposals)),
        web.get("/admin/v1/dead-letters/by-amount", bound(_by_amount)),
        web.post("/admin/v1/dead-letters/requeue", bound(_requeue_all)),
    ]


async def _preview(desk: Desk, request: web.Request) -> web.Response:
    given = await read_document(request, ("status", "headers", "body", "body_base64"))
    status, headers, body = answer_of(given)
    key = await key_of(desk, request)
    message = NotFound() if key is None else await desk.preview(key, status=status, headers=headers, body=body)
    return not_found() if isinstance(message, NotFound) else answer({"message_base64": b64encode(message).decode()})


async def _look_now(desk: Desk, request: web.Request) -> web.Response:
    given = await read_document(request, (*_GROUNDS, "version"))
    grounds, version = given.grounds(), given.number("version", 1, VERSION_MAX)
    return await changed_by(desk, request, lambda key: desk.look_now(key, grounds, version=version))


async def _ask(desk: Desk, request: web.Request) -> web.Response:
    given = await read_document(request, _GROUNDS)
    grounds = given.grounds()
    desk.caller.check(Action.LOOK)
    key = await key_of(desk, request)
    shown = NotFound() if key is None else await desk.show(key)
    if isinstance(shown, NotFound):
        return not_found()
    found = await desk.ask(shown, grounds)
    if found is None:
        return problem(409, "The record's route has no `probe: lookup`, so nothing can be asked that changes nothing.")
    return answer(asked_json(found))


async def _proposal(desk: Desk, request: web.Request) -> web.Response:
    Query(request, ())
    key = await key_of(desk, request)
    waiting = None if key is None else await desk.proposal(key)
    return problem(404, "No verdict about this record waits.") if waiting is None else answer(waiting_json(waiting))


async def _approve(desk: Desk, request: web.Request) -> web.Response:
    given = await read_document(request, ("proposal", *_GROUNDS, "version"))
    grounds, version, proposal = given.grounds(), given.number("version", 1, VERSION_MAX), _id_of(given)
    return await changed_by(desk, request, lambda key: desk.approve(key, proposal, grounds, version=version))


async def _reject(desk: Desk, request: web.Request) -> web.Response:
    given = await read_document(request, ("proposal", *_GROUNDS))
    grounds, proposal = given.grounds(), _id_of(given)
    return await changed_by(desk, request, lambda key: desk.reject(key, proposal, grounds))


def _id_of(given: Document) -> UUID:
    try:
        return UUID(given.text("proposal"))
    except ValueError:
        raise Wrong("proposal", "is the `proposal` of one that waits") from None


async def _proposals(desk: Desk, request: web.Request) -> web.Response:
    query = Query(request, ("limit", "cursor"))
    limit = query.number("limit", 1, PAGE_MAX) or _PAGE
    found = await desk.proposals(after=position_of(query.text("cursor")), limit=limit)
    return answer({"proposals": [waiting_json(waiting) for waiting in found], "cursor": cursor_after(found, limit)})


async def _by_amount(desk: Desk, request: web.Request) -> web.Response:
    query = Query(request, ("capture", *_NARROWED, "limit"))
    capture = query.text("capture")
    if not capture:
        raise Wrong("capture", "names the captured value that is the amount, such as amount")
    found, whole = await desk.by_amount(_narrowed(query), capture, limit=query.number("limit", 1, PAGE_MAX) or _PAGE)
    return answer({"records": [listed_json(listed) for listed in found], "whole": whole})


def _narrowed(query: Query) -> Selection:
    return Selection(
        route=query.text("route"),
        scope=query.text("scope"),
        scope_id=query.text("scope_id"),
        since=query.instant("since"),
        until=query.instant("until"),
    )


async def _requeue_all(desk: Desk, request: web.Request) -> web.Response:
    query = Query(request, (*_NARROWED, "limit"))
    given = await read_document(request, _GROUNDS)
    grounds, limit = given.grounds(), query.number("limit", 1, PAGE_MAX) or _PAGE
    requeued, refused = await desk.requeue_all(_narrowed(query), grounds, limit=limit)
    return answer({"requeued": requeued, "refused": refused})
