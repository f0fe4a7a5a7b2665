"""Real Postgres and Redis servers for a test session: started at first use, stopped together."""

import asyncio
import functools
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import asyncpg
import pytest

from gateway.devtools.embedded import PostgresServer, RedisServer, start_postgres, start_redis
from gateway.store.migrate import migrate

T = TypeVar("T")

PREFIX = "idempotency-gateway-tests-"
MEMORY = Path("/dev/shm")
ROOM = 6 * 2**30
"""Bytes that must be free in memory before servers are put there: those of several sessions at once."""
SMALL = {"max_wal_size": "256MB"}
"""What servers of tests are told besides: data that is thrown away needs no long log."""

WHEEL = "wheel"
SYSTEM = "system"
POSTGRES_VARIANTS = (WHEEL, SYSTEM)
"""The wheel's 18, and the oldest of 15 or newer under /usr/lib/postgresql."""
REDIS_VARIANTS = (WHEEL, SYSTEM)
"""The wheel's 6.2, and a `redis-server` of 7 or newer on the PATH."""


def missing(what: str) -> NoReturn:
    """Skip the test at home, fail it in CI, where the whole matrix must be there."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must have {what}")
    pytest.skip(f"there is no {what}")


def system_postgres() -> Path | None:
    """The `bin` folder of the oldest installed Postgres that is 15 or newer."""
    found = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit() and int(path.parent.name) >= 15]
    return min(found, key=lambda path: int(path.parent.name), default=None)


def system_redis() -> Path | None:
    """A `redis-server` of version 7 or newer on the PATH."""
    path = shutil.which("redis-server")
    if path is None:
        return None
    words = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout.split()
    version = next(word[2:] for word in words if word.startswith("v="))
    return Path(path) if int(version.split(".")[0]) >= 7 else None


def new_root() -> Path:
    """A folder for the data of servers, which their users can enter: in memory where there is room, since each database that a test drops
    waits for a checkpoint. What killed runs have left there is removed.
    """
    base = Path(tempfile.gettempdir())
    with suppress(OSError):
        for left in MEMORY.glob(f"{PREFIX}*"):
            if not Path("/proc", left.name.removeprefix(PREFIX).partition("-")[0]).exists():
                shutil.rmtree(left, ignore_errors=True)
        if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ROOM:
            base = MEMORY
    root = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=base))
    root.chmod(0o711)
    return root


@dataclass(slots=True)
class Services:
    """The servers of one session, each in a data folder under `root`."""

    root: Path = field(default_factory=new_root)
    postgres_servers: dict[str, PostgresServer] = field(default_factory=dict)
    redis_servers: dict[str, RedisServer] = field(default_factory=dict)
    templates: dict[str, str] = field(default_factory=dict)
    connections: dict[str, "asyncpg.Connection[asyncpg.Record]"] = field(default_factory=dict)
    """To each Postgres server, for what is done around tests."""
    databases: int = 0

    def postgres(self, variant: str = WHEEL) -> PostgresServer:
        if variant not in self.postgres_servers:
            binaries = None
            if variant == SYSTEM and (binaries := system_postgres()) is None:
                missing("Postgres 15 or newer under /usr/lib/postgresql")
            self.postgres_servers[variant] = start_postgres(self.root / f"postgres-{variant}", binaries=binaries, settings=SMALL)
        return self.postgres_servers[variant]

    def redis(self, variant: str = WHEEL) -> RedisServer:
        if variant not in self.redis_servers:
            binary = None
            if variant == SYSTEM and (binary := system_redis()) is None:
                missing("redis-server 7 or newer on the PATH")
            self.redis_servers[variant] = start_redis(self.root / f"redis-{variant}", binary=binary)
        return self.redis_servers[variant]

    def empty_database(self, server: PostgresServer) -> str:
        """The DSN of a new, empty database."""
        return self._create(server, "template1")

    def migrated_database(self, server: PostgresServer) -> str:
        """The DSN of a new database with the current schema, copied from a template that is migrated once."""
        if server.dsn not in self.templates:
            template = self.empty_database(server)
            run(lambda: migrate(template))
            self.templates[server.dsn] = urlsplit(template).path[1:]
        return self._create(server, self.templates[server.dsn])

    def drop_database(self, server: PostgresServer, dsn: str) -> None:
        self._execute(server, f'DROP DATABASE IF EXISTS "{urlsplit(dsn).path[1:]}" WITH (FORCE)')

    def stop(self) -> None:
        for connection in self.connections.values():
            run(connection.close)
        for redis in self.redis_servers.values():
            redis.stop()
        for postgres in self.postgres_servers.values():
            postgres.stop()
        remove_data(self.root)

    def _create(self, server: PostgresServer, template: str) -> str:
        self.databases += 1
        name = f"test_{self.databases}"
        # By copying files: half the CPU of copying through the log, page by page. A checkpoint is nothing here.
        self._execute(server, f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy')
        return server.dsn.rpartition("/")[0] + "/" + name

    def _execute(self, server: PostgresServer, statement: str) -> None:
        async def work() -> None:
            if server.dsn not in self.connections or self.connections[server.dsn].is_closed():
                self.connections[server.dsn] = await asyncpg.connect(server.dsn, timeout=10)
            await self.connections[server.dsn].execute(statement)

        run(work)


def remove_data(root: Path) -> None:
    """Delete data folders, also the clusters of those that their server's user could not enter."""
    for link in root.rglob("postgres"):
        if link.is_symlink():
            shutil.rmtree(link.readlink().parent)
    shutil.rmtree(root)


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end from synchronous code, whether or not this thread has an event loop."""
    return asyncio.run_coroutine_threadsafe(work(), _loop()).result()


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """The loop of a thread that ends with the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="around tests", daemon=True).start()
    return loop


def execute(dsn: str, statement: str) -> None:
    """Run one statement on a connection of its own."""

    async def work() -> None:
        connection = await asyncpg.connect(dsn, timeout=10)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    run(work)


def redis_command(server: RedisServer, command: str) -> bytes:
    """The reply to one inline command, up to its first line's end, on a connection of its own."""
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        password = urlsplit(server.url).password
        connection.sendall(f"AUTH {password}\r\n{command}\r\n".encode())
        reply = b""
        while reply.count(b"\r\n") < 2 and (more := connection.recv(65536)):
            reply += more
    return reply.split(b"\r\n")[1]
