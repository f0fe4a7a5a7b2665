"""Postgres and Redis that refuse, stall, lose replies and come back."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support.client import ask, payment
from tests.support.faults import FaultProxy, fault_proxy
from tests.support.gateway import Gateway, Setup, running
from tests.support.upstream import CountingUpstream, Exchange


@dataclass(frozen=True, slots=True)
class Bench:
    """A gateway whose stores are behind fault proxies."""

    gateway: Gateway
    postgres: FaultProxy
    redis: FaultProxy


def through(url: str, proxy: FaultProxy) -> str:
    head, _, tail = url.rpartition("@")
    return f"{head}@127.0.0.1:{proxy.port}/{tail.partition('/')[2]}"


def port_of(url: str) -> int:
    return int(url.rpartition("@")[2].partition("/")[0].partition(":")[2])


@pytest.fixture
async def bench(setup: Setup, tmp_path: Path) -> AsyncIterator[Bench]:
    """Both stores behind proxies, Postgres with a timeout of 1 s."""
    async with fault_proxy("127.0.0.1", port_of(setup.postgres)) as postgres, fault_proxy("127.0.0.1", port_of(setup.redis)) as redis:
        faulty = replace(setup, postgres=through(setup.postgres, postgres), redis=through(setup.redis, redis), postgres_timeout="1s")
        async with running(faulty, tmp_path) as gateway:
            yield Bench(gateway, postgres, redis)


@pytest.mark.parametrize("fault", ["refuse", "stall"])
async def test_postgres_away_is_a_bounded_503(bench: Bench, upstream: CountingUpstream, fault: str) -> None:
    """Nothing is sent upstream, the answer says when to come back, replays that Redis holds still go out, unguarded routes work on."""
    port = bench.gateway.port
    known = await ask(port, payment(b"known"))
    await ask(port, payment(b"known"))
    await (bench.postgres.refuse() if fault == "refuse" else _stall(bench.postgres))
    for number in range(3):
        started = time.monotonic()
        answer = await ask(port, payment(b"new-%d" % number))
        assert time.monotonic() - started < 6
        assert (answer.status, answer.problem, answer.field("retry-after")) == (503, "store-unavailable", b"1")
        assert upstream.runs_of(b"new-%d" % number) == 0
    replayed = await ask(port, payment(b"known"))
    assert (replayed.status, replayed.body) == (201, known.body)
    assert (await ask(port, payment(None, target=b"/other", principal=None))).status == 201
    await bench.postgres.heal()
    async with asyncio.timeout(20):
        while (healed := await ask(port, payment(b"new-0"))).status != 201:
            assert healed.status in {409, 503}, healed
            await asyncio.sleep(0.2)
    assert upstream.runs_of(b"new-0") == 1


async def _stall(proxy: FaultProxy) -> None:
    proxy.stall()


@pytest.mark.parametrize("fault", ["refuse", "stall"])
async def test_redis_away_costs_speed_only(bench: Bench, upstream: CountingUpstream, fault: str) -> None:
    """Correct throughout; after the first timeout the outage costs no request anything: 100 requests take less than 100 timeouts."""
    port = bench.gateway.port
    first = await ask(port, payment(b"known"))
    await (bench.redis.refuse() if fault == "refuse" else _stall(bench.redis))
    await ask(port, payment(b"pays-the-timeout"))
    started = time.monotonic()
    for number in range(100):
        assert (await ask(port, payment(b"away-%d" % number))).status == 201
    assert time.monotonic() - started < 8
    assert (await ask(port, payment(b"known"))).body == first.body
    assert await bench.gateway.metric("idempotency_redis_breaker_open") == 1
    await bench.redis.heal()
    assert (await ask(port, payment(b"away-1"))).field("idempotent-replayed") == b"true"
    assert all(upstream.runs_of(b"away-%d" % number) == 1 for number in range(100))


async def test_a_reserve_whose_reply_is_lost_runs_at_most_once(bench: Bench, upstream: CountingUpstream) -> None:
    """The insert has committed, its reply is gone: the gateway looks again and goes on, or says 503 and releases the key."""
    port = bench.gateway.port
    await ask(port, payment(b"warm"))
    bench.postgres.drop_reply_to(b"lost-reserve")
    answer = await ask(port, payment(b"lost-reserve"))
    assert (answer.status, answer.problem) in {(201, None), (503, "store-unavailable")}
    assert upstream.runs_of(b"lost-reserve") == (1 if answer.status == 201 else 0)
    async with asyncio.timeout(6):
        while (again := await ask(port, payment(b"lost-reserve"))).status != 201:
            assert again.problem in {"request-in-progress", "store-unavailable"}, again
            await asyncio.sleep(0.1)
    assert upstream.runs_of(b"lost-reserve") == 1


async def test_a_settle_whose_reply_is_lost_is_repeated(bench: Bench, upstream: CountingUpstream) -> None:
    """The completion has committed, its reply is gone: it is sent again, which changes nothing, and the client gets its answer."""
    port = bench.gateway.port
    await ask(port, payment(b"warm"))

    async def arm(exchange: Exchange) -> None:
        exchange.execute()
        bench.postgres.drop_reply_to(b"lost-settle")
        await exchange.answer()

    upstream.behave = arm
    first = await ask(port, payment(b"lost-settle"))
    again = await ask(port, payment(b"lost-settle"))
    assert first.status == again.status == 201
    assert first.body == again.body
    assert upstream.runs_of(b"lost-settle") == 1


async def test_a_lost_redis_reply_is_not_taken_for_another_ones_lease(bench: Bench, upstream: CountingUpstream) -> None:
    """The set landed, its reply is gone: Postgres decides, and the key is not stuck for longer than the Redis lease."""
    port = bench.gateway.port
    await ask(port, payment(b"warm"))
    bench.redis.drop_next_reply()
    first = await ask(port, payment(b"lost-redis"))
    assert first.status == 201
    async with asyncio.timeout(8):
        while (again := await ask(port, payment(b"lost-redis"))).status != 201:
            assert again.problem == "request-in-progress"
            await asyncio.sleep(0.1)
    assert again.body == first.body
    assert upstream.runs_of(b"lost-redis") == 1


async def test_postgres_goes_away_after_the_upstream_answered(bench: Bench, upstream: CountingUpstream) -> None:
    """The waiting client gets the true answer; the settle goes on in the background, also past the lease, and lands when it can."""
    port = bench.gateway.port
    await ask(port, payment(b"warm"))

    async def cut_off(exchange: Exchange) -> None:
        exchange.execute()
        await bench.postgres.refuse()
        await exchange.answer()

    usual, upstream.behave = upstream.behave, cut_off
    first = await ask(port, payment(b"k1"))
    upstream.behave = usual
    assert first.status == 201
    unconfirmed = await bench.gateway.logged(lambda line: line.get("reason") == "commit_unconfirmed")
    assert [(line["status"], line["settlement"]) for line in unconfirmed] == [(201, None)]
    during = await ask(port, payment(b"k1"))
    assert during.problem in {"request-in-progress", "store-unavailable"}
    await asyncio.sleep(2.5)
    await bench.postgres.heal()
    async with asyncio.timeout(20):
        while (again := await ask(port, payment(b"k1"))).status != 201:
            assert again.problem in {"request-in-progress", "store-unavailable", "outcome-unknown"}, again
            await asyncio.sleep(0.2)
    assert again.body == first.body
    assert upstream.runs_of(b"k1") == 1
    told = [str(line["msg"]) for line in bench.gateway.log_lines() if str(line["msg"]).startswith("Postgres is")]
    assert told[0].startswith("Postgres is away")
    assert told[-1] == "Postgres is back"


async def test_forward_on_outage_is_a_choice_of_the_route(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """`on_store_outage: forward` passes requests on without a record while Postgres refuses, and counts them as unprotected."""
    async with fault_proxy("127.0.0.1", port_of(setup.postgres)) as postgres:
        open_route = replace(setup, postgres=through(setup.postgres, postgres), redis="", defaults="{lease: 2s, on_store_outage: forward}")
        async with running(open_route, tmp_path) as gateway:
            await postgres.refuse()
            async with asyncio.timeout(20):
                while await gateway.metric("idempotency_requests_total", route="pay", decision="unprotected") < 2:
                    assert (await ask(gateway.port, payment(b"k1"))).status in {201, 503}
    assert upstream.runs_of(b"k1") >= 2
