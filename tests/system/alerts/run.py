"""Real faults under a little traffic, and what the alerts say of them."""

import asyncio
import contextlib
import itertools
import json
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.devtools.embedded import PostgresServer, RedisServer, start_postgres, start_redis
from gateway.store.migrate import migrate
from tests.support.client import ask, payment
from tests.support.gateway import Gateway, Setup, running
from tests.support.services import SMALL, new_root, remove_data
from tests.support.upstream import CountingUpstream, Exchange
from tests.system.alerts.prometheus import Prometheus, watching

PAUSE = 0.05
"""Seconds between two requests of the traffic."""

PATIENCE = 120.0
"""Seconds within which an alert must fire, and clear."""

HEAD = """\
| fault | alert | fired after | cleared after the fault | others that fired |
| --- | --- | --- | --- | --- |"""


@dataclass(slots=True)
class Stage:
    """A gateway, all that it needs, and the Prometheus that watches it."""

    root: Path
    postgres: PostgresServer
    redis: RedisServer
    upstream: CountingUpstream
    gateway: Gateway
    prometheus: Prometheus

    def end(self) -> None:
        """Those servers that run now."""
        self.redis.stop()
        self.postgres.stop()


@dataclass(frozen=True, slots=True)
class Fault:
    """`begin` and `end` are what is done to the stage."""

    name: str
    alert: str
    begin: Callable[[Stage], Awaitable[None]]
    end: Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds from the fault to the alert, and from the fault's end to that of the alert; None: it did not come to that."""

    fault: Fault
    fired: float | None
    cleared: float | None
    others: frozenset[str]

    def line(self) -> str:
        fired, cleared = ("never" if seconds is None else f"{seconds:.1f} s" for seconds in (self.fired, self.cleared))
        others = ", ".join(f"`{name}`" for name in sorted(self.others)) or "none"
        return f"| {self.fault.name} | `{self.fault.alert}` | {fired} | {cleared} | {others} |"


async def kill_redis(stage: Stage) -> None:
    await asyncio.to_thread(stage.redis.kill)


async def start_redis_again(stage: Stage) -> None:
    stage.redis = await asyncio.to_thread(lambda: start_redis(stage.root / "redis", port=stage.redis.port))


async def stop_postgres(stage: Stage) -> None:
    await asyncio.to_thread(stage.postgres.stop)


async def start_postgres_again(stage: Stage) -> None:
    stage.postgres = await asyncio.to_thread(lambda: start_postgres(stage.root / "postgres", port=stage.postgres.port, settings=SMALL))


async def stop_upstream(stage: Stage) -> None:
    await stage.upstream.stop()


async def start_upstream(stage: Stage) -> None:
    await stage.upstream.start()


async def freeze_gateway(stage: Stage) -> None:
    stage.gateway.freeze()


async def thaw_gateway(stage: Stage) -> None:
    stage.gateway.thaw()


async def lose_an_answer(stage: Stage) -> None:
    """The upstream executes and hangs up; nothing can be asked, so the record waits for a person."""

    async def behave(exchange: Exchange) -> None:
        exchange.execute()
        exchange.hang_up()

    usual, stage.upstream.behave = stage.upstream.behave, behave
    await ask(stage.gateway.port, payment(f"lost-{time.monotonic_ns()}".encode()))
    stage.upstream.behave = usual


async def resolve_all(stage: Stage) -> None:
    """The person."""

    def resolve() -> None:
        base = f"http://127.0.0.1:{stage.gateway.admin}/admin/v1"
        with urllib.request.urlopen(f"{base}/dead-letters", timeout=10) as answer:
            found = json.load(answer)["records"]
        verdict = {"verdict": "executed", "status": 201, "actor": "drill", "reason": "a drill"}
        for one in found:
            told = urllib.request.Request(f"{base}/records/{one['id']}/resolve", json.dumps(verdict).encode())
            told.add_header("Content-Type", "application/json")
            urllib.request.urlopen(told, timeout=10).close()

    await asyncio.to_thread(resolve)


FAULTS = (
    Fault("Redis is killed", "IdempotencyRedisAway", kill_redis, start_redis_again),
    Fault("Postgres is stopped", "IdempotencyStoreUnavailable", stop_postgres, start_postgres_again),
    Fault("the upstream is down", "IdempotencyUpstreamTargetDown", stop_upstream, start_upstream),
    Fault("an answer is lost; a person resolves it", "IdempotencyDeadLetters", lose_an_answer, resolve_all),
    Fault("the gateway stands still", "IdempotencyGatewayDown", freeze_gateway, thaw_gateway),
)


@contextlib.asynccontextmanager
async def stage(factor: float) -> AsyncIterator[Stage]:
    """All of it, under traffic."""
    root = new_root()
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(remove_data, root)
        postgres = await asyncio.to_thread(lambda: start_postgres(root / "postgres", settings=SMALL))
        redis = await asyncio.to_thread(lambda: start_redis(root / "redis"))
        await migrate(postgres.dsn)
        upstream = CountingUpstream()
        await upstream.start()
        stack.push_async_callback(upstream.stop)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        setup = Setup(postgres.dsn, upstream.port, redis.url, defaults="{lease: 30s}")
        gateway = await stack.enter_async_context(running(setup, folder))
        prometheus = await stack.enter_async_context(watching(gateway.admin, folder, factor))
        staged = Stage(root, postgres, redis, upstream, gateway, prometheus)
        stack.callback(staged.end)
        traffic = asyncio.create_task(_traffic(gateway.port))
        stack.callback(traffic.cancel)
        yield staged


async def _traffic(port: int) -> None:
    """Payments, each under a key of its own, whatever becomes of them; some are under way while the gateway stands."""
    under_way: set[asyncio.Task[object]] = set()
    for number in itertools.count():
        task: asyncio.Task[object] = asyncio.create_task(_pay(port, number))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        await asyncio.sleep(PAUSE)


async def _pay(port: int, number: int) -> None:
    with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        await ask(port, payment(f"drill-{number}".encode()))


async def drill(staged: Stage, fault: Fault) -> Row:
    """The fault, until its alert fires; its end, until nothing fires any more, nor is about to."""
    others: set[str] = set()
    begun = time.monotonic()
    await fault.begin(staged)
    fired = await _until(staged, lambda alerts: alerts.get(fault.alert, False), begun, others)
    ended = time.monotonic()
    await fault.end(staged)
    cleared = await _until(staged, lambda alerts: not alerts.get(fault.alert, False), ended, others)
    await _until(staged, lambda alerts: not alerts, time.monotonic(), others)
    return Row(fault, fired, None if fired is None else cleared, frozenset(others - {fault.alert}))


async def quiet(staged: Stage, seconds: float) -> frozenset[str]:
    """What fires, some time after the start, with no fault: nothing should."""
    await asyncio.sleep(seconds)
    return _firing(await staged.prometheus.alerts())


def _firing(alerts: Mapping[str, bool]) -> frozenset[str]:
    return frozenset(name for name, fires in alerts.items() if fires)


async def _until(staged: Stage, wanted: Callable[[Mapping[str, bool]], bool], since: float, seen: set[str]) -> float | None:
    """Seconds from `since` until the alerts that fire are as wanted; None if that takes too long. `seen` gets all that fired."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while True:
                alerts = await staged.prometheus.alerts()
                seen |= _firing(alerts)
                if wanted(alerts):
                    return time.monotonic() - since
                await asyncio.sleep(0.2)
    return None
