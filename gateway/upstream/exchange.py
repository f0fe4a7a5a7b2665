"""One request's way over one connection: waiting with time limits, and the response as the port wants it.

The connection is given back the moment the response has come in whole, before the body is consumed. Whatever else ends an
exchange cuts the connection; an exchange that has ended never touches a connection again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from gateway.core.model import Headers
from gateway.ports import DoubtReason, InDoubt
from gateway.upstream.connection import HIGH_WATER, Connection
from gateway.upstream.parser import Malformed, ResponseParser
from gateway.upstream.settings import UpstreamSettings


class Exchange:
    """Implements `gateway.ports.UpstreamResponse` once `head` has returned. One coroutine reads at a time.

    `deadline` is the instant of the loop's clock at which the whole exchange must be over, None for never.
    """

    __slots__ = (
        "_connection",
        "_deadline",
        "_expiry",
        "_failure",
        "_high_water",
        "_loop",
        "_parser",
        "_sent",
        "_settings",
        "_waiter",
        "content_length",
        "headers",
        "reason",
        "status",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connection: Connection, settings: UpstreamSettings, method: bytes, deadline: float | None
    ) -> None:
        self.status = 0
        self.reason = b""
        self.headers: Headers = ()
        self.content_length: int | None = None
        self._loop = loop
        self._connection: Connection | None = connection
        self._settings = settings
        self._parser = ResponseParser(method)
        self._deadline = deadline
        self._expiry = DoubtReason.TOTAL_TIMEOUT
        self._failure: BaseException | None = None
        self._high_water = HIGH_WATER
        self._sent = False
        self._waiter: asyncio.Future[None] | None = None

    # Sending

    def begin(self, data: bytes, fence: Callable[[], bool]) -> bool:
        """Write the request's first bytes if the fence allows it; else the exchange is over and the connection is untouched."""
        assert self._connection is not None
        if self._connection.begin(self, data, fence):
            return True
        self._connection = None
        return False

    def sent(self) -> None:
        """The request is written to its last byte: the wait for the response begins."""
        self._sent = True
        self.limit_silence()

    def limit_silence(self) -> None:
        """From now on `first_byte` counts: it is the upstream's turn to act."""
        self._arm(self._settings.first_byte, DoubtReason.FIRST_BYTE_TIMEOUT)

    def lift_limit(self) -> None:
        """From now on only `total` counts: the upstream is not what is waited for."""
        if self._connection is not None:
            self._expiry = DoubtReason.TOTAL_TIMEOUT
            self._connection.alarm.set(self._deadline)

    def open_connection(self) -> Connection | None:
        """The connection, as long as the response has not begun and nothing failed: then the body may still be sent."""
        return None if self._parser.head_complete else self._connection

    def fail(self, error: BaseException) -> None:
        """End the exchange with `error` for whoever waits for it, and cut the connection. No effect on one that is over."""
        connection = self._connection
        if connection is not None:
            self._failure = error
            self._connection = None
            connection.cut()
            self._wake()

    # The response

    async def head(self) -> None:
        """Wait for the head of the final response. Raises InDoubt; a cancelled call cuts the connection."""
        parser = self._parser
        while not parser.head_complete:
            if self._failure is not None:
                raise self._failure
            await self._wait()
        if self._failure is not None:
            raise self._failure
        self.status = parser.status
        self.reason = parser.reason
        self.headers = tuple(parser.headers)
        self.content_length = parser.content_length
        if self._connection is not None:
            self.lift_limit()

    async def chunks(self) -> AsyncIterator[bytes]:
        """See the port. While the consumer is slow, at most `HIGH_WATER` bytes and one more read from the socket are held."""
        parser = self._parser
        self._high_water = HIGH_WATER
        while True:
            if parser.buffered:
                piece = parser.take()
                self._read_on()
                yield piece
            elif self._failure is not None:
                raise self._failure
            elif parser.complete:
                return
            else:
                await self._wait_for_body()

    async def read(self, limit: int) -> bytes | None:
        """The whole body if it is at most `limit` bytes long. None: it is longer; nothing is lost, `chunks` gives it from its start.

        Raises InDoubt as `chunks` does. Does not wait at all when the response came in whole with its head.
        """
        parser = self._parser
        self._high_water = max(limit, HIGH_WATER)
        while not parser.complete and parser.buffered <= limit:
            if self._failure is not None:
                raise self._failure
            if parser.content_length is not None and parser.content_length > limit:
                return None
            self._read_on()
            await self._wait_for_body()
        return parser.take() if parser.buffered <= limit else None

    def close(self) -> None:
        """See the port. A response that was not received to its end is cut off; what came in whole stays readable."""
        if self._connection is not None:
            self.fail(InDoubt(DoubtReason.DISCONNECTED, self._seen_status()))

    # What the connection reports

    def received(self, data: bytes) -> None:
        parser = self._parser
        try:
            parser.feed(data)
        except Malformed:
            self.fail(InDoubt(DoubtReason.INVALID_RESPONSE, self._seen_status()))
            return
        if parser.complete:
            self._complete()
        elif parser.buffered > self._high_water and self._connection is not None:
            self._connection.set_reading(on=False)
        if parser.head_complete:
            self._wake()

    def ended(self) -> None:
        if self._parser.eof():
            self._complete()
            self._wake()
        else:
            head = self._parser.head_complete
            self.fail(InDoubt(DoubtReason.TRUNCATED_RESPONSE if head else DoubtReason.DISCONNECTED, self._seen_status()))

    def lost(self) -> None:
        self.fail(InDoubt(DoubtReason.DISCONNECTED, self._seen_status()))

    def expired(self) -> None:
        self.fail(InDoubt(self._expiry, self._seen_status()))

    # Inside

    def _complete(self) -> None:
        connection = self._connection
        self._connection = None
        assert connection is not None
        connection.finish(reusable=self._parser.reusable and self._sent)

    def _seen_status(self) -> int | None:
        return self._parser.status if self._parser.head_complete else None

    def _arm(self, timeout: float, reason: DoubtReason) -> None:
        connection = self._connection
        if connection is None:
            return
        due = self._loop.time() + timeout
        deadline = self._deadline
        if deadline is not None and deadline <= due:
            due, reason = deadline, DoubtReason.TOTAL_TIMEOUT
        self._expiry = reason
        connection.alarm.set(due)

    def _read_on(self) -> None:
        if self._connection is not None:
            self._connection.set_reading(on=True)

    async def _wait_for_body(self) -> None:
        self._arm(self._settings.read_idle, DoubtReason.READ_TIMEOUT)
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
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
