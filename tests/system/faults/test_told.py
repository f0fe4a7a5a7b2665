"""What a client was told stays true when it comes back through another gateway."""

import asyncio
from dataclasses import replace
from pathlib import Path

from tests.support.client import ask, payment
from tests.support.faults import fault_proxy
from tests.support.gateway import Setup, running
from tests.support.upstream import CountingUpstream, Exchange
from tests.system.faults.test_stores_away import port_of, through


async def test_a_retry_elsewhere_is_told_the_same_while_redis_has_not_followed(
    setup: Setup, upstream: CountingUpstream, tmp_path: Path
) -> None:
    """The clients of one gateway have their answers, its writes to Redis are still on their way, so that its leases are there: another
    gateway replays after the 201, and after `outcome-unknown` says the same, not that a request is in progress.
    """
    both, waiting = asyncio.Event(), []
    async with fault_proxy("127.0.0.1", port_of(setup.redis)) as redis:

        async def behave(exchange: Exchange) -> None:
            exchange.execute()
            waiting.append(exchange)
            if len(waiting) == 2:
                redis.stall()
                both.set()
            await both.wait()
            if exchange.seen.value("idempotency-key") == b"doubt":
                exchange.hang_up()
            else:
                await exchange.answer()

        upstream.behave = behave
        far = replace(setup, redis=through(setup.redis, redis))
        async with running(far, tmp_path, "one") as one, running(setup, tmp_path, "two") as two:
            done, doubt = await asyncio.gather(*(ask(one.port, payment(key)) for key in (b"done", b"doubt")))
            assert (done.status, doubt.status, doubt.problem) == (201, 502, "outcome-unknown")
            again = await ask(two.port, payment(b"done"))
            assert (again.status, again.body) == (201, done.body)
            again = await ask(two.port, payment(b"doubt"))
            assert (again.status, again.problem) == (409, "outcome-unknown")
