"""The whole decision: what to do about a request, and what an upstream's outcome means for its record.

Theory of operation -------------------

*reserve* makes a record (`in_progress`, one owner, one lease). Then its state changes like this; each arrow is one
atomic fenced statement in a store:

    in_progress ──complete──► completed            final: replayed until it expires
        │  ├─────release────► failed_retryable     proved, or asserted by the route, not to have executed: may be claimed
        │  └─────doubt──────► unknown              may have executed: never run again
        └── lease lapsed ───► unknown              its owner is gone or was cut off: doubtful by definition
        └── no free slot, or nothing was sent ──► pending   accepted work alone: durable, and nothing was sent
    pending          ── claim by a worker ──► in_progress (attempt + 1)
                     ── too long, or cancelled by its client ──► completed (with our 408 or 410)
    unknown          ── its owner's late answer, or a verdict "executed" ──► completed
                     ── a verdict "not executed" on accepted work ──► pending
                     ── its owner's late "nothing was sent", or a verdict "not executed" ──► failed_retryable
                     ── claim, where the upstream deduplicates by key and has surely finished ──► in_progress (a re-execution)
    failed_retryable ── claim (new owner, attempt + 1) ──► in_progress
                     ── its last owner's late answer, before another claim ──► completed
    completed, failed_retryable ── expired ──► replaced by a new record at the next reserve, or reaped

`in_progress` means that the gateway may already have called the upstream: there is no second write before dispatch. So
the key of an orphan is never freed; the record becomes `unknown`, and only its owner, a probe, a webhook or a person
can say more.

Rule 1: everything that judges a state is in this file. Stores report facts (`Record`), the engine carries decisions
out, or does less: a request that waits, or only observes, takes no record over. Rule 2: nothing here reads a clock,
draws a random number or awaits. Rule 3: dialects change the wire form of an answer, never the decision.
"""

import enum
import math
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from gateway.core.hints import HintedOutcome
from gateway.core.model import Earlier, Fingerprint, Record, Status, StoredResponse, Tombstone
from gateway.core.policy import InFlight, OnExpired, Policy
from gateway.core.transitions import CAN_EXPIRE
from gateway.core.value import value

RETRY_AFTER_MAX = 60
"""Client libraries use Retry-After (RFC 9110 section 10.2.3) only as an integer from 1 to 60."""


class Label(enum.StrEnum):
    """What became of a request, as the metric `idempotency_requests_total` and the access log call it. A closed set."""

    __hash__ = str.__hash__  # each request is counted under one, and the hash of an enum takes a frame

    EXECUTE = "execute"
    EXECUTE_RETRY = "execute_retry"
    REEXECUTE = "reexecute"
    REPLAY = "replay"
    REPLAY_WITHOUT_BODY = "replay_without_body"
    IN_PROGRESS = "in_progress"
    ACCEPTED = "accepted"
    KEY_MISUSE = "key_misuse"
    UNKNOWN = "unknown"
    GONE = "gone"
    KEY_MISSING = "key_missing"
    KEY_INVALID = "key_invalid"
    PRINCIPAL_MISSING = "principal_missing"
    PRINCIPAL_UNAVAILABLE = "principal_unavailable"
    TOO_MANY_PENDING = "too_many_pending"
    QUOTA_EXCEEDED = "quota_exceeded"
    STATUS = "status"
    BODY_TOO_LARGE = "body_too_large"
    REFUSED_TARGET = "refused_target"
    REFUSED_REQUEST = "refused_request"
    OVERLOADED = "overloaded"
    ABORTED = "aborted"
    STORE_UNAVAILABLE = "store_unavailable"
    UNPROTECTED = "unprotected"
    BYPASS = "bypass"


@dataclass(frozen=True, slots=True)
class Claim:
    """Take the record over atomically, then execute. The record is `failed_retryable` (attempt + 1), expired (a new
    life), or in doubt on a route that re-executes.
    """

    found: Record


@dataclass(frozen=True, slots=True)
class Lapse:
    """The owner's lease has lapsed: make the record `unknown` first, then look again."""

    found: Record


@value
class Replay:
    """Answer with the stored response."""

    found: Record
    response: StoredResponse


