"""A guarded request as the engine takes it: read whole, its key and scope found, its headers ready for the next hop."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gateway.core.fingerprint import BodyDigest, Content
from gateway.core.headers import first
from gateway.core.model import Headers, RecordKey
from gateway.core.policy import Policy
from gateway.ports import Body, UpstreamRequest


class Held(Protocol):
    """What is held for a request: counted memory, or a file."""

    def close(self) -> None: ...


@dataclass(slots=True)  # not frozen: one for every request, and that would cost three times as much; nobody changes it
class GuardedRequest:
    """One keyed request on a guarded route. `target` is the origin-form to forward; `forward` makes the fields that the upstream shall see,
    which only a request that executes needs. A `body` that was spilled comes with its digest; `held` is closed with the request.
    """

    request_id: str
    route_id: str
    upstream: str
    policy: Policy
    key: RecordKey
    method: str
    target: bytes
    headers: Headers
    forward: Callable[[], Headers]
    body: bytes | Body
    held: Held | None = None

    @property
    def content(self) -> Content:
        body = self.body
        meaning = body if isinstance(body, bytes) else BodyDigest(body.length, body.sha256)
        return Content(self.policy.scope, self.method, self.target, self.headers, meaning)

    def to_send(self) -> UpstreamRequest:
        """The request as the upstream shall get it. It is framed if the client framed it, even without a body."""
        body = self.body
        framed = first(self.headers, b"content-length") is not None or first(self.headers, b"transfer-encoding") is not None
        method, headers = self.method.encode(), self.forward()
        if isinstance(body, bytes):
            return UpstreamRequest(method, self.target, headers, body, frame_empty=framed)
        return UpstreamRequest(method, self.target, headers, body.pieces(), body.length)

    def close(self) -> None:
        """Nobody needs the body any more. Idempotent."""
        held, self.held, self.body = self.held, None, b""
        if held is not None:
            held.close()
