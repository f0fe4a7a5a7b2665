"""What a gateway may do with what it was sent: the rules that every case is held to."""

import re

from tests.system.fuzz.answers import Answer, Malformed, read_answers
from tests.system.fuzz.cases import EARLY, LATE, RESET, Played
from tests.system.fuzz.keys import lenient_key
from tests.system.fuzz.reader import MANY, SINGLE, Invalid, Request, Stream, tokens
from tests.system.fuzz.stub import SERIAL

GUARDED = b"/v1/pay"
SPELT = frozenset({GUARDED, GUARDED + b"/"})
"""One closing slash is no other path."""
HOP_BY_HOP = frozenset(
    b"connection proxy-connection keep-alive te trailer transfer-encoding upgrade http2-settings proxy-authorization "
    b"proxy-authenticate".split()
)
WRITTEN_BY_GATEWAY = frozenset(b"host via x-real-ip forwarded x-request-id expect content-length".split())
"""Toward the upstream, along with all of `X-Forwarded-*`."""
KEPT = frozenset(b"authorization content-type content-encoding cookie".split())
"""Fields that a `Connection` line does not strip, on any route."""
KEYS = frozenset({b"idempotency-key", b"idempotency_key"})
"""One field to an upstream that gets its fields as CGI and WSGI tell them, which know no difference between a hyphen and an underscore."""
JUDGED = frozenset(
    b"idempotency-key authorization host content-type content-encoding content-length transfer-encoding expect via x-request-id early-data "
    b"idempotency-attempt x-http-method-override x-http-method x-method-override".split()
)
"""Fields that the gateway judges by, or writes: in another spelling that some server takes for theirs they do not go on."""
REROUTING = frozenset(b"script-name x-script-name path-info x-original-url x-rewrite-url x-override-url".split())
"""Fields by which some server takes another path: they do not go on either."""
KNOWN_METHODS = frozenset(b"GET HEAD POST PUT PATCH DELETE OPTIONS TRACE PROPFIND QUERY".split())
"""Methods that must not be refused for their names. Others may be (RFC 9110 section 9.1)."""

_DERIVED = re.compile(rb"idg_[0-9a-f]{48}")
_PLAIN = re.compile(rb"(?:https?://[A-Za-z0-9.-]+(?::[0-9]{1,4})?)?((?:/[A-Za-z0-9_~-]+)+)(?:\?.*)?", re.DOTALL)
_ABSOLUTE = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


def judge(played: Played, used: set[tuple[bytes, bytes]]) -> str | None:
    """What is wrong with what became of a case, or None. `used` are the (principal, key) pairs of earlier requests."""
    before = set(used)
    used |= {pair for request in played.stream.requests if (pair := _pair(request))}
    if played.stuck:
        return "the connection was left open, with nothing more to come"
    if (fault := judge_order(played.stream, played.seen)) is not None or played.case.end == RESET:
        return fault
    try:
        answers = read_answers(played.received, iter(played.stream.methods))
    except Malformed as error:
        return None if played.case.end == EARLY else f"not whole answers: {error}"
    return _judge_answers(played, answers, before)


def judge_order(stream: Stream, seen: tuple[tuple[int, Request], ...]) -> str | None:
    """What the upstream saw are requests of the client, in their order, byte for byte."""
    sent = iter(stream.requests)
    for _, request in seen:
        if not any(_same(one, request) for one in sent):
            return f"the upstream saw what was not sent, or not in this order: {request!r}"
    return None


def _same(sent: Request, seen: Request) -> bool:
    return (sent.method, forwarded_target(sent), sent.body) == (seen.method, seen.target, seen.body) and _same_fields(sent, seen)


def _same_fields(sent: Request, seen: Request) -> bool:
    """Whether all fields that concern the upstream reached it, in their number, order and bytes, and no others (RFC 9110 section 5.3).

    Not so the key of a guarded operation, which is the gateway's to write, in any of `KEYS`: a line of the client's beside it would be
    the key to some upstreams, or a part of it, so leaving it out is right. `judge_forwarded` demands that none went on.
    """
    nominated = frozenset(tokens(sent.fields, b"connection")) - KEPT
    own = WRITTEN_BY_GATEWAY | HOP_BY_HOP
    if _is_guarded(sent):
        own |= KEYS
    if sent.method in {b"TRACE", b"OPTIONS"}:
        own |= {b"max-forwards"}
    theirs, mine = (
        [line for line in request.fields if line[0].lower() not in own and not line[0].lower().startswith(b"x-forwarded-")]
        for request in (seen, sent)
    )
    return theirs == [line for line in mine if line[0].lower() not in nominated and not _misleads(line[0])]


