"""The statements of finding out on a table with 100,000 records in doubt: by which index they go, and how much they read."""

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import asyncpg
import pytest

from gateway.devtools.embedded import PostgresServer
from gateway.ports.reconciliation import Event, Evidence, Fence
from gateway.store.postgres.clock import BELIEVE_ANY
from gateway.store.postgres.queries import QUERIES
from gateway.store.postgres.resolving_rows import (
    audit_arguments,
    encode_evidence,
    entry_arguments,
    event_arguments,
    fence_arguments,
    response_arguments,
    retention_arguments,
)
from tests.store.contract.harness import KEPT, fresh_key
from tests.store.contract.resolving import AUDIT, FOUND_ANSWER, LOOKED, PERSON, event
from tests.store.postgres.plans import MODES, plan_of, rows_read, scans
from tests.support.services import Services

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]  # generic only in its stubs

PRIMARY, DUE, CORRELATED = "gateway_records_pkey", "gateway_records_due_by_route", "gateway_records_correlated"
EVENTS = "gateway_webhook_events_pkey"


@pytest.fixture(scope="module")
def large(services: Services, every_postgres: PostgresServer) -> Iterator[str]:
    """DSN of a database that the module's tests share, on each Postgres that is here."""
    dsn = services.migrated_database(every_postgres)
    yield dsn
    services.drop_database(every_postgres, dsn)


@pytest.fixture
async def crowded(large: str) -> AsyncIterator["Connection"]:
    """100,000 records in doubt over routes a (most), b, c (few) and observed ones, half of all due; among as many that are completed."""
    connection = await asyncpg.connect(large)
    if not await connection.fetchval("SELECT EXISTS (SELECT FROM gateway_records)"):
        await connection.execute("""
            INSERT INTO gateway_records (
                scope_id, idempotency_key, record_id, route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy,
                status, owner, request_method, request_target, max_execution, reconcile_after, doubtful_until, unknown_since,
                dead_lettered_at, observed, last_error_code, expires_at, completed_at, response_status_code, response_reason,
                response_headers, response_body, response_body_length, response_body_digest, response_schema_version, captured, correlation
            )
            SELECT
                'scope-' || n % 50 || ':none', md5(n::text), gen_random_uuid(),
                CASE WHEN n % 1000 = 1 THEN 'c' WHEN n % 10 = 1 THEN 'b' ELSE 'a' END, 'q', sha256('f'), 1, sha256('p'),
                CASE WHEN unknown THEN 'unknown' ELSE 'completed' END, decode(md5(n::text), 'hex'), 'POST', '/v1', interval '1 min',
                CASE WHEN unknown THEN now() + (n % 100 - 50) * interval '1 min' END,
                CASE WHEN unknown THEN now() END,
                CASE WHEN unknown THEN now() END,
                CASE WHEN unknown AND n % 7 = 0 THEN now() END,
                n % 11 = 0,
                CASE WHEN unknown THEN 'x' END,
                CASE WHEN NOT unknown THEN now() + interval '1 day' WHEN n % 11 = 0 THEN now() + interval '1 day' END,
                CASE WHEN NOT unknown THEN now() END,
                CASE WHEN NOT unknown THEN 200 END,
                CASE WHEN NOT unknown THEN 'OK'::bytea END,
                CASE WHEN NOT unknown THEN ''::bytea END,
                CASE WHEN NOT unknown THEN decode(repeat('00', 100), 'hex') END,
                CASE WHEN NOT unknown THEN 100 END,
                CASE WHEN NOT unknown THEN sha256('b') END,
                CASE WHEN NOT unknown THEN 1 END,
                '{"key": "k"}', 'order-' || n
            FROM (SELECT n, n % 2 = 1 AS unknown FROM generate_series(1, 2 * 100000) AS n) AS made
        """)
        await connection.execute("VACUUM ANALYZE gateway_records")
    yield connection
    await connection.close()


@MODES
async def test_due_records_are_found_by_the_index_of_their_route(crowded: "Connection", mode: str) -> None:
    """Whatever the route's share of 100,000 is: nothing is read but what is taken, and nothing sorted but that."""
    for route in ("a", "b", "c", "none"):
        for owners in ([], [bytes(16)] * 4):
            plan = await plan_of(crowded, mode, QUERIES["take_due"], route, 4, 20.0, owners)
            used = scans(plan)
            assert {index for _, index in used if index} == {PRIMARY, DUE}, used
            assert not [node for node, _ in used if node in ("Seq Scan", "Bitmap Index Scan")], used
            assert rows_read(plan) <= 4 * 3
        plan = await plan_of(crowded, mode, QUERIES["due_routes"], [route] * 20)
        assert {index for _, index in scans(plan)} == {DUE}
        assert rows_read(plan) <= 20


