"""`gateway.ports.approvals` over Postgres, in the operators' turn."""

import datetime as dt
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar
from uuid import UUID

from gateway.core.model import RecordKey, Status
from gateway.ports import Transition
from gateway.ports.approvals import Proposal, Proposed
from gateway.ports.reconciliation import Audit, Entry, Fence, Unsealable
from gateway.runtime.record_sealing import RecordSealer
from gateway.store.postgres.cursors import FIRST_INSTANT
from gateway.store.postgres.lane import Lane
from gateway.store.postgres.queries import QUERIES
from gateway.store.postgres.resolving_rows import audit_arguments, entry_arguments, fence_arguments, response_arguments
from gateway.store.postgres.rows import RESPONSE_COLUMNS, Row, decode_response

T = TypeVar("T")

_NO_ANSWER = (None,) * len(RESPONSE_COLUMNS)
_FIRST = UUID(int=0)


class Turn(Protocol):
    """One operator's call at a time (`PostgresOperations`)."""

    async def __call__(self, work: Callable[[Lane], Awaitable[T]]) -> T: ...


class PostgresApprovals:
    """`in_turn` runs a call when its turn has come. Raises `StoreUnavailable`."""

    def __init__(self, in_turn: Turn, sealer: RecordSealer) -> None:
        self._in_turn = in_turn
        self._sealer = sealer

    async def propose(self, proposal: Proposal, fence: Fence, seconds: float, entry: Entry, audit: Audit) -> Transition:
        """As `Approvals.propose`. An answer is sealed as the record's would be."""
        answer = proposal.response
        if answer is not None:
            answer = self._sealer.seal_answer(proposal.key, proposal.record_id, answer)
        rows = await self._fetch(
            "propose",
            *fence_arguments(fence),
            proposal.id,
            proposal.change,
            proposal.proposer,
            proposal.identity,
            proposal.reason,
            proposal.retention,
            seconds,
            *(_NO_ANSWER if answer is None else response_arguments(answer)),
            *entry_arguments(entry),
            *audit_arguments(audit),
        )
        return Transition(rows[0]["transition"])

    async def proposal(self, key: RecordKey) -> Proposed | None:
        """As `Approvals.proposal`. One whose answer no key opens is stale."""
        rows = await self._fetch("proposal", key.scope_id, key.key)
        if not rows:
            return None
        found, row = _proposed(rows[0]), rows[0]
        if found.proposal.change != "executed":
            return found
        kept = decode_response([row[column] for column in RESPONSE_COLUMNS])
        try:
            opened = self._sealer.open_answer(key, found.proposal.record_id, kept)
        except Unsealable:
            return replace(found, stale=True)
        return replace(found, proposal=replace(found.proposal, response=opened))

    async def proposals(self, after: tuple[dt.datetime, UUID] | None, limit: int) -> Sequence[Proposed]:
        """As `Approvals.proposals`."""
        rows = await self._fetch("proposals", *(after or (FIRST_INSTANT, _FIRST)), limit)
        return [_proposed(row) for row in rows]

    async def take(self, proposal: Proposal) -> bool:
        """As `Approvals.take`."""
        return bool(await self._fetch("take_proposal", proposal.key.scope_id, proposal.key.key, proposal.id))

    async def reject(self, proposal: Proposal, entry: Entry, audit: Audit) -> bool:
        """As `Approvals.reject`."""
        at = (proposal.key.scope_id, proposal.key.key, proposal.id)
        return bool(await self._fetch("reject_proposal", *at, *entry_arguments(entry), *audit_arguments(audit)))

    async def end_session(self, digest: bytes, at: int, seconds: float) -> None:
        """As `EndedSessions.end_session`."""
        await self._fetch("end_session", digest, seconds, at)

    async def ended_sessions(self) -> Mapping[bytes, int]:
        """As `EndedSessions.ended_sessions`."""
        return {row["digest"]: row["ended_at"] for row in await self._fetch("ended_sessions")}

    async def _fetch(self, query: str, *arguments: Any) -> list[Row]:
        return await self._in_turn(lambda lane: lane.fetch(QUERIES[query], *arguments))


def _proposed(row: Row) -> Proposed:
    proposal = Proposal(
        id=row["proposal_id"],
        key=RecordKey(row["scope_id"], row["idempotency_key"]),
        record_id=row["record_id"],
        attempt=row["attempt"],
        status=Status(row["status"]),
        change=row["change"],
        proposer=row["proposer"],
        identity=row["identity"],
        reason=row["reason"],
        retention=row["retention"],
    )
    return Proposed(proposal, row["proposed_at"], row["expires_at"], row["route_id"], row["stale"])
