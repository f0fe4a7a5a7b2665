"""A client's connection that has left HTTP (RFC 9110 section 7.8): bytes both ways, at the pace of the slower side."""

import asyncio
from collections.abc import Awaitable, Callable

HIGH_WATER = 64 * 1024
"""As many unread bytes hold the client back."""


class ClientTunnel:
    """The `Tunnel` of a client's connection, which gives it bytes (`feed`) and the end of them (`end`).

    `flushed` waits until little is left to be written and may raise ConnectionError; `hang_up` closes the connection.
    """

    def __init__(self, wire: asyncio.Transport, flushed: Callable[[], Awaitable[None]], hang_up: Callable[[], None]) -> None:
        self._wire = wire
        self._flushed = flushed
        self._hang_up = hang_up
        self._pieces: list[bytes] = []
        self._size = 0
        self._held = False
        self._ended = False
        self._closed = False
        self._waiter: asyncio.Future[None] | None = None

    def feed(self, data: bytes) -> None:
        """More bytes of the client."""
        if self._ended or not data:
            return
        self._pieces.append(data)
        self._size += len(data)
        if self._size >= HIGH_WATER and not self._held:
            self._held = True
            self._wire.pause_reading()
        self._wake()

    def end(self) -> None:
        """There will be no more: `read` gives what there is, then `b""`."""
        self._ended = True
        self._wake()

    async def read(self) -> bytes:
        while not self._pieces and not self._ended:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if self._held:
            self._held = False
            self._let_in()
        return data

    def write(self, data: bytes) -> None:
        if not self._closed and not self._wire.is_closing():
            self._wire.write(data)

    async def drain(self) -> None:
        if self._closed:
            return
        try:
            await self._flushed()
        except ConnectionError:
            self.end()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._pieces.clear()
        self.end()
        self._hang_up()

    def _let_in(self) -> None:
        if not self._closed and not self._wire.is_closing():
            self._wire.resume_reading()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
