"""Commits that wait for a standby which is not there: nothing of them is believed, and they do not fill the server."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest

from gateway.core.model import Lease
from gateway.devtools.embedded import PostgresServer, start_postgres
from gateway.ports import StoreUnavailable
from gateway.store.postgres import PostgresStore
from gateway.store.postgres.lane import Lane
from tests.store.contract.harness import KEPT, found, intent, reserved, response
from tests.store.postgres.conftest import MakeStore
from tests.store.postgres.watch import until
from tests.support.faults import FaultProxy
from tests.support.services import Services, remove_data

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server that can be told to wait for a standby, which would hold up everybody else's tests."""
    folder = Path(tempfile.mkdtemp(prefix="idempotency-gateway-tests-"))
    server = start_postgres(folder / "postgres")
    yield server
    server.stop()
    remove_data(folder)


@pytest.fixture
def database(services: Services, server: PostgresServer) -> Iterator[str]:
    dsn = services.migrated_database(server)
    yield dsn
    services.drop_database(server, dsn)


class Standby:
    """The one that the server is told to wait for, and that never comes."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._connection = connection

    async def is_missed(self, *, missed: bool = True) -> None:
        await self._connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{'nobody' if missed else ''}'")
        await self._connection.execute("SELECT pg_reload_conf()")
        wanted = "nobody" if missed else ""
        await until(lambda: self._connection.fetchval("SELECT current_setting('synchronous_standby_names') = $1", wanted))

    async def waited_for(self) -> int:
        await self._connection.execute("SELECT pg_stat_clear_snapshot()")
        count: int = await self._connection.fetchval(WAITING)
        return count


@pytest.fixture
async def standby(connection: "asyncpg.Connection[asyncpg.Record]") -> AsyncIterator[Standby]:
    standby = Standby(connection)
    yield standby
    await standby.is_missed(missed=False)


async def test_a_commit_that_is_given_up_stays_unseen(make_store: MakeStore, standby: Standby) -> None:
    """The gateway hangs up and asks for no cancel, which would show a row that a failover takes back."""
    store, other = make_store(timeout=0.5), make_store()
    wanted = intent()
    await standby.is_missed()
    with pytest.raises(StoreUnavailable) as given_up:
        await store.reserve(wanted)
    assert (given_up.value.reason, given_up.value.may_have_landed) == ("timeout", True)
    await asyncio.sleep(0)  # whatever asks for a cancel would do so now
    assert await other.find(wanted.key) is None
    assert await standby.waited_for() == 1
    await standby.is_missed(missed=False)
    await until(lambda: _is_there(other, wanted.key))


async def _is_there(store: PostgresStore, key: object) -> bool:
    return await store.find(key) is not None  # type: ignore[arg-type]  # a record's key


async def test_a_wait_that_somebody_cut_short_counts_as_a_lost_reply(
    make_store: MakeStore, standby: Standby, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """The server answers a reserve with its row and a warning: the row is seen, and no lease."""
    store = make_store()
    await reserved(store, intent())
    wanted = intent()
    await standby.is_missed()
    asked = asyncio.ensure_future(store.reserve(wanted))
    await until(lambda: _waits(standby))
    await connection.execute(WAITING.replace("count(*)", "pg_cancel_backend(pid)"))
    with pytest.raises(StoreUnavailable) as cut:
        await asked
    assert cut.value.may_have_landed
    assert (await found(store, wanted.key)).owner == wanted.owner


async def _waits(standby: Standby) -> bool:
    return await standby.waited_for() > 0


Write = Callable[[PostgresStore, Lease], Awaitable[object]]


async def _claim(store: PostgresStore, lease: Lease) -> object:
    record = await found(store, lease.key)
    return await store.claim(replace(record, version=record.version - 1), intent(lease.key))


async def _complete(store: PostgresStore, lease: Lease) -> object:
    return await store.complete(lease, response(), KEPT)


async def _release(store: PostgresStore, lease: Lease) -> object:
    return await store.release(lease, "x", KEPT)


async def _doubt(store: PostgresStore, lease: Lease) -> object:
    return await store.doubt(lease, "x")


async def _renew(store: PostgresStore, lease: Lease) -> object:
    return await store.renew([lease])


@pytest.mark.parametrize(
    ("before", "write"),
    [
        pytest.param(_complete, _complete, id="a repeated complete"),
        pytest.param(_release, _release, id="a repeated release"),
        pytest.param(_doubt, _doubt, id="a repeated doubt"),
        pytest.param(_complete, _release, id="a stale release"),
        pytest.param(_release, _claim, id="a claim that was too slow"),
        pytest.param(_renew, _renew, id="a renewal"),
    ],
)
async def test_what_a_write_answers_has_waited_for_the_standby(
    make_store: MakeStore, standby: Standby, before: Write, write: Write
) -> None:
    """`already`, `stale` and a lost race rest on a write, too: what they are told of lasts."""
    store = make_store(timeout=0.5)
    lease = await reserved(make_store(), intent())
    await before(make_store(), lease)
    await standby.is_missed()
    with pytest.raises(StoreUnavailable) as waits:
        await write(store, lease)
    assert (waits.value.reason, waits.value.may_have_landed) == ("timeout", True)
    assert await standby.waited_for() == 1


async def test_commits_that_are_given_up_do_not_fill_the_server(make_store: MakeStore, standby: Standby) -> None:
    """Each of them keeps a session at the server until the standby comes back: from as many as the pool is large no more are begun."""
    store = make_store(pool_size=2, timeout=0.2)
    await standby.is_missed()
    lost = [await asyncio.gather(*[store.reserve(intent()) for _ in range(4)], return_exceptions=True) for _ in range(12)]
    assert all(isinstance(answer, StoreUnavailable) for answers in lost for answer in answers)
    assert await standby.waited_for() <= 6
    assert not any(answer.may_have_landed for answer in lost[-1] if isinstance(answer, StoreUnavailable))
    await standby.is_missed(missed=False)

    async def works() -> bool:
        try:
            return isinstance(await store.reserve(intent()), Lease)
        except StoreUnavailable:
            return False

    await until(works)


async def test_a_server_that_takes_no_writes_any_more_loses_all_its_connections(
    make_store: MakeStore, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """One refusal is enough: the others of the pool would each cost somebody a 503."""
    store = make_store(pool_size=3)
    await asyncio.gather(*[store.find(intent().key) for _ in range(3)])
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'idempotency-gateway'"
    assert await connection.fetchval(sessions) == 3
    await connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    await connection.execute("SELECT pg_reload_conf()")
    try:
        await until(lambda: connection.fetchval("SELECT current_setting('default_transaction_read_only') = 'on'"))
        with pytest.raises(StoreUnavailable) as refused:
            await store.reserve(intent())
        assert (refused.value.reason, refused.value.may_have_landed) == ("not_ready", False)
        await until(lambda: connection.fetchval(sessions.replace("count(*)", "count(*) = 0")))
    finally:
        await connection.execute("SET default_transaction_read_only = off")
        await connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
        await connection.execute("SELECT pg_reload_conf()")


async def test_a_call_that_is_given_up_opens_no_connection_to_cancel_it(make_store: MakeStore, proxied: str, proxy: FaultProxy) -> None:
    """A cancel request is a connection of its own."""
    store = make_store(proxied, pool_size=1, timeout=0.3)
    await reserved(store, intent())
    before = proxy.connections
    proxy.stall()
    with pytest.raises(StoreUnavailable):
        await store.reserve(intent())
    await asyncio.sleep(0.05)
    assert proxy.connections == before


async def test_a_task_that_is_cancelled_opens_no_connection_to_cancel_its_statement(proxied: str, proxy: FaultProxy) -> None:
    """Whoever ends the process's tasks: the driver's request is not sent."""
    lane = Lane(await asyncpg.connect(proxied), explicit=False, limit=30.0)
    lane.deadline = asyncio.get_running_loop().time() + 30
    running = asyncio.ensure_future(lane.fetch("SELECT pg_sleep(30)"))
    await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.sleep(0.05)
    assert (proxy.connections, lane.usable, lane.hung_up) == (1, False, True)


async def test_a_statement_that_the_server_ended_did_not_land(database: str, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Behind somebody's lock the server's own limit speaks first: nothing was written then, though something was asked."""
    lane = Lane(await asyncpg.connect(database), explicit=False, limit=30.0)
    lane.deadline, lane.limit = asyncio.get_running_loop().time() + 30, 0.3
    async with connection.transaction():
        await connection.execute("LOCK TABLE gateway_records IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreUnavailable) as ended:
            await lane.fetch("SELECT FROM gateway_records")
    assert (ended.value.reason, ended.value.may_have_landed, ended.value.asked) == ("timeout", False, True)
    assert await lane.fetch("SELECT FROM gateway_records") == []
    await lane.bury()


async def test_a_call_with_more_time_has_it_at_the_server_too(database: str) -> None:
    """An operator's may take longer than traffic; the next one on the same connection has its own limit again."""
    lane = Lane(await asyncpg.connect(database), explicit=False, limit=2.0)
    lane.deadline = asyncio.get_running_loop().time() + 30
    told = []
    for limit in (10.0, 0.5):
        lane.limit = limit
        told += [row["statement_timeout"] for row in await lane.fetch("SHOW statement_timeout")]
        told.append(await lane.together(lambda connection: connection.fetchval("SHOW statement_timeout")))
    assert told == ["9s", "9s", "450ms", "450ms"]
    await lane.bury()
