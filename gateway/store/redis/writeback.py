"""Background writes to Redis, repeated until Redis acknowledges them or their entry has ended by itself.

What is to become of entries is gathered for `GATHERED` seconds: the client's answer leaves ahead of the work on it, and
what comes together is one command. What quotas write does not wait: it is queued at once, behind what was gathered.
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from gateway.ports import Clock, StoreObserver, StoreUnavailable
from gateway.store.completed import CompletedEntry
from gateway.store.redis.hotpath import Outcome, Told

GATHERED = 0.01
_MAX_GATHERED = 256 * 1024
"""Bytes of bodies from which what was gathered leaves at the end of the turn: to seal so much takes a millisecond."""

_MAX_PENDING = 1024
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0

_log = logging.getLogger(__name__)

Write: TypeAlias = Callable[[Told], None]
"""Begins one write, and tells what it has done."""

Settle: TypeAlias = "Callable[[Sequence[Following]], None]"
"""Begins to change entries, as one step where it can, and tells each what has become of it."""


class Writeback:
    """Carries writes out in the order of their coming. A first try that finds the token gone is told as a stale write.

    Only what fails goes on, each write in a task of its own, so that nothing waits behind it. At most `_MAX_PENDING` at a
    time: a write above that is dropped, its entry ends by itself.
    """

    def __init__(self, clock: Clock, observer: StoreObserver, settle: Settle) -> None:
        self.settle = settle
        self._clock = clock
        self._observer = observer
        self._pending: dict[bytes, int] = {}
        self._number = 0
        self._gathered: list[Following] = []
        self._gathered_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: asyncio.Future[None] | None = None
        self._closed = False

    def pending(self, lookup: bytes) -> bool:
        """Whether the entry of `lookup` is about to change, so that what it says now is known to be outdated."""
        return lookup in self._pending

    def follow(self, operation: str, lookup: bytes, owner: bytes, until: float, entry: CompletedEntry | None = None) -> None:
        """Have `entry` take the place of the lease of `owner`, or nothing, in the background. `until` (CLOCK_BOOTTIME) is
        when the lease has surely ended.
        """
        if not self._admits(operation, lookup):
            return
        if not self._gathered:
            asyncio.get_running_loop().call_later(GATHERED, self._begin)
        self._gathered.append(Following(self, operation, lookup, until, owner, entry))
        if entry is not None and entry.response.body is not None:
            self._gathered_bytes += len(entry.response.body)
            if self._gathered_bytes > _MAX_GATHERED:
                self._gathered_bytes = 0
                asyncio.get_running_loop().call_soon(self._begin)

    def write(self, operation: str, owner: bytes, write: Write, until: float) -> None:
        """Carry out `write` in the background, until the instant `until` (CLOCK_BOOTTIME) at most. Its first try is queued
        when this returns, behind what has been gathered.
        """
        if self._admits(operation, owner):
            self._begin()
            writing = _Writing(self, operation, owner, until, write)
            _try(writing.begin, (writing,))

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

    def _admits(self, operation: str, lookup: bytes) -> bool:
        if self._closed:
            return False
        if self._number >= _MAX_PENDING:
            self._observer.store_error("redis", operation, "overloaded")
            return False
        self._pending[lookup] = self._pending.get(lookup, 0) + 1
        self._number += 1
        return True

    def _begin(self) -> None:
        """Send what has been gathered."""
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        if gathered:
            _try(lambda: self.settle(gathered), gathered)

    async def _repeat(self, pending: "_Pending", *, told: bool) -> None:
        """The tries after the first. `told`: a token that is gone then is no news."""
        pause = _FIRST_PAUSE
        while self._clock.boottime() + pause < pending.until:
            await self._clock.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)
            outcome = await pending.again()
            if not isinstance(outcome, StoreUnavailable):
                self.finish(pending, stale=not outcome and not told)
                return
            told = told or outcome.may_have_landed
        self.finish(pending, stale=False)


@dataclass(slots=True, eq=False)
class _Pending:
    """One write. `until` (CLOCK_BOOTTIME) is when the entry that it changes has surely ended."""

    writes: Writeback
    operation: str
    lookup: bytes
    until: float
    over: bool = field(default=False, init=False)
    waiting: "asyncio.Future[Outcome] | None" = field(default=None, init=False)

    @abstractmethod
    def begin(self) -> None:
        """Begin a try; `told` hears its outcome."""

    def told(self, outcome: Outcome) -> None:
        """The end of a try. A second word about it, as after an exception of ours, changes nothing."""
        if self.over:
            return
        self.over = True
        if self.waiting is not None:
            if not self.waiting.done():  # `close` has cancelled it, and its task has not heard of that yet
                self.waiting.set_result(outcome)
        elif isinstance(outcome, StoreUnavailable):
            self.writes.retry(self, outcome)
        else:
            self.writes.finish(self, stale=not outcome)

    async def again(self) -> Outcome:
        """What one more try has done. A failure is no exception, whose traceback would lead back here: each would be a
        circle that only the garbage collector frees, and there is one for each try while Redis is away.
        """
        waiting: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.over, self.waiting = False, waiting
        try:
            _try(self.begin, (self,))
            return await waiting
        finally:
            self.over, self.waiting = True, None


@dataclass(slots=True, eq=False)
class Following(_Pending):
    """What is to become of an entry that begins as the lease of `owner`: `entry`, or nothing. A `Change`, to which the one
    that settles gives `value` and `ttl_ms`.
    """

    owner: bytes
    entry: CompletedEntry | None
    value: bytes | None = field(default=None, init=False)
    ttl_ms: int = field(default=0, init=False)

    def begin(self) -> None:
        self.writes.settle((self,))


@dataclass(slots=True, eq=False)
class _Writing(_Pending):
    """A write of a quota."""

    write: Write

    def begin(self) -> None:
        self.write(self.told)


def _try(begin: Callable[[], None], all_of: Sequence[_Pending]) -> None:
    """Begin a try of these. What Redis follows is committed: that stands, whatever goes wrong here."""
    try:
        begin()
    except Exception:
        _log.exception("A write to Redis could not be begun")
        for pending in all_of:
            pending.told(StoreUnavailable("redis", "error", may_have_landed=True))
