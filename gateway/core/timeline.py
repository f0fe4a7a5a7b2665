"""Whether a clock that is read from afar was set, and by which of its times deadlines may be judged. Pure.

Our own clock (CLOCK_BOOTTIME) is never set. Each reading of the other one was taken between two of ours, which bounds how far it is ahead.
What one reading allows and the next one forbids, beyond drift, is a *step*.

After a step forward a deadline that was written before it looks past too early: a lease of somebody who still runs, the expiry of an answer
that is still asked for. So what is judged by the clock is judged by the time that it would show had it not stepped, until

* for lapses and doubts: it has been steady for so long that every such deadline from before the step has truly passed;
* for expiry: likewise if it is off by `SLIGHT` at most, else by a restart only: retention may be days;
* for both: it is back.

A step backward makes deadlines come late, which is safe, and is followed at once, so that a step forward after it is one. It makes ages
look small, however, which is not: `Timeline.behind` is what must be added to them.
"""

from dataclasses import dataclass
from typing import NamedTuple

DRIFT = 0.001
"""Seconds by which two sound clocks may part in a second: twice what NTP slews by."""

TOLERANCE = 0.5
"""Seconds beyond round trips and drift that are no step yet."""

SLIGHT = 60.0
"""Seconds of a step that expiry follows by itself: nobody's retries depend on so little."""

HOST_TOLERANCE = 300.0
"""Seconds by which the other clock may differ from our host's, for a process that has not seen it before."""

JUDGEMENTS = ("lapse", "expiry", "age")
"""What is judged by a clock that is not trusted as it stands."""


class Span(NamedTuple):
    """By how much the other clock is ahead of ours, at least and at most, when ours showed `at`."""

    low: float
    high: float
    at: float

    def now(self, ours: float) -> "Span":
        """What is left to say of it later."""
        drift = DRIFT * max(ours - self.at, 0.0)
        return Span(self.low - drift, self.high + drift, ours)


class Limits(NamedTuple):
    """The latest instants, seconds since the epoch, that the other clock is believed in: no lapse, and no expiry, is judged beyond."""

    lapse: float
    expiry: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """What is known of the other clock: what it shows (`seen`, without a step since `steady_since`), what lapses and expiry are judged by,
    and the highest that it ever was.
    """

    seen: Span
    lapse: Span
    expiry: Span
    highest: Span
    steady_since: float

    def limits(self, ours: float) -> Limits:
        """Not before what either judgement's clock shows now."""
        return Limits(self.lapse.now(ours).high + ours + TOLERANCE, self.expiry.now(ours).high + ours + TOLERANCE)

    def behind(self) -> float:
        """Seconds by which what it shows may be earlier than what it once wrote down."""
        return self.highest.high - self.seen.low if self._fell() else 0.0

    def suspended(self) -> frozenset[str]:
        """Those of `JUDGEMENTS` that do not go by what the clock shows."""
        ahead = {"lapse": self.lapse, "expiry": self.expiry}
        found = {name for name, span in ahead.items() if self.seen.low - span.high > TOLERANCE}
        return frozenset(found | ({"age"} if self._fell() else set()))

    def _fell(self) -> bool:
        return self.highest.low - self.seen.high > TOLERANCE


def reading_of(shown: float, sent: float, received: float) -> Span:
    """What one reading says: the other clock showed `shown` at some time from `sent` to `received` on ours."""
    return Span(shown - received, shown - sent, received)


def begin(reading: Span, host: float) -> tuple[Timeline, float]:
    """The first reading, and by how many seconds it is off our host's wall clock, which is `host` ahead of ours; 0: it is not."""
    ahead, late = reading.low - host, host - reading.high
    wall = Span(host, host, reading.at)
    if ahead > HOST_TOLERANCE:
        return Timeline(reading, wall, wall, reading, reading.at), ahead
    if late > HOST_TOLERANCE:
        return Timeline(reading, reading, reading, wall, reading.at), -late
    return Timeline(reading, reading, reading, reading, reading.at), 0.0


def follow(line: Timeline, reading: Span, sent: float, horizon: float) -> tuple[Timeline, float]:
    """The next reading, of a statement that was sent when our clock showed `sent`; and by how many seconds the clock has stepped, 0: not.

    `horizon`: seconds after which every lease and doubt that was written before a step has truly ended.
    """
    if sent < line.steady_since:  # it may be from before the step that others have told of
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
