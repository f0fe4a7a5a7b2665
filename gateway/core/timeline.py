"""Finds out whether a remote clock was set, and by which time deadlines may be judged then. Pure.

Our own clock (CLOCK_BOOTTIME) is never set. Each reading of the remote clock falls between two readings of ours, which
bounds how far it is ahead. A *step* is what two readings cannot both allow, beyond drift.

After a step forward, a deadline from before the step seems to have passed too early: the lease of an attempt that still
runs, or the expiry of an answer that clients still ask for. So the gateway judges by the time that the clock would show
without the step, until

* for lapses and doubts: the clock has been steady for so long that every such deadline from before the step has truly
  passed;
* for expiry: likewise if the step is at most `SLIGHT`; after a larger one only a restart ends it, since retention may
  be days;
* for both: the clock is back.

A step backward makes deadlines come late, which is safe. The gateway follows it at once, so that a later step forward
counts as one. But ages then look too small, which is not safe: the caller adds `Timeline.behind` to them.
"""

from typing import NamedTuple

from gateway.core.value import value

DRIFT = 0.001
"""Seconds by which two sound clocks may diverge in a second: twice the rate at which NTP slews."""

TOLERANCE = 0.5
"""Seconds beyond round trips and drift that do not yet count as a step."""

SLIGHT = 60.0
"""Seconds of a step that expiry follows by itself: no client's retries depend on so little."""

HOST_TOLERANCE = 300.0
"""Seconds by which the remote clock may differ from our host's, for a process that reads it for the first time."""

JUDGEMENTS = ("lapse", "expiry", "age")
"""What the gateway judges by a clock that it does not trust as it stands."""


class Span(NamedTuple):
    """By how much the remote clock is ahead of ours, at least and at most, when ours showed `at`."""

    low: float
    high: float
    at: float

    def now(self, ours: float) -> "Span":
        """The same span later, wider by the drift."""
        drift = DRIFT * max(ours - self.at, 0.0)
        return Span(self.low - drift, self.high + drift, ours)

    def latest(self, ours: float) -> float:
        """The highest that the remote clock may show later: `now(ours).high + ours`, without the span."""
        return self.high + DRIFT * max(ours - self.at, 0.0) + ours


class Limits(NamedTuple):
    """The latest instants, seconds since the epoch, up to which the gateway believes the remote clock: it judges no
    lapse and no expiry beyond.
    """

    lapse: float
    expiry: float


@value
class Timeline:
    """What the process knows of the remote clock: what it shows (`seen`, without a step since `steady_since`), by what
    the gateway judges lapses and expiry, and the highest that it ever was.
    """

    seen: Span
    lapse: Span
    expiry: Span
    highest: Span
    steady_since: float

    @property
    def plain(self) -> bool:
        """Whether every judgement goes by the clock as it is seen: the common case."""
        return self.lapse is self.seen and self.expiry is self.seen and self.highest is self.seen

    def limits(self, ours: float) -> Limits:
        """The limits that travel with a statement: never before what the clock of either judgement shows now."""
        lapse = self.lapse.latest(ours) + TOLERANCE
        return Limits(lapse, lapse if self.expiry is self.lapse else self.expiry.latest(ours) + TOLERANCE)

    def behind(self) -> float:
        """Seconds by which the clock may show less than when it once wrote an instant."""
        return self.highest.high - self.seen.low if self._fell() else 0.0

    def suspended(self) -> frozenset[str]:
        """Those of `JUDGEMENTS` that do not go by the clock now."""
        ahead = {"lapse": self.lapse, "expiry": self.expiry}
        found = {name for name, span in ahead.items() if self.seen.low - span.high > TOLERANCE}
        return frozenset(found | ({"age"} if self._fell() else set()))

    def _fell(self) -> bool:
        return self.highest.low - self.seen.high > TOLERANCE


def reading_of(shown: float, sent: float, received: float) -> Span:
    """One reading: the remote clock showed `shown` at some time from `sent` to `received` on ours."""
    return Span(shown - received, shown - sent, received)


def begin(reading: Span, host: float) -> tuple[Timeline, float]:
    """The timeline after the first reading, and by how many seconds that is off our host's wall clock, which is `host`
    ahead of ours; 0: not off.
    """
    ahead, late = reading.low - host, host - reading.high
    wall = Span(host, host, reading.at)
    if ahead > HOST_TOLERANCE:
        return Timeline(reading, wall, wall, reading, reading.at), ahead
    if late > HOST_TOLERANCE:
        return Timeline(reading, reading, reading, wall, reading.at), -late
    return Timeline(reading, reading, reading, reading, reading.at), 0.0


def tells_nothing(line: Timeline, shown: float, sent: float, received: float) -> bool:
    """Whether `follow` would learn nothing from a reading: the remote clock showed `shown` at some time from `sent` to
    `received` on ours, and a plain line knows more closely by how much it is ahead.
    """
    seen = line.seen
    drift = DRIFT * max(received - seen.at, 0.0)
    wide = shown - received <= seen.low - drift and shown - sent >= seen.high + drift
    return wide and line.plain and sent >= line.steady_since


def follow_plain(line: Timeline, reading: Span, sent: float) -> Timeline | None:
    """What `follow` gives where the line is plain and the clock has not stepped; None: the caller asks `follow`."""
    if not line.plain or sent < line.steady_since:
        return None
    seen, step = _seen(line.seen.now(reading.at), reading)
    return None if step else Timeline(seen, seen, seen, seen, line.steady_since)


def follow(line: Timeline, reading: Span, sent: float, horizon: float) -> tuple[Timeline, float]:
    """The timeline after the next reading, of a statement sent when our clock showed `sent`, and by how many seconds
    the clock has stepped; 0: no step.

    `horizon`: seconds after which every lease and doubt that was written before a step has truly ended.
    """
    if sent < line.steady_since:  # the reading may be from before the step that another reading has shown
        return line, 0.0
    seen, step = _seen(line.seen.now(reading.at), reading)
    steady_since = reading.at if step else line.steady_since
    steady = reading.at - steady_since >= horizon
    lapse, expiry = line.lapse.now(reading.at), line.expiry.now(reading.at)
    highest = line.highest.now(reading.at)
    followed = Timeline(
        seen,
        seen if steady or not _left_behind(lapse, seen) else lapse,
        seen if not _left_behind(expiry, seen) or (steady and seen.high - expiry.low <= SLIGHT) else expiry,
        highest if highest.low - seen.high > TOLERANCE else seen,
        steady_since,
    )
    return followed, step


def _seen(before: Span, reading: Span) -> tuple[Span, float]:
    low, high = max(before.low, reading.low), min(before.high, reading.high)
    if low <= high:
        return Span(low, high, reading.at), 0.0
    gap = reading.low - before.high if reading.low > before.high else reading.high - before.low
    return reading, gap if abs(gap) > TOLERANCE else 0.0


def _left_behind(trusted: Span, seen: Span) -> bool:
    return seen.low - trusted.high > TOLERANCE
