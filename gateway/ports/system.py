"""Clock and randomness."""

from typing import Protocol


class Clock(Protocol):
    """The engine's clock. `boottime` counts suspend (CLOCK_BOOTTIME), so that a thawed process knows how long
    it slept.
    """

    def boottime(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...

    def http_date(self) -> bytes:
        """The wall clock as an IMF-fixdate (RFC 9110 section 5.6.7), for answers only."""
        ...


class Randomness(Protocol):
    """Owner tokens and jitter: in production from the operating system, in the simulation from a seed."""

    def token(self) -> bytes:
        """16 bytes that no other call ever returned."""
        ...

    def jitter(self) -> float:
        """Uniform in [0, 1)."""
        ...
