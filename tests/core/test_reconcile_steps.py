"""What to do after a look."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.reconcile.policy import Pace, Verdict
from gateway.core.reconcile.steps import Again, Bury, Conclude, Free, NextStep, backoff, next_step

EXECUTED, NOT_EXECUTED, NOT_YET_KNOWN = Verdict.EXECUTED, Verdict.NOT_EXECUTED, Verdict.NOT_YET_KNOWN
PACE = Pace(looks=2, apart=30.0, first=5.0, longest=600.0, attempts=10, max_age=3600.0)


def step(
    verdict: Verdict,
    *,
    look: int = 1,
    agreed: int = 0,
    agreed_ago: float | None = None,
    over: bool = True,
    age: float = 100.0,
    pace: Pace = PACE,
    jitter: float = 1.0,
    asks: bool = True,
) -> NextStep:
    return next_step(verdict, look=look, agreed=agreed, agreed_ago=agreed_ago, over=over, age=age, pace=pace, jitter=jitter, asks=asks)


def test_executed_counts_at_any_time() -> None:
    """One look is enough, also before the upstream has surely finished, and past every cap."""
    assert step(EXECUTED, over=False) == Conclude()
    assert step(EXECUTED, look=99, age=1e9) == Conclude()


def test_not_executed_needs_agreeing_looks() -> None:
    """The first one counts and waits for the second, which concludes."""
    assert step(NOT_EXECUTED) == Again(30.0, agreed=True)
    assert step(NOT_EXECUTED, look=2, agreed=1, agreed_ago=30.0) == Free()
    three = Pace(looks=3, apart=7.0)
    assert step(NOT_EXECUTED, agreed=1, agreed_ago=8.0, pace=three) == Again(7.0, agreed=True)
    assert step(NOT_EXECUTED, agreed=2, agreed_ago=8.0, pace=three) == Free()
    assert step(NOT_EXECUTED, pace=Pace(looks=1)) == Free()


def test_not_executed_too_early() -> None:
    """A look that began while the upstream may still be at it proves nothing, however many agreed before."""
    assert step(NOT_EXECUTED, over=False) == Again(5.0, agreed=False)
    assert step(NOT_EXECUTED, over=False, look=3, agreed=5, agreed_ago=99.0) == Again(20.0, agreed=False)
    assert step(NOT_EXECUTED, over=False, pace=Pace(looks=1)) == Again(5.0, agreed=False)


def test_not_executed_too_soon() -> None:
    """An agreeing look less than `apart` after the last one keeps the count and waits for what is left."""
    assert step(NOT_EXECUTED, look=2, agreed=1, agreed_ago=12.0) == Again(18.0, agreed=None)
    assert step(NOT_EXECUTED, look=2, agreed=7, agreed_ago=29.0) == Again(1.0, agreed=None)
    assert step(NOT_EXECUTED, look=2, agreed=1, agreed_ago=-5.0) == Again(30.0, agreed=None)


def test_a_count_without_an_instant_is_none() -> None:
    """An agreement that nobody knows the time of does not count."""
    assert step(NOT_EXECUTED, agreed=9, agreed_ago=None) == Again(30.0, agreed=True)


def test_what_says_nothing_breaks_the_row() -> None:
    """After a look without a verdict the count starts anew."""
    assert step(NOT_YET_KNOWN, agreed=1, agreed_ago=60.0) == Again(5.0, agreed=False)


def test_attempts_are_capped() -> None:
    """The last look concludes or is the last."""
    assert step(NOT_YET_KNOWN, look=9) == Again(600.0, agreed=False)
    assert step(NOT_YET_KNOWN, look=10) == Bury("attempts")
    assert step(NOT_EXECUTED, look=10) == Bury("attempts")
    assert step(NOT_EXECUTED, look=10, agreed=1, agreed_ago=5.0) == Bury("attempts")
    assert step(NOT_EXECUTED, look=10, agreed=1, agreed_ago=31.0) == Free()


def test_age_is_capped() -> None:
    """A look is placed at the cap rather than not at all; past it nothing but a verdict counts. One that agrees may wait past it."""
    assert step(NOT_YET_KNOWN, look=9, age=3500.0) == Again(100.0, agreed=False)
    assert step(NOT_YET_KNOWN, look=9, age=3599.0) == Again(1.0, agreed=False)
    assert step(NOT_YET_KNOWN, age=3600.0) == Bury("max_age")
    assert step(NOT_EXECUTED, age=3600.0) == Bury("max_age")
    assert step(NOT_EXECUTED, age=3599.0) == Again(30.0, agreed=True)
    assert step(NOT_EXECUTED, age=3629.0, agreed=1, agreed_ago=30.0) == Free()


def test_manual_waits() -> None:
    """Nobody is asked, so nothing is counted: the record waits for a webhook until its age is over."""
    assert step(NOT_YET_KNOWN, asks=False) == Again(3500.0, agreed=None)
    assert step(NOT_YET_KNOWN, asks=False, look=99, agreed=1, agreed_ago=1.0) == Again(3500.0, agreed=None)
    assert step(NOT_YET_KNOWN, asks=False, age=3600.0) == Bury("max_age")


@pytest.mark.parametrize(("look", "whole"), [(0, 5.0), (1, 5.0), (2, 10.0), (3, 20.0), (7, 320.0), (8, 600.0), (10**9, 600.0)])
def test_backoff(look: int, whole: float) -> None:
    """Doubling from the first wait to the longest, and of that from the half to the whole."""
    assert backoff(look, PACE, 1.0) == whole
    assert backoff(look, PACE, 0.0) == whole / 2
    assert backoff(look, PACE, 0.5) == whole * 0.75


@dataclass
class Told:
    """One look of a walk, and whether its *not executed* could count."""

    at: float
    verdict: Verdict
    over: bool


@dataclass
class Walk:
    """A record as a store keeps it between looks, and what an outside observer saw of them."""

    pace: Pace
    agreed: int = 0
    agreed_at: float | None = None
    seen: list[Told] = field(default_factory=list)

    def look(self, now: float, verdict: Verdict, jitter: float, *, over: bool) -> NextStep:
        self.seen.append(Told(now, verdict, over))
        ago = None if self.agreed_at is None else now - self.agreed_at
        taken = next_step(
            verdict,
            look=len(self.seen),
            agreed=self.agreed,
            agreed_ago=ago,
            over=over,
            age=now,
            pace=self.pace,
            jitter=jitter,
        )
        if isinstance(taken, Again):
            if taken.agreed:
                self.agreed, self.agreed_at = self.agreed + 1, now
            elif taken.agreed is False:
                self.agreed, self.agreed_at = 0, None
        return taken

    def in_a_row(self) -> list[float]:
        """When the looks at the end that could count were, as far as they are apart: counted anew, from the story alone."""
        row: list[float] = []
        for told in reversed(self.seen):
            if told.verdict is not NOT_EXECUTED or not told.over:
                break
            row.insert(0, told.at)
        apart: list[float] = []
        for at in row:
            if not apart or at - apart[-1] >= self.pace.apart:
                apart.append(at)
        return apart


_paces = st.builds(
    Pace,
    looks=st.integers(1, 4),
    apart=st.sampled_from([0.0, 1.0, 8.0, 100.0]),
    first=st.sampled_from([0.25, 1.0, 16.0]),
    longest=st.sampled_from([16.0, 64.0]),
    attempts=st.integers(1, 12),
    max_age=st.sampled_from([1.0, 60.0, 500.0]),
)
_looks = st.lists(
    st.tuples(
        st.sampled_from([NOT_EXECUTED, NOT_EXECUTED, NOT_EXECUTED, NOT_YET_KNOWN, EXECUTED]),
        st.floats(0, 1),
        st.booleans(),
        st.sampled_from([0, 0, 3.5]),
    ),
    min_size=12,
    max_size=12,
)


@given(_paces, st.sampled_from([0.0, 5.0, 700.0]), st.integers(0, 40), _looks)
def test_walks(pace: Pace, start: float, over_from: int, looks: list[tuple[Verdict, float, bool, float]]) -> None:
    """Whatever looks say and however late they come: each walk ends within its attempts, a key is freed only after enough looks in a row
    that were apart and late enough, an executed one is never freed or buried, and no wait is longer than it should be.
    """
    walk, now = Walk(pace), start
    for verdict, jitter, flips, late in looks[: pace.attempts]:
        over = now >= over_from and not flips
        taken = walk.look(now, verdict, jitter, over=over)
        assert (taken == Conclude()) == (verdict is EXECUTED)
        match taken:
            case Free():
                assert len(walk.in_a_row()) >= pace.looks
                return
            case Bury(why):
                assert why == ("attempts" if len(walk.seen) >= pace.attempts else "max_age")
                assert why == "attempts" or now >= pace.max_age
                return
            case Conclude():
                return
            case Again(seconds, agreed):
                assert 0 <= seconds <= max(pace.longest, pace.apart)
                assert agreed is False or (verdict is NOT_EXECUTED and over)
                assert agreed is not False or now + seconds <= pace.max_age + 1e-6
                assert now <= pace.max_age
                now += seconds + late
    raise AssertionError("a walk that does not end")


@given(_paces, st.floats(0, 1000), st.floats(0, 1), st.integers(1, 12))
def test_a_lookup_that_is_sure_is_heard(pace: Pace, over_from: float, jitter: float, lying: int) -> None:
    """An upstream that surely did not execute frees the key within `looks` looks of the time that counts, if the caps leave room."""
    roomy = Pace(pace.looks, pace.apart, pace.first, pace.longest, attempts=10_000, max_age=1e9)
    walk, now = Walk(roomy), over_from
    for _ in range(lying):
        taken = walk.look(now, NOT_YET_KNOWN, jitter, over=True)
        assert isinstance(taken, Again)
        now += taken.seconds
    for number in range(roomy.looks):
        taken = walk.look(now, NOT_EXECUTED, jitter, over=True)
        assert (taken == Free()) == (number == roomy.looks - 1)
        now += taken.seconds + 0.001 if isinstance(taken, Again) else 0.0
