"""The reference of `gateway.ports.reconciliation.Reconciliation`: the rows of a `MemoryStore`, and what is remembered of them."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from gateway.core.model import RecordKey, Status, StoredResponse
from gateway.ports import Retention, Transition
from gateway.ports.reconciliation import Audit, Doubtful, Entry, Event, Evidence, Fence, Remembered, Subject
from tests.support.memory_store.rows import Row, as_datetime, report

HISTORY_KEPT = 90 * 86400.0
"""Seconds that a line of history outlives its record, counted from when it was written."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of history or audit, with its instant on the store's clock."""

    at: float
    key: RecordKey
    record_id: UUID
    said: Entry | Audit


class MemoryReconciliation:
    """Over `rows`, which belong to a `MemoryStore`. `now` is its clock, in seconds; no method awaits anything."""

    def __init__(self, rows: dict[RecordKey, Row], now: Callable[[], float]) -> None:
        self._rows = rows
        self._now = now
        self._history: list[Line] = []
        self._events: dict[tuple[str, bytes], float] = {}
        self._audit: list[Line] = []

    def history(self, key: RecordKey) -> list[Remembered]:
        """What is remembered under a key, oldest first."""
        return [Remembered(as_datetime(line.at), line.said) for line in self._history if line.key == key and isinstance(line.said, Entry)]

    def audit(self, key: RecordKey) -> list[Audit]:
        """What operators did under a key, oldest first."""
        return [line.said for line in self._audit if line.key == key and isinstance(line.said, Audit)]

    def purge(self, kept: Collection[UUID], limit: int) -> int:
        """Forget events whose time is over, and old history of records that are not among `kept`; how many."""
        now = self._now()
        events = [event for event, until in self._events.items() if until <= now][:limit]
        for event in events:
            del self._events[event]
        over = [line for line in self._history if line.at + HISTORY_KEPT <= now and line.record_id not in kept][:limit]
        self._history = [line for line in self._history if line not in over]
        return len(events) + len(over)

    async def due_routes(self, route_ids: Sequence[str]) -> frozenset[str]:
        """Those of the routes that have a record for `take_due` now."""
        return frozenset(route for route in route_ids if self._due(route))

    async def take_due(self, route_id: str, limit: int, hold: float, owners: Sequence[bytes] = ()) -> Sequence[Doubtful]:
        now = self._now()
        taken: list[Doubtful] = []
        for n, key in enumerate(self._due(route_id)[:limit]):
            row = self._rows[key]
            until = row.doubtful_until
            assert until is not None
            acts = bool(owners) and row.evidence is None
            self._rows[key] = replace(
                row,
                version=row.version + 1,
                owner=owners[n] if acts else row.owner,
                looks=row.looks + 1,
                looked_at=now,
                looked_over=row.over(now),
                reconcile_after=now + hold,
                doubtful_until=max(until, now + hold + row.max_execution) if acts else until,
            )
            taken.append(_doubtful(key, self._rows[key], now, over=row.over(now)))
        return taken

    async def conclude_executed(
        self,
        fence: Fence,
        response: StoredResponse,
        retention: Retention,
        entry: Entry,
        event: Event | None = None,
        audit: Audit | None = None,
    ) -> Transition:
        row, now = self._fenced(fence, event), self._now()
        if row is None:
            return self._refused(fence)
        lapsed = row.status is Status.IN_PROGRESS and not row.lease_live(now)
        free = row.status is Status.FAILED_RETRYABLE and not row.expired(now)
        if not (row.status in {Status.UNKNOWN, Status.PENDING} or lapsed or free):
            return Transition.STALE
        return self._done(fence, replace(row.ended(Status.COMPLETED, now, retention), response=response), entry, event, audit)

    async def conclude_not_executed(
        self,
        fence: Fence,
        reason: str,
        retention: Retention,
        entry: Entry,
        event: Event | None = None,
        audit: Audit | None = None,
        *,
        looked: bool = False,
    ) -> Transition:
        """As the port says. STALE, too, where there is evidence of execution."""
        row, now = self._fenced(fence, event), self._now()
        if row is None:
            return self._refused(fence)
        over = row.looked_at is not None and row.looked_over if looked else row.over(now)
        if row.status is not Status.UNKNOWN or row.evidence is not None or not over:
            return Transition.STALE
        return self._done(fence, row.freed(now, retention, reason), entry, event, audit)

    async def look_again(
        self, fence: Fence, seconds: float, *, agreed: bool | None, entry: Entry, event: Event | None = None, ended: bool | None = None
    ) -> Transition:
        row, now = self._fenced(fence, event), self._now()
        if row is None or row.status is not Status.UNKNOWN:
            return self._refused(fence)
        began = now if event is not None or row.looked_at is None else row.looked_at
        count = row.agreed if agreed is None else row.agreed + 1 if agreed else 0
        last = row.agreed_at if agreed is None else began if agreed else None
        until = row.doubtful_until
        if ended and row.looked_over and until is not None and row.looked_at is not None:
            until = min(until, row.looked_at)
        due = now + seconds if ended is not False or until is None else max(now + seconds, until)
        again = replace(row, version=row.version + 1, reconcile_after=due, agreed=count, agreed_at=last, doubtful_until=until)
        return self._done(fence, again, entry, event)

    async def dead_letter(self, fence: Fence, entry: Entry) -> Transition:
        row = self._fenced(fence)
        if row is None or row.status is not Status.UNKNOWN or row.dead_lettered:
            return self._refused(fence)
        return self._done(fence, replace(row, version=row.version + 1, dead_lettered=True), entry)

    async def find_captured(self, scope: str, value: str, limit: int = 2) -> Sequence[Subject]:
        now = self._now()
        found = [(key, row) for key, row in self._rows.items() if key.scope_id.startswith(f"{scope}:") and row.correlation == value]
        return [_subject(key, row, now) for key, row in found if row.captured and not row.observed][:limit]

    async def attach(self, fence: Fence, evidence: Evidence, event: Event | None) -> Transition:
        row = self._fenced(fence, event)
        if row is None or row.status is not Status.IN_PROGRESS:
            return self._refused(fence)
        kept = row.evidence if row.evidence is not None and evidence.response.body is None else evidence
        return self._done(fence, replace(row, version=row.version + 1, evidence=kept), evidence.entry, event)

    async def abandon(self, route_ids: Sequence[str], overdue: float, limit: int, entry: Entry) -> Sequence[str]:
        routes = {row.route_id for row in self._rows.values()} - set(route_ids)
        late = [(key, self._rows[key]) for route in routes for key in self._due(route, overdue)][:limit]
        for key, row in late:
            self._done(Fence(key, row.record_id, row.version), replace(row, version=row.version + 1, dead_lettered=True), entry)
        return [row.route_id for _, row in late]

    async def seen(self, event: Event) -> bool:
        return self._known(event)

    async def remember(self, event: Event) -> None:
        known, until = (event.webhook, event.digest), self._now() + event.remember
        self._events[known] = max(self._events.get(known, 0.0), until)

    async def note(self, key: RecordKey, record_id: UUID, entry: Entry) -> None:
        self._history.append(Line(self._now(), key, record_id, entry))

    def _due(self, route_id: str, overdue: float = 0.0) -> list[RecordKey]:
        """What `take_due` would take now, and would have taken `overdue` seconds ago; the longest due first."""
        now = self._now() - overdue
        waiting = [
            (row.reconcile_after or 0.0, key)
            for key, row in self._rows.items()
            if row.route_id == route_id and row.status is Status.UNKNOWN and not row.dead_lettered and not row.observed
        ]
        return [key for due, key in sorted(waiting, key=lambda pair: pair[0]) if due <= now]

    def _known(self, event: Event | None) -> bool:
        return event is not None and self._events.get((event.webhook, event.digest), 0.0) > self._now()

    def _fenced(self, fence: Fence, event: Event | None = None) -> Row | None:
        """The row as somebody saw it, if it is still so and guards anything, and the event is new."""
        row = self._rows.get(fence.key)
        if row is None or row.observed or self._known(event) or (row.record_id, row.version) != (fence.record_id, fence.version):
            return None
        return row

    def _refused(self, fence: Fence) -> Transition:
        return Transition.STALE if fence.key in self._rows else Transition.MISSING

    def _done(self, fence: Fence, row: Row, entry: Entry, event: Event | None = None, audit: Audit | None = None) -> Transition:
        now = self._now()
        self._rows[fence.key] = row
        self._history.append(Line(now, fence.key, row.record_id, entry))
        if event is not None:
            known = (event.webhook, event.digest)
            self._events[known] = max(self._events.get(known, 0.0), now + event.remember)
        if audit is not None:
            self._audit.append(Line(now, fence.key, row.record_id, audit))
        return Transition.DONE


