"""An upper estimate of the database's clock, kept from the readings that its answers carry."""

from collections.abc import Callable


class DatabaseClock:
    """`boottime` is CLOCK_BOOTTIME in seconds: it counts suspend and is never set."""

    def __init__(self, boottime: Callable[[], float]) -> None:
        self.boottime = boottime
        self._reading: int | None = None
        self._sent = 0.0

    def read(self, now_us: int, sent: float) -> None:
        """Note the reading of a statement that was sent after the `boottime` reading `sent`. The newest counts: clocks may be set."""
        self._reading = now_us
        self._sent = sent

    def now_us(self) -> int | None:
        """Not before the database's clock, in microseconds since the epoch: its reading was taken no earlier than `sent`."""
        if self._reading is None:
            return None
        return self._reading + int((self.boottime() - self._sent) * 1_000_000) + 1
