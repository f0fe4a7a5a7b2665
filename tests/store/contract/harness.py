"""What the contract needs of a store under test, and builders for what it hands in.

A store is contracted by a subclass of `StoreContract` with one fixture, `harness`.
"""

import hashlib
import itertools
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias
from uuid import UUID

import asyncpg

from gateway.core.model import Fingerprint, Headers, Intent, Lease, Record, RecordKey, StoredResponse, Terms
from gateway.core.packing import ZLIB, pack
from gateway.ports import Maintenance, Retention, Store, Transition
from gateway.ports.accepted import Acceptance
from gateway.ports.participation import Participation
from gateway.ports.reconciliation import Audit, Entry, Reconciliation
from gateway.store.postgres import PostgresStore
from gateway.store.postgres.clock import BELIEVE_ANY
from gateway.store.postgres.queries import QUERIES
from gateway.store.postgres.rows import decode_record
from tests.support.memory_store.store import MemoryStore

Database: TypeAlias = "str | asyncpg.Connection[asyncpg.Record]"
"""A DSN, or a connection that is used and stays open."""

LEASE = 30.0
MAX_EXECUTION = 60.0
RETENTION = 3600.0
KEPT = Retention(RETENTION)

_numbers = itertools.count(1)


class Harness(Protocol):
    """A store that starts empty, and time that passes on request."""

    @property
    def store(self) -> Store: ...

    @property
    def maintenance(self) -> Maintenance: ...

    @property
    def reconciliation(self) -> Reconciliation: ...

    @property
    def acceptance(self) -> Acceptance: ...

    @property
    def participation(self) -> Participation: ...

    async def advance(self, seconds: float) -> None:
        """Let this much time pass on the store's clock, for every record in it and for what is left of others."""
        ...

    async def archived(self, key: RecordKey) -> list[Record]:
        """What the archive holds under a key, oldest first."""
        ...

    async def history(self, key: RecordKey) -> list[Entry]:
        """What is remembered of the records under a key, oldest first."""
        ...

    async def audit(self, key: RecordKey) -> list[Audit]:
        """What operators did to the records under a key, oldest first."""
        ...


@dataclass(slots=True)
class ManualClock:
    """Seconds that pass only when told."""

    now: float = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


class MemoryHarness:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock, self.clock)
        self.maintenance = self.store
        self.reconciliation = self.store.reconciliation
        self.acceptance = self.store.acceptance
        self.participation = self.store.participation

    async def advance(self, seconds: float) -> None:
        self.clock.now += seconds

    async def archived(self, key: RecordKey) -> list[Record]:
        return [record for record in self.store.archived() if record.key == key]

    async def history(self, key: RecordKey) -> list[Entry]:
        return [entry for _, entry in self.reconciliation.history(key)]

    async def audit(self, key: RecordKey) -> list[Audit]:
        return self.reconciliation.audit(key)


class PostgresHarness:
    """Time passes by moving every instant in the table back."""

    def __init__(self, database: Database, store: PostgresStore) -> None:
        self.database = database
        self.store = store
        self.maintenance = store
        self.reconciliation = store.reconciliation
        self.acceptance = store.acceptance
        self.participation = store.participation

    async def advance(self, seconds: float) -> None:
        await age_records(self.database, seconds)

    async def archived(self, key: RecordKey) -> list[Record]:
        return await archived_records(self.database, key)

    async def history(self, key: RecordKey) -> list[Entry]:
        return await remembered(self.database, key)

    async def audit(self, key: RecordKey) -> list[Audit]:
        return await audited(self.database, key)


TABLES = ("gateway_records", "gateway_records_archive", "gateway_tombstones", "gateway_history", "gateway_webhook_events")


INSTANTS = """
SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND atttypid = 'timestamptz'::regtype AND attnum > 0 AND NOT attisdropped
"""
"""The information schema tells the same for ten times the work."""


@asynccontextmanager
async def connected(database: Database) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """The connection itself, or one for this block."""
    if not isinstance(database, str):
        yield database
        return
    connection = await asyncpg.connect(database)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def kept_open(dsn: str, store: PostgresStore) -> AsyncIterator[PostgresHarness]:
    """A harness for all tests of a module, each of which begins with `empty_records`. Connection and store are closed at the end."""
    async with connected(dsn) as connection:
        yield PostgresHarness(connection, store)
        await store.close()


async def age_records(database: Database, seconds: float) -> None:
    """Make every record in the database this much older, and what is left of others."""
    async with connected(database) as connection:
        for table in TABLES:
            instants = await connection.fetch(INSTANTS, table)
            moved = ", ".join(f"{name} = {name} - make_interval(secs => {seconds!r})" for (name,) in instants)
            if moved:
                await connection.execute(f"UPDATE {table} SET {moved}")


async def archived_records(database: Database, key: RecordKey) -> list[Record]:
    """As `Harness.archived`, in the database."""
    query = QUERIES["find"].replace("gateway_records", "gateway_records_archive") + " ORDER BY created_at"
    async with connected(database) as connection:
        return [decode_record(key, row[1:]) for row in await connection.fetch(query, key.scope_id, key.key, 2**62, BELIEVE_ANY)]


