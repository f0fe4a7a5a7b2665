"""A guarded request up to the engine: its caller, its key, its body, and what the upstream shall get of them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from gateway.core.decision import Label
from gateway.core.headers import hops_left, to_upstream, uncoded
from gateway.core.key import Key
from gateway.core.key_location import Parts, carry
from gateway.core.model import RecordKey
from gateway.core.packing import INLINE
from gateway.core.policy import BodyKey, Combine, FormKey, ForwardKey, HeaderPrincipal, Mode, Policy, Route
from gateway.core.problems import Problem
from gateway.core.reconcile.capture import capture
from gateway.core.reconcile.policy import OWN_KEY, OWN_PRINCIPAL
from gateway.core.scope import Scope, derived_key, key_digest, scope_of
from gateway.core.splice import JsonText
from gateway.core.weak_keys import notice
from gateway.engine.answers import Refused, Reply
from gateway.engine.engine import Engine
from gateway.engine.request import GuardedRequest
from gateway.http.body import BodyTooLarge, MemoryFull, read_body
from gateway.ports import Memory, Observer
from gateway.principal import Facts, Unidentified, told_by_fields, told_value
from gateway.proxy.admission import Later, Unkeyed, admit, admit_body, announced_too_large, known_by_fields, misspelt, too_large
from gateway.proxy.call import Call

OBSERVED_BODY = 1024 * 1024 * 1024
"""How large a body may be that an observing route reads: whatever the route's limit, the request goes through."""

_NO_ROOM = (
    "The upstream wants the key in the body, which cannot take it: only JSON of at most 1 MiB with an object in that place can.",
    "The upstream wants the key in the body, which cannot take it: only a form (application/x-www-form-urlencoded) of at most 1 MiB can.",
)

_log = logging.getLogger(__name__)

PassOn = Callable[[Call, Route], Awaitable[Reply]]
"""Forwards a request unguarded."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Carries out a route's policy. `pass_on` takes what is not guarded after all."""

    engine: Engine
    observer: Observer
    memory: Memory
    pass_on: PassOn

    async def answer(self, call: Call, route: Route, policy: Policy) -> Reply:
        """The answer to a request on a guarded route. Raises as `read_body` does, but for what is answered here."""
        call.mode, call.policy = policy.mode.value, policy
        admitted = await self._admit(call, policy)
        if isinstance(admitted, Unkeyed):
            return await self.pass_on(call, route)
        if isinstance(admitted, Reply):
            return await self._refused(admitted, call, route, policy)
        scope, key = admitted
        if self.memory.full:
            return _overloaded()
        call.go_on()
        try:
            await self._read(call, policy)
        except BodyTooLarge:
            return too_large(policy)
        except MemoryFull:
            return _overloaded()
        return await self._with_body(call, route, policy, scope, key)

    async def _refused(self, refusal: Reply, call: Call, route: Route, policy: Policy) -> Reply:
        """An observing route refuses nobody: the request goes through, counted under what would have been said."""
        if policy.mode is Mode.ENFORCE:
            return refusal
        reply = await self.pass_on(call, route)
        reply.label = refusal.label
        return reply

    async def _read(self, call: Call, policy: Policy) -> None:
        limit = policy.limits.request_body if policy.mode is Mode.ENFORCE else max(OBSERVED_BODY, policy.limits.request_body)
        taken = await read_body(call.request, limit, call.pace(), self.memory)
        call.body, call.held, call.parts = taken.body, taken.held, taken.parts
        call.request_bytes = len(taken.body) if isinstance(taken.body, bytes) else taken.body.length

    async def _admit(self, call: Call, policy: Policy) -> tuple[Scope, Key | Later] | Unkeyed | Reply:
        """Judge the head: the key first, which costs nothing, then the caller, then the announced size."""
        key = misspelt(call.doubles, policy) or admit(call.fields, call.target, policy)
        if isinstance(key, Unkeyed | Reply):
            return key
        scope = await self._identify(call, policy)
        if isinstance(scope, Reply):
            return scope
        return too_large(policy) if announced_too_large(call.fields, policy) else (scope, key)

    async def _identify(self, call: Call, policy: Policy) -> Scope | Reply:
        """The caller's scope. A caller that fails its source never learns whether a key exists."""
        secret = call.routing.secret
        if _by_headers(policy):
            if policy.keeps_principal:
                call.principal = told_by_fields(call.fields, policy)
            return known_by_fields(call.fields, policy, secret)
        hop = call.hop()
        facts = Facts(call.fields, call.request.method, call.target, hop.host, hop.scheme, hop.trusted, call.connection.certificate_subject)
        assert call.routing.identifier is not None
        parts = await call.routing.identifier.identify(facts, policy)
        if not isinstance(parts, Unidentified):
            if policy.keeps_principal:
                call.principal = told_value(parts)
            return scope_of(policy.scope, parts, secret)
        if parts.unavailable:
            return Reply(Label.PRINCIPAL_UNAVAILABLE, Refused(Problem.PRINCIPAL_UNAVAILABLE, retry_after=1, detail=parts.detail))
        return Reply(Label.PRINCIPAL_MISSING, Refused(Problem.PRINCIPAL_MISSING, detail=parts.detail, challenges=parts.challenges))

    async def _with_body(self, call: Call, route: Route, policy: Policy, scope: Scope, key: Key | Later) -> Reply:
        whole = call.body if isinstance(call.body, bytes) else None
        if whole is not None and (pointers := _pointers(policy)):
            call.text = await read_json(whole, pointers)
        if isinstance(key, Later):
            found = admit_body(whole, call.fields, policy, call.text)
            if not isinstance(found, Key):
                return await self._without_key(found, call, route, policy)
            key = found
        call.key, call.key_digest = key.text, key_digest(call.routing.secret, scope.id, key.text)
        self._notice(call, route, policy, key)
        forward = partial(forwarded, call, route, policy, RecordKey(scope.id, key.text), whole)
        if _changes_body(policy) and forward() is None:
            refusal = Reply(Label.KEY_INVALID, Refused(Problem.KEY_INVALID, detail=_NO_ROOM[isinstance(policy.key_goes_to, FormKey)]))
            return await self._without_key(refusal, call, route, policy)
        request = GuardedRequest(
            call.request_id,
            route.id,
            route.upstream,
            policy,
            RecordKey(scope.id, key.text),
            call.request.method,
            call.target,
            call.fields.lines,
            partial(_parts, forward),
            call.body or b"",
            call.held,
            call.key_digest,
            call.parts,
            host=call.host(),
            client=call.connection,
            text=call.text,
        )
        if policy.reconcilable and policy.mode is Mode.ENFORCE:
            _capture(request, call, whole)
        match policy.mode:
            case Mode.ENFORCE:
                return await self.engine.handle(request)
            case Mode.OBSERVE:
                return await self.engine.observe(request)
            case _:
                assert_never(policy.mode)

    async def _without_key(self, found: Unkeyed | Reply, call: Call, route: Route, policy: Policy) -> Reply:
        """A body that was read and has no key in it, or a bad one."""
        if isinstance(found, Reply) and policy.mode is Mode.ENFORCE:
            if call.held is not None:
                call.held.close()
            return found
        reply = await self.pass_on(call, route)
        if isinstance(found, Reply):
            reply.label = found.label
        return reply

    def _notice(self, call: Call, route: Route, policy: Policy, key: Key) -> None:
        """A key that looks guessable or personal is counted and told of, by digest, never refused."""
        if not policy.key.notice:
            return
        seen = notice(key.text)
        if seen is not None:
            self.observer.key_noticed(route.id, seen.value, call.key_digest or "")


