"""What befalls a primary, and how the standby takes its place: one row of the table for each."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gateway.store.migrate import migrate
from tests.support.cluster import Cluster, cluster
from tests.support.gateway import Gateway, Setup, running
from tests.support.services import new_root, remove_data
from tests.support.upstream import CountingUpstream, Exchange
from tests.system.failover.traffic import Traffic, double_runs

DETECTION = 1.0
"""Seconds after which a manager of the cluster is sure that the primary is gone."""

MISTAKEN = 3.0
"""Seconds for which a former primary is there again, and awake."""

ENDING = 60.0
"""Seconds within which every key has its answer after the failover."""


@dataclass(slots=True)
class Stage:
    """Two gateways over one cluster."""

    cluster: Cluster
    upstream: CountingUpstream
    folder: Path
    stack: AsyncExitStack
    gateways: list[Gateway] = field(default_factory=list)
    started: int = 0

    def ports(self) -> list[int]:
        return [gateway.port for gateway in self.gateways]

    async def start_gateway(self) -> Gateway:
        self.started += 1
        setup = Setup(
            self.cluster.dsn, self.upstream.port, defaults="{lease: 15s}", timeouts="{first_byte: 5s, total: 10s}", max_execution="11s"
        )
        gateway = await self.stack.enter_async_context(running(setup, self.folder, f"gateway-{self.started}"))
        self.gateways.append(gateway)
        return gateway

    async def replace_gateway(self) -> None:
        """By a process that knows nothing of the failover."""
        old = self.gateways.pop(0)
        await old.stop()
        await self.start_gateway()


@dataclass(frozen=True, slots=True)
class Row:
    """What a failover came to. `promotion`: seconds until the standby took writes; `silence`: the longest time without an answer to a new
    key.
    """

    fault: str
    requests: int
    errors: dict[str, int]
    double_runs: list[str]
    lost: list[str]
    promotion: float
    silence: float

    def line(self) -> str:
        errors = ", ".join(f"{count} of {name}" for name, count in sorted(self.errors.items())) or "none"
        counts = f"{len(self.double_runs)} | {len(self.lost)} | {self.promotion:.1f} | {self.silence:.1f}"
        return f"| {self.fault} | {self.requests} | {errors} | {counts} |"


HEAD = """\
| fault | requests | errors seen by clients | double runs | lost answers | s until promoted | s without service |
| --- | --- | --- | --- | --- | --- | --- |"""


async def _failed_over(stage: Stage) -> None:
    await asyncio.sleep(DETECTION)
    await stage.cluster.promote()


async def killed(stage: Stage) -> None:
    """kill -9 of the server and its sessions."""
    await stage.cluster.primary.kill()
    await _failed_over(stage)


async def stopped_at_once(stage: Stage) -> None:
    """pg_ctl stop -m immediate."""
    await stage.cluster.primary.end(signal.SIGQUIT)
    await _failed_over(stage)


async def cut_off(stage: Stage) -> None:
    """Silent, as a host without power or network; it wakes up when the other one has been the primary for seconds."""
    former = stage.cluster.primary
    former.freeze()
    await _failed_over(stage)
    former.thaw()
    await asyncio.sleep(MISTAKEN)
    await former.kill()


async def standby_lost_first(stage: Stage) -> None:
    """Commits wait for a standby that does not answer; then the primary dies, and that standby is promoted."""
    stage.cluster.standby.freeze()
    await asyncio.sleep(3.0)
    await stage.cluster.primary.kill()
    stage.cluster.standby.thaw()
    await _failed_over(stage)


async def switched_over(stage: Stage) -> None:
    """As planned: the primary ends in order, the standby has all of it, and the former primary follows it at once."""
    former = stage.cluster.primary
    await former.end(signal.SIGINT)
    await stage.cluster.promote()
    await stage.cluster.rebuild()


async def came_back(stage: Stage) -> None:
    """The worst mistake: the former primary is started again as it was, beside its successor; a gateway starts anew."""
    former = stage.cluster.primary
    await former.kill()
    await _failed_over(stage)
    await former.start()
    await stage.replace_gateway()
    await asyncio.sleep(MISTAKEN)
    await former.kill()


Fault = Callable[[Stage], Awaitable[None]]
FAULTS: dict[str, Fault] = {
    "`kill -9` of the primary": killed,
    "`pg_ctl stop -m immediate`": stopped_at_once,
    "the primary is cut off, and wakes up later": cut_off,
    "the standby stalls, then the primary dies": standby_lost_first,
    "planned switchover": switched_over,
    "the former primary is started again": came_back,
}


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    """A cluster, an upstream and two gateways; none of it is left at the end."""
    root, upstream = new_root(), CountingUpstream()

    async def behave(exchange: Exchange) -> None:
        exchange.execute()
        await asyncio.sleep(0.02)
        await exchange.answer()

    upstream.behave = behave
    await upstream.start()
    try:
        async with cluster(root) as made, AsyncExitStack() as stack:
            await migrate(made.dsn)
            staged = Stage(made, upstream, root, stack)
            for _ in range(2):
                await staged.start_gateway()
            yield staged
    finally:
        await upstream.stop()
        await asyncio.to_thread(remove_data, root)


async def fail_over(staged: Stage, fault: str, *, clients: int, before: float = 2.0, after: float = 4.0) -> Row:
    """One fault under traffic. There is a primary with a standby again afterwards."""
    upstream, traffic = staged.upstream, Traffic(staged.ports)
    upstream.runs.clear()
    running_traffic = asyncio.create_task(traffic.run(clients))
    await asyncio.sleep(before)
    begun = time.monotonic()
    promoted = asyncio.create_task(_promoted(staged.cluster))
    await FAULTS[fault](staged)
    took = await promoted - begun
    await asyncio.sleep(after)
    traffic.end()
    done, _ = await asyncio.wait({running_traffic}, timeout=ENDING)
    running_traffic.cancel()
    if done:
        running_traffic.result()
        await traffic.repeat_all()
    lost = [*traffic.lost, *(f"{key!r} has no answer" for key in traffic.open)]
    row = Row(fault, traffic.requests, dict(traffic.errors), double_runs(upstream), lost, max(0.0, took), traffic.longest_silence(begun))
    if staged.cluster.standby.server.returncode() is not None:
        await staged.cluster.rebuild()
    return row


async def _promoted(made: Cluster) -> float:
    former = made.primary
    while made.primary is former:
        await asyncio.sleep(0.01)
    return time.monotonic()
