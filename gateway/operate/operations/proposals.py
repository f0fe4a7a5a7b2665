"""A person's verdict, which may wait as a proposal for a second person, and what speaks against confirming one. Pure."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from gateway.core.model import RecordKey, StoredResponse
from gateway.core.units import format_duration
from gateway.operate.operations.inputs import By, Wrong, read_instant
from gateway.operate.operations.outcomes import Conflict
from gateway.operate.operations.rules import Change
from gateway.ports.approvals import Proposal
from gateway.ports.approvals import Proposed as Waiting
from gateway.ports.reconciliation import Detail, Listed

GONE = "There is no such proposal any more: it was confirmed, rejected, or waited too long."


@dataclass(frozen=True, slots=True)
class Said:
    """A verdict of a person; `approves` is the proposal that it confirms."""

    change: Change
    key: RecordKey
    by: By
    retention: float | None
    response: StoredResponse | None = None
    approves: Proposal | None = None

    @property
    def detail(self) -> Detail:
        """For history and audit."""
        told: dict[str, str | int] = {} if self.change is Change.RELEASE else {"verdict": self.change.value}
        if self.retention is not None:
            told["retention"] = format_duration(self.retention)
        if self.response is not None:
            told |= {"response_status": self.response.status, "response_length": self.response.body_length}
            told["response_sha256"] = self.response.body_digest.hex()
        if self.approves is not None:
            told |= {"proposed_by": self.approves.proposer, "proposed_because": self.approves.reason}
        return told

    def proposed(self, proposal_id: UUID, now: Listed) -> Proposal:
        """The same as a proposal about the record as it is now."""
        return Proposal(
            proposal_id,
            self.key,
            now.record_id,
            now.attempt,
            now.status,
            self.change.value,
            self.by.actor,
            self.by.identity,
            self.by.reason,
            self.retention,
            self.response,
        )


def not_to_approve(found: Waiting | None, proposal_id: UUID, by: By, now: Listed) -> Conflict | None:
    """What speaks against confirming it, whatever the verdict is. One's name tells, too: the configuration may have given somebody another
    identity since (`subject` of a user).
    """
    if found is None or found.proposal.id != proposal_id:
        return Conflict(now, GONE)
    if found.proposal.identity == by.identity or found.proposal.proposer == by.actor:
        return Conflict(now, "You have proposed it yourself: another user confirms it.")
    if found.stale or not found.proposal.fits(now):
        return Conflict(now, "The record has come further since this was proposed. Look at it again.")
    return None


def cursor_after(found: Sequence[Waiting], limit: int) -> str | None:
    """Where the next page of proposals begins; None behind the last one."""
    return f"{found[-1].at.isoformat().replace('+00:00', 'Z')}_{found[-1].proposal.id}" if len(found) == limit else None


def position_of(cursor: str | None) -> tuple[dt.datetime, UUID] | None:
    """What `Operator.proposals` takes as `after`. Raises `Wrong`."""
    if cursor is None:
        return None
    at, _, proposal = cursor.partition("_")
    try:
        return read_instant(at), UUID(proposal)
    except ValueError:
        raise Wrong("cursor", "this is no cursor: take it from the page before") from None
