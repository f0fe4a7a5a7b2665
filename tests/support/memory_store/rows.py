"""Rows of the reference store: what each transition does to a record, and how it is reported."""

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID, uuid4

from gateway.core.model import Fingerprint, Intent, Record, RecordKey, Status, StoredResponse
from gateway.core.recovery_point import RecoveryPoint
from gateway.ports import OBSERVED_DOUBT_KEPT, TOMBSTONE_AFTER, Retention, RouteDoubt, RoutePending
from gateway.ports.accepted import Promise
from gateway.ports.reconciliation import Evidence


@dataclass(frozen=True, slots=True)
class Row:
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
    observed: bool
    born: float
    method: str
    target: bytes
    captured: Mapping[str, str] = field(default_factory=dict)
    correlation: str | None = None
    sealed: bytes | None = None
    evidence: Evidence | None = None
    locked_until: float | None = None
    reconcile_after: float | None = None
    unknown_since: float | None = None
    doubtful_until: float | None = None
    looks: int = 0
    looked_at: float | None = None
    looked_over: bool = False
    agreed: int = 0
    agreed_at: float | None = None
    dead_lettered: bool = False
    requeued_at: float | None = None
    expires_at: float | None = None
    last_error_code: str | None = None
    judged: bool = False
    response: StoredResponse | None = None
    recovery_point: RecoveryPoint | None = None
    by_owner: bool = False
    retention: Retention | None = None
    accepted_at: float | None = None
    pending_until: float | None = None
    due_at: float | None = None

    def lease_live(self, now: float) -> bool:
        return self.locked_until is not None and self.locked_until > now

    def over(self, now: float) -> bool:
        """In doubt, and the upstream has surely finished."""
        return self.doubtful_until is not None and self.doubtful_until <= now

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def same_policy(self, fingerprint: Fingerprint) -> bool:
        return (self.fingerprint.version, self.fingerprint.policy) == (fingerprint.version, fingerprint.policy)

    def leased(self, now: float, duration: float) -> "Row":
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

    def doubted(self, now: float, reason: str) -> "Row":
        """Unknown, for `reason`; a dead letter at once when nobody can find out."""
        return replace(
            self,
            version=self.version + 1,
            status=Status.UNKNOWN,
            last_error_code=reason,
            locked_until=None,
            unknown_since=now,
            doubtful_until=self.reconcile_after,
            reconcile_after=self.reconcile_after if self.evidence is None else now,
            looks=0,
            looked_at=None,
            agreed=0,
            agreed_at=None,
            dead_lettered=not self.reconcilable and not self.observed and self.evidence is None,
            expires_at=now + OBSERVED_DOUBT_KEPT if self.observed else None,
        )

    def accepted(self, now: float, promise: Promise) -> "Row":
        """Promised to be run, if it was not before."""
        first = self.accepted_at is None
        return replace(
            self,
            version=self.version + 1,
            accepted_at=now if first else self.accepted_at,
            pending_until=now + promise.pending_for if first else self.pending_until,
            retention=promise.retention,
        )

    def parked(self, due_at: float) -> "Row":
        """Pending, until then at least."""
        return replace(
            self,
            version=self.version + 1,
            status=Status.PENDING,
            due_at=due_at,
            locked_until=None,
            reconcile_after=None,
            unknown_since=None,
            doubtful_until=None,
            dead_lettered=False,
            evidence=None,
            expires_at=None,
        )

    @property
    def promised(self) -> bool:
        """Whether somebody was told that it will be run, and it can be."""
        return self.accepted_at is not None and self.sealed is not None

    def promised_anew(self, taken: "Row", now: float) -> "Row":
        """What was `taken` of this doubt, owed to those who were promised it."""
        assert self.accepted_at is not None, "it was promised"
        assert self.pending_until is not None, "it was promised"
        until, sealed = now + self.pending_until - self.accepted_at, taken.sealed or self.sealed
        return replace(taken, accepted_at=now, pending_until=until, retention=self.retention, sealed=sealed)

    def freed(self, now: float, retention: Retention, reason: str) -> "Row":
        """Judged not to have been executed: accepted work waits to be run once more, other keys are free."""
        free = self.parked(now) if self.promised else self.ended(Status.FAILED_RETRYABLE, now, retention)
        return replace(free, last_error_code=reason, judged=True)

    def ended(self, status: Status, now: float, retention: Retention) -> "Row":
        return replace(
            self,
            version=self.version + 1,
            status=status,
            locked_until=None,
            reconcile_after=None,
            unknown_since=None,
            doubtful_until=None,
            dead_lettered=False,
            sealed=None,
            evidence=None,
            due_at=None,
            expires_at=now + retention.seconds,
            retention=retention,
        )

    def yields_to(self, intent: Intent) -> bool:
        """Whether it only observed, and the intent enforces."""
        return self.observed and not intent.terms.observed and self.status is not Status.COMPLETED

    def claimable(self, intent: Intent, now: float) -> bool:
        """Whether the next attempt may begin: nothing was executed, or the intent says that executing again does no harm."""
        if self.status is Status.FAILED_RETRYABLE:
            return True
        doubtful = self.status is Status.UNKNOWN and not self.dead_lettered and not self.observed and self.evidence is None
        return doubtful and intent.terms.reexecute and self.over(now)

    def reapable(self, now: float) -> bool:
        return self.expired(now) and (self.gone_for is None or self.born + TOMBSTONE_AFTER <= now)

    @property
    def gone_for(self) -> float | None:
        """How long a tombstone shall remember it."""
        return self.retention.gone_for if self.status is Status.COMPLETED and self.retention is not None else None

    @property
    def keep_for(self) -> float | None:
        """How long the archive shall keep it."""
        return None if self.retention is None else self.retention.keep_for


