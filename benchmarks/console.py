"""How long the console's pages and the admin API take over many records.

    python -m benchmarks.console [--rows 1000000]

A gateway without traffic, over so many completed records of a thousand callers, 20,000 in doubt (half of them dead letters, with captured
amounts) and 100,000 lines of audit. Each page is asked for 21 times, one after the other; the first, which finds caches cold, has a column
of its own. What is measured is from the request's first byte to the answer's last, so a little more than what the server needs.
"""

import argparse
import asyncio
import re
import statistics
import time

import aiohttp
import asyncpg

from benchmarks.rows import fill
from benchmarks.systems import POLICY, Settings, Stage, stage, start_gateway

ROUNDS = 20
DOUBTFUL, LINES = 20_000, 100_000
CAPTURING = Settings(policy=f"{POLICY}, reconcile: {{capture: {{amount: /amount}}}}")
IN_DOUBT = """
INSERT INTO gateway_records (
    scope_id, idempotency_key, record_id, route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy, status,
    owner, request_method, request_target, max_execution, unknown_since, reconcile_after, dead_lettered_at, last_error_code, captured
)
SELECT 'create-charge:' || md5((n % 1000)::text), 'doubt-' || md5(n::text), gen_random_uuid(), 'create-charge', 'd-' || n,
    sha256(n::text::bytea), 3, sha256('p'), 'unknown', decode(md5(n::text), 'hex'), 'POST', '\\x2f76312f63686172676573', interval '2 min',
    now() - n * interval '1 s', now() + interval '1 day', CASE WHEN n % 2 = 0 THEN now() - n * interval '1 s' END, 'lease_expired',
    jsonb_build_object('amount', (n * 7919 % 100003)::text)
FROM generate_series(1, $1::int) AS n
"""
AUDIT = """
INSERT INTO gateway_audit (actor, action, reason, scope_id, idempotency_key, record_id)
SELECT 'ada', 'resolve', 'INC-' || n, 'create-charge:' || md5((n % 1000)::text), 'live-' || md5(n::text), gen_random_uuid()
FROM generate_series(1, $1::int) AS n
"""


async def prepare(dsn: str, count: int) -> tuple[str, str]:
    """Fill the database. The key and the scope id of one record in the middle."""
    await fill(dsn, count)
    connection = await asyncpg.connect(dsn)
    await connection.execute(IN_DOUBT, DOUBTFUL, timeout=600)
    await connection.execute(AUDIT, LINES, timeout=600)
    await connection.execute("VACUUM ANALYZE gateway_records", timeout=600)
    await connection.execute("VACUUM ANALYZE gateway_audit", timeout=600)
    row = await connection.fetchrow("SELECT 'live-' || md5($1::text), 'create-charge:' || md5(($2::int)::text)", str(count // 2), 500)
    await connection.close()
    assert row is not None
    return str(row[0]), str(row[1])


def places(key: str, scope_id: str) -> dict[str, str]:
    """What is asked for, by its name."""
    records = "/console/records"
    return {
        "Now": "/console/now",
        "Records": records,
        "Records, by key": f"{records}?by=key&q={key}",
        "Records, by caller": f"{records}?by=scope_id&q={scope_id}",
        "Records, by request id (first page of the walk)": f"{records}?by=request_id&q=r-77",
        "Records, by route and time": f"{records}?route=create-charge&since=2026-01-01",
        "Records, unknown": f"{records}?state=unknown",
        "Records, completed": f"{records}?state=completed",
        "Records, in flight": f"{records}?state=in_progress",
        "Dead letters, the oldest first": "/console/dead-letters",
        "Dead letters, the largest first": "/console/dead-letters?order=amount",
        "Audit": "/console/audit",
        "API: records": "/admin/v1/records?limit=50",
        "API: dead letters by amount": "/admin/v1/dead-letters/by-amount?capture=amount&limit=50",
    }


async def ask(port: int, asked: dict[str, str]) -> list[str]:
    """A line in Markdown for each."""
    lines = []
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        for name, path in asked.items():
            took, size = [], 0
            for _ in range(1 + ROUNDS):
                begun = time.perf_counter()
                async with session.get(path) as response:
                    size = len(await response.read())
                    response.raise_for_status()
                took.append((time.perf_counter() - begun) * 1e3)
            first, *rest = took
            lines.append(f"| {name} | {first:.0f} | {statistics.median(rest):.0f} | {max(rest):.0f} | {size / 1024:.0f} |")
    return lines


def run(on: Stage, count: int) -> str:
    """The table in Markdown."""
    dsn = on.database("large")
    key, scope_id = asyncio.run(prepare(dsn, count))
    start_gateway(on, "large", dsn=dsn, settings=CAPTURING)
    told = re.search(r'admin: \{listen: "127\.0\.0\.1:(\d+)"\}', (on.folder / "large.yaml").read_text())
    assert told is not None
    head = [f"{count:,} completed, {DOUBTFUL:,} unknown, {LINES:,} lines of audit", ""]
    head += ["| page | first ms | p50 ms | longest ms | KiB |", "| --- | ---: | ---: | ---: | ---: |"]
    return "\n".join([*head, *asyncio.run(ask(int(told[1]), places(key, scope_id)))])


def main() -> None:
    """Start everything, measure, print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    count = parser.parse_args().rows
    with stage() as on:
        print(run(on, count))


if __name__ == "__main__":
    main()
