"""The gateways of a torture run and the stores behind them, and everything that is done to them."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gateway.devtools.embedded import PostgresServer, RedisServer, start_postgres, start_redis
from gateway.store.migrate import migrate
from tests.support.cluster import Cluster, cluster
from tests.support.faults import FaultProxy, fault_proxy
from tests.support.gateway import Gateway, Setup, running
from tests.support.services import redis_command
from tests.system.torture.story import Fault

RECONCILE = """\
      reconcile:
        probe: lookup
        request: {method: GET, path: "/v1/runs?key={key}"}
        rules:
          - when: [{pointer: /runs, not_empty: true}]
            verdict: executed
            answer: {status: 201, headers: {Content-Type: application/json}, pointer: /runs/0}
          - {when: [{pointer: /runs, empty: true}], verdict: not_executed}
        looks: 2
        apart: 300ms
        first: 300ms
        longest: 1s
        attempts: 200
        max_age: 1h
        timeout: 2s
"""
"""How outcomes are found out at an upstream that counts its runs by the key that it sees."""

ROUTES = f"""
  - id: pay
    methods: [POST]
    path: /v1/pay
    upstream: payments
    idempotency:
      principal: [{{header: X-Caller}}]
      forward_key: derived
{RECONCILE}"""


@dataclass(slots=True)
class Place:
    """One gateway: where it listens stays the same, whatever is done to its processes."""

    name: str
    setup: Setup
    folder: Path
    gateway: Gateway | None = None
    _stack: contextlib.AsyncExitStack | None = None
    starts: int = 0

    async def start(self) -> None:
        self.starts += 1
        self._stack = contextlib.AsyncExitStack()
        self.gateway = await self._stack.enter_async_context(running(self.setup, self.folder, f"{self.name}-{self.starts}"))

    async def end(self, *, kill: bool) -> None:
        gateway, stack, self.gateway, self._stack = self.gateway, self._stack, None, None
        if gateway is not None and stack is not None:
            if kill:
                gateway.kill()
            await stack.aclose()


Act = Callable[["Fleet"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Way:
    """From one gateway to one server. `unsettling`: to a Postgres."""

    relay: FaultProxy
    name: str
    unsettling: bool


@dataclass(slots=True)
class Fleet:
    """Two gateways on one Postgres, or on a primary and its standby, and one Redis. Each reaches each server through a relay of its own."""

    dice: random.Random
    now: Callable[[], float]
    happened: Callable[[Fault], None]
    folder: Path
    places: list[Place]
    postgres: PostgresServer | Cluster
    redis: RedisServer
    ways: list[Way]
    failing_over: bool = False

    async def break_something(self) -> None:
        """One fault, from its beginning to its mending."""
        names = list(FAULTS)
        name = self.dice.choices(names, [FAULTS[one][0] for one in names])[0]
        await FAULTS[name][1](self)

    def tell(self, what: str, *, unsettling: bool = False) -> None:
        self.happened(Fault(self.now(), what, unsettling))

    async def pause(self, least: float, most: float) -> None:
        await asyncio.sleep(self.dice.uniform(least, most))

    def place(self) -> Place:
        return self.dice.choice(self.places)

    def way(self) -> Way:
        return self.dice.choice(self.ways)


async def _restart(fleet: Fleet, *, kill: bool) -> None:
    place = fleet.place()
    if place.gateway is None:
        return
    fleet.tell(f"{place.name} is {'killed' if kill else 'told to stop'}")
    await place.end(kill=kill)
    await fleet.pause(0.0, 0.5)
    await place.start()
    fleet.tell(f"{place.name} serves again")


async def _kill(fleet: Fleet) -> None:
    await _restart(fleet, kill=True)


async def _drain(fleet: Fleet) -> None:
    await _restart(fleet, kill=False)


async def _freeze(fleet: Fleet) -> None:
    place = fleet.place()
    gateway = place.gateway
    if gateway is None or gateway.frozen or gateway.process.returncode is not None:
        return
    gateway.freeze()
    fleet.tell(f"{place.name} is frozen", unsettling=True)
    try:
        await fleet.pause(0.2, 4.0)
    finally:
        if gateway.process.returncode is None:
            gateway.thaw()
    fleet.tell(f"{place.name} is thawed", unsettling=True)


async def _cut(fleet: Fleet) -> None:
    way = fleet.way()
    way.relay.cut()
    fleet.tell(f"{way.name} is cut", unsettling=way.unsettling)


async def _lose_replies(fleet: Fleet) -> None:
    way = fleet.way()
    for _ in range(fleet.dice.randint(1, 4)):
        way.relay.drop_next_reply()
    fleet.tell(f"{way.name} loses replies", unsettling=way.unsettling)


async def _stall(fleet: Fleet) -> None:
    way = fleet.way()
    way.relay.stall()
    fleet.tell(f"{way.name} stalls", unsettling=way.unsettling)
    await fleet.pause(0.1, 3.0)
    await way.relay.heal()
    fleet.tell(f"{way.name} flows again", unsettling=way.unsettling)


async def _refuse(fleet: Fleet) -> None:
    way = fleet.way()
    await way.relay.refuse()
    fleet.tell(f"{way.name} is refused", unsettling=way.unsettling)
    await fleet.pause(0.1, 2.0)
    await way.relay.heal()
    fleet.tell(f"{way.name} is open again", unsettling=way.unsettling)


async def _crash_postgres(fleet: Fleet) -> None:
    if isinstance(fleet.postgres, Cluster):
        if not fleet.failing_over:
            fleet.failing_over = True
            await fleet.dice.choice((_fail_over, _fail_over_frozen, _stall_standby, _restart_primary))(fleet, fleet.postgres)
            fleet.failing_over = False
        return
    if fleet.postgres.returncode() is not None:
        return
    await asyncio.to_thread(fleet.postgres.kill)
    fleet.tell("Postgres crashed", unsettling=True)
    fleet.postgres = await asyncio.to_thread(partial(start_postgres, fleet.folder / "postgres", port=fleet.postgres.port))
    fleet.tell("Postgres is back", unsettling=True)


async def _fail_over(fleet: Fleet, cluster: Cluster) -> None:
    await cluster.primary.kill()
    fleet.tell("the primary crashed", unsettling=True)
    await fleet.pause(0.0, 1.5)
    await _promote(fleet, cluster)
    await fleet.pause(0.0, 2.0)
    await _rebuild(fleet, cluster)


async def _fail_over_frozen(fleet: Fleet, cluster: Cluster) -> None:
    """The former primary wakes up, with its sessions and with commits that wait, when there is another one."""
    former = cluster.primary
    former.freeze()
    fleet.tell("the primary is frozen", unsettling=True)
    await fleet.pause(0.0, 3.0)
    await _promote(fleet, cluster)
    await fleet.pause(0.0, 2.0)
    former.thaw()
    fleet.tell("the former primary is thawed", unsettling=True)
    await fleet.pause(0.5, 3.0)
    await former.kill()
    await _rebuild(fleet, cluster)


async def _stall_standby(fleet: Fleet, cluster: Cluster) -> None:
    """Commits wait; then they go on, or the primary dies before."""
    cluster.standby.freeze()
    fleet.tell("the standby is frozen", unsettling=True)
    await fleet.pause(0.2, 4.0)
    dies = fleet.dice.random() < 0.5
    if dies:
        await cluster.primary.kill()
        fleet.tell("the primary crashed", unsettling=True)
    cluster.standby.thaw()
    fleet.tell("the standby is thawed", unsettling=True)
    if dies:
        await _promote(fleet, cluster)
        await _rebuild(fleet, cluster)


async def _restart_primary(fleet: Fleet, cluster: Cluster) -> None:
    await cluster.primary.kill()
    fleet.tell("the primary crashed", unsettling=True)
    await cluster.primary.start()
    fleet.tell("the primary is back", unsettling=True)


async def _promote(fleet: Fleet, cluster: Cluster) -> None:
    await cluster.promote()
    fleet.tell("the standby was promoted", unsettling=True)


async def _rebuild(fleet: Fleet, cluster: Cluster) -> None:
    await cluster.rebuild()
    fleet.tell("there is a standby again", unsettling=True)


async def _crash_redis(fleet: Fleet) -> None:
    if fleet.redis.returncode() is not None:
        return
    await asyncio.to_thread(fleet.redis.kill)
    fleet.tell("Redis crashed")
    fleet.redis = await asyncio.to_thread(partial(start_redis, fleet.folder / "redis", port=fleet.redis.port))
    fleet.tell("Redis is back, empty")


async def _flush(fleet: Fleet) -> None:
    if fleet.redis.returncode() is None:
        with contextlib.suppress(OSError, IndexError):
            await asyncio.to_thread(redis_command, fleet.redis, "FLUSHALL")
            fleet.tell("Redis is flushed")


FAULTS: dict[str, tuple[int, Act]] = {
    "kill": (4, _kill),
    "drain": (2, _drain),
    "freeze": (3, _freeze),
    "cut": (4, _cut),
    "lose replies": (5, _lose_replies),
    "stall": (4, _stall),
    "refuse": (3, _refuse),
    "crash postgres": (1, _crash_postgres),
    "crash redis": (1, _crash_redis),
    "flush": (2, _flush),
}
"""What is done, and how often: by weight."""


@contextlib.asynccontextmanager
async def _stores(folder: Path, *, standby: bool) -> AsyncIterator[tuple[PostgresServer | Cluster, RedisServer]]:
    async with contextlib.AsyncExitStack() as stack:
        redis = await asyncio.to_thread(start_redis, folder / "redis")
        stack.callback(redis.stop)
        if standby:
            yield await stack.enter_async_context(cluster(folder)), redis
        else:
            postgres = await asyncio.to_thread(start_postgres, folder / "postgres")
            stack.callback(postgres.stop)
            yield postgres, redis


@contextlib.asynccontextmanager
async def fleet(
    folder: Path,
    dice: random.Random,
    now: Callable[[], float],
    happened: Callable[[Fault], None],
    upstream_port: int,
    settle_timeout: str,
    *,
    standby: bool,
) -> AsyncIterator[Fleet]:
    """Everything that is needed, up; all of it gone at the end. `folder` is one that every user can reach."""
    async with _stores(folder, standby=standby) as (postgres, redis), contextlib.AsyncExitStack() as stack:
        dsn = postgres.dsn
        await migrate(dsn)
        ports = sorted((postgres.primary.port, postgres.standby.port)) if isinstance(postgres, Cluster) else [postgres.port]
        made = Fleet(dice, now, happened, folder, [], postgres, redis, [])
        for name in ("one", "two"):
            told, url = dsn, redis.url
            for port in (*ports, redis.port):
                relay = await stack.enter_async_context(fault_proxy("127.0.0.1", port))
                store = "redis" if port == redis.port else "postgres" if len(ports) == 1 else f"postgres {ports.index(port) + 1}"
                made.ways.append(Way(relay, f"the way of {name} to {store}", port != redis.port))
                told, url = (text.replace(f":{port}", f":{relay.port}") for text in (told, url))
            setup = Setup(
                told,
                upstream_port,
                url,
                ROUTES,
                f"{{lease: 2s, settle_timeout: {settle_timeout}}}",
                "{connect: 1s, first_byte: 1s, read_idle: 1s, total: 3s}",
                max_execution="5s",
                drain="{delay: 0s, timeout: 45s}",
            )
            place = Place(name, setup, folder)
            stack.push_async_callback(place.end, kill=False)
            made.places.append(place)
            await place.start()
        try:
            yield made
        finally:
            await asyncio.to_thread(made.redis.stop)
            if isinstance(made.postgres, PostgresServer):
                await asyncio.to_thread(made.postgres.stop)
