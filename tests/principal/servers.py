"""Servers on raw sockets that are asked for keys, or who somebody is, and a clock to turn."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

from gateway.runtime.system import SystemClock
from tests.upstream.stub import Peer, Stub


class TurnedClock(SystemClock):
    """The system's clock, some seconds ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0

    def boottime(self) -> float:
        return super().boottime() + self.ahead


def response(body: bytes = b"", status: bytes = b"200 OK", *fields: bytes) -> bytes:
    """A whole response."""
    lines = [b"HTTP/1.1 " + status, *fields, b"Content-Length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


class Answering(Stub):
    """Answers each request with `answer`, or lets `behave` do it, which is told the request; but first waits for `gate` to be open."""

    def __init__(self, answer: bytes = b"", behave: Callable[[Peer, bytes], Awaitable[None]] | None = None) -> None:
        super().__init__(self._one_by_one)
        self.answer = answer
        self.behave = behave
        self.gate = asyncio.Event()
        self.gate.set()

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        return self

    @property
    def asked(self) -> int:
        """How many requests came in."""
        return len(self.requests)

    async def _one_by_one(self, peer: Peer) -> None:
        while True:
            request = await peer.request()
            await self.gate.wait()
            if self.behave is not None:
                return await self.behave(peer, request)
            await peer.answer(self.answer)

    def fields(self, number: int = -1) -> list[bytes]:
        """The field lines of a request that came in."""
        return self.requests[number].split(b"\r\n")[1:-2]
