"""CPU time that the client's edge takes for a request: listener, parser, and a handler that answers 201 at once.

    python -m benchmarks.edge [--requests N] [--rounds N] [--connections N] [--beside CHECKOUT ...]

Each server is a process of its own and tells its CPU time itself; the client is another process. Rounds are interleaved, the median and the
minimum are told. `aiohttp` is what its own server takes with its own response, `httptools` a bare Protocol that parses and writes. Every
`--beside` names another checkout of this project, whose listener is measured in the same run. Every request has another key and another
`traceparent`.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import cast

import httptools
import uvloop
from aiohttp import web
from aiohttp.web_request import BaseRequest

BODY = b'{"id":"ch_000001","amount":100,"currency":"EUR","status":"succeeded"}'
HEADERS = ((b"Content-Type", b"application/json"), (b"Date", b"Fri, 27 Nov 2026 12:00:00 GMT"), (b"X-Request-Id", b"0123456789abcdef"))
SENT = b'{"amount":100,"currency":"EUR","source":"tok_visa","description":"an order"}'


def cpu() -> bytes:
    """What the servers answer to `GET /cpu`."""
    return b"%.6f" % time.process_time()


# ---- servers


async def serve_ours(port: int) -> None:
    """The listener of the checkout in which this runs."""
    from gateway.http.limits import ClientLimits  # noqa: PLC0415 - the modules of that checkout
    from gateway.http.listener import ProxyServer  # noqa: PLC0415
    from gateway.http.problem import ProblemWriter  # noqa: PLC0415
    from gateway.http.request import Request, RequestFactory  # noqa: PLC0415
    from gateway.http.response import WireResponse, wire_response  # noqa: PLC0415
    from gateway.runtime.spool import MemoryBudget  # noqa: PLC0415

    class Handler:
        make_request: RequestFactory[Request] = Request

        async def handle(self, request: Request) -> WireResponse:
            if request.target == b"/cpu":
                return wire_response(200, b"OK", (), cpu())
            body = request.body.take()
            while not request.body.at_end:
                body += await request.body.read()
            assert body == SENT
            return wire_response(201, b"Created", HEADERS, BODY)

    server = ProxyServer(Handler(), ProblemWriter(), ClientLimits(), lambda _: None, lambda _: False, memory=MemoryBudget(2**24))
    await (await asyncio.get_running_loop().create_server(server, "127.0.0.1", port)).serve_forever()


async def serve_aiohttp(port: int) -> None:
    """Aiohttp's server as it comes."""

    async def handle(request: BaseRequest) -> web.Response:
        if request.path == "/cpu":
            return web.Response(body=cpu())
        assert await request.read() == SENT
        return web.Response(body=BODY, status=201, headers={name.decode(): value.decode() for name, value in HEADERS})

    server = web.Server(cast("Callable[[BaseRequest], Awaitable[web.StreamResponse]]", handle), access_log=None)
    await (await asyncio.get_running_loop().create_server(server, "127.0.0.1", port)).serve_forever()


