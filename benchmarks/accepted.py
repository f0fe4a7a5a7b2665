"""Accepted work against synchronous: operations a second and CPU for each, and how long it takes from acceptance to the first byte sent.

Both gateways do the same operations with the same stores and the same upstream, in turns. Accepted work counts as done when its record is
completed, so its rate is that of whole operations, not of 202 answers.

    python -m benchmarks.accepted [--requests 4000] [--rounds 3] [--concurrency 64]
"""

import argparse
import asyncio
import os
import re
import statistics
import time
import urllib.request
from dataclasses import dataclass

import asyncpg
import uvloop

from benchmarks.load import load
from benchmarks.systems import POLICY, Settings, Stage, System, cpu_seconds, stage, start_gateway

KEY = "encryption_key: a-key-of-the-benchmark-0123456789-0123456789"
NOT_DONE = "SELECT count(*) FROM gateway_records WHERE status IN ('pending', 'in_progress')"


@dataclass(frozen=True, slots=True)
class Sample:
    """One round of one gateway: operations a second, CPU seconds of the process for each, seconds until the last client was answered."""

    rate: float
    cpu: float
    answered: float


async def one(on: Stage, system: System, prefix: str, requests: int, connections: int) -> Sample:
    """So many new operations, until each is done."""
    connection = await asyncpg.connect(on.dsn)
    try:
        cpu, began = cpu_seconds(system.pid), time.perf_counter()
        result = await load(system.port, connections=connections, requests=requests, prefix=prefix)
        answered = time.perf_counter() - began
        assert set(result.statuses) <= {201, 202}, result.statuses
        while await connection.fetchval(NOT_DONE):  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.01)
        seconds = time.perf_counter() - began
        return Sample(requests / seconds, (cpu_seconds(system.pid) - cpu) / requests, answered)
    finally:
        await connection.close()


def waits(on: Stage, system: System) -> dict[float, float]:
    """The buckets of `idempotency_accepted_wait_seconds` so far: how many waited for at most so long."""
    config = (on.folder / f"{system.name}.yaml").read_text()
    admin = re.search(r'admin: \{listen: "([^"]+)"', config)
    assert admin is not None
    with urllib.request.urlopen(f"http://{admin[1]}/metrics") as answer:
        text = answer.read().decode()
    found = re.findall(r'idempotency_accepted_wait_seconds_bucket\{[^}]*le="([^"]+)"[^}]*\} (\S+)', text)
    return {float(bound): float(count) for bound, count in found}


def quantile(before: dict[float, float], after: dict[float, float], share: float) -> float:
    """The bound below which `share` of the waits between the two readings lay, interpolated within its bucket."""
    counts = {bound: count - before.get(bound, 0.0) for bound, count in sorted(after.items())}
    wanted, lower, below = share * max(counts.values()), 0.0, 0.0
    for bound, count in counts.items():
        if count >= wanted:
            return lower if bound == float("inf") else lower + (bound - lower) * (wanted - below) / max(count - below, 1.0)
        lower, below = bound, count
    return lower


async def rounds_of(on: Stage, systems: list[System], rounds: int, requests: int, connections: int) -> dict[str, list[Sample]]:
    seen: dict[str, list[Sample]] = {system.name: [] for system in systems}
    for number in range(rounds + 1):
        turned = systems if number % 2 else systems[::-1]
        for system in turned:
            sample = await one(on, system, f"{os.getpid()}-{system.name}-{number}-{connections}", requests, connections)
            if number:
                seen[system.name].append(sample)
    return seen


def run(on: Stage, rounds: int, requests: int, concurrency: int) -> str:
    """Two tables in Markdown."""
    accepting = Settings(policy=f"{POLICY}, execution: async, concurrency: {concurrency}, max_pending: {{principal: 100000}}", more=KEY)
    systems = [start_gateway(on, "synchronous"), start_gateway(on, "accepted", settings=accepting)]
    lines = ["| | connections | operations/s | CPU us an operation | x synchronous | answered within s |", "| --- |" + " ---: |" * 5]
    tables = ["", "| from acceptance to the first byte | p50 ms | p99 ms |", "| --- | ---: | ---: |"]
    for connections, count in ((1, requests // 10), (64, requests)):
        before = waits(on, systems[1])
        seen = uvloop.run(rounds_of(on, systems, rounds, count, connections))
        after = waits(on, systems[1])
        base = statistics.median(sample.cpu for sample in seen["synchronous"])
        for name, samples in seen.items():
            rate, cpu, answered = (statistics.median(getattr(sample, what) for sample in samples) for what in ("rate", "cpu", "answered"))
            lines.append(f"| {name} | {connections} | {rate:.0f} | {cpu * 1e6:.0f} | {cpu / base:.2f} | {answered:.2f} |")
        p50, p99 = (quantile(before, after, share) * 1e3 for share in (0.5, 0.99))
        tables.append(f"| {connections} connections, {concurrency} slots | {p50:.1f} | {p99:.1f} |")
    return "\n".join(lines + tables)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=64)
    arguments = parser.parse_args()
    with stage() as on:
        print(run(on, arguments.rounds, arguments.requests, arguments.concurrency))
