"""Asks the upstream: sends one request, at most once, and reads from its answer what became of the operation.

Nothing here changes a record. Every failure on the way, even a byte too much in an answer, is *not yet known*.
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

from gateway.core.decision import Complete, Doubt, Release, Responded, settle
from gateway.core.headers import first
from gateway.core.hints import LONGEST_READ
from gateway.core.key_policy import ForwardKey, QueryKey
from gateway.core.model import Earlier, Headers, StoredResponse
from gateway.core.packing import INLINE
from gateway.core.policy import Policy
from gateway.core.reconcile.found import Found, Names, judge
from gateway.core.reconcile.policy import OWN_KEY, Cancel, Lookup, Manual, Resend, Verdict
from gateway.core.reconcile.request import Made, Unfillable, make_request
from gateway.core.redaction import redact_target
from gateway.core.upstream_answer import answer_fields, built, hear, kept_for, removed_fields
from gateway.ports import InDoubt, NotSent, Upstream, UpstreamRequest, UpstreamResponse
from gateway.ports.reconciliation import Detail, Doubtful, Sealer, Unsealable
from gateway.runtime.sealing import PackedRequest, unpack_request

LARGEST_ANSWER = 1024 * 1024
"""Bytes of a lookup's answer, at most."""

LONGEST_LINE = 1024
"""What is kept of a request line for people."""

HIDDEN = "hidden"
"""What stands for a value that is kept encrypted."""

_BODIES = frozenset({b"POST", b"PUT", b"PATCH"})


@dataclass(frozen=True, slots=True)
class Finding:
    """What one look found out. `answer` is there exactly for EXECUTED, kept for `retention` seconds if the upstream
    said so.

    `answered`: the upstream gave a whole answer; None: no probe was sent. `ended`: nothing that this look did is under
    way any more: it sent nothing, or the upstream itself has answered. `hopeless`: no later look can find more, since
    the record lacks what it needs.
    """

    source: str
    verdict: Verdict
    detail: Detail
    answer: StoredResponse | None = None
    retention: float | None = None
    answered: bool | None = None
    ended: bool = False
    hopeless: bool = False
    found: Found | None = None


@dataclass(frozen=True, slots=True)
class Way:
    """How one look reaches its upstream. `host` is what lookups put into the Host line; `fence` says whether it may
    still send; `timeout` seconds bound the whole exchange. `removed` and `added` are as for `RoutePlan`.
    """

    upstream: Upstream
    host: bytes
    fence: Callable[[], bool]
    timeout: float
    date: bytes
    removed: frozenset[bytes] = frozenset()
    added: Headers = ()


async def ask(doubt: Doubtful, policy: Policy, way: Way | None, sealer: Sealer | None) -> Finding:
    """Carry out the route's probe once. `way` None: there is no upstream to ask (`manual`)."""
    probe = policy.reconcile.probe
    match probe:
        case Manual():
            return Finding("manual", Verdict.NOT_YET_KNOWN, {"why": "nobody is asked"})
        case Lookup() | Cancel():
            assert way is not None, "a probe with a request has an upstream"
            return await _ask_by_template(doubt, policy, probe, way)
        case Resend():
            assert way is not None, "the route's own upstream"
            return await _resend(doubt, policy, way, sealer)
        case _:
            assert_never(probe)


def names_of(doubt: Doubtful, policy: Policy) -> Names:
    """The values of placeholders. A record from before its route captured values has the client's key, if the upstream
    saw that; else no key, and then no request can be made: a lookup for a key that the upstream never saw finds
    nothing, and proves nothing.
    """
    captured = {name: value for name, value in doubt.captured.items() if name != OWN_KEY}
    seen = doubt.fence.key.key if policy.forward_key is ForwardKey.AS_RECEIVED else ""
    return Names(doubt.captured.get(OWN_KEY, seen), captured, doubt.request_id)


