"""The client's side: requests as bytes, and what came back, or that nothing whole did."""

import asyncio
import re
import socket
import ssl
import struct
import zlib
from typing import Self

from tests.support.client import Answer, Client

OURS_TO_CLIENT = {b"x-request-id", b"idempotent-replayed", b"original-request"}
"""What the gateway adds to an answer (README)."""
OURS_TO_UPSTREAM = {b"host", b"via", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"x-request-id"}
"""What the gateway writes anew toward the upstream (README)."""
FRAMING = {b"content-length", b"transfer-encoding", b"connection"}
"""What each hop writes for itself (RFC 9112 section 6)."""


def slug(name: str) -> bytes:
    """A key, or a case, named after a table's row."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").encode()[:80] + b"-%08x" % zlib.crc32(name.encode())


def request(case: bytes, target: bytes = b"/plain", *lines: bytes, method: bytes = b"GET", body: bytes | None = None) -> bytes:
    """A request as bytes, with exactly these lines besides Host and X-Case, and a length if there is a body."""
    framing = () if body is None else (b"Content-Length: %d" % len(body),)
    return _message(b"%b %b HTTP/1.1" % (method, target), (b"Host: gateway.test", b"X-Case: " + case, *lines, *framing)) + (body or b"")


def guarded(case: bytes, *lines: bytes, target: bytes = b"/v1/pay", body: bytes | None = b"{}", key: bytes | None = None) -> bytes:
    """A request on a guarded route, its key named after its case unless given."""
    own = (b"Authorization: Bearer tenant-a", b"Idempotency-Key: " + (case if key is None else key))
    return request(case, target, *own, *lines, method=b"POST", body=body)


def _message(start: bytes, lines: tuple[bytes, ...]) -> bytes:
    return b"\r\n".join((start, *lines, b"", b""))


def without(lines: list[bytes], *sets: set[bytes]) -> list[bytes]:
    """The field lines whose lower-case names are in none of the sets, in order."""
    gone = set().union(*sets)
    return [line for line in lines if line.partition(b":")[0].lower() not in gone]


def lines_of(answer: Answer) -> list[bytes]:
    return answer.head.split(b"\r\n")[1:]


async def connect(
    port: int = 0, *, local: str | None = None, tls: ssl.SSLContext | None = None, name: str | None = None, path: str | None = None
) -> Client:
    """One connection to the gateway, from `local` if given, with `name` as SNI under TLS, over a unix socket if `path` is given."""
    if path is not None:
        return Client(*await asyncio.open_unix_connection(path, limit=2**22))
    source = (local, 0) if local else None
    return Client(*await asyncio.open_connection("127.0.0.1", port, limit=2**22, local_addr=source, ssl=tls, server_hostname=name))


async def ask(client_or_port: Client | int, raw: bytes, *, head_only: bool = False, within: float = 6) -> Answer:
    """One request and its answer, on a connection of its own unless one is given."""
    async with asyncio.timeout(within):
        if isinstance(client_or_port, Client):
            return await client_or_port.request(raw, head_only=head_only)
        async with await connect(client_or_port) as client:
            return await client.request(raw, head_only=head_only)


async def ask_or_cut(port: int, raw: bytes) -> Answer | None:
    """The answer, or None if the transfer was cut before its end: then nothing of it may be taken for whole."""
    try:
        return await ask(port, raw)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


async def rest(client: Client, within: float = 10) -> bytes:
    """All that comes until the gateway closes, however it closes."""
    data = b""
    async with asyncio.timeout(within):
        try:
            while piece := await client.reader.read(2**16):
                data += piece
        except ConnectionError:
            pass
    return data


async def until(client: Client, end: bytes, within: float = 6) -> bytes:
    """What comes up to and including `end`."""
    async with asyncio.timeout(within):
        return await client.reader.readuntil(end)


def reset(client: Client) -> None:
    """Leave with an RST, after which nobody can be waiting for anything. A FIN alone says only that the client sends no more."""
    client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.writer.transport.abort()


class SlowClient:
    """A client that reads nothing until it is told to, through the smallest buffer that the kernel gives."""

    def __init__(self) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.setblocking(False)

    async def send(self, port: int, raw: bytes) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self.socket, ("127.0.0.1", port))
        await loop.sock_sendall(self.socket, raw)

    async def all(self, most: int) -> bytes:
        """What comes until the gateway closes or `most` bytes are there; ends early if the connection is reset."""
        loop, data = asyncio.get_running_loop(), bytearray()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**22)
        while len(data) < most:
            try:
                piece = await loop.sock_recv(self.socket, 2**20)
            except ConnectionError:
                break
            if not piece:
                break
            data += piece
        return bytes(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
