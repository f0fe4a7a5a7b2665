"""A scripted HTTP server on raw streams, and small helpers around the client under test."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Self

from gateway.ports import UpstreamRequest
from gateway.upstream import Balancer, Exchange, HttpUpstream

HOST = ((b"Host", b"stub"),)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Peer:
    """One accepted connection, as a script sees it."""

    def __init__(self, stub: "Stub", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.stub = stub
        self.reader = reader
        self.writer = writer

    async def request(self) -> bytes:
        """Read one whole request, by its own framing, and record its bytes. Ends the script when the client closes."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        body = await self._body(head.lower())
        self.stub.requests.append(head + body)
        return head + body

    async def _body(self, head: bytes) -> bytes:
        if b"transfer-encoding: chunked" in head:
            body = b""
            while not body.endswith(b"0\r\n\r\n"):
                body += await self.reader.readuntil(b"\r\n")
            return body
        for line in head.split(b"\r\n"):
            if line.startswith(b"content-length:"):
                return await self.reader.readexactly(int(line.split(b":")[1]))
        return b""

    async def answer(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def close(self) -> None:
        """FIN, after what was written."""
        self.writer.close()

    def reset(self) -> None:
        """RST, at once."""
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def closed_by_client(self) -> bytes:
        """Wait for the client's end of stream (or reset); returns what came before it."""
        with contextlib.suppress(ConnectionError):
            return await self.reader.read()
        return b""


Script = Callable[[Peer], Awaitable[None]]


async def answer_all(peer: Peer) -> None:
    while True:
        await peer.request()
        await peer.answer(OK)


def raw(response: bytes, *, close: bool = False) -> Script:
    """Answer every request of a connection with these bytes, then close or wait for the next."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.answer(response)
            if close:
                return peer.close()

    return script


class Stub:
    """Runs `script` for each connection; `connections` counts them, `requests` are the bytes of each request read in full.

    `seen` is for tests to set and for scripts to wait for.
    """

    def __init__(
        self,
        script: Script = answer_all,
        *,
        path: str | None = None,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.script = script
        self.requests: list[bytes] = []
        self.connections = 0
        self.port = port
        self.seen = asyncio.Event()
        self._host = host
        self._path = path
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}" if self._path is None else f"unix:{self._path}"

    async def __aenter__(self) -> Self:
        if self._path is None:
            self._server = await asyncio.start_server(self._accepted, self._host, self.port, ssl=self._tls)
            self.port = self._server.sockets[0].getsockname()[1]
        else:
            self._server = await asyncio.start_unix_server(self._accepted, self._path)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await self.script(Peer(self, reader, writer))
        finally:
            writer.close()


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop turn until `condition` holds."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


def allow() -> bool:
    return True


class Fence:
    """Allows, or not, and counts how often it was asked."""

    def __init__(self, *, allows: bool = True) -> None:
        self.asked = 0
        self._allows = allows

    def __call__(self) -> bool:
        self.asked += 1
        return self._allows


def request(
    method: bytes = b"POST", target: bytes = b"/", body: bytes | AsyncIterator[bytes] = b"{}", length: int | None = None
) -> UpstreamRequest:
    return UpstreamRequest(method, target, HOST, body, length)


async def whole(response: Exchange) -> bytes:
    """The body by `chunks`, to its end."""
    return b"".join([piece async for piece in response.chunks()])


async def call(upstream: HttpUpstream | Balancer, method: bytes = b"POST") -> tuple[int, bytes]:
    """One exchange: status and body."""
    response = await upstream.send(request(method), allow)
    try:
        return response.status, await whole(response)
    finally:
        response.close()
