"""Measuring systems in turns, round by round, so that a machine whose speed drifts treats them alike."""

import os
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.load import load
from benchmarks.systems import System, cpu_seconds


@dataclass(frozen=True, slots=True)
class Sample:
    """One round of one system. CPU in seconds of the proxy's process for each request."""

    rate: float
    cpu: float
    p50: float
    p99: float


async def measure(system: System, connections: int, requests: int, prefix: str) -> Sample:
    """One round. Replays get their keys stored first: keys of their own, or new ones of the same gateway in this round would be replays."""
    prefix += "-new" if system.keys is None else "-told"
    if system.keys is not None:
        await load(system.port, connections=32, requests=system.keys, prefix=prefix, path=system.path, tenants=system.tenants)
    before = cpu_seconds(system.pid)
    result = await load(
        system.port,
        connections=connections,
        requests=requests,
        prefix=prefix,
        keys=system.keys,
        path=system.path,
        tenants=system.tenants,
    )
    used = cpu_seconds(system.pid) - before
    unexpected = {status: count for status, count in result.statuses.items() if status != 201}
    if unexpected or result.requests != requests:
        raise SystemExit(f"{system.name}: {result.requests} answers, unexpected statuses {unexpected}")
    return Sample(result.rate, used / result.requests, result.percentile(0.5), result.percentile(0.99))


async def in_turns(systems: Sequence[System], connections: int, requests: int, rounds: int) -> dict[str, list[Sample]]:
    """Rounds in turn over all systems, in an order that turns, too, after a round that is not counted."""
    samples: dict[str, list[Sample]] = {system.name: [] for system in systems}
    for number in range(rounds + 1):
        first = number % len(systems)
        for system in (*systems[first:], *systems[:first]):
            size = requests if number else max(1000, requests // 10)
            sample = await measure(system, connections, size, f"{os.getpid()}-{connections}-{number}-{system.port}")
            if number:
                samples[system.name].append(sample)
                print(f"  round {number} {system.name}: {sample.rate:.0f} req/s, {sample.cpu * 1e6:.1f} us", file=sys.stderr)
    return samples


def ratio(mine: Sequence[Sample], theirs: Sequence[Sample], of: Callable[[Sample], float]) -> float:
    """The median of the ratios, round by round."""
    return statistics.median(of(one) / of(other) for one, other in zip(mine, theirs, strict=True))


def table(samples: dict[str, list[Sample]]) -> str:
    """Medians over the rounds with the least CPU of any, and their ratio to the first system's, round by round; in Markdown."""
    base = next(iter(samples.values()))
    lines = ["| system | requests/s | x bare | CPU us | least | x bare | p50 ms | p99 ms |", "| --- |" + " ---: |" * 7]
    for name, rounds in samples.items():
        rate = statistics.median(sample.rate for sample in rounds)
        cpu = statistics.median(sample.cpu for sample in rounds) * 1e6
        p50 = statistics.median(sample.p50 for sample in rounds) * 1e3
        p99 = statistics.median(sample.p99 for sample in rounds) * 1e3
        least = min(sample.cpu for sample in rounds) * 1e6
        rates, cpus = ratio(rounds, base, lambda one: one.rate), ratio(rounds, base, lambda one: one.cpu)
        lines.append(f"| {name} | {rate:.0f} | {rates:.2f} | {cpu:.0f} | {least:.0f} | {cpus:.2f} | {p50:.2f} | {p99:.2f} |")
    return "\n".join(lines)
