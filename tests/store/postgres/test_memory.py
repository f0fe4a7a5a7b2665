"""How much of what is stored is in memory at once, however many callers ask for it."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

from gateway.core.model import Headers, Lease, Record
from gateway.ports import StoreUnavailable
from gateway.store.postgres import PostgresStore
from gateway.store.postgres.batching import ROWS_MAX
from gateway.store.postgres.clock import BELIEVE_ANY
from gateway.store.postgres.finding import LARGE_READS
from gateway.store.postgres.queries import QUERIES
from gateway.store.postgres.rows import encode_headers
from gateway.store.postgres.statements import INLINE_BYTES, reserve_statement
from tests.store.contract.harness import KEPT, found, intent, reserved, response
from tests.store.postgres.conftest import MakeStore
from tests.store.postgres.watch import until, waiting_for_locks

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]  # generic only in its stubs

MIB = 1024 * 1024
LARGE = bytes(range(256)) * 4096


async def stored(store: PostgresStore, body: bytes | None, headers: Headers = ()) -> Lease:
    lease = await reserved(store, intent())
    await store.complete(lease, response(body, headers=headers), KEPT)
    return lease


async def replays(store: PostgresStore, lease: Lease, want: bytes) -> bool:
    """Whether a retry is answered with the body; it is not kept longer than that takes."""
    record = await store.reserve(intent(lease.key))
    return isinstance(record, Record) and record.response is not None and record.response.body == want


async def peak_of(work: Callable[[], "asyncio.Future[list[bool]]"]) -> int:
    """The most memory (bytes) that was in use at once while every one of `work` came true, beyond what was before."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        assert all(await work())
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


async def test_many_large_answers_replayed_at_once_are_few_in_memory(make_store: MakeStore) -> None:
    """Sixty retries of a mebibyte each are read two at a time: memory is a small multiple of two, not of the pool's eight or of sixty."""
    store = make_store(pool_size=8)
    leases = [await stored(store, LARGE) for _ in range(20)]
    peak = await peak_of(lambda: asyncio.gather(*[replays(store, lease, LARGE) for lease in leases * 3]))
    assert peak < 3 * LARGE_READS * len(LARGE) + MIB


async def test_many_large_answers_found_at_once_are_few_in_memory(make_store: MakeStore) -> None:
    """So it is for looks at single records."""
    store = make_store(pool_size=8)
    leases = [await stored(store, LARGE) for _ in range(20)]

    async def look(lease: Lease) -> bool:
        return (await found(store, lease.key)).response == response(LARGE)

    peak = await peak_of(lambda: asyncio.gather(*[look(lease) for lease in leases * 3]))
    assert peak < 3 * LARGE_READS * len(LARGE) + MIB


async def test_a_batch_of_reserves_has_at_most_eight_mebibytes(make_store: MakeStore, connection: "Connection") -> None:
    """An answer is part of a batch's if its headers and body have 64 KiB together at most, and a batch has 128 answers at most."""
    assert ROWS_MAX * INLINE_BYTES == 8 * MIB
    store = make_store()
    line: Headers = ((b"X-Long", b"v" * 1000),)
    taken = len(encode_headers(line))
    many = tuple((b"X-%d" % n, b"v" * 1000) for n in range(70))
    cases: list[tuple[bytes | None, Headers, bool]] = [
        (bytes(INLINE_BYTES), (), False),
        (bytes(INLINE_BYTES + 1), (), True),
        (bytes(INLINE_BYTES - taken), line, False),
        (bytes(INLINE_BYTES - taken + 1), line, True),
        (None, many, True),
        (b"", (), False),
    ]
    leases = [await stored(store, body, headers) for body, headers, _ in cases]
    intents = [intent(lease.key) for lease in leases]
    sql, arguments = reserve_statement(intents, BELIEVE_ANY)
    names = [column.name for column in (await connection.prepare(QUERIES["find"])).get_attributes()][1:]
    by_record = {row["found"][0]: dict(zip(names, row["found"], strict=True)) for row in await connection.fetch(sql, *arguments)}
    for lease, (body, headers, left_out) in zip(leases, cases, strict=True):
        row = by_record[lease.record_id]
        assert row["body_left_out"] is left_out
        assert len(row["response_headers"] or b"") + len(row["response_body"] or b"") <= INLINE_BYTES
        for record in (await store.reserve(intent(lease.key)), await found(store, lease.key)):
            assert isinstance(record, Record)
            assert record.response == response(body, headers=headers)


@asynccontextmanager
async def locked(dsn: str) -> AsyncIterator[None]:
    """Nobody can read a record."""
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE gateway_records IN ACCESS EXCLUSIVE MODE")
            yield
    finally:
        await connection.close()


async def test_a_caller_that_leaves_gives_its_turn_back(make_store: MakeStore, connection: "Connection", database: str) -> None:
    """Callers that are cancelled while they wait or read take no turn with them, and no more are read at once because of them."""
    store = make_store(pool_size=8)
    leases = [await stored(store, LARGE) for _ in range(4)]

    async def all_turns_taken() -> bool:
        reading = await waiting_for_locks(connection)
        assert reading <= LARGE_READS
        return reading == LARGE_READS

    async with locked(database):
        first = [asyncio.ensure_future(store._finder.find_large(lease.key, store._calls.deadline())) for lease in leases * 2]
        await until(all_turns_taken)
        for task in first:
            task.cancel()
        await asyncio.gather(*first, return_exceptions=True)
        second = [asyncio.ensure_future(store._finder.find_large(lease.key, store._calls.deadline())) for lease in leases]
        for _ in range(20):
            assert await all_turns_taken()
    records = await asyncio.gather(*second)
    assert [record.response for record in records if record is not None] == [response(LARGE)] * 4


async def test_who_waits_too_long_for_a_turn_is_told(make_store: MakeStore, database: str) -> None:
    """The deadline of a call covers its wait for a turn, too; once the turns are free again everybody is served."""
    store = make_store(pool_size=8, timeout=1.0)
    lease = await stored(store, LARGE)
    async with locked(database):
        answers = await asyncio.gather(
            *[store._finder.find_large(lease.key, store._calls.deadline()) for _ in range(6)], return_exceptions=True
        )
    assert [error.reason for error in answers if isinstance(error, StoreUnavailable)] == ["timeout"] * 6
    assert await replays(store, lease, LARGE)
