"""How often a login may fail: from one address, and in all. Bounded memory, whoever tries."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

PER_ADDRESS, PER_ADDRESS_SECONDS = 10, 6.0
"""Failures at once from one address, and after how many seconds one more."""
IN_ALL, IN_ALL_SECONDS = 100, 0.6
"""The same for all addresses together."""
ADDRESSES = 10_000
"""How many addresses are remembered; the one that failed longest ago is forgotten first."""


@dataclass(slots=True)
class _Bucket:
    """GCRA: the instant at which all that it counted is forgotten."""

    size: int
    seconds: float
    empty_at: float = 0.0

    def wait(self, now: float) -> float:
        """Seconds until one more would be let through; 0.0: now."""
        return max(0.0, self.empty_at - now - (self.size - 1) * self.seconds)

    def add(self, now: float) -> None:
        self.empty_at = max(self.empty_at, now) + self.seconds


class LoginThrottle:
    """Counts failures. `clock` never goes back. `together` False: those of one address are nothing to others, where what is tried cannot be
    guessed, so that strangers would only lock out who has it.
    """

    def __init__(self, clock: Callable[[], float], *, together: bool = True) -> None:
        self._clock = clock
        self._all = _Bucket(IN_ALL, IN_ALL_SECONDS) if together else None
        self._by_address: OrderedDict[str, _Bucket] = OrderedDict()

    def wait(self, address: str) -> float:
        """For how many seconds no login from this address is judged; 0.0: it is judged now."""
        now, own = self._clock(), self._by_address.get(address)
        return max(0.0 if self._all is None else self._all.wait(now), 0.0 if own is None else own.wait(now))

    def failed(self, address: str) -> None:
        """Count a login that failed."""
        now = self._clock()
        if self._all is not None:
            self._all.add(now)
        own = self._by_address.pop(address, None) or _Bucket(PER_ADDRESS, PER_ADDRESS_SECONDS)
        own.add(now)
        self._by_address[address] = own
        while len(self._by_address) > ADDRESSES:
            self._by_address.popitem(last=False)

    def __len__(self) -> int:
        return len(self._by_address)
