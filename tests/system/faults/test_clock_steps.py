"""A real Postgres whose clock is set by a day while a real gateway is at work on it."""

import asyncio
from dataclasses import replace
from pathlib import Path

from tests.support.client import ask, payment
from tests.support.clocks import stepping_postgres
from tests.support.gateway import Setup, running
from tests.support.services import Services
from tests.support.upstream import CountingUpstream, Exchange

DAY = 90_000.0


async def test_a_day_more_on_the_databases_clock_runs_nothing_twice(
    services: Services, setup: Setup, upstream: CountingUpstream, tmp_path: Path
) -> None:
    """An answer of before is replayed, an attempt that runs is still under way, and both are so when the step has been noticed."""
    gate = asyncio.Event()

    async def hold(exchange: Exchange) -> None:
        exchange.execute()
        await gate.wait()
        await exchange.answer()

    with stepping_postgres(services.root) as postgres:
        over = replace(setup, postgres=services.migrated_database(postgres.server), redis="", defaults="{lease: 30s, retention: 24h}")
        async with running(
            replace(over, timeouts="{first_byte: 60s, total: 90s}", max_execution="2m", drain="{delay: 0s, timeout: 120s}"), tmp_path
        ) as gateway:
            first = await ask(gateway.port, payment(b"done"))
            upstream.executed.clear()
            upstream.behave = hold
            running_one = asyncio.ensure_future(ask(gateway.port, payment(b"runs")))
            await upstream.executed.wait()
            postgres.step(DAY)
            for noticed in (False, True):
                if noticed:
                    await gateway.counted(1, "idempotency_clock_steps_total", direction="forward")
                again = await ask(gateway.port, payment(b"done"))
                assert (again.status, again.body, again.field("idempotent-replayed")) == (first.status, first.body, b"true")
                busy = await ask(gateway.port, payment(b"runs"))
                assert (busy.status, busy.problem) == (409, "request-in-progress")
            gate.set()
            assert (await running_one).status == 201
            assert (await ask(gateway.port, payment(b"runs"))).status == 201
            assert await gateway.metric("idempotency_clock_suspended") == 2
    assert [upstream.runs_of(key) for key in (b"done", b"runs")] == [1, 1]
