"""A synchronous standby that stalls, and the failover that follows: nothing runs twice for a commit that only the dead primary knew."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.devtools.embedded import PostgresServer, start_postgres
from tests.support.client import Answer, ask, payment
from tests.support.gateway import Setup, running
from tests.support.services import Services
from tests.support.standby import synchronous_pair
from tests.support.upstream import CountingUpstream

CANCELLED, GIVEN_UP, CUT_OFF = ([b"%b-%d" % (word, number) for number in range(12)] for word in (b"cancelled", b"given-up", b"cut-off"))


@pytest.fixture
def primary(data_folder: Path) -> Iterator[PostgresServer]:
    """A server of the test's own, which it may kill."""
    server = start_postgres(data_folder / "primary")
    yield server
    server.stop()


async def test_a_commit_that_a_failover_takes_back_is_not_executed_upon(
    services: Services, primary: PostgresServer, upstream: CountingUpstream, tmp_path: Path, data_folder: Path
) -> None:
    """The standby stalls, requests come, the primary dies, the standby takes over: no key runs twice. Not one whose commit an operator has
    cancelled, not one that the gateway has given up, not one whose primary dies before that.
    """
    database = await asyncio.to_thread(services.migrated_database, primary)
    async with synchronous_pair(primary, database, data_folder / "standby") as pair:
        setup = Setup(pair.dsn, upstream.port, postgres_timeout="1s", drain="{delay: 0s, timeout: 61s}")
        async with running(setup, tmp_path) as gateway:
            await pair.stall()
            cancelled = _ask(gateway.port, CANCELLED)
            while not all(task.done() for task in cancelled):
                await pair.cancel()
            await asyncio.wait(_ask(gateway.port, GIVEN_UP))
            before = len(await pair.waiting())
            cut_off = _ask(gateway.port, CUT_OFF)
            while len(await pair.waiting()) <= before and not all(task.done() for task in cut_off):
                await asyncio.sleep(0.01)
            await pair.fail_over()
            await asyncio.wait(cut_off)
            await asyncio.gather(*[_until_executed(gateway.port, key) for key in (*CANCELLED, *GIVEN_UP, *CUT_OFF)])
            twice = [key for key in (*CANCELLED, *GIVEN_UP, *CUT_OFF) if upstream.runs_of(key) != 1]
            assert twice == []


def _ask(port: int, keys: list[bytes]) -> "list[asyncio.Task[Answer]]":
    return [asyncio.create_task(ask(port, payment(key))) for key in keys]


async def _until_executed(port: int, key: bytes) -> None:
    async with asyncio.timeout(60):
        while (answer := await ask(port, payment(key))).status != 201:
            assert answer.problem in {"store-unavailable", "request-in-progress"}, answer
            await asyncio.sleep(0.1)
