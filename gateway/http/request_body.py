"""Bodies of requests, as their connection fills them."""

import asyncio
from collections.abc import Callable

from gateway.http.request import BodyLost

READ_BUFFER = 64 * 1024
"""As many bytes of a body that nobody reads hold the client back."""


class NoBody:
    """Of a request without one."""

    __slots__ = ()

    exists = False
    received = 0
    complete = True
    at_end = True

    def take(self) -> bytes:
        return b""

    async def read(self) -> bytes:
        return b""


NO_BODY = NoBody()


class WholeBody:
    """One that came along with its head."""

    __slots__ = ("_data", "received")

    exists = True
    complete = True

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.received = len(data)

    @property
    def at_end(self) -> bool:
        return not self._data

    def take(self) -> bytes:
        data, self._data = self._data, b""
        return data

    async def read(self) -> bytes:
        return self.take()


class IncomingBody:
    """One that is still coming in. `go_on` is called when what held the client back was taken.

    What has come in before it is lost is dropped with it, and the reader that waits is told; a `complete` one is no longer lost. After
    `discard` nobody reads it any more, and what comes in is only counted.
    """

    __slots__ = ("_discarded", "_go_on", "_lost", "_pieces", "_size", "_waiter", "complete", "received")

    exists = True

    def __init__(self, go_on: Callable[[], None]) -> None:
        self._go_on: Callable[[], None] | None = go_on
        self._pieces: list[bytes] = []
        self._size = 0
        self._lost: str | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._discarded = False
        self.complete = False
        self.received = 0

    @property
    def at_end(self) -> bool:
        return self.complete and not self._pieces

    @property
    def full(self) -> bool:
        """Whether so much waits to be taken that the client is to be held back."""
        return self._size >= READ_BUFFER

    def take(self) -> bytes:
        if self._lost is not None:
            raise BodyLost(self._lost)
        pieces = self._pieces
        if not pieces:
            return b""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        full, self._pieces, self._size = self.full, [], 0
        if full and self._go_on is not None:
            self._go_on()
        return data

    async def read(self) -> bytes:
        while not self._pieces and not self.complete and self._lost is None:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self.take()

    # ---- for the connection

    def feed(self, data: bytes) -> None:
        """More of it."""
        self.received += len(data)
        if data and not self._discarded:
            self._pieces.append(data)
            self._size += len(data)
            self._wake()

    def discard(self) -> None:
        self._discarded = True
        self._pieces, self._size = [], 0

    def end(self) -> None:
        """All of it has come in."""
        self.complete = True
        self._go_on = None
        self._wake()

    def lose(self, why: str) -> None:
        """The rest will never come."""
        if not self.complete and self._lost is None:
            self._lost = why
            self._go_on = None
            self._pieces, self._size = [], 0
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
