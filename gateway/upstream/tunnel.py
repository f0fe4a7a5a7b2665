"""A connection that has left HTTP (RFC 9110 section 7.8): bytes both ways, in bounded memory, until one side ends or
both fall silent.
"""

import asyncio

from gateway.upstream.connection import HIGH_WATER, Connection

FLUSH = 5.0
"""Seconds that bytes written before `close` have for leaving."""


class UpstreamTunnel:
    """Implements `gateway.ports.Tunnel`.

    `first` are the bytes that came with the response's head, `idle` is the silence in both directions that ends it, in
    seconds. What the upstream sent before it ended can still be read. The connection is never used for anything else
    again; its slot comes free as soon as either side has ended, while bytes written before `close` still go out.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: Connection, first: bytes, idle: float) -> None:
        self._loop = loop
        self._connection: Connection | None = connection
        self._idle = idle
        self._pieces = [first] if first else []
        self._buffered = len(first)
        self._waiter: asyncio.Future[None] | None = None
        connection.hand_over(self)
        self._alive()

    async def read(self) -> bytes:
        """See the port. At most `HIGH_WATER` bytes and one more read from the socket are held for a slow reader."""
        while not self._pieces and self._connection is not None:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._buffered = 0
        if self._connection is not None:
            self._connection.set_reading(on=True)
        return data

    def write(self, data: bytes) -> None:
        """See the port."""
        if self._connection is not None and data:
            self._connection.write(data)
            self._alive()

    async def drain(self) -> None:
        """See the port."""
        if self._connection is not None:
            await self._connection.drain()

    def close(self) -> None:
        """Final and idempotent. Nothing can be read any more."""
        connection = self._connection
        self._pieces.clear()
        self._over()
        if connection is not None:
            connection.leave(FLUSH)

    # What the connection reports

    def received(self, data: bytes) -> None:
        connection = self._connection
        if connection is None:
            return
        self._pieces.append(data)
        self._buffered += len(data)
        if self._buffered > HIGH_WATER:
            connection.set_reading(on=False)
        self._alive()
        self._wake()

    def ended(self) -> None:
        """RFC 9110 section 9.3.6: when one side has ended, so has the tunnel."""
        self._over()

    def lost(self) -> None:
        self._over()

    def expired(self) -> None:
        connection = self._connection
        self._over()
        if connection is not None:
            connection.cut()

    def drained(self) -> None:
        self._alive()

    def broken(self) -> None:
        self._over()

    # Inside

    def _alive(self) -> None:
        if self._connection is not None:
            self._connection.alarm.set(self._loop.time() + self._idle)

    def _over(self) -> None:
        self._connection = None
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
