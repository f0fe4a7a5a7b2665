import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import asyncpg
import pytest
import uvloop

from gateway.core.model import Lease, Record, Status
from gateway.core.packing import ZLIB
from gateway.ports import Retention, Settled, StoreUnavailable, Transition
from gateway.store.null_observer import NullObserver
from gateway.store.postgres import PostgresStore
from gateway.store.postgres.batching import ROWS_MAX, Batcher
from gateway.store.postgres.lane import Connection, Lane
from gateway.store.postgres.lanes import Lanes
from tests.store.contract.harness import KEPT, age_records, empty_records, found, fresh_key, intent, reserved, response
from tests.store.postgres.conftest import MakeStore
from tests.store.postgres.recorder import Recorder
from tests.store.postgres.watch import OURS, until, until_waiting

POISON = b"\xde\xad\xbe\xef"


async def refuse(connection: "asyncpg.Connection[asyncpg.Record]", condition: str) -> None:
    """Make the database refuse rows for which `condition` holds."""
    name = "refused_" + secrets.token_hex(4)
    await connection.execute(f"ALTER TABLE gateway_records ADD CONSTRAINT {name} CHECK (NOT coalesce({condition}, false))")


async def deadlocks(connection: "asyncpg.Connection[asyncpg.Record]") -> int:
    """Deadlocks in this database so far; complete once the stores' sessions have ended and left their statistics."""
    await until(lambda: connection.fetchval(f"SELECT count(*) = 0 FROM pg_stat_activity WHERE {OURS}"))
    await connection.execute("SELECT pg_stat_clear_snapshot()")
    found: int = await connection.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    return found


async def test_concurrent_calls_share_statements(make_store: MakeStore, recorder: Recorder) -> None:
    """Calls that wait for a connection travel together, so that hundreds cost a few statements."""
    store = make_store(observer=recorder)
    leases = await asyncio.gather(*[reserved(store, intent()) for _ in range(300)])
    assert sum(recorder.sizes("reserve")) == 300
    assert len(recorder.sizes("reserve")) <= 8
    assert max(recorder.sizes("reserve")) == 128
    answers = await asyncio.gather(*[store.complete(lease, response(), KEPT) for lease in leases])
    assert {answer.transition for answer in answers} == {Transition.DONE}
    assert len(recorder.sizes("complete")) <= 8


async def test_a_lone_call_goes_at_once(make_store: MakeStore, recorder: Recorder) -> None:
    """Calls one after the other are statements of one row each."""
    store = make_store(observer=recorder)
    for _ in range(5):
        lease = await reserved(store, intent())
        await store.complete(lease, response(), KEPT)
    assert recorder.sizes("reserve") == [1] * 5
    assert recorder.sizes("complete") == [1] * 5


async def test_a_herd_on_one_key_is_one_winner_in_few_statements(make_store: MakeStore, recorder: Recorder) -> None:
    """Intents for one key may share a batch: one wins, the others are answered with the winner's record."""
    store, key = make_store(observer=recorder), fresh_key()
    answers = await asyncio.gather(*[store.reserve(intent(key)) for _ in range(100)])
    (winner,) = [answer for answer in answers if isinstance(answer, Lease)]
    assert {answer.owner for answer in answers if isinstance(answer, Lease | Record)} == {winner.owner}
    assert len(recorder.sizes("reserve")) <= 4


async def test_sealed_requests_count_in_the_size_of_a_batch(make_store: MakeStore, recorder: Recorder) -> None:
    """Reserves that keep their request travel in few rows, or alone; the others beside them as ever."""
    store = make_store(pool_size=1, observer=recorder)
    sealed = [bytes(300 * 1024), *[bytes(200 * 1024)] * 12, bytes(300 * 1024)]
    await asyncio.gather(*[store.reserve(intent(sealed=body)) for body in sealed])
    sizes = recorder.sizes("reserve")
    assert sum(sizes) == 14
    assert max(sizes) <= 5
    assert sizes.count(1) >= 2


