"""The database's clock, by the readings that its answers carry: what it shows, and up to when it is believed."""

from collections.abc import Callable

from gateway.core.timeline import JUDGEMENTS, Limits, Timeline, begin, follow, follow_plain, reading_of, tells_nothing
from gateway.ports import StoreObserver

BELIEVE_ANY = Limits(float("inf"), float("inf"))
"""Judge by the database's clock as it stands."""

BELIEVE_NOTHING = Limits(0.0, 0.0)

STEADY_LEAST = 300.0
"""Seconds without a step before lapses are judged by a clock that stepped, at least: other route maps may have longer leases than ours."""

_MICRO = 1_000_000


class DatabaseClock:
    """`boottime` is CLOCK_BOOTTIME in seconds: it counts suspend and is never set. `wallclock` is the host's.

    A process that has just begun has nothing to compare with but its host's clock; with `accept` it believes whatever it reads first.
    `horizon` gives the seconds after which every lease and doubt from before a step has truly ended.
    """

    def __init__(
        self,
        boottime: Callable[[], float],
        wallclock: Callable[[], float],
        observer: StoreObserver,
        *,
        horizon: Callable[[], float] = lambda: STEADY_LEAST,
        accept: bool = False,
    ) -> None:
        self.boottime = boottime
        self._wallclock = wallclock
        self._observer = observer
        self._horizon = horizon
        self._accept = accept
        self._line: Timeline | None = None
        self._suspended: frozenset[str] = frozenset()

    def read(self, now_us: int, sent: float) -> None:
        """Note the reading of a statement that was sent after the `boottime` reading `sent`."""
        received = self.boottime()
        if self._line is not None and not self._suspended and tells_nothing(self._line, now_us / _MICRO, sent, received):
            return
        reading = reading_of(now_us / _MICRO, sent, received)
        if self._line is not None and (plain := follow_plain(self._line, reading, sent)) is not None and not self._suspended:
            self._line = plain
            return
        if self._line is None:
            host = reading.low if self._accept else self._wallclock() - received
            self._line, off = begin(reading, host)
            if off:
                self._observer.clock_disagrees(off)
        else:
            self._line, step = follow(self._line, reading, sent, max(self._horizon(), STEADY_LEAST))
            if step:
                self._observer.clock_stepped(step)
        suspended = self._line.suspended()
        if suspended != self._suspended:
            self._suspended = suspended
            self._observer.clock_suspended({judgement: judgement in suspended for judgement in JUDGEMENTS})

    @property
    def known(self) -> bool:
        """Whether it was ever read."""
        return self._line is not None

    def limits(self) -> Limits:
        """The last argument of every statement that judges by the clock, as it is sent. One that was never read judges nothing."""
        return BELIEVE_NOTHING if self._line is None else self._line.limits(self.boottime())

    def behind(self) -> float:
        """Seconds to add to an age by the database's clock, so that it is not too small."""
        return 0.0 if self._line is None else self._line.behind()

    def now_us(self) -> int | None:
        """Not before the clock by which expiry is judged, in microseconds since the epoch. None: it was never read."""
        if self._line is None:
            return None
        return int(self._line.expiry.latest(self.boottime()) * _MICRO) + 2
