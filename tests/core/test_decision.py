"""The decision, row by row: what a found record means for a request, and what an outcome means for its record."""

from itertools import product

import pytest

from gateway.core.decision import (
    Claim,
    Complete,
    Decision,
    Doubt,
    Gone,
    InDoubt,
    InProgress,
    KeyMisuse,
    Label,
    Lapse,
    NotSent,
    Outcome,
    Release,
    Replay,
    ReplayWithoutBody,
    Responded,
    Settlement,
    Unknown,
    Unreadable,
    decide,
    retry_after,
    settle,
    settlement_name,
)
from gateway.core.hints import HintedOutcome
from gateway.core.model import Earlier, Fingerprint, Record, Status
from gateway.core.policy import OnExpired, Policy
from gateway.ports import DoubtReason, NotSentReason
from tests.core.records import FINGERPRINT, OTHERS, RESPONSE, record

POLICY = Policy("charges", ())
GONE = Policy("charges", (), on_expired=OnExpired.GONE)

ROWS: list[tuple[str, Record, Fingerprint | None, Policy, type[Decision]]] = [
    ("completed", record(Status.COMPLETED), FINGERPRINT, POLICY, Replay),
    ("completed, body not kept", record(Status.COMPLETED, response=RESPONSE.without_body()), FINGERPRINT, POLICY, ReplayWithoutBody),
    ("completed, by hand", record(Status.COMPLETED, response=None), FINGERPRINT, POLICY, Unknown),
    ("in progress, live", record(Status.IN_PROGRESS, lease_live=True), FINGERPRINT, POLICY, InProgress),
    ("in progress, lapsed", record(Status.IN_PROGRESS), FINGERPRINT, POLICY, Lapse),
    ("unknown", record(Status.UNKNOWN), FINGERPRINT, POLICY, Unknown),
    ("unknown, dead letter", record(Status.UNKNOWN, dead_lettered=True), FINGERPRINT, POLICY, Unknown),
    ("failed retryable", record(Status.FAILED_RETRYABLE), FINGERPRINT, POLICY, Claim),
    ("completed, expired", record(Status.COMPLETED, expired=True), FINGERPRINT, POLICY, Claim),
    ("completed, expired, gone", record(Status.COMPLETED, expired=True), FINGERPRINT, GONE, Gone),
    ("failed, expired", record(Status.FAILED_RETRYABLE, expired=True), FINGERPRINT, POLICY, Claim),
    ("failed, expired, gone", record(Status.FAILED_RETRYABLE, expired=True), FINGERPRINT, GONE, Claim),
    ("expired, other operation", record(Status.COMPLETED, expired=True), OTHERS["digest"], POLICY, Claim),
    ("expired, unreadable", record(Status.COMPLETED, expired=True), None, POLICY, Claim),
    *[(f"{status}, other operation", record(status, lease_live=True), OTHERS["digest"], POLICY, KeyMisuse) for status in Status],
    *[(f"{status}, other operation, lapsed", record(status), OTHERS["digest"], GONE, KeyMisuse) for status in Status],
    *[(f"{status}, unreadable", record(status), None, POLICY, Unreadable) for status in Status],
    ("in progress cannot expire", record(Status.IN_PROGRESS, expired=True), FINGERPRINT, POLICY, Lapse),
    ("live cannot expire", record(Status.IN_PROGRESS, expired=True, lease_live=True), FINGERPRINT, POLICY, InProgress),
    ("unknown cannot expire", record(Status.UNKNOWN, expired=True), FINGERPRINT, POLICY, Unknown),
    ("a dead letter cannot expire", record(Status.UNKNOWN, expired=True, dead_lettered=True), FINGERPRINT, GONE, Unknown),
]


