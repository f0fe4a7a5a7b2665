"""What Redis costs a gateway beside everything else, in microseconds of its own CPU: for a new key (set a lease, then the completed
record), and for a replay.

    python -m benchmarks.redis_link [--redis URL] [--requests 1920] [--rounds 7]

A tier over an authority that grants every lease and completes everything at once, so that nothing but the way to Redis is left; what that
authority costs by itself is taken off. Each step is measured alone, with so many of them in flight; the least of many rounds counts: on a
shared machine the others measure the neighbours.
"""

import argparse
import asyncio
import hashlib
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from uuid import UUID

import uvloop

from gateway.core.model import Fingerprint, Intent, Lease, Record, RecordKey, StoredResponse, Terms
from gateway.devtools.embedded import start_redis
from gateway.ports import Retention, Settled, Store, StoreUnavailable, Transition
from gateway.runtime.system import SystemClock
from gateway.store.cached import CachedStore
from gateway.store.redis.breaker import Breaker
from gateway.store.redis.hotpath import HotPath
from gateway.store.redis.link import Link
from gateway.store.replay_cache import ReplayCache
from gateway.store.tiered import TieredStore
from tests.support.memory_store.store import MemoryStore

IN_FLIGHT = (1, 16, 64)
KEPT = Retention(3600.0)
RESPONSE = StoredResponse(
    201,
    b"Created",
    (
        (b"Content-Type", b"application/json; charset=utf-8"),
        (b"Date", b"Sat, 28 Nov 2026 17:00:00 GMT"),
        (b"Location", b"/v1/charges/ch_3MmlLrLkdIwHu7ix0snN0B15"),
        (b"Cache-Control", b"no-cache, no-store"),
        (b"X-Ratelimit-Remaining", b"99"),
    ),
    b'{"id": "ch_3MmlLrLkdIwHu7ix0snN0B15", "object": "charge", "amount": 109900}'.ljust(500),
    500,
    hashlib.sha256(b"").digest(),
)
TERMS = Terms("create-charge", 30.0, 60.0)
FINGERPRINT = Fingerprint(3, hashlib.sha256(b"policy").digest(), hashlib.sha256(b"request").digest())

Step = Callable[[int], Awaitable[object]]


class Granting(MemoryStore):
    """Every key is new to it, and nothing is kept."""

    def now_us(self) -> int:
        return int(SystemClock().boottime() * 1e6)

    async def reserve(self, intent: Intent) -> Lease:
        return Lease(intent.key, UUID(int=0), intent.owner, 1, 1e9, intent.terms.lease, intent=intent)

    async def complete(self, lease: Lease, response: StoredResponse, retention: Retention) -> Settled:
        return Settled(Transition.DONE, self.now_us() + 3_600_000_000)


def intent(key: RecordKey) -> Intent:
    return Intent(key, FINGERPRINT, os.urandom(16), TERMS, "request-1", "POST", b"/v1/charges")


async def cost(step: Step, number: int, in_flight: int, after: Callable[[], Awaitable[object]]) -> float:
    """Microseconds of CPU of one of `number` steps, begun `in_flight` at a time; `after` waits for what those have left behind."""
    started = time.process_time()
    for first in range(0, number, in_flight):
        await asyncio.gather(*(step(at) for at in range(first, min(first + in_flight, number))))
        await after()
    return (time.process_time() - started) / number * 1e6


async def one_round(store: Store, number: int, in_flight: int, after: Callable[[], Awaitable[object]]) -> dict[str, float]:
    """The cost of each step against one store."""
    keys = [RecordKey("create-charge:9f86d081884c7d65", os.urandom(16).hex()) for _ in range(number)]
    wanted, retries, clock = [*map(intent, keys)], [*map(intent, keys)], SystemClock()
    leases: list[Lease] = []

    async def reserve(at: int) -> None:
        found = await store.reserve(wanted[at])
        assert isinstance(found, Lease)
        leases.append(found)

    async def replay(at: int) -> None:
        asks = retries[at]
        known = store.known(asks.key, asks.fingerprint, clock.boottime()) if isinstance(store, CachedStore) else None
        found = await store.reserve(asks) if known is None else known.record
        assert isinstance(found, Record) == (not isinstance(store, Granting))

    return {
        "reserve": await cost(reserve, number, in_flight, after),
        "complete": await cost(lambda at: store.complete(leases[at], RESPONSE, KEPT), number, in_flight, after),
        "replay": await cost(replay, number, in_flight, after),
    }


async def run(url: str, number: int, rounds: int) -> None:
    clock = SystemClock()
    link = Link(url, Breaker(lambda: 0.5), timeout=30.0)
    await link.start()
    if link.open:
        raise StoreUnavailable("redis", "refused", may_have_landed=False)
    authority = Granting(clock.boottime, clock.boottime)
    tiered = TieredStore(authority, HotPath(link), clock, lease_ttl=15.0)
    cached = CachedStore(tiered, ReplayCache(1 << 30, 60.0, clock.boottime), clock)

    async def settled() -> None:
        assert await tiered.drain(30)

    async def nothing() -> None:
        pass

    print("| in flight | command alone | reserve | complete | new key | replay from Redis | new key, cached | replay from memory |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for in_flight in IN_FLIGHT:
        least: list[dict[str, float]] = [{}, {}, {}, {}]
        for _ in range(rounds):
            alone = {"alone": await cost(lambda _: link.execute(b"ECHO", b"x"), number, in_flight, nothing)}
            there, here = await one_round(tiered, number, in_flight, settled), await one_round(authority, number, in_flight, nothing)
            above = await one_round(cached, number, in_flight, settled)
            for best, found in zip(least, (alone, there, here, above), strict=True):
                best.update({name: min(value, best.get(name, value)) for name, value in found.items()})
        alone, there, here, above = least
        taken, more = ({name: store[name] - here[name] for name in store} for store in (there, above))
        new, new_cached = (store["reserve"] + store["complete"] for store in (taken, more))
        print(row(in_flight, [alone["alone"], taken["reserve"], taken["complete"], new, taken["replay"], new_cached, more["replay"]]))
    await tiered.close(1.0)
    await link.close()


def row(in_flight: int, figures: Sequence[float]) -> str:
    return f"| {in_flight} | {' | '.join(f'{figure:.1f}' for figure in figures)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--redis", help="a server of your own; by default one is started")
    parser.add_argument("--requests", type=int, default=1920)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    if given.redis:
        uvloop.run(run(given.redis, given.requests, given.rounds))
        return
    with tempfile.TemporaryDirectory() as folder:
        server = start_redis(Path(folder) / "redis")
        try:
            uvloop.run(run(server.url, given.requests, given.rounds))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
