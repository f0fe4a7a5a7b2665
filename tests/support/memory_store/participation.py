"""What `gateway.ports.participation.Participation` means, and the functions by which upstreams complete records, in the plainest words."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from gateway.core.attempt_token import AttemptToken
from gateway.core.model import Headers, RecordKey, Status, StoredResponse
from gateway.core.recovery_point import RecoveryPoint
from gateway.ports.participation import Participant, Progress
from gateway.ports.reconciliation import Detail, Entry
from tests.support.memory_store.reconciliation import MemoryReconciliation
from tests.support.memory_store.rows import Row


class Superseded(Exception):
    """SQLSTATE IG001."""


class MemoryParticipation:
    """Over the rows of a `MemoryStore`. `complete` stands for a transaction of the upstream's that commits at once."""

    def __init__(self, rows: dict[RecordKey, Row], now: Callable[[], float], reconciliation: MemoryReconciliation) -> None:
        self._rows = rows
        self._now = now
        self._reconciliation = reconciliation
        self._participants: dict[str, Participant] = {}

    async def advance(self, token: AttemptToken, point: RecoveryPoint) -> Progress | None:
        row = self._owned(token, Status.IN_PROGRESS)
        if row is None:
            return None
        if row.recovery_point != point:
            detail: Detail = {"point": point.label, "attempt": row.attempt}
            await self._reconciliation.note(token.key, row.record_id, Entry("upstream", "advanced", detail))
        participant = self._participants.get(row.route_id)
        until = max(row.locked_until or 0.0, self._now() + (0.0 if participant is None else participant.lease))
        moved = replace(row, version=row.version + 1, recovery_point=point, locked_until=until, reconcile_after=until + row.max_execution)
        self._rows[token.key] = moved
        return Progress(row.attempt, point, until - self._now())

    async def progress(self, token: AttemptToken) -> Progress | None:
        row = self._owned(token, Status.IN_PROGRESS)
        return None if row is None else Progress(row.attempt, row.recovery_point, (row.locked_until or 0.0) - self._now())

    async def register(self, participants: Sequence[Participant]) -> None:
        self._participants |= {one.route_id: one for one in participants}

    def complete(self, token: AttemptToken, status: int, headers: Headers, body: bytes) -> None:
        """Raises `Superseded`."""
        row = self._owned(token, Status.IN_PROGRESS, Status.UNKNOWN)
        if row is None:
            raise Superseded
        stored = StoredResponse(status, b"", headers, body, len(body), hashlib.sha256(body).digest())
        retention = self._participants[row.route_id].retention
        self._rows[token.key] = replace(row.ended(Status.COMPLETED, self._now(), retention), response=stored)

    def _owned(self, token: AttemptToken, *states: Status) -> Row | None:
        row = self._rows.get(token.key)
        return row if row is not None and row.owner == token.owner and row.status in states and not row.observed else None
