"""Quotas of several gateways together: exact over all of them, and bounded while Redis is away."""

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import asyncpg
from redis.asyncio import Redis

from tests.support.client import Client, ask, payment
from tests.support.faults import fault_proxy
from tests.support.gateway import ROUTES, Setup, running
from tests.support.upstream import CountingUpstream, Exchange

RATE, BURST = 3, 12
QUOTA = f"quota: {{new_keys: {{rate: {RATE}/s, burst: {BURST}}}}}"
_numbers = count(1)


def with_quota(quota: str) -> str:
    return ROUTES.replace("{principal: [{header: Authorization}]}", f"{{principal: [{{header: Authorization}}], {quota}}}")


@dataclass(slots=True)
class Drive:
    """What one caller got that asked all the time, each time with a new key."""

    let_in: int = 0
    refused: int = 0
    begun: float = field(default_factory=time.monotonic)
    seconds: float = 0.0


async def drive(ports: list[int], seconds: float) -> Drive:
    """Two clients at each gateway, until some were refused. A replay in between never is."""
    drive = Drive()
    until = drive.begun + seconds

    async def client(port: int) -> None:
        known: bytes | None = None
        async with await Client.connect(port) as client:
            while time.monotonic() < until or drive.refused < 8:
                key = b"new-%d" % next(_numbers)
                answer = await client.request(payment(key))
                drive.let_in += answer.status == 201
                drive.refused += answer.problem == "quota-exceeded"
                assert (answer.status == 201) != (answer.problem == "quota-exceeded")
                known = key if answer.status == 201 else known
                if known is not None:
                    replay = await client.request(payment(known))
                    assert (replay.status, replay.field("idempotent-replayed")) == (201, b"true")

    await asyncio.gather(*map(client, [*ports, *ports]))
    drive.seconds = time.monotonic() - drive.begun
    return drive


async def test_gateways_count_together_and_alone_while_redis_is_away(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """No more than one burst and what is earned, over both; without Redis from each. What was refused has not run."""
    host, _, port = setup.redis.rpartition("@")[2].partition("/")[0].partition(":")
    routes = with_quota(QUOTA)
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(fault_proxy(host, int(port)))
        through = setup.redis.replace(f":{port}/", f":{redis.port}/")
        faulty = Setup(setup.postgres, setup.upstream_port, through, routes, redis_timeout="10s")  # not away as the machine is busy
        gateways = [await stack.enter_async_context(running(faulty, tmp_path, name)) for name in ("one", "other")]
        ports = [gateway.port for gateway in gateways]
        found = await drive(ports, 1.5)
        allowed = BURST + RATE * found.seconds
        assert BURST <= found.let_in <= allowed + 1
        assert upstream.serial == found.let_in
        await redis.refuse()
        alone = await drive(ports, 0.7)
        assert alone.let_in <= 2 * (BURST + RATE * alone.seconds) + 2
        assert upstream.serial == found.let_in + alone.let_in


async def test_a_retry_of_which_only_postgres_knows_is_refused_by_no_quota(
    setup: Setup, upstream: CountingUpstream, tmp_path: Path
) -> None:
    """With Postgres away a 429 would say that nothing has run: the answer is 503, and the answer itself once Postgres is back."""
    host, _, port = setup.postgres.rpartition("@")[2].partition("/")[0].partition(":")
    routes = ROUTES.replace(
        "{principal: [{header: Authorization}]}", "{principal: [{header: Authorization}], quota: {new_keys: {rate: 1/d}}}"
    )
    async with fault_proxy(host, int(port)) as postgres:
        through = setup.postgres.replace(f":{port}/", f":{postgres.port}/")
        faulty = Setup(through, setup.upstream_port, setup.redis, routes, more="memory: {replay_cache_ttl: 0s}", redis_timeout="10s")
        async with running(faulty, tmp_path) as gateway, Redis.from_url(setup.redis) as redis:
            known = await ask(gateway.port, payment(b"known"))
            assert (await ask(gateway.port, payment(b"known"))).body == known.body
            entries = [key async for key in redis.scan_iter("idem:{*") if not key.startswith(b"idem:{q:")]
            assert await redis.delete(*entries) == 1
            await postgres.refuse()
            answer = await ask(gateway.port, payment(b"known"))
            assert (answer.status, answer.problem) == (503, "store-unavailable")
            await postgres.heal()
            async with asyncio.timeout(20):
                while (answer := await ask(gateway.port, payment(b"known"))).status == 503:
                    await asyncio.sleep(0.1)
            assert (answer.status, answer.body) == (201, known.body)
            assert (await ask(gateway.port, payment(b"new"))).problem == "quota-exceeded"
    assert upstream.serial == 1


async def test_a_claim_that_postgres_has_lost_needs_no_second_place(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """A failover takes back the claim of a retry that executes: it is made again, whatever the limit, and no place is left behind."""
    statuses, come, go = [429, 201, 201], asyncio.Event(), asyncio.Event()

    async def behave(exchange: Exchange) -> None:
        status = statuses.pop(0)
        if len(statuses) == 1:
            come.set()
            await go.wait()
        exchange.execute()
        await exchange.answer(status)

    upstream.behave = behave
    first_byte = "{connect: 1s, first_byte: 20s, read_idle: 1s, total: 20s}"
    limited = replace(setup, routes=with_quota("quota: {in_flight: 1}"), timeouts=first_byte, max_execution="20s")
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(running(limited, tmp_path))
        connection = await asyncpg.connect(setup.postgres)
        stack.push_async_callback(connection.close)
        assert (await ask(gateway.port, payment(b"k1"))).status == 429
        await connection.execute("CREATE TEMPORARY TABLE before AS SELECT * FROM gateway_records")
        retry = asyncio.create_task(ask(gateway.port, payment(b"k1")))
        await come.wait()
        async with connection.transaction():
            await connection.execute("DELETE FROM gateway_records")
            await connection.execute("INSERT INTO gateway_records SELECT * FROM before")
        go.set()
        answer = await retry
        assert answer.status == 201
        again = await ask(gateway.port, payment(b"k1"))
        assert (again.body, again.field("idempotent-replayed")) == (answer.body, b"true")
        await asyncio.sleep(2.5)  # as long as a place lasts that nobody holds
        assert (await ask(gateway.port, payment(b"k2"))).status == 201
    assert upstream.runs_of(b"k1") == 2  # it counts the 429, too
