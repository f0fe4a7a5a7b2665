"""What an attempt came to, as the engine has it: a whole response, or why there is none; and what its client is told of it."""

from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from gateway.core import decision as core
from gateway.core.decision import Doubt, Label, Settlement
from gateway.core.headers import first
from gateway.core.hints import HintedOutcome
from gateway.core.model import Earlier, Headers, Lease, StoredResponse
from gateway.core.policy import Mode, Policy
from gateway.core.problems import Problem
from gateway.engine.answers import LOOK_AGAIN, Answer, Passed, Refused
from gateway.engine.failures import failed, status_in_doubt, unreachable
from gateway.plan import GuardPlan
from gateway.ports import InDoubt, NotSent, Spool


@dataclass(slots=True)  # not frozen: one for every request, and that would cost three times as much
class Response:
    """A whole response. `headers` are the client's, `kept` those of the record. `body` is None once it outgrew what is kept.

    `hinted` and `retention` are what the upstream says of it, where the route trusts its word; a retention of 0 keeps no body.
    """

    status: int
    reason: bytes
    headers: Headers
    kept: Headers
    body: bytes | Spool | None
    length: int
    digest: bytes
    hinted: HintedOutcome | None = None
    retention: float | None = None

    def stored(self, body: bytes | None) -> StoredResponse:
        """As its record keeps it, with this body."""
        return StoredResponse(self.status, self.reason, self.kept, body, self.length, self.digest)


Outcome: TypeAlias = Response | NotSent | InDoubt


def as_core(outcome: Outcome) -> core.Outcome:
    """The outcome in the words of the rules that judge it."""
    match outcome:
        case Response(status):
            located = status not in core.REDIRECTS or bool(first(outcome.headers, b"location"))
            return core.Responded(status, outcome.hinted, located)
        case NotSent():
            return core.NotSent(outcome.reason.value)
        case InDoubt():
            return core.InDoubt(outcome.reason.value)
        case _:
            assert_never(outcome)


def judged(outcome: Outcome, guard: GuardPlan, earlier: Earlier) -> Settlement:
    """What the outcome means for its record, by the rules of `gateway.core.decision`."""
    if isinstance(outcome, Response) and outcome.hinted is None and earlier is Earlier.NOTHING and outcome.status not in core.REDIRECTS:
        return guard.settlements[outcome.status]
    return core.settle(as_core(outcome), guard.policy, earlier)


def label_of(lease: Lease) -> Label:
    """What an attempt under this lease is counted as."""
    if lease.reexecution:
        return Label.REEXECUTE
    return Label.EXECUTE if lease.attempt == 1 else Label.EXECUTE_RETRY


def first_answer(outcome: Outcome, settlement: Settlement, lease: Lease, policy: Policy) -> Answer:
    """What the client is told of an attempt that settles so. Of a repetition that leaves the doubt, it is told that nobody knows: a refusal
    would be taken for the operation's, and that nothing was sent for true of the attempts before.
    """
    match outcome:
        case Response() if lease.reexecution and isinstance(settlement, Doubt):
            return unknown_answer(outcome, lease, policy)
        case Response():
            return Passed(outcome.status, outcome.reason, outcome.headers, outcome.body or b"")
        case NotSent() if lease.reexecution:
            return replace(unknown_answer(None, lease, policy), cause=outcome.reason.value)
        case NotSent():
            return unreachable(outcome)
        case InDoubt():
            return unknown_answer(outcome, lease, policy)
        case _:
            assert_never(outcome)


def unknown_answer(outcome: Outcome | None, lease: Lease, policy: Policy) -> Refused:
    """What the client is told where nobody knows what its attempt did. `outcome` None: that is not known, either."""
    cause = outcome.reason.value if isinstance(outcome, InDoubt) else None
    if policy.mode is Mode.OBSERVE:
        return failed(cause)
    status = status_in_doubt(cause)
    members = {"upstream_status": outcome.status} if isinstance(outcome, Response) else {}
    if not policy.reconcilable:
        return Refused(Problem.OUTCOME_UNKNOWN, status, cause=cause, members=members)
    first_look = core.retry_after(lease.duration + policy.max_execution)
    return Refused(Problem.OUTCOME_UNKNOWN, status, retry_after=first_look, detail=LOOK_AGAIN, cause=cause, members=members)
