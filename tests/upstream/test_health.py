import math

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.upstream import Health
from gateway.upstream.health import TRIAL_LIMIT


def opened(failures: int = 2, cooldown: float = 5.0) -> Health:
    """Opened at 0."""
    health = Health(failures, cooldown)
    for _ in range(failures):
        health.failed(0.0)
    return health


def test_failures_in_a_row_open_it() -> None:
    """Not one less, and a success in between begins the row anew."""
    health = Health(3, 5.0)
    health.failed(0.0)
    health.failed(0.0)
    health.succeeded()
    health.failed(0.0)
    health.failed(0.0)
    assert health.admits(0.0)
    assert not health.open
    health.failed(0.0)
    assert not health.admits(0.0)
    assert health.open


def test_an_open_one_admits_nothing_before_the_cooldown_is_over() -> None:
    """And says how long that is."""
    health = opened()
    assert not health.admits(4.999)
    assert (health.reopens_in(1.5), health.reopens_in(9.0)) == (3.5, 0.0)
    assert health.admits(5.0)


def test_after_the_cooldown_one_trial_at_a_time() -> None:
    """The others wait for its end, however long that takes, up to a limit."""
    health = opened()
    assert health.admits(6.0)
    assert not health.admits(6.0)
    assert not health.admits(6.0 + TRIAL_LIMIT - 0.01)
    assert health.admits(6.0 + TRIAL_LIMIT)


def test_a_trial_that_succeeds_closes() -> None:
    """With all failures forgotten."""
    health = opened()
    assert health.admits(6.0)
    health.succeeded()
    assert not health.open
    health.failed(7.0)
    assert health.admits(7.0)
    assert health.admits(7.0)


def test_a_trial_that_fails_leaves_it_open_for_another_cooldown() -> None:
    """Counted from its failure."""
    health = opened()
    assert health.admits(6.0)
    health.failed(7.0)
    assert not health.admits(11.9)
    assert health.admits(12.0)


def test_an_abandoned_trial_makes_room_for_the_next() -> None:
    """At once."""
    health = opened()
    assert health.admits(6.0)
    health.abandoned()
    assert health.admits(6.0)
    assert not health.admits(6.0)


def test_calls_from_before_the_opening_decide_nothing() -> None:
    """Neither do they close it, nor prolong it, nor end the trial under way."""
    health = opened()
    health.succeeded(trial=False)
    health.failed(4.0, trial=False)
    assert not health.admits(4.9)
    assert health.admits(5.0)
    health.failed(5.0, trial=False)
    health.succeeded(trial=False)
    assert health.open
    assert not health.admits(40.0)
    health.succeeded()
    assert not health.open


def test_only_failures_to_reach_it_make_it_away() -> None:
    """One call that reached it begins that row anew, also the trial; what began before the opening has no say."""
    health = Health(2, 5.0)
    for reached in (False, True, False):
        health.failed(0.0, reached=reached)
    assert (health.open, health.away) == (True, False)
    health.failed(1.0, trial=False)
    assert (health.away, health.reopens_in(1.0)) == (True, 5.0)
    health.failed(1.0, trial=False, reached=True)
    assert health.away
    assert health.admits(6.0)
    health.failed(6.0, reached=True)
    assert (health.open, health.away) == (True, False)
    health.succeeded()
    assert not health.open


def test_zero_failures_switch_it_off() -> None:
    """It admits whatever happens."""
    health = Health(0, 5.0)
    for _ in range(100):
        health.failed(0.0)
        assert health.admits(0.0)
    assert not health.open


def test_a_success_that_turns_out_a_failure_is_taken_back() -> None:
    """Answers whose bodies always break off open it as answers that never come do..."""
    health = Health(3, 5.0)
    for _ in range(3):
        assert health.admits(0.0)
        health.failed(0.0, after=health.succeeded())
    assert health.open


def test_a_success_after_which_others_came_stands() -> None:
    """... but a body that breaks off late does not undo what has been proved meanwhile."""
    health = opened(3)
    assert health.admits(6.0)
    success = health.succeeded()
    health.succeeded()
    health.failed(7.0, after=success)
    assert not health.open


def test_a_trial_whose_body_fails_opens_it_again() -> None:
    """It proved too little."""
    health = opened(3)
    assert health.admits(6.0)
    success = health.succeeded()
    assert not health.open
    health.failed(7.0, after=success)
    assert health.open
    assert health.reopens_in(7.0) == 5.0


class Calls(RuleBasedStateMachine):
    """Calls that begin and end in any order, beside a plain model of what the words promise."""

    FAILURES, COOLDOWN = 3, 5.0

    def __init__(self) -> None:
        super().__init__()
        self.health = Health(self.FAILURES, self.COOLDOWN)
        self.now = 0.0
        self.ordinary = 0  # calls under way that were admitted while closed
        self.trials: list[float] = []
        self.row = 0
        self.opened: float | None = None

    @rule(seconds=st.floats(0.0, 8.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def call(self) -> None:
        admitted = self.health.admits(self.now)
        if self.opened is None:
            assert admitted
            self.ordinary += 1
        elif self.now < self.opened + self.COOLDOWN:
            assert not admitted
        elif admitted:
            assert not self.trials or self.now - self.trials[0] >= TRIAL_LIMIT
            self.trials = [self.now]
        else:
            assert self.trials

    @precondition(lambda self: self.ordinary)
    @rule(good=st.booleans())
    def end(self, good: bool) -> None:
        self.ordinary -= 1
        if good:
            self.health.succeeded(trial=False)
        else:
            self.health.failed(self.now, trial=False)
        if self.opened is None:
            self.row = 0 if good else self.row + 1
            if self.row == self.FAILURES:
                self.opened = self.now

    @precondition(lambda self: self.trials)
    @rule(outcome=st.sampled_from(["good", "bad", "abandoned"]))
    def end_trial(self, outcome: str) -> None:
        self.trials.clear()
        match outcome:
            case "good":
                self.health.succeeded()
                self.opened, self.row = None, 0
            case "bad":
                self.health.failed(self.now)
                self.opened = self.now
            case _:
                self.health.abandoned()

    @precondition(lambda self: self.trials)
    @rule()
    def forget_trial(self) -> None:
        """It hangs for so long that it no longer counts, and is never heard of again."""
        self.now += TRIAL_LIMIT + 1
        self.trials.clear()

    @invariant()
    def agrees(self) -> None:
        assert self.health.open == (self.opened is not None)
        left = 0.0 if self.opened is None else max(0.0, self.opened + self.COOLDOWN - self.now)
        assert math.isclose(self.health.reopens_in(self.now), left, abs_tol=1e-9)


TestCalls = Calls.TestCase


@given(st.lists(st.sampled_from(["admits", "succeeded", "failed", "stale", "abandoned", "wait"]), max_size=60), st.integers(1, 4))
def test_whatever_happened_it_admits_again_in_the_end(steps: list[str], failures: int) -> None:
    """No sequence of events, orderly or not, closes the way to a target for ever."""
    health, now = Health(failures, 5.0), 0.0
    for step in steps:
        match step:
            case "admits":
                health.admits(now)
            case "succeeded":
                health.succeeded()
            case "failed":
                health.failed(now)
            case "stale":
                health.failed(now, trial=False)
            case "abandoned":
                health.abandoned()
            case _:
                now += 2.0
    assert health.admits(now + max(TRIAL_LIMIT, 5.0))
