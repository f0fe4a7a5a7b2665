"""The statements that take a few rows of what is due, when everything is: after an outage of days, or with a long backlog."""

import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, TypeAlias

import asyncpg
import pytest

from gateway.background.maintenance import BATCH
from gateway.background.reconciler import ORPHANS_AT_ONCE
from gateway.core.reconcile.policy import CONCURRENCY_MAX
from gateway.devtools.embedded import PostgresServer
from gateway.store.postgres.queries import QUERIES
from tests.store.postgres.plans import MODE_NAMES, plan_of, rows_read
from tests.support.services import Services

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]  # generic only in its stubs

MANY = 20_000
RECORDS = f"""
INSERT INTO gateway_records (
    scope_id, idempotency_key, record_id, route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy,
    status, owner, request_method, request_target, max_execution, locked_until, reconcile_after, doubtful_until, unknown_since,
    last_error_code, created_at, expires_at, gone_for, keep_for, completed_at, response_status_code, response_reason, response_headers,
    response_body, response_body_length, response_body_digest, response_schema_version
)
SELECT
    'scope-' || n % 50 || ':none', status || md5(n::text), gen_random_uuid(), 'a', 'q', sha256('f'), 1, sha256('p'),
    status, decode(md5(n::text), 'hex'), 'POST', '/v1', interval '1 min',
    CASE WHEN status = 'in_progress' THEN past END,
    CASE WHEN status <> 'completed' THEN past END,
    CASE WHEN status = 'unknown' THEN past END,
    CASE WHEN status = 'unknown' THEN past END,
    CASE WHEN status = 'unknown' THEN 'x' END,
    past - interval '1 day',
    CASE WHEN status = 'completed' THEN past END,
    CASE WHEN status = 'completed' THEN interval '1 day' END,
    CASE WHEN status = 'completed' THEN interval '1 day' END,
    CASE WHEN status = 'completed' THEN past END,
    CASE WHEN status = 'completed' THEN 200 END,
    CASE WHEN status = 'completed' THEN 'OK'::bytea END,
    CASE WHEN status = 'completed' THEN ''::bytea END,
    CASE WHEN status = 'completed' THEN decode(repeat('00', 100), 'hex') END,
    CASE WHEN status = 'completed' THEN 100 END,
    CASE WHEN status = 'completed' THEN sha256('b') END,
    CASE WHEN status = 'completed' THEN 1 END
FROM (
    SELECT n, now() - n * interval '1 s' - interval '1 hour' AS past, status
    FROM generate_series(1, {MANY}) AS n, unnest($1::text[]) AS status
) AS made
"""
# Of narrow rows more: a small table is soon read as a whole.
REST = f"""
INSERT INTO gateway_tombstones SELECT sha256(n::text::bytea), 'a', now() - n * interval '1 s' FROM generate_series(1, 5 * {MANY}) AS n;
INSERT INTO gateway_webhook_events SELECT 'a', sha256(n::text::bytea), now() - n * interval '1 s' FROM generate_series(1, 5 * {MANY}) AS n;
INSERT INTO gateway_records_archive
SELECT a.*
FROM gateway_records r CROSS JOIN jsonb_populate_record(NULL::gateway_records_archive, to_jsonb(r) || jsonb_build_object(
    'archived_at', now(), 'archived_reason', 'expired', 'purge_at', r.expires_at
)) AS a
WHERE r.status = 'completed';
INSERT INTO gateway_history (scope_id, idempotency_key, record_id, source, what, purge_after)
SELECT 'gone:none', n::text, gen_random_uuid(), 'lookup', 'executed', now() - n * interval '1 s'
FROM generate_series(1, 5 * {MANY}) AS n;
VACUUM ANALYZE gateway_records, gateway_tombstones, gateway_records_archive, gateway_history, gateway_webhook_events
"""


@pytest.fixture
async def connection(services: Services, every_postgres: PostgresServer) -> AsyncIterator["Connection"]:
    """To a database of its own, on each Postgres that is here."""
    dsn = services.migrated_database(every_postgres)
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()
    services.drop_database(every_postgres, dsn)


@pytest.mark.parametrize(
    ("query", "arguments", "status", "kinds"),
    [
        ("sweep", (10, 60.0), "in_progress", 1),
        ("take_due", ("a", 10, 20.0, [bytes(16)] * 10), "unknown", 1),
        ("abandon", (["b"], 60.0, 10, "manual", "dead_lettered", "{}"), "unknown", 1),
        ("reap", (10, 2**20, 60.0), "completed", 1),
        ("purge", (10, 2**20), "completed", 4),
    ],
)
async def test_as_much_is_read_as_is_taken(
    connection: "Connection", query: str, arguments: tuple[object, ...], status: str, kinds: int
) -> None:
    """And so no more is locked, either. A plan for any number of rows takes a limit that it does not know for a tenth of the table: it read
    all of it for four rows.
    """
    await connection.execute(RECORDS, [status])
    for statement in REST.split(";") if query == "purge" else ["VACUUM ANALYZE gateway_records"]:
        await connection.execute(statement)
    for mode in MODE_NAMES:
        plan = await plan_of(connection, mode, QUERIES[query], *arguments)
        assert rows_read(plan) <= kinds * 10 * 3, (mode, plan)


@pytest.mark.parametrize(
    ("query", "most"),
    [
        ("sweep", BATCH),
        ("reap", BATCH),
        ("purge", BATCH),
        ("abandon", ORPHANS_AT_ONCE),
        ("take_due", CONCURRENCY_MAX),
    ],
)
def test_nobody_asks_for_more_than_the_bound(query: str, most: int) -> None:
    """A batch that the literal cuts short would look like the last one."""
    bounds = [int(bound) for bound in re.findall(r"LIMIT (\d\d+)", QUERIES[query])]
    assert bounds
    assert min(bounds) >= most
