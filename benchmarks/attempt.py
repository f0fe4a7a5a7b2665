"""CPU of one attempt, from the decision to execute to the settled answer: upstream client and engine, with a store that settles at once.

    python -m benchmarks.attempt [--attempts N] [--rounds N] [--against TREE]

With `--against` two source trees take turns, each in a process of its own. CPU is user and system time of that process, the kernel's work
for the upstream's connection included; of the slices of each process the best counts.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

HERE = Path(__file__).resolve().parent


def attempts(port: int) -> Any:
    """Runs one attempt after the other, each as the engine runs it."""
    from benchmarks.upstream_client import BODY, HEADERS  # noqa: PLC0415 - of the tree that is measured, as what follows
    from gateway.core.key_location import Parts  # noqa: PLC0415
    from gateway.core.model import Lease, RecordKey  # noqa: PLC0415
    from gateway.core.policy import Policy  # noqa: PLC0415
    from gateway.engine.attempt import Attempt  # noqa: PLC0415
    from gateway.engine.attempts import Attempts  # noqa: PLC0415
    from gateway.engine.dependencies import Dependencies  # noqa: PLC0415
    from gateway.engine.leases import LeaseKeeper  # noqa: PLC0415
    from gateway.ports import Settled, Transition  # noqa: PLC0415
    from gateway.runtime.spool import MemoryBudget  # noqa: PLC0415
    from gateway.runtime.system import SystemClock, SystemRandomness  # noqa: PLC0415
    from gateway.upstream import Balancer, Health, HttpUpstream, UpstreamSettings  # noqa: PLC0415
    from tests.engine.stage import NotingObserver  # noqa: PLC0415
    from tests.support.requests import StagedRequest, plan_of  # noqa: PLC0415

    class Instant:
        """Commits at the next turn of the loop."""

        async def complete(self, *_: object) -> Settled:
            await asyncio.sleep(0)
            return Settled(Transition.DONE)

    class Quiet(NotingObserver):
        def settled(self, route: str, settlement: str, reason: str) -> None: ...

        def upstream_answered(self, route: str, status: int | None, seconds: float) -> None: ...

    class Asked(StagedRequest):
        def forward(self) -> Parts:
            return Parts(HEADERS, b"/v1/charges", None)

    url, clock, store, observer = f"http://127.0.0.1:{port}", SystemClock(), Instant(), Quiet()
    plan = plan_of(Policy("payments", ()), Balancer([(url, HttpUpstream(UpstreamSettings(url)), Health(5, 10.0))]))
    keeper = LeaseKeeper(store, clock, observer)  # type: ignore[arg-type]  # renews nothing
    deps = Dependencies(store, clock, SystemRandomness(), observer, keeper, MemoryBudget(1 << 26, offload=False))  # type: ignore[arg-type]
    running, number = Attempts(clock, observer, lambda _: None), 0

    async def call() -> bytes:
        nonlocal number
        number += 1
        key = RecordKey("payments:none", f"key-{number}")
        lease = Lease(key, None, number.to_bytes(16, "big"), 1, clock.boottime(), 30.0)  # type: ignore[arg-type]  # nobody looks
        attempt = Attempt(deps, Asked("request", plan, key, BODY), lease)
        running.begin(attempt, guards=True)
        answer: Any = (await attempt.reply).answer
        body: bytes = answer.body
        return body

    return call


def in_turn(tree: Path, port: int, in_flight: int, count: int) -> float:
    """One measurement, by another process."""
    argv = [sys.executable, __file__, "--measure", str(port), str(in_flight), str(count)]
    return float(subprocess.run(argv, env={**os.environ, "PYTHONPATH": str(tree)}, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", type=Path, help="the root of another source tree")
    parser.add_argument("--port", type=int, default=8398, help="for the upstream")
    parser.add_argument("--measure", nargs=3, type=int, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.measure is not None:
        from benchmarks.upstream_client import measure  # noqa: PLC0415 - of the tree that is measured

        port, in_flight, count = told.measure
        print(uvloop.run(measure(attempts(port), in_flight, count)))
        return
    trees = {"before": told.against, "this tree": HERE.parent} if told.against else {"this tree": HERE.parent}
    with subprocess.Popen([sys.executable, HERE / "upstream.py", str(told.port)]) as upstream:
        try:
            time.sleep(1)
            for in_flight in (1, 64):
                figures: dict[str, list[float]] = {name: [] for name in trees}
                for _ in range(told.rounds):
                    for name, tree in trees.items():
                        figures[name].append(in_turn(tree, told.port, in_flight, told.attempts))
                for name, values in figures.items():
                    print(
                        f"{in_flight:3d} in flight, {name:9s}: {min(values):6.1f} us CPU least, {statistics.median(values):6.1f} us median"
                    )
        finally:
            upstream.kill()


if __name__ == "__main__":
    main()
