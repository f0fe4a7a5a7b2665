"""A clock that is read from afar: sound ones are believed, and no deadline is judged before its time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.timeline import (
    DRIFT,
    HOST_TOLERANCE,
    SLIGHT,
    TOLERANCE,
    Span,
    Timeline,
    begin,
    follow,
    follow_plain,
    reading_of,
    tells_nothing,
)

HORIZON = 300.0
START = 1_700_000_000.0
trips = st.floats(0.0, 3.0)
pauses = st.floats(0.0, 400.0)
waits = st.lists(st.tuples(pauses, trips, trips), min_size=1, max_size=30)


class Journey:
    """Readings of a clock that runs at `rate`, and what came of them."""

    def __init__(self, rate: float = 1.0, host: float | None = None) -> None:
        self.ours = 1000.0
        self.rate = rate
        self.ahead = START
        self.slow = 0.0
        self.steps: list[float] = []
        self.plain = 0
        self.line: Timeline | None = None
        self.off = 0.0
        self.host = START if host is None else host

    def shows(self) -> float:
        return self.ours * self.rate + self.ahead

    def read(self, there: float = 0.001, back: float = 0.001) -> None:
        sent = self.ours
        self.ours += there
        shown = self.shows()
        self.ours += back
        reading = reading_of(shown, sent, self.ours)
        if self.line is None:
            self.line, self.off = begin(reading, self.host)
        else:
            plain = follow_plain(self.line, reading, sent)
            self.line, step = follow(self.line, reading, sent, HORIZON)
            assert plain is None or (plain, 0.0) == (self.line, step)
            self.plain += plain is not None
            self.steps += [step] if step else []

    def passes(self, seconds: float) -> None:
        self.ours += seconds

    @property
    def known(self) -> Timeline:
        assert self.line is not None
        return self.line


@given(waits, st.floats(1 - DRIFT * 0.9, 1 + DRIFT * 0.9))
def test_a_sound_clock_is_believed(journeys: list[tuple[float, float, float]], rate: float) -> None:
    """However slow the round trips, and as fast as it may be slewed: no step, no suspension, limits behind nothing it shows."""
    clock = Journey(rate)
    for pause, there, back in journeys:
        clock.passes(pause)
        clock.read(there, back)
        limits = clock.known.limits(clock.ours)
        assert limits == (limits.lapse, limits.lapse)
        assert limits.lapse >= clock.shows()
        assert clock.known.suspended() == frozenset()
        assert clock.known.behind() == 0.0
    assert clock.steps == []
    assert clock.plain == len(journeys) - 1, "the short way is the common one"


@given(waits, waits, st.floats(10.0, 1e6))
def test_nothing_is_judged_ahead_of_its_time_after_a_step(
    before: list[tuple[float, float, float]], after: list[tuple[float, float, float]], forward: float
) -> None:
    """Limits follow the time that it would show, but for round trips and drift, until it has been steady for long enough."""
    clock = Journey()
    clock.read()
    for pause, there, back in before:
        clock.passes(pause)
        clock.read(there, back)
    clock.ahead += forward
    stepped = clock.ours
    for pause, there, back in after:
        limits = clock.known.limits(clock.ours)
        slack = 3.0 + TOLERANCE + DRIFT * (clock.ours - stepped + 400.0)
        truly = clock.shows() - forward
        if clock.ours - stepped < HORIZON:
            assert truly <= limits.lapse <= truly + slack
        if forward > SLIGHT + 10.0:
            assert truly <= limits.expiry <= truly + slack
        clock.passes(pause)
        clock.read(there, back)


@given(st.floats(10.0, 1e6), st.floats(10.0, 1e6))
def test_back_and_forth_is_a_step_each_time(back: float, forward: float) -> None:
    """What was written while it was back is not over when it comes forward again."""
    clock = Journey()
    clock.read()
    clock.ahead -= back
    clock.read()
    written = clock.shows()
    clock.passes(5.0)
    clock.ahead += forward
    clock.read()
    assert clock.steps == [pytest.approx(-back, abs=0.1), pytest.approx(forward, abs=0.1)]
    assert clock.known.limits(clock.ours).lapse <= written + 5.0 + 1.0
    assert "lapse" in clock.known.suspended()


def test_lapses_follow_after_the_horizon_and_expiry_where_the_step_was_slight() -> None:
    """Each in its time; one that comes back is believed at once."""
    for forward, suspended in ((SLIGHT - 1, frozenset[str]()), (SLIGHT + 1, frozenset({"expiry"}))):
        clock = Journey()
        clock.read()
        clock.ahead += forward
        clock.read()
        assert clock.known.suspended() == {"lapse", "expiry"}
        clock.passes(HORIZON - 1)
        clock.read()
        assert clock.known.suspended() == {"lapse", "expiry"}
        clock.passes(2)
        clock.read()
        assert clock.known.suspended() == suspended


def test_an_answer_that_was_on_its_way_tells_of_no_second_step() -> None:
    """It shows the time of before; it was asked before the step was known."""
    clock = Journey()
    clock.read()
    sent, shown = clock.ours, clock.shows()
    clock.ahead += 600
    clock.read()
    late = reading_of(shown, sent, clock.ours)
    assert follow(clock.known, late, sent, HORIZON) == (clock.known, 0.0)


def test_the_first_reading_is_held_against_the_host() -> None:
    """Ahead of it: judged by the host's. Behind it: by its own, and ages are not believed."""
    near = Journey(host=START + HOST_TOLERANCE - 1)
    near.read()
    assert (near.off, near.known.suspended()) == (0.0, frozenset())
    ahead = Journey(host=START - 90_000)
    ahead.read()
    assert ahead.off == pytest.approx(90_000, abs=1)
    assert ahead.known.suspended() == {"lapse", "expiry"}
    assert ahead.known.limits(ahead.ours).expiry == pytest.approx(ahead.shows() - 90_000, abs=1)
    behind = Journey(host=START + 90_000)
    behind.read()
    assert behind.off == pytest.approx(-90_000, abs=1)
    assert behind.known.suspended() == {"age"}
    assert behind.known.behind() == pytest.approx(90_000, abs=1)


@given(
    st.lists(st.tuples(st.floats(0.0, 900.0), st.floats(0.0, 3.0), st.floats(-5.0, 5.0)), min_size=1, max_size=12),
    st.floats(-1e6, 1e6),
)
def test_a_reading_that_tells_nothing_changes_nothing(journeys: list[tuple[float, float, float]], ahead: float) -> None:
    """Left out or followed: every later judgement is the same."""
    line, _ = begin(reading_of(1000.0 + ahead, 999.9, 1000.1), ahead)
    ours = 1000.1
    for pause, trip, off in journeys:
        sent, received = ours + pause, ours + pause + trip
        shown = sent + trip / 2 + ahead + off
        followed, step = follow(line, reading_of(shown, sent, received), sent, 300.0)
        if tells_nothing(line, shown, sent, received):
            assert step == 0.0
            assert followed.plain
            for later in (received, received + 100.0):
                assert followed.seen.now(later) == pytest.approx(line.seen.now(later), rel=0, abs=1e-6)
        line, ours = followed, received


@given(st.floats(-1e9, 1e9), st.floats(0, 1e3), st.floats(0, 1e6), st.floats(-10, 1e6))
def test_the_latest_is_the_upper_end_of_the_span_then(low: float, wide: float, at: float, later: float) -> None:
    """On the remote clock, without the span."""
    span = Span(low, low + wide, at)
    assert span.latest(at + later) == span.now(at + later).high + (at + later)
