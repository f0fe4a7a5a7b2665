"""Answers as bytes on a client's connection, written by ourselves.

The promise is the upstream's bytes. An answer is serialised here, head and body in one write, and the connection is only told whether it
may be used again.
"""

import asyncio
import contextlib
import fcntl
import socket
import struct
import sys
import termios
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol, TypeAlias

from gateway.core.headers import to_client
from gateway.core.model import Headers
from gateway.http.request import Request

CLIENT_GONE = 499
"""The logged status of a request that nobody was there to be answered, as nginx writes it."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_KNOWN = frozenset(status.value for status in HTTPStatus)
_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    409: b"Conflict",
    410: b"Gone",
    413: b"Content Too Large",
    417: b"Expectation Failed",
    422: b"Unprocessable Content",
    425: b"Too Early",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
    505: b"HTTP Version Not Supported",
}


def reason_of(status: int) -> bytes:
    """The reason phrase for a status of our own, or of a dialect's (RFC 9110 section 15); empty for one that nobody knows."""
    if status in _REASONS:
        return _REASONS[status]
    return HTTPStatus(status).phrase.encode() if status in _KNOWN else b""


def has_body(method: str, status: int) -> bool:
    """Whether a response may carry a body at all (RFC 9112 section 6.3)."""
    return method != "HEAD" and status >= 200 and status not in {204, 304}


def send_informational(request: Request, status: int, reason: bytes, headers: Headers) -> None:
    """Pass a 1xx response on to a client that can read one (RFC 9110 section 15.2: not to one of HTTP/1.0). Nothing if it is gone."""
    transport = request.connection.transport
    if request.version[1] >= 1 and transport is not None and not transport.is_closing():
        transport.write(beginning(status, reason, to_client(headers)) + b"\r\n")


def beginning(status: int, reason: bytes, headers: Headers) -> bytes:
    """The status line and the field lines of a head, to which more lines may be added."""
    return b"HTTP/1.1 %d %b\r\n%b" % (status, reason, lines_of(headers))


def lines_of(headers: Headers) -> bytes:
    """The fields as lines of a head."""
    return b"".join([b"%b: %b\r\n" % field for field in headers])


class Pieces(Protocol):
    """A body that comes in pieces: `pieces` ends normally only if the body is whole."""

    def pieces(self) -> AsyncIterator[bytes]: ...


@dataclass(frozen=True, slots=True)
class Patience:
    """What is put up with of a client that takes an answer; in seconds.

    Of what waits for it, it must take `min_rate` bytes for each second of `send_timeout`, and something in any case. `silence` bounds how
    long an answer that streams may have nothing to say to a client that has ended its sending and may be gone: None is no bound.
    """

    send_timeout: float = 60.0
    min_rate: int = 240
    silence: float | None = None


PATIENT = Patience()


