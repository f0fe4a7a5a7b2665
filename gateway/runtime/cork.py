"""What is written in one turn of the event loop to several peers leaves together, at its end.

A write wakes its peer, and the kernel's work for it drives the code that makes the next one out of the processor's caches: with many
clients that is a fifth of all that a replay costs. The first of a turn is written at once: a request that is alone waits for nothing.
"""

import asyncio
from typing import Protocol

SMALL = 16 * 1024
"""Bytes that a client's connection holds back at most."""


class Corked(Protocol):
    """What holds something back."""

    def turn_ended(self) -> None:
        """Write what was held back, if it is still there. Raises no `Exception`."""
        ...


class Cork:
    """One for the connections of a listener, or to an upstream; all of one event loop."""

    __slots__ = ("_held", "turn")

    def __init__(self) -> None:
        self.turn = False
        """Whether something was written in this turn already, so that what is next will be held back."""
        self._held: list[Corked] = []

    def holds(self, corked: Corked) -> bool:
        """Whether `corked` shall hold back what it has to write. Then its `turn_ended` is called at the end of this turn."""
        if self.turn:
            self._held.append(corked)
            return True
        self.turn = True
        asyncio.get_running_loop().call_soon(self._end)
        return False

    def _end(self) -> None:
        self.turn = False
        held, self._held = self._held, []
        for corked in held:
            corked.turn_ended()
