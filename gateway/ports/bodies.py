"""Bodies in memory and on disk, and how much of them a process may hold."""

from collections.abc import AsyncIterator
from typing import Protocol


class Body(Protocol):
    """A body too large for one piece of memory: held by `Memory`, in pieces or in a temporary file.

    It has several holders, and lasts until each has closed it; the one who made or got it is the first.
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
        """The body from its start, following the writer to the end. One reader at a time. Raises `RelayCut` if it was cut."""
        ...

    async def load(self) -> bytes:
        """The bytes so far in one piece. Raises OSError if the disk fails."""
        ...

    def hold(self) -> None:
        """One more holder."""
        ...

    def close(self) -> None:
        """One holder less; the last one frees memory and disk."""
        ...


class Spool(Body, Protocol):
    """A body that is being written. One writer, which never waits for a reader.

    A full disk makes it go on in memory, and a reader that falls too far behind is cut; writing never fails.
    """

    async def write(self, piece: bytes) -> None:
        """Append; waits for the disk at most."""
        ...

    def end(self, last: bytes = b"") -> None:
        """Append the last piece, without waiting: the body is complete and may end normally."""
        ...

    @property
    def ended(self) -> bool:
        """Whether `end` was called. What is held then may still be on its way to the reader."""
        ...

    def cut(self) -> None:
        """The body must not end normally."""
        ...

    def let_go(self) -> None:
        """What has been read need not be kept any more; `load` has no meaning from here on."""
        ...


class Memory(Protocol):
    """What one process may hold of bodies, in bytes."""

    @property
    def full(self) -> bool:
        """Whether no new work may be begun."""
        ...

    def take(self, size: int) -> None:
        """Count memory that is held; never refuses, since what is counted is there already."""
        ...

    def give(self, size: int) -> None:
        """Count it off again."""
        ...

    def spool(self) -> Spool:
        """A new body to write."""
        ...
