"""A load generator that is cheaper than what it measures: keep-alive connections with one request in flight on each.

No two requests are the same: each has a trace of its own, and the body belongs to the key, so that nothing that remembers a whole head or
body gains by it.
"""

import asyncio
import itertools
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import cast

BODY = b'{"account":"acct_%08d","amount":%d,"currency":"EUR","description":"order %d of a customer, %b"}'
HEAD = (
    b"POST %b HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: load/1\r\nAccept: */*\r\nAuthorization: Bearer tenant-%d\r\n"
    b"Content-Type: application/json\r\ntraceparent: 00-%016x%016x-%016x-01\r\nIdempotency-Key: %b\r\nContent-Length: %d\r\n\r\n"
)
SPREAD = 0x9E3779B97F4A7C15
"""Multiplied with a number modulo 2**64, it gives another one that looks like none of its neighbours."""
MASK = 2**64 - 1


@dataclass(slots=True)
class Result:
    """What one run saw. `latencies` are seconds, one for each answer."""

    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return len(self.latencies)

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    def percentile(self, share: float) -> float:
        """Latency in seconds below which `share` of the answers came."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def request(path: bytes, prefix: bytes, key: int, trace: int, tenants: int = 1) -> bytes:
    """One request: the key looks random, the body and one of `tenants` callers are the key's, the trace the request's."""
    body = BODY % (key, 100 + key % 9000, key, b"y" * (80 + key % 40))
    name = b"%b-%016x" % (prefix, (key + 1) * SPREAD & MASK)
    mixed = (trace + 1) * SPREAD & MASK
    return HEAD % (path, 1 + key % tenants, mixed, mixed ^ MASK, mixed >> 1 | 1, name, len(body)) + body


class _Connection(asyncio.Protocol):
    def __init__(self, run: "_Run") -> None:
        self.run = run
        self.buffer = b""
        self.sent = 0.0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        self.run.ended(self)

    def send(self) -> None:
        following = self.run.next_request()
        assert self.transport is not None
        if following is None:
            self.transport.close()
            return
        self.sent = time.perf_counter()
        self.transport.write(following)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self.buffer[:end].lower()
        at = head.find(b"content-length:")
        if at >= 0:
            if len(self.buffer) < end + 4 + int(head[at + 15 :].partition(b"\r\n")[0]):
                return
        elif head.find(b"transfer-encoding:") >= 0 and not self.buffer.endswith(b"0\r\n\r\n"):
            return
        self.run.result.latencies.append(time.perf_counter() - self.sent)
        self.run.result.statuses[int(self.buffer[9:12])] += 1
        self.buffer = b""
        self.send()


class _Run:
    def __init__(self, requests: int, path: bytes, prefix: str, keys: int | None, tenants: int) -> None:
        self.left = requests
        self.path = path
        self.prefix = prefix.encode()
        self.tenants = tenants
        self.keys = itertools.count() if keys is None else itertools.cycle(range(keys))
        self.result = Result()
        self.open = 0
        self.done = asyncio.get_running_loop().create_future()

    def next_request(self) -> bytes | None:
        if self.left == 0:
            return None
        self.left -= 1
        return request(self.path, self.prefix, next(self.keys), self.left, self.tenants)

    def ended(self, _: _Connection) -> None:
        self.open -= 1
        if self.open == 0 and not self.done.done():
            self.done.set_result(None)


async def load(
    port: int, *, connections: int, requests: int, prefix: str, keys: int | None = None, path: bytes = b"/v1/charges", tenants: int = 1
) -> Result:
    """Send `requests` requests over `connections` connections, of so many callers. `keys` None: each has a new key; else so
    many keys in turn.
    """
    run = _Run(requests, path, prefix, keys, tenants)
    run.open = connections
    started = time.perf_counter()
    loop = asyncio.get_running_loop()
    await asyncio.gather(*(loop.create_connection(lambda: _Connection(run), "127.0.0.1", port) for _ in range(connections)))
    await run.done
    run.result.seconds = time.perf_counter() - started
    return run.result
