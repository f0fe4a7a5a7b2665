"""A server that may be at several hosts."""

import socket
from urllib.parse import urlsplit

import asyncpg
import pytest

from gateway.devtools.embedded.launch import free_port
from gateway.ports import StoreUnavailable
from gateway.store.hosts import dsn_of_each
from gateway.store.migrate import migrate
from gateway.store.postgres import PostgresStore, check_server
from tests.store.contract.harness import intent, reserved


def with_hosts(dsn: str, *before: int) -> str:
    """The DSN with other ports of this machine in front of its own."""
    at = urlsplit(dsn)
    own = f"{at.hostname}:{at.port}"
    return dsn.replace(own, ",".join([*(f"127.0.0.1:{port}" for port in before), own]))


def test_each_host_has_a_dsn_of_its_own() -> None:
    """With login, database and options; of several only one that takes writes is wanted."""
    assert dsn_of_each("postgresql://u:p%40@one/db") == ["postgresql://u:p%40@one/db"]
    assert dsn_of_each("postgresql://u:p@one:1,[::1]:2/db?sslmode=require") == [
        f"postgresql://u:p@{host}/db?sslmode=require&target_session_attrs=read-write" for host in ("one:1", "[::1]:2")
    ]
    assert dsn_of_each("postgresql://one,two/db?target_session_attrs=any")[1] == "postgresql://two/db?target_session_attrs=any"


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


async def test_a_host_that_takes_no_writes_is_not_the_one(database: str) -> None:
    """A standby answers, and is of no use."""
    connection = await asyncpg.connect(database)
    await connection.execute(f'ALTER DATABASE "{urlsplit(database).path[1:]}" SET default_transaction_read_only = on')
    await connection.close()
    store = PostgresStore(with_hosts(database, free_port()), pool_size=2, timeout=10.0)
    try:
        with pytest.raises(StoreUnavailable) as caught:
            await store.reserve(intent())
        assert caught.value.reason in {"not_ready", "refused"}
    finally:
        await store.close()