@pytest.mark.parametrize(("found", "sent", "policy", "want"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_rows(found: Record, sent: Fingerprint | None, policy: Policy, want: type[Decision]) -> None:
    """Each row of the design's table."""
    decision = decide(found, sent, policy)
    assert type(decision) is want
    assert decision.found is found


def expected(
    status: Status, *, expired: bool, live: bool, dead: bool, kept: str, sent: str, gone: bool
) -> tuple[type[Decision], int | str | None]:
    """The table of the design, told again as data; the second value is the Retry-After of an answer that has one."""
    ended = expired and status in {Status.COMPLETED, Status.FAILED_RETRYABLE}
    rows: list[tuple[bool, type[Decision], int | str | None]] = [
        (ended and gone and status is Status.COMPLETED, Gone, "-"),
        (ended, Claim, "-"),
        (sent == "unreadable", Unreadable, "-"),
        (sent != "same", KeyMisuse, "-"),
        (status is Status.FAILED_RETRYABLE, Claim, "-"),
        (status is Status.IN_PROGRESS and live, InProgress, 1),
        (status is Status.PENDING, InProgress, 1),
        (status is Status.IN_PROGRESS, Lapse, "-"),
        (status is Status.UNKNOWN and dead, Unknown, None),
        (status is Status.UNKNOWN, Unknown, 7),
        (kept == "whole", Replay, "-"),
        (kept == "without body", ReplayWithoutBody, "-"),
        (True, Unknown, None),
    ]
    return next((decision, seconds) for applies, decision, seconds in rows if applies)


KEPT = {"whole": RESPONSE, "without body": RESPONSE.without_body(), "nothing": None}
SENT: dict[str, Fingerprint | None] = {"same": FINGERPRINT, **OTHERS, "unreadable": None}


@pytest.mark.parametrize("status", Status)
def test_all_combinations(status: Status) -> None:
    """Every combination of state, expiry, lease, dead letter, kept response, fingerprint and policy is decided as the table says."""
    flags = (False, True)
    for expired, live, dead, kept, sent, gone in product(flags, flags, flags, KEPT, SENT, flags):
        facts = {"expired": expired, "lease_live": live, "dead_lettered": dead, "response": KEPT[kept], "reconcile_in": 6.2}
        decision = decide(record(status, **facts), SENT[sent], GONE if gone else POLICY)
        kind, seconds = expected(status, expired=expired, live=live, dead=dead, kept=kept, sent=sent, gone=gone)
        assert type(decision) is kind
        assert getattr(decision, "retry_after", "-") == seconds


@pytest.mark.parametrize("part", OTHERS)
def test_every_part_of_a_fingerprint_is_compared(part: str) -> None:
    """Another digest, policy or version is another operation: decide is given the request under the record's own."""
    assert decide(record(Status.COMPLETED), OTHERS[part], POLICY) == KeyMisuse(record(Status.COMPLETED))


def test_replay_carries_the_stored_response() -> None:
    """A replay answers with exactly what is stored; without a body it still knows status, length and digest."""
    assert decide(record(Status.COMPLETED), FINGERPRINT, POLICY) == Replay(record(Status.COMPLETED), RESPONSE)
    bare = record(Status.COMPLETED, response=RESPONSE.without_body())
    assert decide(bare, FINGERPRINT, POLICY) == ReplayWithoutBody(bare, RESPONSE.without_body())


def test_an_empty_body_is_a_body() -> None:
    """A 204 that was kept whole is replayed, not taken for one without its body."""
    empty = record(Status.COMPLETED, response=type(RESPONSE)(204, b"No Content", (), b"", 0, b"d" * 32))
    assert isinstance(decide(empty, FINGERPRINT, POLICY), Replay)


@pytest.mark.parametrize(
    ("seconds", "want"),
    [(None, 1), (0, 1), (-5.0, 1), (0.2, 1), (1, 1), (1.01, 2), (59.1, 60), (60, 60), (60.1, 60), (1e9, 60), (float("inf"), 60)],
)
def test_retry_after(seconds: float | None, want: int) -> None:
    """Whole seconds from 1 to 60, rounded up so that nobody comes too early."""
    assert retry_after(seconds) == want


def test_unknown_names_the_instant_of_reconciliation() -> None:
    """Until reconciliation the answer says when to come back; a dead letter names no time."""
    assert decide(record(Status.UNKNOWN, reconcile_in=12.3), FINGERPRINT, POLICY) == Unknown(record(Status.UNKNOWN, reconcile_in=12.3), 13)
    dead = record(Status.UNKNOWN, reconcile_in=12.3, dead_lettered=True)
    assert decide(dead, FINGERPRINT, POLICY) == Unknown(dead, None)


# ---- settle

DEFAULT_RELEASE = (307, 308, 401, 407, 421, 425, 429)
DEFAULT_DOUBT = (408, 502, 503, 504, *range(520, 528), 530)


@pytest.mark.parametrize("status", range(200, 600))
def test_settle_by_default(status: int) -> None:
    """By default some statuses release, those of a hop behind us are in doubt, and any other complete response, 500 too, is the result."""
    settlement = settle(Responded(status), POLICY)
    if status in DEFAULT_RELEASE:
        assert settlement == Release(f"status_{status}")
    elif status in DEFAULT_DOUBT:
        assert settlement == Doubt(f"status_{status}")
    else:
        assert settlement == Complete()


@pytest.mark.parametrize(
    ("outcome", "want"),
    [
        *[(NotSent(reason.value), Release(reason.value)) for reason in NotSentReason],
        *[(InDoubt(reason.value), Doubt(reason.value)) for reason in DoubtReason],
    ],
)
def test_settle_without_a_response(outcome: Outcome, want: Settlement) -> None:
    """What was proved not to be sent is released, everything else is in doubt; the reason is kept."""
    assert settle(outcome, POLICY) == want


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_to_nowhere_is_the_result(status: int) -> None:
    """Upload services answer 308 without `Location` for a part that they have stored. Others of `release_on` need none."""
    assert settle(Responded(status, located=False), POLICY) == Complete()
    assert settle(Responded(status, located=False), POLICY, Earlier.DOUBTED) == Complete()
    assert settle(Responded(status, HintedOutcome.NOT_EXECUTED, located=False), POLICY) == Release("hinted")
    assert settle(Responded(429, located=False), POLICY) == Release("status_429")


def test_settle_by_route() -> None:
    """A route changes the two lists; an empty list means that every complete response is the result."""
    policy = Policy("charges", (), release_on=frozenset({418}), doubt_on=frozenset({500}))
    assert [settle(Responded(status), policy) for status in (418, 500, 429, 503)] == [
        Release("status_418"),
        Doubt("status_500"),
        Complete(),
        Complete(),
    ]


def test_a_status_in_both_lists_is_in_doubt() -> None:
    """Two contradicting lists never let an operation run twice."""
    policy = Policy("charges", (), release_on=frozenset({503}), doubt_on=frozenset({503}))
    assert settle(Responded(503), policy) == Doubt("status_503")


def test_settlement_names() -> None:
    """The closed set of names in metrics and logs."""
    assert [settlement_name(one) for one in (Complete(), Release("x"), Doubt("x"))] == ["complete", "release", "doubt"]


def test_labels() -> None:
    """The closed set of decisions in metrics is the published one."""
    assert {label.value for label in Label} == {
        *("execute", "execute_retry", "reexecute", "replay", "replay_without_body", "in_progress", "key_misuse", "unknown", "gone"),
        *(
            "key_missing",
            "key_invalid",
            "principal_missing",
            "principal_unavailable",
            "body_too_large",
            "refused_target",
            "aborted",
            "store_unavailable",
        ),
        *("accepted", "too_many_pending", "quota_exceeded", "status"),
        *("unprotected", "bypass", "refused_request", "overloaded"),
    }
