"""How long clients wait for a settle: one timer of the event loop for all of them.

Nearly every settle ends a thousand times sooner than its client loses patience (`settle_timeout`). A timer for each
would cost more than all else that its wait takes.
"""

import asyncio
from collections.abc import Callable
from math import inf


class Patience:
    """Calls back for those that have not called it off in time. One for each engine."""

    def __init__(self) -> None:
        self._waiting: dict[object, tuple[float, Callable[[], None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rings = inf

    def wait(self, who: object, seconds: float, call: Callable[[], None]) -> None:
        """Call back in so many seconds; instead of what `who` has asked for before, if anything."""
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        self._waiting[who] = due, call
        if due < self._rings:
            self._arm(loop, due)

    def end(self, who: object) -> None:
        """Call it off. Harmless if it has been called."""
        self._waiting.pop(who, None)

    def _arm(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings = due
        self._timer = loop.call_at(due, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        """Each call has a step of the loop of its own: a defect in one is not the others'."""
        now, self._timer, self._rings = max(loop.time(), self._rings), None, inf
        for who, (due, call) in list(self._waiting.items()):
            if due <= now:
                del self._waiting[who]
                loop.call_soon(call)
        if self._waiting:
            self._arm(loop, min(due for due, _ in self._waiting.values()))
