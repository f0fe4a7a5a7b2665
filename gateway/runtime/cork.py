"""What is written in one turn of the event loop to several peers leaves together, at its end.

A write wakes its peer, and the kernel's work for it drives the code that makes the next one out of the processor's caches: with many
clients that is a fifth of all that a replay costs. The first of a turn is written at once: a request that is alone waits for nothing.
"""

import asyncio
from typing import Protocol

SMALL = 16 * 1024
"""Bytes that one holds back at most."""

ROOM = 1024 * 1024
"""Bytes that are held back for all at most: what is written beyond them is written at once."""


class Corked(Protocol):
    """What holds something back."""

    def turn_ended(self) -> None:
        """Write what was held back, if it is still there. What it raises goes to the event loop; the others are written all the same."""
        ...


class Cork:
    """One for the connections of a listener, or to an upstream; all of one event loop."""

    __slots__ = ("_held", "_size", "turn")

    def __init__(self) -> None:
        self.turn = False
        """Whether something was written in this turn already, so that what is next is held back."""
        self._held: list[Corked] = []
        self._size = 0

    def begin(self) -> None:
        """Something is written now."""
        if not self.turn:
            self.turn = True
            asyncio.get_running_loop().call_soon(self._end)

    def takes(self, size: int) -> bool:
        """Whether there is room for so many bytes to be held back."""
        return size <= SMALL and self._size + size <= ROOM

    def hold(self, corked: Corked, size: int) -> None:
        """`corked` holds back so many bytes: its `turn_ended` is called at the end of the turn."""
        self._held.append(corked)
        self._size += size

    def count(self, size: int) -> None:
        """One that holds something back holds so many bytes more."""
        self._size += size

    def _end(self) -> None:
        held, self._held = self._held, []
        self.turn, self._size, begun = False, 0, 0
        try:
            for corked in held:
                begun += 1
                corked.turn_ended()
        finally:
            if begun < len(held):  # one has raised
                self._held[:0] = held[begun:]
                self.begin()
