"""The reaper's one statement, and those who ask while it runs."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import asyncpg
import pytest

from gateway.core.model import Intent, Lease, Record, RecordKey, Status, Tombstone
from gateway.ports import TOMBSTONE_AFTER, Retention
from gateway.store.postgres.clock import BELIEVE_ANY
from gateway.store.postgres.queries import QUERIES
from gateway.store.postgres.rows import decode_record
from gateway.store.postgres.statements import Doubt, doubt_statement, reserve_statement
from tests.store.contract.harness import RETENTION, age_records, archived_records, found, fresh_key, intent, reserved, response
from tests.store.postgres.conftest import MakeStore
from tests.store.postgres.watch import until_waiting

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]  # generic only in its stubs

PERIOD = 600.0
BOTH = Retention(RETENTION, gone_for=PERIOD, keep_for=PERIOD)
ALL = (100, 2**30, TOMBSTONE_AFTER)
MICROSECOND = "interval '1 microsecond'"


@pytest.fixture
async def other(database: str) -> AsyncIterator["Connection"]:
    """A second connection of the test's own."""
    connection = await asyncpg.connect(database)
    yield connection
    await connection.close()


def asking(key: RecordKey | None = None) -> Intent:
    return intent(key, gone_for=PERIOD)


async def reserve(connection: "Connection", *intents: Intent) -> list[asyncpg.Record]:
    sql, arguments = reserve_statement(intents, BELIEVE_ANY)
    return await connection.fetch(sql, *arguments)


async def expired(make_store: MakeStore, database: str, retention: Retention = BOTH, key: RecordKey | None = None) -> RecordKey:
    """The key of a completed record whose retention is over."""
    store = make_store()
    lease = await reserved(store, intent(key))
    await store.complete(lease, response(), retention)
    await age_records(database, retention.seconds + 1)
    return lease.key


async def test_who_asks_waits_for_no_reaper(make_store: MakeStore, connection: "Connection", database: str) -> None:
    """Until the reaper commits the expired record answers, from then on its tombstone; who does not ask waits and gets a new record."""
    key, store = await expired(make_store, database), make_store()
    async with connection.transaction():
        assert await connection.fetchval(QUERIES["reap"], *ALL, BELIEVE_ANY) == 1
        record = await store.reserve(asking(key))
        assert isinstance(record, Record)
        assert record.expired
        executing = asyncio.ensure_future(store.reserve(intent(key)))
        await until_waiting(connection)
        assert isinstance(await store.reserve(asking(key)), Record)
    assert isinstance(await executing, Lease)
    assert isinstance(await store.reserve(asking(key)), Record)


async def test_a_reserve_that_began_before_the_reaping_makes_nothing_after_it(
    make_store: MakeStore, connection: "Connection", other: "Connection", database: str
) -> None:
    """Its snapshot shows the record and not the tombstone; when it gets to the row, the record has gone and the key is free to insert."""
    key = await expired(make_store, database, key=replace(fresh_key(), key="b"))
    ahead, wanted = asking(replace(key, key="a")), asking(key)
    in_the_way = connection.transaction()
    await in_the_way.start()
    await reserve(connection, intent(ahead.key))
    reserving = asyncio.ensure_future(reserve(other, ahead, wanted))
    await until_waiting(connection)
    assert await make_store().reap(10) == 1
    await in_the_way.rollback()
    answers = {row["asked_by"]: row for row in await reserving}
    assert answers[ahead.owner]["record_id"] is not None
    record = decode_record(key, answers[wanted.owner]["found"])
    assert (record.status, record.expired) == (Status.COMPLETED, True)
    assert await make_store().find(key) is None
    assert isinstance(await make_store().reserve(asking(key)), Tombstone)


async def test_a_reaper_that_fails_leaves_the_record(make_store: MakeStore, connection: "Connection", database: str) -> None:
    """The record goes only if everything that is left of it is there."""
    key = await expired(make_store, database)
    await connection.execute("ALTER TABLE gateway_tombstones ADD CHECK (route_id = 'another') NOT VALID")
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.fetch(QUERIES["reap"], *ALL, BELIEVE_ANY)
    assert (await found(make_store(), key)).expired
    assert await archived_records(database, key) == []


