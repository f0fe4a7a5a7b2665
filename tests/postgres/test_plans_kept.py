"""How long a connection goes on with a plan that a table has outgrown."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from gateway.embedded import PostgresServer
from gateway.store.postgres import PostgresStore
from gateway.store.postgres.lane import PLANS_KEPT
from tests.contract.harness import fresh_key, intent
from tests.support.services import Services

FLUSHED = 1.1
"""Seconds after which a session hands in what it counted, with its next statement."""


@pytest.fixture
async def dsn(services: Services, every_postgres: PostgresServer) -> AsyncIterator[str]:
    """A database whose tables are empty, and known to be: as after `vacuumdb --analyze`."""
    dsn = services.migrated_database(every_postgres)
    connection = await asyncpg.connect(dsn)
    await connection.execute("ALTER TABLE gateway_records SET (autovacuum_enabled = off)")
    await connection.execute("VACUUM ANALYZE gateway_records")
    await connection.close()
    yield dsn
    services.drop_database(every_postgres, dsn)


async def whole_reads(store: PostgresStore, dsn: str, lookups: int) -> int:
    """How often the table was read as a whole by so many lookups."""
    connection = await asyncpg.connect(dsn)
    seen = []
    for count in (1, lookups):
        for _ in range(count):
            await store.find(fresh_key())
        await asyncio.sleep(FLUSHED)
        await store.ready()  # a statement of another table
        seen.append(await connection.fetchval("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'gateway_records'"))
    await connection.close()
    return int(seen[1] - seen[0])


async def test_a_plan_made_for_an_empty_table_is_not_kept(dsn: str) -> None:
    """It read the whole table for each key, until Postgres next looked at the table by itself."""
    store = PostgresStore(dsn, pool_size=1, timeout=30.0)
    try:
        assert await whole_reads(store, dsn, 5) == 5
        await asyncio.gather(*[store.reserve(intent()) for _ in range(1000)])
        assert await whole_reads(store, dsn, 5) == 5
        for _ in range(PLANS_KEPT):
            await store.find(fresh_key())
        assert await whole_reads(store, dsn, 5) == 0
    finally:
        await store.close()
