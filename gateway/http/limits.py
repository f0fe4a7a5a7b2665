"""How much of clients is put up with: times, sizes, and how many of them at once."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

MAPPED = "::ffff:"
"""The prefix of an IPv4 address in IPv6's clothes, as a socket that listens to both families shows it (RFC 4291 section 2.5.5.2)."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Seconds, counts and bytes. `max_header_size` is of the whole head; a limit on connections of 0 is none."""

    header_timeout: float = 15.0
    idle_timeout: float = 75.0
    max_connections: int = 10_000
    max_connections_per_address: int = 0
    max_header_size: int = 64 * 1024
    max_headers: int = 256


def peer_address(peername: object) -> str | None:
    """The peer's address out of a socket's name; an IPv4-mapped one as IPv4. None for unix sockets, whose peers have none."""
    if not isinstance(peername, tuple) or not peername:
        return None
    address = str(peername[0])
    return address.removeprefix(MAPPED) if "." in address else address


class Crowd:
    """How many client connections are open, in all and by address. `outside` are those that were turned away and are not closed yet."""

    def __init__(self, limits: ClientLimits, trusts: Callable[[str], bool]) -> None:
        self._limits = limits
        self._trusts = trusts
        self._by_address: Counter[str] = Counter()
        self.size = 0
        self.outside = 0

    def reconfigure(self, limits: ClientLimits, trusts: Callable[[str], bool]) -> None:
        """Use other limits for those who come from now on; who is in stays."""
        self._limits = limits
        self._trusts = trusts

    def enter(self, address: str | None) -> bool:
        """Count one more from `address`, unless that is one too many. Only the total binds trusted addresses: many are behind them."""
        if not self._admits(address):
            self.outside += 1
            return False
        self.size += 1
        if address is not None:
            self._by_address[address] += 1
        return True

    def leave(self, address: str | None, *, entered: bool) -> None:
        """One is gone; `entered` is what `enter` said."""
        if not entered:
            self.outside -= 1
            return
        self.size -= 1
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def _admits(self, address: str | None) -> bool:
        limits = self._limits
        if limits.max_connections and self.size >= limits.max_connections:
            return False
        most = limits.max_connections_per_address
        return not most or address is None or self._by_address[address] < most or self._trusts(address)
