"""A server that may be at several hosts."""

import asyncio
import socket
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlsplit

import asyncpg
import pytest

from gateway.core.conninfo import Target
from gateway.core.histories import History
from gateway.devtools.embedded.ports import free_port
from gateway.ports import StoreUnavailable, Transition
from gateway.store.hosts import Hosts, Opened, _at_once, _history, connect
from gateway.store.lookups import looked_up
from gateway.store.migrate import migrate
from gateway.store.postgres import PostgresStore, check_server
from tests.store.contract.harness import KEPT, intent, reserved, response
from tests.store.postgres.conftest import MakeStore
from tests.store.postgres.watch import until, waiting_for_locks


def with_hosts(dsn: str, *before: int) -> str:
    """The DSN with other ports of this machine in front of its own."""
    at = urlsplit(dsn)
    own = f"{at.hostname}:{at.port}"
    return dsn.replace(own, ",".join([*(f"127.0.0.1:{port}" for port in before), own]))


def test_each_host_has_a_dsn_of_its_own() -> None:
    """With login, database and options."""
    info = looked_up("postgresql://u:p@one:1,[::1]:2/db?sslmode=require")
    assert [info.dsn(target, "read-write", None) for target in info.targets] == [
        f"postgresql://?target_session_attrs=read-write&port={port}&user=u&password=p&dbname=db&sslmode=require&host={host}"
        for host, port in (("one", 1), ("%5B%3A%3A1%5D", 2))
    ]


