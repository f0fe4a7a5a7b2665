"""One request's way over one connection: waiting with time limits, and the response as the port wants it.

The connection is given back the moment the response has come in whole, before the body is consumed. Whatever else ends
an exchange cuts the connection; an exchange that has ended never touches a connection again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from gateway.core.model import Headers
from gateway.ports import DoubtReason, InDoubt, NotSent, Receiver, UpstreamRequest
from gateway.upstream.connection import HIGH_WATER, Connection
from gateway.upstream.parser import ResponseParser
from gateway.upstream.protocol_violations import ProtocolViolations
from gateway.upstream.repair import Malformed
from gateway.upstream.sending import Sending
from gateway.upstream.settings import UpstreamSettings
from gateway.upstream.tunnel import UpstreamTunnel


class Exchange(Sending):
    """Implements `gateway.ports.UpstreamResponse` once its head is there. One coroutine reads at a time. Who gave a
    `receiver` is told then; who did not waits for `head`.

    `started` is the instant of the loop's clock from which `total` counts for the whole exchange (of a `lasting`
    request: for its wait for the head). `bound`: its request binds the connection to its caller. `answered` is called
    with the head; `failed`, once at most, when the upstream fails the exchange, before its head or after it: by going
    away, by what it sends, by keeping silent. What the caller, the request's body or a slow consumer ends is no such
    failure. `violations` tells the log of answers that break the rules.
    """

    __slots__ = (
        "_answered",
        "_bound",
        "_early",
        "_failed",
        "_high_water",
        "_lasting",
        "_left",
        "_parser",
        "_tunnel",
        "_violations",
        "_waiter",
        "_whole",
        "content_length",
        "headers",
        "reason",
        "status",
    )
    status: int
    reason: bytes
    headers: Headers
    content_length: int | None

    def __init__(  # noqa: PLR0917 - made for every request, and keywords would cost a third of that
        self,
        connection: Connection,
        settings: UpstreamSettings,
        request: UpstreamRequest,
        fence: Callable[[], bool],
        started: float,
        bound: bool,  # noqa: FBT001 - as above
        failed: Callable[[], None] | None,
        answered: Callable[["Exchange"], None] | None,
        violations: ProtocolViolations,
        receiver: Receiver | None,
    ) -> None:
        super().__init__(connection, settings, request, fence, started, receiver)
        self._parser = connection.parser
        self._parser.begin(request.method, request.upgrade, request.informational)
        self._bound = bound
        self._failed = failed
        self._answered = answered
        self._violations = violations
        self._lasting = request.lasting
        self._whole = False
        self._left = b""
        self._high_water = HIGH_WATER
        self._early = False
        self._tunnel: UpstreamTunnel | None = None
        self._waiter: asyncio.Future[None] | None = None

    def fail(self, error: BaseException, *, unsent: bool = True) -> None:
        connection = self._connection
        if connection is not None:
            self._failure = error
            self._let_go()
            self._wake()
            connection.cut(unsent=unsent)

    def watch(self, failed: Callable[[], None]) -> None:
        """Call `failed` instead of the function given at first."""
        self._failed = failed

    # The response

    async def head(self) -> None:
        """Wait for the head of the final response. Raises InDoubt; a cancelled call cuts the connection."""
        while not self._headed and self._failure is None:
            await self._wait()
        if self._failure is not None:
            raise self._failure

    async def chunks(self) -> AsyncIterator[bytes]:
        """See the port. While the consumer is slow, at most `HIGH_WATER` bytes and one more read from the socket are
        held.
        """
        self._high_water = HIGH_WATER
        while True:
            if self._buffered():
                piece = self._take()
                self._read_on()
                yield piece
            elif self._failure is not None:
                raise self._failure
            elif self._whole:
                return
            else:
                await self._wait_for_body()

    async def read(self, limit: int) -> bytes | None:
        """The whole body if it is at most `limit` bytes long. None: it is longer; nothing is lost, `chunks` gives it
        from its start.

        Raises InDoubt as `chunks` does. Does not wait at all when the response came in whole with its head.
        """
        if self._whole and len(self._left) <= limit:
            left, self._left = self._left, b""
            return left
        self._high_water = max(limit, HIGH_WATER)
        while not self._whole and self._buffered() <= limit:
            if self._failure is not None:
                raise self._failure
            if self.content_length is not None and self.content_length > limit:
                return None
            self._read_on()
            await self._wait_for_body()
        return self._take() if self._buffered() <= limit else None

    def at_hand(self, limit: int) -> bytes | None:
        """See the port."""
        if not self._whole or len(self._left) > limit:
            return None
        left, self._left = self._left, b""
        return left

    def tunnel(self) -> UpstreamTunnel:
        """See the port. From here on the tunnel is its caller's to close. Raises LookupError if there is none, or none
        any more.
        """
        tunnel, self._tunnel = self._tunnel, None
        if tunnel is None:
            raise LookupError("no tunnel")
        return tunnel

    def close(self) -> None:
        """See the port. A response that was not received to its end is cut off; what came in whole stays readable."""
        self._receiver = None
        if self._tunnel is not None:
            self.tunnel().close()
        if self._held is not None and self._connection is not None:
            self._give_back(self._connection)
        if self._connection is not None:
            self.fail(InDoubt(DoubtReason.DISCONNECTED, self._seen_status()))

    # What the connection reports

    def received(self, data: bytes) -> None:
        parser = self._parser
        try:
            parser.feed(data)
        except Malformed as error:
            self._violations.refused(str(error), self._loop.time())
            self._fall(DoubtReason.INVALID_RESPONSE)
            return
        connection = self._connection
        if connection is None or not parser.head_complete:
            return
        if not self._headed:
            self._begin_response(parser)
        if not self._sent or connection.unsent:
            self._early = True
        if parser.switched:
            self._switch(connection)
        elif parser.complete:
            self._complete(connection)
        elif parser.buffered > self._high_water:
            connection.set_reading(on=False)
        self._wake()

    def ended(self) -> None:
        if self._parser.eof() and self._connection is not None:
            self._complete(self._connection)
            self._wake()
        else:
            self._fall(DoubtReason.TRUNCATED_RESPONSE if self._headed else DoubtReason.DISCONNECTED)

    def lost(self) -> None:
        self._fall(DoubtReason.DISCONNECTED)

    def expired(self) -> None:
        reason, connection = self._expiry, self._connection
        if reason is DoubtReason.FIRST_BYTE_TIMEOUT and connection is not None and connection.backlog() < self._backlog:
            self.limit_silence()  # slow, but taking: the silence begins anew
        elif self._is_fault(reason):
            self._fall(reason)
        else:
            self.fail(InDoubt(reason, self._seen_status()))

    def broken(self) -> None:
        self.fail(InDoubt(DoubtReason.GATEWAY_ERROR, self._seen_status()))
        self._wake()

    # Inside

    def _begin_response(self, parser: ResponseParser) -> None:
        """The final response's head is whole. From now on only `total` counts, and silence while a caller waits for the
        body.
        """
        self._headed = True
        self.status = parser.status
        self.reason = parser.reason
        self.headers = tuple(parser.headers)
        self.content_length = parser.content_length
        if self._answered is not None:
            self._answered(self)
        if parser.violations:
            self._violations.repaired(parser.violations, self._loop.time())
        if not parser.complete:
            if self._lasting:
                self._deadline = None
            self.lift_limit()

    def _let_go(self) -> None:
        """The connection and its parser are another's from now on; what has come of the body stays."""
        self._connection = None
        self._left = self._parser.take()

    def _buffered(self) -> int:
        return len(self._left) if self._connection is None else self._parser.buffered

    def _take(self) -> bytes:
        if self._connection is not None:
            return self._parser.take()
        left, self._left = self._left, b""
        return left

    def _fall(self, reason: DoubtReason) -> None:
        """The upstream failed."""
        failed, self._failed = self._failed, None
        if failed is not None and self._connection is not None:
            failed()
        self.fail(InDoubt(reason, self._seen_status()))

    def _is_fault(self, reason: DoubtReason) -> bool:
        """Whether running out of this limit tells of the upstream. An event stream may be silent; a total may be used
        up by either side.
        """
        match reason:
            case DoubtReason.FIRST_BYTE_TIMEOUT:
                return True
            case DoubtReason.READ_TIMEOUT:
                return not self._is_event_stream()
            case _:
                return not self._streamed and not self._headed

    def _complete(self, connection: Connection) -> None:
        parser = self._parser
        self._whole = True
        self._connection = None
        self._left = parser.take()
        connection.finish(reusable=parser.reusable and not self._early and not self._bound, patience=parser.patience)

    def _switch(self, connection: Connection) -> None:
        """RFC 9110 section 7.8: no switch before the request was received whole."""
        if self._early:
            self._fall(DoubtReason.INVALID_RESPONSE)
        else:
            self._tunnel = UpstreamTunnel(self._loop, connection, self._parser.rest, self._settings.stream_idle)
            self._whole = True
            self._let_go()

    def _is_event_stream(self) -> bool:
        for name, value in self.headers:
            if len(name) == 12 and name.lower() == b"content-type":
                return value.partition(b";")[0].strip().lower() == b"text/event-stream"
        return False

    def _seen_status(self) -> int | None:
        parser = self._parser
        if self._headed:
            return self.status
        return parser.status if self._connection is not None and parser.head_complete else None

    def _read_on(self) -> None:
        if self._connection is not None:
            self._connection.set_reading(on=True)

    async def _wait_for_body(self) -> None:
        settings, connection = self._settings, self._connection
        if connection is not None:
            idle = settings.stream_idle if self._is_event_stream() else settings.read_idle
            self._arm(connection, idle, DoubtReason.READ_TIMEOUT)
        await self._wait()
        self.lift_limit()

    async def _wait(self) -> None:
        """Until something happened. A cancelled wait ends the exchange."""
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._waiter = None

    def _wake(self) -> None:
        receiver, waiter = self._receiver, self._waiter
        if receiver is not None:
            if self._failure is None:
                receiver.answered(self)
            else:
                assert isinstance(self._failure, InDoubt | NotSent), "only a streamed body can raise something else"
                receiver.failed(self._failure)
            self._receiver = None  # one that has raised is told again, by `broken`
        elif waiter is not None and not waiter.done():
            waiter.set_result(None)