async def test_large_settles_travel_alone_and_batches_are_capped_in_bytes(make_store: MakeStore, recorder: Recorder) -> None:
    """A batch holds at most about a mebibyte; an answer of more than a quarter of that has a statement to itself."""
    store = make_store(observer=recorder)
    bodies = [bytes(300 * 1024), *[bytes(200 * 1024)] * 12, bytes(300 * 1024)]
    leases = await asyncio.gather(*[reserved(store, intent()) for _ in bodies])
    await asyncio.gather(*[store.complete(lease, response(body), KEPT) for lease, body in zip(leases, bodies, strict=True)])
    sizes = recorder.sizes("complete")
    assert sum(sizes) == 14
    assert max(sizes) <= 5
    assert sizes.count(1) >= 2


async def test_a_herd_of_replays_of_a_large_body_is_read_one_by_one(make_store: MakeStore) -> None:
    """A batch of reserves never drags many large bodies along; each caller still gets the whole record."""
    store = make_store()
    body = secrets.token_bytes(200_000)
    lease = await reserved(store, intent())
    await store.complete(lease, response(body), KEPT)
    answers = await asyncio.gather(*[store.reserve(intent(lease.key)) for _ in range(20)])
    assert all(isinstance(answer, Record) and answer.response == response(body) for answer in answers)