def key_shown(doubt: Doubtful) -> str:
    """What stands for the key where people read: the first half of its record's digest."""
    return doubt.fence.key.lookup_digest().hex()[:32]


def _names_shown(doubt: Doubtful, names: Names) -> Names:
    """The names as history has them, which is not encrypted: without the key, and without values that are."""
    captured = dict.fromkeys(names.captured, HIDDEN) if doubt.secret else names.captured
    return replace(names, key=key_shown(doubt), captured=captured)


# ---- lookup and cancel


async def _ask_by_template(doubt: Doubtful, policy: Policy, probe: Lookup | Cancel, way: Way) -> Finding:
    source = "lookup" if isinstance(probe, Lookup) else "cancel"
    names = names_of(doubt, policy)
    try:
        made = make_request(probe.request, names)
        shown = make_request(probe.request, _names_shown(doubt, names))
    except Unfillable as error:
        return Finding(source, Verdict.NOT_YET_KNOWN, {"error": f"no request: {error}"}, hopeless=True)
    line: Detail = {"request": _line(shown.method.encode(), shown.target)}
    try:
        whole = await _exchange(way, _to_send(made, way.host), LARGEST_ANSWER)
    except _Failed as failure:
        return Finding(source, Verdict.NOT_YET_KNOWN, {**line, **failure.detail}, answered=False, ended=failure.unsent)
    detail, ended = {**line, **whole.told()}, whole.response.status not in policy.doubt_on
    if whole.body is None:
        why = f"an answer of more than {LARGEST_ANSWER} bytes"
        return Finding(source, Verdict.NOT_YET_KNOWN, {**detail, "why": why}, answered=True, ended=ended)
    found = Found(whole.response.status, whole.response.headers, whole.body)
    judged = judge(found, probe.rules, names)
    detail |= {"why": judged.why} if judged.why else {}
    answer = None if judged.answer is None else built(judged.answer)
    return Finding(source, judged.verdict, detail, answer, answered=True, ended=ended, found=found)


def _to_send(made: Made, host: bytes) -> UpstreamRequest:
    method = made.method.encode()
    headers = made.headers if first(made.headers, b"host") is not None else ((b"Host", host), *made.headers)
    return UpstreamRequest(method, made.target, headers, made.body, frame_empty=method in _BODIES)


# ---- resend


async def _resend(doubt: Doubtful, policy: Policy, way: Way, sealer: Sealer | None) -> Finding:
    if doubt.sealed is None:
        return Finding("resend", Verdict.NOT_YET_KNOWN, {"error": "the original request was not kept"}, hopeless=True)
    try:
        if sealer is None:
            raise Unsealable("no encryption key is configured")
        original = unpack_request(sealer.open(doubt.sealed, doubt.fence.key.lookup_digest()))
    except (Unsealable, ValueError) as error:
        return Finding("resend", Verdict.NOT_YET_KNOWN, {"error": f"the original request cannot be read: {error}"})
    line: Detail = {"request": _line(original.method, HIDDEN.encode() if doubt.secret else _bare(original, policy))}
    frame_empty = original.method in _BODIES
    request = UpstreamRequest(original.method, original.target, original.headers, original.body, frame_empty=frame_empty)
    try:
        whole = await _exchange(way, request, policy.limits.response_body, to_the_end=True)
    except _Failed as failure:
        return Finding("resend", Verdict.NOT_YET_KNOWN, {**line, **failure.detail}, answered=False)
    read = whole.body is not None and len(whole.body) > INLINE and policy.reads_answers
    return await asyncio.to_thread(_settled, doubt, policy, way, whole, line) if read else _settled(doubt, policy, way, whole, line)


