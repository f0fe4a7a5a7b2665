"""What must hold of every decision, whatever the record, the request and the policy."""

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.decision import (
    Accepted,
    Claim,
    Complete,
    Doubt,
    Gone,
    InDoubt,
    InProgress,
    KeyMisuse,
    Lapse,
    NotSent,
    Release,
    Replay,
    ReplayWithoutBody,
    Responded,
    Unknown,
    Unreadable,
    decide,
    retry_after,
    settle,
)
from gateway.core.model import Fingerprint, Record, RecordKey, Status, StoredResponse
from gateway.core.policy import InFlight, OnExpired, OnStoreOutage, Policy

fingerprints = st.builds(Fingerprint, st.integers(1, 2), st.sampled_from([b"p", b"q"]), st.sampled_from([b"a", b"b"]))
responses = st.builds(
    StoredResponse, st.integers(200, 599), st.just(b"OK"), st.just(()), st.none() | st.binary(max_size=3), st.integers(0, 9), st.just(b"d")
)
seconds = st.none() | st.floats(allow_nan=False)
records = st.builds(
    Record,
    st.just(RecordKey("s:none", "k")),
    st.just(UUID(int=1)),
    st.integers(1, 9),
    st.sampled_from(Status),
    fingerprints,
    st.just(b"o" * 16),
    st.integers(1, 3),
    st.just("r"),
    lease_live=st.booleans(),
    expired=st.booleans(),
    dead_lettered=st.booleans(),
    reconcile_in=seconds,
    expires_in=seconds,
    response=st.none() | responses,
)
statuses = st.frozensets(st.integers(200, 599), max_size=5)
policies = st.builds(
    Policy,
    st.just("s"),
    st.just(()),
    in_flight=st.sampled_from(InFlight),
    on_expired=st.sampled_from(OnExpired),
    release_on=statuses,
    doubt_on=statuses,
    on_store_outage=st.sampled_from(OnStoreOutage),
)
sent = st.none() | fingerprints
FINAL = {Status.COMPLETED, Status.FAILED_RETRYABLE}


@given(records, sent, policies)
def test_executes_only_what_may_run(found: Record, request: Fingerprint | None, policy: Policy) -> None:
    """Only a released record of the same operation, or an expired one where the route allows it, leads to an execution; never one that
    is running, in doubt or, while it lives, completed.
    """
    if isinstance(decide(found, request, policy), Claim):
        released = found.status is Status.FAILED_RETRYABLE and request == found.fingerprint and not found.expired
        again = policy.on_expired is OnExpired.EXECUTE or found.status is Status.FAILED_RETRYABLE
        expired = found.status in FINAL and found.expired and again
        assert released or expired


@given(records, sent, policies)
def test_no_answer_without_comparing(found: Record, request: Fingerprint | None, policy: Policy) -> None:
    """A stored response goes out only to the very operation that made it, only completed, and only while the record lives."""
    decision = decide(found, request, policy)
    if isinstance(decision, Replay | ReplayWithoutBody):
        assert request == found.fingerprint
        assert (found.status, found.expired) == (Status.COMPLETED, False)
        assert decision.response is found.response
        assert (decision.response.body is None) == isinstance(decision, ReplayWithoutBody)


@given(records, sent, policies)
def test_misuse_is_always_told(found: Record, request: Fingerprint | None, policy: Policy) -> None:
    """Under a live record another operation is refused in every state, and an unreadable record is never called misuse."""
    decision = decide(found, request, policy)
    live = not (found.expired and found.status in FINAL)
    assert isinstance(decision, KeyMisuse) == (live and request is not None and request != found.fingerprint)
    assert isinstance(decision, Unreadable) == (live and request is None)


@given(records, policies)
def test_doubt_stays_doubt(found: Record, policy: Policy) -> None:
    """An unknown record stays unknown to its own operation whatever else a store says of it, and a lapsed lease is never a free key."""
    unknown = decide(replace(found, status=Status.UNKNOWN), found.fingerprint, policy)
    assert isinstance(unknown, Unknown)
    assert (unknown.retry_after is None) == found.dead_lettered
    running = decide(replace(found, status=Status.IN_PROGRESS), found.fingerprint, policy)
    told = Accepted if policy.in_flight is InFlight.ACCEPTED else InProgress
    assert type(running) is (told if found.lease_live else Lapse)


@given(records, sent, policies)
def test_gone_executes_nothing(found: Record, request: Fingerprint | None, policy: Policy) -> None:
    """`on_expired: gone` never runs an expired record's operation again; under a released one none ran."""
    policy = replace(policy, on_expired=OnExpired.GONE)
    decision = decide(found, request, policy)
    assert isinstance(decision, Gone) == (found.expired and found.status is Status.COMPLETED)


@given(records, sent, policies, policies)
def test_only_on_expired_and_in_flight_matter(found: Record, request: Fingerprint | None, policy: Policy, other: Policy) -> None:
    """No other setting of a route changes the decision."""
    alike = replace(other, on_expired=policy.on_expired, in_flight=policy.in_flight)
    assert decide(found, request, policy) == decide(found, request, alike)


@given(seconds)
def test_retry_after_is_usable(wait: float | None) -> None:
    """Every wait becomes a whole number from 1 to 60, never less than the wait itself unless the cap says so."""
    found = retry_after(wait)
    assert type(found) is int
    assert 1 <= found <= 60
    assert wait is None or found >= min(wait, 60)


reasons = st.text("abc_", min_size=1, max_size=8)


@given(reasons, policies)
def test_doubt_never_becomes_a_release(reason: str, policy: Policy) -> None:
    """An outcome in doubt is a doubt on every route; only proof that nothing was sent, or the route's own list, releases."""
    assert settle(InDoubt(reason), policy) == Doubt(reason)
    assert settle(NotSent(reason), policy) == Release(reason)


@given(st.integers(100, 999), policies)
def test_a_response_settles_by_the_lists(status: int, policy: Policy) -> None:
    """A complete response releases only if the route lists it, and only there; it completes if no list names it."""
    settlement = settle(Responded(status), policy)
    assert isinstance(settlement, Release) == (status in policy.release_on - policy.doubt_on)
    assert isinstance(settlement, Doubt) == (status in policy.doubt_on)
    assert isinstance(settlement, Complete) == (status not in policy.release_on | policy.doubt_on)