@dataclass(frozen=True, slots=True)
class ReplayWithoutBody:
    """The operation completed, but its body was not kept: answer so, with the original status, and never run
    it again.
    """

    found: Record
    response: StoredResponse


@dataclass(frozen=True, slots=True)
class InProgress:
    """Another attempt holds a live lease."""

    found: Record
    retry_after: int = 1


@dataclass(frozen=True, slots=True)
class Accepted:
    """The operation waits to be run, or runs, and the client is told where to look for its end."""

    found: Record
    retry_after: int = 1


@dataclass(frozen=True, slots=True)
class KeyMisuse:
    """The key already stands for another operation."""

    found: Record


@dataclass(frozen=True, slots=True)
class Unknown:
    """The operation may have executed. `retry_after` is None once only a person can resolve it."""

    found: Record
    retry_after: int | None


@dataclass(frozen=True, slots=True)
class Gone:
    """The record expired, and the route refuses to run its operation again. It is there still, or its tombstone is."""

    found: Record | Tombstone


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The record was written under a fingerprint version or policy that this process cannot compute. Never a mismatch:
    a 503.
    """

    found: Record


Decision: TypeAlias = Claim | Lapse | Replay | ReplayWithoutBody | InProgress | Accepted | KeyMisuse | Unknown | Gone | Unreadable
"""What to do about a record that exists. When none exists the store's reserve has made one, and the request
executes.
"""


def decide(found: Record, sent: Fingerprint | None, policy: Policy, *, later: bool = False) -> Decision:
    """Judge a record that `reserve` found.

    `sent` is the request's fingerprint under the *record's own* version and policy; None if this process cannot compute
    it. `expired` counts only in states that can expire: an operation that runs or is in doubt never runs again,
    whatever a store reports. `later`: the request is one that is answered before it is executed.
    """
    if found.expired and found.status in CAN_EXPIRE:
        # A released record executed nothing, so its late retry charges once.
        gone = policy.on_expired is OnExpired.GONE and found.status is Status.COMPLETED
        return Gone(found) if gone else Claim(found)
    if sent != found.fingerprint:
        return Unreadable(found) if sent is None else KeyMisuse(found)
    match found.status:
        case Status.COMPLETED:
            return _decide_completed(found)
        case Status.IN_PROGRESS:
            return _decide_running(found, policy, later=later) if found.lease_live else Lapse(found)
        case Status.PENDING:
            return _decide_running(found, policy, later=later)
        case Status.UNKNOWN:
            if _may_reexecute(found, policy):
                return Claim(found)
            return Unknown(found, None if found.dead_lettered else retry_after(found.reconcile_in))
        case Status.FAILED_RETRYABLE:
            return Claim(found)
        case _:
            assert_never(found.status)


def _decide_running(found: Record, policy: Policy, *, later: bool) -> Decision:
    """A 202 is a promise: of a record that was reserved to be accepted, and is not yet, nobody knows whether it lasts."""
    if policy.in_flight is InFlight.ACCEPTED or (later and found.accepted):
        return Accepted(found, retry_after(found.due_in))
    return InProgress(found)


def _may_reexecute(found: Record, policy: Policy) -> bool:
    """Whether the upstream deduplicates by key, or resumes, has surely finished the attempt before, and still
    remembers the first.
    """
    if not policy.repeats or not found.doubt_over or found.dead_lettered:
        return False
    return found.born_ago < policy.reconcile.pace.max_age


def _decide_completed(found: Record) -> Decision:
    """A completed record without a response cannot exist. If a person made one by hand, it is doubtful, not free."""
    if found.response is None:
        return Unknown(found, None)
    if found.response.body is None:
        return ReplayWithoutBody(found, found.response)
    return Replay(found, found.response)


def retry_after(seconds: float | None) -> int:
    """Whole seconds from 1 to 60 for a Retry-After field."""
    return 1 if seconds is None else math.ceil(max(1, min(RETRY_AFTER_MAX, seconds)))


@dataclass(frozen=True, slots=True)
class Responded:
    """A complete response with this status came back. `hinted` is the upstream's own signal, where the route trusts it;
    `located`: the response has a `Location`, which counts for `REDIRECTS` alone.
    """

    status: int
    hinted: HintedOutcome | None = None
    located: bool = True


@dataclass(frozen=True, slots=True)
class NotSent:
    """Proof that nothing of the request reached the upstream."""

    reason: str


@dataclass(frozen=True, slots=True)
class InDoubt:
    """The gateway may have written a byte of the request, and no complete response came back."""

    reason: str


Outcome: TypeAlias = Responded | NotSent | InDoubt


@dataclass(frozen=True, slots=True)
class Complete:
    """Keep the response: it is the operation's answer from now on."""

    reason: str = "responded"