def _capture(request: GuardedRequest, call: Call, body: bytes | None) -> None:
    """What is kept of the request for whoever has to find out what became of it: its key as the upstream sees it, and named values."""
    policy = request.policy
    wanted = policy.reconcile.capture
    captured = capture(body, call.fields.first(b"content-type"), wanted) if wanted else {}
    captured[OWN_KEY] = upstream_key(policy, call.routing.secret, request.key)
    if call.principal is not None:
        captured[OWN_PRINCIPAL] = call.principal
    request.captured = captured
    request.correlation = None if policy.webhook is None else captured.get(policy.webhook.by)


def upstream_key(policy: Policy, secret: bytes, key: RecordKey) -> str:
    """The text of the key as the upstream knows it; where it sees none, the client's."""
    return derived_key(secret, key.scope_id, key.key).decode() if policy.forward_key is ForwardKey.DERIVED else key.key


def forwarded(call: Call, route: Route, policy: Policy, key: RecordKey, body: bytes | None) -> Parts | None:
    """The request as the upstream shall see it, with the key as the route says. None if its body cannot take it."""
    kept = call.routing.kept[route.id]
    headers = to_upstream(call.fields.lines, call.hop(), kept, hops=hops_left(call.request.method, call.fields))
    if policy.reads_answers:
        headers = uncoded(headers)
    derived = derived_key(call.routing.secret, key.scope_id, key.key).decode() if policy.forward_key is ForwardKey.DERIVED else ""
    return carry(Parts(headers, call.target, body if _changes_body(policy) else None, call.text), policy, key.key, derived)


def _by_headers(policy: Policy) -> bool:
    """Whether fields alone tell the caller: the short way."""
    return all(isinstance(source, HeaderPrincipal) for source in policy.principal) and (
        policy.combine is Combine.ALL or len(policy.principal) < 2
    )


def _changes_body(policy: Policy) -> bool:
    """Whether the upstream gets the key in a member or field of the body that the client did not fill in so."""
    goes = policy.key_goes_to
    same = policy.forward_key is ForwardKey.AS_RECEIVED and goes == policy.key.place
    return isinstance(goes, BodyKey | FormKey) and policy.forward_key is not ForwardKey.NONE and not same


def _pointers(policy: Policy) -> list[str]:
    """Where a key stands in a JSON body, or will."""
    return [place.pointer for place in dict.fromkeys((policy.key.place, policy.key_goes_to)) if isinstance(place, BodyKey)]


async def read_json(body: bytes, pointers: list[str]) -> JsonText:
    """What is to be known of a body as JSON. A large one would hold up the loop for tenths of a second."""
    text = JsonText(body)
    if len(body) > INLINE:
        await asyncio.to_thread(_find, text, pointers)
    return text


def _find(text: JsonText, pointers: list[str]) -> None:
    for pointer in pointers:
        text.find(pointer)


def _parts(forward: Callable[[], Parts | None]) -> Parts:
    parts = forward()
    assert parts is not None, "judged before anything was reserved"
    return parts


def _overloaded() -> Reply:
    return Reply(Label.OVERLOADED, Refused(Problem.OVERLOADED, retry_after=1))
