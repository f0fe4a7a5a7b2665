"""Sessions that ended before their cookies do: known here at once, and at all gateways of the database within seconds."""

import asyncio
from collections.abc import Callable, Iterable

from gateway.ports import StoreUnavailable
from gateway.ports.approvals import EndedSessions

HEARD = 5.0
"""Seconds between two readings of what has ended elsewhere."""
PATIENCE = 1.0
"""Seconds for which a request waits for one."""


class Ended:
    """`shared` None: nothing is told to others. While the database is away a process goes by what it knew, and tells it later."""

    def __init__(self, shared: EndedSessions | None, clock: Callable[[], float]) -> None:
        self._shared = shared
        self._clock = clock
        self._known: dict[bytes, int] = {}
        self._own: dict[bytes, tuple[int, float, float]] = {}
        self._untold: set[bytes] = set()
        self._heard = float("-inf")
        self._hearing: asyncio.Task[None] | None = None

    def has_any(self, names: Iterable[bytes], began: int) -> bool:
        """Whether one of these names has ended, at `began` or since."""
        return any(began <= self._known[name] for name in names if name in self._known)

    async def add(self, name: bytes, at: int, seconds: float) -> None:
        """Remember for so long that what began at `at` or before has ended."""
        self._own[name] = (at, seconds, self._clock() + seconds)
        self._known[name] = max(at, self._known.get(name, at))
        self._untold.add(name)
        self._heard = float("-inf")
        await self.keep_up()

    async def keep_up(self) -> None:
        """Tell and hear, if it is time to; wait for that no longer than `PATIENCE`."""
        if self._shared is None or (self._hearing is None and self._clock() - self._heard < HEARD):
            return
        if self._hearing is None:
            self._heard = self._clock()
            self._hearing = asyncio.get_running_loop().create_task(self._exchange(self._shared), name="ended sessions")
            self._hearing.add_done_callback(self._done)
        await asyncio.wait({self._hearing}, timeout=PATIENCE)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._hearing = None
        if not task.cancelled() and task.exception() is not None:
            self._heard = self._clock()  # another time

    async def _exchange(self, shared: EndedSessions) -> None:
        now = self._clock()
        self._own = {name: one for name, one in self._own.items() if one[2] > now}
        try:
            for name in tuple(self._untold):
                if name in self._own:
                    at, seconds, _ = self._own[name]
                    await shared.end_session(name, at, seconds)
                self._untold.discard(name)
            heard = dict(await shared.ended_sessions())
        except StoreUnavailable:
            return
        for name, (at, _, _) in self._own.items():
            heard[name] = max(at, heard.get(name, at))
        self._known = heard
