"""What an event does to the record that it is about."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.model import Status
from gateway.core.reconcile.policy import Pace, Verdict
from gateway.core.reconcile.steps import Again, Attach, Conclude, Free, Ignore, WebhookStep, next_step, webhook_step

PACE = Pace(looks=2, apart=30.0)


@dataclass(frozen=True)
class Subject:
    """The facts of a record that are asked for."""

    status: Status
    lease_live: bool = False
    expired: bool = False
    dead_lettered: bool = False
    agreed: int = 0
    agreed_ago: float | None = None
    over: bool = False


UNKNOWN = Subject(Status.UNKNOWN)
BURIED = Subject(Status.UNKNOWN, dead_lettered=True, over=True)


@pytest.mark.parametrize(
    ("subject", "want"),
    [
        (UNKNOWN, Conclude()),
        (BURIED, Conclude()),
        (Subject(Status.IN_PROGRESS, lease_live=True), Attach()),
        (Subject(Status.IN_PROGRESS), Conclude()),
        (Subject(Status.FAILED_RETRYABLE), Conclude()),
        (Subject(Status.FAILED_RETRYABLE, expired=True), Ignore("unmatched")),
        (Subject(Status.COMPLETED), Ignore("already")),
        (Subject(Status.COMPLETED, expired=True), Ignore("already")),
    ],
)
def test_executed(subject: Subject, want: WebhookStep) -> None:
    """Evidence of execution settles what has not ended, waits for what still runs, and tells nothing new of what completed."""
    assert webhook_step(Verdict.EXECUTED, subject, PACE) == want


@pytest.mark.parametrize(
    ("subject", "want"),
    [
        (UNKNOWN, Ignore("too_early")),
        (Subject(Status.UNKNOWN, over=True), Again(30.0, agreed=True)),
        (Subject(Status.UNKNOWN, over=True, agreed=1, agreed_ago=30.0), Free()),
        (Subject(Status.UNKNOWN, over=True, agreed=1, agreed_ago=29.0), Ignore("too_early")),
        (Subject(Status.UNKNOWN, over=False, agreed=5, agreed_ago=99.0), Ignore("too_early")),
        (BURIED, Ignore("too_early")),
        (Subject(Status.UNKNOWN, dead_lettered=True, over=True, agreed=1, agreed_ago=99.0), Free()),
        (Subject(Status.IN_PROGRESS, lease_live=True), Ignore("too_early")),
        (Subject(Status.IN_PROGRESS, over=True, agreed=9, agreed_ago=99.0), Ignore("too_early")),
        (Subject(Status.FAILED_RETRYABLE), Ignore("already")),
        (Subject(Status.COMPLETED), Ignore("already")),
    ],
)
def test_not_executed(subject: Subject, want: WebhookStep) -> None:
    """It counts as a look that agrees, once the upstream has surely finished; before, or too soon after the last, it changes nothing."""
    assert webhook_step(Verdict.NOT_EXECUTED, subject, PACE) == want


def test_one_event_is_enough_where_one_look_is() -> None:
    """With `looks: 1` an event frees the key, also of a dead letter."""
    once = Pace(looks=1)
    assert webhook_step(Verdict.NOT_EXECUTED, Subject(Status.UNKNOWN, over=True), once) == Free()
    assert webhook_step(Verdict.NOT_EXECUTED, BURIED, once) == Free()


_subjects = st.builds(
    Subject,
    st.sampled_from(list(Status)),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(0, 4),
    st.none() | st.floats(0, 100),
    st.booleans(),
)
_paces = st.builds(Pace, looks=st.integers(1, 4), apart=st.sampled_from([0.0, 30.0]))


@given(st.sampled_from(list(Verdict)), _subjects, _paces)
def test_events_are_no_shortcut(verdict: Verdict, subject: Subject, pace: Pace) -> None:
    """A completed record is never touched, a live attempt never settled, and a key freed only where a look would free it."""
    taken = webhook_step(verdict, subject, pace)
    if subject.status is Status.COMPLETED or verdict is Verdict.NOT_YET_KNOWN:
        assert isinstance(taken, Ignore)
    if subject.status is Status.IN_PROGRESS and subject.lease_live:
        assert isinstance(taken, Attach | Ignore)
    assert (taken in {Conclude(), Attach()}) <= (verdict is Verdict.EXECUTED)
    if isinstance(taken, Free | Again):
        assert verdict is Verdict.NOT_EXECUTED
        assert subject.status is Status.UNKNOWN
        assert taken == next_step(
            verdict,
            look=1,
            agreed=subject.agreed,
            agreed_ago=subject.agreed_ago,
            over=subject.over,
            age=0.0,
            pace=Pace(pace.looks, pace.apart),
            jitter=0.0,
        )
    assert not (isinstance(taken, Again) and subject.dead_lettered)