class WireResponse:
    """One answer. Its `begun` head (see `beginning`) goes out as it is, then the framing, which is ours for this hop.

    A `body` that comes in pieces is streamed: under `length` when it is known, chunked otherwise, or ended by closing for an HTTP/1.0
    client. A client that tries our `patience` is cut. `started`: it was written, is being written, or never will be. `keep_alive`: the
    connection may be used again after it. `sent` is the number of body bytes written; `cut` says that the transfer was ended before its
    end.
    """

    __slots__ = (
        "_begun",
        "_body",
        "_close_after",
        "_length",
        "_patience",
        "_undrained",
        "cut",
        "keep_alive",
        "sent",
        "started",
        "status",
    )

    def __init__(
        self,
        status: int,
        begun: bytes,
        body: bytes | Pieces = b"",
        *,
        length: int | None = None,
        close: bool = False,
        patience: Patience = PATIENT,
    ) -> None:
        self._begun = begun
        self.status = status
        self._body = body
        self._length = length
        self._close_after = close
        self._patience = patience
        self.started = False
        self._undrained = False
        self.keep_alive = False
        self.sent = 0
        self.cut = False

    def send(self, request: Request) -> bool:
        """Write the whole answer in one piece, once, if it is at hand. False: `prepare` has to do the rest, since the body comes in pieces
        or the client takes its time. Raises ConnectionError when the client is gone.
        """
        if self.started:
            return True
        body = self._body
        if not isinstance(body, bytes):
            return False
        self.started = True
        if has_body(request.method, self.status):
            request.connection.write_whole(self._head(request, b"Content-Length: %d\r\n" % len(body), body))
            self.sent = len(body)
        else:
            request.connection.write_whole(self._head(request, self._announced(request)))
        self._undrained = request.connection.writing_paused
        return not self._undrained

    async def prepare(self, request: Request) -> None:
        """Write the whole answer, once. Raises ConnectionError when the client is gone or takes too little."""
        if self._undrained or not self.send(request):
            if self.started:
                self._undrained = False
                await self._drain(request)
            else:
                self.started = True
                await self._stream(request)

    def force_close(self) -> None:
        """The connection must not be used again after this answer."""
        self.keep_alive = False

    def drop(self) -> None:
        """Write nothing at all: nobody is there any more."""
        self.started = True
        self.cut = True
        self.keep_alive = False

    def _head(self, request: Request, framing: bytes, body: bytes = b"", *, ends: bool = False) -> bytes:
        """The head, and `body` behind it. `framing` is the only one for this hop (RFC 9112 section 6). `ends`: the end of the
        connection is the end of the body.
        """
        keep_alive = self.keep_alive = request.keep_alive and not self._close_after and not ends
        if not keep_alive:
            framing += b"Connection: close\r\n"
        elif request.version[1] == 0:
            framing += b"Connection: keep-alive\r\n"
        return b"%b%b\r\n%b" % (self._begun, framing, body)

    def _announced(self, request: Request) -> bytes:
        """The framing of an answer that has no body: one to HEAD, and a 304, may say what a GET would have got."""
        announces = self._length is not None and (request.method == "HEAD" or self.status == 304)
        return b"Content-Length: %d\r\n" % self._length if announces and self._length is not None else b""

    async def _stream(self, request: Request) -> None:
        """The way of a body that comes in pieces."""
        if not has_body(request.method, self.status):
            request.connection.write(self._head(request, self._announced(request)))
            return
        assert not isinstance(self._body, bytes)
        chunked = self._length is None and request.version[1] != 0
        framing = b"Transfer-Encoding: chunked\r\n" if chunked else b""
        if self._length is not None:
            framing = b"Content-Length: %d\r\n" % self._length
        request.connection.write(self._head(request, framing, ends=framing == b""))
        pieces, silence = self._body.pieces(), self._patience.silence
        await self._relay(request, pieces if silence is None else _while_audible(pieces, silence), chunked=chunked)

    async def _relay(self, request: Request, pieces: AsyncIterator[bytes], *, chunked: bool) -> None:
        """Write pieces as they come. An error in the middle cuts the connection: a short transfer must never look whole."""
        connection = request.connection
        try:
            async for piece in pieces:
                if not piece:
                    continue
                connection.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                self.sent += len(piece)
                if connection.writing_paused:
                    await self._drain(request)
            if chunked:
                connection.write(b"0\r\n\r\n")
        except BaseException:
            self.cut = True
            self.keep_alive = False
            if not chunked and self._length is None:
                _reset_on_close(request)  # the end of the connection is the end of the body: only a reset says that it is not
            if connection.transport is not None:
                connection.transport.abort()
            raise
        finally:
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()

    async def _drain(self, request: Request) -> None:
        """Wait until the client has taken most of what was written. One that takes enough of it is given more time."""
        drained = asyncio.ensure_future(request.connection.drain())
        patience = self._patience
        enough = max(1.0, patience.min_rate * patience.send_timeout)
        try:
            while not drained.done():
                before = untaken(request.connection.transport)
                await asyncio.wait({drained}, timeout=patience.send_timeout)
                if not drained.done() and before - untaken(request.connection.transport) < enough:
                    if request.connection.transport is not None:
                        request.connection.transport.abort()
                    raise ConnectionResetError("the client takes too little")
            drained.result()
        finally:
            drained.cancel()


class Underway:
    """An answer that a callback will bring, and no task waits for. Its connection gives it `due`.

    Who brings the answer calls that once, with what makes it, and with what that takes; it raises nothing. `cancel`: the process is out of
    patience, and `due` is called now.
    """

    __slots__ = ("due",)

    due: "Callable[[Callable[[Any], Answering], Any], None] | None"

    def cancel(self) -> None:
        raise NotImplementedError


Answering: TypeAlias = WireResponse | Underway | Awaitable[WireResponse]
"""An answer, or the promise of one. What is not written yet is written by the connection."""


async def _while_audible(pieces: AsyncIterator[bytes], silence: float) -> AsyncGenerator[bytes]:
    """As they come, as long as the next one comes within `silence` seconds. Raises ConnectionResetError."""
    try:
        while True:
            try:
                async with asyncio.timeout(silence):
                    piece = await anext(pieces)
            except TimeoutError as error:
                raise ConnectionResetError("the client ended its sending, and there is nothing to tell it") from error
            except StopAsyncIteration:
                return
            yield piece
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


def _reset_on_close(request: Request) -> None:
    transport = request.connection.transport
    sock = None if transport is None else transport.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def untaken(transport: asyncio.WriteTransport | None) -> int:
    """Bytes that were written and have not arrived at the peer's system. Those in our kernel are among them: it wants more only when a
    third of its buffer, up to a megabyte, has gone, which takes a slow client minutes.
    """
    if transport is None:
        return 0
    queued = bytearray(4)
    with contextlib.suppress(OSError, ValueError):  # it is closed, or the system cannot say
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, queued)
    return transport.get_write_buffer_size() + int.from_bytes(queued, sys.byteorder)


def wire_response(status: int, reason: bytes, headers: Headers, body: bytes | Pieces = b"", *, close: bool = False) -> WireResponse:
    """An answer with these fields."""
    return WireResponse(status, beginning(status, reason, headers), body, close=close)


class WireTunnel(WireResponse):
    """A 101 answer, after which `joined` carries bytes until one side ends. The head that has `begun` says to which protocol."""

    __slots__ = ("_joined",)

    def __init__(self, begun: bytes, joined: Callable[[], Awaitable[int]]) -> None:
        super().__init__(101, begun)
        self._joined = joined

    def send(self, request: Request) -> bool:
        return self.started

    async def prepare(self, request: Request) -> None:
        if self.started:
            return
        self.started = True
        request.connection.write(self._begun + b"Connection: upgrade\r\n\r\n")
        self.sent = await self._joined()
