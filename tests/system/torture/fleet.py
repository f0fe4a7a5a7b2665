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


@dataclass(slots=True)
class Fleet:
    """Two gateways on one Postgres and one Redis. Each reaches each store through a relay of its own."""

    dice: random.Random
    now: Callable[[], float]
    happened: Callable[[Fault], None]
    folder: Path
    places: list[Place]
    postgres: PostgresServer
    redis: RedisServer
    relays: list[FaultProxy]

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

    def relay(self) -> tuple[FaultProxy, str, bool]:
        """One of the four, its name, and whether it leads to Postgres."""
        number = self.dice.randrange(len(self.relays))
        store = ("postgres", "redis")[number % 2]
        return self.relays[number], f"the way of {self.places[number // 2].name} to {store}", store == "postgres"


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
    relay, name, unsettling = fleet.relay()
    relay.cut()
    fleet.tell(f"{name} is cut", unsettling=unsettling)


async def _lose_replies(fleet: Fleet) -> None:
    relay, name, unsettling = fleet.relay()
    for _ in range(fleet.dice.randint(1, 4)):
        relay.drop_next_reply()
    fleet.tell(f"{name} loses replies", unsettling=unsettling)


async def _stall(fleet: Fleet) -> None:
    relay, name, unsettling = fleet.relay()
    relay.stall()
    fleet.tell(f"{name} stalls", unsettling=unsettling)
    await fleet.pause(0.1, 3.0)
    await relay.heal()
    fleet.tell(f"{name} flows again", unsettling=unsettling)


async def _refuse(fleet: Fleet) -> None:
    relay, name, unsettling = fleet.relay()
    await relay.refuse()
    fleet.tell(f"{name} is refused", unsettling=unsettling)
    await fleet.pause(0.1, 2.0)
    await relay.heal()
    fleet.tell(f"{name} is open again", unsettling=unsettling)


async def _crash_postgres(fleet: Fleet) -> None:
    if fleet.postgres.returncode() is not None:
        return
    await asyncio.to_thread(fleet.postgres.kill)
    fleet.tell("Postgres crashed", unsettling=True)
    fleet.postgres = await asyncio.to_thread(partial(start_postgres, fleet.folder / "postgres", port=fleet.postgres.port))
    fleet.tell("Postgres is back", unsettling=True)


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
async def fleet(
    folder: Path, dice: random.Random, now: Callable[[], float], happened: Callable[[Fault], None], upstream_port: int, settle_timeout: str
) -> AsyncIterator[Fleet]:
    """Everything that is needed, up; all of it gone at the end. `folder` is one that every user can reach."""
    postgres = await asyncio.to_thread(start_postgres, folder / "postgres")
    redis = await asyncio.to_thread(start_redis, folder / "redis")
    made: Fleet | None = None
    try:
        await migrate(postgres.dsn)
        async with contextlib.AsyncExitStack() as stack:
            relays: list[FaultProxy] = []
            places: list[Place] = []
            for name in ("one", "two"):
                pair = [await stack.enter_async_context(fault_proxy("127.0.0.1", port)) for port in (postgres.port, redis.port)]
                relays += pair
                setup = Setup(
                    postgres.dsn.replace(f":{postgres.port}/", f":{pair[0].port}/"),
                    upstream_port,
                    redis.url.replace(f":{redis.port}", f":{pair[1].port}"),
                    ROUTES,
                    f"{{lease: 2s, settle_timeout: {settle_timeout}}}",
                    "{connect: 1s, first_byte: 1s, read_idle: 1s, total: 3s}",
                    max_execution="5s",
                    drain="{delay: 0s, timeout: 45s}",
                )
                places.append(Place(name, setup, folder))
                await places[-1].start()
            made = Fleet(dice, now, happened, folder, places, postgres, redis, relays)
            try:
                yield made
            finally:
                for place in places:
                    await place.end(kill=False)
    finally:
        await asyncio.to_thread((made.redis if made else redis).stop)
        await asyncio.to_thread((made.postgres if made else postgres).stop)
