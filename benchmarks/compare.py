"""The gateway against a plain aiohttp proxy: CPU per request and throughput, for new keys and for replays, with and without Redis.

    python -m benchmarks.compare [--connections 64] [--requests 20000] [--rounds 3]

Everything runs on this machine: Postgres with fsync on and Redis from the `embedded` extra, one upstream, one load generator. The systems
take turns, round by round, so that a machine whose speed drifts treats them alike; compare the ratios, not the absolute figures.
CPU is that of the proxy's own process (user and system); Postgres and Redis are shown apart.
"""

import argparse
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks.load import Result, load
from gateway.devtools.embedded import start_postgres, start_redis
from gateway.devtools.embedded.launch import free_port

TICKS = os.sysconf("SC_CLK_TCK")
CONFIG = """
listen: 127.0.0.1:{port}
admin: {{listen: "127.0.0.1:{admin}"}}
postgres: {{dsn: "{dsn}"}}
redis: {{url: "{redis}"}}
digest_secret: a-secret-of-the-benchmark-0123456789
drain: {{delay: 0s, timeout: 75s}}
upstreams: {{payments: {{url: "http://127.0.0.1:{upstream}"}}}}
routes:
  - id: create-charge
    methods: [POST]
    path: /v1/charges
    upstream: payments
    idempotency: {{principal: [{{header: Authorization}}]}}
  - {{id: rest, path: /**, upstream: payments}}
"""


@dataclass(frozen=True, slots=True)
class System:
    """Something to measure. `keys` None: a new key for each request."""

    name: str
    port: int
    pid: int
    path: bytes = b"/v1/charges"
    keys: int | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One round of one system. CPU in seconds of the proxy's process for each request."""

    rate: float
    cpu: float
    p50: float
    p99: float


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def process(*command: str, port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Python module until the block ends; ready once `port` accepts."""
    with log.open("wb") as output, subprocess.Popen([sys.executable, *command], stdout=output, stderr=output) as child:
        try:
            for _ in range(200):
                if child.poll() is not None:
                    raise RuntimeError(f"{command} ended: {log.read_text()}")
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            yield child
        finally:
            child.terminate()


def newest_redis() -> Path | None:
    """A `redis-server` of version 7 or newer on the PATH, which needs no script for a reserve; else None: the extra's."""
    found = shutil.which("redis-server")
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout if found else ""
    version = re.search(r"v=(\d+)", told)
    return Path(found) if found and version and int(version[1]) >= 7 else None


def start_gateway(stack: ExitStack, folder: Path, name: str, dsn: str, redis: str, upstream: int) -> tuple[int, int]:
    """Start one gateway as production runs it; returns its port and pid. The access log goes to a file."""
    port, admin = free_port(), free_port()
    config = folder / f"{name}.yaml"
    config.write_text(CONFIG.format(port=port, admin=admin, dsn=dsn, redis=redis, upstream=upstream))
    subprocess.run([sys.executable, "-m", "gateway", "migrate", "--config", str(config)], check=True, capture_output=True)
    child = stack.enter_context(process("-m", "gateway", "serve", "--config", str(config), port=port, log=folder / f"{name}.log"))
    return port, child.pid


async def measure(system: System, connections: int, requests: int, prefix: str) -> Sample:
    """One round. Replays get their keys stored first."""
    if system.keys is not None:
        await load(system.port, connections=16, requests=system.keys, prefix=prefix, path=system.path)
    before = cpu_seconds(system.pid)
    result: Result = await load(system.port, connections=connections, requests=requests, prefix=prefix, keys=system.keys, path=system.path)
    used = cpu_seconds(system.pid) - before
    unexpected = {status: count for status, count in result.statuses.items() if status != 201}
    if unexpected or result.requests != requests:
        raise SystemExit(f"{system.name}: {result.requests} answers, unexpected statuses {unexpected}")
    return Sample(result.rate, used / result.requests, result.percentile(0.5), result.percentile(0.99))


def table(samples: dict[str, list[Sample]]) -> str:
    """Medians over the rounds, and their ratio to the first system's, pair by pair."""
    base = next(iter(samples.values()))
    lines = [f"{'system':34} {'req/s':>8} {'x':>6} {'CPU us/req':>11} {'x':>6} {'p50 ms':>8} {'p99 ms':>8}"]
    for name, rounds in samples.items():
        rate = statistics.median(sample.rate for sample in rounds)
        cpu = statistics.median(sample.cpu for sample in rounds)
        rates = statistics.median(mine.rate / theirs.rate for mine, theirs in zip(rounds, base, strict=True))
        cpus = statistics.median(mine.cpu / theirs.cpu for mine, theirs in zip(rounds, base, strict=True))
        p50 = statistics.median(sample.p50 for sample in rounds) * 1e3
        p99 = statistics.median(sample.p99 for sample in rounds) * 1e3
        lines.append(f"{name:34} {rate:8.0f} {rates:6.2f} {cpu * 1e6:11.1f} {cpus:6.2f} {p50:8.2f} {p99:8.2f}")
    return "\n".join(lines)


async def compare(systems: list[System], connections: int, requests: int, rounds: int) -> dict[str, list[Sample]]:
    """Rounds in turn over all systems, after one that is not counted."""
    samples: dict[str, list[Sample]] = {system.name: [] for system in systems}
    for number in range(rounds + 1):
        for system in systems:
            size = requests if number else max(1000, requests // 10)
            sample = await measure(system, connections, size, f"{os.getpid()}-{connections}-{number}-{system.port}")
            if number:
                samples[system.name].append(sample)
                print(f"  round {number} {system.name}: {sample.rate:.0f} req/s, {sample.cpu * 1e6:.1f} us", file=sys.stderr)
    return samples


def main() -> None:
    """Start everything, measure, print a table for each number of connections."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, nargs="+", default=[64])
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-benchmark-")))
        folder.chmod(0o755)
        postgres = start_postgres(folder / "postgres")
        stack.callback(postgres.stop)
        redis = start_redis(folder / "redis", binary=newest_redis())
        stack.callback(redis.stop)
        upstream, plain = free_port(), free_port()
        stack.enter_context(process("-m", "benchmarks.upstream", str(upstream), port=upstream, log=folder / "upstream.log"))
        plain_pid = stack.enter_context(
            process("-m", "benchmarks.plain_proxy", str(plain), f"http://127.0.0.1:{upstream}", port=plain, log=folder / "plain.log")
        ).pid
        port, pid = start_gateway(stack, folder, "gateway", postgres.dsn, redis.url, upstream)
        bare_port, bare_pid = start_gateway(stack, folder, "gateway-without-redis", postgres.dsn, "", upstream)
        systems = [
            System("plain aiohttp proxy", plain, plain_pid),
            System("gateway, unguarded route", port, pid, b"/other"),
            System("gateway, new keys", port, pid),
            System("gateway, replays", port, pid, keys=512),
            System("gateway without Redis, new keys", bare_port, bare_pid),
            System("gateway without Redis, replays", bare_port, bare_pid, keys=512),
        ]
        for connections in arguments.connections:
            samples = uvloop.run(compare(systems, connections, arguments.requests, arguments.rounds))
            print(f"\n{connections} connections, {arguments.requests} requests a round, median of {arguments.rounds} rounds")
            print(table(samples))


if __name__ == "__main__":
    main()
