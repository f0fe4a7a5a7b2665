"""Verdicts that wait for a second person, and sessions that have ended: what gateways share about operators."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from gateway.core.model import RecordKey, Status, StoredResponse
from gateway.ports.reconciliation import Audit, Entry, Fence, Listed
from gateway.ports.store import Transition


@dataclass(frozen=True, slots=True)
class Proposal:
    """A verdict that somebody proposes. `change`: executed, not_executed or release; `response` is the answer of an *executed*.

    It is about the record with this `record_id`, in this attempt and state: a record that has come further makes it stale, another look
    does not. `identity` tells the proposer from others.
    """

    id: UUID
    key: RecordKey
    record_id: UUID
    attempt: int
    status: Status
    change: str
    proposer: str
    identity: str
    reason: str
    retention: float | None = None
    response: StoredResponse | None = None

    def fits(self, now: Listed) -> bool:
        """Whether the record is still as it was."""
        return (self.record_id, self.attempt, self.status) == (now.record_id, now.attempt, now.status)


@dataclass(frozen=True, slots=True)
class Proposed:
    """A proposal as it is kept. `route_id` is the record's, None if that is gone; `stale`: it can be confirmed no more."""

    proposal: Proposal
    at: dt.datetime
    expires_at: dt.datetime
    route_id: str | None
    stale: bool


class Approvals(Protocol):
    """Where proposals wait: one for each record at most."""

    async def propose(self, proposal: Proposal, fence: Fence, seconds: float, entry: Entry, audit: Audit) -> Transition:
        """Keep it for so long, with a line of history and of the audit. It takes the place of one that is stale, over, or of the same
        identity. STALE: the record is another than the fence says. ALREADY: another user's proposal stands.
        """
        ...

    async def proposal(self, key: RecordKey) -> Proposed | None:
        """That of the record, whole; None if there is none, or its time is over."""
        ...

    async def proposals(self, after: tuple[dt.datetime, UUID] | None, limit: int) -> Sequence[Proposed]:
        """Without their answers, the oldest first, after that instant and id."""
        ...

    async def take(self, proposal: Proposal) -> bool:
        """Take it away to be carried out. Of two who do this one is told True."""
        ...

    async def reject(self, proposal: Proposal, entry: Entry, audit: Audit) -> bool:
        """Take it away, with a line of history and of the audit. False: it was not there any more."""
        ...


class EndedSessions(Protocol):
    """Sessions of browsers that ended before their time, by digests of their names."""

    async def end_session(self, digest: bytes, at: int, seconds: float) -> None:
        """Remember for so long that what began at `at` (seconds since the epoch) or before has ended."""
        ...

    async def ended_sessions(self) -> Mapping[bytes, int]:
        """All that are remembered, and when they ended."""
        ...


class Shared(Approvals, EndedSessions, Protocol):
    """Both, as one store keeps them."""
