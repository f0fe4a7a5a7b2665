"""Many live records, in one table and in partitions: new keys and replays against an empty table, the reaper beside traffic, bytes."""

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import asyncpg
import uvloop

from benchmarks.load import Result, load
from benchmarks.rounds import Sample, in_turns, ratio
from benchmarks.systems import Settings, Stage, System, start_gateway
from gateway.store.migrate import migrate
from gateway.store.partitions import partition

CHUNK = 500_000
TENANTS = 1000
FAST = "SET synchronous_commit = off; SET maintenance_work_mem = '768MB'"
ALL = """
SELECT pg_get_indexdef(indexrelid) AS made, format('DROP INDEX %s', indexrelid::regclass) AS dropped
FROM pg_index
WHERE indrelid = 'gateway_records'::regclass AND NOT indisprimary
UNION ALL
SELECT
    format('ALTER TABLE gateway_records ADD CONSTRAINT %I %s', conname, replace(pg_get_constraintdef(oid), ' NOT VALID', '')),
    format('ALTER TABLE gateway_records DROP CONSTRAINT %I', conname)
FROM pg_constraint
WHERE conrelid = 'gateway_records'::regclass AND contype IN ('c', 'p')
"""
"""What a table is filled without, and gets back."""
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
SIZES = """
SELECT sum(pg_total_relation_size(oid)), sum(pg_table_size(oid))
FROM pg_class
WHERE oid = 'gateway_records'::regclass OR oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'gateway_records'::regclass)
"""
FROM_POSTGRES = Settings(more="memory: {replay_cache_ttl: 0s}")
DELETED = """SELECT sum(n_tup_del)::bigint FROM pg_stat_user_tables t WHERE relname = 'gateway_records'
OR EXISTS (SELECT FROM pg_inherits WHERE inhrelid = t.relid AND inhparent = 'gateway_records'::regclass)"""
ALONE = 15.0
LONGEST = 180.0


@dataclass(frozen=True, slots=True)
class Table:
    """A database to measure, and what its records are called."""

    name: str
    dsn: str


async def fill(dsn: str, count: int) -> None:
    """So many live records, the indexes made afterwards."""
    await migrate(dsn)
    connection = await asyncpg.connect(dsn)
    await connection.execute(FAST)
    parts = await connection.fetch(ALL)
    for part in parts:
        await connection.execute(part["dropped"])
    await _insert(connection, "live-", count, time.time() + 86_400)  # noqa: TID251 - the database's clock is this machine's
    for part in parts:
        await connection.execute(part["made"], timeout=3600)
    await connection.execute("VACUUM ANALYZE gateway_records", timeout=3600)
    await connection.close()


async def divide(admin: str, dsn: str, name: str, partitions: int) -> str:
    """The DSN of a copy of a database, divided."""
    copy = dsn.rpartition("/")[0] + "/" + name
    connection = await asyncpg.connect(admin)
    await connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{dsn.rpartition("/")[2]}" STRATEGY FILE_COPY', timeout=3600)
    await connection.close()
    await partition(copy, partitions)
    connection = await asyncpg.connect(copy)
    await connection.execute("VACUUM ANALYZE gateway_records", timeout=3600)
    await connection.execute("CHECKPOINT", timeout=3600)
    await connection.close()
    return copy


async def _insert(connection: "asyncpg.Connection[asyncpg.Record]", prefix: str, count: int, expires: float) -> None:
    for first in range(0, count, CHUNK):
        await connection.execute(FILL, prefix, first + 1, min(first + CHUNK, count), expires, timeout=3600)


async def _expiring(dsn: str, count: int, expires: float) -> None:
    """So many completed records that expire together, at an instant in seconds since the epoch."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(FAST)
    await _insert(connection, "expired-", count, expires)
    await connection.close()
    await _checkpoint(dsn)


async def _checkpoint(dsn: str) -> None:
    """After it the first change of each page is a whole page of log: both measurements begin with one."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("CHECKPOINT", timeout=3600)
    await connection.close()


async def _beside(port: int, prefix: str, ended: Callable[[], bool]) -> Result:
    """New keys on 16 connections, until `ended`."""
    whole, number = Result(), 0
    while not ended():
        part = await load(port, connections=16, requests=1000, prefix=f"{prefix}-{number}", tenants=TENANTS)
        whole.seconds += part.seconds
        whole.latencies += part.latencies
        number += 1
    return whole