async def remembered(database: Database, key: RecordKey) -> list[Entry]:
    """As `Harness.history`, in the database."""
    query = "SELECT source, what, detail, actor, reason FROM gateway_history WHERE (scope_id, idempotency_key) = ($1, $2) ORDER BY id"
    async with connected(database) as connection:
        rows = await connection.fetch(query, key.scope_id, key.key)
    return [Entry(**{**row, "detail": json.loads(row["detail"])}) for row in rows]


async def audited(database: Database, key: RecordKey) -> list[Audit]:
    """As `Harness.audit`, in the database."""
    query = "SELECT actor, action, reason, detail FROM gateway_audit WHERE (scope_id, idempotency_key) = ($1, $2) ORDER BY id"
    async with connected(database) as connection:
        rows = await connection.fetch(query, key.scope_id, key.key)
    return [Audit(**{**row, "detail": json.loads(row["detail"])}) for row in rows]


async def empty_records(database: Database) -> None:
    """Take all records out of the database, and what is left of others."""
    async with connected(database) as connection:
        await connection.execute("SET session_replication_role = replica")  # the audit table refuses it otherwise
        await connection.execute(f"TRUNCATE {', '.join(TABLES)}, gateway_audit")
        await connection.execute("RESET session_replication_role")


def fresh_key(scope: str = "payments:none") -> RecordKey:
    return RecordKey(scope, f"key-{next(_numbers)}-{secrets.token_hex(4)}")


def fingerprint(meaning: str = "charge 10", policy: str = "policy", version: int = 1) -> Fingerprint:
    return Fingerprint(version, hashlib.sha256(policy.encode()).digest(), hashlib.sha256(meaning.encode()).digest())


def intent(
    key: RecordKey | None = None,
    meaning: Fingerprint | None = None,
    *,
    owner: bytes | None = None,
    request_id: str = "request-1",
    target: bytes = b"/v1/charges?x=%FF\xfe",
    lease: float = LEASE,
    max_execution: float = MAX_EXECUTION,
    reconcilable: bool = True,
    gone_for: float | None = None,
    observed: bool = False,
    route_id: str = "create-charge",
    captured: Mapping[str, str] | None = None,
    correlation: str | None = None,
    sealed: bytes | None = None,
    reexecute: bool = False,
    co_commits: bool = False,
) -> Intent:
    return Intent(
        key=key or fresh_key(),
        fingerprint=meaning or fingerprint(),
        owner=owner or secrets.token_bytes(16),
        terms=Terms(route_id, lease, max_execution, reconcilable, gone_for, observed, reexecute, co_commits=co_commits),
        request_id=request_id,
        method="POST",
        target=target,
        captured=captured,
        correlation=correlation,
        sealed=sealed,
    )


def response(
    body: bytes | None = b'{"id": "ch_1"}', status: int = 201, reason: bytes = b"Created", headers: Headers = ()
) -> StoredResponse:
    full = b"" if body is None else body
    return StoredResponse(status, reason, headers, body, len(full), hashlib.sha256(full).digest())


def packed_response(body: bytes = b'{"id": "ch_1"}' * 1000) -> StoredResponse:
    """An answer whose body is kept compressed."""
    encoding, packed = pack(body, ())
    assert encoding == ZLIB
    return replace(response(body), body=packed, encoding=encoding)


def lease_under(lease: Lease, owner: bytes | None = None) -> Lease:
    """The same lease as a stranger would forge it, or as a holder knows it who never saw its reply."""
    return Lease(lease.key, UUID(int=0), owner or secrets.token_bytes(16), lease.attempt, lease.started, lease.duration)


async def reserved(store: Store, wanted: Intent) -> Lease:
    """Reserve, knowing that nothing is there."""
    lease = await store.reserve(wanted)
    assert isinstance(lease, Lease)
    return lease


async def found(store: Store, key: RecordKey) -> Record:
    """The record, knowing that it is there."""
    record = await store.find(key)
    assert record is not None
    return record


async def completed(
    harness: Harness, answer: StoredResponse | None = None, retention: float | Retention = KEPT, wanted: Intent | None = None
) -> Lease:
    """A record that has completed; its lease."""
    lease = await reserved(harness.store, wanted or intent())
    kept = retention if isinstance(retention, Retention) else Retention(retention)
    assert (await harness.store.complete(lease, answer or response(), kept)).transition is Transition.DONE
    return lease


async def released(harness: Harness, wanted: Intent | None = None, retention: float | Retention = KEPT) -> Lease:
    """A record that was released; its lease."""
    lease = await reserved(harness.store, wanted or intent())
    kept = retention if isinstance(retention, Retention) else Retention(retention)
    assert (await harness.store.release(lease, "connection_refused", kept)).transition is Transition.DONE
    return lease


async def doubted(harness: Harness, wanted: Intent | None = None) -> Lease:
    """A record in doubt; its lease."""
    lease = await reserved(harness.store, wanted or intent())
    assert (await harness.store.doubt(lease, "upstream_timeout")).transition is Transition.DONE
    return lease
