"""Migrations of a table that is in use: none reads or rewrites it, none makes traffic wait for long."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from gateway.core.model import Lease
from gateway.devtools.embedded import PostgresServer
from gateway.store.migrate import Migration, MigrationError, migrate, migrations, pending
from tests.store.contract.harness import intent, response
from tests.store.postgres.before import Before
from tests.support.services import Services

LATER = pytest.mark.parametrize("step", migrations()[1:], ids=lambda step: step.name)

RECORDS = """
    INSERT INTO gateway_records (
        scope_id, idempotency_key, record_id, route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy,
        status, owner, request_method, request_target, max_execution, locked_until, reconcile_after
    )
    SELECT
        'payments:none', n::text, gen_random_uuid(), 'r', 'q', sha256('f'), 1, sha256('p'), 'in_progress', decode(md5(n::text), 'hex'),
        'POST', convert_to(repeat('/v', 800), 'UTF8'), interval '1 min', now(), now()
    FROM generate_series(1, 42000) AS n
    """

LARGE = {
    "0004_reconcile.sql": ("gateway_records_due_by_route", RECORDS),
    "0006_accepted.sql": ("gateway_records_pending", RECORDS),
    "0005_hardening.sql": (
        "gateway_tombstones_scope",
        """
        INSERT INTO gateway_tombstones (digest, route_id, expires_at)
        SELECT sha256(convert_to(n::text, 'UTF8')), repeat('r', 1600), now() FROM generate_series(1, 42000) AS n
        """,
    ),
}
"""By migration: an index that is built beforehand where its table is large, and what makes that so."""


def beforehand(step: Migration) -> list[str]:
    """What the head of the file tells to do before, where the table is large."""
    told = [
        line.removeprefix("--   ") for line in step.sql.splitlines() if line.startswith(("--   ALTER", "--   CREATE", "--       WHERE"))
    ]
    return "\n".join(told).rstrip(";").split(";\n") if told else []


@pytest.fixture
async def gateway(services: Services, every_postgres: PostgresServer, step: Migration) -> AsyncIterator[tuple[str, Before]]:
    """The database without this migration and those after it, and a gateway of its time."""
    dsn = services.empty_database(every_postgres)
    await migrate(dsn, steps=migrations()[: step.version - 1])
    connection = await asyncpg.connect(dsn)
    before = Before(connection, step.version - 1)
    await before.start()
    yield dsn, before
    await connection.close()
    services.drop_database(every_postgres, dsn)


@LATER
async def test_a_migration_reads_no_row_and_rewrites_none(gateway: tuple[str, Before], step: Migration) -> None:
    """It is a matter of the catalogue: the server says so itself, and the table's file stays. What reads the table is done beforehand, with
    traffic going on.
    """
    dsn, before = gateway
    for statement in beforehand(step):
        await before.connection.execute(statement)
    assert await before.complete(await before.reserved(intent()), response()) == "done"
    connection = await asyncpg.connect(dsn)
    heard: list[str] = []
    try:
        connection.add_log_listener(lambda _, message: heard.append(message.message))
        await connection.execute("SET client_min_messages = debug1")
        file = await connection.fetchval("SELECT pg_relation_filenode('gateway_records')")
        async with connection.transaction():
            await connection.execute(step.sql)
        assert not [text for text in heard if text.startswith(("rewriting table", "verifying table"))]
        assert not [text for text in heard if text.startswith("building index") and text.endswith('on table "gateway_records" serially')]
        assert await connection.fetchval("SELECT pg_relation_filenode('gateway_records')") == file
        invalid = "SELECT conname FROM pg_constraint WHERE conrelid = 'gateway_records'::regclass AND NOT convalidated"
        constraints = await connection.fetch(invalid)
        assert constraints
        for (name,) in constraints:
            await connection.execute(f"ALTER TABLE gateway_records VALIDATE CONSTRAINT {name}")
        await connection.execute("ALTER TABLE gateway_records ADD CHECK (version >= 0)")
        assert [text for text in heard if text.startswith("verifying table")], "that a scan would have been heard of"
    finally:
        await connection.close()


@LATER
async def test_a_migration_does_not_hold_up_traffic_behind_a_long_transaction(gateway: tuple[str, Before], step: Migration) -> None:
    """It gives up waiting for its lock before calls that queue behind it would time out, changes nothing, and succeeds when repeated."""
    dsn, before = gateway
    reader = await asyncpg.connect(dsn)
    try:
        async with reader.transaction():
            for table in ("gateway_records", "gateway_tombstones"):
                if await reader.fetchval("SELECT to_regclass($1)", table) is not None:
                    await reader.fetch(f"SELECT FROM {table}")
            if "ALTER TABLE" not in step.sql:  # it makes tables of its own and waits for nobody
                assert step.name in await migrate(dsn)
                return
            with pytest.raises(MigrationError, match=step.name):
                await migrate(dsn)
            assert await pending(reader) == [later.name for later in migrations()[step.version - 1 :]]
        assert isinstance(await before.reserve(intent()), Lease)
        assert step.name in await migrate(dsn)
    finally:
        await reader.close()


@LATER
async def test_a_large_table_is_not_locked_to_build_an_index(gateway: tuple[str, Before], step: Migration) -> None:
    """The migration changes nothing until the index was built beside the traffic, as it tells; a building that was cut short is none."""
    dsn, before = gateway
    if not beforehand(step):
        return
    index, filling = LARGE[step.name]
    await before.connection.execute(filling)
    with pytest.raises(MigrationError, match=f"{step.name}.*large"):
        await migrate(dsn, steps=migrations()[: step.version])
    add, build, *others = beforehand(step)
    await before.connection.execute(add)
    await before.connection.execute(build)
    await before.connection.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = $1::text::regclass", index)
    for statement in others:
        await before.connection.execute(statement)
    with pytest.raises(MigrationError, match=f"{step.name}.*invalid"):
        await migrate(dsn, steps=migrations()[: step.version])
    await before.connection.execute(f"DROP INDEX {index}")
    await before.connection.execute(build)
    assert isinstance(await before.reserve(intent()), Lease)
    assert step.name in await migrate(dsn, steps=migrations()[: step.version])
    assert isinstance(await before.reserve(intent()), Lease)
