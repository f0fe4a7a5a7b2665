"""Two Postgres servers, of which one is the primary and the other its synchronous standby, and what befalls them."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from gateway.devtools.embedded import PostgresServer, start_postgres
from gateway.devtools.embedded.ports import free_port
from gateway.devtools.embedded.postgres import children
from tests.support.services import SMALL
from tests.support.standby import copy_of


@dataclass(slots=True)
class Node:
    """One of the two. Its port stays the same; its data folder is another one each time it is made anew."""

    port: int
    folder: Path
    server: PostgresServer

    def pids(self) -> list[int]:
        return [self.server.pid, *children(self.server.pid)]

    def freeze(self) -> None:
        """Every process stands still: nothing is refused, and nothing answers."""
        for pid in self.pids():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in self.pids():
            os.kill(pid, signal.SIGCONT)

    async def kill(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def end(self, how: signal.Signals) -> None:
        """As `pg_ctl stop` does: SIGINT is fast, SIGQUIT immediate."""
        os.kill(self.server.pid, how)
        await asyncio.to_thread(self.server.child.process.wait, 30)
        await self.kill()  # gives the folder back

    async def start(self) -> None:
        """Again, with the data that it has."""
        self.server = await asyncio.to_thread(start_postgres, self.folder, port=self.port, settings=SMALL)

    async def execute(self, *statements: str) -> None:
        connection = await asyncpg.connect(self.server.dsn, timeout=20)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()


@dataclass(slots=True)
class Cluster:
    """`primary` takes writes, which wait for `standby`."""

    root: Path
    primary: Node
    standby: Node
    made: int = field(default=2)

    @property
    def dsn(self) -> str:
        """Of both, as a gateway is told it."""
        login = self.primary.server.dsn.rpartition("@")[0]
        ports = sorted((self.primary.port, self.standby.port))
        return f"{login}@{','.join(f'127.0.0.1:{port}' for port in ports)}/postgres"

    async def promote(self) -> None:
        """The standby takes the primary's place, whatever has become of that. It waits for no standby, as there is none."""
        await self.standby.execute("SELECT pg_promote(true, 60)")
        self.primary, self.standby = self.standby, self.primary

    async def rebuild(self) -> None:
        """A new standby, from a copy of the primary, on the port of the former one, which has ended."""
        shutil.rmtree(self.standby.folder / "postgres", ignore_errors=True)
        self.made += 1
        self.standby = await _standby(self.primary, self.standby.port, self.root / f"node-{self.made}")
        await self.wait_for_standby()

    async def wait_for_standby(self) -> None:
        """From now on commits wait for the standby, which is there."""
        await self.primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        connection = await asyncpg.connect(self.primary.server.dsn, timeout=20)
        try:
            async with asyncio.timeout(60):
                while await connection.fetchval("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") != 1:
                    await asyncio.sleep(0.05)
        finally:
            await connection.close()

    async def stop(self) -> None:
        for node in (self.primary, self.standby):
            await node.kill()


async def _standby(primary: Node, port: int, folder: Path) -> Node:
    await asyncio.to_thread(copy_of, primary.server, primary.port, folder)
    server = await asyncio.to_thread(start_postgres, folder, port=port, settings=SMALL)
    node = Node(port, folder, server)
    # It waits for nobody once it is promoted: the copy has the primary's setting.
    await node.execute("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
    return node


@asynccontextmanager
async def cluster(root: Path) -> AsyncIterator[Cluster]:
    """Both are up, in folders under `root`, which every user can enter; none is left at the end."""
    folder = root / "node-1"
    first = await asyncio.to_thread(start_postgres, folder, settings=SMALL)
    primary = Node(first.port, folder, first)
    made: Cluster | None = None
    try:
        standby = await _standby(primary, free_port(), root / "node-2")
        made = Cluster(root, primary, standby)
        await made.wait_for_standby()
        yield made
    finally:
        if made is None:
            await primary.kill()
        else:
            await made.stop()
