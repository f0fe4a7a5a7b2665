"""The operators' API: records, dead letters, the audit table."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial

import orjson
from aiohttp import web

from gateway.core.reconcile.policy import Verdict
from gateway.operate.admin.changes import VERSION_MAX, changed_by, key_of, not_found
from gateway.operate.admin.handlers import at_desk
from gateway.operate.admin.inputs import Query, answer_of, read_document
from gateway.operate.admin.openapi import PAGE, document
from gateway.operate.admin.responses import answer
from gateway.operate.operations import (
    LINE_MAX,
    PAGE_MAX,
    Desk,
    NotFound,
    Operator,
    Wrong,
    audit_json,
    page_json,
    shown_json,
)
from gateway.ports.reconciliation import Selection

_SELECTION = ("state", "route", "scope", "key", "scope_id", "request_id", "trace_id", "key_digest", "since", "until")
_GROUNDS = ("reason", "actor")
_ANSWER = ("status", "headers", "body", "body_base64")
_WRITE_BYTES = 64 * 1024

_log = logging.getLogger(__name__)


def record_routes(operator: Operator | None) -> list[web.RouteDef]:
    """All that concerns records, and the document that describes the listener."""
    bound = partial(at_desk, operator)
    record = "/admin/v1/records/{id}"
    return [
        web.get("/admin/v1/openapi.json", _describe),
        web.get("/admin/v1/records", bound(_list)),
        web.get(record, bound(_show)),
        web.delete(record, bound(_delete)),
        web.post(f"{record}/resolve", bound(_resolve)),
        web.post(f"{record}/release", bound(_release)),
        web.get("/admin/v1/dead-letters", bound(_list_dead_letters)),
        web.post("/admin/v1/dead-letters/{id}/requeue", bound(_requeue)),
        web.get("/admin/v1/audit", bound(_audit)),
        web.get("/admin/v1/export", bound(_export)),
    ]


async def _describe(request: web.Request) -> web.Response:
    Query(request, ())
    return answer(document())


# ---- reads


async def _list(desk: Desk, request: web.Request) -> web.Response:
    query = Query(request, (*_SELECTION, "limit", "cursor"))
    return await _page(desk, query, _selection(query))


async def _list_dead_letters(desk: Desk, request: web.Request) -> web.Response:
    query = Query(request, (*_SELECTION[1:], "limit", "cursor"))
    return await _page(desk, query, _selection(query, "dead_letter"))


def _selection(query: Query, state: str | None = None) -> Selection:
    return Selection(
        state or query.text("state"),
        query.text("route"),
        query.text("scope"),
        query.text("key"),
        scope_id=query.text("scope_id"),
        request_id=query.text("request_id"),
        trace_id=query.text("trace_id"),
        since=query.instant("since"),
        until=query.instant("until"),
        key_digest=query.text("key_digest"),
    )


async def _page(desk: Desk, query: Query, selection: Selection) -> web.Response:
    limit = query.number("limit", 1, PAGE_MAX)
    return answer(page_json(await desk.select(selection, limit=limit or PAGE, cursor=query.text("cursor"))))


async def _show(desk: Desk, request: web.Request) -> web.Response:
    query = Query(request, ("body", *_GROUNDS))
    by = query.grounds() if query.flag("body") else None
    key = await key_of(desk, request)
    shown = NotFound() if key is None else await (desk.show(key) if by is None else desk.show_body(key, by))
    return not_found() if isinstance(shown, NotFound) else answer(shown_json(shown))


async def _audit(desk: Desk, request: web.Request) -> web.Response:
    query = Query(request, ("after", "before", "newest", "limit"))
    after, before = query.number("after", 0, LINE_MAX), query.number("before", 1, LINE_MAX)
    limit = query.number("limit", 1, PAGE_MAX) or PAGE
    if query.flag("newest") or before is not None:
        lines = await desk.audit_last(after=after or 0, before=before or LINE_MAX, limit=limit)
    else:
        lines = await desk.audit(after=after or 0, limit=limit)
    return answer({"lines": [audit_json(line) for line in lines]})


async def _export(desk: Desk, request: web.Request) -> web.StreamResponse:
    """Streamed: the first record is there, or the refusal, before the head goes out. What fails later cuts the transfer."""
    query = Query(request, (*_SELECTION, "bodies", *_GROUNDS))
    pieces = _pieces(desk.export(_selection(query), query.grounds(), bodies=query.flag("bodies")))
    try:
        piece = await anext(pieces, None)
        response = web.StreamResponse(headers={"Content-Type": "application/jsonl", "Cache-Control": "no-store"})
        await response.prepare(request)
        try:
            while piece is not None:
                await response.write(piece)
                piece = await anext(pieces, None)
        except Exception:
            # Its end would say that this was all.
            _log.exception("An export was cut short")
            if request.transport is not None:
                request.transport.abort()
        return response
    finally:
        await pieces.aclose()


async def _pieces(lines: AsyncIterator[dict[str, object]]) -> AsyncGenerator[bytes, None]:
    piece = b""
    async for line in lines:
        piece += orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
        if len(piece) >= _WRITE_BYTES:
            yield piece
            piece = b""
    if piece:
        yield piece


# ---- changes


async def _resolve(desk: Desk, request: web.Request) -> web.Response:
    given = await read_document(request, ("verdict", *_ANSWER, *_GROUNDS, "retention", "version"))
    by, version, retention = given.grounds(), given.number("version", 1, VERSION_MAX), given.seconds("retention")
    verdict = given.choice("verdict", (Verdict.EXECUTED.value, Verdict.NOT_EXECUTED.value))
    if verdict == Verdict.NOT_EXECUTED:
        for name in _ANSWER:
            if name in given:
                raise Wrong(name, "an operation that was not executed has no answer")
        return await changed_by(desk, request, lambda key: desk.resolve_not_executed(key, by, retention=retention, version=version))
    status, headers, body = answer_of(given)
    return await changed_by(
        desk,
        request,
        lambda key: desk.resolve_completed(key, by, status=status, headers=headers, body=body, retention=retention, version=version),
    )


async def _release(desk: Desk, request: web.Request) -> web.Response:
    given = await read_document(request, (*_GROUNDS, "retention", "version"))
    by, version, retention = given.grounds(), given.number("version", 1, VERSION_MAX), given.seconds("retention")
    return await changed_by(desk, request, lambda key: desk.release(key, by, retention=retention, version=version))


async def _requeue(desk: Desk, request: web.Request) -> web.Response:
    given = await read_document(request, (*_GROUNDS, "version"))
    by, version = given.grounds(), given.number("version", 1, VERSION_MAX)
    return await changed_by(desk, request, lambda key: desk.requeue(key, by, version=version))


async def _delete(desk: Desk, request: web.Request) -> web.Response:
    query = Query(request, (*_GROUNDS, "version"))
    by, version = query.grounds(), query.number("version", 1, VERSION_MAX)
    return await changed_by(desk, request, lambda key: desk.delete(key, by, version=version))