def _doubtful(key: RecordKey, row: Row, now: float, *, over: bool) -> Doubtful:
    assert row.unknown_since is not None
    assert row.last_error_code is not None
    return Doubtful(
        fence=Fence(key, row.record_id, row.version),
        owner=row.owner,
        route_id=row.route_id,
        request_id=row.request_id,
        method=row.method,
        target=row.target,
        attempt=row.attempt,
        reason=row.last_error_code,
        look=row.looks,
        agreed=row.agreed,
        agreed_ago=None if row.agreed_at is None else now - row.agreed_at,
        over=over,
        age=now - max(row.unknown_since, row.requeued_at or row.unknown_since),
        born_ago=now - row.born,
        captured=row.captured,
        sealed=row.sealed,
        evidence=row.evidence,
    )


def _subject(key: RecordKey, row: Row, now: float) -> Subject:
    record = report(key, row, now)
    ran_out = row.status is Status.IN_PROGRESS and row.reconcile_after is not None and row.reconcile_after <= now
    return Subject(
        fence=Fence(key, row.record_id, row.version),
        status=row.status,
        lease_live=record.lease_live,
        expired=record.expired,
        dead_lettered=row.dead_lettered,
        route_id=row.route_id,
        request_id=row.request_id,
        attempt=row.attempt,
        agreed=row.agreed,
        agreed_ago=None if row.agreed_at is None else now - row.agreed_at,
        over=row.over(now) or ran_out,
        captured=row.captured,
    )
