"""An upstream that plays the parts it is given."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from gateway.core.model import Headers
from gateway.ports import NotSent, NotSentReason, Tunnel, UpstreamRequest
from tests.engine.store import Teller
from tests.support.responses import Body


@dataclass(slots=True)
class Part:
    """What the upstream does with one request. `pauses` are waited before the head and before each piece; `raises` comes in the end.

    `dials` seconds pass before the fence is asked.
    """

    status: int = 201
    pieces: tuple[bytes, ...] = (b'{"id": "ch_1"}',)
    headers: Headers = ((b"Content-Type", b"application/json"),)
    pauses: tuple[float, ...] = ()
    raises: BaseException | None = None
    raises_unsent: BaseException | None = None
    dials: float = 0.0
    length: int | None = None

    def waits(self) -> Iterator[float]:
        yield from self.pauses
        while True:
            yield 0.0


class ActingUpstream:
    """Plays the parts it is given, in order; without a part it answers 201. Counts what it was really sent."""

    def __init__(self, stage: Teller) -> None:
        self._stage = stage
        self.parts: deque[Part] = deque()
        self.sent: list[UpstreamRequest] = []

    def plays(self, *parts: Part) -> None:
        self.parts.extend(parts)

    async def send(self, request: UpstreamRequest, fence: Callable[[], bool]) -> "_Response":
        part = self.parts.popleft() if self.parts else Part()
        await asyncio.sleep(part.dials)
        if part.raises_unsent is not None:
            self._stage.tell("upstream: not sent")
            raise part.raises_unsent
        if not fence():
            self._stage.tell("upstream: fenced")
            raise NotSent(NotSentReason.LEASE_LAPSED)
        self._stage.tell("upstream: sent")
        self.sent.append(request)
        waits = part.waits()
        await asyncio.sleep(next(waits))
        if part.raises is not None and not part.pieces:
            raise part.raises
        return _Response(part, waits)


class _Response:
    def __init__(self, part: Part, waits: Iterator[float]) -> None:
        self._part = part
        self._waits = waits
        self.status = part.status
        self.reason = b"Reason"
        self.headers = part.headers
        self.content_length = part.length
        self._body = Body(self._pieces(), part.length)

    async def read(self, limit: int) -> bytes | None:
        return await self._body.read(limit)

    def chunks(self) -> AsyncIterator[bytes]:
        return self._body

    async def _pieces(self) -> AsyncIterator[bytes]:
        for piece in self._part.pieces:
            await asyncio.sleep(next(self._waits))
            yield piece
        if self._part.raises is not None:
            raise self._part.raises

    def tunnel(self) -> Tunnel:
        raise AssertionError("nobody asked to switch protocols")

    def close(self) -> None:
        pass
