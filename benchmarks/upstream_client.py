"""CPU of one exchange with the upstream, on the gateway's side, by number of exchanges in flight.

    python -m benchmarks.upstream_client [--exchanges N] [--rounds N] [--against TREE]

Systems take turns, each in a process of its own: the floor (a bare httptools protocol, which checks nothing and limits nothing), the
gateway's client as routes use it, and with `--against` the client of another source tree. CPU is user and system time of that process.
"""

import argparse
import asyncio
import gc
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import httptools
import uvloop

HERE = Path(__file__).resolve().parent
HEADERS = (
    (b"Host", b"api.example.com"),
    (b"User-Agent", b"python-requests/2.32"),
    (b"Accept", b"*/*"),
    (b"Content-Type", b"application/json"),
    (b"Idempotency-Key", b"8e03978e-40d5-43dd-bc93-6894a57f9324"),
    (b"Authorization", b"Bearer 0123456789012345678901234567890123456789"),
    (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    (b"X-Forwarded-For", b"127.0.0.1"),
    (b"X-Forwarded-Proto", b"http"),
    (b"X-Forwarded-Host", b"api.example.com"),
    (b"Via", b"1.1 idempotency-gateway"),
    (b"X-Request-Id", b"0123456789abcdef0123456789abcdef"),
)
BODY = b'{"account":"alice","amount":100,"currency":"EUR","description":"' + b"x" * 120 + b'"}'
LIMIT = 64 * 1024
SLICE = 200

Call = Callable[[], Awaitable[bytes | None]]


class Bare(asyncio.Protocol):
    """One connection of the floor."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.body: list[bytes] = []
        self.transport: asyncio.Transport | None = None
        self.parser: httptools.HttpResponseParser | None = None
        self.answered: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def send(self, data: bytes, answered: "asyncio.Future[bytes]") -> None:
        self.answered, self.headers, self.body = answered, [], []
        self.parser = httptools.HttpResponseParser(self)
        assert self.transport is not None
        self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        assert self.parser is not None
        self.parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_body(self, data: bytes) -> None:
        self.body.append(data)

    def on_message_complete(self) -> None:
        assert self.answered is not None
        self.answered.set_result(b"".join(self.body))


def floor(port: int) -> Call:
    idle: list[Bare] = []

    async def call() -> bytes:
        loop = asyncio.get_running_loop()
        connection = idle.pop() if idle else (await loop.create_connection(Bare, "127.0.0.1", port))[1]
        lines = b"".join([b"%b: %b\r\n" % field for field in HEADERS])
        answered = loop.create_future()
        connection.send(b"POST /v1/charges HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (lines, len(BODY), BODY), answered)
        body: bytes = await answered
        idle.append(connection)
        return body

    return call


def client(port: int) -> Call:
    from gateway.ports import UpstreamRequest  # noqa: PLC0415 - of the tree that is measured
    from gateway.upstream import Balancer, Health, HttpUpstream, UpstreamSettings  # noqa: PLC0415 - as above

    url = f"http://127.0.0.1:{port}"
    balancer = Balancer([(url, HttpUpstream(UpstreamSettings(url)), Health(5, 10.0))])

    async def call() -> bytes | None:
        response = await balancer.send(UpstreamRequest(b"POST", b"/v1/charges", HEADERS, BODY), lambda: True)
        try:
            return await response.read(LIMIT)
        finally:
            response.close()

    return call


async def measure(call: Call, in_flight: int, exchanges: int) -> float:
    """The CPU of one exchange in the best slice: slices are short, so that some are spared by what else runs on the machine."""
    slices: list[float] = []
    begun = done = 0

    async def caller() -> None:
        nonlocal begun, done
        while begun < exchanges:
            begun += 1
            assert await call() is not None
            done += 1
            if done % SLICE == 0:
                slices.append(time.process_time())

    gc.collect()
    gc.freeze()
    await asyncio.gather(*[caller() for _ in range(in_flight)])
    return min([end - start for start, end in itertools.pairwise(slices)]) / SLICE * 1e6


def in_turn(tree: Path, system: str, port: int, in_flight: int, exchanges: int) -> float:
    """One measurement, by another process."""
    argv = [sys.executable, __file__, "--measure", system, str(port), str(in_flight), str(exchanges)]
    return float(subprocess.run(argv, env={**os.environ, "PYTHONPATH": str(tree)}, check=True, capture_output=True, text=True).stdout)


def compare(port: int, rounds: int, exchanges: int, against: Path | None) -> None:
    systems = [("floor", HERE.parent, "floor"), ("client", HERE.parent, "client")]
    if against is not None:
        systems.insert(1, ("client before", against, "client"))
    for in_flight in (1, 64):
        figures: dict[str, list[float]] = {name: [] for name, _, _ in systems}
        for _ in range(rounds):
            for name, tree, system in systems:
                figures[name].append(in_turn(tree, system, port, in_flight, exchanges))
        for name, values in figures.items():
            print(f"{in_flight:3d} in flight, {name:13s}: {min(values):6.1f} us CPU least, {statistics.median(values):6.1f} us median")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", type=Path, help="the root of another source tree")
    parser.add_argument("--port", type=int, default=8399, help="for the upstream")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.measure is not None:
        system, port, in_flight, exchanges = told.measure
        print(uvloop.run(measure({"floor": floor, "client": client}[system](int(port)), int(in_flight), int(exchanges))))
        return
    with subprocess.Popen([sys.executable, HERE / "upstream.py", str(told.port)]) as upstream:
        try:
            time.sleep(1)
            compare(told.port, told.rounds, told.exchanges, told.against)
        finally:
            upstream.kill()


if __name__ == "__main__":
    main()
