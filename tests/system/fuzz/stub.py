"""A raw upstream that reads as strictly as the RFC does, answers everything alike, and keeps what it saw."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field

from tests.system.fuzz.reader import Incomplete, Invalid, Request, read_request

SERIAL = b"x-stub-serial"


@dataclass(slots=True)
class Stub:
    """Serves on a free port in the running loop. `requests` holds whole requests by serial number, which their answers carry.

    `seen` are the serial numbers by the address of the client, as the gateway has it; `faults` are things that no gateway may send.
    What was looked at is to be removed.
    """

    requests: dict[int, Request] = field(default_factory=dict)
    seen: defaultdict[bytes, list[int]] = field(default_factory=lambda: defaultdict(list))
    faults: list[str] = field(default_factory=list)
    count: int = 0
    port: int = 0
    _server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(lambda: _Connection(self), "127.0.0.1", 0, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    def take(self, request: Request) -> bytes:
        """Keep a request; its answer."""
        serial = self.count = self.count + 1
        self.requests[serial] = request
        self.seen[b" and ".join(request.values(b"x-forwarded-for"))].append(serial)
        body = b"" if request.method == b"HEAD" else b"seen %d" % serial
        length = b"" if request.method == b"HEAD" else b"Content-Length: %d\r\n" % len(body)
        return b"HTTP/1.1 200 Fine\r\nX-Stub-Serial: %d\r\n%b\r\n%b" % (serial, length, body)


class _Connection(asyncio.Protocol):
    def __init__(self, stub: Stub) -> None:
        self._stub = stub
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._buffer += data
        while self._buffer:
            found = read_request(self._buffer, 0)
            if isinstance(found, Incomplete):
                return
            if isinstance(found, Invalid):
                self._stub.faults.append(f"{found.why}: {self._buffer[:500]!r}")
                self._transport.abort()
                return
            request, at = found
            self._buffer = self._buffer[at:]
            self._transport.write(self._stub.take(request))
            if request.last:
                self._transport.close()
                return
