"""What the head of a request takes of the memory that a process may hold."""

from gateway.ports import Memory

EAGER = 4096
"""A head up to this size goes to the parser as it comes, and is not counted: every connection may have that much."""

PARSED = 3
"""How many bytes a parsed head takes for each of its own: once as bytes, once as text, and the objects around them."""


class UnfinishedHead:
    """The bytes of one head behind the first `EAGER` ones, until it is whole: a parser would hold three times as many.

    They are `counted`, in bytes, and so is what becomes of them, until `close`.
    """

    __slots__ = ("_bytes", "_memory", "counted")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._bytes = bytearray()
        self.counted = 0

    def keep(self, piece: bytes) -> bool:
        """Keep it for later. False: the process holds as much as it may."""
        if self._memory.full:
            return False
        self._bytes += piece
        self._count(self.counted + len(piece))
        return True

    def before(self, piece: bytes) -> bytes:
        """All that was kept, with `piece` behind it. It is not kept any longer, but still counted."""
        if not self._bytes:
            return piece
        whole, self._bytes = bytes(self._bytes) + piece, bytearray()
        return whole

    def parsed(self, size: int) -> None:
        """The head is whole, of this size, beyond `EAGER`, and stays as a parsed one until `close`."""
        self._count(PARSED * size)

    def close(self) -> None:
        """Nothing of it is held any more."""
        if self.counted:
            self._bytes = bytearray()
            self._count(0)

    def _count(self, size: int) -> None:
        self._memory.take(size - self.counted)
        self.counted = size
