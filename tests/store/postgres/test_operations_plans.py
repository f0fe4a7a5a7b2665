"""Lists of a large table: which index finds them, and that a walk to a rare match is made of small steps."""

import re
from collections.abc import AsyncIterator
from typing import TypeAlias

import asyncpg
import pytest

from gateway.ports.reconciliation import Selection
from gateway.store.postgres import PostgresStore
from gateway.store.postgres.operations import SCANNED
from gateway.store.postgres.queries import QUERIES

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

ROWS = 50_000
"""Of each: completed records of as many principals, and unknown ones of a few, in doubt since the same instant by 500, as a sweep makes
them."""

FILL = """
INSERT INTO gateway_records (
    scope_id, idempotency_key, record_id, route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy, status, owner,
    request_method, request_target, max_execution, reconcile_after, unknown_since, dead_lettered_at, last_error_code, locked_until,
    completed_at, expires_at, response_status_code, response_reason, response_headers, response_body_length, response_body_digest,
    response_schema_version
)
SELECT
    CASE WHEN state = 'completed' THEN 'payments:header.' || lpad(n::text, 5, '0') ELSE 'refunds:header.' || n % 7 END,
    CASE WHEN state = 'completed' AND n % 5000 = 7 THEN 'wanted' ELSE state || lpad(n::text, 6, '0') END,
    gen_random_uuid(), CASE WHEN n % 25000 = 8 THEN 'rare' ELSE 'charge' END, 'request', decode(repeat('00', 32), 'hex'), 1, '', state,
    decode(repeat('00', 16), 'hex'), 'POST', '/v1', interval '1 minute',
    CASE WHEN state IN ('unknown', 'in_progress') THEN now() END,
    CASE WHEN state = 'unknown' THEN timestamptz '2024-01-01' + n / 500 * interval '1 second' END,
    CASE WHEN state = 'unknown' AND n % 2 = 0 THEN timestamptz '2024-01-01' + n / 500 * interval '1 second' END,
    CASE WHEN state = 'unknown' THEN 'lease_expired' END,
    CASE WHEN state = 'in_progress' THEN now() + n * interval '1 second' END,
    CASE WHEN state = 'completed' THEN now() END,
    CASE WHEN state IN ('completed', 'failed_retryable') THEN now() + n * interval '1 second' END,
    CASE WHEN state = 'completed' THEN 200 END,
    CASE WHEN state = 'completed' THEN ''::bytea END,
    CASE WHEN state = 'completed' THEN ''::bytea END,
    CASE WHEN state = 'completed' THEN 0 END,
    CASE WHEN state = 'completed' THEN ''::bytea END,
    CASE WHEN state = 'completed' THEN 1 END
FROM (VALUES ('completed', $1::int), ('unknown', $1), ('in_progress', $1 / 2), ('failed_retryable', $1 / 2)) AS s (state, rows),
    generate_series(1, rows) AS n
"""

LISTS = {
    "list_all": ("gateway_records_pkey", ("NULL", "''", "'\U0010ffff'", "'payments:header.2'", "''", "NULL", "NULL")),
    "list_by_key": ("gateway_records_pkey", ("NULL", "''", "'\U0010ffff'", "''", "'wanted'", "NULL", "NULL")),
    "list_in_progress": ("gateway_records_lapsing", ("NULL", "''", "'\U0010ffff'", "''", "''", "'0001-01-01'", "NULL")),
    "list_unknown": ("gateway_records_doubtful", ("'rare'", "''", "'\U0010ffff'", "''", "''", "'2024-01-01 00:00:03Z'", "NULL")),
    "list_dead_letters": ("gateway_records_dead", ("NULL", "''", "'\U0010ffff'", "''", "''", "'0001-01-01'", "NULL")),
    "list_failed_retryable": ("gateway_records_retryable", ("NULL", "'a:'", "'a;'", "''", "''", "'0001-01-01'", '\'{"request_id": "x"}\'')),
}


