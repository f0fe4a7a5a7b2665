"""The reference store: what `gateway.ports.Store` and `Maintenance` mean, in the plainest words. Nothing survives the process."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

from gateway.core.model import Fingerprint, Intent, Lease, Record, RecordKey, Status, StoredResponse
from gateway.ports import Counts, Settled, Swept, Transition

_LIVE_STATES = (Status.IN_PROGRESS, Status.UNKNOWN)


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class _Row:
    """One record. Instants are readings of the store's clock."""

    record_id: UUID
    version: int
    status: Status
    fingerprint: Fingerprint
    owner: bytes
    attempt: int
    route_id: str
    request_id: str
    max_execution: float
    reconcilable: bool
    locked_until: float | None = None
    reconcile_after: float | None = None
    unknown_since: float | None = None
    dead_lettered: bool = False
    expires_at: float | None = None
    last_error_code: str | None = None
    response: StoredResponse | None = None

    def lease_live(self, now: float) -> bool:
        return self.locked_until is not None and self.locked_until > now

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def same_policy(self, fingerprint: Fingerprint) -> bool:
        return (self.fingerprint.version, self.fingerprint.policy) == (fingerprint.version, fingerprint.policy)

    def leased(self, now: float, duration: float) -> "_Row":
        """In progress, with a lease of `duration` from `now`."""
        until = now + duration
        return replace(
            self,
            version=self.version + 1,
            status=Status.IN_PROGRESS,
            locked_until=until,
            reconcile_after=until + self.max_execution,
            expires_at=None,
        )

    def doubted(self, now: float, reason: str) -> "_Row":
        """Unknown, for `reason`; a dead letter at once when nobody can find out."""
        return replace(
            self,
            version=self.version + 1,
            status=Status.UNKNOWN,
            last_error_code=reason,
            locked_until=None,
            unknown_since=now,
            dead_lettered=not self.reconcilable,
        )

    def ended(self, status: Status, expires_at: float) -> "_Row":
        return replace(
            self,
            version=self.version + 1,
            status=status,
            locked_until=None,
            reconcile_after=None,
            unknown_since=None,
            dead_lettered=False,
            expires_at=expires_at,
        )


