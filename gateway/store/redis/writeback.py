"""Writes to Redis that nobody waits for, repeated until acknowledged or until their entry has ended by itself."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from gateway.ports import Clock, StoreObserver, StoreUnavailable

_MAX_PENDING = 1024
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0

Write = Callable[[], Awaitable[bool]]
"""One compare-and-write: True done, False the entry was not ours any more. Raises `StoreUnavailable`."""


class Writeback:
    """Owns one task for each pending write. A first try that finds the token gone is told as a stale write.

    At most `_MAX_PENDING` at a time: a write above that is dropped, its entry ends by itself.
    """

    def __init__(self, clock: Clock, observer: StoreObserver) -> None:
        self._clock = clock
        self._observer = observer
        self._tasks: set[asyncio.Task[None]] = set()
        self._pending: Counter[bytes] = Counter()
        self._closed = False

    def pending(self, lookup: bytes) -> bool:
        """Whether the entry of `lookup` is about to change, so that what it says now is known to be outdated."""
        return lookup in self._pending

    def submit(self, operation: str, lookup: bytes, write: Write, until: float) -> None:
        """Carry out `write` in the background; `until` (CLOCK_BOOTTIME) is when the entry it changes has surely ended."""
        if self._closed:
            return
        if len(self._tasks) >= _MAX_PENDING:
            self._observer.store_error("redis", operation, "overloaded")
            return
        self._pending[lookup] += 1
        task = asyncio.get_running_loop().create_task(self._repeat(operation, write, until), name="redis-write")
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._done(done, lookup))

    async def drain(self, timeout: float) -> bool:
        """Wait until nothing is pending. False: `timeout` seconds have passed first."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)
        return not self._tasks

    async def close(self, timeout: float) -> None:
        """Take no more writes, give the pending ones `timeout` seconds, drop the rest. May be called repeatedly."""
        self._closed = True
        await self.drain(timeout)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, operation: str, write: Write, until: float) -> None:
        pause = _FIRST_PAUSE
        first = True
        while True:
            try:
                done = await write()
            except StoreUnavailable as error:
                # A try that may have landed explains why the next one finds its token gone.
                first = first and not error.may_have_landed
            else:
                if not done and first:
                    self._observer.stale_write(f"redis_{operation}")
                return
            if self._clock.boottime() + pause >= until:
                return
            await self._clock.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)

    def _done(self, task: asyncio.Task[None], lookup: bytes) -> None:
        self._tasks.discard(task)
        self._pending[lookup] -= 1
        if not self._pending[lookup]:
            del self._pending[lookup]
