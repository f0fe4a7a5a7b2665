"""Tables divided into hash partitions: how they come about, and what a statement touches."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import asyncpg
import pytest
from click.testing import CliRunner

from gateway.cli import main
from gateway.core.model import Lease
from gateway.core.shards import BatchBy, hash_bytes, partition_of, shard_finder
from gateway.devtools.embedded import PostgresServer
from gateway.ports import Transition
from gateway.store import co_commit
from gateway.store.migrate import MigrationError
from gateway.store.partitions import partition
from gateway.store.postgres import PostgresStore
from gateway.store.postgres.clock import BELIEVE_ANY
from gateway.store.postgres.queries import QUERIES
from gateway.store.postgres.statements import (
    Ending,
    complete_alone_statement,
    complete_statement,
    completion,
    reserve_alone_statement,
    reserve_statement,
)
from tests.store.contract.harness import KEPT, fresh_key, intent, reserved, response
from tests.store.postgres.conftest import MakeStore
from tests.store.postgres.plans import MODE_NAMES, plan_of, rows_read, scans
from tests.store.postgres.recorder import Recorder
from tests.store.postgres.test_statements import fill
from tests.support.services import Services, run

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]  # generic only in its stubs

PARTS = 4
TABLES = ("gateway_records", "gateway_records_archive", "gateway_tombstones")
NAMES = """
    SELECT conrelid::regclass::text AS "table", conname::text AS name FROM pg_constraint WHERE conrelid::regclass::text = ANY ($1)
        AND contype <> 'n'
    UNION
    SELECT tablename, indexname FROM pg_indexes WHERE tablename = ANY ($1)
    UNION
    SELECT tgrelid::regclass::text, tgname FROM pg_trigger WHERE tgrelid::regclass::text = ANY ($1) AND NOT tgisinternal
    UNION
    SELECT table_name, grantee || ' ' || privilege_type FROM information_schema.table_privileges WHERE table_name = ANY ($1)
    UNION
    SELECT table_name, column_name || ' ' || data_type || ' ' || is_nullable || ' ' || coalesce(column_default, '')
    FROM information_schema.columns WHERE table_name = ANY ($1)
    ORDER BY 1, 2
    """
FEW = """
    INSERT INTO gateway_records (
        scope_id, idempotency_key, record_id, route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy,
        status, owner, request_method, request_target, max_execution, locked_until, reconcile_after
    )
    SELECT 'scope-' || n || ':none', n::text, gen_random_uuid(), 'r', 'q', sha256('f'), 1, sha256('p'),
        'in_progress', decode(md5(n::text), 'hex'), 'POST', '/v1', interval '1 min', now(), now()
    FROM generate_series(1, 300) AS n;
    INSERT INTO gateway_records_archive
    SELECT a.*
    FROM gateway_records r CROSS JOIN jsonb_populate_record(
        NULL::gateway_records_archive, to_jsonb(r) || '{"archived_at": "2026-01-01", "archived_reason": "expired"}'
    ) AS a;
    INSERT INTO gateway_tombstones SELECT sha256(n::text::bytea), 'r', now(), 'scope' FROM generate_series(1, 300) AS n
    """
OPTIONS = """
    SELECT c.reloptions, t.reloptions AS toast
    FROM pg_class c
    LEFT JOIN pg_class t ON t.oid = c.reltoastrelid
    WHERE c.oid = $1::text::regclass
    """


@pytest.fixture
async def old(services: Services, every_postgres: PostgresServer) -> AsyncIterator[str]:
    """DSN of a migrated database that is not divided, on each Postgres that is here."""
    dsn = services.migrated_database(every_postgres)
    yield dsn
    services.drop_database(every_postgres, dsn)


async def contents(connection: "Connection") -> dict[str, list[Any]]:
    return {table: await connection.fetch(f"SELECT t::text FROM {table} AS t ORDER BY 1") for table in TABLES}


async def test_a_schema_in_use_is_divided_with_all_that_belongs_to_it(old: str) -> None:
    """Rows, constraints, indexes, triggers, settings and grants are as before; twice is once, and another number is refused."""
    connection = await asyncpg.connect(old)
    try:
        await connection.execute(FEW)
        await connection.execute(f"GRANT SELECT, INSERT ON {', '.join(TABLES)} TO PUBLIC")
        before, names = await contents(connection), await connection.fetch(NAMES, TABLES)
        options = [await connection.fetchrow(OPTIONS, table) for table in TABLES]
        assert await partition(old, PARTS)
        assert not await partition(old, PARTS)
        with pytest.raises(MigrationError, match="4 partitions"):
            await partition(old, PARTS * 2)
        assert await contents(connection) == before
        assert await connection.fetch(NAMES, TABLES) == names
        for part in range(PARTS):
            assert [await connection.fetchrow(OPTIONS, f"{table}_p{part}") for table in TABLES] == options
            assert await connection.fetchval(f"SELECT count(*) FROM gateway_records_p{part}")
        await connection.execute("ALTER TABLE gateway_records ADD COLUMN later text; CREATE INDEX ON gateway_records (later)")
    finally:
        await connection.close()


async def test_functions_of_upstreams_are_made_anew_with_their_table(old: str) -> None:
    """They are bound to it: without their role nothing is divided."""
    connection = await asyncpg.connect(old)
    try:
        role = await connection.fetchval("SELECT current_user")
        await co_commit.install(old, role)
        with pytest.raises(MigrationError, match="--co-commit-role"):
            await partition(old, PARTS)
        assert await partition(old, PARTS, co_commit_is_installed_next=True)
        await co_commit.install(old, role)
        assert await co_commit.is_installed(old)
    finally:
        await connection.close()


def test_the_script_can_be_printed() -> None:
    """For databases whose owner applies DDL by hand."""
    printed = CliRunner().invoke(main, ["migrate", "--print", "--partitions", "4"])
    assert printed.exit_code == 0
    assert "MODULUS" in printed.output
    assert ":partitions" not in printed.output


@pytest.fixture(scope="module")
def busy(services: Services, postgres_server: PostgresServer) -> Iterator[str]:
    """DSN of a busy database whose tables are divided."""
    dsn = services.migrated_database(postgres_server)

    async def made() -> None:
        connection = await asyncpg.connect(dsn)
        await fill(connection)
        await partition(dsn, PARTS)
        await connection.execute("VACUUM ANALYZE gateway_records, gateway_records_archive, gateway_tombstones")
        await connection.close()

    run(made)
    yield dsn
    services.drop_database(postgres_server, dsn)


@pytest.fixture
async def divided(busy: str) -> AsyncIterator["Connection"]:
    connection = await asyncpg.connect(busy)
    yield connection
    await connection.close()


def touched(plan: Any) -> set[str]:
    """The partitions of records that the plan's scans looked into."""
    found = {part for child in plan.get("Plans", []) for part in touched(child)}
    if plan.get("Relation Name", "").startswith("gateway_records_p") and "Scan" in plan["Node Type"] and plan["Actual Loops"]:
        found.add(plan["Relation Name"])
    return found


