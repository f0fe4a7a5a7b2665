"""What was true at the start and is not any more."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from tests.support.gateway import Setup, running


async def test_a_server_that_forgets_commits_from_now_on_makes_it_not_ready(setup: Setup, tmp_path: Path) -> None:
    """As a failover to a server that is set otherwise does: with it, the operation would run again after that server's next crash."""
    database = urlsplit(setup.postgres).path.removeprefix("/")
    async with running(setup, tmp_path) as gateway:
        connection = await asyncpg.connect(setup.postgres)
        try:
            await connection.execute(f'ALTER DATABASE "{database}" SET synchronous_commit = off')
            others = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}' AND pid <> pg_backend_pid()"
            await connection.execute(others)
            async with asyncio.timeout(20):
                while "synchronous_commit_off" not in (told := await gateway.get("/readyz"))[1].decode():
                    await asyncio.sleep(0.1)
            assert told[0] == 503
            (line,) = await gateway.logged(lambda line: "synchronous_commit_off" in line["msg"])
            assert line["level"] == "error"
        finally:
            await connection.close()
