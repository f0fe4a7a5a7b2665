"""Whether a backlog of unknown records slows traffic: its latency without one, with one that is not due, and while one is worked off.

    python -m benchmarks.reconcile [--backlog 100000] [--connections 8] [--requests 8000] [--rounds 3]

One gateway with its Postgres (fsync on), one upstream, one load generator, all on this machine. Rounds of the three kinds take turns, in
an order that turns, too, so that a machine whose speed drifts treats them alike: compare the ratios. What is due is due at once and every
look concludes, which is as much as a reconciler ever has to do. Postgres is vacuumed and checkpointed before each round, outside of what is
measured.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import uvloop

from benchmarks.load import Result, load
from benchmarks.systems import process, resident
from gateway.devtools.embedded import start_postgres
from gateway.devtools.embedded.ports import free_port

CONFIG = """
listen: 127.0.0.1:{port}
admin: {{listen: "127.0.0.1:{admin}"}}
postgres: {{dsn: "{dsn}"}}
digest_secret: a-secret-of-the-benchmark-0123456789
drain: {{delay: 0s, timeout: 75s}}
upstreams: {{payments: {{url: "http://127.0.0.1:{upstream}", max_execution: 60s}}}}
routes:
  - id: create-charge
    methods: [POST]
    path: /v1/charges
    upstream: payments
    idempotency:
      principal: [{{header: Authorization}}]
      reconcile:
        probe: lookup
        request: {{method: GET, path: "/v1/charges?key={{key}}"}}
        rules: [{{status: [201], verdict: executed}}, {{status: [404], verdict: not_executed}}]
  - {{id: rest, path: /**, upstream: payments}}
"""
FILL = """
INSERT INTO gateway_records (
    scope_id, idempotency_key, record_id, version, route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy,
    status, owner, attempt, request_method, request_target, max_execution, reconcilable, unknown_since, reconcile_after, doubtful_until,
    captured, last_error_code
)
SELECT 'create-charge:backlog', $1 || n, gen_random_uuid(), 2, 'create-charge', 'r-' || n, sha256(n::text::bytea), 1, sha256('p'),
    'unknown', decode(md5(n::text), 'hex'), 1, 'POST', '\\x2f', interval '60 s', true, now() - interval '1 hour',
    now() - interval '30 min' + make_interval(secs => $3::float8 - n / 1000.0), now() - interval '30 min',
    '{"key": "k"}', 'upstream_timeout'
FROM generate_series(1, $2::int) AS n
"""
NONE, WAITING, DUE = "none", "waiting", "due"


@dataclass(frozen=True, slots=True)
class Round:
    """What one round saw; `looks` that ended while it ran; `resident` KiB of the gateway after it."""

    result: Result
    looks: int
    resident: int

    def __str__(self) -> str:
        p50, p99 = (self.result.percentile(share) * 1e3 for share in (0.5, 0.99))
        return f"{self.result.rate:.0f} req/s, p50 {p50:.2f} ms, p99 {p99:.2f} ms, {self.looks} looks, {self.resident / 1024:.1f} MiB"


async def prepare(connection: "asyncpg.Connection[asyncpg.Record]", arm: str, backlog: int, prefix: str) -> None:
    """No unknown records but these."""
    await connection.execute("DELETE FROM gateway_records WHERE status = 'unknown' OR scope_id = 'create-charge:backlog'")
    if arm != NONE:
        await connection.execute(FILL, prefix, backlog, 0.0 if arm == DUE else 86400.0)
    await connection.execute("VACUUM ANALYZE gateway_records")
    await connection.execute("CHECKPOINT")


async def measure(
    connection: "asyncpg.Connection[asyncpg.Record]", port: int, pid: int, connections: int, requests: int, prefix: str
) -> Round:
    count = "SELECT count(*) FROM gateway_history"
    before = await connection.fetchval(count)
    result = await load(port, connections=connections, requests=requests, prefix=prefix)
    looks = await connection.fetchval(count) - before
    unexpected = {status: n for status, n in result.statuses.items() if status != 201}
    if unexpected or result.requests != requests:
        raise SystemExit(f"{result.requests} answers, unexpected statuses {unexpected}")
    return Round(result, looks, resident(pid))


async def compare(dsn: str, port: int, pid: int, arguments: argparse.Namespace) -> dict[str, list[Round]]:
    """Rounds in turn, after one of each that is not counted."""
    arms = (NONE, WAITING, DUE)
    rounds: dict[str, list[Round]] = {arm: [] for arm in arms}
    connection = await asyncpg.connect(dsn)
    try:
        for number in range(arguments.rounds + 1):
            first = number % len(arms)
            for arm in arms[first:] + arms[:first]:
                prefix = f"{os.getpid()}-{number}-{arm}-"
                await prepare(connection, arm, arguments.backlog, prefix)
                await asyncio.sleep(1)
                one = await measure(connection, port, pid, arguments.connections, arguments.requests, prefix)
                print(f"  round {number}, {arm}: {one}", file=sys.stderr)
                if number:
                    rounds[arm].append(one)
    finally:
        await connection.close()
    return rounds


def table(rounds: dict[str, list[Round]]) -> str:
    """Percentiles of the answers of all rounds together and their ratio to those without a backlog; and the median of p99's ratio, round by
    round, as an estimate that one bad round does not move.
    """
    lines = [f"{'unknown':>8} {'req/s':>7} {'p50 ms':>7} {'x':>6} {'p99 ms':>7} {'x':>6} {'by round':>9} {'looks/s':>8} {'RSS MiB':>8}"]
    together = {arm: Result(latencies=[seconds for one in seen for seconds in one.result.latencies]) for arm, seen in rounds.items()}
    for arm, seen in rounds.items():
        p50, p99 = (together[arm].percentile(share) for share in (0.5, 0.99))
        base50, base99 = (together[NONE].percentile(share) for share in (0.5, 0.99))
        pairs = [a.result.percentile(0.99) / b.result.percentile(0.99) for a, b in zip(seen, rounds[NONE], strict=True)]
        seconds = sum(one.result.seconds for one in seen)
        lines.append(
            f"{arm:>8} {together[arm].requests / seconds:7.0f} {p50 * 1e3:7.2f} {p50 / base50:6.2f} {p99 * 1e3:7.2f} {p99 / base99:6.2f} "
            f"{statistics.median(pairs):9.2f} {sum(one.looks for one in seen) / seconds:8.1f} "
            f"{max(one.resident for one in seen) / 1024:8.1f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Start everything, measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backlog", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--requests", type=int, default=8_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-benchmark-")))
        folder.chmod(0o755)
        postgres = start_postgres(folder / "postgres")
        stack.callback(postgres.stop)
        upstream, port, admin = free_port(), free_port(), free_port()
        stack.enter_context(process("-m", "benchmarks.upstream", str(upstream), port=upstream, log=folder / "upstream.log"))
        config = folder / "gateway.yaml"
        config.write_text(CONFIG.format(port=port, admin=admin, dsn=postgres.dsn, upstream=upstream))
        subprocess.run([sys.executable, "-m", "gateway", "migrate", "--config", str(config)], check=True, capture_output=True)
        gateway = stack.enter_context(process("-m", "gateway", "serve", "--config", str(config), port=port, log=folder / "gateway.log"))
        rounds = uvloop.run(compare(postgres.dsn, port, gateway.pid, arguments))
        print(f"\n{arguments.connections} connections, {arguments.requests} requests a round, {arguments.rounds} rounds of each kind")
        print(table(rounds))


if __name__ == "__main__":
    main()
