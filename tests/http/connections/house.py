"""A listener with a handler of the tests' own, and peers that hide nothing."""

import asyncio
import contextlib
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Self

from gateway.config import TcpListener
from gateway.http.connection import ClientConnection
from gateway.http.handshake import SecureServer
from gateway.http.limits import ClientLimits
from gateway.http.listener import ProxyServer
from gateway.http.problem import ProblemWriter
from gateway.http.request import Request, RequestFactory
from gateway.http.response import WireResponse, wire_response
from gateway.run.server.sockets import listen
from gateway.runtime.spool import MemoryBudget
from tests.support.client import Answer, Client

Answering = Callable[[Request], Awaitable[WireResponse]]

PATIENT = ClientLimits(header_timeout=30, idle_timeout=30)
"""Times that no passing test reaches."""


async def until(condition: Callable[[], object]) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.002)


async def echo(request: Request) -> WireResponse:
    """The default handler: reads the body and tells method, target and body."""
    body = b""
    while not request.body.at_end:
        body += await request.body.read()
    return wire_response(200, b"OK", (), b"%b %b %b" % (request.method.encode(), request.target, body))


def connection_of(request: Request) -> ClientConnection:
    assert isinstance(request.connection, ClientConnection)
    return request.connection


class House:
    """A `ProxyServer` and what it told. `answering` may be replaced at any time; as in the proxy, an answer is written by the handler."""

    def __init__(self, limits: ClientLimits = PATIENT, *, path: Path | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.answering: Answering = echo
        self.seen: list[str] = []
        self.gone: list[str] = []
        self.refused: Counter[str] = Counter()
        self.trusted: set[str] = set()
        self.memory = MemoryBudget(2**20)
        self._limits, self._path, self._tls = limits, path, tls

    make_request: RequestFactory[Request] = Request

    async def handle(self, request: Request) -> WireResponse:
        self.seen.append(f"{request.method} {request.target.decode()}")
        try:
            response = await self.answering(request)
            await response.prepare(request)
        except ConnectionError:
            self.gone.append(request.target.decode())
            response = wire_response(400, b"Bad Request", ())
            response.drop()
            if request.connection.transport is not None:
                request.connection.transport.abort()
        return response

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        count, trusts = self.refused.update, self.trusted.__contains__
        self.server = ProxyServer(self, ProblemWriter(), self._limits, lambda reason: count([reason]), trusts, memory=self.memory)
        self._listener: asyncio.Server | SecureServer
        if self._tls is not None:
            self._listener = SecureServer(listen(TcpListener("127.0.0.1", 0)), self._tls, self.server, self._limits.header_timeout)
            self._listener.start()
        elif self._path is not None:
            self._listener = await loop.create_unix_server(self.server, str(self._path))
        else:
            self._listener = await loop.create_server(self.server, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        self.server.pre_shutdown()
        if isinstance(self._listener, SecureServer):
            self._listener.abort()
        await self.server.shutdown(0.1)
        await until(lambda: not self.server.connections)

    @property
    def port(self) -> int:
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    async def closed(self) -> None:
        """Wait until no connection is left."""
        await until(lambda: not self.server.connections)

    @contextlib.asynccontextmanager
    async def peer(self, *, receive_buffer: int | None = None) -> AsyncIterator["Peer"]:
        """A raw connection to the listener."""
        raw = socket.socket(socket.AF_INET if self._path is None else socket.AF_UNIX)
        if receive_buffer is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        raw.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", self.port) if self._path is None else str(self._path))
            yield Peer(raw)
        finally:
            raw.close()


class Peer:
    """A client down to its socket."""

    def __init__(self, raw: socket.socket) -> None:
        self.raw = raw
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.raw, data)

    async def some(self) -> bytes:
        async with asyncio.timeout(20):
            return await self._loop.sock_recv(self.raw, 2**16)

    async def rest(self) -> bytes:
        """Everything up to the end of the stream. A reset is an error."""
        data = b""
        while piece := await self.some():
            data += piece
        return data

    async def until(self, text: bytes) -> bytes:
        """Everything up to and with `text`, and what came along behind it."""
        data = b""
        while text not in data:
            piece = await self.some()
            assert piece, f"the stream ended: {data!r}"
            data += piece
        return data

    async def send_until_cut(self, data: bytes) -> None:
        """Send again and again. Raises ConnectionError once the other side is gone."""
        while True:
            await self.send(data)
            await asyncio.sleep(0.001)

    def end(self) -> None:
        """Half-close: nothing more will be sent."""
        self.raw.shutdown(socket.SHUT_WR)

    async def answer(self) -> Answer:
        """The only answer before the stream's end."""
        [answer] = await answers(await self.rest())
        return answer


async def answers(data: bytes) -> list[Answer]:
    """The final responses in `data`. Raises IncompleteReadError if the last one is cut short."""
    reader = asyncio.StreamReader(limit=2**20)
    reader.feed_data(data)
    reader.feed_eof()
    client = Client.__new__(Client)
    client.reader = reader
    found = []
    while not reader.at_eof():
        found.append(await client.receive())
    return found


def get(target: str, *lines: str) -> bytes:
    """A request without a body."""
    return request("GET", target, *lines)


def request(method: str, target: str, *lines: str, body: bytes = b"") -> bytes:
    """A request as bytes; framing lines are the caller's."""
    return "\r\n".join([f"{method} {target} HTTP/1.1", "Host: a", *lines, "", ""]).encode() + body