def _settled(doubt: Doubtful, policy: Policy, way: Way, whole: "_Whole", line: Detail) -> Finding:
    """The answer is the operation's, unless it leaves a repetition in doubt."""
    response = whole.response
    readable = whole.body is not None and len(whole.body) <= LONGEST_READ
    found = Found(response.status, response.headers, whole.body or b"")
    said = hear(found, policy, Earlier.DOUBTED, lambda: names_of(doubt, policy), readable=readable)
    located = bool(first(response.headers, b"location"))
    settlement = settle(Responded(response.status, said.outcome, located), policy, Earlier.DOUBTED)
    detail: Detail = {**line, **whole.told()}
    match settlement:
        case Doubt(reason) | Release(reason):
            return Finding("resend", Verdict.NOT_YET_KNOWN, {**detail, "why": reason}, answered=True)
        case Complete():
            retention = kept_for(response.headers, policy)
            if said.answer is not None:
                return Finding("resend", Verdict.EXECUTED, detail, said.answer, retention or None, answered=True)
            removed = removed_fields(policy) | way.removed
            headers = answer_fields(doubt.method, response.status, response.headers, removed, way.date, way.added).to_store
            assert whole.length is not None and whole.digest is not None, "it was read to its end"  # noqa: PT018 - one fact
            answer = StoredResponse(response.status, response.reason, headers, whole.body, whole.length, whole.digest)
            if retention == 0.0:
                answer = replace(answer.without_body(), headers=())
            return Finding("resend", Verdict.EXECUTED, detail, answer, retention or None, answered=True)
        case _:
            assert_never(settlement)


def _bare(original: PackedRequest, policy: Policy) -> bytes:
    """The target without the key."""
    path, mark, _ = original.target.partition(b"?")
    places = (policy.key.place, policy.forward_key_in)
    return path + mark if any(isinstance(place, QueryKey) for place in places) else original.target


# ---- the exchange


@dataclass(frozen=True, slots=True)
class _Whole:
    """A whole answer. Its body is None beyond the limit; length and digest are then None unless the probe read on."""

    response: UpstreamResponse
    body: bytes | None
    length: int | None
    digest: bytes | None

    def told(self) -> dict[str, str | int | float | bool | None]:
        """As people see it: no byte of the body."""
        digest = None if self.digest is None else self.digest.hex()
        return {"status": self.response.status, "length": self.length, "sha256": digest}


class _Failed(Exception):
    """There is no whole answer."""

    def __init__(self, error: str, status: int | None = None, *, unsent: bool = False) -> None:
        super().__init__(error)
        self.unsent = unsent
        self.detail: Detail = {"error": error} if status is None else {"error": error, "status": status}


async def _exchange(way: Way, request: UpstreamRequest, limit: int, *, to_the_end: bool = False) -> _Whole:
    """Send once, behind the fence, and read the whole answer. Raises `_Failed`, and nothing else but CancelledError."""
    try:
        async with asyncio.timeout(way.timeout):
            response = await way.upstream.send(request, way.fence)
            try:
                return await _read(response, limit, to_the_end=to_the_end)
            finally:
                response.close()
    except NotSent as failure:
        raise _Failed(failure.reason.value, unsent=True) from None
    except InDoubt as failure:
        raise _Failed(failure.reason.value, failure.status) from None
    except TimeoutError:
        raise _Failed("timeout") from None
    except ValueError:  # a part that would break the request's framing: nothing was written
        raise _Failed("the request cannot be framed", unsent=True) from None


async def _read(response: UpstreamResponse, limit: int, *, to_the_end: bool) -> _Whole:
    body = await response.read(limit)
    if body is not None:
        return _Whole(response, body, len(body), hashlib.sha256(body).digest())
    if not to_the_end:
        return _Whole(response, None, None, None)
    length, digest = 0, hashlib.sha256()
    async for piece in response.chunks():
        length += len(piece)
        digest.update(piece)
    return _Whole(response, None, length, digest.digest())


def _line(method: bytes, target: bytes) -> str:
    """What opens doors is starred out, as in the record itself: a template has it from the configuration, a kept request whole."""
    return f"{method.decode('latin-1')} {redact_target(target).decode('latin-1')}"[:LONGEST_LINE]
