import asyncio
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import asyncpg
import pytest
from click.testing import CliRunner

from gateway.cli import main
from gateway.store.migrate import Migration, MigrationError, migrate, migrations, pending, script
from gateway.store.postgres import PostgresStore
from tests.store.postgres.conftest import MakeStore

NAMES = [step.name for step in migrations()]
NEXT = Migration(len(NAMES) + 1, "9999_next.sql", "CREATE TABLE next_thing (n integer)")


async def run(dsn: str, sql: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


async def lacks(dsn: str) -> list[str]:
    connection = await asyncpg.connect(dsn)
    try:
        return await pending(connection)
    finally:
        await connection.close()


async def test_an_empty_database_gets_every_migration_once(empty_database: str) -> None:
    """The first run applies all in order, the second none."""
    assert await lacks(empty_database) == NAMES
    assert await migrate(empty_database) == NAMES
    assert await lacks(empty_database) == []
    assert await migrate(empty_database) == []
    assert await run(empty_database, "SELECT count(*) FROM gateway_schema_migrations") == len(NAMES)


async def test_migrations_work_on_every_postgres(every_database: str) -> None:
    """The schema is there on each version, and ready to be served on."""
    store = PostgresStore(every_database, timeout=10)
    assert await store.ready() is None
    await store.close()


async def test_concurrent_migrators_share_the_work(empty_database: str) -> None:
    """Any number may start at once: each file is applied by exactly one."""
    applied = await asyncio.gather(*[migrate(empty_database) for _ in range(6)])
    assert sorted(name for names in applied for name in names) == NAMES


async def test_a_changed_file_is_an_error_that_names_it(database: str) -> None:
    """What was applied must be what this code has."""
    changed = [replace(step, sql=step.sql + "\n-- more") for step in migrations()]
    with pytest.raises(MigrationError, match=NAMES[0]):
        await migrate(database, steps=changed)


async def test_a_failing_migration_leaves_nothing_behind(database: str) -> None:
    """A file is applied and recorded whole, or not at all."""
    broken = replace(NEXT, sql=NEXT.sql + "; SELECT 1 / 0")
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(database, steps=[*migrations(), broken])
    assert await run(database, "SELECT to_regclass('next_thing')") is None
    assert await migrate(database, steps=[*migrations(), NEXT]) == [NEXT.name]


async def test_a_roll_back_may_migrate(database: str) -> None:
    """A roll back that installs the release before as a whole (a chart, a Compose file) runs its `migrate`: nothing is to do then."""
    await migrate(database, steps=[*migrations(), NEXT])
    assert await migrate(database) == []
    assert await run(database, "SELECT count(*) FROM gateway_schema_migrations") == len(NAMES) + 1


async def test_a_ledger_that_is_too_far_ahead_is_an_error(database: str) -> None:
    """A `migrate` of two releases before does not touch the schema, and says what it does not know."""
    after = replace(NEXT, version=NEXT.version + 1, name="9999_after.sql", sql="SELECT 1")
    await migrate(database, steps=[*migrations(), NEXT, after])
    with pytest.raises(MigrationError, match=after.name):
        await migrate(database)


@pytest.mark.parametrize("more", [["--partitions", "4"], ["--co-commit-role", "gateway"]])
def test_a_roll_back_changes_no_newer_schema(database: str, tmp_path: Path, more: list[str]) -> None:
    """What an older release would make of the newer tables is not known to it: it refuses, and the plain command is content."""
    asyncio.run(migrate(database, steps=[*migrations(), NEXT]))
    config = tmp_path / "gateway.yaml"
    config.write_text(f"""\
listen: 127.0.0.1:0
admin: {{listen: 127.0.0.1:0}}
postgres: {{dsn: "{database}"}}
redis: {{url: ""}}
digest_secret: a-secret-of-the-tests
upstreams: {{api: {{url: "http://127.0.0.1:9"}}}}
routes: [{{id: all, path: /**, upstream: api}}]
""")
    done = CliRunner().invoke(main, ["migrate", "--config", str(config)])
    assert (done.exit_code, done.stderr.strip()) == (0, "OK: nothing to do")
    refused = CliRunner().invoke(main, ["migrate", "--config", str(config), *more])
    assert refused.exit_code == 1
    assert NEXT.name in refused.stderr


async def test_a_server_tolerates_one_migration_of_the_release_after(database: str, make_store: MakeStore) -> None:
    """During a roll-out the old release serves on the new schema; two ahead is too far."""
    await migrate(database, steps=[*migrations(), NEXT])
    store = make_store()
    assert await store.ready() is None
    after = replace(NEXT, version=NEXT.version + 1, name="9999_after.sql", sql="SELECT 1")
    await migrate(database, steps=[*migrations(), NEXT, after])
    reason = await store.ready()
    assert reason is not None
    assert "ahead" in reason


async def test_the_script_does_what_migrate_does(empty_database: str) -> None:
    """A DBA who runs the printed script gets the same schema and ledger."""
    connection = await asyncpg.connect(empty_database)
    try:
        await connection.execute(script())
    finally:
        await connection.close()
    assert await lacks(empty_database) == []
    assert await migrate(empty_database) == []


async def test_a_store_without_its_schema_is_not_ready(empty_database: str, make_store: MakeStore) -> None:
    """Readiness says what to do."""
    reason = await make_store(empty_database).ready()
    assert reason is not None
    assert "behind" in reason
    assert NAMES[0] in reason


def test_migrations_are_numbered_without_gaps() -> None:
    """Versions count from 1, each file has a number of its own, and no file is overlooked for its name."""
    assert [step.version for step in migrations()] == list(range(1, len(NAMES) + 1))
    sql = [entry.name for entry in files("gateway.store").joinpath("migrations").iterdir() if entry.name.endswith(".sql")]
    assert sorted(sql) == NAMES
