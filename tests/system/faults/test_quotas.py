"""Quotas of several gateways together: exact over all of them, and bounded while Redis is away."""

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tests.support.client import Client, payment
from tests.support.faults import fault_proxy
from tests.support.gateway import ROUTES, Setup, running
from tests.support.upstream import CountingUpstream

RATE, BURST = 3, 12
QUOTA = f"quota: {{new_keys: {{rate: {RATE}/s, burst: {BURST}}}}}"
_numbers = count(1)


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
    routes = ROUTES.replace("{principal: [{header: Authorization}]}", f"{{principal: [{{header: Authorization}}], {QUOTA}}}")
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
