import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest

from gateway.core.model import Lease, Record, Status
from gateway.ports import StoreUnavailable, Transition
from gateway.store.null_observer import NullObserver
from gateway.store.postgres import PostgresStore
from gateway.store.postgres.clock import BELIEVE_ANY
from gateway.store.postgres.lanes import BLINK
from gateway.store.postgres.queries import QUERIES
from gateway.store.postgres.rows import claim_arguments
from tests.store.contract.harness import KEPT, found, intent, reserved, response
from tests.store.postgres.conftest import MakeStore
from tests.store.postgres.recorder import Recorder
from tests.store.postgres.watch import OURS, until, until_waiting
from tests.support.faults import FaultProxy


async def warm(store: PostgresStore) -> None:
    """Have each statement prepared on a connection, so that the next round trip is the statement itself."""
    lease = await reserved(store, intent())
    await store.complete(lease, response(), KEPT)


async def test_a_reserve_whose_reply_is_lost_may_have_landed(make_store: MakeStore, proxied: str, proxy: FaultProxy) -> None:
    """The caller is told that it may have, and finds its own record, whose lease a renewal confirms."""
    store = make_store(proxied, pool_size=1)
    await warm(store)
    wanted = intent()
    proxy.drop_next_reply()
    with pytest.raises(StoreUnavailable) as lost:
        await store.reserve(wanted)
    assert (lost.value.store, lost.value.reason, lost.value.may_have_landed) == ("postgres", "disconnected", True)
    record = await found(store, wanted.key)
    assert (record.owner, record.status) == (wanted.owner, Status.IN_PROGRESS)
    lease = Lease(wanted.key, record.record_id, wanted.owner, record.attempt, 0.0, wanted.terms.lease)
    assert await store.renew([lease]) == {wanted.owner}


async def test_a_complete_whose_reply_is_lost_can_be_repeated(make_store: MakeStore, proxied: str, proxy: FaultProxy) -> None:
    """The second sending learns that the first one landed."""
    store = make_store(proxied, pool_size=1)
    await warm(store)
    lease = await reserved(store, intent())
    proxy.drop_next_reply()
    with pytest.raises(StoreUnavailable) as lost:
        await store.complete(lease, response(), KEPT)
    assert lost.value.may_have_landed
    assert (await store.complete(lease, response(), KEPT)).transition is Transition.ALREADY


async def test_a_stalled_server_costs_one_timeout(make_store: MakeStore, proxied: str, proxy: FaultProxy, recorder: Recorder) -> None:
    """What was sent may have landed; the connection is not used again; once the stall is over the store works."""
    store = make_store(proxied, pool_size=1, timeout=0.5, observer=recorder)
    await warm(store)
    proxy.stall()
    started = time.monotonic()
    with pytest.raises(StoreUnavailable) as stalled:
        await store.reserve(intent())
    assert (stalled.value.reason, stalled.value.may_have_landed) == ("timeout", True)
    assert 0.4 < time.monotonic() - started < 5
    before = proxy.connections
    await proxy.heal()
    await reserved(store, intent())
    assert proxy.connections > before
    assert recorder.errors == [("reserve", "timeout")]


async def test_what_waits_behind_a_stalled_statement_was_not_sent(make_store: MakeStore, proxied: str, proxy: FaultProxy) -> None:
    """A call that never got a connection says so, each at its own deadline."""
    store = make_store(proxied, pool_size=1, timeout=0.5)
    await warm(store)
    proxy.stall()
    running = asyncio.ensure_future(store.reserve(intent()))
    await asyncio.sleep(0.05)
    settles = [store.complete(_lease(), response(), KEPT) for _ in range(5)]
    answers = await asyncio.gather(store.find(intent().key), *settles, return_exceptions=True)
    assert [(type(answer), getattr(answer, "may_have_landed", None)) for answer in answers] == [(StoreUnavailable, False)] * 6
    with pytest.raises(StoreUnavailable) as sent:
        await running
    assert sent.value.may_have_landed


