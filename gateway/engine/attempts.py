"""The attempts of a process. They belong to the process, so that no client's connection can cancel one, and a drain
waits for them.
"""

import asyncio
from collections.abc import Callable

from gateway.core.model import RecordKey
from gateway.engine.attempt import Attempt
from gateway.ports import Clock, Observer


class Attempts:
    """Runs attempts, each in a task. It calls `on_end` with each guarding attempt that has ended."""

    def __init__(self, clock: Clock, observer: Observer, on_end: Callable[[Attempt], None]) -> None:
        self._clock = clock
        self._observer = observer
        self._on_end = on_end
        self._running: dict[RecordKey, Attempt] = {}
        self._tasks: dict[asyncio.Task[None], Attempt] = {}
        self._stopped = False

    def begin(self, attempt: Attempt, *, guards: bool) -> None:
        """Run an attempt. `guards`: requests that wait for its key may rely on `on_end`."""
        if guards:
            if self._stopped:
                attempt.stop()
            self._running[attempt.key] = attempt
        task = asyncio.get_running_loop().create_task(attempt.run())
        self._tasks[task] = attempt
        task.add_done_callback(self._ended)

    def runs(self, key: RecordKey) -> bool:
        """Whether a guarding attempt for this key is under way."""
        return key in self._running

    @property
    def in_flight(self) -> int:
        """How many attempts are under way."""
        return len(self._tasks)

    async def quiet(self, timeout: float) -> None:
        """Until no attempt is under way, also of those that came meanwhile, at most `timeout` seconds."""
        deadline = self._clock.boottime() + timeout
        while self._tasks and (remaining := deadline - self._clock.boottime()) > 0:
            await asyncio.wait(self._tasks, timeout=remaining)

    def stop(self) -> None:
        """From now on no attempt sends anything; attempts at an upstream end in doubt."""
        self._stopped = True
        for task, attempt in list(self._tasks.items()):
            attempt.stop()
            if attempt.executing:
                task.cancel()

    async def give_up(self) -> bool:
        """Cancel the attempts that are left. Returns whether there was none."""
        left = list(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        return not left

    def _ended(self, task: "asyncio.Task[None]") -> None:
        attempt = self._tasks.pop(task)
        if not attempt.reply.done():
            attempt.give_up()
        if self._running.get(attempt.key) is attempt:
            del self._running[attempt.key]
            self._on_end(attempt)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._observer.background_failed("attempt", error)
