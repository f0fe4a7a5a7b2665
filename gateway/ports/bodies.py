"""Bodies in memory and on disk, and how much of them a process may hold."""

from collections.abc import AsyncIterator
from typing import Protocol


class Body(Protocol):
    """A body too large for one piece of memory. `Memory` holds it, in pieces or in a temporary file.

    A body has holders, and lasts until each of them has closed it. The function that made or got the body is the first.
    """

    @property
    def length(self) -> int:
        """Bytes so far; of a body that has ended, all."""
        ...

    @property
    def sha256(self) -> bytes:
        """The digest of the bytes so far."""
        ...

    def pieces(self) -> AsyncIterator[bytes]:
        """The body from its start; the reader follows the writer to the end. One reader at a time. Raises `RelayCut` if
        the writer cut the body.
        """
        ...

    async def load(self) -> bytes:
        """The bytes so far in one piece. Raises OSError if the disk fails."""
        ...

    def hold(self) -> None:
        """Add a holder."""
        ...

    def close(self) -> None:
        """Remove a holder. The last close frees memory and disk."""
        ...


class Spool(Body, Protocol):
    """A body that its one writer is still writing. The writer never waits for a reader.

    Writing never fails: on a full disk the body goes on in memory. A reader that falls too far behind gets `RelayCut`.
    """

    async def write(self, piece: bytes) -> None:
        """Append a piece. It waits at most for the disk."""
        ...

    def end(self, last: bytes = b"") -> None:
        """Append the last piece without waiting. The body is complete, and its readers may end normally."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the writer called `end`. The reader may still be behind."""
        ...

    def cut(self) -> None:
        """End the body early: its readers get `RelayCut`."""
        ...

    def let_go(self) -> None:
        """Drop what the reader has read, now and from here on. `load` has no meaning any more."""
        ...


class Memory(Protocol):
    """How many bytes of bodies the process may hold."""

    @property
    def full(self) -> bool:
        """Whether the process must refuse new work."""
        ...

    def take(self, size: int) -> None:
        """Count bytes that the caller holds already. Never refuses."""
        ...

    def give(self, size: int) -> None:
        """Count off bytes that the caller has freed."""
        ...

    def spool(self) -> Spool:
        """A new body to write."""
        ...