async def test_overlapping_batches_never_deadlock(make_store: MakeStore, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Eight writers doubt, release and complete the same records in different orders, among renewals and sweeps: nobody is rolled back."""
    stores = [make_store(pool_size=8) for _ in range(8)]

    async def write(number: int, store: PostgresStore, leases: list[Lease]) -> None:
        order = sorted(leases, key=lambda lease: hash((number, lease.owner)))
        await asyncio.gather(*[store.doubt(lease, "race") for lease in order], store.renew(order), store.sweep(50))
        await asyncio.gather(*[store.release(lease, "race", KEPT) for lease in order], store.renew(order))
        await asyncio.gather(*[store.complete(lease, response(), KEPT) for lease in order[::-1]], store.reap(50))

    for _ in range(6):
        leases = list(await asyncio.gather(*[reserved(stores[0], intent()) for _ in range(120)]))
        await asyncio.gather(*[write(number, store, leases) for number, store in enumerate(stores)])
    await asyncio.gather(*[store.close() for store in stores])
    assert await deadlocks(connection) == 0


async def test_overlapping_inserts_never_deadlock(make_store: MakeStore, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Writers that insert the same new keys in different orders: every key has one winner."""
    stores = [make_store() for _ in range(8)]
    for _ in range(12):
        keys = [fresh_key() for _ in range(120)]
        orders = [sorted(keys, key=lambda key: hash((number, key))) for number in range(8)]
        answers = await asyncio.gather(*[store.reserve(intent(key)) for store, order in zip(stores, orders, strict=True) for key in order])
        winners = [answer.key for answer in answers if isinstance(answer, Lease)]
        assert sorted(winners, key=repr) == sorted(keys, key=repr)
    await asyncio.gather(*[store.close() for store in stores])
    assert await deadlocks(connection) == 0


async def test_one_bad_row_fails_alone(make_store: MakeStore, connection: "asyncpg.Connection[asyncpg.Record]", recorder: Recorder) -> None:
    """A row that the database refuses does not take the others of its batch with it."""
    store = make_store(pool_size=1, observer=recorder)
    await refuse(connection, "request_id = 'poison'")
    wanted = [intent(request_id="poison" if n == 17 else "fine") for n in range(60)]
    answers = await asyncio.gather(*[store.reserve(each) for each in wanted], return_exceptions=True)
    bad = answers.pop(17)
    assert isinstance(bad, StoreUnavailable)
    assert bad.reason == "error"
    assert all(isinstance(answer, Lease) for answer in answers)
    assert recorder.errors == [("reserve", "error")]


@pytest.mark.parametrize("text", ["\0", "\ud800", "x" * 100_000], ids=["nul", "surrogate", "too long for the index"])
async def test_a_text_that_cannot_be_stored_fails_alone(make_store: MakeStore, text: str) -> None:
    """What the driver or the database cannot take as text is an error of that call only, and the connection goes on."""
    store = make_store(pool_size=1)
    noise = "".join(secrets.token_hex(8) for _ in range(1000)) if len(text) > 1 else ""
    wanted = [intent(), intent(type(fresh_key())("payments:none", noise + text)), intent()]
    answers = await asyncio.gather(*[store.reserve(each) for each in wanted], return_exceptions=True)
    assert [type(answer) for answer in answers] == [Lease, StoreUnavailable, Lease]


async def test_a_response_that_cannot_be_stored_is_stored_without_its_body(
    make_store: MakeStore, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """The operation counts as completed all the same; its batch is not disturbed."""
    store = make_store(pool_size=1)
    await refuse(connection, f"position('\\x{POISON.hex()}'::bytea in response_body) > 0")
    leases = [await reserved(store, intent()) for _ in range(9)]
    full = [response(b"fine")] * 9
    full[4] = response(POISON)
    full[7] = replace(response(b"plain"), body=POISON, encoding=ZLIB)
    answers = await asyncio.gather(*[store.complete(lease, each, KEPT) for lease, each in zip(leases, full, strict=True)])
    assert {answer.transition for answer in answers} == {Transition.DONE}
    stored = [(await found(store, lease.key)).response for lease in leases]
    assert stored == [each.without_body() if each.body is POISON else each for each in full]


async def test_a_response_whose_headers_cannot_be_stored_is_stored_without_them(
    make_store: MakeStore, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """At last the status alone is kept: enough never to run the operation again."""
    store = make_store(pool_size=1)
    await refuse(connection, f"position('\\x{POISON.hex()}'::bytea in response_headers) > 0")
    lease = await reserved(store, intent())
    answer = response(b"body", headers=((b"x", POISON),))
    assert (await store.complete(lease, answer, KEPT)).transition is Transition.DONE
    stored = (await found(store, lease.key)).response
    assert stored is not None
    assert (stored.status, stored.headers, stored.body) == (201, (), None)
    assert (await store.complete(lease, answer, KEPT)).transition is Transition.ALREADY


async def test_a_stored_response_that_cannot_be_read_fails_alone(
    make_store: MakeStore, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """A newer schema version or encoding, or cut headers, are an error, never a guess, and no other caller notices."""
    store = make_store(pool_size=1)
    damage = [
        "response_schema_version = 99",
        "response_headers = substr(response_headers, 1, 9)",
        "response_schema_version = 2, response_body_encoding = 2",
        "response_schema_version = 3, response_body_encoding = 1",
    ]
    leases = [await reserved(store, intent()) for _ in range(len(damage) + 1)]
    for lease in leases:
        await store.complete(lease, response(headers=((b"a", b"b"),)), KEPT)
    for lease, change in zip(leases, damage, strict=False):
        await connection.execute(f"UPDATE gateway_records SET {change} WHERE idempotency_key = $1", lease.key.key)
    answers = await asyncio.gather(*[store.reserve(intent(lease.key)) for lease in leases], return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * len(damage) + [Record]
    for lease in leases[:-1]:
        with pytest.raises(StoreUnavailable):
            await store.find(lease.key)


async def test_a_serializable_database_still_has_one_winner(
    make_store: MakeStore, connection: "asyncpg.Connection[asyncpg.Record]", database: str
) -> None:
    """Serialization failures are repeated, never answered: the statement was rolled back."""
    await connection.execute(
        f'ALTER DATABASE "{await connection.fetchval("SELECT current_database()")}" SET default_transaction_isolation = serializable'
    )
    stores = [make_store() for _ in range(4)]
    for _ in range(5):
        key = fresh_key()
        answers = await asyncio.gather(*[store.reserve(intent(key)) for store in stores for _ in range(10)])
        (winner,) = [answer for answer in answers if isinstance(answer, Lease)]
        assert {answer.owner for answer in answers if isinstance(answer, Lease | Record)} == {winner.owner}
        settled = await asyncio.gather(*[store.complete(winner, response(), KEPT) for store in stores])
        assert sorted(answer.transition.value for answer in settled) == ["already", "already", "already", "done"]
    await empty_records(database)


async def test_background_work_never_waits_for_a_locked_row(
    make_store: MakeStore, connection: "asyncpg.Connection[asyncpg.Record]", database: str
) -> None:
    """Renew, sweep and reap skip what others hold, and take the rest."""
    store = make_store()
    held, free = [await reserved(store, intent()) for _ in range(2)]
    lock = "SELECT FROM gateway_records WHERE idempotency_key = $1 FOR UPDATE"
    async with connection.transaction():
        await connection.execute(lock, held.key.key)
        assert await store.renew([held, free]) == frozenset({free.owner})
    await age_records(database, 1000)
    async with connection.transaction():
        await connection.execute(lock, held.key.key)
        assert [swept.key for swept in await store.sweep(10)] == [free.key]
    for lease in (held, free):
        await store.complete(lease, response(), Retention(0.0))
    async with connection.transaction():
        await connection.execute(lock, held.key.key)
        assert await store.reap(10) == 1


async def test_a_full_queue_refuses_at_once(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue is bounded: beyond it a call is told that nothing was sent."""
    monkeypatch.setattr("gateway.store.postgres.batching.WAITING_MAX", 10)
    store = make_store(pool_size=1)
    answers = await asyncio.gather(*[store.reserve(intent()) for _ in range(20)], return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, StoreUnavailable)]
    assert len(refused) == 10
    assert {(answer.reason, answer.may_have_landed) for answer in refused} == {("overloaded", False)}


async def test_a_reserve_that_races_with_the_reaper_gets_an_answer(make_store: MakeStore) -> None:
    """While records expire and vanish under it, a reserve ends in a lease or a record, and keys never have two leases in a row alive."""
    store, reaper = make_store(), make_store()
    key = fresh_key()
    stop = asyncio.Event()

    async def reap() -> None:
        while not stop.is_set():
            await reaper.reap(10)

    reaping = asyncio.ensure_future(reap())
    leases = 0
    for _ in range(200):
        answer = await store.reserve(intent(key))
        if isinstance(answer, Lease):
            leases += 1
            assert (await store.release(answer, "x", Retention(0.0))).transition is Transition.DONE
        else:
            assert isinstance(answer, Record)
            assert answer.status is Status.FAILED_RETRYABLE
    stop.set()
    await reaping
    assert leases > 1


@asynccontextmanager
async def a_settle_that_lasts(
    store: PostgresStore, connection: "asyncpg.Connection[asyncpg.Record]"
) -> AsyncIterator["asyncio.Task[Settled]"]:
    """A settle whose statement waits for a lock, until the block ends."""
    held = await reserved(store, intent())
    async with connection.transaction():
        await connection.execute("SELECT FROM gateway_records WHERE idempotency_key = $1 FOR UPDATE", held.key.key)
        lasting = asyncio.ensure_future(store.complete(held, response(), KEPT))
        await until_waiting(connection, 1)
        yield lasting
        assert not lasting.done()
    await lasting


async def test_a_statement_that_lasts_lets_another_go_beside_it(
    make_store: MakeStore, connection: "asyncpg.Connection[asyncpg.Record]", recorder: Recorder
) -> None:
    """A server that is far away, or waits for a standby, has two statements of a kind under way."""
    store = make_store(observer=recorder)
    leases = [await reserved(store, intent()) for _ in range(3)]
    async with a_settle_that_lasts(store, connection):
        for lease in leases:
            await store.complete(lease, response(), KEPT)
    assert recorder.sizes("complete") == [1] * 4


async def test_what_comes_while_a_statement_is_under_way_travels_together(
    make_store: MakeStore, connection: "asyncpg.Connection[asyncpg.Record]", recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the end of the statement, or until there is enough of it for a whole batch."""
    monkeypatch.setattr("gateway.store.postgres.batching.STAGGER", 3600.0)
    store = make_store(observer=recorder)
    leases = await asyncio.gather(*[reserved(store, intent()) for _ in range(10 + ROWS_MAX)])
    few, many = leases[:10], leases[10:]
    async with a_settle_that_lasts(store, connection):
        waiting = [asyncio.ensure_future(store.complete(lease, response(), KEPT)) for lease in few]
        await until_waiting(connection, 1)
        assert not any(task.done() for task in waiting)
        await asyncio.gather(*[store.complete(lease, response(), KEPT) for lease in many], *waiting)
    assert recorder.sizes("complete") == [1, ROWS_MAX, 10]


def lanes_to(database: str, size: int) -> Lanes:
    """Connections to the test's database, on the loop that runs."""

    def connect() -> Awaitable[Connection]:
        return asyncpg.connect(database)

    async def stuck(_: object) -> int:
        return 0

    return Lanes(
        connect,
        size=size,
        timeout=30,
        explicit=False,
        boottime=asyncio.get_running_loop().time,
        stuck=stuck,
        former=lambda _: False,
        failed=lambda _: None,
        where=lambda: "",
    )


async def test_a_call_that_asks_again_waits_for_no_longer_than_it_may(database: str) -> None:
    """Its deadline is the one of its first round; what is ahead of it may last for longer."""

    async def select(lane: Lane, items: Sequence[bytes]) -> dict[bytes, bytes | StoreUnavailable]:
        await lane.fetch("SELECT pg_sleep(1)")
        return {item: item for item in items}

    loop, recorder = asyncio.get_running_loop(), Recorder()
    lanes = lanes_to(database, 1)
    lanes.release(await lanes.acquire(loop.time() + 30))
    batcher: Batcher[bytes, bytes] = Batcher("slow", lanes, select, recorder, width=1)
    ahead = batcher.submit(b"1", b"1", 1, loop.time() + 30)
    await asyncio.sleep(0.01)
    behind, beside = batcher.submit(b"2", b"2", 1, loop.time() + 0.05), batcher.submit(b"3", b"3", 1, loop.time() + 30)
    with pytest.raises(StoreUnavailable) as caught:
        await behind
    assert (caught.value.reason, caught.value.may_have_landed, ahead.done()) == ("timeout", False, False)
    assert (await ahead, await beside) == (b"1", b"3")
    assert recorder.errors == [("slow", "timeout")]
    await lanes.close()


def test_batches_that_are_sent_at_their_deadline_are_late_alone(database: str) -> None:
    """On the loop of production, whose timers for what is due at once do not tell when that is."""

    async def select(lane: Lane, items: Sequence[bytes]) -> dict[bytes, bytes | StoreUnavailable]:
        await lane.fetch("SELECT 1")
        return {item: item for item in items}

    async def late() -> list[object]:
        loop = asyncio.get_running_loop()
        lanes = lanes_to(database, 2)
        for lane in [await lanes.acquire(loop.time() + 30) for _ in range(2)]:
            lanes.release(lane)
        batcher: Batcher[bytes, bytes] = Batcher("late", lanes, select, NullObserver(), width=2)
        calls = [batcher.submit(owner, owner, 1, loop.time()) for owner in [b"%d" % n for n in range(2 * ROWS_MAX)]]
        told = await asyncio.gather(*calls, return_exceptions=True)
        await lanes.close()
        return list(told)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        told = runner.run(late())
    assert {one.reason if isinstance(one, StoreUnavailable) else "answered" for one in told} <= {"timeout", "answered"}