async def test_the_digest_is_the_same_on_both_sides(connection: "Connection") -> None:
    """What the reaper computes in the database is what a reserve looks for, for any text that a key or a scope may be."""
    texts = ["a", "", "1:a", "€", "ä" * 200, "\U0001f511", "\\000", "%", "'\"", "\x7f\x01", "a b"]
    keys = [RecordKey(scope, key) for scope in texts for key in texts]
    assert len({key.lookup_digest() for key in keys}) == len(keys)
    async with connection.transaction():
        await reserve(connection, *[intent(key) for key in keys])
        await connection.execute(
            "UPDATE gateway_records SET status = 'completed', locked_until = NULL, reconcile_after = NULL, completed_at = now(),"
            " expires_at = now(), created_at = now() - interval '1 day', gone_for = '1 s', response_status_code = 200,"
            " response_reason = '', response_headers = '', response_body_length = 0, response_body_digest = '', response_schema_version = 1"
        )
        assert await connection.fetchval(QUERIES["reap"], 1000, 2**30, TOMBSTONE_AFTER, BELIEVE_ANY) == len(keys)
        digests = {digest for (digest,) in await connection.fetch("SELECT digest FROM gateway_tombstones")}
    assert digests == {key.lookup_digest() for key in keys}


async def test_a_tombstone_holds_neither_key_nor_principal(make_store: MakeStore, connection: "Connection", database: str) -> None:
    """A digest, the route, the scope's name, an instant: that is all."""
    key = await expired(make_store, database)
    assert await make_store().reap(10) == 1
    (row,) = await connection.fetch("SELECT * FROM gateway_tombstones")
    assert set(row.keys()) == {"digest", "route_id", "scope", "expires_at"}
    assert (row["digest"], row["route_id"], row["scope"]) == (key.lookup_digest(), "create-charge", key.scope_id.partition(":")[0])


async def test_instants_are_exact(make_store: MakeStore, connection: "Connection", database: str) -> None:
    """Both periods end to the microsecond where they should, counted from the expiry; at that instant neither counts any more."""
    key = await expired(make_store, database)
    async with connection.transaction():
        ended = await connection.fetchval("SELECT expires_at FROM gateway_records")
        young = f"UPDATE gateway_records SET created_at = now() - interval '{TOMBSTONE_AFTER} s'"
        await connection.execute(f"{young} + {MICROSECOND}")
        assert await connection.fetchval(QUERIES["reap"], *ALL, BELIEVE_ANY) == 0
        await connection.execute(young)
        assert await connection.fetchval(QUERIES["reap"], *ALL, BELIEVE_ANY) == 1
        ends = "SELECT t.expires_at - $1, a.purge_at - $1, archived_reason FROM gateway_tombstones t, gateway_records_archive a"
        row = await connection.fetchrow(ends, ended)
        assert row is not None
        assert [row[0].total_seconds(), row[1].total_seconds(), row[2]] == [PERIOD, PERIOD, "expired"]
        await connection.execute(f"UPDATE gateway_tombstones SET expires_at = now() + {MICROSECOND}")
        await connection.execute(f"UPDATE gateway_records_archive SET purge_at = now() + {MICROSECOND}")
        (row,) = await reserve(connection, asking(key))
        assert row["tombstone"][0] == "create-charge"
        assert await connection.fetchval(QUERIES["purge"], *ALL[:2], BELIEVE_ANY) == 0
        await connection.execute("UPDATE gateway_tombstones SET expires_at = now()")
        await connection.execute("UPDATE gateway_records_archive SET purge_at = now()")
        (lease,) = await reserve(connection, asking(key))
        assert (lease["tombstone"], lease["found"]) == (None, None)
        assert await connection.fetchval(QUERIES["purge"], *ALL[:2], BELIEVE_ANY) == 2