async def test_a_host_that_is_away_or_silent_is_passed_over(database: str) -> None:
    """By the store, by the checks and by migrations; the silent one takes no more than its share of the time."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dsn = with_hosts(database, free_port(), silent.getsockname()[1])
        store = PostgresStore(dsn, pool_size=2, timeout=6.0)
        try:
            await reserved(store, intent())
        finally:
            await store.close()
    gone = with_hosts(database, free_port())
    assert await migrate(gone) == []
    assert await check_server(gone, frozenset({"fsync_off", "synchronous_commit_off"})) == []


async def test_a_host_that_is_named_twice_is_one(database: str) -> None:
    """It was asked twice, and one of the connections was left open."""
    at = urlsplit(database)
    hosts = Hosts(with_hosts(database, at.port or 0))
    await (await hosts.connect(10.0)).close()
    assert not hosts._late


async def test_a_host_that_takes_no_writes_is_not_the_one(database: str) -> None:
    """A standby answers, and is of no use, be it one of several or the only one."""
    connection = await asyncpg.connect(database)
    await connection.execute(f'ALTER DATABASE "{urlsplit(database).path[1:]}" SET default_transaction_read_only = on')
    await connection.close()
    for dsn in (with_hosts(database, free_port()), f"{database}?target_session_attrs=read-write"):
        store = PostgresStore(dsn, pool_size=2, timeout=10.0)
        try:
            with pytest.raises(StoreUnavailable) as caught:
                await store.reserve(intent())
            assert caught.value.reason == "not_ready"
        finally:
            await store.close()


SPELLINGS = [
    "postgresql://{user}:{password}@127.0.0.1:{port},127.0.0.1:{gone}/{dbname}",
    "postgresql://{user}:{password}@/{dbname}?host=127.0.0.1,127.0.0.1&port={gone},{port}&target_session_attrs=primary",
    "host=127.0.0.1,127.0.0.1 port={gone},{port} user='{user}' password='{password}' dbname={dbname} load_balance_hosts=random",
    "postgresql://localhost:{port}/{dbname}?user={user}&passfile={passfile}&keepalives=1&connect_timeout=9",
    "service=pay dbname={dbname}",
    "postgresql:///{dbname}?target_session_attrs=any",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_a_server_is_reached_by_each_spelling(database: str, tmp_path: Path, spelling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A URI, keywords, a service, the environment, a password file; what the driver cannot do is done before it."""
    at = urlsplit(database)
    passfile = tmp_path / "passwords:1"
    passfile.write_text(f"*:*:*:{at.username}:{at.password}\n")
    passfile.chmod(0o600)
    services = tmp_path / "services"
    services.write_text(f"[pay]\nhost=127.0.0.1\nport={at.port}\nuser={at.username}\npassword={at.password}\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    if spelling == SPELLINGS[-1]:
        for name, value in {"HOST": "127.0.0.1,127.0.0.1", "PORT": f"{free_port()},{at.port}", "USER": at.username}.items():
            monkeypatch.setenv(f"PG{name}", str(value))
        monkeypatch.setenv("PGPASSFILE", str(passfile))
    dsn = spelling.format(
        user=at.username, password=at.password, port=at.port, gone=free_port(), dbname=at.path[1:], passfile=quote(str(passfile), safe="")
    )
    connection = await connect(dsn, 10.0)
    assert await connection.fetchval("SELECT current_database()") == at.path[1:]
    await connection.close()


async def test_a_unix_socket_is_a_host(tmp_path: Path) -> None:
    """Its folder, in either spelling."""
    reached: list[str] = []

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append("here")
        writer.close()

    async with await asyncio.start_unix_server(serve, tmp_path / ".s.PGSQL.7"):
        for dsn in (f"postgresql://{quote(str(tmp_path), safe='')}:7/db", f"host={tmp_path} port=7 dbname=db"):
            with pytest.raises((OSError, asyncpg.PostgresError)):
                await connect(dsn, 5.0)
    assert reached == ["here"] * 2


class Names:
    """A resolver in the test's hands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses: dict[str, list[str]] = {}
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._look_up)

    def _look_up(self, host: Any, port: Any, *args: Any, **settings: Any) -> Any:
        found = [self._real(address, port, *args, **settings) for address in self.addresses.get(host, [host])]
        return [info for infos in found for info in infos]


async def test_a_name_is_looked_up_for_each_connection(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failover that moves a name needs no restart."""
    names = Names(monkeypatch)
    names.addresses["db.test"] = ["127.0.0.9"]  # nothing listens there
    hosts = Hosts(database.replace("127.0.0.1", "db.test"))
    with pytest.raises(ConnectionRefusedError):
        await hosts.connect(5.0)
    names.addresses["db.test"] = ["127.0.0.1"]
    await (await hosts.connect(5.0)).close()


async def test_each_address_of_a_name_is_a_place(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the DSN says what the right server is; the first that listens may be the wrong one, or silent."""
    names = Names(monkeypatch)
    at = urlsplit(database)
    with socket.create_server(("127.0.0.9", at.port or 0)):
        names.addresses["db.test"] = ["127.0.0.9", "127.0.0.1"]
        dsn = database.replace("127.0.0.1", "db.test")
        with pytest.raises(TimeoutError):
            await connect(dsn, 0.3)
        await (await connect(f"{dsn}?target_session_attrs=read-write", 5.0)).close()


async def test_a_former_primary_is_not_used(database: str) -> None:
    """A server that writes on a timeline which has ended, by what this process has seen, is refused."""
    hosts = Hosts(database)
    connection = await hosts.connect(5.0)
    history = await _history(connection)
    await connection.close()
    assert history is not None
    hosts._histories.seen(history._replace(timeline=history.timeline + 1))
    with pytest.raises(asyncpg.CannotConnectNowError, match="former primary"):
        await hosts.connect(5.0)


async def test_of_two_primaries_the_one_that_was_promoted_later_counts() -> None:
    """Whichever answers first; and of a silent one there is no long wait."""
    former, later = Opened(cast("Any", Closing()), History(7, 1)), Opened(cast("Any", Closing()), History(7, 2))

    async def open_at(target: Target, limit: float) -> Opened:
        await asyncio.sleep(target.port / 100)
        return {1: former, 2: later, 1000: later}[target.port]

    until = asyncio.get_running_loop().time() + 5
    late: set[asyncio.Future[Opened]] = set()
    found = await _at_once([Target("silent", 1000), Target("one", 1), Target("two", 2)], open_at, until, late)
    assert found == (Target("two", 2), later)
    await asyncio.sleep(0)
    assert (cast("Any", former.connection).closed, cast("Any", later.connection).closed) == (True, False)
    (silent,) = late  # it may still say that it is the primary
    silent.cancel()


async def test_a_primary_that_answers_late_is_still_found(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a former one was chosen: what is connected to that is given up then, not when its commits time out."""
    at = urlsplit(database)
    moved = asyncio.Event()
    hosts = Hosts(database.replace("127.0.0.1", f"localhost:{at.port},127.0.0.1"), moved.set)
    told: list[History] = []

    async def history(connection: object, *, pooled: bool) -> History:
        told.append(History(7, 1 + len(told)))
        mine = told[-1]
        await asyncio.sleep(0.8 * (mine.timeline - 1))
        return mine

    monkeypatch.setattr("gateway.store.hosts._history", history)
    connection = await hosts.connect(10.0)
    assert not moved.is_set()
    await asyncio.wait_for(moved.wait(), 10)
    await connection.close()


class Closing:
    closed = False

    def terminate(self) -> None:
        self.closed = True


async def test_what_runs_at_a_former_primary_is_not_believed(
    make_store: MakeStore, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """Where a new connection leads to a server that was promoted since, replies of the one before count as lost, and its connections are
    replaced.
    """
    store = make_store(pool_size=2)
    held = await reserved(store, intent())
    async with connection.transaction():
        await connection.execute("SELECT FROM gateway_records WHERE idempotency_key = $1 FOR UPDATE", held.key.key)
        asked = asyncio.ensure_future(store.complete(held, response(), KEPT))
        await until(lambda: _waits(connection))
        store._moved()
    with pytest.raises(StoreUnavailable) as lost:
        await asked
    assert (lost.value.reason, lost.value.may_have_landed) == ("disconnected", True)
    assert (await store.complete(held, response(), KEPT)).transition is Transition.ALREADY


async def _waits(connection: "asyncpg.Connection[asyncpg.Record]") -> bool:
    return await waiting_for_locks(connection) == 1


async def test_a_connection_that_was_under_way_as_the_successor_was_found_is_not_used(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was let in before, and is no lane yet: who retires the lanes does not find it."""
    store = make_store(pool_size=1)
    look = store._fitness.look_at

    async def look_at(connection: Any) -> None:
        await look(connection)
        history = await _history(connection)
        assert history is not None
        monkeypatch.undo()
        assert store._hosts._histories.seen(history._replace(timeline=history.timeline + 1))
        store._moved()

    monkeypatch.setattr(store._fitness, "look_at", look_at)
    with pytest.raises(StoreUnavailable) as unavailable:
        await store.reserve(intent())
    assert not unavailable.value.may_have_landed
