"""A timer that is moved on every exchange and hardly ever fires."""

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls `ring` once when the loop's clock reaches `due`; `set` moves it, `set(None)` silences it.

    Moving it later costs an assignment: the loop's timer is left where it is and, when it fires early, is put to the right instant.
    (One `call_later` and one `cancel` per exchange would cost as much as parsing the response.) `stop` is final.
    """

    __slots__ = ("_due", "_handle", "_handle_at", "_loop", "_ring")

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring: Callable[[], None] | None = ring
        self._due: float | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._handle_at = 0.0

    def set(self, due: float | None) -> None:
        self._due = due
        if due is None or self._ring is None:
            return
        if self._handle is not None:
            if self._handle_at <= due:
                return
            self._handle.cancel()
        self._arm(due)

    def stop(self) -> None:
        self._due = self._ring = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self, due: float) -> None:
        self._handle_at = due
        self._handle = self._loop.call_at(due, self._fired)

    def _fired(self) -> None:
        self._handle = None
        due, ring = self._due, self._ring
        if due is None or ring is None:
            return
        if due > self._handle_at:
            self._arm(due)
        else:
            self._due = None
            ring()
