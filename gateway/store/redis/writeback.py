"""Background writes to Redis, repeated until Redis acknowledges them or their entry has ended by itself.

A write is gathered with those of the next `GATHERED` seconds: the client's answer leaves ahead of the work on it, and the
many that come together cost one round trip.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from gateway.ports import Clock, StoreObserver, StoreUnavailable
from gateway.store.redis.hotpath import Outcome, Told

GATHERED = 0.002
_MAX_PENDING = 1024
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0

_log = logging.getLogger(__name__)

Write = Callable[[Told], None]
"""Begins one compare-and-write, and tells what it has done."""


class Writeback:
    """Carries writes out in the order of their coming. A first try that finds the token gone is told as a stale write.

    A write is one command: its reply ends it. Only what fails goes on in a task of its own, so that nothing waits
    behind it. At most `_MAX_PENDING` at a time: a write above that is dropped, its entry
    ends by itself.
    """

    def __init__(self, clock: Clock, observer: StoreObserver) -> None:
        self._clock = clock
        self._observer = observer
        self._pending: dict[bytes, int] = {}
        self._number = 0
        self._gathered: list[_Pending] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: asyncio.Future[None] | None = None
        self._closed = False

    def pending(self, lookup: bytes) -> bool:
        """Whether the entry of `lookup` is about to change, so that what it says now is known to be outdated."""
        return lookup in self._pending

    def submit(self, operation: str, lookup: bytes, write: Write, until: float, *, at_once: bool = False) -> None:
        """Carry out `write` in the background; `until` (CLOCK_BOOTTIME) is when the entry it changes has
        surely ended. `at_once`: it is queued when this returns, behind what has been gathered.
        """
        if self._closed:
            return
        if self._number >= _MAX_PENDING:
            self._observer.store_error("redis", operation, "overloaded")
            return
        self._pending[lookup] = self._pending.get(lookup, 0) + 1
        self._number += 1
        if not self._gathered:
            asyncio.get_running_loop().call_later(GATHERED, self._begin)
        self._gathered.append(_Pending(self, operation, lookup, write, until))
        if at_once:
            self._begin()

    def _begin(self) -> None:
        """Send what has been gathered."""
        gathered, self._gathered = self._gathered, []
        for pending in gathered:
            try:
                pending.write(pending.told)
            except Exception:  # what Redis follows is committed: that stands, whatever goes wrong here
                _log.exception("A write to Redis could not be begun")
                pending.told(StoreUnavailable("redis", "error", may_have_landed=False))

    async def drain(self, timeout: float) -> bool:
        """Wait until nothing is pending. False: `timeout` seconds have passed first."""
        self._begin()
        deadline = self._clock.boottime() + timeout
        while self._number and (remaining := deadline - self._clock.boottime()) > 0:
            if self._idle is None or self._idle.done():
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._idle], timeout=remaining)
        return not self._number

    async def close(self, timeout: float) -> None:
        """Take no more writes, give the pending ones `timeout` seconds, drop the rest. May be called repeatedly."""
        self._closed = True
        await self.drain(timeout)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._gathered.clear()
        self._pending.clear()
        self._number = 0

    def retry(self, pending: "_Pending", error: StoreUnavailable) -> None:
        """The first try of a write has failed."""
        if self._closed:
            self.finish(pending, stale=False)
            return
        # A try that may have landed explains why the next one finds its token gone.
        task = asyncio.get_running_loop().create_task(self._repeat(pending, told=error.may_have_landed), name="redis-write")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _repeat(self, pending: "_Pending", *, told: bool) -> None:
        """The tries after the first. `told`: a token that is gone then is no news."""
        pause = _FIRST_PAUSE
        while self._clock.boottime() + pause < pending.until:
            await self._clock.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)
            try:
                done = await _outcome(pending.write)
            except StoreUnavailable as error:
                told = told or error.may_have_landed
                continue
            self.finish(pending, stale=not done and not told)
            return
        self.finish(pending, stale=False)

    def finish(self, pending: "_Pending", *, stale: bool) -> None:
        """A write has ended, well or not."""
        if not self._pending:
            return  # it was dropped by `close`
        left = self._pending[pending.lookup] - 1
        if left:
            self._pending[pending.lookup] = left
        else:
            del self._pending[pending.lookup]
        self._number -= 1
        if not self._number and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)
        if stale:
            self._observer.stale_write(f"redis_{pending.operation}")


@dataclass(slots=True, eq=False)
class _Pending:
    """`until` (CLOCK_BOOTTIME) is when the entry that it changes has surely ended."""

    writes: Writeback
    operation: str
    lookup: bytes
    write: Write
    until: float
    over: bool = False

    def told(self, outcome: Outcome) -> None:
        """The end of the first try. A second word about it, as after an exception of ours, changes nothing."""
        if self.over:
            return
        self.over = True
        if isinstance(outcome, StoreUnavailable):
            self.writes.retry(self, outcome)
        else:
            self.writes.finish(self, stale=not outcome)


async def _outcome(write: Write) -> bool:
    """What one try has done, awaited."""
    ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def told(outcome: Outcome) -> None:
        if ended.done():
            return
        if isinstance(outcome, StoreUnavailable):
            ended.set_exception(outcome)
        else:
            ended.set_result(outcome)

    write(told)
    return await ended
