"""What clients notice when Redis fails over or moves its slots under traffic: a table.

    python -m benchmarks.topologies [--topology sentinel|cluster] [--clients 6] [--fault NAME ...]

Three Sentinels with a primary and two replicas, and a cluster of six nodes, from the `redis-server` of the PATH; Postgres, two gateways and
an upstream that counts its runs. Clients send new keys to one gateway and repeat them at the other, and expect the first answer each time.
A third gateway tells whether replays come from Redis: it repeats keys that it has never seen, and Postgres is not asked for any of them.
"""

import argparse
import asyncio
import itertools
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gateway.devtools.embedded import start_postgres
from gateway.store.migrate import migrate
from tests.support.client import Client
from tests.support.gateway import Gateway, Setup, running
from tests.support.redis_topologies import MASTER, ClusterNodes, Node, Sentinels, cluster, sentinels, until
from tests.support.services import SMALL
from tests.support.upstream import CountingUpstream

BEFORE = 2.0
SETTLED = 3
"""Rounds of probes in a row that Redis must answer before a fault counts as over."""

PROBES = 12
"""Keys of one round: enough that each node of a cluster has some."""

AWAKE = 3.0
"""Seconds for which a server that was frozen is silent, beyond the promotion of another one."""

PATIENCE = 60.0
TIMEOUT = "250ms"
"""For a command to Redis: the default is 100 ms, which a busy machine takes by itself."""
RESHARDED = 1500
HEAD = (
    "| Redis | fault | requests | errors seen by clients | double runs | s without service (before the fault) "
    "| s until the servers have settled | s until hot |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)


def request(key: str) -> bytes:
    body = json.dumps({"pay": key}).encode()
    fields = f"Host: bench.test\r\nAuthorization: Bearer one\r\nIdempotency-Key: {key}\r\nContent-Type: application/json"
    return f"POST /v1/pay HTTP/1.1\r\n{fields}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@dataclass(slots=True)
class Traffic:
    """Clients that send new keys and repeat them. `errors` is all that is not the first answer of a key."""

    gateways: Sequence[Gateway]
    requests: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    answered: list[float] = field(default_factory=list)
    """When a new key was answered."""
    ended: bool = False

    async def client(self, number: int) -> None:
        first, second = (self.gateways[(number + step) % 2] for step in (0, 1))
        async with await Client.connect(first.port) as one, await Client.connect(second.port) as two:
            while not self.ended:
                key = secrets.token_hex(8)
                body = await self._ask(one, key, None)
                self.answered.append(time.monotonic())
                for repeat in (two, one, two):
                    await self._ask(repeat, key, body)
                await asyncio.sleep(0.05)

    async def _ask(self, client: Client, key: str, first: bytes | None) -> bytes:
        self.requests += 1
        try:
            await client.send(request(key))
            answer = await client.receive()
        except (OSError, asyncio.IncompleteReadError):
            self.errors["lost connection"] += 1
            raise
        if answer.status != 201:
            self.errors[f"{answer.status} {answer.problem}"] += 1
        elif first is not None and (answer.body != first or answer.field("idempotent-replayed") != b"true"):
            self.errors["another answer"] += 1
        return answer.body

    def silence(self, since: float, until: float) -> float:
        """The longest time without an answer to a new key."""
        moments = [since, *(moment for moment in self.answered if since < moment < until), until]
        return max((after - before for before, after in itertools.pairwise(moments)), default=0.0)


class Round(NamedTuple):
    """When it began and ended, and whether all its replays came from Redis."""

    begun: float
    ended: float
    hot: bool


@dataclass(slots=True)
class Probes:
    """Whether replays come from Redis, looked at round after round."""

    writer: Gateway
    reader: Gateway
    traffic: Traffic
    rounds: list[Round] = field(default_factory=list)
    more: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        while True:
            await self._round()

    async def _round(self) -> None:
        begun, keys = time.monotonic(), [secrets.token_hex(8) for _ in range(PROBES)]
        bodies = await asyncio.gather(*(self._one(self.writer, key, None) for key in keys))
        await asyncio.sleep(0.1)  # Redis hears of a settle a little later
        before = await self._statements()
        await asyncio.gather(*(self._one(self.reader, key, body) for key, body in zip(keys, bodies, strict=True)))
        hot = await self._statements() == before
        self.rounds.append(Round(begun, time.monotonic(), hot))
        self.more.set()

    async def _one(self, gateway: Gateway, key: str, body: bytes | None) -> bytes:
        async with await Client.connect(gateway.port) as client:
            return await self.traffic._ask(client, key, body)

    async def _statements(self) -> float:
        names = ("reserve", "find")
        return sum([await self.reader.metric("idempotency_store_duration_seconds_count", store="postgres", operation=one) for one in names])

    async def settle(self) -> None:
        """Wait until Redis has answered all of a while."""
        seen = len(self.rounds)
        async with asyncio.timeout(PATIENCE):
            while len(self.rounds) < seen + SETTLED or not all(one.hot for one in self.rounds[-SETTLED:]):
                self.more.clear()
                await self.more.wait()

    def cold(self, since: float) -> float:
        """Seconds until the first round after the last one in which Postgres was asked."""
        rounds = [one for one in self.rounds if one.ended > since]
        last = max((number for number, one in enumerate(rounds) if not one.hot), default=-1)
        return 0.0 if last < 0 else rounds[last + 1].begun - since


Fault = Callable[[], None]
"""Done in a thread; returns when the servers have settled what came of it. What is left is mended by what it returns."""


def sentinel_faults(house: Sentinels) -> dict[str, Fault]:
    def promoted(former: Node) -> None:
        until(lambda: house.primary is not former and house.primary.primary)

    def kill() -> None:
        former = house.primary
        former.kill()
        promoted(former)
        former.start()

    def freeze() -> None:
        former = house.primary
        _freeze(former)
        promoted(former)
        time.sleep(AWAKE)
        _thaw(former)

    def planned() -> None:
        former = house.primary
        house.ask("SENTINEL FAILOVER", MASTER)
        promoted(former)

    def all_at_once() -> None:
        former = house.primary
        for node in house.nodes:
            node.kill()
        time.sleep(AWAKE)
        for node in [former, *(node for node in house.nodes if node is not former)]:
            # As Sentinels write it into the configuration of each, which a start of ours makes anew.
            roles = {} if node is former else {"replicaof": f"127.0.0.1 {former.port}"}
            node.settings = {name: value for name, value in node.settings.items() if name != "replicaof"} | roles
            node.start()

    return {
        "`kill -9` of the primary; it comes back as a replica": kill,
        "the primary is silent (`SIGSTOP`), and wakes up after its successor's promotion": freeze,
        "planned failover (`SENTINEL FAILOVER`)": planned,
        f"all three servers are away for {AWAKE:g} s": all_at_once,
    }


def cluster_faults(nodes: ClusterNodes) -> dict[str, Fault]:
    def follower(primary: Node) -> Node:
        return next(node for node in nodes.alive() if not node.primary and node.ask("INFO", "replication")["master_port"] == primary.port)

    def taken_over(slot: int, former: Node) -> None:
        asked = next(node for node in nodes.alive() if node is not former)
        until(lambda: nodes.owner(slot, asked) is not former)

    def kill() -> None:
        former = nodes.owner(0)
        former.kill()
        taken_over(0, former)
        former.start()

    def freeze() -> None:
        former = nodes.owner(0)
        _freeze(former)
        taken_over(0, former)
        time.sleep(AWAKE)
        _thaw(former)

    def planned() -> None:
        former = nodes.owner(0)
        follower(former).ask("CLUSTER FAILOVER")
        taken_over(0, former)

    def reshard() -> None:
        source, target = nodes.owner(0), nodes.owner(16383)
        if shutil.which("redis-cli") is None:
            for slot in [slot for slot in range(16384) if nodes.owner(slot) is source][:RESHARDED]:
                nodes.move(slot, source, target)
            return
        words = [f"127.0.0.1:{source.port}", "--cluster-from", nodes.ids[source.port], "--cluster-to", nodes.ids[target.port]]
        words += ["--cluster-slots", str(RESHARDED), "--cluster-yes"]
        subprocess.run(
            ["redis-cli", "--cluster", "reshard", *words],
            env={**os.environ, "REDISCLI_AUTH": nodes.word},
            check=True,
            stdout=subprocess.DEVNULL,
        )

    return {
        "`kill -9` of a primary; it comes back as a replica": kill,
        "a primary is silent (`SIGSTOP`), and wakes up after its successor's promotion": freeze,
        "planned failover (`CLUSTER FAILOVER`)": planned,
        f"{RESHARDED} slots with their keys move (`redis-cli --cluster reshard`)": reshard,
    }


def _freeze(node: Node) -> None:
    assert node.server is not None
    os.kill(node.server.pid, signal.SIGSTOP)


def _thaw(node: Node) -> None:
    assert node.server is not None
    os.kill(node.server.pid, signal.SIGCONT)


@dataclass(frozen=True, slots=True)
class House:
    """The servers of one topology."""

    name: str
    url: str
    faults: dict[str, Fault]
    settle: Callable[[], None]


@contextmanager
def house_of(topology: str, folder: Path) -> Iterator[House]:
    with ExitStack() as stack:
        if topology == "sentinel":
            made = stack.enter_context(sentinels(folder / "sentinel", down_after_ms=1000))
            yield House("Sentinels", made.url, sentinel_faults(made), made.settle)
        else:
            nodes = stack.enter_context(cluster(folder / "cluster", node_timeout_ms=2000))
            yield House("cluster", nodes.url, cluster_faults(nodes), nodes.settle)


async def row(house: House, fault: str, gateways: Sequence[Gateway], upstream: CountingUpstream, clients: int) -> str:
    """One fault under traffic."""
    upstream.runs.clear()
    traffic = Traffic(gateways[:2])
    probes = Probes(gateways[0], gateways[2], traffic)
    at_work = [asyncio.create_task(traffic.client(number)) for number in range(clients)]
    looking = asyncio.create_task(probes.run())
    await asyncio.sleep(BEFORE)
    await probes.settle()
    begun = time.monotonic()
    usual = traffic.silence(traffic.answered[0], begun)
    await asyncio.to_thread(house.faults[fault])
    over = time.monotonic() - begun
    await probes.settle()
    traffic.ended = True
    await asyncio.gather(*at_work)
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    await asyncio.to_thread(house.settle)
    errors = ", ".join(f"{count} of {name}" for name, count in sorted(traffic.errors.items())) or "none"
    double = sum(runs > 1 for runs in upstream.runs.values())
    silence = traffic.silence(begun, traffic.answered[-1])
    figures = f"{double} | {silence:.1f} ({usual:.1f}) | {over:.1f} | {probes.cold(begun):.1f}"
    return f"| {house.name} | {fault} | {traffic.requests} | {errors} | {figures} |"


async def run(topologies: Sequence[str], clients: int, wanted: Sequence[str], tell: Callable[[str], None]) -> None:
    """The table, row by row."""
    with tempfile.TemporaryDirectory(prefix="idempotency-gateway-topologies-") as name:
        folder = Path(name)
        await asyncio.to_thread(folder.chmod, 0o711)  # Postgres runs as a user of its own
        postgres, upstream = await asyncio.to_thread(partial(start_postgres, folder / "postgres", settings=SMALL)), CountingUpstream()
        try:
            await migrate(postgres.dsn)
            await upstream.start()
            tell(HEAD)
            for topology in topologies:
                setup = Setup(
                    postgres.dsn,
                    upstream.port,
                    defaults="{lease: 15s}",
                    timeouts="{connect: 10s, first_byte: 20s, read_idle: 20s, total: 40s}",
                    postgres_timeout="10s",
                    redis_timeout=TIMEOUT,
                )
                await _of_one(topology, folder, setup, upstream, clients, wanted, tell)
        finally:
            await upstream.stop()
            await asyncio.to_thread(postgres.stop)


async def _of_one(
    topology: str,
    folder: Path,
    setup: Setup,
    upstream: CountingUpstream,
    clients: int,
    wanted: Sequence[str],
    tell: Callable[[str], None],
) -> None:
    house_made = house_of(topology, folder)
    house = await asyncio.to_thread(house_made.__enter__)
    try:
        async with AsyncExitStack() as stack:
            at = replace(setup, redis=house.url)
            gateways = [await stack.enter_async_context(running(at, folder, f"{topology}-{number}")) for number in range(3)]
            for fault in house.faults:
                if not wanted or any(word in fault for word in wanted):
                    tell(await row(house, fault, gateways, upstream, clients))
            for gateway in gateways:
                assert "Traceback" not in gateway.log.read_text(), gateway.log.read_text()
    finally:
        await asyncio.to_thread(house_made.__exit__, None, None, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--topology", choices=("sentinel", "cluster"), action="append")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--fault", action="append", default=[], help="a piece of the names of those that are wanted")
    given = parser.parse_args()
    asyncio.run(run(given.topology or ("sentinel", "cluster"), given.clients, given.fault, lambda line: print(line, flush=True)))


if __name__ == "__main__":
    main()
