"""The statements themselves, run inside transactions whose now() stands still: what holds at the very instant, and by which index."""

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import asyncpg
import pytest

from gateway.core.model import Intent, Lease, Record
from gateway.ports import OBSERVED_DOUBT_KEPT, TOMBSTONE_AFTER, Retention
from gateway.store.postgres.clock import BELIEVE_ANY
from gateway.store.postgres.queries import QUERIES
from gateway.store.postgres.rows import claim_arguments, columns, decode_record
from gateway.store.postgres.statements import (
    Doubt,
    Ending,
    Release,
    complete_alone_statement,
    complete_statement,
    completion,
    doubt_statement,
    release_statement,
    reserve_alone_statement,
    reserve_statement,
)
from tests.store.contract.harness import KEPT, RETENTION, intent, response
from tests.store.postgres.plans import MODE_NAMES, plan_of, scans

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]  # generic only in its stubs

MICROSECOND = "interval '1 microsecond'"
REAP = (10, 2**30, TOMBSTONE_AFTER)


@pytest.fixture
async def frozen(connection: "Connection") -> AsyncIterator["Connection"]:
    """A connection inside a transaction: its now() stands still."""
    transaction = connection.transaction()
    await transaction.start()
    yield connection
    await transaction.rollback()


async def reserve(connection: "Connection", wanted: Intent) -> list[asyncpg.Record]:
    sql, arguments = reserve_statement([wanted], BELIEVE_ANY)
    return await connection.fetch(sql, *arguments)


async def find(connection: "Connection", wanted: Intent) -> Record:
    row = await connection.fetchrow(QUERIES["find"], wanted.key.scope_id, wanted.key.key, 65536, BELIEVE_ANY)
    assert row is not None
    return decode_record(wanted.key, row[1:])


async def settle(connection: "Connection", sql: str, arguments: Sequence[Any]) -> None:
    (row,) = await connection.fetch(sql, *arguments)
    assert row["transition"] == "done"


async def complete(connection: "Connection", wanted: Intent, retention: Retention = KEPT) -> None:
    lease = Lease(wanted.key, UUID(int=0), wanted.owner, 1, 0.0, wanted.terms.lease)
    await settle(connection, *complete_statement([Ending(completion(lease, response()), retention)]))


async def test_a_lease_lapses_at_its_very_end(frozen: "Connection") -> None:
    """At `locked_until` the lease is over; a microsecond before it is live, and neither lapse nor sweep touches it."""
    wanted = intent()
    await reserve(frozen, wanted)
    await frozen.execute(f"UPDATE gateway_records SET locked_until = now() + {MICROSECOND}")
    record = await find(frozen, wanted)
    arguments = (wanted.key.scope_id, wanted.key.key, record.record_id, record.version, OBSERVED_DOUBT_KEPT)
    assert record.lease_live
    assert await frozen.fetch(QUERIES["lapse"], *arguments, BELIEVE_ANY) == []
    assert await frozen.fetch(QUERIES["sweep"], 10, OBSERVED_DOUBT_KEPT, BELIEVE_ANY) == []
    await frozen.execute("UPDATE gateway_records SET locked_until = now()")
    assert not (await find(frozen, wanted)).lease_live
    assert len(await frozen.fetch(QUERIES["lapse"], *arguments, BELIEVE_ANY)) == 1


async def test_a_sweep_takes_a_lease_at_its_very_end(frozen: "Connection") -> None:
    """The sweeper judges the instant as lapse does."""
    await reserve(frozen, intent())
    await frozen.execute("UPDATE gateway_records SET locked_until = now()")
    assert len(await frozen.fetch(QUERIES["sweep"], 10, OBSERVED_DOUBT_KEPT, BELIEVE_ANY)) == 1


async def test_a_record_expires_at_its_very_instant(frozen: "Connection") -> None:
    """At `expires_at` a completed record is expired: reaped, and claimed as a new life; a microsecond before it is neither."""
    wanted = intent()
    await reserve(frozen, wanted)
    await complete(frozen, wanted)
    await frozen.execute(f"UPDATE gateway_records SET expires_at = now() + {MICROSECOND}")
    record = await find(frozen, wanted)
    assert not record.expired
    assert record.expires_in is not None
    assert record.expires_in > 0
    assert await frozen.fetchval(QUERIES["reap"], *REAP, BELIEVE_ANY) == 0
    assert await frozen.fetch(QUERIES["new_life"], *claim_arguments(record, intent(wanted.key)), BELIEVE_ANY) == []
    await frozen.execute("UPDATE gateway_records SET expires_at = now()")
    assert (await find(frozen, wanted)).expired
    (row,) = await reserve(frozen, intent(wanted.key))
    assert decode_record(wanted.key, row["found"]).expired
    assert len(await frozen.fetch(QUERIES["new_life"], *claim_arguments(record, intent(wanted.key)), BELIEVE_ANY)) == 1


