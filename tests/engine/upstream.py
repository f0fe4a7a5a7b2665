"""An upstream that plays the parts it is given."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace

from gateway.core.model import Headers
from gateway.ports import DoubtReason, InDoubt, NotSent, NotSentReason, Receiver, Tunnel, UpstreamRequest
from tests.engine.store import Teller
from tests.support.responses import Body


@dataclass(slots=True)
class Part:
    """What the upstream does with one request. `pauses` are waited before the head and before each piece; `raises` comes in the end.

    `dials` seconds pass before the fence is asked; `comes` is called just before its head is told. `held_for` seconds a request that can be
    sent at once is held back, until it is sent, or its connection turns out to be lost.
    """

    status: int = 201
    pieces: tuple[bytes, ...] = (b'{"id": "ch_1"}',)
    headers: Headers = ((b"Content-Type", b"application/json"),)
    pauses: tuple[float, ...] = ()
    raises: BaseException | None = None
    raises_unsent: BaseException | None = None
    dials: float = 0.0
    length: int | None = None
    comes: Callable[[], object] = lambda: None
    held_for: float | None = None
    connection_lost: bool = False

    def waits(self) -> Iterator[float]:
        yield from self.pauses
        while True:
            yield 0.0


class Playing:
    """A request that `ActingUpstream.begin` has sent, or will, by then."""

    def __init__(self, task: "asyncio.Task[None]", *, held: bool = False) -> None:
        self._task = task
        self.held = held

    def close(self) -> None:
        self._task.cancel()


class ActingUpstream:
    """Plays the parts it is given, in order; without a part it answers 201. Counts what it was really sent.

    `at_once`: what can be sent without waiting is sent so; else `send` is always the way.
    """

    def __init__(self, stage: Teller, *, at_once: bool = True) -> None:
        self._stage = stage
        self._at_once = at_once
        self.parts: deque[Part] = deque()
        self.sent: list[UpstreamRequest] = []
        self.held: list[Playing] = []

    def plays(self, *parts: Part) -> None:
        self.parts.extend(parts)

    async def send(self, request: UpstreamRequest, fence: Callable[[], bool]) -> "_Response":
        part = self.parts.popleft() if self.parts else Part()
        await asyncio.sleep(part.dials or part.held_for or 0.0)
        if part.raises_unsent is not None:
            self._stage.tell("upstream: not sent")
            raise part.raises_unsent
        self._take(request, fence)
        return await self._answer(part)

    def begin(self, request: UpstreamRequest, fence: Callable[[], bool], receiver: Receiver) -> Playing | None:
        part = self.parts[0] if self.parts else Part()
        waits = part.dials or part.raises_unsent is not None or not isinstance(part.raises, InDoubt | None)
        if waits or not self._at_once:
            return None
        if part.held_for is not None:
            playing = Playing(asyncio.get_running_loop().create_task(self._hold(part, request, fence, receiver)), held=True)
            self.held.append(playing)
            return playing
        self._take(request, fence)
        if self.parts:
            self.parts.popleft()
        return Playing(asyncio.get_running_loop().create_task(self._tell(part, receiver)))

    async def _hold(self, part: Part, request: UpstreamRequest, fence: Callable[[], bool], receiver: Receiver) -> None:
        """What goes out at the end of a turn, which lasts so long as the part says."""
        assert part.held_for is not None
        await asyncio.sleep(part.held_for)
        self.held.pop().held = False
        if part.connection_lost:
            self.parts[0] = replace(part, held_for=None, dials=0.001)
            receiver.not_begun()
            return
        try:
            self._take(request, fence)
        except NotSent as failure:
            receiver.failed(failure)
            return
        except Exception:  # as on a real connection
            receiver.failed(InDoubt(DoubtReason.GATEWAY_ERROR))
            return
        self.parts.popleft()
        await self._tell(part, receiver)

    def _take(self, request: UpstreamRequest, fence: Callable[[], bool]) -> None:
        if not fence():
            self._stage.tell("upstream: fenced")
            raise NotSent(NotSentReason.LEASE_LAPSED)
        self._stage.tell("upstream: sent")
        self.sent.append(request)

    async def _tell(self, part: Part, receiver: Receiver) -> None:
        try:
            response = await self._answer(part)
        except InDoubt as failure:
            receiver.failed(failure)
        else:
            receiver.answered(response)

    async def _answer(self, part: Part) -> "_Response":
        waits = part.waits()
        await asyncio.sleep(next(waits))
        part.comes()
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

    def at_hand(self, limit: int) -> bytes | None:
        return None

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
