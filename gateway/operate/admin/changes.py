"""A change of one record that a request asks for, and what it came to."""

from collections.abc import Awaitable, Callable
from typing import assert_never

from aiohttp import web

from gateway.core.model import RecordKey
from gateway.operate.admin.responses import answer, http_date, problem
from gateway.operate.operations import Changed, Conflict, Desk, Done, NotFound, Proposed, TooEarly, Wrong, changed_json

VERSION_MAX = 2**31 - 1


async def changed_by(desk: Desk, request: web.Request, change: Callable[[RecordKey], Awaitable[Changed]]) -> web.Response:
    """Make the change, and say what it came to."""
    key = await key_of(desk, request)
    if key is None:
        return not_found()
    changed = await change(key)
    told = changed_json(changed)
    match changed:
        case Done():
            return answer(told)
        case NotFound():
            return not_found()
        case Proposed():
            return answer(told, 202)
        case Conflict():
            return problem(409, changed.why, result=told["result"], record=told["record"])
        case TooEarly(until):
            why = "Until `not_before` the upstream may still execute it, so *not executed* cannot be known yet."
            response = problem(409, why, result=told["result"], record=told["record"], not_before=told["until"])
            response.headers["Retry-After"] = http_date(until)
            return response
        case _:
            assert_never(changed)


async def key_of(desk: Desk, request: web.Request) -> RecordKey | None:
    """None: nothing that a list ever showed. Raises `Wrong` for a short id that several records share."""
    name = request.match_info["id"]
    try:
        found = await desk.named(name)
    except Wrong:
        return None
    if len(found) > 1:
        raise Wrong("id", f"{len(found)} records share this one: take the long `id` of a list")
    return found[0] if found else None


def not_found() -> web.Response:
    return problem(404, "There is no such record. Copy the `id` of a listed one, whole: it begins with rec_.")
