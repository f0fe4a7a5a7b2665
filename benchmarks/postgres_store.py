"""CPU and time of reserves and completes on the client's side, by number of requests in flight.

    python -m benchmarks.postgres_store [ROWS] [ROUNDS]

Starts a Postgres of its own. CPU is this process' user and system time, so that the server's does not count. Of so many rounds the least is
told, since a busy machine only adds. `routes` is how many routes take turns in a batch: each has terms of its own.
"""

import asyncio
import secrets
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

from gateway.core.model import Fingerprint, Intent, Lease, Record, RecordKey, StoredResponse, Terms
from gateway.devtools.embedded import start_postgres
from gateway.ports import Retention
from gateway.store.migrate import migrate
from gateway.store.postgres import PostgresStore

BODY = b'{"id": "ch_3MmlLrLkdIwHu7ix0snN0B15", "object": "charge", "amount": 1099, "currency": "usd"}' * 4
RESPONSE = StoredResponse(
    201,
    b"Created",
    ((b"Content-Type", b"application/json"), (b"Location", b"/v1/charges/ch_1"), (b"Date", b"Tue, 15 Nov 1994 08:12:31 GMT")),
    BODY,
    len(BODY),
    sha256(BODY).digest(),
)
RETENTION = Retention(86400.0)
POLICY_DIGEST = bytes(32)
IN_FLIGHT = (1, 16, 64)
ROUTES = tuple(Terms(f"route-{number}", 30.0, 120.0) for number in range(10))

Ask = Callable[[Any], Awaitable[Any]]


def intent(terms: Terms) -> Intent:
    key = RecordKey("payments:header.0123456789012345678901234567890123456789012", secrets.token_hex(16))
    fingerprint = Fingerprint(1, POLICY_DIGEST, secrets.token_bytes(32))
    return Intent(key, fingerprint, secrets.token_bytes(16), terms, secrets.token_hex(8), "POST", b"/v1/charges")


def intents(count: int, routes: int) -> list[Intent]:
    return [intent(ROUTES[number % routes]) for number in range(count)]


async def run(ask: Ask, items: Sequence[Any], in_flight: int) -> tuple[float, list[Any]]:
    """Seconds of CPU, and the answers."""
    answers: list[Any] = []
    waiting = iter(items)

    async def client() -> None:
        for item in waiting:
            answers.append(await ask(item))  # noqa: PERF401 (clients take turns)

    cpu = time.process_time()
    await asyncio.gather(*[client() for _ in range(in_flight)])
    return time.process_time() - cpu, answers


async def measure(store: PostgresStore, in_flight: int, rows: int, routes: int) -> tuple[float, float, float]:
    """Microseconds of CPU a reserve, a complete and a replay."""
    wanted = intents(rows, routes)
    reserve, leases = await run(store.reserve, wanted, in_flight)
    assert all(isinstance(lease, Lease) for lease in leases)
    complete, _ = await run(lambda lease: store.complete(lease, RESPONSE, RETENTION), leases, in_flight)
    again = [replace(each, owner=secrets.token_bytes(16)) for each in wanted]
    replay, records = await run(store.reserve, again, in_flight)
    assert all(isinstance(record, Record) for record in records)
    return reserve / rows * 1e6, complete / rows * 1e6, replay / rows * 1e6


async def lone(store: PostgresStore, count: int) -> tuple[list[float], list[float]]:
    """Microseconds that each of so many lone reserves and completes took."""
    took: tuple[list[float], list[float]] = ([], [])
    for wanted in intents(count, 1):
        started = time.perf_counter()
        lease = await store.reserve(wanted)
        reserved = time.perf_counter()
        assert isinstance(lease, Lease)
        await store.complete(lease, RESPONSE, RETENTION)
        took[0].append((reserved - started) * 1e6)
        took[1].append((time.perf_counter() - reserved) * 1e6)
    return took


async def main(dsn: str, rows: int, rounds: int) -> None:
    await migrate(dsn)
    store = PostgresStore(dsn, pool_size=8, timeout=10)
    await measure(store, 64, 500, 1)
    for in_flight, routes in [*((number, 1) for number in IN_FLIGHT), (16, len(ROUTES)), (64, len(ROUTES))]:
        figures = [await measure(store, in_flight, rows if in_flight > 1 else rows // 4, routes) for _ in range(rounds)]
        reserve, complete, replay = [min(each) for each in zip(*figures, strict=True)]
        told = f"reserve {reserve:6.1f}, complete {complete:6.1f}, replay {replay:6.1f} us CPU"
        print(f"{in_flight:3d} in flight, {routes:2d} routes: {told}", flush=True)
    reserves, completes = await lone(store, rows)
    for name, took in (("reserve", reserves), ("complete", completes)):
        print(f"a lone {name}: {min(took):.0f} us at best, {median(took):.0f} us at p50")
    await store.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        server = start_postgres(Path(folder) / "postgres")
        try:
            given = [int(argument) for argument in sys.argv[1:]]
            uvloop.run(main(server.dsn, *[*given, *(4000, 5)[len(given) :]]))
        finally:
            server.stop()