@pytest.fixture
async def connection(every_database: str) -> AsyncIterator[Connection]:
    """A connection to a large table, with the planner's statistics as autovacuum would have made them."""
    connection = await asyncpg.connect(every_database)
    try:
        await connection.execute(FILL, ROWS)
        await connection.execute("VACUUM ANALYZE gateway_records")
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def store(every_database: str, connection: Connection) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(every_database, pool_size=2, timeout=30)
    yield store
    await store.close()


async def walk(store: PostgresStore, selection: Selection, limit: int) -> tuple[list[str], int]:
    """The keys of all pages, and how many pages there were."""
    keys: list[str] = []
    cursor: str | None = None
    pages = 0
    while True:
        page = await store.operations.select(selection, cursor, limit)
        keys += [listed.key.key for listed in page.records]
        cursor, pages = page.cursor, pages + 1
        if cursor is None:
            return keys, pages


async def test_every_list_is_found_by_its_index(connection: Connection) -> None:
    """Also by a plan made for any arguments: no whole table is read, and nothing but a page is sorted."""
    for mode in ("force_generic_plan", "force_custom_plan"):
        await connection.execute(f"SET plan_cache_mode = {mode}")
        for name, (index, arguments) in LISTS.items():
            await connection.execute(f"PREPARE listing AS {QUERIES[name]}")
            rows = await connection.fetch(f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) EXECUTE listing (50, {', '.join(arguments)})")
            await connection.execute("DEALLOCATE listing")
            plan = "\n".join(row[0] for row in rows)
            assert index in plan, plan
            assert "Seq Scan" not in plan, plan
            assert "Bitmap" not in plan, plan
            read = [float(found) for found in re.findall(r"Scan using \w+ on gateway_records.*actual rows=(\d+)", plan)]
            assert read
            assert sum(read) <= (2 * SCANNED), plan


async def test_a_list_of_all_is_not_taken_for_a_narrow_range(connection: Connection) -> None:
    """A plan for any arguments that expects fewer rows than a page looks at prefers to sort all that it finds: a second of a million."""
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    await connection.execute(f"PREPARE listing AS {QUERIES['list_all']}")
    rows = await connection.fetch(f"EXPLAIN EXECUTE listing (50, {', '.join(LISTS['list_all'][1])})")
    (expected,) = re.findall(r"Index Scan using gateway_records_pkey.*rows=(\d+)", "\n".join(row[0] for row in rows))
    assert int(expected) > SCANNED


async def test_walks_through_a_large_table_are_made_of_small_steps(store: PostgresStore) -> None:
    """A page looks at a bounded number of candidates, so it may be empty before the end. No record is lost, and none appears twice, where
    hundreds are in doubt since the very same instant; a key is looked for under each of fifty thousand principals.
    """
    for state, wanted in (("unknown", ROWS), ("dead_letter", ROWS // 2)):
        keys, _ = await walk(store, Selection(state=state), 1000)
        assert len(keys) == wanted
        assert len(set(keys)) == wanted
    keys, pages = await walk(store, Selection(state="unknown", route="rare"), 50)
    assert keys == ["unknown000008", "unknown025008"]
    assert pages >= ROWS // SCANNED
    assert (await walk(store, Selection(route="rare", scope="payments"), 50))[0] == ["completed000008", "completed025008"]
    assert (await walk(store, Selection(state="completed", route="rare"), 1))[0] == ["completed000008", "completed025008"]
    for limit in (3, 50):
        keys, pages = await walk(store, Selection(key="wanted"), limit)
        assert keys == ["wanted"] * 10
        assert pages >= ROWS // SCANNED
    assert (await walk(store, Selection(key="wanted", scope="refunds"), 5)) == ([], 1)
    assert (await walk(store, Selection(scope_id="payments:header.00008"), 5)) == (["completed000008"], 1)