async def test_a_reap_takes_a_record_at_its_very_instant(frozen: "Connection") -> None:
    """The reaper judges the instant as everybody does."""
    wanted = intent()
    await reserve(frozen, wanted)
    await complete(frozen, wanted, Retention(0.0))
    assert await frozen.fetchval(QUERIES["reap"], *REAP, BELIEVE_ANY) == 1


async def test_a_released_record_is_claimed_up_to_its_expiry(frozen: "Connection") -> None:
    """A microsecond before `expires_at` it is the next attempt; at the instant it is a new life."""
    wanted = intent()
    await reserve(frozen, wanted)
    await settle(
        frozen, *release_statement([Ending(Release(wanted.key.scope_id, wanted.key.key, wanted.owner, "x"), Retention(RETENTION))])
    )
    record = await find(frozen, wanted)
    arguments = claim_arguments(record, intent(wanted.key))
    await frozen.execute("UPDATE gateway_records SET expires_at = now()")
    assert await frozen.fetch(QUERIES["retry"], *arguments, False, BELIEVE_ANY) == []
    await frozen.execute(f"UPDATE gateway_records SET expires_at = now() + {MICROSECOND}")
    assert await frozen.fetch(QUERIES["new_life"], *arguments, BELIEVE_ANY) == []
    (row,) = await frozen.fetch(QUERIES["retry"], *arguments, False, BELIEVE_ANY)
    assert (row["record_id"], row["attempt"]) == (record.record_id, 2)


async def test_instants_are_exact(frozen: "Connection") -> None:
    """Lease, look and expiry lie exactly where durations put them from now()."""
    wanted = intent(lease=30.0, max_execution=60.0)
    await reserve(frozen, wanted)
    assert await frozen.fetchval(
        "SELECT (locked_until, reconcile_after) = (now() + interval '30 s', now() + interval '90 s') FROM gateway_records"
    )
    leases = columns([(wanted.key.scope_id, wanted.key.key, wanted.owner, 12.5)])
    await frozen.execute(QUERIES["renew"], *leases)
    assert await frozen.fetchval(
        "SELECT (locked_until, reconcile_after) = (now() + interval '12.5 s', now() + interval '72.5 s') FROM gateway_records"
    )
    await complete(frozen, wanted, Retention(86400.0))
    assert await frozen.fetchval("SELECT (completed_at, expires_at) = (now(), now() + interval '1 day') FROM gateway_records")
    record = await find(frozen, wanted)
    assert record.expires_in == 86400.0
    assert record.expires_at_us == await frozen.fetchval("SELECT (extract(epoch FROM now()) * 1000000)::bigint + 86400000000")


async def test_all_facts_of_an_intent_are_kept(frozen: "Connection") -> None:
    """The row tells the request that made it."""
    wanted = intent()
    await reserve(frozen, wanted)
    row = await frozen.fetchrow("SELECT * FROM gateway_records")
    assert row is not None
    assert (row["request_method"], row["request_target"]) == ("POST", wanted.target)
    assert (row["route_id"], row["request_id"]) == (wanted.terms.route_id, wanted.request_id)
    assert (row["request_fingerprint"], row["fingerprint_policy"]) == (wanted.fingerprint.digest, wanted.fingerprint.policy)
    assert (row["observed"], row["reconcilable"], row["reconcile_attempts"]) == (False, True, 0)


@pytest.mark.parametrize(
    "change",
    [
        "status = 'paused'",
        "owner = 'short'",
        "request_fingerprint = ''",
        "version = 0",
        "locked_until = NULL",
        "expires_at = now()",
        "reconcile_after = NULL",
        "response_status_code = 200",
        "response_body = ''",
        "dead_lettered_at = now()",
        "unknown_since = now()",
        "status = 'completed'",
        "status = 'unknown'",
        "status = 'failed_retryable'",
        "status = 'completed', locked_until = NULL, reconcile_after = NULL, completed_at = now(), expires_at = now()",
    ],
)
async def test_impossible_rows_are_refused(frozen: "Connection", change: str) -> None:
    """No hand and no bug makes a record that contradicts its state."""
    await reserve(frozen, intent())
    with pytest.raises(asyncpg.CheckViolationError):
        await frozen.execute(f"UPDATE gateway_records SET {change}")


