"""A guarded request as the engine takes it: read whole, its key and scope found."""

from collections.abc import Callable, Mapping
from typing import Protocol

from gateway.core.fingerprint import BodyDigest, Content, ReadHead
from gateway.core.headers import Fields
from gateway.core.key_location import Parts, put
from gateway.core.key_policy import FormKey, HeaderKey
from gateway.core.model import Fingerprint, RecordKey
from gateway.core.splice import JsonText
from gateway.plan import GuardPlan
from gateway.ports import Body, UpstreamRequest


class Held(Protocol):
    """What is held for a request: counted memory, or a file."""

    def close(self) -> None: ...


class Client(Protocol):
    """The client's connection, for those who wait for its sake."""

    @property
    def half_closed(self) -> bool:
        """Whether the client has ended its sending."""
        ...

    def on_lost(self, callback: Callable[[], object], *, streaming: bool = False) -> Callable[[], None]:
        """Have `callback` called when the client has left, with `streaming` also when it ends its sending. Returns what calls that off."""
        ...


class GuardedRequest(Protocol):
    """One keyed request on a guarded route.

    `guard` is the plan of its route, `key` where its record is, `key_digest` the key as logs show it. `origin_form` is the request target
    as received, in origin-form; `fields` are the field lines without what would mislead the upstream. A `payload` that was spilled comes
    with the digest of its `parts` if it is multipart; `text` is what is known of the body as JSON. The engine sets the others: `content` is
    what the fingerprint is made of, `meaning` the fingerprint, `sealed` as in `Intent`, `original` the request whose record was found; so
    are `captured` and `correlation`, which `capture` sets. `later`: the request is answered before it is executed, unless that is done
    within `patience` seconds.
    """

    request_id: str
    guard: GuardPlan
    key: RecordKey
    method: str
    origin_form: bytes
    fields: Fields
    key_digest: str | None
    payload: bytes | Body
    parts: bytes | None
    text: JsonText | None
    content: Content | None
    meaning: Fingerprint
    captured: Mapping[str, str] | None
    correlation: str | None
    sealed: bytes | None
    later: bool
    patience: int
    original: str | None

    @property
    def host(self) -> bytes:
        """Whom it is for (`gateway.core.host`)."""
        ...

    @property
    def client(self) -> Client | None:
        """For those who wait."""
        ...

    @property
    def read_head(self) -> ReadHead | None:
        """What its fields come to for the plan's fingerprinter, where that is known."""
        ...

    def lines(self) -> bytes | None:
        """The field lines that the upstream shall see, if they are ready and the plan `forwards_lines`; else `forward` makes them."""
        ...

    def forward(self) -> Parts:
        """What the upstream shall see, which only a request that executes needs; a body of None stays as it came."""
        ...

    def capture(self) -> None:
        """Set what is kept of the request for finding out what became of it; while its body is there."""
        ...

    def close(self) -> None:
        """Nobody needs the body any more. Idempotent."""
        ...


def content_of(request: GuardedRequest) -> Content:
    """What its fingerprint is made of; made once."""
    if request.content is None:
        request.content = _make_content(request)
    return request.content


def _make_content(request: GuardedRequest) -> Content:
    body, policy = request.payload, request.guard.policy
    meaning = body if isinstance(body, bytes) else BodyDigest(body.length, body.sha256, request.parts)
    target, place = request.origin_form, policy.key.place
    if not isinstance(place, HeaderKey):  # the key, however it is spelled, is no part of what its request means
        headers = request.fields.lines if isinstance(place, FormKey) else ()
        bare = put(place, "", Parts(headers, target, meaning if isinstance(meaning, bytes) else None, request.text))
        if bare is not None:
            target, meaning = bare.target, meaning if bare.body is None else bare.body
    return Content(policy.scope, request.method, target, request.fields, meaning, request.host)


def to_send(request: GuardedRequest) -> UpstreamRequest:
    """The request as the upstream shall get it. It is framed if the client framed it, even without a body."""
    method, body = request.method.encode(), request.payload
    if request.guard.forwards_lines and isinstance(body, bytes) and (lines := request.lines()) is not None:
        return UpstreamRequest(method, request.origin_form, (), body, frame_empty=_is_framed(request, body), lines=lines)
    parts = request.forward()
    if parts.body is not None:
        body = parts.body
    if not isinstance(body, bytes):
        return UpstreamRequest(method, parts.target, parts.headers, body.pieces(), body.length)
    return UpstreamRequest(method, parts.target, parts.headers, body, frame_empty=_is_framed(request, body))


def _is_framed(request: GuardedRequest, body: bytes) -> bool:
    return not body and any(request.fields.first(name) is not None for name in (b"content-length", b"transfer-encoding"))
