"""Two gateways, one key, fifty first requests at once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.devtools.embedded import RedisServer
from tests.support.client import Answer, Client, payment
from tests.support.gateway import Gateway, Setup, running
from tests.support.services import redis_command
from tests.support.upstream import CountingUpstream, Exchange

ROUNDS = 200
RACERS = 50

Clients = list[Client]


@pytest.fixture
async def brief(upstream: CountingUpstream) -> CountingUpstream:
    """Holds each request for a moment, so that duplicates meet it in flight."""

    async def behave(exchange: Exchange) -> None:
        exchange.execute()
        await asyncio.sleep(0.005)
        await exchange.answer()

    upstream.behave = behave
    return upstream


@pytest.fixture
async def pair(setup: Setup, tmp_path: Path) -> AsyncIterator[tuple[Gateway, Gateway]]:
    """Two gateways on the same Postgres and Redis."""
    async with running(setup, tmp_path, "one") as one, running(setup, tmp_path, "two") as two:
        yield one, two


@pytest.fixture
async def pair_without_redis(setup: Setup, tmp_path: Path) -> AsyncIterator[tuple[Gateway, Gateway]]:
    """Two gateways on the same Postgres alone."""
    bare = replace(setup, redis="")
    async with running(bare, tmp_path, "one") as one, running(bare, tmp_path, "two") as two:
        yield one, two


async def race(
    pair: tuple[Gateway, Gateway], upstream: CountingUpstream, meanwhile: Callable[[int], Awaitable[None]] | None = None
) -> Counter[str]:
    """All rounds; asserts what must hold in each. Returns how often each kind of answer was given."""
    clients = [await Client.connect(gateway.port) for gateway in pair for _ in range(RACERS // 2)]
    seen: Counter[str] = Counter()
    for number in range(ROUNDS):
        key = b"race-%d" % number
        requests = [asyncio.create_task(client.request(payment(key))) for client in clients]
        if meanwhile is not None:
            await meanwhile(number)
        answers = await asyncio.gather(*requests)
        assert upstream.runs_of(key) == 1
        seen.update(_judge(answers))
    for client in clients:
        client.close()
    return seen


def _judge(answers: list[Answer]) -> Counter[str]:
    """One execution's bytes for all who got an answer, the conflict for the rest, and nothing else."""
    kinds: Counter[str] = Counter()
    bodies = {answer.body for answer in answers if answer.status == 201}
    assert len(bodies) == 1
    for answer in answers:
        if answer.status == 201:
            kinds["replayed" if answer.field("idempotent-replayed") else "executed"] += 1
        else:
            assert (answer.status, answer.problem) == (409, "request-in-progress"), answer
            kinds["conflict"] += 1
    assert kinds["executed"] == 1
    return kinds


@pytest.mark.timeout(240)
async def test_one_execution_each_with_redis(pair: tuple[Gateway, Gateway], brief: CountingUpstream) -> None:
    """200 rounds of 50 simultaneous first requests: one execution each, the rest conflict or replay, no 5xx."""
    seen = await race(pair, brief)
    assert seen["executed"] == ROUNDS
    assert seen["conflict"] > ROUNDS


@pytest.mark.timeout(240)
async def test_one_execution_each_without_redis(pair_without_redis: tuple[Gateway, Gateway], brief: CountingUpstream) -> None:
    """The same with Postgres as the only arbiter."""
    seen = await race(pair_without_redis, brief)
    assert seen["executed"] == ROUNDS


@pytest.mark.timeout(240)
async def test_one_execution_each_with_redis_flushed_mid_flight(
    pair: tuple[Gateway, Gateway], brief: CountingUpstream, redis_server: RedisServer
) -> None:
    """Redis forgets everything in the middle of each round: slower, still correct."""

    async def flush(_: int) -> None:
        await asyncio.sleep(0.004)
        assert await asyncio.to_thread(redis_command, redis_server, "FLUSHALL") == b"+OK"

    seen = await race(pair, brief, flush)
    assert seen["executed"] == ROUNDS
