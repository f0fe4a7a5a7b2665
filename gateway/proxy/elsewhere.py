"""Requests that an upstream could take for another operation than the route map does: by other fields, by another method, in the body."""

from collections.abc import Iterable

from gateway.core.decision import Label
from gateway.core.fingerprint import LARGE_BODY
from gateway.core.host import effective_host
from gateway.core.key import KeyMissing, find_key, find_key_in
from gateway.core.overrides import may_ask_in_body, methods_asked, methods_asked_in
from gateway.core.policy import BodyKey, FormKey, HeaderKey, Mode, Policy, QueryKey, Route
from gateway.core.problems import Problem
from gateway.core.routes import Match, Matched, NoRoute, RefusedTarget
from gateway.engine.answers import Refused, Reply
from gateway.http.body import BodyTooLarge, MemoryFull, read_body
from gateway.ports import Memory
from gateway.proxy.call import Call

_ASKED = "The request asks for another method than its own, under which this path is guarded. Send it with that method."
_TOO_LARGE = f"A body that may ask for another method, under which this path is guarded, may have at most {LARGE_BODY} bytes."


def judge_overrides(call: Call, route: Route) -> Reply | None:
    """Take out of the call's fields what would mislead the upstream; a refusal of what a framework may take for a guarded operation."""
    overrides = call.routing.overrides.get(route.upstream)
    if overrides is None:
        return None
    cleaned = overrides.clean(call.fields)
    if cleaned is not None:
        call.fields, call.doubles = cleaned
    asked = methods_asked(call.request.method, call.fields, call.raw) if overrides.refuse else None
    return _refused(_ASKED) if asked and _leads_elsewhere(_under(call, asked), route) else None


async def judge_body(call: Call, route: Route, memory: Memory) -> Reply | None:
    """A refusal of a request that goes on unguarded, and whose body asks for a guarded operation. A body that has to be looked into is
    read here, and is then the call's. Raises as `read_body` does, but for what is answered here.
    """
    overrides = call.routing.overrides.get(route.upstream)
    if overrides is None or not overrides.refuse or not may_ask_in_body(call.request.method, call.fields):
        return None
    if not call.request.body.exists or not _leads_elsewhere(_under(call), route):
        return None
    if call.body is None:
        call.go_on()
        try:
            taken = await read_body(call.request, LARGE_BODY, call.pace(), memory)
        except BodyTooLarge:
            return Reply(Label.REFUSED_TARGET, Refused(Problem.BODY_TOO_LARGE, detail=_TOO_LARGE))
        except MemoryFull:
            return Reply(Label.OVERLOADED, Refused(Problem.OVERLOADED, retry_after=1))
        call.body, call.held = taken.body, taken.held
        call.request_bytes = len(taken.body) if isinstance(taken.body, bytes) else taken.body.length
    if not isinstance(call.body, bytes):
        return Reply(Label.REFUSED_TARGET, Refused(Problem.BODY_TOO_LARGE, detail=_TOO_LARGE))
    asked = methods_asked_in(call.body)
    return _refused(_ASKED) if asked and _leads_elsewhere(_under(call, asked), route) else None


def unlisted(call: Call) -> Policy | None:
    """The policy that a request on an unguarded route would have come under, by path and key, had it come with another method."""
    routing = call.routing
    if routing.key_fields.isdisjoint(call.fields.names()) and not (routing.keys_in_query and b"?" in call.raw):
        return None
    for match in _under(call):
        policy = match.route.policy if isinstance(match, Matched) else None
        if policy is not None and _carries_key(call, policy):
            return policy
    return None


def _under(call: Call, methods: Iterable[str] | None = None) -> list[Match]:
    table = call.routing.table
    host = effective_host(call.raw, call.fields.first(b"host")) if table.by_host else b""
    return table.under(call.raw, host, methods)


def _carries_key(call: Call, policy: Policy) -> bool:
    match policy.key.place:
        case HeaderKey():
            return not isinstance(find_key(call.fields, policy.key), KeyMissing)
        case QueryKey():
            return not isinstance(find_key_in(call.raw, policy.key), KeyMissing)
        case BodyKey() | FormKey():  # is not read here
            return False


def _leads_elsewhere(matches: list[Match], route: Route) -> bool:
    """Whether one of these is a guard that enforces, other than the request's own route, at the same upstream."""
    for match in matches:
        match match:
            case Matched(other) | RefusedTarget(Route() as other):
                if other is not route and other.upstream == route.upstream and other.policy and other.policy.mode is Mode.ENFORCE:
                    return True
            case RefusedTarget():
                return True
            case NoRoute():
                pass
    return False


def _refused(detail: str) -> Reply:
    return Reply(Label.REFUSED_TARGET, Refused(Problem.TARGET_REFUSED, detail=detail))
