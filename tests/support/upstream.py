"""An upstream that counts what it executes, keeps the raw bytes of what it read, and behaves as told."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Seen:
    """One request that was read whole."""

    raw: bytes
    method: bytes
    target: bytes
    fields: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def value(self, name: str) -> bytes | None:
        return next((value for field, value in self.fields if field.lower() == name.lower().encode()), None)


class Exchange:
    """What a behaviour may do with one request."""

    def __init__(self, upstream: "CountingUpstream", seen: Seen, writer: asyncio.StreamWriter) -> None:
        self.upstream = upstream
        self.seen = seen
        self.writer = writer

    def execute(self) -> int:
        """Run the operation: count it. Returns how often this operation has run now."""
        operation = (self.seen.value("authorization"), self.seen.value("idempotency-key"))
        self.upstream.runs[operation] += 1
        self.upstream.executed.set()
        return self.upstream.runs[operation]

    async def answer(self, status: int = 201, body: bytes | None = None, *, fields: tuple[bytes, ...] = ()) -> None:
        """Send a whole response. The default body differs for each execution of the process."""
        if body is None:
            self.upstream.serial += 1
            body = json.dumps({"id": f"pay_{self.upstream.serial}", "echo": self.seen.body.decode("latin-1")}).encode()
        lines = [b"HTTP/1.1 %d Status" % status, b"Content-Type: application/json", b"Date: Fri, 27 Nov 2026 12:00:00 GMT", *fields]
        await self.send(b"\r\n".join([*lines, b"Content-Length: %d" % len(body)]) + b"\r\n\r\n" + body)

    async def send(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()

    def hang_up(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        self.writer.transport.abort()


Behaviour = Callable[[Exchange], Awaitable[None]]


async def execute_and_answer(exchange: Exchange) -> None:
    """The usual: run it, say 201."""
    exchange.execute()
    await exchange.answer()


@dataclass(slots=True)
class CountingUpstream:
    """Serves on a free port of 127.0.0.1 in the test's own event loop, always the same. `behave` may be exchanged at any time."""

    behave: Behaviour = execute_and_answer
    runs: Counter[tuple[bytes | None, bytes | None]] = field(default_factory=Counter)
    requests: list[Seen] = field(default_factory=list)
    executed: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    serial: int = 0
    port: int = 0
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def runs_of(self, key: bytes, principal: bytes = b"Bearer tenant-a") -> int:
        """How often the operation under this key was executed."""
        return self.runs[(principal, key)]

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=2**20, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                seen = await _read_request(reader)
                self.requests.append(seen)
                self.arrived.set()
                await self.behave(Exchange(self, seen, writer))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()


async def _read_request(reader: asyncio.StreamReader) -> Seen:
    head = await reader.readuntil(b"\r\n\r\n")
    line, *lines = head[:-4].split(b"\r\n")
    method, target, _ = line.split(b" ", 2)
    fields = tuple((name, value.removeprefix(b" ")) for name, _, value in (one.partition(b":") for one in lines))
    named = {name.lower(): value for name, value in fields}
    raw, body = head, b""
    if named.get(b"transfer-encoding") == b"chunked":
        while True:
            size_line = await reader.readuntil(b"\r\n")
            chunk = await reader.readexactly(int(size_line, 16) + 2)
            raw += size_line + chunk
            body += chunk[:-2]
            if chunk == b"\r\n":
                break
    else:
        body = await reader.readexactly(int(named.get(b"content-length", b"0")))
        raw += body
    return Seen(raw, method, target, fields, body)
