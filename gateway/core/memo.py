"""What pure functions gave for the arguments that came last."""

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memo(dict[K, V]):
    """Results by argument. Reading is that of a dict; `keep` holds at most `most` of them and forgets all when it is
    full, so that what clients invent cannot fill the memory, and looking up writes nothing.

    Any thread may use it: two that keep at the same time may exceed `most` by one each.
    """

    __slots__ = ("_most",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def keep(self, key: K, value: V) -> V:
        """Remember a result, and give it back."""
        if len(self) >= self._most:
            self.clear()
        self[key] = value
        return value
