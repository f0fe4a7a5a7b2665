"""A bounded channel between the reading of an upstream and the writing to a client.

Reading never waits for the client. A client that falls too far behind is cut; its operation completes all the same, and its retry is
told so.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from gateway.engine.answers import RelayCut

BUFFER_BYTES = 8 * 1024 * 1024
"""How far a client may fall behind before it is cut."""


class Relay:
    """One writer (the attempt), one reader (the client's connection). Not for use from several threads."""

    def __init__(self, limit: int = BUFFER_BYTES) -> None:
        self._limit = limit
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._ended = False
        self._cut = False
        self._wake: asyncio.Event = asyncio.Event()

    def push(self, chunk: bytes) -> None:
        """Add a piece. Never waits; past the limit the client's transfer is cut instead."""
        if self._cut or not chunk:
            return
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._size > self._limit:
            self.cut()
        self._wake.set()

    def end(self) -> None:
        """The body is complete and may end normally."""
        self._ended = True
        self._wake.set()

    @property
    def ended(self) -> bool:
        """Whether `end` was called. What is buffered then may still be on its way to the client."""
        return self._ended

    def cut(self) -> None:
        """The transfer must not end normally. What is buffered is dropped."""
        self._cut = True
        self._chunks.clear()
        self._wake.set()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The pieces in order. Raises `RelayCut` once `cut` was called."""
        while True:
            self._wake.clear()
            while self._chunks:
                chunk = self._chunks.popleft()
                self._size -= len(chunk)
                yield chunk
            if self._cut:
                raise RelayCut
            if self._ended:
                return
            if not self._wake.is_set():
                await self._wake.wait()
