"""Requests that an upstream could take for another operation than the route map does: by other fields, by another method, in the body."""

from collections.abc import Collection, Iterable, Sequence

from gateway.core.decision import Label
from gateway.core.fingerprint import LARGE_BODY
from gateway.core.key import KeyMissing, find_key, find_key_in
from gateway.core.key_policy import BodyKey, FormKey, HeaderKey, QueryKey
from gateway.core.overrides import Overrides, may_ask_in_body, methods_asked, methods_asked_in, nothing_misleads
from gateway.core.policy import Mode, Policy, Route
from gateway.core.problems import Problem
from gateway.core.routes import Match, Matched, NoRoute, RefusedTarget
from gateway.engine.answers import Refused, Reply
from gateway.http.body import BodyTooLarge, MemoryFull, read_body
from gateway.plan import RoutePlan
from gateway.ports import Memory
from gateway.proxy.call import Call

_ASKED = "The request asks for another method than its own, under which this path is guarded. Send it with that method."
_TOO_LARGE = f"A body that may ask for another method, under which this path is guarded, may have at most {LARGE_BODY} bytes."


def judge_overrides(call: Call, overrides: Overrides, plan: RoutePlan) -> Reply | None:
    """Take out of the call's fields what would mislead the upstream; a refusal of what a framework may take for a guarded operation."""
    if nothing_misleads(call.method, call.fields.names(), call.target):
        return None
    cleaned = overrides.clean(call.fields)
    if cleaned is not None:
        call.fields, call.doubles = cleaned
    asked = methods_asked(call.method, call.fields, call.target) if overrides.refuse else None
    return _refused(_ASKED) if asked and _is_a_guards(call, plan, asked) else None


def may_mislead(call: Call, plan: RoutePlan) -> bool:
    """Whether the body of a request that goes on unguarded may ask for a guarded operation: then `judge_body` looks into it."""
    overrides = plan.overrides
    if overrides is None or not overrides.refuse or not call.body.exists or not _may_ask_in_body(call):
        return False
    place = call.place
    if place is None:
        return _is_a_guards(call, plan)
    if place.guards is None:
        place.guards = _is_a_guards(call, plan)
    return place.guards


def _may_ask_in_body(call: Call) -> bool:
    """No field that varies has a say in this."""
    known = call.known
    if known is None or call.method != "POST":
        return may_ask_in_body(call.method, call.fields)
    if known.asks_in_body is None:
        known.asks_in_body = may_ask_in_body(call.method, call.fields)
    return known.asks_in_body


async def judge_body(call: Call, plan: RoutePlan, memory: Memory) -> Reply | None:
    """A refusal of a request whose body asks for a guarded operation. The body is read here, if it was not, and is then the call's. Raises
    as `read_body` does, but for what is answered here.
    """
    if not call.body_read:
        call.go_on()
        try:
            taken = await read_body(call, LARGE_BODY, call.pace(), memory)
        except BodyTooLarge:
            return Reply(Label.REFUSED_TARGET, Refused(Problem.BODY_TOO_LARGE, detail=_TOO_LARGE))
        except MemoryFull:
            return Reply(Label.OVERLOADED, Refused(Problem.OVERLOADED, retry_after=1))
        call.take(taken.body, taken.held)
    if not isinstance(call.payload, bytes):
        return Reply(Label.REFUSED_TARGET, Refused(Problem.BODY_TOO_LARGE, detail=_TOO_LARGE))
    asked = methods_asked_in(call.payload)
    return _refused(_ASKED) if asked and _is_a_guards(call, plan, asked) else None


def unlisted(call: Call) -> Policy | None:
    """The policy that a request on an unguarded route would have come under, by path and key, had it come with another method."""
    routing = call.routing
    if routing.key_fields.isdisjoint(call.fields.names()) and not (routing.keys_in_query and b"?" in call.target):
        return None
    for match in _under(call):
        policy = match.route.policy if isinstance(match, Matched) else None
        if policy is not None and _carries_key(call, policy):
            return policy
    return None


def _under(call: Call, methods: Iterable[str] | None = None) -> Sequence[Match]:
    place = call.place if methods is None else None
    if place is not None and place.under is not None:
        return place.under
    table = call.routing.table
    host = call.effective_host if table.by_host else b""
    found = table.under(call.target, host, methods)
    if place is not None:
        place.under = found
    return found


def _carries_key(call: Call, policy: Policy) -> bool:
    match policy.key.place:
        case HeaderKey():
            return not isinstance(find_key(call.fields, policy.key), KeyMissing)
        case QueryKey():
            return not isinstance(find_key_in(call.target, policy.key), KeyMissing)
        case BodyKey() | FormKey():  # is not read here
            return False


def _is_a_guards(call: Call, plan: RoutePlan, methods: Collection[str] | None = None) -> bool:
    """Whether under one of these methods, or None: under any, a guard other than the request's own route has its path, as it came or as the
    upstream gets it.
    """
    others = None if methods is None else set(methods) - {call.method}
    if plan.beyond is not None and others != set():
        target = call.origin_form if plan.rewriting is None else plan.rewriting.apply(call.origin_form)
        host = call.effective_host if call.routing.table.by_host else b""
        if plan.beyond.has(target, host, others):
            return True
    return _leads_elsewhere(_under(call, methods), plan)


def _leads_elsewhere(matches: Sequence[Match], plan: RoutePlan) -> bool:
    """Whether one of these is a guard that enforces, other than the request's own route, and leads to the same place."""
    for match in matches:
        match match:
            case Matched(other) | RefusedTarget(Route() as other):
                if other is not plan.route and other.upstream in plan.beside and other.policy and other.policy.mode is Mode.ENFORCE:
                    return True
            case RefusedTarget():
                return True
            case NoRoute():
                pass
    return False


def _refused(detail: str) -> Reply:
    return Reply(Label.REFUSED_TARGET, Refused(Problem.TARGET_REFUSED, detail=detail))
