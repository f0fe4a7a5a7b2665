"""A synchronous standby that stalls, and the failover that follows: nothing runs twice for a commit that only the dead primary knew."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.embedded import PostgresServer, start_postgres
from tests.support.client import Answer, ask, payment
from tests.support.gateway import Setup, running
from tests.support.services import Services
from tests.support.standby import Pair, synchronous_pair
from tests.support.upstream import CountingUpstream

KEYS = [b"key-%d" % number for number in range(12)]


@pytest.fixture
def primary(data_folder: Path) -> Iterator[PostgresServer]:
    """A server of the test's own, which it may kill."""
    server = start_postgres(data_folder / "primary")
    yield server
    server.stop()


async def _asked(port: int) -> "list[asyncio.Task[Answer]]":
    return [asyncio.create_task(ask(port, payment(key))) for key in KEYS]


async def _until_executed(port: int, key: bytes) -> None:
    async with asyncio.timeout(30):
        while (answer := await ask(port, payment(key))).status != 201:
            assert answer.problem in {"store-unavailable", "request-in-progress"}, answer
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("death", ["before the gateway's timeout", "after it", "after an operator has cancelled what waits"])
async def test_a_commit_that_a_failover_takes_back_is_not_executed_upon(
    death: str, services: Services, primary: PostgresServer, upstream: CountingUpstream, tmp_path: Path, data_folder: Path
) -> None:
    """The standby stalls, requests come, the primary dies, the standby takes over: no key runs twice."""
    database = await asyncio.to_thread(services.migrated_database, primary)
    async with synchronous_pair(primary, database, data_folder / "standby") as pair:
        setup = Setup(pair.dsn, upstream.port, postgres_timeout="10s" if death.startswith("before") else "1s")
        async with running(replace(setup, drain="{delay: 0s, timeout: 61s}"), tmp_path) as gateway:
            await pair.stall()
            asked = await _asked(gateway.port)
            await _meanwhile(death, pair, asked)
            await pair.fail_over()
            await asyncio.gather(*asked, return_exceptions=True)
            await asyncio.gather(*[_until_executed(gateway.port, key) for key in KEYS])
            assert {upstream.runs_of(key) for key in KEYS} == {1}


async def _meanwhile(death: str, pair: Pair, asked: "list[asyncio.Task[Answer]]") -> None:
    await pair.until_waiting()
    if death.startswith("before"):
        return
    while death.startswith("after an operator") and not all(task.done() for task in asked):
        await pair.cancel()
        await asyncio.sleep(0.02)
    await asyncio.wait(asked)
