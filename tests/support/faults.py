"""A TCP relay that misbehaves on request: it stands between a client and a server and refuses, stalls, cuts, delays or loses replies."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(eq=False, slots=True)
class HeldReply:
    """A reply that waits. `reached` is set when the request has gone to the server and its reply is being held."""

    needle: bytes
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def let_go(self) -> None:
        self.released.set()


_PASS = HeldReply(b"")
"""The mark of a reply that nothing is to happen to."""


@dataclass(eq=False, slots=True)
class FaultProxy:
    """Relays to (`host`, `target_port`); listens on 127.0.0.1:`port`. `connections` counts all that were accepted."""

    host: str
    target_port: int
    port: int = 0
    connections: int = 0
    delay: float = 0.0
    _server: asyncio.Server | None = None
    _flowing: asyncio.Event = field(default_factory=asyncio.Event)
    _relays: set[asyncio.Task[None]] = field(default_factory=set)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _last_reply: bool = False
    _replies_to_drop: int = 0
    _replies_dropped: asyncio.Event = field(default_factory=asyncio.Event)
    _needles: list[bytes] = field(default_factory=list)
    _held: list[HeldReply] = field(default_factory=list)

    async def heal(self) -> None:
        """Relay again, new connections and those that are merely stalled."""
        self.delay = 0.0
        self._replies_to_drop = 0
        self._last_reply = False
        self._flowing.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Refuse new connections and cut those that are open."""
        await self._stop_listening()
        self.cut()

    def stall(self) -> None:
        """Accept and read, relay nothing: a peer that has gone without a word."""
        self._flowing.clear()

    def cut(self) -> None:
        """Reset every open connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    def drop_next_reply(self) -> None:
        """Let the next request through, lose what the server answers, and reset the connection."""
        self._replies_to_drop += 1
        self._replies_dropped.clear()

    def drop_reply_to(self, needle: bytes) -> None:
        """The same for the next request that holds `needle`, whatever else passes meanwhile."""
        self._needles.append(needle)

    def hold_reply_to(self, needle: bytes) -> HeldReply:
        """Let the next request that holds `needle` through, and keep its reply back until `let_go`."""
        held = HeldReply(needle)
        self._held.append(held)
        return held

    def refuse_after_reply(self) -> None:
        """Let the next reply through, then close its connection and refuse new ones: a server that goes away between two statements."""
        self._last_reply = True

    async def reply_dropped(self) -> None:
        """Wait until the armed fault has happened."""
        await self._replies_dropped.wait()

    async def close(self) -> None:
        await self._stop_listening()
        self.cut()
        for relay in list(self._relays):
            relay.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            await asyncio.sleep(0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._relays.add(task)
        self.connections += 1
        self._writers.add(writer)
        try:
            await self._flowing.wait()
            upstream_reader, upstream_writer = await asyncio.open_connection(self.host, self.target_port)
            self._writers.add(upstream_writer)
            try:
                await self._relay((reader, writer), (upstream_reader, upstream_writer))
            finally:
                self._writers.discard(upstream_writer)
                upstream_writer.transport.abort()
        except (OSError, asyncio.CancelledError):
            pass  # the relayed peers learn of it by the reset below
        finally:
            self._writers.discard(writer)
            writer.transport.abort()
            self._relays.discard(task)

    async def _relay(self, client: Stream, server: Stream) -> None:
        """Pump both ways until either way ends."""
        marks: list[HeldReply | None] = []
        pumps = [
            asyncio.ensure_future(self._pump_requests(client[0], server[1], marks)),
            asyncio.ensure_future(self._pump_replies(server[0], client[1], marks)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, marks: list[HeldReply | None]) -> None:
        """Relay requests; `marks` gets an entry for the connection's next reply: None to lose it, a `HeldReply` to hold it."""
        while data := await reader.read(65536):
            await self._flowing.wait()
            if self.delay:
                await asyncio.sleep(self.delay)
            for needle in [needle for needle in self._needles if needle in data]:
                self._needles.remove(needle)
                marks.append(None)
            for held in [held for held in self._held if held.needle in data]:
                self._held.remove(held)
                marks.append(held)
            writer.write(data)
            await writer.drain()

    async def _pump_replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, marks: list[HeldReply | None]) -> None:
        while data := await reader.read(65536):
            await self._flowing.wait()
            if self.delay:
                await asyncio.sleep(self.delay)
            mark = marks.pop(0) if marks else _PASS
            if mark is None or self._replies_to_drop:
                self._replies_to_drop = max(0, self._replies_to_drop - 1)
                self._replies_dropped.set()
                return
            if mark is not _PASS:
                mark.reached.set()
                await mark.released.wait()
            writer.write(data)
            await writer.drain()
            if self._last_reply:
                self._last_reply = False
                writer.close()
                await self._stop_listening()
                return


@contextlib.asynccontextmanager
async def fault_proxy(host: str, port: int) -> AsyncIterator[FaultProxy]:
    """A healthy proxy to (`host`, `port`), closed at the end."""
    proxy = FaultProxy(host, port)
    await proxy.heal()
    try:
        yield proxy
    finally:
        await proxy.close()
