"""The way to one upstream, and what its failures prove."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from gateway.core.failures import DoubtReason, NotSentReason
from gateway.core.model import Headers
from gateway.core.value import value


class NotSent(Exception):
    """The gateway wrote nothing of the request to any upstream connection. `retry_after`: seconds until another try
    makes sense, if known.
    """

    def __init__(self, reason: NotSentReason, retry_after: float | None = None) -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.retry_after = retry_after


class InDoubt(Exception):
    """The gateway may have written a byte of the request, and no complete response came back.

    `status` is the response's status if its head had arrived: evidence for people.
    """

    def __init__(self, reason: DoubtReason, status: int | None = None) -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.status = status


@dataclass(frozen=True, slots=True)
class WebhookExchange:
    """One request to a webhook's endpoint. `result` is a word of `gateway.observe.sets.WEBHOOK_RESULTS`; `client` is
    the connection's peer.

    `sender_gone`: the sender had left before the answer. `request_id` is that of the attempt that the event was about,
    if it fits one.
    """

    route: str
    result: str
    method: str
    status: int
    total_seconds: float
    request_bytes: int
    client: str | None
    sender_gone: bool = False
    request_id: str | None = None


@value
class UpstreamRequest:
    """One request as it goes on the wire. `target` is the request target, byte for byte. `headers` hold `Host`, no
    framing fields (`Content-Length`, `Transfer-Encoding`) and no hop-by-hop fields: the upstream client adds its own
    framing.

    `body` is the whole body, or an iterator for a streamed body; `body_length` is then its announced length, or None
    for chunked. A request without a body has `body == b""`; `frame_empty` says whether the upstream client sends
    `Content-Length: 0` for it.

    `lasting`: the upstream's `total` limit bounds only the wait for the response's head, and nothing of a request with
    a streamed body; bodies may last as long as pieces keep coming (uploads, downloads, event streams, tunnels).
    `upgrade` asks to switch protocols (RFC 9110 section 7.8): the upstream client sends `Connection: upgrade` and
    `Upgrade: <upgrade>`, and a 101 answer becomes a `tunnel`. It calls `informational` with each 1xx response other
    than 100 and 101 that comes before the final response (section 15.2); it must not raise. `lines` are the field
    lines, each with its CRLF, if the caller has them ready: the client sends them instead of `headers`, under the same
    rules.
    """

    method: bytes
    target: bytes
    headers: Headers
    body: bytes | AsyncIterator[bytes]
    body_length: int | None = None
    frame_empty: bool = False
    lasting: bool = False
    upgrade: bytes | None = None
    informational: Callable[[int, bytes, Headers], None] | None = None
    lines: bytes | None = None


class Tunnel(Protocol):
    """Bytes both ways over a connection that has left HTTP. One reader and one writer at a time; `close` is final and
    idempotent.
    """

    async def read(self) -> bytes:
        """The next bytes; `b""` once the other side has ended, in whatever way. A caller that does not read holds the
        other side back.
        """
        ...

    def write(self, data: bytes) -> None:
        """Send bytes. No effect when the connection is gone."""
        ...

    async def drain(self) -> None:
        """Wait until most of the written bytes have left, or the connection is gone."""
        ...

    def close(self) -> None: ...


class UpstreamResponse(Protocol):
    """A response whose head has arrived. `chunks` reads the body. The caller may call `close` at any time, repeatedly.

    `headers` are all fields, end-to-end and hop-by-hop, as received, in order. `content_length` is the announced
    length, if any.
    """

    status: int
    reason: bytes
    headers: Headers
    content_length: int | None

    def chunks(self) -> AsyncIterator[bytes]:
        """The body in pieces, without framing, not decoded. Ends normally only if the body was complete by its own
        framing.

        Raises `InDoubt` (READ_TIMEOUT, TOTAL_TIMEOUT, TRUNCATED_RESPONSE, DISCONNECTED, INVALID_RESPONSE).
        """
        ...

    async def read(self, limit: int) -> bytes | None:
        """The whole body if it has at most `limit` bytes; else None, and `chunks` gives the body from its beginning.

        Raises as `chunks`. Does not wait if the whole response has arrived already.
        """
        ...

    def at_hand(self, limit: int) -> bytes | None:
        """The whole body if the whole response has arrived and it has at most `limit` bytes; else None, and nothing is
        lost.
        """
        ...

    def tunnel(self) -> Tunnel:
        """The connection itself, after a 101 answer to a request with `upgrade`. Bytes that came with the head are its
        first. Call once.
        """
        ...

    def close(self) -> None:
        """Give the connection back if the caller read the response to its end and the connection may be used again;
        else cut it.
        """
        ...


class Receiver(Protocol):
    """Who asked `Upstream.begin`, and is told once what came of it: by `answered`, `failed` or `not_begun`. If that
    raises, it is told again, once: what was sent must not be forgotten.
    """

    def answered(self, response: UpstreamResponse) -> None:
        """The head of the final response has arrived."""
        ...

    def failed(self, failure: InDoubt | NotSent) -> None:
        """No response came, or none that is whole up to the end of its head; or nothing was sent, and nothing will be."""
        ...

    def not_begun(self) -> None:
        """Nothing was sent, since the connection has gone meanwhile: `Upstream.send` is the way."""
        ...


class Exchanging(Protocol):
    """A request that is on its way."""

    @property
    def held(self) -> bool:
        """Whether it is still held back, so that nothing of it was written."""
        ...

    def close(self) -> None:
        """Cut the connection, or write nothing to it; the receiver is told nothing any more."""
        ...


class Upstream(Protocol):
    """The way to one upstream API. An implementation never resends, follows redirects, decodes, or adds a header
    besides framing.
    """

    async def send(self, request: UpstreamRequest, fence: Callable[[], bool]) -> UpstreamResponse:
        """Send `request` once and wait for the head of its final response. It skips 1xx responses, except 101 to
        `upgrade`.

        `send` calls `fence` immediately before it writes the first byte, with no await in between. If `fence` returns
        False, `send` writes nothing and raises NotSent(LEASE_LAPSED). It calls `fence` again before every further piece
        of the request, and while a slow upstream leaves bytes waiting to be sent. If `fence` returns False then, `send`
        sends no more, resets the connection and raises InDoubt(LEASE_LOST). Raises NotSent or InDoubt, no other error.
        A cancelled call cuts the connection.
        """
        ...

    def begin(self, request: UpstreamRequest, fence: Callable[[], bool], receiver: Receiver) -> Exchanging | None:
        """As `send`, for a request that can be written at once, or at the end of this turn of the event loop; what comes
        of it is told to `receiver`, at the earliest before `begin` returns.

        None: it cannot, for example because there is no connection yet; nothing was done, and `send` is the way. If the
        fence says no, it raises NotSent(LEASE_LAPSED), or tells the receiver so at the end of the turn.
        """
        ...


class RelayCut(Exception):
    """The transfer must end early: the rest of the body is missing, or its record did not become what the bytes say."""