@dataclass(frozen=True, slots=True)
class Grave:
    """What a tombstone says."""

    route_id: str
    expires_at: float


def new_life(intent: Intent, born: float, version: int) -> Row:
    return Row(
        record_id=uuid4(),
        version=version,
        status=Status.IN_PROGRESS,
        fingerprint=intent.fingerprint,
        owner=intent.owner,
        attempt=1,
        route_id=intent.terms.route_id,
        request_id=intent.request_id,
        max_execution=intent.terms.max_execution,
        reconcilable=intent.terms.reconcilable,
        observed=intent.terms.observed,
        born=born,
        method=intent.method,
        target=intent.target,
        captured=intent.captured or {},
        correlation=intent.correlation,
        sealed=intent.sealed,
    )


def report(key: RecordKey, row: Row, now: float) -> Record:
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
        expires_at_us=microseconds(row.expires_at),
        last_error_code=row.last_error_code,
        doubt_over=row.status is Status.UNKNOWN and row.over(now),
        born_ago=now - row.born,
        judged=row.judged,
        response=row.response,
        observed=row.observed,
        accepted=row.accepted_at is not None,
        due_in=_left(row.due_at, now),
    )


def doubts_by_route(rows: Iterable[Row], now: float) -> tuple[RouteDoubt, ...]:
    """The routes that have records in doubt, by name."""
    doubts: dict[str, list[Row]] = {}
    for row in rows:
        if row.status is Status.UNKNOWN and not row.observed:
            doubts.setdefault(row.route_id, []).append(row)
    return tuple(
        RouteDoubt(
            route,
            len(doubted),
            sum(row.dead_lettered for row in doubted),
            now - min((row.unknown_since or now for row in doubted if not row.dead_lettered), default=now),
        )
        for route, doubted in sorted(doubts.items())
    )


def pending_by_route(rows: Iterable[Row], now: float) -> tuple[RoutePending, ...]:
    """The routes that have pending records, by name."""
    waiting: dict[str, list[float]] = {}
    for row in rows:
        if row.status is Status.PENDING and row.accepted_at is not None:
            waiting.setdefault(row.route_id, []).append(row.accepted_at)
    return tuple(RoutePending(route, len(since), now - min(since)) for route, since in sorted(waiting.items()))


def _left(instant: float | None, now: float) -> float | None:
    return None if instant is None else max(instant - now, 0.0)


def microseconds(instant: float | None) -> int | None:
    return None if instant is None else round(instant * 1_000_000)


def as_datetime(seconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(seconds, dt.UTC)