def _folded(name: bytes) -> bytes:
    return re.sub(rb"[^a-z0-9]", b"-", name.lower())


def _misleads(name: bytes) -> bool:
    """Whether an upstream could take a field for one that counts, or another path by it."""
    folded = _folded(name)
    return folded in REROUTING or (folded in JUDGED and folded != name.lower())


def forwarded_target(request: Request) -> bytes:
    """What goes on of a target (RFC 9112 section 3.2): an absolute-form loses scheme and authority; `*` if an OPTIONS has no more."""
    absolute = _ABSOLUTE.match(request.target)
    if absolute is None:
        return request.target
    rest = request.target[absolute.end() :]
    if not rest and request.method == b"OPTIONS":
        return b"*"
    return rest if rest.startswith(b"/") else b"/" + rest


def _failed(answer: Answer, request: Request) -> bool:
    """Whether an answer says that the gateway failed. 502 is right for a request that has been here before."""
    loop = any(b"idempotency-gateway" in value.lower() for value in request.values(b"via"))
    return answer.status >= 500 and answer.status not in ({501, 502, 505} if loop else {501, 505})


def _judge_answers(played: Played, answers: list[Answer], used: set[tuple[bytes, bytes]]) -> str | None:
    """Each request has its answer; what is no request is refused, and the connection closed."""
    seen = dict(played.seen)
    remaining = list(answers)
    used = set(used)
    for request in played.stream.requests:
        if not remaining:
            return None if played.case.end == EARLY else f"no answer to {request.method!r} {request.target!r}"
        answer = remaining.pop(0)
        if _failed(answer, request):
            return f"{request.method!r} {request.target!r} failed: {answer.status} {answer.body[:200]!r}"
        serials = answer.values(SERIAL)
        if serials and not answer.values(b"idempotent-replayed"):
            answered = seen.pop(int(serials[0]), None)
            if answered is None or not _same(request, answered):
                return f"the answer to another request for {request.method!r} {request.target!r}"
            if not may_pass(request):
                return f"{request.method!r} {request.target!r} was not refused"
        else:
            if must_pass(request, used):
                return f"{request.method!r} {request.target!r} was refused: {answer.status} {answer.body[:200]!r}"
            if answer.closes:
                return "something more after the last answer" if remaining or seen else None
        used |= {pair for pair in [_pair(request)] if pair}
        if answer.closes and not request.last:
            return None if may_close(request) and not remaining and not seen else f"closed after {request.method!r} {request.target!r}"
        if answer.continued and b"100-continue" not in tokens(request.fields, b"expect"):
            return "100 Continue for one who did not ask"
    if seen and played.case.end == LATE:
        return "the upstream saw a request whose answer is not its own"
    return _judge_end(played, remaining)


def _judge_end(played: Played, remaining: list[Answer]) -> str | None:
    """What follows the last whole request: a refusal of what can be none, at most one of what is broken off, else nothing."""
    end = played.stream.end
    if end is None:
        return f"an answer to no request: {remaining[0].status} {remaining[0].body[:200]!r}" if remaining else None
    if isinstance(end, Invalid) and not remaining and played.case.end == LATE:
        return f"no answer to what is no request ({end.why})"
    if end.head and len(remaining) == 1 and remaining[0].status < 500:
        return None  # it may have been refused by its head alone, before its body was looked at
    refusals = [answer.status for answer in remaining]
    if len(refusals) > 1 or not all(400 <= status <= 499 or status in {501, 505} for status in refusals):
        return f"answered {refusals} to what is no request"
    return None if all(answer.closes for answer in remaining) else "the connection may go on after what is no request"


# What should happen to a valid request


def _pair(request: Request) -> tuple[bytes, bytes] | None:
    """Principal and key of a guarded operation, if it has both as it should."""
    principals, keys = request.values(b"authorization"), request.values(b"idempotency-key")
    if len(principals) != 1 or not principals[0] or len(keys) != 1:
        return None
    key = lenient_key(keys[0])
    return None if key is None else (principals[0], key)


