"""Many live records: the rate of new keys against an empty table, and the reaper beside traffic."""

import asyncio
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg
import uvloop

from benchmarks.load import Result, load
from benchmarks.rounds import in_turns, ratio
from benchmarks.systems import Stage, start_gateway

CHUNK = 100_000
FILL = """
INSERT INTO gateway_records (
    scope_id, idempotency_key, record_id, route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy, status,
    owner, request_method, request_target, max_execution, response_status_code, response_reason, response_headers, response_body,
    response_body_length, response_body_digest, response_schema_version, completed_at, expires_at
)
SELECT 'create-charge:' || md5((n % 1000)::text), $1 || md5(n::text), gen_random_uuid(), 'create-charge', 'r-' || n,
    sha256(n::text::bytea), 3, sha256('p'), 'completed', decode(md5(n::text), 'hex'), 'POST', '\\x2f76312f63686172676573', interval '2 min',
    201, 'Created', convert_to(repeat('content-type: application/json ', 6), 'UTF8'), convert_to(repeat('x', 240), 'UTF8'), 240,
    sha256('b'), 1, now(), to_timestamp($4::float8)
FROM generate_series($2::int, $3::int) AS n
"""
ALONE = 15.0
LONGEST = 180.0


async def _fill(dsn: str, prefix: str, count: int, expires: float) -> None:
    """So many completed records that expire together, at an instant in seconds since the epoch."""
    connection = await asyncpg.connect(dsn)
    for first in range(0, count, CHUNK):
        await connection.execute(FILL, prefix, first + 1, min(first + CHUNK, count), expires, timeout=600)
    await connection.execute("VACUUM ANALYZE gateway_records", timeout=3600)
    await connection.execute("CHECKPOINT", timeout=3600)
    await connection.close()


async def _beside(port: int, prefix: str, ended: Callable[[], bool]) -> Result:
    """New keys on 16 connections, until `ended`."""
    whole, number = Result(), 0
    while not ended():
        part = await load(port, connections=16, requests=1000, prefix=f"{prefix}-{number}")
        whole.seconds += part.seconds
        whole.latencies += part.latencies
        number += 1
    return whole


async def _reaped(dsn: str, count: int) -> float:
    """Seconds from the first of so many expired records that is gone to the last."""
    connection = await asyncpg.connect(dsn)
    began = time.monotonic()
    while time.monotonic() < began + LONGEST:
        left = await connection.fetchval("SELECT count(*) FROM gateway_records WHERE expires_at <= now()", timeout=600)
        if left == count:
            began = time.monotonic()
        elif left == 0:
            break
        await asyncio.sleep(0.5)
    await connection.close()
    return time.monotonic() - began


async def _reaping(dsn: str, port: int, count: int) -> str:
    """Traffic alone, then while so many records that expire at one instant are reaped."""
    prefix = f"reap-{os.getpid()}"
    until = time.monotonic() + ALONE
    alone = await _beside(port, prefix, lambda: time.monotonic() > until)
    expires = time.time() + 15 + count / 5000  # noqa: TID251 - the database's clock is this machine's
    await _fill(dsn, "expired-", count, expires)
    await asyncio.sleep(max(0.0, expires - time.time()))  # noqa: TID251 - as above
    watching = asyncio.create_task(_reaped(dsn, count))
    busy = await _beside(port, prefix + "-busy", watching.done)
    reaped = count / await watching
    p99 = (alone.percentile(0.99) * 1e3, busy.percentile(0.99) * 1e3)
    return (
        f"\nReaper beside new keys on 16 connections: {count} expired records reaped at {reaped:.0f}/s beside {busy.rate:.0f} inserted/s "
        f"({reaped / busy.rate:.1f} x), p99 {p99[0]:.1f} ms alone, {p99[1]:.1f} ms beside it ({p99[1] / p99[0]:.2f} x)"
    )


def run(on: Stage, count: int, requests: int, rounds: int, tree: Path | None) -> str:
    """A table in Markdown, and a line on the reaper."""
    full = on.database("full")
    systems = [start_gateway(on, "empty table", tree=tree), start_gateway(on, f"{count} live records", dsn=full, tree=tree)]
    asyncio.run(_fill(full, "live-", count, time.time() + 86_400))  # noqa: TID251 - the database's clock is this machine's
    samples = uvloop.run(in_turns(systems, 64, requests, rounds))
    base = samples["empty table"]
    lines = [f"New keys, 64 connections, {requests} requests a round, {rounds} rounds in turns", ""]
    lines += ["| | requests/s | x empty | p50 ms | p99 ms | x empty |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for name, seen in samples.items():
        rate, p50, p99 = (statistics.median(of) for of in zip(*((one.rate, one.p50 * 1e3, one.p99 * 1e3) for one in seen), strict=True))
        rates, ends = ratio(seen, base, lambda one: one.rate), ratio(seen, base, lambda one: one.p99)
        lines.append(f"| {name} | {rate:.0f} | {rates:.2f} | {p50:.1f} | {p99:.1f} | {ends:.2f} |")
    lines.append(uvloop.run(_reaping(full, systems[1].port, min(count, 200_000))))
    return "\n".join(lines)
