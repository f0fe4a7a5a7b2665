"""Writes to Redis that nobody waits for, repeated until acknowledged or until their entry has ended by itself."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from gateway.ports import Clock, StoreObserver, StoreUnavailable
from gateway.store.redis.hotpath import Begun

_MAX_PENDING = 1024
_AT_ONCE = 32
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0

Write = Callable[[], Begun]
"""Begins one compare-and-write: True done, False the entry was not ours any more. Both steps may raise `StoreUnavailable`."""


@dataclass(slots=True)
class _Pending:
    """`until` (CLOCK_BOOTTIME) is when the entry that it changes has surely ended."""

    operation: str
    lookup: bytes
    write: Write
    until: float


class Writeback:
    """Carries writes out in the order of their coming. A first try that finds the token gone is told as a stale write.

    One task begins up to `_AT_ONCE` of them, which share a round trip, and then waits for them all: a task for each would cost more than
    the writes do. What fails once goes on in a task of its own, so that nothing waits behind it. At most `_MAX_PENDING` at a time: a write
    above that is dropped, its entry ends by itself.
    """

    def __init__(self, clock: Clock, observer: StoreObserver) -> None:
        self._clock = clock
        self._observer = observer
        self._queue: deque[_Pending] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._working = False
        self._pending: Counter[bytes] = Counter()
        self._closed = False

    def pending(self, lookup: bytes) -> bool:
        """Whether the entry of `lookup` is about to change, so that what it says now is known to be outdated."""
        return lookup in self._pending

    def submit(self, operation: str, lookup: bytes, write: Write, until: float) -> None:
        """Carry out `write` in the background; `until` (CLOCK_BOOTTIME) is when the entry it changes has surely ended."""
        if self._closed:
            return
        if len(self._pending) >= _MAX_PENDING:
            self._observer.store_error("redis", operation, "overloaded")
            return
        self._pending[lookup] += 1
        self._queue.append(_Pending(operation, lookup, write, until))
        if not self._working:
            self._working = True
            self._start(self._work())

    async def drain(self, timeout: float) -> bool:
        """Wait until nothing is pending. False: `timeout` seconds have passed first."""
        deadline = self._clock.boottime() + timeout
        while self._tasks and (remaining := deadline - self._clock.boottime()) > 0:
            await asyncio.wait(self._tasks, timeout=remaining)
        return not self._tasks

    async def close(self, timeout: float) -> None:
        """Take no more writes, give the pending ones `timeout` seconds, drop the rest. May be called repeatedly."""
        self._closed = True
        await self.drain(timeout)
        self._queue.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="redis-write")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        try:
            while self._queue:
                await self._finish_all(self._begin_some())
        finally:
            self._working = False

    def _begin_some(self) -> list[tuple[_Pending, Begun]]:
        begun: list[tuple[_Pending, Begun]] = []
        while self._queue and len(begun) < _AT_ONCE:
            pending = self._queue.popleft()
            try:
                begun.append((pending, pending.write()))
            except StoreUnavailable as error:
                self._retry(pending, error)
        return begun

    async def _finish_all(self, begun: list[tuple[_Pending, Begun]]) -> None:
        try:
            for pending, write in begun:
                try:
                    done = await write
                except StoreUnavailable as error:
                    self._retry(pending, error)
                else:
                    self._finish(pending, stale=not done)
        except asyncio.CancelledError:
            for _, write in begun:
                write.cancel()
            raise

    def _retry(self, pending: _Pending, error: StoreUnavailable) -> None:
        # A try that may have landed explains why the next one finds its token gone.
        self._start(self._repeat(pending, told=error.may_have_landed))

    async def _repeat(self, pending: _Pending, *, told: bool) -> None:
        """The tries after the first. `told`: a token that is gone then is no news."""
        pause = _FIRST_PAUSE
        while self._clock.boottime() + pause < pending.until:
            await self._clock.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)
            try:
                done = await pending.write()
            except StoreUnavailable as error:
                told = told or error.may_have_landed
                continue
            self._finish(pending, stale=not done and not told)
            return
        self._finish(pending, stale=False)

    def _finish(self, pending: _Pending, *, stale: bool) -> None:
        if stale:
            self._observer.stale_write(f"redis_{pending.operation}")
        self._pending[pending.lookup] -= 1
        if not self._pending[pending.lookup]:
            del self._pending[pending.lookup]
