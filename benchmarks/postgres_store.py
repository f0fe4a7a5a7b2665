"""CPU of one reserve+complete pair on the client's side, by number of requests in flight.

    python -m benchmarks.postgres_store [PAIRS]

Starts a Postgres of its own. CPU is this process' user and system time, so that the server's does not count.
"""

import asyncio
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import uvloop

from gateway.core.model import Fingerprint, Intent, Lease, RecordKey, StoredResponse, Terms
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


TERMS = Terms("create-charge", 30.0, 120.0)


def intent() -> Intent:
    fingerprint = Fingerprint(1, bytes(32), secrets.token_bytes(32))
    key = RecordKey("payments:header.0123456789012345678901234567890123456789012", secrets.token_hex(16))
    return Intent(key, fingerprint, secrets.token_bytes(16), TERMS, secrets.token_hex(8), "POST", b"/v1/charges")


async def client(store: PostgresStore, intents: Iterator[Intent]) -> None:
    for wanted in intents:
        lease = await store.reserve(wanted)
        assert isinstance(lease, Lease)
        await store.complete(lease, RESPONSE, Retention(86400.0))


async def measure(store: PostgresStore, in_flight: int, pairs: int) -> str:
    intents = iter([intent() for _ in range(pairs)])
    cpu, started = time.process_time(), time.monotonic()
    await asyncio.gather(*[client(store, intents) for _ in range(in_flight)])
    cpu, elapsed = time.process_time() - cpu, time.monotonic() - started
    latency = in_flight * elapsed / pairs * 1000
    return f"{in_flight:4d} in flight: {cpu / pairs * 1e6:6.1f} us CPU a pair, {pairs / elapsed:7.0f} pairs/s, {latency:6.2f} ms a pair"


async def main(dsn: str, pairs: int) -> None:
    await migrate(dsn)
    store = PostgresStore(dsn, pool_size=8, timeout=10)
    await measure(store, 8, 500)
    for in_flight in (1, 8, 32, 64, 128, 256):
        print(await measure(store, in_flight, min(pairs, 1000 * in_flight)))
    await store.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        server = start_postgres(Path(folder) / "postgres")
        try:
            uvloop.run(main(server.dsn, int(sys.argv[1]) if len(sys.argv) > 1 else 20_000))
        finally:
            server.stop()