async def _reaped(dsn: str, count: int) -> float:
    """Seconds from the first of so many expired records that is gone to the last. The server's statistics tell, since to count the records
    would be work beside the reaper's.
    """
    connection = await asyncpg.connect(dsn)
    before, began = await connection.fetchval(DELETED), time.monotonic()
    while time.monotonic() < began + LONGEST and (gone := await connection.fetchval(DELETED) - before) < count:
        if gone == 0:
            began = time.monotonic()
        await asyncio.sleep(0.5)
    await connection.close()
    return time.monotonic() - began


async def _reaping(table: Table, port: int, count: int) -> str:
    """Traffic beside so many records that are about to expire, then while they are reaped."""
    prefix = f"reap-{os.getpid()}-{port}"
    expires = time.time() + 30 + count / 3000 + ALONE  # noqa: TID251 - the database's clock is this machine's
    await _expiring(table.dsn, count, expires)
    until = time.monotonic() + ALONE
    alone = await _beside(port, prefix, lambda: time.monotonic() > until)
    await _checkpoint(table.dsn)
    await asyncio.sleep(max(0.0, expires - time.time()))  # noqa: TID251 - as above
    watching = asyncio.create_task(_reaped(table.dsn, count))
    busy = await _beside(port, prefix + "-busy", watching.done)
    reaped = count / await watching
    p99 = (alone.percentile(0.99) * 1e3, busy.percentile(0.99) * 1e3)
    figures = f"{count} | {reaped:.0f} | {busy.rate:.0f} | {reaped / busy.rate:.1f} | {p99[0]:.1f} | {p99[1]:.1f} | {p99[1] / p99[0]:.2f}"
    return f"| {table.name} | {figures} |"


async def _size(table: Table) -> str:
    connection = await asyncpg.connect(table.dsn)
    whole, heap = await connection.fetchrow(SIZES) or (0, 0)
    count = await connection.fetchval("SELECT count(*) FROM gateway_records", timeout=600)
    await connection.close()
    each = f"{whole / count:.0f} | {heap / count:.0f} | {(whole - heap) / count:.0f}" if count else "| |"
    return f"| {table.name} | {count} | {whole / 2**20:.0f} | {each} |"


def _ratios(samples: dict[str, list[Sample]]) -> list[str]:
    """Lines in Markdown: medians, and ratios to the first system's, round by round."""
    base = next(iter(samples.values()))
    lines = ["", "| | requests/s | x empty | p50 ms | p99 ms | x empty |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for name, seen in samples.items():
        rate, p50, p99 = (statistics.median(of) for of in zip(*((one.rate, one.p50 * 1e3, one.p99 * 1e3) for one in seen), strict=True))
        rates, ends = ratio(seen, base, lambda one: one.rate), ratio(seen, base, lambda one: one.p99)
        lines.append(f"| {name} | {rate:.0f} | {rates:.2f} | {p50:.1f} | {p99:.1f} | {ends:.2f} |")
    return lines


def measured(on: Stage, tables: Sequence[Table], requests: int, rounds: int, reaped: int) -> str:
    """Tables in Markdown; the first of `tables` is the empty one."""
    lines = [f"{requests} requests a round of {TENANTS} callers on 64 connections, {rounds} rounds in turn"]
    started = [start_gateway(on, f"{table.name}, new keys", dsn=table.dsn) for table in tables]
    new = [System(system.name, system.port, system.pid, tenants=TENANTS) for system in started]
    lines += _ratios(uvloop.run(in_turns(new, 64, requests, rounds)))
    started = [
        start_gateway(on, f"{table.name}, replays from Postgres", dsn=table.dsn, redis="", settings=FROM_POSTGRES) for table in tables
    ]
    old = [System(system.name, system.port, system.pid, keys=2000, tenants=TENANTS) for system in started]
    lines += _ratios(uvloop.run(in_turns(old, 64, requests, rounds)))
    head = "| | expired | reaped/s | inserted/s beside | x | p99 ms alone | p99 ms beside | x |"
    lines += ["", head, "| --- |" + " ---: |" * 7]
    lines += [uvloop.run(_reaping(table, system.port, reaped)) for table, system in zip(tables, new, strict=True)]
    lines += ["", "| | records | MiB | bytes a record | table | indexes |", "| --- |" + " ---: |" * 5]
    lines += [uvloop.run(_size(table)) for table in tables]
    return "\n".join(lines)


def run(on: Stage, count: int, partitions: int, requests: int, rounds: int) -> str:
    """An empty table, one of `count` live records, and one of as many in partitions; in Markdown."""
    full = on.database("full")
    asyncio.run(fill(full, count))
    divided = asyncio.run(divide(on.dsn, full, "divided", partitions))
    tables = [Table("empty", on.dsn), Table(f"{count} live", full), Table(f"{count} live, {partitions} partitions", divided)]
    return measured(on, tables, requests, rounds, min(count, 100_000))
