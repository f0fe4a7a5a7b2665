"""Accepted work while its processes are killed, Postgres is restarted and Redis is flushed: each operation runs once, and all end.

`ACCEPTED_REQUESTS=1000` runs as many.
"""

import asyncio
import json
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs

import asyncpg
import pytest

from gateway.devtools.embedded import PostgresServer, RedisServer, start_postgres, start_redis
from gateway.store.migrate import migrate
from tests.support.client import Answer, ask, payment
from tests.support.gateway import Gateway, Setup, running
from tests.support.services import new_root, redis_command, remove_data
from tests.support.upstream import CountingUpstream, Exchange
from tests.system.accepted.asking import look, told
from tests.system.torture.fleet import RECONCILE

REQUESTS = int(os.environ.get("ACCEPTED_REQUESTS", "200"))

ROUTES = f"""
  - id: pay
    methods: [POST]
    path: /v1/pay
    upstream: payments
    idempotency:
      principal: [{{header: X-Caller}}]
      execution: async
      concurrency: 4
      forward_key: derived
{RECONCILE}"""


class Ledger:
    """What the upstream has run, by the key that it sees."""

    def __init__(self, upstream: CountingUpstream) -> None:
        self.runs: Counter[str] = Counter()
        self._dice = random.Random(7)
        upstream.behave = self._behave

    async def _behave(self, exchange: Exchange) -> None:
        path, _, query = exchange.seen.target.decode().partition("?")
        if path == "/v1/runs":
            key = parse_qs(query)["key"][0]
            await exchange.answer(200, json.dumps({"runs": [{"id": key}] * self.runs[key]}).encode())
            return
        key = (exchange.seen.value("idempotency-key") or b"").decode().strip('"')
        await asyncio.sleep(self._dice.uniform(0.0, 0.1))
        self.runs[key] += 1
        await exchange.answer(201, json.dumps({"id": key}).encode())


@pytest.fixture
async def servers() -> AsyncIterator[tuple[Path, PostgresServer, RedisServer]]:
    """Servers of the test's own, since it restarts them."""
    folder = new_root()
    postgres = await asyncio.to_thread(start_postgres, folder / "postgres")
    redis = await asyncio.to_thread(start_redis, folder / "redis")
    await migrate(postgres.dsn)
    yield folder, postgres, redis
    await asyncio.to_thread(redis.stop)
    remove_data(folder)


def children(pid: int) -> list[int]:
    """The workers of a supervisor."""
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


class Client:
    """Asks for one operation until it is accepted, then looks until it has ended, as the answers say."""

    def __init__(self, number: int, gateways: list[Gateway]) -> None:
        self._key = b"key-%d" % number
        self._caller = b"X-Caller: caller-%d" % (number % 7)
        self._gateways = gateways
        self._dice = random.Random(number)

    async def run(self) -> Answer:
        at: bytes | None = None
        while True:
            with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                port = self._dice.choice(self._gateways).port
                if at is None:
                    answer = await ask(port, payment(self._key, principal=None, more=(self._caller,)), timeout=10.0)
                    if answer.status == 202:
                        at = answer.field("location")
                    elif answer.status == 201:
                        return answer
                else:
                    answer = await look(port, at + b"?wait=2", None, more=(self._caller,))
                    document = told(answer)
                    if answer.status == 200 and document["status"] == "completed":
                        response = await look(port, at + b"/response", None, more=(self._caller,))
                        if response.status != 503:
                            return response
                    elif document.get("status") == "failed_retryable":  # whoever was told of the promise died with it: ask again
                        at = None
            await asyncio.sleep(self._dice.uniform(0.05, 0.3))


async def break_things(folder: Path, gateways: list[Gateway], postgres: PostgresServer, redis: RedisServer) -> PostgresServer:
    """About a kill a second, two restarts of Postgres, a flush of Redis in between."""
    dice = random.Random(20261128)
    for second in range(9):
        await asyncio.sleep(dice.uniform(0.5, 1.0))
        if second in {2, 6}:
            await asyncio.to_thread(postgres.kill)
            postgres = await asyncio.to_thread(start_postgres, folder / "postgres", port=postgres.port)
        elif second == 4:
            await asyncio.to_thread(redis_command, redis, "FLUSHALL")
        elif workers := children(dice.choice(gateways).pid):
            with suppress(ProcessLookupError):
                os.kill(dice.choice(workers), signal.SIGKILL)
    return postgres


@pytest.mark.timeout(300)
async def test_each_runs_once_and_every_client_reaches_an_answer(
    servers: tuple[Path, PostgresServer, RedisServer], upstream: CountingUpstream, tmp_path: Path
) -> None:
    """Two gateways of two workers. What a kill leaves in doubt is found out; nothing is left pending."""
    folder, postgres, redis = servers
    ledger = Ledger(upstream)
    setup = Setup(
        postgres.dsn,
        upstream.port,
        redis.url,
        ROUTES,
        "{lease: 2s}",
        "{connect: 1s, first_byte: 2s, read_idle: 1s, total: 3s}",
        more="encryption_key: a-key-of-the-tests-0123456789-0123456789\nworkers: 2",
        max_execution="4s",
    )
    dsn = postgres.dsn
    try:
        async with running(setup, tmp_path, "one") as one, running(replace(setup), tmp_path, "two") as two:
            gateways = [one, two]
            breaking = asyncio.create_task(break_things(folder, gateways, postgres, redis))
            waves = [asyncio.create_task(_later(Client(number, gateways), number / REQUESTS * 7.0)) for number in range(REQUESTS)]
            async with asyncio.timeout(200):
                answers = await asyncio.gather(*waves)
                postgres = await breaking
            assert Counter(answer.status for answer in answers) == {201: REQUESTS}
            assert len({answer.body for answer in answers}) == REQUESTS
            assert Counter(ledger.runs.values()) == {1: REQUESTS}
            connection = await asyncpg.connect(dsn)
            try:
                states = await connection.fetch("SELECT status, count(*) FROM gateway_records GROUP BY status")
                assert {row["status"]: row["count"] for row in states} == {"completed": REQUESTS}
            finally:
                await connection.close()
    finally:
        await asyncio.to_thread(postgres.stop)


async def _later(client: Client, seconds: float) -> Answer:
    await asyncio.sleep(seconds)
    return await client.run()