def _lease() -> Lease:
    wanted = intent()
    return Lease(wanted.key, uuid4(), wanted.owner, 1, 0.0, 30.0)


async def test_a_refusing_server_fails_everybody_at_once(make_store: MakeStore, proxied: str, proxy: FaultProxy) -> None:
    """Hundreds of waiters do not each pay for a connect of their own, and nothing of theirs was sent."""
    await proxy.refuse()
    store = make_store(proxied, timeout=20)
    started = time.monotonic()
    reserves, finds = [store.reserve(intent()) for _ in range(300)], [store.find(intent().key) for _ in range(50)]
    answers = await asyncio.gather(*reserves, *finds, return_exceptions=True)
    assert time.monotonic() - started < 10
    for answer in answers:
        assert isinstance(answer, StoreUnavailable)
        assert (answer.reason, answer.may_have_landed) == ("refused", False)


async def test_a_black_hole_is_waited_for_once(make_store: MakeStore, proxied: str, proxy: FaultProxy) -> None:
    """The first connect takes its timeout; who comes after it, while the server counts as down, waits a moment only."""
    proxy.stall()
    store = make_store(proxied, timeout=1.0)
    answers = await asyncio.gather(*[store.reserve(intent()) for _ in range(20)], return_exceptions=True)
    assert {(type(answer), getattr(answer, "may_have_landed", None)) for answer in answers} == {(StoreUnavailable, False)}
    started = time.monotonic()
    for _ in range(3):
        with pytest.raises(StoreUnavailable) as down:
            await store.reserve(intent())
        assert not down.value.may_have_landed
    assert time.monotonic() - started < 2.5


async def test_the_store_comes_back_with_the_server(make_store: MakeStore, proxied: str, proxy: FaultProxy) -> None:
    """After an outage the first call that is allowed to try finds the server again."""
    store = make_store(proxied)
    await warm(store)
    await proxy.refuse()
    for _ in range(2):  # the connection that was there, and the next one
        with pytest.raises(StoreUnavailable):
            await store.reserve(intent())
    assert store.connected_since is None
    await proxy.heal()

    async def again() -> bool:
        try:
            return isinstance(await store.find(intent().key), Record | None)
        except StoreUnavailable:
            return False

    await until(again)
    answers = await asyncio.gather(*[store.reserve(intent()) for _ in range(50)])
    assert all(isinstance(answer, Lease) for answer in answers)


async def test_connected_since_counts_from_the_end_of_the_last_outage(make_store: MakeStore, proxied: str, proxy: FaultProxy) -> None:
    """A sweeper can tell how long owners have been able to renew. What is over before it could hinder one is no outage."""
    now = [1.0]
    store = make_store(proxied, pool_size=1, timeout=20, boottime=lambda: now[0])
    assert store.connected_since is None
    await warm(store)
    assert store.connected_since == 1.0
    for seconds, since in ((BLINK * 20 - 1, 1.0), (BLINK * 20 + 1, None)):
        proxy.drop_next_reply()
        with pytest.raises(StoreUnavailable):
            await store.find(intent().key)
        now[0] += seconds
        assert store.connected_since == since
        await store.find(intent().key)
    assert store.connected_since == now[0]


