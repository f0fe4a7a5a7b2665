"""Beside the release before: its statements on the present schema, its records in present hands, and ours in its."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg
import pytest

from gateway.core.model import Intent, Lease, Record, StoredResponse
from gateway.embedded import PostgresServer
from gateway.ports import Transition
from gateway.store.migrate import MigrationError, migrate, migrations, pending
from gateway.store.postgres import PostgresStore
from gateway.store.postgres.rows import claim_arguments, columns, intent_row
from gateway.store.postgres.statements import completion
from tests.contract.harness import RETENTION, age_records, found, intent, packed_response, reserved, response
from tests.support.services import Services

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]  # generic only in its stubs

FIRST, ENCODING = migrations()[:2]
READABLE = 1
"""The response schema version that the release before reads; it refuses a record of any other."""


def statements() -> dict[str, str]:
    """The release before's, by name."""
    _, *sections = Path(__file__).with_name("statements_0001.sql").read_text("utf-8").split("-- name: ")
    return {name.strip(): text for name, _, text in (section.partition("\n") for section in sections)}


OLD = statements()


class Before:
    """A gateway of the release before: one connection, its statements prepared when it started."""

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection
        self.prepared: dict[str, Any] = {}

    async def start(self) -> None:
        self.prepared = {name: await self.connection.prepare(text) for name, text in OLD.items()}
        await self.connection.execute("SELECT 1")  # the driver leaves what `prepare` has begun open until the next statement

    async def reserve(self, wanted: Intent) -> Lease | asyncpg.Record:
        (row,) = await self.prepared["reserve"].fetch(*columns([intent_row(wanted)]), 65536)
        return Lease(wanted.key, row["record_id"], wanted.owner, 1, 0.0, wanted.lease) if row["version"] is None else row

    async def reserved(self, wanted: Intent) -> Lease:
        lease = await self.reserve(wanted)
        assert isinstance(lease, Lease)
        return lease

    async def find(self, wanted: Intent | Lease) -> asyncpg.Record:
        (row,) = await self.prepared["find"].fetch(wanted.key.scope_id, wanted.key.key)
        return row  # type: ignore[no-any-return]  # prepared statements are Any here

    async def complete(self, lease: Lease, answer: StoredResponse) -> str:
        assert answer.encoding == 0
        row = completion(lease, answer, RETENTION)
        (settled,) = await self.prepared["complete"].fetch(*columns([(*row[:8], *row[9:])]))
        return settled["transition"]  # type: ignore[no-any-return]  # as above

    async def new_life(self, record: Record, wanted: Intent) -> Lease:
        (row,) = await self.prepared["new_life"].fetch(*claim_arguments(record, wanted))
        return Lease(wanted.key, row["record_id"], wanted.owner, row["attempt"], 0.0, wanted.lease)

    async def release(self, lease: Lease) -> str:
        (settled,) = await self.prepared["release"].fetch(*columns([(lease.key.scope_id, lease.key.key, lease.owner, "x", RETENTION)]))
        return settled["transition"]  # type: ignore[no-any-return]  # as above


@pytest.fixture
async def old_database(services: Services, every_postgres: PostgresServer) -> AsyncIterator[str]:
    """DSN of a database as the release before left it, on each Postgres that is here."""
    dsn = services.empty_database(every_postgres)
    assert await migrate(dsn, steps=[FIRST]) == [FIRST.name]
    yield dsn
    services.drop_database(every_postgres, dsn)


@pytest.fixture
async def before(old_database: str) -> AsyncIterator[Before]:
    connection = await asyncpg.connect(old_database)
    gateway = Before(connection)
    await gateway.start()
    yield gateway
    await connection.close()