@MODES
async def test_what_nobody_looks_after_is_found_among_what_is_due(crowded: "Connection", mode: str) -> None:
    """It reads the index of records in doubt, once an hour, and no other row than those that it takes."""
    plan = await plan_of(crowded, mode, QUERIES["abandon"], ["a", "b"], 60.0, 10, "manual", "dead_lettered", "{}")
    used = scans(plan)
    assert {index for _, index in used if index} <= {PRIMARY, DUE, "gateway_records_doubtful"}, used
    assert not [node for node, _ in used if node == "Seq Scan"], used


async def test_what_is_taken_is_the_longest_due(crowded: "Connection") -> None:
    """Of its route, with nothing that is observed or a dead letter."""
    transaction = crowded.transaction()
    await transaction.start()
    expected = await crowded.fetch("""
        SELECT reconcile_after FROM gateway_records
        WHERE route_id = 'b' AND status = 'unknown' AND dead_lettered_at IS NULL AND NOT observed ORDER BY reconcile_after LIMIT 50
    """)
    before = {
        row["record_id"]: row["reconcile_after"] for row in await crowded.fetch("SELECT record_id, reconcile_after FROM gateway_records")
    }
    rows = await crowded.fetch(QUERIES["take_due"], "b", 50, 20.0, [], BELIEVE_ANY)
    taken = [before[row["record_id"]] for row in sorted(rows, key=lambda row: row["n"])]
    assert taken == [row["reconcile_after"] for row in expected]
    await transaction.rollback()


@MODES
async def test_verdicts_touch_their_record_alone(crowded: "Connection", mode: str) -> None:
    """Each by the primary key; events by theirs."""
    fence = fence_arguments(Fence(fresh_key(), UUID(int=0), 1))
    entry, told, audit, kept = entry_arguments(PERSON), event_arguments(event()), audit_arguments(AUDIT), retention_arguments(KEPT)
    known: Event = event()
    cases: list[tuple[str, tuple[Any, ...], set[str]]] = [
        ("conclude_executed", (*fence, *response_arguments(FOUND_ANSWER), *kept, *entry, *told, *audit), {PRIMARY}),
        ("conclude_not_executed", (*fence, "x", *kept, True, *entry, *told, *audit), {PRIMARY}),
        ("look_again", (*fence, 1.0, None, *entry, *told, True), {PRIMARY}),
        ("dead_letter", (*fence, *entry), {PRIMARY}),
        ("attach", (*fence, encode_evidence(Evidence(FOUND_ANSWER, LOOKED)), *entry, *told), {PRIMARY}),
        ("find_captured", ("scope-7", "order-7", 2), {CORRELATED}),
    ]
    for query, arguments, indexes in cases:
        plan = await plan_of(crowded, mode, QUERIES[query], *arguments)
        used = [scan for scan in scans(plan) if scan[1] != EVENTS]  # whether the event is known, of a table of any size
        assert {index for _, index in used if index} == indexes, (query, used)
        assert not [node for node, _ in used if node == "Seq Scan"], query
        assert rows_read(plan) <= 1, query
    await crowded.execute("SET enable_seqscan = off")
    assert {index for _, index in scans(await plan_of(crowded, mode, QUERIES["seen"], known.webhook, known.digest))} == {EVENTS}
    await crowded.execute("SET enable_seqscan = on")


@MODES
async def test_the_gauges_read_what_is_in_doubt_once(crowded: "Connection", mode: str) -> None:
    """Figures of all routes come from one scan of an index on records in doubt."""
    plan = await plan_of(crowded, mode, QUERIES["counts"], 1000)
    used = [index for _, index in scans(plan)]
    assert used.count("gateway_records_doubtful") == 1
    row = await crowded.fetchrow(QUERIES["counts"], 1000)
    assert row is not None
    expected = await crowded.fetch("""
        SELECT route_id, count(*), count(dead_lettered_at) FROM gateway_records
        WHERE status = 'unknown' AND NOT observed GROUP BY 1 ORDER BY 1
    """)
    assert [tuple(doubt)[:3] for doubt in row["by_route"]] == [tuple(row) for row in expected]
    assert row["unknown"] == sum(row[1] for row in expected)