async def test_the_archive_has_every_column_of_the_record(make_store: MakeStore, connection: "Connection", database: str) -> None:
    """Nothing is lost on the way, also not what other releases or people wrote; a new column must be thought of."""
    key = await expired(make_store, database)
    await connection.execute(
        "UPDATE gateway_records SET recovery_point = 'there', captured = '{\"a\": 1}', reconcile_attempts = 3, last_error_code = 'x'"
    )
    before = await connection.fetchrow("SELECT * FROM gateway_records")
    assert before is not None
    assert await make_store().reap(10) == 1
    after = await connection.fetchrow("SELECT * FROM gateway_records_archive")
    assert after is not None
    assert set(after.keys()) - set(before.keys()) == {"archived_at", "archived_reason", "purge_at"}
    assert {name: after[name] for name in before.keys()} == dict(before)  # noqa: SIM118 (iterating a row gives values)
    assert await archived_records(database, key)


async def test_a_record_that_the_archive_holds_already_stops_nobody(make_store: MakeStore, connection: "Connection", database: str) -> None:
    """After a table was restored from a backup the reaper goes on, and both are left once."""
    key = await expired(make_store, database)
    await connection.execute("CREATE TABLE backup AS TABLE gateway_records")
    assert await make_store().reap(10) == 1
    await connection.execute("INSERT INTO gateway_records SELECT * FROM backup")
    assert await make_store().reap(10) == 1
    assert len(await archived_records(database, key)) == 1
    assert await connection.fetchval("SELECT count(*) FROM gateway_tombstones") == 1


async def test_large_answers_go_in_several_statements(make_store: MakeStore, connection: "Connection", database: str) -> None:
    """A statement takes answers of so many bytes at most, but always one, so that it ends before its deadline and the reaper gets on."""
    store = make_store()
    for size in (1000, 1000, 5000, 10, 10):
        lease = await reserved(store, intent())
        await store.complete(lease, response(bytes(size)), Retention(1.0, keep_for=1.0))
        await age_records(database, 1.0)
    await age_records(database, 2.0)
    counts = [await connection.fetchval(QUERIES["reap"], 100, 1500, TOMBSTONE_AFTER, BELIEVE_ANY) for _ in range(4)]
    assert counts == [2, 1, 2, 0]
    counts = [await connection.fetchval(QUERIES["purge"], 100, 1500, BELIEVE_ANY) for _ in range(4)]
    assert counts == [2, 1, 2, 0]


async def test_the_reaper_and_the_purge_wait_for_nobody(make_store: MakeStore, connection: "Connection", database: str) -> None:
    """What others hold is left for the next time."""
    store = make_store()
    for _ in range(2):
        await expired(make_store, database)
    assert await store.reap(10) == 2
    await age_records(database, PERIOD + 1)
    async with connection.transaction():
        await connection.fetch("SELECT FROM gateway_tombstones LIMIT 1 FOR UPDATE")
        await connection.fetch("SELECT FROM gateway_records_archive LIMIT 1 FOR UPDATE")
        assert await store.purge(10) == 2
    assert await store.purge(10) == 2


async def test_a_guarded_doubt_cannot_expire(connection: "Connection") -> None:
    """Only an observed record in doubt may have an expiry; whatever hand writes it, a guarded one is never reaped."""
    for observed in (False, True):
        wanted = intent(observed=observed)
        await reserve(connection, wanted)
        sql, arguments = doubt_statement([Doubt(wanted.key.scope_id, wanted.key.key, wanted.owner, "x")])
        await connection.execute(sql, *arguments)
        expire = ("UPDATE gateway_records SET expires_at = now() WHERE idempotency_key = $1", wanted.key.key)
        if observed:
            await connection.execute(*expire)
        else:
            with pytest.raises(asyncpg.CheckViolationError):
                await connection.execute(*expire)
    assert await connection.fetchval(QUERIES["reap"], *ALL, BELIEVE_ANY) == 1


async def test_a_takeover_has_one_winner_among_processes(make_store: MakeStore, database: str) -> None:
    """Racing over connections of their own, one enforcing reserve takes the observed record over, and the others meet it."""
    stores = [make_store() for _ in range(3)]
    for _ in range(5):
        lease = await reserved(stores[0], intent(observed=True))
        answers = await asyncio.gather(*[store.reserve(intent(lease.key)) for store in stores for _ in range(10)])
        (winner,) = [answer for answer in answers if isinstance(answer, Lease)]
        assert {answer.owner for answer in answers if isinstance(answer, Record)} == {winner.owner}
