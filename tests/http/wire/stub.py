"""A peer that hides nothing: it writes the bytes it is told to, keeps the bytes it got, and counts what it executed.

A request names its script in its `X-Case` field. The stub judges the framing of what it reads strictly, by itself: anything that two
readers could frame in two ways is a *fault*, and so is a request that nobody framed as one.
"""

import asyncio
import contextlib
import re
import socket
import ssl
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

DATE = b"Date: Fri, 27 Nov 2026 12:00:00 GMT"
CREATED = b"HTTP/1.1 201 Created\r\n" + DATE + b"\r\nContent-Length: 7\r\n\r\ncreated"
KEEP, FIN, RESET = "keep", "fin", "reset"
"""What becomes of the connection behind a scripted answer."""

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Unframed(Exception):
    """Bytes that no careful reader would take for a request."""


@dataclass(slots=True)
class Seen:
    """One request. `head` is without the empty line, `wire` is the body with its framing, `body` is the body itself."""

    connection: int
    head: bytes
    wire: bytes = b""
    body: bytes = b""
    whole: bool = False

    @property
    def request_line(self) -> bytes:
        return self.head.split(b"\r\n", 1)[0]

    @property
    def lines(self) -> list[bytes]:
        """The field lines, in order, as they came."""
        return self.head.split(b"\r\n")[1:]

    @property
    def target(self) -> bytes:
        return self.request_line.split(b" ")[1]

    def values(self, name: bytes) -> list[bytes]:
        """The values of all lines with this name."""
        return [value.strip(b" \t") for field, _, value in (line.partition(b":") for line in self.lines) if field.lower() == name.lower()]


class Turn:
    """One request as a script sees it. What a script does not do (reading the body) is done behind it."""

    def __init__(self, stub: "Stub", seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.stub = stub
        self.seen = seen
        self.reader = reader
        self.writer = writer
        self.over = False

    @property
    def case(self) -> bytes:
        return (self.seen.values(b"X-Case") or [self.seen.target])[0]

    def execute(self) -> None:
        """Run the operation: count it."""
        self.stub.runs[self.case] += 1

    async def body(self) -> bytes:
        """Read the body to its end, by its own framing."""
        if not self.seen.whole:
            async for _ in self.pieces():
                pass
        return self.seen.body

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes: each chunk, or whatever there is of a body with a length."""
        seen, reader = self.seen, self.reader
        length = _framing(seen)
        while length is None:
            line = await reader.readuntil(b"\r\n")
            if not re.fullmatch(rb"[0-9A-Fa-f]{1,16}\r\n", line):
                raise Unframed(f"chunk size {line!r}")
            chunk = await reader.readexactly(int(line, 16) + 2)
            seen.wire += line + chunk
            if chunk == b"\r\n":
                break
            seen.body += chunk[:-2]
            yield chunk[:-2]
        while length and len(seen.body) < length:
            piece = await reader.read(length - len(seen.body))
            if not piece:
                raise asyncio.IncompleteReadError(seen.body, length)
            seen.body += piece
            yield piece
        seen.wire = seen.wire or seen.body
        seen.whole = True

    async def say(self, raw: bytes) -> None:
        """Write; returns when the peer has taken most of it."""
        self.writer.write(raw)
        await self.writer.drain()

    def finish(self, how: str) -> None:
        """End the connection, or keep it for the next request."""
        if how == RESET:
            linger = struct.pack("ii", 1, 0)
            self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.writer.transport.abort()
        elif how == FIN:
            self.writer.close()
        self.over = self.over or how != KEEP

    async def left(self) -> bytes:
        """Wait until the peer has closed; returns what came before. Nothing else can follow on this connection."""
        self.over = True
        with contextlib.suppress(ConnectionError):
            return await self.reader.read()
        return b""


Script = Callable[[Turn], Awaitable[None]]


def reply(raw: bytes, then: str = KEEP) -> Script:
    """Read the request, execute it, answer with these bytes."""

    async def script(turn: Turn) -> None:
        await turn.body()
        turn.execute()
        with contextlib.suppress(ConnectionError):
            await turn.say(raw)
        turn.finish(then)

    return script


@dataclass(slots=True)
class Stub:
    """Serves on a free port of 127.0.0.1, or on a unix socket, in the event loop of the test."""

    path: str | None = None
    tls: ssl.SSLContext | None = None
    port: int = 0
    scripts: dict[bytes, Script] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    runs: Counter[bytes] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    connections: int = 0
    open: set[int] = field(default_factory=set)
    handshakes: list[str | None] = field(default_factory=list)
    clients: list[object] = field(default_factory=list)
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def of(self, case: bytes) -> list[Seen]:
        """The requests of one case, in order."""
        return [seen for seen in self.seen if case in (seen.values(b"X-Case") or [seen.target])]

    def one(self, case: bytes) -> Seen:
        """The only request of a case."""
        (seen,) = self.of(case)
        return seen

    async def __aenter__(self) -> Self:
        if self.tls is not None:
            self.tls.sni_callback = lambda _socket, name, _context: self.handshakes.append(name)
        if self.path is None:
            self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port, limit=2**22, ssl=self.tls, backlog=512)
            self.port = self._server.sockets[0].getsockname()[1]
        else:
            self._server = await asyncio.start_unix_server(self._accepted, self.path, limit=2**22)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the event loop turn until `condition` holds."""
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.002)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        self.open.add(number)
        if self.tls is not None:
            self.clients.append(writer.get_extra_info("peercert"))
        try:
            while await self._serve_one(number, reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        except Unframed as fault:
            self.faults.append(str(fault))
        finally:
            self.open.discard(number)
            writer.close()

    async def _serve_one(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        seen = Seen(number, (await reader.readuntil(b"\r\n\r\n"))[:-4])
        self.seen.append(seen)
        _judge(seen)
        turn = Turn(self, seen, reader, writer)
        await self.scripts.get(turn.case, reply(CREATED))(turn)
        if not turn.over:
            await turn.body()
        return not turn.over


def _judge(seen: Seen) -> None:
    """Refuse a head that another reader could take for something else."""
    if not re.fullmatch(rb"[A-Z][A-Z-]* [^\x00-\x20\x7f]+ HTTP/1\.1", seen.request_line):
        raise Unframed(f"request line {seen.request_line!r}")
    for line in seen.lines:
        name, colon, value = line.partition(b":")
        if not colon or not _TOKEN.fullmatch(name) or re.search(rb"[\x00\r\n]", value):
            raise Unframed(f"field line {line!r}")
    if len(seen.values(b"Host")) != 1:
        raise Unframed(f"Host lines {seen.values(b'Host')!r}")
    _framing(seen)


def _framing(seen: Seen) -> int | None:
    """The length of the body, None for chunked (RFC 9112 section 6.3)."""
    lengths, codings = seen.values(b"Content-Length"), seen.values(b"Transfer-Encoding")
    if len(lengths) + len(codings) > 1 or (codings and codings != [b"chunked"]) or (lengths and not lengths[0].isdigit()):
        raise Unframed(f"framing {lengths!r} {codings!r}")
    return None if codings else int(lengths[0]) if lengths else 0