async def test_a_role_limit_below_the_pool_starves_no_background_work(
    make_store: MakeStore,
    database: str,
    connection: "asyncpg.Connection[asyncpg.Record]",
    recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Connects that fail while lanes work are counted and told of; they are no outage, after which sweeper and reconciler would wait."""
    role = f"limited_{urlsplit(database).path[1:]}"
    await connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'limited' CONNECTION LIMIT 2")
    try:
        await connection.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
        at = urlsplit(database)
        store = make_store(database.replace(f"{at.username}:{at.password}", f"{role}:limited"), pool_size=8, observer=recorder)
        await store.find(intent().key)
        since = store.connected_since
        assert since is not None
        for _ in range(3):
            await asyncio.gather(*[store.find(intent().key) for _ in range(50)])
            assert store.connected_since == since
        assert ("connect", "overloaded") in recorder.errors
        told = [record.message for record in caplog.records if "could not be opened" in record.message]
        assert len(told) == 1
        assert told[0].startswith(f"A connection to Postgres at {at.hostname}:{at.port} could not be opened: ")
        assert f'too many connections for role "{role}"' in told[0]
        assert "limited:" not in told[0]
        await store.close()
    finally:
        await connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_a_locked_row_starves_no_background_work(
    make_store: MakeStore, proxied: str, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """Calls that wait for somebody's lock end, by the server's word or by hanging up: neither is an outage."""
    store = make_store(proxied, pool_size=2, timeout=1.0, boottime=lambda: 1.0)
    await warm(store)
    since, lease = store.connected_since, await reserved(store, intent())
    async with connection.transaction():
        await connection.execute("SELECT FROM gateway_records WHERE idempotency_key = $1 FOR UPDATE", lease.key.key)
        with pytest.raises(StoreUnavailable):
            await store.complete(lease, response(), KEPT)
        assert store.connected_since == since


async def test_connections_that_died_while_idle_are_replaced(
    make_store: MakeStore, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """A server that closed idle connections (a restart, a pooler) costs no request an error."""
    store = make_store()
    await asyncio.gather(*[warm(store) for _ in range(4)])
    await connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}")
    await until(lambda: connection.fetchval(f"SELECT count(*) = 0 FROM pg_stat_activity WHERE {OURS}"))
    await asyncio.sleep(0.05)
    await asyncio.gather(*[warm(store) for _ in range(4)])


async def test_a_backend_that_is_killed_under_a_statement_may_have_done_it(
    make_store: MakeStore, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """A connection that is lost in the middle of a statement leaves its outcome open."""
    store = make_store(pool_size=1)
    lease = await reserved(store, intent())
    async with connection.transaction():
        await connection.execute("SELECT FROM gateway_records FOR UPDATE")
        settling = asyncio.ensure_future(store.complete(lease, response(), KEPT))
        await until_waiting(connection)
        await connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}")
        with pytest.raises(StoreUnavailable) as killed:
            await settling
    assert (killed.value.reason, killed.value.may_have_landed) == ("disconnected", True)


async def test_a_cancelled_caller_does_not_stop_its_batch(
    make_store: MakeStore, connection: "asyncpg.Connection[asyncpg.Record]", recorder: Recorder
) -> None:
    """The statement goes on for the others in it, and lands for the one that left, too."""
    store = make_store(pool_size=1, observer=recorder)
    leases = [await reserved(store, intent()) for _ in range(3)]
    async with connection.transaction():
        await connection.execute("SELECT FROM gateway_records FOR UPDATE")
        settling = [asyncio.ensure_future(store.complete(lease, response(), KEPT)) for lease in leases]
        await until_waiting(connection)
        settling[0].cancel()
    answers = await asyncio.gather(*settling, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert [getattr(answer, "transition", None) for answer in answers[1:]] == [Transition.DONE] * 2
    assert recorder.sizes("complete") == [3]
    assert (await found(store, leases[0].key)).status is Status.COMPLETED


async def test_what_fails_after_its_caller_has_left_is_no_defect(
    make_store: MakeStore, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """A store that was away is no news to anybody: it is counted, and not logged as an error that nobody has caught."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about))
    store = make_store(pool_size=1, timeout=0.4)
    lease = await reserved(store, intent())
    async with connection.transaction():
        await connection.execute("LOCK TABLE gateway_records")
        finding = asyncio.ensure_future(store.find(lease.key))
        await until_waiting(connection)
        finding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await finding
        async with asyncio.timeout(20):
            while store._lanes._tasks:
                await asyncio.sleep(0.01)
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


async def test_a_cancelled_caller_that_still_waits_sends_nothing(
    make_store: MakeStore, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """Who leaves the queue is not in the next batch."""
    store = make_store(pool_size=1)
    lease = await reserved(store, intent())
    async with connection.transaction():
        await connection.execute("SELECT FROM gateway_records FOR UPDATE")
        settling = asyncio.ensure_future(store.complete(lease, response(), KEPT))
        await until_waiting(connection)
        waiting = intent()
        leaver = asyncio.ensure_future(store.reserve(waiting))
        finder = asyncio.ensure_future(store.find(waiting.key))
        await asyncio.sleep(0)
        leaver.cancel()
    await settling
    assert await finder is None
    assert await store.find(waiting.key) is None


async def test_each_call_of_a_running_batch_has_its_own_deadline(
    make_store: MakeStore, connection: "asyncpg.Connection[asyncpg.Record]", database: str, recorder: Recorder
) -> None:
    """A statement that is blocked times out for whoever came first, and goes on for the others in it."""
    store = make_store(pool_size=1, timeout=3.0, observer=recorder)
    ahead, first, second = [await reserved(store, intent()) for _ in range(3)]
    lock = "SELECT FROM gateway_records WHERE idempotency_key = ANY ($1) FOR UPDATE"
    async with connection.transaction():
        await connection.execute(lock, [first.key.key, second.key.key])
        gate = await asyncpg.connect(database)
        async with gate.transaction():
            await gate.execute(lock, [ahead.key.key])
            settling = [asyncio.ensure_future(store.complete(ahead, response(), KEPT))]
            await until_waiting(connection)
            settling.append(asyncio.ensure_future(store.complete(first, response(), KEPT)))
            await asyncio.sleep(1.5)  # what lies between the two deadlines
            settling.append(asyncio.ensure_future(store.complete(second, response(), KEPT)))
            await asyncio.sleep(0)
        await gate.close()
        assert (await settling[0]).transition is Transition.DONE
        with pytest.raises(StoreUnavailable) as late:
            await settling[1]
        assert (late.value.reason, late.value.may_have_landed) == ("timeout", True)
        assert not settling[2].done()
    assert (await settling[2]).transition is Transition.DONE
    assert recorder.sizes("complete") == [1, 2]
    assert (await store.complete(first, response(), KEPT)).transition is Transition.ALREADY


async def test_a_deadline_counts_from_its_own_call(make_store: MakeStore, proxied: str, proxy: FaultProxy) -> None:
    """A call has its whole time, also when one before it would have run out of its own meanwhile."""
    store = make_store(proxied, pool_size=1, timeout=0.5)
    await warm(store)
    await asyncio.sleep(0.3)
    proxy.stall()
    started = time.monotonic()
    with pytest.raises(StoreUnavailable) as stalled:
        await store.reserve(intent())
    assert stalled.value.reason == "timeout"
    assert time.monotonic() - started > 0.45


class Failing(NullObserver):
    """An observer one of whose methods fails, while it is told to."""

    def __init__(self) -> None:
        self.fails = ""

    def store_batch(self, operation: str, size: int) -> None:
        self._told("store_batch")

    def store_operation(self, store: str, operation: str, seconds: float) -> None:
        self._told("store_operation")

    def store_error(self, store: str, operation: str, reason: str) -> None:
        self._told("store_error")

    def _told(self, method: str) -> None:
        if method == self.fails:
            raise RuntimeError(method)


@pytest.mark.parametrize("stalls", [False, True])
@pytest.mark.parametrize("method", ["store_batch", "store_operation", "store_error"])
async def test_an_observer_that_fails_leaves_nobody_waiting(
    make_store: MakeStore, proxied: str, proxy: FaultProxy, method: str, stalls: bool
) -> None:
    """A call ends with its answer or in doubt, those behind it too, and the store goes on."""
    observer = Failing()
    store = make_store(proxied, pool_size=1, timeout=0.5, observer=observer)
    await warm(store)
    observer.fails = method
    if stalls:
        proxy.stall()
    answers = await asyncio.wait_for(asyncio.gather(*[store.reserve(intent()) for _ in range(200)], return_exceptions=True), 10)
    assert {type(answer) for answer in answers} <= {Lease, StoreUnavailable}
    observer.fails = ""
    await proxy.heal()
    await reserved(store, intent())


@pytest.mark.parametrize(("late", "reason"), [(0.0, "disconnected"), (0.6, "timeout")])
async def test_a_connection_that_is_cut_between_two_steps_of_the_driver_is_lost(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, late: float, reason: str
) -> None:
    """The server has prepared a statement, and before the driver asks for its types the connection is cut: by the network, or at the
    deadline, as in a process that was frozen. The driver has no error of its own for that.
    """
    introspect = asyncpg.Connection._introspect_types  # type: ignore[attr-defined]  # missing in its stubs

    async def cut_before(connection: "asyncpg.Connection[asyncpg.Record]", *arguments: object) -> object:
        if late:
            await asyncio.sleep(late)
        else:
            connection.terminate()
        return await introspect(connection, *arguments)

    store = make_store(pool_size=1, timeout=0.4 if late else 30.0)
    assert await store.ready() is None
    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", cut_before)
    with pytest.raises(StoreUnavailable) as lost:
        await store.find(intent().key)
    assert (lost.value.store, lost.value.reason) == ("postgres", reason)
    monkeypatch.undo()
    assert await store.find(intent().key) is None


@pytest.mark.parametrize("sent", [False, True])
async def test_an_error_that_the_driver_should_not_raise_is_in_doubt(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, sent: bool
) -> None:
    """Whatever was asked, and whether or not the statement went out: the connection is replaced, and the store goes on."""
    store = make_store(pool_size=1)
    lease = await reserved(store, intent())
    record = await found(store, lease.key)
    fetch = asyncpg.prepared_stmt.PreparedStatement.fetch

    async def fail(statement: Any, *arguments: object) -> None:
        if sent:
            await fetch(statement, *arguments)
        raise RuntimeError

    asking: list[Callable[[], Awaitable[object]]] = [
        lambda: store.reserve(intent()),
        lambda: store.complete(lease, response(), KEPT),
        lambda: store.find(lease.key),
        lambda: store.lapse(record),
    ]
    for ask in asking:
        monkeypatch.setattr(asyncpg.prepared_stmt.PreparedStatement, "fetch", fail)
        with pytest.raises(StoreUnavailable) as failed:
            await asyncio.wait_for(ask(), 10)
        assert (failed.value.reason, failed.value.may_have_landed) == ("error", True)
        monkeypatch.undo()
    assert (await store.complete(lease, response(), KEPT)).transition is (Transition.ALREADY if sent else Transition.DONE)


@pytest.mark.parametrize("reading", [1, 2, 3])
async def test_a_statement_that_fails_on_our_side_is_in_doubt(make_store: MakeStore, reading: int) -> None:
    """Before it is sent, or after its answer came: no caller is left without an answer, and none is told that nothing was written.

    A batch reads the clock once more than a lone reserve.
    """
    left = -1

    def boottime() -> float:
        nonlocal left
        left -= 1
        if left == 0:
            raise RuntimeError
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    store = make_store(pool_size=1, boottime=boottime)
    lease = await reserved(store, intent())
    left = reading
    asked = [store.reserve(intent()) for _ in range(max(1, reading - 1))]
    for lost in await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 10):
        assert isinstance(lost, StoreUnavailable)
        assert (lost.reason, lost.may_have_landed) == ("error", True)
    left = min(reading, 2)
    with pytest.raises(StoreUnavailable) as failed:
        await asyncio.wait_for(store.complete(lease, response(), KEPT), 10)
    assert (failed.value.reason, failed.value.may_have_landed) == ("error", True)
    settled = await store.complete(lease, response(), KEPT)
    assert settled.transition is (Transition.DONE if reading == 1 else Transition.ALREADY)


async def test_a_connection_whose_return_fails_is_not_lost(make_store: MakeStore) -> None:
    """The clock is read a last time as the statement's only connection is given back."""
    left = -1

    def boottime() -> float:
        nonlocal left
        left -= 1
        if left == 0:
            raise RuntimeError
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    store = make_store(pool_size=1, timeout=5.0, boottime=boottime)
    await reserved(store, intent())
    left = 3
    await reserved(store, intent())
    await reserved(store, intent())
    assert left < 0


async def test_a_release_sees_a_claim_that_lands_while_it_waits(
    make_store: MakeStore, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """The fence reads the row as locked, not as it was when the statement began: a late claim of mine is released, not left running."""
    store = make_store()
    lease = await reserved(store, intent())
    await store.release(lease, "x", KEPT)
    wanted = intent(lease.key)
    async with connection.transaction():
        record = await found(store, lease.key)
        assert len(await connection.fetch(QUERIES["retry"], *claim_arguments(record, wanted), False, BELIEVE_ANY)) == 1
        releasing = asyncio.ensure_future(store.release(replace(lease, owner=wanted.owner), "lost", KEPT))
        await until_waiting(connection)
    assert (await releasing).transition is Transition.DONE
    assert (await found(store, lease.key)).status is Status.FAILED_RETRYABLE


async def test_a_statement_that_is_given_up_leaves_no_backend_behind(
    make_store: MakeStore, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """A settle behind somebody's lock is ended by the server, a little before its time: repeated ones do not fill it with sessions."""
    store = make_store(timeout=1.0)
    lease = await reserved(store, intent())
    async with connection.transaction():
        await connection.execute("SELECT FROM gateway_records FOR UPDATE")
        for _ in range(2):
            with pytest.raises(StoreUnavailable) as given_up:
                await store.complete(lease, response(), KEPT)
            assert (given_up.value.reason, given_up.value.asked) == ("timeout", True)
        await until_waiting(connection, 0)
    assert (await store.complete(lease, response(), KEPT)).transition is Transition.DONE


async def test_a_record_that_was_met_is_no_case_for_going_unguarded(make_store: MakeStore, proxied: str, proxy: FaultProxy) -> None:
    """Once a reserve has met a record, a later loss says that something was sent, also if the second statement never was."""
    store = make_store(proxied, pool_size=1)
    await warm(store)
    lease = await reserved(store, intent())
    await store.complete(lease, response(bytes(300_000)), KEPT)
    await store.find(lease.key)
    await asyncio.gather(store.reserve(intent()), store.reserve(intent()))
    proxy.refuse_after_reply()
    lost, other = await asyncio.gather(store.reserve(intent(lease.key)), store.reserve(intent()), return_exceptions=True)
    assert isinstance(lost, StoreUnavailable)
    assert (lost.asked, lost.may_have_landed) == (True, False)
    assert isinstance(other, Lease)


async def test_a_lone_reserve_that_inserted_nothing_has_met_a_record(make_store: MakeStore, proxied: str, proxy: FaultProxy) -> None:
    """The server goes away before it says which."""
    store = make_store(proxied, pool_size=1)
    lease = await reserved(store, intent())
    assert isinstance(await store.reserve(intent(lease.key)), Record)
    proxy.refuse_after_reply()
    with pytest.raises(StoreUnavailable) as lost:
        await store.reserve(intent(lease.key))
    assert lost.value.asked


async def test_a_closed_store_refuses(make_store: MakeStore) -> None:
    """After close nothing is sent any more, and closing again is harmless."""
    store = make_store()
    await warm(store)
    await store.close()
    await store.close()
    for call in (store.reserve(intent()), store.find(intent().key)):
        with pytest.raises(StoreUnavailable) as closed:
            await call
        assert (closed.value.reason, closed.value.may_have_landed) == ("not_ready", False)


async def test_close_lets_running_statements_end(make_store: MakeStore) -> None:
    """What was under way when the store is closed gets its answer."""
    store = make_store()
    await warm(store)
    running = [asyncio.ensure_future(store.reserve(intent())) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await store.close()
    assert all(isinstance(answer, Lease) for answer in await asyncio.gather(*running))
