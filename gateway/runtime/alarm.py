"""A timer that is moved on every exchange and hardly ever fires."""

import asyncio
from collections.abc import Callable

LAST_LOOK = 0.01
"""Seconds between the instant and the bell, in which the loop takes what has come in already."""


class Alarm:
    """Calls `ring` once when the loop's clock has reached `due`; `set` moves it, `set(None)` silences it.

    A process that was frozen wakes with its timers due and what it waited for in its sockets, but its wait for sockets
    ends with nothing (epoll_wait(2) fails with EINTR, and there is no time left to try again). So what is there is
    taken first: the bell is `LAST_LOOK` late.

    Moving it later costs an assignment: the loop's timer is left where it is and, when it fires early, is put to the
    right instant. (One `call_later` and one `cancel` per exchange would cost as much as parsing the response.) `stop`
    is final.
    """

    __slots__ = ("_due", "_handle", "_handle_at", "_looked", "_loop", "_ring")

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring: Callable[[], None] | None = ring
        self._due: float | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._handle_at = 0.0
        self._looked = False

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
        self._looked = False
        self._handle_at = due
        self._handle = self._loop.call_at(due, self._fired)

    def _fired(self) -> None:
        self._handle = None
        due, ring = self._due, self._ring
        if due is None or ring is None:
            return
        if due > self._handle_at:
            self._arm(due)
        elif not self._looked:
            self._looked = True
            self._handle = self._loop.call_later(LAST_LOOK, self._fired)
        else:
            self._due = None
            ring()
