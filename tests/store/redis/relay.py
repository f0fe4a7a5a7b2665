"""A TCP relay between a client and Redis that can hold, swallow, invent or cut what passes."""

import asyncio
import ssl
from contextlib import suppress
from types import TracebackType
from urllib.parse import urlsplit


class Relay:
    """Listens on a free port of 127.0.0.1 and passes bytes on to the server of `url`. `async with` starts and stops it.

    `accepted` counts connections, `chunks` what was read from clients. `requests` and
    `replies` are gates: cleared, that direction waits. `swallow` drops replies (`swallowed` counts them), `reset` cuts each new
    connection at once.
    """

    def __init__(self, url: str, tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        assert parts.port
        self._tls = tls
        self._url = parts
        self._target = parts.port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._clients: set[asyncio.StreamWriter] = set()
        self._servers: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.accepted = 0
        self.chunks = 0
        self.swallow = False
        self.swallowed = 0
        self.reset = False
        self.requests = asyncio.Event()
        self.replies = asyncio.Event()
        self.requests.set()
        self.replies.set()

    @property
    def url(self) -> str:
        return f"redis{'' if self._tls is None else 's'}://:{self._url.password}@127.0.0.1:{self.port}{self._url.path}"

    @property
    def idle(self) -> bool:
        """Whether nothing is connected: all that clients sent has been executed, and its replies are gone."""
        return not self._tasks

    async def __aenter__(self) -> "Relay":
        await self.listen()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.refuse()
        self.requests.set()
        self.replies.set()
        for writer in self._servers:
            writer.transport.abort()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Take no more connections and cut those that are there."""
        if self._server is not None:
            self._server.close()
        self.cut()

    def cut(self) -> None:
        for writer in self._clients:
            writer.transport.abort()

    def invent(self, reply: bytes) -> None:
        """Send bytes to the clients that the server never sent."""
        for writer in self._clients:
            writer.write(reply)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.reset:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._clients.add(writer)
        upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", self._target)
        self._servers.add(upstream)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, upstream, up=True))
                group.create_task(self._pump(upstream_reader, writer, up=False))
        finally:
            self._clients.discard(writer)
            self._servers.discard(upstream)
            self._tasks.discard(task)
            for end in (writer, upstream):
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool) -> None:
        try:
            while data := await reader.read(65536):
                if up:
                    self.chunks += 1
                    await self.requests.wait()
                else:
                    await self.replies.wait()
                    if self.swallow:
                        self.swallowed += 1
                        continue
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        # Only this direction has ended: what is held when a client goes away still arrives and is executed, a late command.
        with suppress(OSError):
            writer.write_eof()