@dataclass(frozen=True, slots=True)
class Release:
    """The attempt did not execute: the next request with this key may execute."""

    reason: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """The gateway does not know: the record becomes `unknown`."""

    reason: str


Settlement: TypeAlias = Complete | Release | Doubt


def settle(outcome: Outcome, policy: Policy, earlier: Earlier = Earlier.NOTHING) -> Settlement:
    """What an upstream's outcome means. A doubt never becomes a release: there other systems run an operation twice.

    `earlier` is what the attempts before this one may have done:

    * An earlier attempt is, or was, in doubt: a refusal (4xx, 5xx) is a doubt. It may be about what that attempt did
      ("it exists already") or about this request alone (a credential that has changed since), and a stored answer is
      replayed for good. Only the upstream's own signal, where the route trusts it, says more.
    * An earlier attempt is still in doubt: that this one did not execute proves nothing, so every release is a doubt.
    """
    settlement = _settle(outcome, policy, earlier)
    return Doubt(settlement.reason) if earlier is Earlier.DOUBTED and isinstance(settlement, Release) else settlement


def proves_execution(outcome: Outcome, policy: Policy) -> bool:
    """Whether the outcome shows that this attempt executed, even if a probe or a later attempt was at the upstream
    before it. *It exists already* is about what those did.
    """
    if isinstance(outcome, Responded) and outcome.hinted is HintedOutcome.EXISTS:
        return False
    return isinstance(settle(outcome, policy, Earlier.DOUBTED), Complete)


def _settle(outcome: Outcome, policy: Policy, earlier: Earlier) -> Settlement:
    """What an attempt's outcome means by itself.

    By `release_on` the operator asserts that the upstream answers with these statuses before it executes anything.
    `doubt_on` lists statuses that an intermediary behind the gateway may have made up after the upstream executed (RFC
    9110 section 15.6). A status in both is a doubt. A 307 or 308 without `Location` is no redirect: upload services
    answer 308 for "stored, go on".
    """
    match outcome:
        case Responded(_, hinted) if hinted is not None and not (hinted is HintedOutcome.EXISTS and earlier is Earlier.NOTHING):
            return _settle_hinted(hinted)
        case Responded(status, _, located):
            if status in policy.doubt_on:
                return Doubt(f"status_{status}")
            if status in policy.release_on and (located or status not in REDIRECTS):
                return Release(f"status_{status}")
            return Doubt(f"status_{status}") if status >= 400 and earlier is not Earlier.NOTHING else Complete()
        case NotSent(reason):
            return Release(reason)
        case InDoubt(reason):
            return Doubt(reason)
        case _:
            assert_never(outcome)


REDIRECTS = frozenset({307, 308})
"""They send the same request elsewhere (RFC 9110 sections 15.4.8 and 15.4.9)."""


def _settle_hinted(hinted: HintedOutcome) -> Settlement:
    """The upstream's own signal decides; the route's lists do not overrule it."""
    match hinted:
        case HintedOutcome.COMPLETED | HintedOutcome.EXISTS:
            return Complete()
        case HintedOutcome.NOT_EXECUTED:
            return Release("hinted")
        case HintedOutcome.UNKNOWN:
            return Doubt("hinted")
        case _:
            assert_never(hinted)


DOUBT = "doubt"
"""The name of the settlement that leaves the outcome unknown."""


def settlement_name(settlement: Settlement) -> str:
    """The settlement as metrics and logs call it."""
    match settlement:
        case Complete():
            return "complete"
        case Release():
            return "release"
        case Doubt():
            return DOUBT
        case _:
            assert_never(settlement)
