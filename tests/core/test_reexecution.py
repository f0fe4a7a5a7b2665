"""`on_unknown: reexecute`: when a doubtful outcome may run again, and what its outcome may mean then."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.decision import (
    Claim,
    Complete,
    Doubt,
    InDoubt,
    Lapse,
    NotSent,
    Outcome,
    Release,
    Responded,
    Unknown,
    decide,
    proves_execution,
    settle,
)
from gateway.core.hints import Hint, HintedOutcome
from gateway.core.model import Earlier, Status
from gateway.core.policy import OnUnknown, Policy
from tests.core.records import FINGERPRINT, OTHERS, record

RECONCILE = Policy("charges", ())
REEXECUTE = replace(RECONCILE, on_unknown=OnUnknown.REEXECUTE)


def test_a_doubt_that_is_over_is_claimed() -> None:
    """Once the upstream has surely finished, the next retry executes again."""
    found = record(Status.UNKNOWN, doubt_over=True)
    assert decide(found, FINGERPRINT, REEXECUTE) == Claim(found)


@pytest.mark.parametrize(
    ("facts", "policy"),
    [
        ({"doubt_over": False}, REEXECUTE),
        ({"doubt_over": True, "dead_lettered": True}, REEXECUTE),
        ({"doubt_over": True, "born_ago": REEXECUTE.reconcile.pace.max_age}, REEXECUTE),
        ({"doubt_over": True}, RECONCILE),
    ],
    ids=["not over", "a dead letter", "longer ago than the upstream remembers", "a route that reconciles"],
)
def test_other_doubts_are_not(facts: dict[str, Any], policy: Policy) -> None:
    """Not before, not once a person was called, and not where the route map does not say so."""
    assert isinstance(decide(record(Status.UNKNOWN, **facts), FINGERPRINT, policy), Unknown)


def test_another_operation_is_refused_first() -> None:
    """A doubt that is over gives the key to nobody else."""
    assert not isinstance(decide(record(Status.UNKNOWN, doubt_over=True), OTHERS["digest"], REEXECUTE), Claim)


def test_a_lapsed_lease_becomes_a_doubt_first() -> None:
    """A lapsed lease is no way around `max_execution`."""
    assert isinstance(decide(record(Status.IN_PROGRESS), FINGERPRINT, REEXECUTE), Lapse)


@pytest.mark.parametrize("earlier", [Earlier.JUDGED, Earlier.DOUBTED])
@given(status=st.integers(400, 599))
def test_refusals_of_a_repetition_are_no_answers(earlier: Earlier, status: int) -> None:
    """They may be of what the attempt before did, or of the asking: only what the upstream vouches for completes."""
    assert not isinstance(settle(Responded(status), REEXECUTE, earlier), Complete)
    assert settle(Responded(status, HintedOutcome.COMPLETED), REEXECUTE, earlier) == Complete()


def test_what_exists_already() -> None:
    """Of a repetition it is the outcome, whatever the status; of a first attempt an answer like any other, which proves no execution."""
    exists = Responded(409, HintedOutcome.EXISTS)
    assert settle(exists, RECONCILE, Earlier.DOUBTED) == settle(exists, RECONCILE, Earlier.JUDGED) == Complete()
    for status in (409, 429, 503):
        assert settle(Responded(status, HintedOutcome.EXISTS), RECONCILE) == settle(Responded(status), RECONCILE)
    assert not proves_execution(exists, RECONCILE)


def test_what_a_release_means_after_a_verdict() -> None:
    """The record goes back to where it was: free. After a doubt it goes back to the doubt."""
    for outcome in (Responded(429), NotSent("dns"), Responded(500, HintedOutcome.NOT_EXECUTED)):
        assert isinstance(settle(outcome, RECONCILE, Earlier.JUDGED), Release)
        assert isinstance(settle(outcome, RECONCILE, Earlier.DOUBTED), Doubt)


def test_nothing_sent_proves_nothing_of_the_attempt_before() -> None:
    """A re-execution that could not be sent leaves the doubt where it was."""
    assert settle(NotSent("connection_refused"), REEXECUTE) == Release("connection_refused")
    assert settle(NotSent("connection_refused"), REEXECUTE, Earlier.DOUBTED) == Doubt("connection_refused")


def test_a_hint_that_it_did_not_execute_is_of_this_attempt_alone() -> None:
    """The upstream speaks of the request that it answers."""
    hints = (Hint("X-Outcome", outcome=HintedOutcome.NOT_EXECUTED),)
    policy = replace(REEXECUTE, hints=hints)
    assert settle(Responded(500, HintedOutcome.NOT_EXECUTED), policy, Earlier.DOUBTED) == Doubt("hinted")


def outcomes() -> st.SearchStrategy[Outcome]:
    statuses = st.integers(100, 599)
    return st.one_of(
        st.builds(Responded, statuses, st.none() | st.sampled_from(HintedOutcome)),
        st.builds(NotSent, st.text(max_size=9)),
        st.builds(InDoubt, st.text(max_size=9)),
    )


@given(outcomes())
def test_a_reexecution_never_releases(outcome: Outcome) -> None:
    """It completes as a first attempt would, or is in doubt; and it completes nothing that a first attempt would not."""
    again, first = settle(outcome, REEXECUTE, Earlier.DOUBTED), settle(outcome, REEXECUTE)
    assert not isinstance(again, Release)
    if isinstance(again, Complete):
        exists = isinstance(outcome, Responded) and outcome.hinted is HintedOutcome.EXISTS
        assert exists or again == first
        assert proves_execution(outcome, REEXECUTE) is not exists
