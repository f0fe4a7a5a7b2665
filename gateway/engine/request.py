"""A guarded request as the engine takes it: read whole, its key and scope found, its headers ready for the next hop."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gateway.core.fingerprint import BodyDigest, Content
from gateway.core.headers import first
from gateway.core.key_location import Parts, put
from gateway.core.model import Fingerprint, Headers, RecordKey
from gateway.core.policy import FormKey, HeaderKey, Policy
from gateway.core.splice import JsonText
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


@dataclass(slots=True)  # not frozen: one for every request, and that would cost three times as much; nobody changes it
class GuardedRequest:
    """One keyed request on a guarded route. `target` is the origin-form as received, `host` whom it is for (`gateway.core.host`).

    `forward` makes what the upstream shall see, which only a request that executes needs; a body of None stays as it came. A `body` that
    was spilled comes with its digest, and with that of its `parts` if it is multipart. `held` is closed with the request. `key_digest` is
    the key as logs show it, `meaning` the request's fingerprint once that is known. `text` is what is known of the body as JSON.
    `captured`, `correlation` and `sealed` are as in `Intent`; `client` is for those who wait.
    """

    request_id: str
    route_id: str
    upstream: str
    policy: Policy
    key: RecordKey
    method: str
    target: bytes
    headers: Headers
    forward: Callable[[], Parts]
    body: bytes | Body
    held: Held | None = None
    key_digest: str = ""
    parts: bytes | None = None
    meaning: Fingerprint | None = None
    captured: Mapping[str, str] | None = None
    correlation: str | None = None
    sealed: bytes | None = None
    host: bytes = b""
    client: Client | None = None
    text: JsonText | None = None
    _content: Content | None = None

    @property
    def content(self) -> Content:
        """What its fingerprint is made of; made once."""
        if self._content is None:
            self._content = self._make_content()
        return self._content

    def _make_content(self) -> Content:
        body = self.body
        meaning = body if isinstance(body, bytes) else BodyDigest(body.length, body.sha256, self.parts)
        target, place = self.target, self.policy.key.place
        if not isinstance(place, HeaderKey):  # the key, however it is spelled, is no part of what its request means
            headers = self.headers if isinstance(place, FormKey) else ()
            bare = put(place, "", Parts(headers, target, meaning if isinstance(meaning, bytes) else None, self.text))
            if bare is not None:
                target, meaning = bare.target, meaning if bare.body is None else bare.body
        return Content(self.policy.scope, self.method, target, self.headers, meaning, self.host)

    def to_send(self) -> UpstreamRequest:
        """The request as the upstream shall get it. It is framed if the client framed it, even without a body."""
        body = self.body
        framed = first(self.headers, b"content-length") is not None or first(self.headers, b"transfer-encoding") is not None
        method, parts = self.method.encode(), self.forward()
        if parts.body is not None:
            body = parts.body
        if isinstance(body, bytes):
            return UpstreamRequest(method, parts.target, parts.headers, body, frame_empty=framed)
        return UpstreamRequest(method, parts.target, parts.headers, body.pieces(), body.length)

    def close(self) -> None:
        """Nobody needs the body any more. Idempotent."""
        held, self.held, self.body, self._content, self.text = self.held, None, b"", None, None
        if held is not None:
            held.close()