def _is_guarded(request: Request) -> bool:
    return request.method == b"POST" and forwarded_target(request).partition(b"?")[0] in SPELT


def may_pass(request: Request) -> bool:
    """False: it must be refused."""
    if request.method == b"CONNECT" or b"#" in request.target:
        return False
    return not _is_guarded(request) or _pair(request) is not None


def must_pass(request: Request, used: set[tuple[bytes, bytes]]) -> bool:
    """Whether nothing about the request is a reason to refuse it: it is plainly written, and new."""
    plain = _PLAIN.fullmatch(request.target)
    if plain is None or request.doubtful or request.method not in KNOWN_METHODS or not may_pass(request):
        return False
    if any(request.values(name) for name in (b"expect", b"via", b"max-forwards", b"sec-websocket-key1")):
        return False
    if any(len(request.values(name)) > 1 for name in SINGLE):
        return False
    if any(_misleads(name) and _folded(name) == b"idempotency-key" for name, _ in request.fields):
        return False
    if len(request.fields) > MANY or len(request.target) > 4000 or any(len(name) + len(value) > 4000 for name, value in request.fields):
        return False
    return _pair(request) not in used if _is_guarded(request) else plain[1].lower() != GUARDED or request.method != b"POST"


def may_close(request: Request) -> bool:
    """Whether it is understandable that the connection ends with this request, though it did not ask for that."""
    return bool(request.values(b"proxy-connection"))


# What may reach an upstream at all


def judge_forwarded(request: Request) -> str | None:
    """What is wrong with a request that the upstream got, whoever sent it. None: nothing."""
    hop_by_hop = {name.lower() for name, _ in request.fields} & HOP_BY_HOP - ({b"transfer-encoding"} if request.chunked else set())
    if hop_by_hop and not _asks_for_websocket(request):
        return f"hop-by-hop fields: {hop_by_hop}"
    if not request.target.startswith(b"/") and request.target != b"*":
        return f"no origin-form: {request.target!r}"
    keys = [value for name, value in request.fields if name.lower() in KEYS]
    if request.method == b"POST" and GUARDED in spellings(request.target):
        if request.target.partition(b"?")[0] not in SPELT or len(keys) != 1 or not _DERIVED.fullmatch(keys[0]):
            return f"the guard was walked around: {request.target!r} {keys!r}"
        if len(request.values(b"authorization")) != 1:
            return "no caller, or two"
    elif any(_DERIVED.fullmatch(key) and key.strip(b"idg_0") for key in keys):
        return "an unguarded request under a derived key"
    return None


def _asks_for_websocket(request: Request) -> bool:
    asked = [(name.lower(), value) for name, value in request.fields if name.lower() in HOP_BY_HOP - {b"transfer-encoding"}]
    return request.method == b"GET" and sorted(asked) == [(b"connection", b"upgrade"), (b"upgrade", b"websocket")]


def spellings(target: bytes) -> set[bytes]:
    """The path of a target under all orders of the usual normalisations."""
    found = {re.split(rb"[?#]", target)[0], target.partition(b"?")[0]}
    while True:
        more = {step(path) for path in found for step in _STEPS} - found
        if not more or len(found) > 3000:
            return found
        found |= more


def _decode(path: bytes) -> bytes:
    return re.sub(rb"%([0-9A-Fa-f]{2})", lambda escape: bytes([int(escape[1], 16)]), path)


def _resolve_dots(path: bytes) -> bytes:
    kept: list[bytes] = []
    for segment in path.split(b"/"):
        if segment == b"..":
            del kept[max(1, len(kept) - 1) :]
        elif segment != b".":
            kept.append(segment)
    return b"/".join(kept)


_STEPS = (
    _decode,
    _resolve_dots,
    lambda path: re.sub(rb"/{2,}", b"/", path),
    lambda path: re.sub(rb";[^/]*", b"", path),
    lambda path: path[:-1] if path.endswith(b"/") else path,
    lambda path: path.replace(b"\\", b"/"),
    lambda path: re.split(rb"[?#\0]", path)[0],
    bytes.strip,
    bytes.lower,
)
