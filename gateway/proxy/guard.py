"""A guarded request up to the engine: its key, its caller, its body, and whether the upstream can get them as its route says."""

import asyncio
import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from gateway.core.accepted import LONGEST_WAIT, preference_of, wants_acceptance
from gateway.core.decision import Label
from gateway.core.key import Key
from gateway.core.key_policy import FormKey
from gateway.core.model import RecordKey
from gateway.core.packing import INLINE
from gateway.core.policy import Execution
from gateway.core.problems import Problem
from gateway.core.scope import PrincipalMissing, key_digest, scope_of
from gateway.core.splice import JsonText
from gateway.core.weak_keys import notice
from gateway.engine.answers import Refused, Reply
from gateway.http.body import SMALL, BodyTooLarge, MemoryFull, read_body
from gateway.plan import GuardPlan
from gateway.ports import Memory, Observer
from gateway.principal import Facts, Part, Unidentified, told_by_fields, told_value
from gateway.proxy.admission import (
    Unkeyed,
    announced_too_large,
    judge_in_body,
    misspelt,
    overloaded,
    principal_missing,
    too_large,
    without_key,
)
from gateway.proxy.call import Call

_NO_ROOM = (
    "The upstream wants the key in the body, which cannot take it: only JSON of at most 1 MiB with an object in that place can.",
    "The upstream wants the key in the body, which cannot take it: only a form (application/x-www-form-urlencoded) of at most 1 MiB can.",
)


class Missing(enum.Enum):
    """A part of the request that is not at hand, and has to be waited for before it can be judged."""

    PRINCIPAL = enum.auto()
    BODY = enum.auto()
    TEXT = enum.auto()


Admission: TypeAlias = Missing | Unkeyed | Reply | None
"""None: the request is admitted, and the engine's. A `Reply` is a refusal: it is never stored and consumes no key."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Judges requests by their route's policy, before any store is touched."""

    observer: Observer
    memory: Memory

    def admit(self, call: Call) -> Admission:
        """Judge what is at hand: the key first, which costs nothing, then the caller, the announced size, the body. What is `Missing` is to
        be fetched; then it goes on from there.
        """
        guard = call.guard
        judged: Admission = None
        if call.scope is None:
            judged = _judge_head(call, guard)
        if judged is None and not call.body_read:
            judged = self._take_body(call, guard)
        return self._judge_body(call, guard) if judged is None else judged

    async def fetch(self, call: Call, missing: Missing) -> Reply | None:
        """Wait for what is missing. A refusal if it is not to be had. Raises as `read_body` does, but for what is answered here."""
        match missing:
            case Missing.PRINCIPAL:
                return await _identify(call)
            case Missing.BODY:
                return await self._read(call)
            case Missing.TEXT:
                assert isinstance(call.payload, bytes), "it was looked into"
                call.text = await read_json(call.payload, call.guard.pointers)
                return None
            case _:
                assert_never(missing)

    def _take_body(self, call: Call, guard: GuardPlan) -> Missing | Reply | None:
        body = call.body
        small = not body.exists or (body.complete and body.received <= SMALL)
        if body.received > guard.policy.limits.request_body if small else announced_too_large(call.fields, guard.policy):
            return too_large(guard.policy)
        if self.memory.full:
            return overloaded()
        if not small:
            return Missing.BODY
        if call.waited_for:
            call.go_on()
        call.take(body.take() if body.exists else b"")
        return None

    async def _read(self, call: Call) -> Reply | None:
        call.go_on()
        try:
            taken = await read_body(call, call.guard.longest_body, call.pace(), self.memory)
        except BodyTooLarge:
            return too_large(call.guard.policy)
        except MemoryFull:
            return overloaded()
        call.take(taken.body, taken.held, taken.parts)
        return None

    def _judge_body(self, call: Call, guard: GuardPlan) -> Admission:
        whole = call.payload if isinstance(call.payload, bytes) else None
        if guard.pointers and whole is not None and call.text is None:
            if len(whole) > INLINE:
                return Missing.TEXT
            call.text = JsonText(whole)
        key = call.sent_key or judge_in_body(guard, whole, call.fields, call.text)
        if not isinstance(key, Key):
            return key
        assert call.scope is not None, "the caller was judged before the body"
        call.key = RecordKey(call.scope.id, key.text)
        if guard.promise is not None:
            _judge_preference(call, guard)
        call.key_digest = key_digest(call.routing.secret, call.scope.id, key.text)
        if guard.policy.key.notice and (seen := notice(key.text)) is not None:  # never refused
            self.observer.key_noticed(guard.route_id, seen.value, call.key_digest)
        if guard.changes_body and call.forwarded() is None:
            form = isinstance(guard.policy.key_goes_to, FormKey)
            return Reply(Label.KEY_INVALID, Refused(Problem.KEY_INVALID, detail=_NO_ROOM[form]))
        return None