class MemoryStore:
    """Records in a dict. `now` is the store's clock and `boottime` the holder's, both in seconds; transitions never await."""

    def __init__(self, now: Callable[[], float], boottime: Callable[[], float] = _boottime) -> None:
        self._now = now
        self._boottime = boottime
        self._rows: dict[RecordKey, _Row] = {}

    def now_us(self) -> int | None:
        return _microseconds(self._now())

    async def reserve(self, intent: Intent) -> Lease | Record:
        started, now = self._boottime(), self._now()
        row = self._rows.get(intent.key)
        if row is None:
            row = _new_life(intent, version=0).leased(now, intent.lease)
            self._rows[intent.key] = row
        elif row.owner == intent.owner and row.status is Status.IN_PROGRESS and row.lease_live(now):
            assert row.locked_until is not None
            started += min(row.locked_until - now - intent.lease, 0.0)  # this statement landed before: its lease began then
        else:
            return _report(intent.key, row, now)
        return Lease(intent.key, row.record_id, intent.owner, row.attempt, started, intent.lease)

    async def claim(self, found: Record, intent: Intent) -> Lease | None:
        started, now = self._boottime(), self._now()
        row = self._exactly(found)
        if row is None or found.expired != row.expired(now):
            return None
        if found.expired:
            taken = _new_life(intent, row.version)
        elif row.status is Status.FAILED_RETRYABLE and (row.fingerprint == intent.fingerprint or not row.same_policy(intent.fingerprint)):
            taken = replace(_new_life(intent, row.version), record_id=row.record_id, attempt=row.attempt + 1)
            taken = replace(taken, fingerprint=row.fingerprint, last_error_code=row.last_error_code)
        else:
            return None
        self._rows[found.key] = taken.leased(now, intent.lease)
        return Lease(found.key, taken.record_id, intent.owner, taken.attempt, started, intent.lease)

    async def lapse(self, found: Record) -> bool:
        row, now = self._exactly(found), self._now()
        if row is None or row.status is not Status.IN_PROGRESS or row.lease_live(now):
            return False
        self._rows[found.key] = row.doubted(now, "lease_expired")
        return True

    async def find(self, key: RecordKey) -> Record | None:
        row = self._rows.get(key)
        return None if row is None else _report(key, row, self._now())

    async def complete(self, lease: Lease, response: StoredResponse, retention: float) -> Settled:
        row = self._rows.get(lease.key)
        if row is None or row.owner != lease.owner:
            return _refused(row)
        if row.status is not Status.COMPLETED:
            row = replace(row.ended(Status.COMPLETED, self._now() + retention), response=response)
            self._rows[lease.key] = row
            return Settled(Transition.DONE, _microseconds(row.expires_at))
        stored = row.response
        if stored is not None and (stored.status, stored.body_digest) == (response.status, response.body_digest):
            return Settled(Transition.ALREADY, _microseconds(row.expires_at))
        return Settled(Transition.STALE)

    async def release(self, lease: Lease, reason: str, retention: float) -> Settled:
        row = self._rows.get(lease.key)
        if row is None or row.owner != lease.owner:
            return _refused(row)
        if row.status in _LIVE_STATES:
            released = row.ended(Status.FAILED_RETRYABLE, self._now() + retention)
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
        expired = [key for key, row in self._rows.items() if row.expired(now)][:limit]
        for key in expired:
            del self._rows[key]
        return len(expired)

    async def counts(self) -> Counts:
        states = [row.status for row in self._rows.values()]
        doubted = [row.unknown_since for row in self._rows.values() if row.unknown_since is not None]
        return Counts(
            in_progress=states.count(Status.IN_PROGRESS),
            completed=states.count(Status.COMPLETED),
            failed_retryable=states.count(Status.FAILED_RETRYABLE),
            unknown=states.count(Status.UNKNOWN),
            dead_letters=sum(row.dead_lettered for row in self._rows.values()),
            unknown_oldest_age=self._now() - min(doubted) if doubted else 0.0,
        )

    def _exactly(self, found: Record) -> _Row | None:
        """The row, if it is still the one that was found."""
        row = self._rows.get(found.key)
        return row if row is not None and (row.record_id, row.version) == (found.record_id, found.version) else None


def _new_life(intent: Intent, version: int) -> _Row:
    return _Row(
        record_id=uuid4(),
        version=version,
        status=Status.IN_PROGRESS,
        fingerprint=intent.fingerprint,
        owner=intent.owner,
        attempt=1,
        route_id=intent.route_id,
        request_id=intent.request_id,
        max_execution=intent.max_execution,
        reconcilable=intent.reconcilable,
    )


def _refused(row: _Row | None) -> Settled:
    return Settled(Transition.MISSING if row is None else Transition.STALE)


def _report(key: RecordKey, row: _Row, now: float) -> Record:
    return Record(
        key=key,
        record_id=row.record_id,
        version=row.version,
        status=row.status,
        fingerprint=row.fingerprint,
        owner=row.owner,
        attempt=row.attempt,
        request_id=row.request_id,
        lease_live=row.lease_live(now),
        expired=row.expired(now),
        dead_lettered=row.dead_lettered,
        reconcile_in=_left(row.reconcile_after, now),
        expires_in=_left(row.expires_at, now),
        expires_at_us=_microseconds(row.expires_at),
        last_error_code=row.last_error_code,
        response=row.response,
    )


def _left(instant: float | None, now: float) -> float | None:
    return None if instant is None else max(instant - now, 0.0)


def _microseconds(instant: float | None) -> int | None:
    return None if instant is None else round(instant * 1_000_000)