async def fill(connection: "Connection") -> None:
    """20,000 records, most of them completed, as a busy table is."""
    await connection.execute("""
        INSERT INTO gateway_records (
            scope_id, idempotency_key, record_id, route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy,
            status, owner, request_method, request_target, max_execution, locked_until, reconcile_after, unknown_since, dead_lettered_at,
            last_error_code, expires_at, completed_at, response_status_code, response_reason, response_headers, response_body,
            response_body_length, response_body_digest, response_schema_version
        )
        SELECT
            'scope-' || n % 50 || ':none', md5(n::text), gen_random_uuid(), 'r', 'q', sha256('f'), 1, sha256('p'),
            status, decode(md5(n::text), 'hex'), 'POST', '/v1', interval '1 min',
            CASE WHEN status = 'in_progress' THEN now() + n % 7 * interval '5 s' - interval '1 s' END,
            CASE WHEN status IN ('in_progress', 'unknown') THEN now() + n % 100 * interval '1 min' END,
            CASE WHEN status = 'unknown' THEN now() END,
            CASE WHEN status = 'unknown' AND n % 3 = 0 THEN now() END,
            CASE WHEN status = 'unknown' THEN 'x' END,
            CASE WHEN status IN ('completed', 'failed_retryable') THEN now() + (n % 1000 - 10) * interval '1 min' END,
            CASE WHEN status = 'completed' THEN now() END,
            CASE WHEN status = 'completed' THEN 200 END,
            CASE WHEN status = 'completed' THEN 'OK'::bytea END,
            CASE WHEN status = 'completed' THEN ''::bytea END,
            CASE WHEN status = 'completed' THEN decode(repeat('00', 300), 'hex') END,
            CASE WHEN status = 'completed' THEN 300 END,
            CASE WHEN status = 'completed' THEN sha256('b') END,
            CASE WHEN status = 'completed' THEN 1 END
        FROM (
            SELECT n, CASE WHEN n % 100 = 0 THEN 'unknown' WHEN n % 100 = 1 THEN 'in_progress'
                WHEN n % 100 = 2 THEN 'failed_retryable' ELSE 'completed' END AS status
            FROM generate_series(1, 20000) AS n
        ) AS made
    """)
    await connection.execute(
        "INSERT INTO gateway_tombstones"
        " SELECT sha256(n::text::bytea), 'r', now() + n * interval '1 min', 'scope-' || n % 50 FROM generate_series(-100, 20000) AS n"
    )
    await connection.execute("""
        INSERT INTO gateway_records_archive
        SELECT a.*
        FROM gateway_records r CROSS JOIN jsonb_populate_record(NULL::gateway_records_archive, to_jsonb(r) || jsonb_build_object(
            'archived_at', now(), 'archived_reason', 'expired', 'purge_at', r.expires_at + interval '20 min'
        )) AS a
        WHERE r.status = 'completed'
    """)
    await connection.execute("""
        INSERT INTO gateway_history (scope_id, idempotency_key, record_id, source, what, purge_after)
        SELECT scope_id, idempotency_key, record_id, 'lookup', 'executed', coalesce(expires_at, now() + interval '1 day')
        FROM gateway_records
    """)
    await connection.execute(
        "INSERT INTO gateway_webhook_events"
        " SELECT 'r', sha256(n::text::bytea), now() + n * interval '1 min' FROM generate_series(-100, 20000) AS n"
    )
    await connection.execute(
        "VACUUM ANALYZE gateway_records, gateway_tombstones, gateway_records_archive, gateway_history, gateway_webhook_events"
    )


