import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from gateway.core.model import Lease, Record
from gateway.devtools.embedded.ports import free_port
from gateway.ports import StoreUnavailable, Transition
from gateway.store.postgres import PostgresStore, ScopeClaim, check_server
from gateway.store.postgres.checks import problems_of
from gateway.store.postgres.lane import Connection, Lane
from tests.store.contract.harness import KEPT, fresh_key, intent, reserved, response
from tests.store.postgres.conftest import MakeStore
from tests.store.postgres.watch import until
from tests.support.services import missing

SERVER_CONNECTIONS = 2


@pytest.fixture
def pooled(database: str) -> Iterator[str]:
    """DSN of the test's database behind a pgbouncer in transaction mode with two server connections."""
    with pgbouncer(database) as dsn:
        yield dsn


@contextmanager
def pgbouncer(database: str, more: str = "") -> Iterator[str]:
    """`more`: further settings of the database."""
    binary = shutil.which("pgbouncer")
    if binary is None:
        missing("pgbouncer on the PATH")
        raise AssertionError
    at, port = urlsplit(database), free_port()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        settings = Path(folder) / "pgbouncer.ini"
        settings.write_text(
            "[databases]\n"
            f"pooled = host={at.hostname} port={at.port} dbname={at.path[1:]} user={at.username} password={at.password} {more}\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
            f"pool_mode = transaction\ndefault_pool_size = {SERVER_CONNECTIONS}\nmax_client_conn = 200\n"
        )
        settings.chmod(0o644)
        unprivileged = ["-u", "nobody"] if os.geteuid() == 0 else []
        process = subprocess.Popen([binary, "-q", *unprivileged, str(settings)], stdin=subprocess.DEVNULL)
        try:
            wait_for(port, process)
            yield f"postgresql://{at.username}@127.0.0.1:{port}/pooled"
        finally:
            process.terminate()
            process.wait(10)


def wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(200):
        assert process.poll() is None
        with socket.socket() as client:
            client.settimeout(0.05)
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError("pgbouncer does not listen")


async def test_two_gateways_work_behind_a_pooler(make_store: MakeStore, pooled: str) -> None:
    """Hundreds of mixed calls from two stores over two server connections: no error, one winner for each key."""
    stores = [make_store(pooled, prepared_statements=False, pool_size=8) for _ in range(2)]
    keys = [fresh_key() for _ in range(120)]
    answers = await asyncio.gather(*[store.reserve(intent(key)) for key in keys for store in stores])
    leases = [answer for answer in answers if isinstance(answer, Lease)]
    assert sorted(lease.key.key for lease in leases) == sorted(key.key for key in keys)
    settles = [stores[n % 2].complete(lease, response(), KEPT) for n, lease in enumerate(leases)]
    looks = [store.find(key) for store in stores for key in keys[:20]]
    settled = await asyncio.gather(*settles)
    found = await asyncio.gather(*looks)
    assert {answer.transition for answer in settled} == {Transition.DONE}
    assert all(found)
    replays = await asyncio.gather(*[store.reserve(intent(key)) for key in keys for store in stores])
    assert all(isinstance(answer, Record) and answer.response == response() for answer in replays)


async def test_every_other_call_works_behind_a_pooler(make_store: MakeStore, pooled: str) -> None:
    """Claims, renewals, background work, the registry and readiness need no session either."""
    store = make_store(pooled, prepared_statements=False)
    lease = await reserved(store, intent())
    assert await store.renew([lease]) == frozenset({lease.owner})
    assert (await store.release(lease, "x", KEPT)).transition is Transition.DONE
    record = await store.find(lease.key)
    assert record is not None
    second = await store.claim(record, intent(lease.key))
    assert second is not None
    assert (await store.doubt(second, "x")).transition is Transition.DONE
    assert list(await store.sweep(10)) == []
    assert await store.reap(10) == 0
    assert (await store.counts()).unknown == 1
    assert await store.registry.register([ScopeClaim("payments", "none", "k", "s")], [(b"d", 1, "text")]) == []
    assert await store.registry.fingerprint_policy(b"d") == (1, "text")
    assert await store.ready() is None


async def test_what_a_pooler_sets_is_found(make_store: MakeStore, database: str) -> None:
    """By the start, and by a connection later; our own sessions are looked at, whoever made them so."""
    with pgbouncer(database, "connect_query='SET synchronous_commit = off'") as dsn:
        allowed = frozenset({"fsync_off"})
        (problem,) = await check_server(dsn, allowed)
        assert problem.startswith("synchronous_commit_off: ")
        store = make_store(dsn, prepared_statements=False)
        store.hold_to(lambda row: problems_of(row, allowed))
        with pytest.raises(StoreUnavailable) as refused:
            await store.reserve(intent())
        assert refused.value.reason == "not_ready"
        assert await store.ready() == problem
        store.hold_to(lambda row: problems_of(row, allowed | {"synchronous_commit_off"}))
        await until(lambda: _is_ready(store))  # it asks again a moment later
        assert await reserved(store, intent())


async def _is_ready(store: PostgresStore) -> bool:
    return await store.ready() is None


async def test_rows_that_a_gateway_held_when_its_power_went_are_free_soon(make_store: MakeStore, pooled: str) -> None:
    """Nobody tells the pooler that its client is gone: the server itself ends a transaction in which nobody speaks any more."""
    lease = await reserved(make_store(pooled, prepared_statements=False), intent())
    held, gone = asyncio.Event(), asyncio.Event()
    lane = Lane(await asyncpg.connect(pooled, statement_cache_size=0), explicit=True, limit=1.0)
    lane.deadline = asyncio.get_running_loop().time() + 120

    async def lose_power(connection: Connection) -> None:
        await connection.execute("UPDATE gateway_records SET version = version + 1 WHERE status = 'in_progress'")
        held.set()
        await gone.wait()

    lost = asyncio.ensure_future(lane.together(lose_power))
    await held.wait()
    settling = make_store(pooled, prepared_statements=False, timeout=30)
    assert (await settling.complete(lease, response(), KEPT)).transition is Transition.DONE
    gone.set()
    with pytest.raises(StoreUnavailable):  # whoever comes back after all has written nothing
        await lost
    assert not lane.usable
    record = await settling.find(lease.key)
    assert record is not None
    assert record.version == 2


async def test_nothing_is_left_behind_in_the_poolers_sessions(
    make_store: MakeStore, pooled: str, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """No open transaction, lock, prepared statement or changed setting stays on a server connection."""
    store = make_store(pooled, prepared_statements=False)
    await asyncio.gather(*[reserved(store, intent()) for _ in range(50)])
    await store.registry.register([], [])
    open_sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
    assert await connection.fetchval(open_sessions) == 0
    assert await connection.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
    client = await asyncpg.connect(pooled, statement_cache_size=0)
    try:
        async with client.transaction():
            assert await client.fetchval("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''") == 0
            assert await client.fetchval("SELECT count(*) FROM pg_settings WHERE source = 'session' AND name LIKE '%timeout%'") == 0
    finally:
        await client.close()
