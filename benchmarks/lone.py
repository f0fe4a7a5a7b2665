"""One request at a time: a new key's latency against its floor, the least that a durable answer takes on these stores.

The floor is a script that inserts a row and commits, asks the upstream, updates the row with the answer and commits: what any gateway that
keeps its promises has to wait for, without a client's connection, a fingerprint or a lease.
"""

import asyncio
import hashlib
import os
import statistics
import time
from pathlib import Path

import asyncpg
import uvloop

from benchmarks.load import Result, load, request
from benchmarks.systems import Stage, System, start_gateway

REQUESTS = 400
TABLE = """
CREATE TABLE IF NOT EXISTS floor (
    scope text COLLATE "C", key text COLLATE "C", fingerprint bytea, owner bytea, status text, locked_until timestamptz,
    code smallint, headers bytea, body bytea, expires_at timestamptz, PRIMARY KEY (scope, key)
)
"""
INSERT = """
INSERT INTO floor (scope, key, fingerprint, owner, status, locked_until)
VALUES ($1, $2, $3, $4, 'in_progress', now() + interval '30 s') ON CONFLICT DO NOTHING RETURNING locked_until
"""
UPDATE = """
UPDATE floor SET status = 'completed', locked_until = NULL, code = $4, headers = $5, body = $6, expires_at = now() + interval '1 day'
WHERE scope = $1 AND key = $2 AND owner = $3 RETURNING expires_at
"""


class _Upstream(asyncio.Protocol):
    """One keep-alive connection; the answer is one segment."""

    answered: asyncio.Future[bytes]
    transport: asyncio.BaseTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.answered.set_result(data)


async def _floor(on: Stage, prefix: str) -> Result:
    loop, result = asyncio.get_running_loop(), Result()
    connection = await asyncpg.connect(on.dsn)
    await connection.execute(TABLE)
    insert, update = await connection.prepare(INSERT), await connection.prepare(UPDATE)
    transport, upstream = await loop.create_connection(_Upstream, "127.0.0.1", on.upstream)
    began = time.perf_counter()
    for number in range(REQUESTS):
        started = time.perf_counter()
        raw = request(b"/v1/charges", prefix.encode(), number, number)
        owner, key = os.urandom(16), f"{prefix}-{number}"
        await insert.fetchval("charges:tenant", key, hashlib.sha256(raw).digest(), owner)
        upstream.answered = loop.create_future()
        transport.write(raw)
        head, _, body = (await upstream.answered).partition(b"\r\n\r\n")
        await update.fetchval("charges:tenant", key, owner, int(head[9:12]), head, body)
        result.latencies.append(time.perf_counter() - started)
    result.seconds = time.perf_counter() - began
    transport.close()
    await connection.close()
    return result


async def _rounds(on: Stage, systems: list[System], rounds: int) -> dict[str, list[Result]]:
    seen: dict[str, list[Result]] = {"floor": [], **{system.name: [] for system in systems}}
    for number in range(rounds + 1):
        prefix = f"lone-{os.getpid()}-{number}"
        results = {"floor": await _floor(on, prefix)}
        for system in systems:
            results[system.name] = await load(system.port, connections=1, requests=REQUESTS, prefix=f"{prefix}-{system.port}")
        if number:
            for name, result in results.items():
                seen[name].append(result)
    return seen


def run(on: Stage, rounds: int, tree: Path | None) -> str:
    """A table in Markdown."""
    systems = [start_gateway(on, "new key", tree=tree), start_gateway(on, "new key, without Redis", redis="", tree=tree)]
    seen = uvloop.run(_rounds(on, systems, rounds))
    lines = [f"{REQUESTS} requests one after the other, {rounds} rounds in turns", "", "| | p50 ms | least | x floor | p99 ms |"]
    lines.append("| --- | ---: | ---: | ---: | ---: |")
    for name, results in seen.items():
        halves, ends = ([result.percentile(share) * 1e3 for result in results] for share in (0.5, 0.99))
        ratios = [one.percentile(0.5) / other.percentile(0.5) for one, other in zip(results, seen["floor"], strict=True)]
        shown = (statistics.median(halves), min(halves), statistics.median(ratios), statistics.median(ends))
        lines.append("| {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} |".format(name, *shown))
    return "\n".join(lines)
