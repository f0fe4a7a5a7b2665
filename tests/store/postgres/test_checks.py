import asyncpg
import pytest

from gateway.core.model import Lease
from gateway.devtools.embedded import PostgresServer
from gateway.ports import StoreUnavailable
from gateway.store.postgres import PostgresStore, check_server
from gateway.store.postgres.checks import problems_of
from tests.store.contract.harness import intent
from tests.store.postgres.conftest import MakeStore
from tests.store.postgres.watch import until
from tests.support.faults import FaultProxy


@pytest.fixture
async def strict(database: str, connection: "asyncpg.Connection[asyncpg.Record]") -> "asyncpg.Connection[asyncpg.Record]":
    """The test's database with durable commits, whatever the server's settings are."""
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = on')
    return connection


async def test_volatile_commits_are_found_and_can_be_allowed(database: str, strict: "asyncpg.Connection[asyncpg.Record]") -> None:
    """`synchronous_commit = off`, wherever it is set, is a problem until it is allowed by its name."""
    others = frozenset({"fsync_off"})
    assert await check_server(database, others) == []
    name = await strict.fetchval("SELECT current_database()")
    await strict.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    (problem,) = await check_server(database, others)
    assert problem.startswith("synchronous_commit_off: ")
    assert await check_server(database, others | {"synchronous_commit_off"}) == []


@pytest.mark.parametrize(("commit", "standby", "told"), [("local", True, True), ("local", False, False), ("on", True, False)])
def test_commits_that_do_not_wait_for_the_standby_are_found(commit: str, standby: bool, told: bool) -> None:
    """Where there is none, `local` is as good as `on`."""
    row = {"fsync": "on", "synchronous_commit": commit, "has_standby": standby, "in_recovery": False, "version": 17}
    assert [problem.partition(":")[0] for problem in problems_of(row, frozenset())] == ["synchronous_commit_off"] * told
    assert problems_of(row, frozenset({"synchronous_commit_off"})) == []


def test_commits_that_a_standby_has_in_memory_alone_are_found() -> None:
    """`remote_write` has a name of its own; it means nothing where there is no standby."""
    row = {"fsync": "on", "synchronous_commit": "remote_write", "has_standby": True, "in_recovery": False, "version": 17}
    (problem,) = problems_of(row, frozenset({"synchronous_commit_off"}))
    assert problem.startswith("synchronous_commit_remote_write: ")
    assert problems_of(row, frozenset({"synchronous_commit_remote_write"})) == []
    assert problems_of({**row, "has_standby": False}, frozenset()) == []


@pytest.mark.parametrize(("waits", "recovers", "told"), [(True, False, 0), (False, False, 1), (False, True, 0)])
def test_a_standby_may_be_demanded(waits: bool, recovers: bool, told: int) -> None:
    """Of a server that takes writes; nothing allows its absence."""
    row = {"fsync": "on", "synchronous_commit": "on", "has_standby": waits, "in_recovery": recovers, "version": 17}
    found = problems_of(row, frozenset({"in_recovery"}), standby=True)
    assert [problem.partition(":")[0] for problem in found] == ["require_standby"] * told


async def test_what_a_role_is_set_to_is_found(database: str, strict: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Our own sessions are looked at: what the server is set to says nothing of them."""
    name = await strict.fetchval("SELECT current_database()")
    await strict.execute(f'ALTER ROLE CURRENT_USER IN DATABASE "{name}" SET synchronous_commit = off')
    (problem,) = await check_server(database, frozenset({"fsync_off"}))
    assert problem.startswith("synchronous_commit_off: ")
    (problem,) = await check_server(f"{database}?options=-c%20synchronous_commit%3Doff", frozenset({"fsync_off"}))
    assert problem.startswith("synchronous_commit_off: ")


async def test_a_store_uses_no_server_that_has_become_unfit(
    make_store: MakeStore, connection: "asyncpg.Connection[asyncpg.Record]", caplog: pytest.LogCaptureFixture
) -> None:
    """Neither one that a new connection finds so, nor one whose settings were changed under its connections; the log says it once."""
    problems: list[str] = []
    store = make_store(pool_size=1)
    store.hold_to(lambda _: problems)
    assert isinstance(await store.reserve(intent()), Lease)
    problems.append("it forgets")
    assert isinstance(await store.reserve(intent()), Lease)  # nobody has looked yet
    await store.watch_clock()
    for _ in range(2):
        with pytest.raises(StoreUnavailable) as refused:
            await store.reserve(intent())
        assert refused.value.reason == "not_ready"
    assert await store.ready() == "it forgets"
    assert [record.levelname for record in caplog.records if "it forgets" in record.getMessage()] == ["ERROR"]
    problems.clear()
    await until(lambda: _is_ready(store))
    assert isinstance(await store.reserve(intent()), Lease)


async def _is_ready(store: PostgresStore) -> bool:
    return await store.ready() is None


async def test_fsync_is_found_and_can_be_allowed(postgres_server: PostgresServer, database: str, strict: object) -> None:
    """A server that does not sync is a problem until it is allowed by its name."""
    connection = await asyncpg.connect(postgres_server.dsn)
    try:
        off = await connection.fetchval("SHOW fsync") == "off"
    finally:
        await connection.close()
    assert [problem.partition(":")[0] for problem in await check_server(database)] == ["fsync_off"] * off
    assert await check_server(database, frozenset({"fsync_off"})) == []


async def test_a_server_that_cannot_be_asked_raises(proxied: str, proxy: FaultProxy) -> None:
    """No answer is no verdict."""
    await proxy.refuse()
    with pytest.raises(OSError):  # noqa: PT011 (the operating system's words differ)
        await check_server(proxied)


async def test_readiness_tells_an_unreachable_server(make_store: MakeStore, proxied: str, proxy: FaultProxy) -> None:
    """A store whose server is away says so, and is ready again when it is back."""
    store = make_store(proxied)
    assert await store.ready() is None
    await proxy.refuse()
    reason = await store.ready()
    assert reason is not None
    assert "unreachable" in reason


async def test_a_missing_table_is_not_ready(empty_database: str) -> None:
    """Before `migrate` every call says that the store is not ready."""
    store = PostgresStore(empty_database, timeout=10)
    with pytest.raises(StoreUnavailable) as unready:
        await store.reserve(intent())
    assert unready.value.reason == "not_ready"
    await store.close()


async def test_a_read_only_server_is_not_ready(make_store: MakeStore, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """After a failover to a standby writes are refused as such, and its connection is given up."""
    store = make_store(pool_size=1)
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    with pytest.raises(StoreUnavailable) as standby:
        await store.reserve(intent())
    assert standby.value.reason == "not_ready"
    await connection.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
    assert isinstance(await store.reserve(intent()), Lease)  # on the connection before it would be refused for ever


async def test_a_wrong_password_is_an_error(make_store: MakeStore, database: str) -> None:
    """A refusal to let us in is neither a timeout nor a crash."""
    store = make_store(database.replace("@", "x@"))
    with pytest.raises(StoreUnavailable) as refused:
        await store.find(intent().key)
    assert (refused.value.reason, refused.value.may_have_landed) == ("error", False)
