"""A gateway process with a raw upstream behind it, and clients that play cases against it."""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.gateway import Gateway, Setup, running
from tests.system.fuzz.answers import Malformed, read_answers
from tests.system.fuzz.cases import EARLY, LATE, RESET, Case, Played
from tests.system.fuzz.judge import judge_forwarded, judge_order
from tests.system.fuzz.messages import FRESH
from tests.system.fuzz.reader import Invalid, Request, Stream, read_stream
from tests.system.fuzz.stub import Stub

ROUTES = """
  - id: pay
    methods: [POST]
    path: /v1/pay
    upstream: payments
    idempotency: {principal: [{header: Authorization}], forward_key: derived}
  - {id: rest, path: /**, upstream: payments}
"""
"""Only a guarded request reaches the upstream with a derived key: it cannot be made without the gateway's secret."""

REMEMBERED = 1000
"""How many clients that did not wait are remembered: what they said may still arrive."""

NOBODY = {b"unix", b"unknown"}
"""The address of a client that was gone before it could be asked for."""


@dataclass(slots=True)
class World:
    """A running gateway. `used` are the (principal, key) pairs that were sent to it before, `left` what clients said who did not wait.

    A connection counts as stuck after `patience` seconds.
    """

    gateway: Gateway
    stub: Stub
    patience: float = 20.0
    used: set[tuple[bytes, bytes]] = field(default_factory=set)
    left: dict[bytes, Stream] = field(default_factory=dict)
    _serials: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _log_read: int = 0

    async def play(self, cases: list[Case]) -> list[Played]:
        """Play all cases at the same time."""
        return await asyncio.gather(*(self._play(case) for case in cases))

    async def _play(self, case: Case) -> Played:
        serial = next(self._serials)
        address = f"127.{1 + (serial >> 16) % 250}.{(serial >> 8) & 0xFF}.{serial & 0xFF}"
        raw = case.raw.replace(FRESH, b"%08x" % serial)
        stream = read_stream(raw)
        with socket.socket() as connection:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.bind((address, 0))
            await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self.gateway.port))
            received, stuck = await _talk(connection, case, raw, stream, self.patience)
        if case.end != LATE:
            self.left[address.encode()] = stream
        return Played(case, raw, stream, received, stuck, self._take_seen(address.encode()))

    def _take_seen(self, address: bytes) -> tuple[tuple[int, Request], ...]:
        return tuple((serial, self.stub.requests[serial]) for serial in self.stub.seen.pop(address, []))

    async def complaints(self) -> list[str]:
        """What is wrong with the process, its log, or what it sent upstream, since this was last asked."""
        found = [f"the upstream was sent {fault}" for fault in self.stub.faults]
        judged = ((request, judge_forwarded(request)) for request in self.stub.requests.values())
        found += [f"the upstream got {fault}\n  request   {request!r}" for request, fault in judged if fault is not None]
        for address in list(self.stub.seen):
            streams = [self.left[address]] if address in self.left else list(self.left.values()) if address in NOBODY else []
            unknown = [one for one in self._take_seen(address) if all(judge_order(stream, (one,)) is not None for stream in streams)]
            found += [f"the upstream got what nobody sent, from {address!r}: {one!r}" for one in unknown]
        for address in list(self.left)[:-REMEMBERED]:
            del self.left[address]
        self.stub.faults.clear()
        self.stub.requests.clear()
        if self.gateway.process.returncode is not None:
            return [*found, f"the process ended with {self.gateway.process.returncode}"]
        status, _ = await self.gateway.get("/livez")
        return [*found, *([f"/livez answers {status}"] if status != 200 else []), *self._bad_log_lines()]

    def _bad_log_lines(self) -> list[str]:
        with self.gateway.log.open("rb") as log:
            log.seek(self._log_read)
            text = log.read()
        self._log_read += len(text)
        bad = (b"Traceback", b'"stack"', b'"level":"error"', b'"level":"critical"')
        return [f"the log says {line!r}" for line in text.splitlines() if any(word in line for word in bad)]


async def _talk(connection: socket.socket, case: Case, raw: bytes, stream: Stream, patience: float) -> tuple[bytes, bool]:
    """Send, and read to the end; whether the end had to be waited for in vain."""
    loop = asyncio.get_running_loop()
    received = bytearray()
    try:
        async with asyncio.timeout(patience):
            with contextlib.suppress(ConnectionError):
                for piece in case.pieces(raw):
                    await loop.sock_sendall(connection, piece)
                    await asyncio.sleep(0)
            if case.end == RESET:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                return b"", False
            open_after_all = case.end == LATE and await _read(connection, received, stream)
            if case.end == EARLY or open_after_all:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)
                await _read(connection, received, None)
    except TimeoutError:
        return bytes(received), True
    return bytes(received), False


async def _read(connection: socket.socket, received: bytearray, expected: Stream | None) -> bool:
    """Read until the connection ends, or all `expected` answers are there and it should stay open: then True."""
    loop = asyncio.get_running_loop()
    closes = expected is not None and (isinstance(expected.end, Invalid) or (bool(expected.requests) and expected.requests[-1].last))
    while True:
        if expected is not None and not closes:
            methods = (request.method for request in expected.requests)
            with contextlib.suppress(Malformed):
                if len(read_answers(bytes(received), methods, ended=False)) >= len(expected.requests):
                    return True
        try:
            piece = await loop.sock_recv(connection, 65536)
        except ConnectionError:
            return False
        if not piece:
            return False
        received += piece


@contextlib.asynccontextmanager
async def world(postgres: str, redis: str, folder: Path) -> AsyncIterator[World]:
    """A gateway on these stores, alone with its upstream."""
    stub = Stub()
    await stub.start()
    timeouts = "{connect: 10s, first_byte: 20s, read_idle: 20s, total: 60s}"
    more = "client: {header_timeout: 3s}"  # a head without an end, of which there are some, is waited for as long as this
    try:
        async with running(
            Setup(postgres, stub.port, redis, ROUTES, "{lease: 30s, settle_timeout: 20s}", timeouts, "20s", more), folder
        ) as gateway:
            yield World(gateway, stub)
    finally:
        stub.stop()
