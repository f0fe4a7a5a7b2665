"""What `gateway.ports.accepted.Acceptance` and `Store.park` mean, in the plainest words."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

from gateway.core.model import Earlier, Lease, RecordKey, Status, StoredResponse, Terms, Tombstone
from gateway.ports import Transition
from gateway.ports.accepted import Ended, Parked, Promise, Standing, Taken
from tests.support.memory_store.rows import Row, microseconds

Rows = dict[RecordKey, Row]


class MemoryAcceptance:
    """Over the rows of a `MemoryStore`."""

    def __init__(
        self, rows: Rows, now: Callable[[], float], boottime: Callable[[], float], buried: Callable[[RecordKey], Tombstone | None]
    ) -> None:
        self._rows = rows
        self._now = now
        self._boottime = boottime
        self._buried = buried

    async def tombstone(self, key: RecordKey) -> Tombstone | None:
        return self._buried(key)

    async def accept(self, lease: Lease, promise: Promise) -> Transition:
        row = self._rows.get(lease.key)
        if row is None:
            return Transition.MISSING
        if row.owner != lease.owner or row.status not in {Status.IN_PROGRESS, Status.UNKNOWN}:
            return Transition.ALREADY if row.owner == lease.owner and row.accepted_at is not None else Transition.STALE
        if row.accepted_at is not None:
            return Transition.ALREADY
        self._rows[lease.key] = row.accepted(self._now(), promise)
        return Transition.DONE

    async def park(self, lease: Lease, reason: str, delay: float, promise: Promise, *, unstarted: bool = False) -> Parked:
        row, now = self._rows.get(lease.key), self._now()
        if row is None:
            return Parked.MISSING
        mine = row.owner == lease.owner
        if mine and row.status is Status.PENDING:
            return Parked.ALREADY
        if not mine or row.status not in {Status.IN_PROGRESS, Status.UNKNOWN} or row.evidence or row.sealed is None or row.observed:
            return Parked.STALE
        if unstarted and self._full(lease.key, row, promise):
            if row.status is Status.IN_PROGRESS and row.attempt == 1 and row.accepted_at is None:
                del self._rows[lease.key]
            return Parked.FULL
        attempt = row.attempt - 1 if unstarted else row.attempt
        self._rows[lease.key] = replace(row.accepted(now, promise).parked(now + delay), attempt=attempt, last_error_code=reason)
        return Parked.DONE

    async def take(self, terms: Terms, limit: int, owners: Sequence[bytes], *, doubtful: float | None = None) -> Sequence[Taken]:
        now, started = self._now(), self._boottime()
        due = self._pending(terms.route_id, now) if doubtful is None else self._doubtful(terms.route_id, now, doubtful)
        taken: list[Taken] = []
        for key, owner in zip(due[:limit], owners, strict=False):
            row = self._rows[key]
            earlier = Earlier.DOUBTED if doubtful is not None else Earlier.JUDGED if row.judged else Earlier.NOTHING
            fresh = replace(
                row, owner=owner, attempt=row.attempt + 1, max_execution=terms.max_execution, reconcilable=terms.reconcilable, due_at=None
            )
            fresh = replace(fresh, looks=0, agreed=0, looked_at=None, agreed_at=None, doubtful_until=None, unknown_since=None)
            fresh = self._rows[key] = fresh.leased(now, terms.lease)
            lease = Lease(key, fresh.record_id, owner, fresh.attempt, started, terms.lease, earlier)
            assert fresh.sealed is not None
            assert fresh.accepted_at is not None
            assert fresh.pending_until is not None
            about = (fresh.route_id, fresh.request_id, fresh.method, fresh.target, fresh.fingerprint, fresh.captured, fresh.correlation)
            taken.append(Taken(lease, *about, fresh.sealed, now - fresh.accepted_at, max(fresh.pending_until - now, 0.0)))
        return taken

    async def give_back(self, owners: Sequence[bytes]) -> int:
        mine = [key for key, row in self._rows.items() if row.owner in owners and row.status is Status.IN_PROGRESS and row.accepted_at]
        for key in mine:
            row = self._rows[key]
            back = row.parked(self._now())
            self._rows[key] = replace(back, attempt=row.attempt - 1, last_error_code="take_reply_lost")
        return len(mine)

    async def abandon(self, limit: int, answer: StoredResponse) -> Sequence[Ended]:
        now = self._now()
        over = [key for key, row in self._rows.items() if row.status is Status.PENDING and (row.pending_until or 0.0) <= now][:limit]
        for key in over:
            self._end(key, answer, "abandoned")
        return [Ended(self._rows[key].route_id, self._rows[key].request_id) for key in over]

    async def cancel(self, standing: Standing, answer: StoredResponse) -> Transition:
        row = self._rows.get(standing.key)
        if row is None:
            return Transition.MISSING
        if row.record_id != standing.record_id or row.status is not Status.PENDING:
            done = row.record_id == standing.record_id and row.status is Status.COMPLETED and row.last_error_code == "cancelled"
            return Transition.ALREADY if done else Transition.STALE
        self._end(standing.key, answer, "cancelled")
        return Transition.DONE

    async def standing(self, key: RecordKey) -> Standing | None:
        row, now = self._rows.get(key), self._now()
        if row is None or row.observed:
            return None
        return Standing(
            key,
            row.record_id,
            row.version,
            row.status,
            row.attempt,
            microseconds(row.born) or 0,
            None,
            row.lease_live(now),
            row.expired(now),
            row.dead_lettered,
            None if row.due_at is None else max(row.due_at - now, 0.0),
            None if row.reconcile_after is None else max(row.reconcile_after - now, 0.0),
        )

    def _end(self, key: RecordKey, answer: StoredResponse, reason: str) -> None:
        row = self._rows[key]
        assert row.retention is not None
        ended = row.ended(Status.COMPLETED, self._now(), row.retention)
        self._rows[key] = replace(ended, response=answer, last_error_code=reason)

    def _full(self, key: RecordKey, row: Row, promise: Promise) -> bool:
        pending = [each for each, other in self._rows.items() if other.status is Status.PENDING and other.route_id == row.route_id]
        own = [each for each in pending if each.scope_id == key.scope_id]
        return len(pending) >= promise.per_route or len(own) >= promise.per_principal

    def _pending(self, route_id: str, now: float) -> list[RecordKey]:
        """What is due: of each principal the first, then of each the second, and so on."""
        due = sorted(
            (key.scope_id, row.due_at, key.key)
            for key, row in self._rows.items()
            if row.status is Status.PENDING and row.route_id == route_id and row.due_at is not None and row.due_at <= now
            if (row.pending_until or 0.0) > now
        )
        turns = [
            (turn, at, scope, key) for _, of_one in groupby(due, key=lambda each: each[0]) for turn, (scope, at, key) in enumerate(of_one)
        ]
        return [RecordKey(scope, key) for _, _, scope, key in sorted(turns)]

    def _doubtful(self, route_id: str, now: float, max_age: float) -> list[RecordKey]:
        rows = [
            (row.reconcile_after or 0.0, key.scope_id, key.key)
            for key, row in self._rows.items()
            if row.status is Status.UNKNOWN and row.route_id == route_id and row.accepted_at is not None and row.sealed is not None
            if row.born > now - max_age
            and not row.dead_lettered
            and row.evidence is None
            and row.over(now)
            and (row.reconcile_after or 0.0) <= now
        ]
        return [RecordKey(scope, key) for _, scope, key in sorted(rows)]