class Bare(asyncio.Protocol):
    """The floor: httptools on a Protocol, without a rule, a limit or a task."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.parser = httptools.HttpRequestParser(self)
        self.fields: list[tuple[bytes, bytes]] = []

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.url = url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))

    def on_body(self, data: bytes) -> None:
        assert data == SENT

    def on_message_complete(self) -> None:
        status, body = (b"200 OK", cpu()) if self.url == b"/cpu" else (b"201 Created", BODY)
        lines = b"".join([b"%b: %b\r\n" % field for field in HEADERS])
        self.transport.write(b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status, lines, len(body), body))
        self.fields = []


async def serve_httptools(port: int) -> None:
    await (await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", port)).serve_forever()


# ---- the client


class Asker(asyncio.Protocol):
    """One connection: a request, its answer, the next request, as long as there are any."""

    def __init__(self, requests: Iterator[bytes], done: Callable[[], None]) -> None:
        self._requests, self._done = requests, done
        self._buffer = b""
        self.body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n") + 4
        if end < 4:
            return
        at = self._buffer.find(b"Content-Length: ") + 16
        whole = end + int(self._buffer[at : self._buffer.find(b"\r", at)])
        if len(self._buffer) >= whole:
            self.body, self._buffer = self._buffer[end:whole], self._buffer[whole:]
            self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        self._done()

    def _ask(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
        else:
            self._transport.write(request)


def posts(count: int) -> Iterator[bytes]:
    """Requests of which no two are equal."""
    for _ in range(count):
        key, trace = os.urandom(16).hex().encode(), os.urandom(16).hex().encode()
        yield (
            b"POST /v1/charges HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: bench/1\r\nAccept: */*\r\n"
            b"Authorization: Bearer 0123456789\r\n"
            b"Idempotency-Key: %b\r\nContent-Type: application/json\r\n"
            b"traceparent: 00-%b-b7ad6b7169203331-01\r\nContent-Length: %d\r\n\r\n%b" % (key, trace, len(SENT), SENT)
        )


async def ask(port: int, requests: Iterator[bytes], connections: int) -> bytes:
    """Have all requests answered. Returns the body of the last answer."""
    loop = asyncio.get_running_loop()
    left, over = connections, loop.create_future()

    def done() -> None:
        nonlocal left
        left -= 1
        if not left:
            over.set_result(None)

    made = [await loop.create_connection(lambda: Asker(requests, done), "127.0.0.1", port) for _ in range(connections)]
    await over
    return made[-1][1].body


async def listening(port: int) -> None:
    """Wait until a server has started."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(ConnectionError):
                await cpu_of(port)
                return
            await asyncio.sleep(0.1)


async def cpu_of(port: int) -> float:
    return float(await ask(port, iter([b"GET /cpu HTTP/1.1\r\nHost: a\r\n\r\n"]), 1))


async def measure(ports: dict[str, int], requests: int, rounds: int, connections: int) -> dict[str, list[float]]:
    """Microseconds a request, by server and round."""
    found: dict[str, list[float]] = {name: [] for name in ports}
    for number in range(rounds + 1):
        for name, port in ports.items():
            before = await cpu_of(port)
            await ask(port, posts(requests), connections)
            if number:  # the first one warms up
                found[name].append((await cpu_of(port) - before) / requests * 1e6)
    return found


@contextlib.contextmanager
def server(kind: str, port: int, tree: Path) -> Iterator[None]:
    """A server process that imports the gateway of `tree`."""
    command = [sys.executable, str(Path(__file__).resolve()), "--serve", kind, "--port", str(port)]
    process = subprocess.Popen(command, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)})
    try:
        yield
    finally:
        process.terminate()
        process.wait()


HERE = Path(__file__).resolve().parent.parent


async def main(requests: int, rounds: int, connections: int, beside: list[Path]) -> None:
    kinds = [("httptools", "httptools", HERE), ("aiohttp", "aiohttp", HERE), ("here", "ours", HERE)]
    kinds += [(str(tree), "ours", tree) for tree in beside]
    with contextlib.ExitStack() as stack:
        ports = {name: 18500 + number for number, (name, _, _) in enumerate(kinds)}
        for name, kind, tree in kinds:
            stack.enter_context(server(kind, ports[name], tree))
        for port in ports.values():
            await listening(port)
        found = await measure(ports, requests, rounds, connections)
    print(f"{'server':<40}{'median':>9}{'min':>9}   µs of CPU a request")
    for name, figures in found.items():
        print(f"{name:<40}{statistics.median(figures):>9.1f}{min(figures):>9.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--beside", type=lambda path: Path(path).resolve(), action="append", default=[])
    parser.add_argument("--serve", choices=["ours", "aiohttp", "httptools"], help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        uvloop.run({"ours": serve_ours, "aiohttp": serve_aiohttp, "httptools": serve_httptools}[options.serve](options.port))
    else:
        uvloop.run(main(options.requests, options.rounds, options.connections, options.beside))