async def test_every_statement_is_backed_by_an_index(connection: "Connection") -> None:
    """On a busy table none reads more than its rows: keys by the primary key, the background's work by its own partial index."""
    await fill(connection)
    many = [intent() for _ in range(20)]
    keys = [(wanted.key.scope_id, wanted.key.key, wanted.owner) for wanted in many]
    lease = Lease(many[0].key, UUID(int=0), many[0].owner, 1, 0.0, 30.0)
    record = Record(many[0].key, UUID(int=0), 1, "unknown", many[0].fingerprint, b"", 1, "")  # type: ignore[arg-type]  # only its key counts
    primary, expiring, tombstones = "gateway_records_pkey", "gateway_records_expiring", "gateway_tombstones_pkey"
    purge = {tombstones, "gateway_tombstones_expiring", "gateway_records_archive_pkey", "gateway_records_archive_purging", primary}
    purge |= {"gateway_webhook_events_pkey", "gateway_webhook_events_expiring", "gateway_history_pkey", "gateway_history_aging"}
    lone, mixed = [many[0]], [*many[:-1], intent(route_id="another")]
    asking = [intent(wanted.key, gone_for=n % 2 * 60.0 or None) for n, wanted in enumerate(many)]
    completions = [Ending(completion(lease, response()), KEPT)] * 20
    cases: list[tuple[str, Sequence[Any], set[str]]] = [
        *[(*reserve_statement(intents, BELIEVE_ANY), {primary}) for intents in (lone, many, mixed)],
        *[(*reserve_statement(intents, BELIEVE_ANY), {primary, tombstones}) for intents in (asking[1:2], asking)],
        (*reserve_alone_statement(many[0]), set()),
        (QUERIES["find"], (*keys[0][:2], 65536), {primary}),
        *[(*complete_statement(endings), {primary}) for endings in (completions[:1], completions)],
        (*complete_alone_statement(completions[0]), {primary}),
        (*release_statement([Ending(Release(*key, "x"), KEPT) for key in keys]), {primary}),
        (*doubt_statement([Doubt(*key, "x") for key in keys]), {primary}),
        (QUERIES["renew"], tuple(columns([(*key, 1.0) for key in keys])), {primary}),
        (QUERIES["retry"], (*claim_arguments(record, many[0]), True), {primary}),
        (QUERIES["new_life"], claim_arguments(record, many[0]), {primary}),
        (QUERIES["lapse"], (*keys[0][:2], UUID(int=0), 1, OBSERVED_DOUBT_KEPT), {primary}),
        (QUERIES["sweep"], (10, OBSERVED_DOUBT_KEPT), {primary, "gateway_records_lapsing"}),
        (QUERIES["reap"], REAP, {primary, expiring}),
        (QUERIES["purge"], REAP[:2], purge),
        (QUERIES["live_records"], ("scope-7", 1000), {primary, "gateway_records_lapsing", "gateway_records_doubtful", expiring}),
        (QUERIES["live_tombstones"], ("scope-7", 1000), {"gateway_tombstones_scope"}),
    ]
    for mode in MODE_NAMES:
        for sql, arguments, indexes in cases:
            used = scans(await plan_of(connection, mode, sql, *arguments))
            assert {index for _, index in used if index} == indexes, (mode, sql, used)
            assert not [node for node, _ in used if node == "Seq Scan"], (mode, sql)


async def test_an_empty_table_is_planned_for_as_a_busy_one(connection: "Connection") -> None:
    """A plan outlasts the emptiness by far. What a request waits for finds each row by the primary key, and none by reading all."""
    await connection.execute("VACUUM ANALYZE gateway_records, gateway_tombstones")
    many = [intent() for _ in range(20)]
    keys = [(wanted.key.scope_id, wanted.key.key, wanted.owner) for wanted in many]
    lease = Lease(many[0].key, UUID(int=0), many[0].owner, 1, 0.0, 30.0)
    cases: list[tuple[str, Sequence[Any]]] = [
        reserve_statement(many, BELIEVE_ANY),
        complete_statement([Ending(completion(lease, response()), KEPT)] * 20),
        release_statement([Ending(Release(*key, "x"), KEPT) for key in keys]),
        doubt_statement([Doubt(*key, "x") for key in keys]),
        (QUERIES["find"], (*keys[0][:2], 65536)),
    ]
    for sql, arguments in cases:
        used = scans(await plan_of(connection, "force_generic_plan", sql, *arguments))
        assert {index for _, index in used} == {"gateway_records_pkey"}, (sql, used)


async def test_only_the_estimate_of_completed_records_may_read_many_rows(connection: "Connection") -> None:
    """The gauges' statement counts rare states by their small indexes, and estimates the rest."""
    await fill(connection)
    row = await connection.fetchrow(QUERIES["counts"], 10_000)
    assert row is not None
    assert (row["in_progress"], row["failed_retryable"], row["unknown"], row["dead_letters"]) == (200, 200, 200, 66)
    assert row["completed"] == pytest.approx(19_400, rel=0.1)
    for mode in MODE_NAMES:
        used = {index for _, index in scans(await plan_of(connection, mode, QUERIES["counts"], 10_000))}
        assert {"gateway_records_lapsing", "gateway_records_doubtful"} <= used
