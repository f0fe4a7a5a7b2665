"""What to do after a look, and about an event. All numbers come from the store; durations are seconds.

*Executed* counts at once, from a look, an event or a person. *Not executed* is the dangerous verdict, since it lets the
operation run again. It counts only from a look that began when the upstream had surely finished, and only `Pace.looks`
times in a row, `Pace.apart` from each other, because a lookup may lag behind the execution. A look without a verdict
breaks the row.
"""

from dataclasses import dataclass
from typing import Protocol, TypeAlias, assert_never

from gateway.core.model import Record, Status
from gateway.core.reconcile.policy import Pace, Verdict

ROUNDS = 3
"""How often a verdict or a late answer is brought to a record that another process has just moved."""

_MOST_DOUBLINGS = 62
"""Beyond all waits; a float takes it."""


@dataclass(frozen=True, slots=True)
class Conclude:
    """It executed: complete the record with the answer that was built (`conclude_executed`)."""


@dataclass(frozen=True, slots=True)
class Free:
    """It did not execute: the key may be used again (`conclude_not_executed`)."""


@dataclass(frozen=True, slots=True)
class Again:
    """Look again in `seconds`. `agreed` as in `Reconciliation.look_again`: True, this one counts as a *not executed*;
    None, the count stays as it is; False, it starts anew.
    """

    seconds: float
    agreed: bool | None


@dataclass(frozen=True, slots=True)
class Bury:
    """A dead letter. `why`: `attempts` or `max_age`."""

    why: str


@dataclass(frozen=True, slots=True)
class Attach:
    """Keep it as evidence: the attempt still runs (`attach`)."""


@dataclass(frozen=True, slots=True)
class Ignore:
    """Do nothing. `result` is the event's word in the metrics: already, unmatched, no_verdict or too_early."""

    result: str


NextStep: TypeAlias = Conclude | Free | Again | Bury
WebhookStep: TypeAlias = Conclude | Attach | Free | Again | Ignore


def next_step(
    verdict: Verdict,
    *,
    look: int,
    agreed: int,
    agreed_ago: float | None,
    over: bool,
    age: float,
    pace: Pace,
    jitter: float,
    asks: bool = True,
) -> NextStep:
    """After a look. `look`, `agreed`, `agreed_ago`, `over`, `age`: as in `gateway.ports.reconciliation.Doubtful`.

    `jitter` is drawn from 0 to 1.

    A look concludes at any age and count. The last look by age comes at `max_age`, not up to `longest` before it; a
    look that must wait for `apart` may come that much later. `asks` False is for `probe: manual`, which sends no probe:
    NOT_YET_KNOWN then waits for `max_age`, whatever `look` is, and leaves the count to webhooks.
    """
    if verdict is Verdict.EXECUTED:
        return Conclude()
    counted = _count(agreed, agreed_ago, pace) if verdict is Verdict.NOT_EXECUTED and over else None
    if isinstance(counted, Free):
        return counted
    if asks and look >= pace.attempts:
        return Bury("attempts")
    if age >= pace.max_age:
        return Bury("max_age")
    if counted is not None:
        return counted
    left = pace.max_age - age
    return Again(min(backoff(look, pace, jitter), left), agreed=False) if asks else Again(left, agreed=None)


def backoff(look: int, pace: Pace, jitter: float) -> float:
    """The wait after the look of this number: from `first`, doubling up to `longest`, and of that from the half to the
    whole.
    """
    whole = min(pace.first * 2.0 ** min(max(look - 1, 0), _MOST_DOUBLINGS), pace.longest)
    return whole * (0.5 + jitter / 2)


def _count(agreed: int, agreed_ago: float | None, pace: Pace) -> Free | Again:
    """One more *not executed* that may count."""
    earlier = agreed if agreed_ago is not None else 0
    if earlier > 0 and agreed_ago is not None and agreed_ago < pace.apart:
        return Again(pace.apart - max(agreed_ago, 0.0), agreed=None)
    return Free() if earlier + 1 >= pace.looks else Again(pace.apart, agreed=True)


class Facts(Protocol):
    """The facts about an event's record; `gateway.ports.reconciliation.Subject` has them."""

    @property
    def status(self) -> Status: ...
    @property
    def lease_live(self) -> bool: ...
    @property
    def expired(self) -> bool: ...
    @property
    def dead_lettered(self) -> bool: ...
    @property
    def agreed(self) -> int: ...
    @property
    def agreed_ago(self) -> float | None: ...
    @property
    def over(self) -> bool: ...


def webhook_step(verdict: Verdict, subject: Facts, pace: Pace) -> WebhookStep:
    """What an event with this verdict does to its record.

    *Executed* is kept with an attempt that still runs, and completes any other record that has not ended. A released
    record has ended when its retention is over. *Not executed* counts as a look does. It changes nothing if it is too
    early or too soon after the last, nor for a dead letter unless it is the last that the verdict needs: no look
    follows a dead letter.
    """
    match verdict:
        case Verdict.EXECUTED:
            return _executed(subject)
        case Verdict.NOT_EXECUTED:
            return _not_executed(subject, pace)
        case Verdict.NOT_YET_KNOWN:
            return Ignore("no_verdict")
        case _:
            assert_never(verdict)


def _executed(subject: Facts) -> WebhookStep:
    match subject.status:
        case Status.COMPLETED:
            return Ignore("already")
        case Status.FAILED_RETRYABLE if subject.expired:
            return Ignore("unmatched")
        case Status.IN_PROGRESS if subject.lease_live:
            return Attach()
        case Status.FAILED_RETRYABLE | Status.IN_PROGRESS | Status.UNKNOWN | Status.PENDING:
            return Conclude()
        case _:
            assert_never(subject.status)


def _not_executed(subject: Facts, pace: Pace) -> WebhookStep:
    match subject.status:
        case Status.COMPLETED | Status.FAILED_RETRYABLE | Status.PENDING:
            return Ignore("already")
        case Status.IN_PROGRESS:
            return Ignore("too_early")
        case Status.UNKNOWN:
            counted = _count(subject.agreed, subject.agreed_ago, pace) if subject.over else None
            if isinstance(counted, Free):
                return counted
            return Ignore("too_early") if counted is None or counted.agreed is None or subject.dead_lettered else counted
        case _:
            assert_never(subject.status)


def may_complete(found: Record) -> bool:
    """Whether *executed* may still complete the record, whichever attempt owns it: the record has not ended, or could
    run again.
    """
    match found.status:
        case Status.COMPLETED:
            return False
        case Status.IN_PROGRESS:
            return not found.lease_live
        case Status.FAILED_RETRYABLE:
            return not found.expired
        case Status.UNKNOWN | Status.PENDING:
            return True
        case _:
            assert_never(found.status)


def ran_twice(found: Record, attempt: int) -> bool:
    """Whether two attempts executed, if `attempt` did: a later attempt owns the record and was not released."""
    return found.attempt > attempt and found.status not in {Status.FAILED_RETRYABLE, Status.PENDING}
