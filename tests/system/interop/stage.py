"""One gateway with fault proxies before and behind it, and an upstream that misbehaves by the first segment of the target."""

import asyncio
import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gateway.devtools.embedded.ports import free_port
from tests.support.faults import FaultProxy
from tests.support.gateway import Gateway, Setup, running
from tests.support.services import Services, redis_command
from tests.support.upstream import CountingUpstream, Exchange


@dataclass(frozen=True, slots=True)
class Hops(Setup):
    """A setup with further upstreams, by name."""

    upstreams: Mapping[str, int] = field(default_factory=dict)

    def yaml(self, port: int, admin: int) -> str:
        entries = "".join(
            f'  {name}: {{url: "http://127.0.0.1:{at}", timeouts: {self.timeouts}, max_execution: 1s}}\n'
            for name, at in self.upstreams.items()
        )
        return Setup.yaml(self, port, admin).replace("upstreams:\n", "upstreams:\n" + entries)


def guarded(name: str, upstream: str = "payments", more: str = "") -> str:
    """A guarded route below /<name>/, named alike."""
    policy = f"{{principal: [{{header: Authorization}}]{more}}}"
    return f'\n  - {{id: {name}, methods: [POST], path: "/{name}/**", upstream: {upstream}, idempotency: {policy}}}'


PIECES = (b"first,", b"x" * 50_000, b"last")
PATIENT = "{connect: 1s, first_byte: 20s, read_idle: 20s, total: 30s}"
"""Faults come from the tests, never from the gateway's own limits."""
REST = "\n  - {id: rest, path: /**, upstream: payments}"


def answer_to(token: str, run: int = 1) -> bytes:
    """The body of the answer to this caller's operation when it runs for the `run`-th time."""
    return json.dumps({"id": f"pi_{token}_{run}", "object": "payment_intent", "amount": 100}).encode()


async def answer_in_pieces(exchange: Exchange) -> None:
    """Answer with PIECES, each a chunk."""
    await exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for piece in PIECES:
        await exchange.send(b"%x\r\n%b\r\n" % (len(piece), piece))
    await exchange.send(b"0\r\n\r\n")


@dataclass(slots=True)
class Stage:
    """`front` stands before the gateway, `back` between it and `upstream`. Callers are told apart by their token, faults by the target."""

    gateway: Gateway
    upstream: CountingUpstream
    front: FaultProxy
    back: FaultProxy
    released: defaultdict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    running: defaultdict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))

    def base(self, fault: str) -> str:
        """The URL below which this fault happens, through the fault proxy."""
        return f"http://127.0.0.1:{self.front.port}/{fault}"

    def runs(self, token: str) -> int:
        """How often the upstream has executed anything for this caller, under whatever key."""
        return sum(count for (caller, _), count in self.upstream.runs.items() if caller == b"Bearer " + token.encode())

    async def behave(self, exchange: Exchange) -> None:
        """Execute. Then: below /silent hang up, below /flaky hang up the first time, below /held and /slow wait for `released`; else
        answer, to targets with a segment `chunked` in pieces.
        """
        token = (exchange.seen.value("authorization") or b"").decode().removeprefix("Bearer ")
        run, fault = exchange.execute(), exchange.seen.target.split(b"/")[1]
        self.running[token].set()
        if fault in {b"held", b"slow"}:
            await self.released[token].wait()
        if fault == b"silent" or (fault == b"flaky" and run == 1):
            exchange.hang_up()
        elif b"/chunked/" in exchange.seen.target:
            await answer_in_pieces(exchange)
        else:
            await exchange.answer(200, b"" if exchange.seen.method == b"HEAD" else answer_to(token, run))

    async def decisions(self, route: str) -> Counter[str]:
        """How often each decision was taken on a route so far."""
        return await self._tally("idempotency_requests_total", route, "decision")

    async def settlements(self, route: str) -> Counter[str]:
        """How often each settlement was made on a route so far."""
        return await self._tally("idempotency_settlements_total", route, "settlement")

    async def _tally(self, name: str, route: str, label: str) -> Counter[str]:
        _, text = await self.gateway.get("/metrics")
        tally: Counter[str] = Counter()
        for line in text.decode().splitlines():
            if line.startswith(name + "{") and f'route="{route}"' in line:
                tally[line.partition(f'{label}="')[2].partition('"')[0]] += int(float(line.rpartition(" ")[2]))
        return +tally

    async def decided(self, before: Counter[str], route: str, **wanted: int) -> None:
        """Assert that these decisions, and no others, were taken since `before`: each is counted just after its answer has left."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10):
                while await self.decisions(route) - before != Counter(wanted):
                    await asyncio.sleep(0.02)
        assert dict(await self.decisions(route) - before) == wanted

    async def settled(self, before: Counter[str], route: str, settlement: str) -> None:
        """Wait until one more of these settlements was made than `before`."""
        async with asyncio.timeout(10):
            while (await self.settlements(route) - before)[settlement] == 0:
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def staged(services: Services, folder: Path, routes: str, upstreams: Mapping[str, int] | None = None) -> AsyncIterator[Stage]:
    """A stage on a database of its own and an empty Redis. `routes` may name the upstreams `payments`, `away` (the same, but behind `back`)
    and further ones, given as ports.
    """
    database, redis = services.migrated_database(services.postgres()), services.redis()
    assert redis_command(redis, "FLUSHALL") == b"+OK"
    upstream = CountingUpstream()
    await upstream.start()
    back = FaultProxy("127.0.0.1", upstream.port, free_port())
    await back.heal()
    setup = Hops(database, upstream.port, redis.url, routes, timeouts=PATIENT, upstreams={"away": back.port, **(upstreams or {})})
    try:
        async with running(setup, folder) as gateway:
            front = FaultProxy("127.0.0.1", gateway.port, free_port())
            await front.heal()
            stage = Stage(gateway, upstream, front, back)
            upstream.behave = stage.behave
            yield stage
            await front.close()
    finally:
        await back.close()
        await upstream.stop()
        services.drop_database(services.postgres(), database)