@pytest.fixture
async def store(old_database: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(old_database, pool_size=2, timeout=30)
    yield store
    await store.close()


async def test_its_records_are_read_and_its_statements_go_on(before: Before, store: PostgresStore, old_database: str) -> None:
    """A gateway that runs through the migration keeps working as prepared, and what it writes before and after is read as it was."""
    first, second, third = [await before.reserved(intent()) for _ in range(3)]
    answers = {first.key: response(b"first"), second.key: response(b"second"), third.key: response(b"x" * 9000)}
    assert await before.complete(first, answers[first.key]) == "done"
    assert await migrate(old_database) == [step.name for step in migrations()[1:]]
    assert await before.complete(second, answers[second.key]) == "done"
    assert await before.complete(third, answers[third.key]) == "done"
    assert await before.complete(second, answers[second.key]) == "already"
    for key, answer in answers.items():
        assert (await found(store, key)).response == answer
        again = await store.reserve(intent(key))
        assert isinstance(again, Record)
        assert again.response == answer
    released = await before.reserved(intent())
    assert await before.release(released) == "done"
    assert await store.claim(await found(store, released.key), intent(released.key)) is not None


async def test_it_replays_our_plain_answers_and_refuses_our_packed_ones(before: Before, store: PostgresStore, old_database: str) -> None:
    """It reads what it can read, and never takes packed bytes for an answer: their schema version is one that it does not know."""
    await migrate(old_database)
    plain, packed = await reserved(store, intent()), await reserved(store, intent())
    await store.complete(plain, response(b"plain"), RETENTION)
    await store.complete(packed, packed_response(), RETENTION)
    row = await before.find(plain)
    assert (row["response_schema_version"], row["response_body"]) == (READABLE, b"plain")
    assert (await before.find(packed))["response_schema_version"] != READABLE
    met = await before.reserve(intent(packed.key))
    assert not isinstance(met, Lease)
    assert met["response_schema_version"] != READABLE


async def test_its_answer_in_a_row_that_held_a_packed_one_is_plain(before: Before, store: PostgresStore, old_database: str) -> None:
    """A new life that it gives to our row leaves the column behind; its answer is read by its schema version, and ours after it as ours."""
    await migrate(old_database)
    ours = await reserved(store, intent())
    await store.complete(ours, packed_response(), RETENTION)
    await age_records(old_database, RETENTION + 1)
    theirs = await before.new_life(await found(store, ours.key), intent(ours.key))
    assert await before.complete(theirs, response(b"theirs")) == "done"
    assert (await found(store, ours.key)).response == response(b"theirs")
    await age_records(old_database, RETENTION + 1)
    again = await store.claim(await found(store, ours.key), intent(ours.key))
    assert again is not None
    assert (await store.complete(again, packed_response(), RETENTION)).transition is Transition.DONE
    assert (await found(store, ours.key)).response == packed_response()


async def test_the_migration_reads_no_row_and_rewrites_none(before: Before, old_database: str) -> None:
    """On a live table it is a matter of the catalogue: the server says so itself, and the table's file stays."""
    lease = await before.reserved(intent())
    await before.complete(lease, response())
    connection = await asyncpg.connect(old_database)
    heard: list[str] = []
    try:
        connection.add_log_listener(lambda _, message: heard.append(message.message))
        await connection.execute("SET client_min_messages = debug1")
        file = await connection.fetchval("SELECT pg_relation_filenode('gateway_records')")
        async with connection.transaction():
            await connection.execute(ENCODING.sql)
        assert not [text for text in heard if text.startswith(("rewriting table", "verifying table"))]
        assert await connection.fetchval("SELECT pg_relation_filenode('gateway_records')") == file
        await connection.execute("ALTER TABLE gateway_records VALIDATE CONSTRAINT gateway_records_packed")
        await connection.execute("ALTER TABLE gateway_records ADD CHECK (response_body_encoding >= 0)")
        assert [text for text in heard if text.startswith("verifying table")], "that a scan would have been heard of"
    finally:
        await connection.close()


async def test_the_migration_does_not_hold_up_traffic_behind_a_long_transaction(before: Before, old_database: str) -> None:
    """It gives up waiting for its lock before calls that queue behind it would time out, changes nothing, and succeeds when repeated."""
    reader = await asyncpg.connect(old_database)
    try:
        async with reader.transaction():
            await reader.fetch("SELECT FROM gateway_records")
            with pytest.raises(MigrationError, match=ENCODING.name):
                await migrate(old_database)
            assert await pending(reader) == [step.name for step in migrations()[1:]]
        assert isinstance(await before.reserve(intent()), Lease)
        assert ENCODING.name in await migrate(old_database)
    finally:
        await reader.close()


async def test_a_packed_answer_without_a_body_cannot_be_stored(before: Before, old_database: str) -> None:
    """What is said to be packed must be there, and packed somehow."""
    await migrate(old_database)
    lease = await before.reserved(intent())
    await before.complete(lease, response())
    for change in ("response_body_encoding = 1, response_body = NULL", "response_body_encoding = 0", "response_body_encoding = -1"):
        with pytest.raises(asyncpg.CheckViolationError):
            await before.connection.execute(f"UPDATE gateway_records SET response_schema_version = 2, {change}")
