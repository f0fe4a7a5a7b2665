"""Gateways of earlier releases: their statements, prepared when they started."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg

from gateway.core.model import Intent, Lease, Record, RecordKey, StoredResponse
from gateway.ports import OBSERVED_DOUBT_KEPT
from gateway.store.postgres.rows import claim_arguments, columns, encode_captured, encode_headers, schema_version, storable
from tests.store.contract.harness import KEPT, RETENTION

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]  # generic only in its stubs

INLINE = 65536


def statements(migration: int) -> dict[str, str]:
    """Those of the release whose last migration this is, by name; of the last one before it, where no release ended with it."""
    kept = [path for path in sorted(Path(__file__).parent.glob("statements_*.sql")) if path.stem <= f"statements_{migration:04}"]
    _, *sections = kept[-1].read_text("utf-8").split("-- name: ")
    return {name.strip(): text for name, _, text in (section.partition("\n") for section in sections)}


def reserve_row(wanted: Intent) -> tuple[Any, ...]:
    """What the releases up to migration 4 sent of one intent, or more than they did."""
    key, fingerprint, terms = wanted.key, wanted.fingerprint, wanted.terms
    request = (wanted.owner, terms.route_id, wanted.request_id, wanted.method, wanted.target)
    kept = (encode_captured(wanted.captured), storable(wanted.correlation), wanted.sealed)
    meaning = (fingerprint.digest, fingerprint.version, fingerprint.policy)
    return (key.scope_id, key.key, *meaning, *request, terms.lease, terms.max_execution, terms.reconcilable, terms.observed, *kept)


def complete_row(lease: Lease, answer: StoredResponse) -> tuple[Any, ...]:
    """What the releases up to migration 4 sent of one completion, or more than they did."""
    version = schema_version(answer.encoding)
    head = (lease.key.scope_id, lease.key.key, lease.owner, KEPT.seconds, answer.status, answer.reason, encode_headers(answer.headers))
    body = (answer.body, answer.encoding, answer.body_length, answer.body_digest, version)
    return (*head, *body, KEPT.gone_for, KEPT.keep_for)


class Before:
    """A gateway of the release whose last migration is `migration`, over one connection. Each method sends what that release sent."""

    def __init__(self, connection: "Connection", migration: int) -> None:
        self.connection = connection
        self.migration = migration
        self.prepared: dict[str, Any] = {}
        self.intent_columns = 17 if migration >= 4 else 14 if migration >= 3 else 13
        self.doubt_kept = [OBSERVED_DOUBT_KEPT] if migration >= 3 else []

    async def start(self) -> None:
        self.prepared = {name: await self.connection.prepare(text) for name, text in statements(self.migration).items()}
        await self.connection.execute("SELECT 1")  # the driver leaves what `prepare` has begun open until the next statement

    async def run(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        return await self.prepared[name].fetch(*arguments)  # type: ignore[no-any-return]  # prepared statements are Any here

    async def reserve(self, wanted: Intent) -> Lease | asyncpg.Record:
        (row,) = await self.run("reserve", *columns([reserve_row(wanted)[: self.intent_columns]]), INLINE)
        return Lease(wanted.key, row["record_id"], wanted.owner, 1, 0.0, wanted.terms.lease) if row["version"] is None else row

    async def reserved(self, wanted: Intent) -> Lease:
        lease = await self.reserve(wanted)
        assert isinstance(lease, Lease)
        return lease

    async def find(self, key: RecordKey) -> asyncpg.Record:
        limit = [INLINE] if self.migration >= 2 else []
        (row,) = await self.run("find", key.scope_id, key.key, *limit)
        return row

    async def complete(self, lease: Lease, answer: StoredResponse) -> str:
        row = complete_row(lease, answer)
        assert self.migration >= 2 or answer.encoding == 0
        kept = row if self.migration >= 3 else row[:12] if self.migration >= 2 else (*row[:8], *row[9:12])
        return await self._settle("complete", kept)

    async def release(self, lease: Lease) -> str:
        kept = (None, None) if self.migration >= 3 else ()
        return await self._settle("release", (lease.key.scope_id, lease.key.key, lease.owner, "x", RETENTION, *kept))

    async def doubt(self, lease: Lease) -> str:
        return await self._settle("doubt", (lease.key.scope_id, lease.key.key, lease.owner, "x"), *self.doubt_kept)

    async def claim(self, name: str, record: Record, wanted: Intent) -> Lease:
        more = (wanted.terms.reexecute,) if name == "retry" and self.migration >= 4 else ()
        (row,) = await self.run(name, *claim_arguments(record, wanted)[: self.intent_columns + 2], *more)
        return Lease(wanted.key, row["record_id"], wanted.owner, row["attempt"], 0.0, wanted.terms.lease)

    async def lapse(self, record: Record) -> bool:
        key = record.key
        return bool(await self.run("lapse", key.scope_id, key.key, record.record_id, record.version, *self.doubt_kept))

    async def _settle(self, name: str, row: tuple[Any, ...], *more: object) -> str:
        (settled,) = await self.run(name, *columns([row]), *more)
        return settled["transition"]  # type: ignore[no-any-return]  # a column of text
