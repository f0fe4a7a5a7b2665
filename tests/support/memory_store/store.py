"""The reference store: what `gateway.ports.Store` and `Maintenance` mean, in the plainest words. Nothing survives the process.

Its `reconciliation` says the same of `gateway.ports.reconciliation.Reconciliation`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from gateway.core.model import Earlier, Intent, Lease, Record, RecordKey, Status, StoredResponse, Tombstone
from gateway.ports import Answered, Counts, Doubted, Retention, Settled, Swept, Transition
from gateway.ports.accepted import Parked, Promise
from tests.support.memory_store.acceptance import MemoryAcceptance
from tests.support.memory_store.participation import MemoryParticipation
from tests.support.memory_store.reconciliation import MemoryReconciliation
from tests.support.memory_store.rows import Grave, Row, doubts_by_route, microseconds, new_life, pending_by_route, report

_LIVE_STATES = (Status.IN_PROGRESS, Status.UNKNOWN)


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class MemoryStore:
    """Records in a dict. `now` is the store's clock and `boottime` the holder's, both in seconds; transitions never await."""

    def __init__(self, now: Callable[[], float], boottime: Callable[[], float] = _boottime) -> None:
        self._now = now
        self._boottime = boottime
        self._rows: dict[RecordKey, Row] = {}
        self._graves: dict[bytes, Grave] = {}
        self._archive: list[tuple[float, Record]] = []
        self.reconciliation = MemoryReconciliation(self._rows, now)
        self.acceptance = MemoryAcceptance(self._rows, now, boottime, lambda key: self._tombstone(key, self._now()))
        self.participation = MemoryParticipation(self._rows, now, self.reconciliation)

    def now_us(self) -> int | None:
        return microseconds(self._now())

    async def reserve(self, intent: Intent) -> Lease | Record | Tombstone:
        started, now = self._boottime(), self._now()
        row = self._rows.get(intent.key)
        if row is None and intent.terms.gone_for is not None and (tombstone := self._tombstone(intent.key, now)) is not None:
            return tombstone
        if row is None or row.yields_to(intent):
            self._keep(intent.key, row, now)
            row = new_life(intent, now, version=0 if row is None else row.version).leased(now, intent.terms.lease)
            self._rows[intent.key] = row
        else:
            return report(intent.key, row, now)
        return Lease(intent.key, row.record_id, intent.owner, row.attempt, started, intent.terms.lease, intent=intent)

    async def claim(self, found: Record, intent: Intent) -> Lease | None:
        started, now = self._boottime(), self._now()
        row = self._exactly(found)
        if row is None or found.expired != row.expired(now):
            return None
        if found.expired and (row.status not in _LIVE_STATES or row.yields_to(intent)):
            self._keep(found.key, row, now)
            taken = new_life(intent, now, row.version)
        elif row.claimable(intent, now) and (row.fingerprint == intent.fingerprint or not row.same_policy(intent.fingerprint)):
            taken = replace(new_life(intent, row.born, row.version), record_id=row.record_id, attempt=row.attempt + 1)
            taken = replace(taken, fingerprint=row.fingerprint, last_error_code=row.last_error_code, judged=row.judged)
            taken = replace(taken, recovery_point=row.recovery_point)
            if row.promised and row.status is Status.UNKNOWN:
                taken = row.promised_anew(taken, now)
        else:
            return None
        self._rows[found.key] = taken.leased(now, intent.terms.lease)
        return Lease(found.key, taken.record_id, intent.owner, taken.attempt, started, intent.terms.lease, found.earlier, intent)

    async def lapse(self, found: Record) -> bool:
        row, now = self._exactly(found), self._now()
        if row is None or row.status is not Status.IN_PROGRESS or row.lease_live(now):
            return False
        self._rows[found.key] = row.doubted(now, "lease_expired")
        return True

    async def find(self, key: RecordKey) -> Record | None:
        row = self._rows.get(key)
        return None if row is None else report(key, row, self._now())

    async def complete(self, lease: Lease, response: StoredResponse, retention: Retention) -> Settled:
        row = self._rows.get(lease.key)
        if row is None or row.owner != lease.owner:
            return _refused(row)
        if row.status is not Status.COMPLETED:
            row = replace(row.ended(Status.COMPLETED, self._now(), retention), response=response, by_owner=True)
            self._rows[lease.key] = row
            return Settled(Transition.DONE, microseconds(row.expires_at))
        stored = row.response
        if stored is not None and _told(stored, row) == _told(response, row):
            return Settled(Transition.ALREADY, microseconds(row.expires_at))
        return Settled(Transition.STALE)

    async def release(self, lease: Lease, reason: str, retention: Retention) -> Settled:
        row = self._rows.get(lease.key)
        if row is None or row.owner != lease.owner:
            return _refused(row)
        if row.evidence is not None:
            if row.status is Status.IN_PROGRESS:
                self._rows[lease.key] = row.doubted(self._now(), reason)
            return Settled(Transition.STALE)
        if row.status in _LIVE_STATES:
            released = row.ended(Status.FAILED_RETRYABLE, self._now(), retention)
            self._rows[lease.key] = replace(released, last_error_code=reason)
            return Settled(Transition.DONE)
        return Settled(Transition.ALREADY if row.status is Status.FAILED_RETRYABLE else Transition.STALE)

    async def doubt(self, lease: Lease, reason: str) -> Settled:
        row = self._rows.get(lease.key)
        if row is None or row.owner != lease.owner:
            return _refused(row)
        if row.status is Status.IN_PROGRESS:
            self._rows[lease.key] = row.doubted(self._now(), reason)
            return Settled(Transition.DONE)
        return Settled(Transition.ALREADY if row.status is Status.UNKNOWN else Transition.STALE)

    async def park(self, lease: Lease, reason: str, delay: float, promise: Promise, *, unstarted: bool = False) -> Parked:
        return await self.acceptance.park(lease, reason, delay, promise, unstarted=unstarted)

    async def restore(self, lease: Lease, intent: Intent, end: Answered | Doubted) -> Settled:
        if lease.key not in self._rows:
            life = replace(new_life(intent, self._now(), version=0), record_id=lease.record_id, attempt=lease.attempt)
            life = replace(life, judged=lease.earlier is not Earlier.NOTHING)
            self._rows[lease.key] = life.leased(self._now(), lease.duration)
        if isinstance(end, Answered):
            return await self.complete(lease, end.response, end.retention)
        return await self.doubt(lease, end.reason)

    async def renew(self, leases: Sequence[Lease]) -> frozenset[bytes]:
        renewed: set[bytes] = set()
        for lease in leases:
            row = self._rows.get(lease.key)
            if row is not None and row.owner == lease.owner and row.status is Status.IN_PROGRESS:
                self._rows[lease.key] = row.leased(self._now(), lease.duration)
                renewed.add(lease.owner)
        return frozenset(renewed)

    async def sweep(self, limit: int) -> Sequence[Swept]:
        now = self._now()
        lapsed = [(row.locked_until or 0.0, key) for key, row in self._rows.items() if row.status is Status.IN_PROGRESS]
        lapsed = sorted((pair for pair in lapsed if pair[0] <= now), key=lambda pair: pair[0])
        swept: list[Swept] = []
        for _, key in lapsed[:limit]:
            row = self._rows[key]
            self._rows[key] = row.doubted(now, "lease_expired")
            swept.append(Swept(key, row.route_id, row.request_id, row.attempt))
        return swept

    async def reap(self, limit: int) -> int:
        now = self._now()
        expired = [key for key, row in self._rows.items() if row.reapable(now)][:limit]
        for key in expired:
            self._bury(key, self._rows.pop(key), now)
        return len(expired)

    async def purge(self, limit: int) -> int:
        now = self._now()
        graves = [digest for digest, grave in self._graves.items() if grave.expires_at <= now][:limit]
        for digest in graves:
            del self._graves[digest]
        over = [kept for kept in self._archive if kept[0] <= now][:limit]
        self._archive = [kept for kept in self._archive if kept not in over]
        kept = {row.record_id for row in self._rows.values()} | {record.record_id for _, record in self._archive}
        return len(graves) + len(over) + self.reconciliation.purge(kept, limit)

    def archived(self) -> list[Record]:
        """What the archive holds, each record as it was when it was reaped."""
        return [record for _, record in self._archive]

    async def watch_clock(self) -> None:
        """Nobody sets it."""

    async def counts(self) -> Counts:
        states = [row.status for row in self._rows.values() if row.status is not Status.UNKNOWN or not row.observed]
        looked_for = [row for row in self._rows.values() if not (row.observed or row.dead_lettered)]
        doubted = [row.unknown_since for row in looked_for if row.unknown_since is not None]
        return Counts(
            in_progress=states.count(Status.IN_PROGRESS),
            completed=states.count(Status.COMPLETED),
            failed_retryable=states.count(Status.FAILED_RETRYABLE),
            unknown=states.count(Status.UNKNOWN),
            dead_letters=sum(row.dead_lettered for row in self._rows.values()),
            unknown_oldest_age=self._now() - min(doubted) if doubted else 0.0,
            by_route=doubts_by_route(self._rows.values(), self._now()),
            pending=states.count(Status.PENDING),
            pending_by_route=pending_by_route(self._rows.values(), self._now()),
        )

    def _tombstone(self, key: RecordKey, now: float) -> Tombstone | None:
        grave = self._graves.get(key.lookup_digest())
        if grave is None or grave.expires_at <= now:
            return None
        return Tombstone(key, grave.route_id, grave.expires_at - now, round(grave.expires_at * 1_000_000))

    def _bury(self, key: RecordKey, row: Row, now: float) -> None:
        """Leave what the retention of a deleted row says."""
        assert row.expires_at is not None
        if row.gone_for is not None:
            digest, until = key.lookup_digest(), row.expires_at + row.gone_for
            older = self._graves.get(digest)
            self._graves[digest] = Grave(row.route_id, until if older is None else max(until, older.expires_at))
        if row.keep_for is not None:
            self._archive.append((row.expires_at + row.keep_for, report(key, row, now)))

    def _keep(self, key: RecordKey, row: Row | None, now: float) -> None:
        """Archive an expired row that a new life replaces."""
        if row is not None and row.expires_at is not None and row.keep_for is not None and row.expired(now):
            self._archive += [(row.expires_at + row.keep_for, report(key, row, now))] if row.expires_at + row.keep_for > now else []

    def _exactly(self, found: Record) -> Row | None:
        """The row, if it is still the one that was found."""
        row = self._rows.get(found.key)
        return row if row is not None and (row.record_id, row.version) == (found.record_id, found.version) else None


def _refused(row: Row | None) -> Settled:
    return Settled(Transition.MISSING if row is None else Transition.STALE)


def _told(response: StoredResponse, row: Row) -> tuple[object, ...]:
    """What must be equal in two answers for one to be the other's repetition."""
    return response.status, response.body_digest, () if row.by_owner else response.headers