def _judge_preference(call: Call, guard: GuardPlan) -> None:
    """Whether the request is answered before it is executed."""
    preference, execution = preference_of(call.fields.values(b"prefer")), guard.policy.execution
    call.later = wants_acceptance(execution, preference)
    if call.later and execution is Execution.PREFER:
        call.patience = min(preference.wait or 0, LONGEST_WAIT)


def _judge_head(call: Call, guard: GuardPlan) -> Missing | Unkeyed | Reply | None:
    if call.doubles and (refused := misspelt(call.doubles, guard.policy)) is not None:
        return refused
    if guard.find_key is not None:
        key = guard.find_key(call.fields, call.origin_form)
        if not isinstance(key, Key):
            return without_key(key, call.fields, guard.policy)
        call.sent_key = key
    if guard.find_scope is None:
        return Missing.PRINCIPAL if guard.asks else _identify_now(call)
    scope = guard.find_scope(call.fields)
    if isinstance(scope, PrincipalMissing):
        return principal_missing(scope)
    if guard.policy.keeps_principal:
        call.principal = told_by_fields(call.fields, guard.policy)
    call.scope = scope
    return None


async def identify(call: Call) -> Reply | None:
    """Find the caller's scope, by whichever source the route names. A refusal if there is none."""
    guard = call.guard
    if guard.find_scope is None:
        return await _identify(call) if guard.asks else _identify_now(call)
    scope = guard.find_scope(call.fields)
    if isinstance(scope, PrincipalMissing):
        return principal_missing(scope)
    call.scope = scope
    return None


def _identify_now(call: Call) -> Reply | None:
    """The caller, by sources that must be verified. A caller that fails its source never learns whether a key exists."""
    assert call.routing.identifier is not None
    return _told(call, call.routing.identifier.identify_now(_facts(call), call.guard.policy))


async def _identify(call: Call) -> Reply | None:
    """The same by sources that must be asked."""
    assert call.routing.identifier is not None
    return _told(call, await call.routing.identifier.identify(_facts(call), call.guard.policy))


def _facts(call: Call) -> Facts:
    hop = call.hop()
    return Facts(call.fields, call.method, call.origin_form, hop.host, hop.scheme, hop.trusted, call.connection.certificate_subject)


def _told(call: Call, parts: Sequence[Part] | Unidentified) -> Reply | None:
    """What the caller's sources say of it."""
    guard = call.guard
    if not isinstance(parts, Unidentified):
        if guard.policy.keeps_principal:
            call.principal = told_value(parts)
        call.scope = scope_of(guard.policy.scope, parts, call.routing.secret)
        return None
    if parts.unavailable:
        return Reply(Label.PRINCIPAL_UNAVAILABLE, Refused(Problem.PRINCIPAL_UNAVAILABLE, retry_after=1, detail=parts.detail))
    return Reply(Label.PRINCIPAL_MISSING, Refused(Problem.PRINCIPAL_MISSING, detail=parts.detail, challenges=parts.challenges))


async def read_json(body: bytes, pointers: tuple[str, ...]) -> JsonText:
    """What is to be known of a body as JSON. A large one would hold up the loop for tenths of a second."""
    text = JsonText(body)
    if len(body) > INLINE:
        await asyncio.to_thread(_find, text, pointers)
    return text


def _find(text: JsonText, pointers: tuple[str, ...]) -> None:
    for pointer in pointers:
        text.find(pointer)
