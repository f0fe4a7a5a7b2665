"""Answers that are written in one turn of the event loop leave together, at its end.

An answer that is written as soon as it is made wakes its client and drives the code that makes the next one out of the processor's caches:
with many clients that is a fifth of all that a replay costs. The first of a turn is written at once, so that a request that is alone waits
for nothing.
"""

import asyncio
from typing import Protocol

SMALL = 16 * 1024
"""Bytes that a connection holds back at most."""


class Corked(Protocol):
    """A connection that holds something back."""

    def turn_ended(self) -> None:
        """Write what was held back, if it is still there. Never raises."""
        ...


class Cork:
    """One for the connections of a listener, all of one event loop."""

    __slots__ = ("_held", "_turn")

    def __init__(self) -> None:
        self._turn = False
        self._held: list[Corked] = []

    def holds(self, connection: Corked) -> bool:
        """Whether `connection` shall hold its answer back. Then its `turn_ended` is called at the end of this turn."""
        if self._turn:
            self._held.append(connection)
            return True
        self._turn = True
        asyncio.get_running_loop().call_soon(self._end)
        return False

    def _end(self) -> None:
        self._turn = False
        held, self._held = self._held, []
        for connection in held:
            connection.turn_ended()
