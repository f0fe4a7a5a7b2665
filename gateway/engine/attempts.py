"""The attempts of a process. They belong to the process, so that no client's connection can cancel one, and a drain
waits for them.
"""

import asyncio
from collections.abc import Callable

from gateway.core.model import RecordKey
from gateway.engine.attempt import Attempt
from gateway.engine.patience import Patience
from gateway.ports import Clock, Observer


class Attempts:
    """Runs attempts. It calls `on_end` with each guarding attempt that has ended."""

    def __init__(self, clock: Clock, observer: Observer, on_end: Callable[[Attempt], None]) -> None:
        self._clock = clock
        self._observer = observer
        self._on_end = on_end
        self._guarding: dict[RecordKey, Attempt] = {}
        self._running: dict[Attempt, None] = {}
        self._patience = Patience()
        self._stopped = False
        self._waiter: asyncio.Future[None] | None = None

    def begin(self, attempt: Attempt, *, guards: bool) -> None:
        """Run an attempt. `guards`: requests that wait for its key may rely on `on_end`. Raises as `Attempt.begin`."""
        if guards and self._stopped:
            attempt.stop()
        attempt.begin(self._ended, self._patience)
        self._running[attempt] = None
        if guards:
            self._guarding[attempt.key] = attempt

    def runs(self, key: RecordKey) -> bool:
        """Whether a guarding attempt for this key is under way."""
        return key in self._guarding

    @property
    def in_flight(self) -> int:
        """How many attempts are under way."""
        return len(self._running)

    async def quiet(self, timeout: float) -> None:
        """Until no attempt is under way, also of those that came meanwhile, at most `timeout` seconds."""
        deadline = self._clock.boottime() + timeout
        while self._running and (remaining := deadline - self._clock.boottime()) > 0:
            await self._emptied(remaining)

    def stop(self) -> None:
        """From now on no attempt sends anything; attempts at an upstream end in doubt."""
        self._stopped = True
        for attempt in list(self._running):
            attempt.stop()

    async def give_up(self) -> bool:
        """End the attempts that are left, without settling. Returns whether there was none."""
        left = list(self._running)
        for attempt in left:
            attempt.give_up()
        while self._running:
            await self._emptied(None)
        return not left

    async def _emptied(self, timeout: float | None) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await asyncio.wait({self._waiter}, timeout=timeout)

    def _ended(self, attempt: Attempt, error: BaseException | None) -> None:
        self._running.pop(attempt, None)
        guarding = self._guarding.pop(attempt.key, None)
        if guarding is attempt:
            self._on_end(attempt)
        elif guarding is not None:  # a later one for the same key
            self._guarding[attempt.key] = guarding
        if error is not None:
            self._observer.background_failed("attempt", error)
        if not self._running and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