async def test_a_statement_touches_the_partitions_of_its_records_alone(divided: "Connection") -> None:
    """Whether the plan was made for these records or for any; the background's work goes by index through each."""
    mine = [intent(fresh_key("scope-7:none")) for _ in range(4)]
    endings = [Ending(completion(Lease(one.key, UUID(int=0), one.owner, 1, 0.0, 30.0), response()), KEPT) for one in mine]
    partition_name = f"gateway_records_p{partition_of('scope-7:none', PARTS)}"
    lone: list[tuple[str, Any]] = [
        reserve_alone_statement(mine[0]),
        reserve_statement(mine, BELIEVE_ANY),
        complete_alone_statement(endings[0]),
        complete_statement(endings),
        (QUERIES["find"], ("scope-7:none", mine[0].key.key, 65536)),
    ]
    for mode in MODE_NAMES:
        for sql, arguments in lone:
            plan = await plan_of(divided, mode, sql, *arguments)
            assert touched(plan) <= {partition_name}, (mode, sql, touched(plan))
        for name, arguments in (("sweep", (10, 60.0)), ("reap", (10, 2**24, 0.0)), ("take_due", ("r", 10, 5.0, []))):
            plan = await plan_of(divided, mode, QUERIES[name], *arguments)
            assert not [node for node, _ in scans(plan) if node == "Seq Scan"], (mode, name)
            assert rows_read(plan) <= 10 * 2 * PARTS + 1000, (mode, name, rows_read(plan))


async def test_postgres_has_a_scope_where_we_say(divided: "Connection") -> None:
    """Also of a text of each length, and in the function by which Citus finds a shard."""
    for row in await divided.fetch("SELECT DISTINCT scope_id, tableoid::regclass::text AS part FROM gateway_records"):
        assert row["part"] == f"gateway_records_p{partition_of(row['scope_id'], PARTS)}"
    for text in ("ünïcode:\U0001f511" * n + "x" * m for n in range(3) for m in range(13)):
        assert await divided.fetchval("SELECT hashtext($1)", text) & 0xFFFFFFFF == hash_bytes(text.encode()) & 0xFFFFFFFF


async def test_a_batch_holds_the_records_of_one_partition(make_store: MakeStore, recorder: Recorder) -> None:
    """Where it is asked for; otherwise the same calls are one batch."""
    scopes = [f"scope-{n}:none" for n in range(64)]
    store = make_store(pool_size=1, observer=recorder, shard_of=shard_finder(BatchBy.PARTITION, PARTS))
    await ended(store, scopes)
    parts = [partition_of(scope, PARTS) for scope in scopes]
    by_part = sorted(parts.count(part) for part in set(parts))
    assert sorted(recorder.sizes("reserve")) == sorted(recorder.sizes("complete")) == by_part
    recorder.batches.clear()
    await ended(make_store(pool_size=1, observer=recorder), scopes)
    assert recorder.sizes("reserve") == [64]


async def ended(store: PostgresStore, scopes: list[str]) -> None:
    """An operation of each scope, all at the same time."""
    await store.find(fresh_key())  # connected
    leases = await asyncio.gather(*[reserved(store, intent(fresh_key(scope))) for scope in scopes])
    answers = await asyncio.gather(*[store.complete(lease, response(), KEPT) for lease in leases])
    assert {answer.transition for answer in answers} == {Transition.DONE}
