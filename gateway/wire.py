"""Answers as bytes on a client's connection, written by ourselves.

aiohttp's writer drops header bytes that are not UTF-8 and adds fields of its own; the promise is the upstream's bytes. So an answer
is serialised here, head and body in one write, and aiohttp's server is only told whether the connection may be used again.
"""

from collections.abc import AsyncIterator

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.web_request import BaseRequest

from gateway.core.model import Headers

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

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
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
    505: b"HTTP Version Not Supported",
}


def reason_of(status: int) -> bytes:
    """The reason phrase for a status of our own (RFC 9110 section 15)."""
    return _REASONS[status]


def has_body(method: str, status: int) -> bool:
    """Whether a response may carry a body at all (RFC 9112 section 6.3)."""
    return method != "HEAD" and status >= 200 and status not in {204, 304}


class WireResponse(web.StreamResponse):
    """One answer. `headers` go out as they are, then the framing, which is ours for this hop.

    With `chunks` the body is streamed: under `length` when it is known, chunked otherwise, or ended by closing for an HTTP/1.0 client.
    `sent` is the number of body bytes written; `cut` says that the transfer was ended before its end.
    """

    def __init__(
        self,
        status: int,
        reason: bytes,
        headers: Headers,
        body: bytes = b"",
        *,
        chunks: AsyncIterator[bytes] | None = None,
        length: int | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(status=status)
        self._reason_bytes = reason
        self._wire_headers = headers
        self._wire_body = body
        self._chunks = chunks
        self._length = length
        self._close_after = close
        self.sent = 0
        self.cut = False

    async def prepare(self, request: BaseRequest) -> AbstractStreamWriter | None:
        """Write the whole answer. Raises ConnectionResetError when the client is gone, as aiohttp's server expects."""
        if self._eof_sent:
            return None
        self._eof_sent = True
        with_body = has_body(request.method, self.status)
        keep_alive = request.keep_alive and not self._close_after
        framing, chunked = self._framing(request, with_body=with_body)
        if self._chunks is not None and with_body and framing == b"":
            keep_alive = False
        if not keep_alive:
            framing += b"Connection: close\r\n"
        elif request.version.minor == 0:
            framing += b"Connection: keep-alive\r\n"
        self._keep_alive = keep_alive
        head = self._head(framing)
        if self._chunks is None:
            body = self._wire_body if with_body else b""
            self._write(request, head + body)
            self.sent = len(body)
            if request.protocol.writing_paused:  # else there is nothing to wait for
                await request.writer.drain()
        else:
            self._write(request, head)
            await self._relay(request, self._chunks, chunked=chunked, with_body=with_body)
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing: `prepare` wrote everything."""

    def drop(self) -> None:
        """Write nothing at all: nobody is there any more."""
        self._eof_sent = True
        self.cut = True
        self.force_close()

    def _head(self, framing: bytes) -> bytes:
        return b"HTTP/1.1 %d %b\r\n%b%b\r\n" % (
            self.status,
            self._reason_bytes,
            b"".join([b"%b: %b\r\n" % field for field in self._wire_headers]),
            framing,
        )

    def _framing(self, request: BaseRequest, *, with_body: bool) -> tuple[bytes, bool]:
        """Exactly one framing for this hop (RFC 9112 section 6). A HEAD or 304 answer may announce a length without a body."""
        if not with_body:
            announced = self._length is not None and (request.method == "HEAD" or self.status == 304)
            return (b"Content-Length: %d\r\n" % self._length if announced and self._length is not None else b""), False
        if self._chunks is None:
            return b"Content-Length: %d\r\n" % len(self._wire_body), False
        if self._length is not None:
            return b"Content-Length: %d\r\n" % self._length, False
        if request.version.minor == 0:
            return b"", False
        return b"Transfer-Encoding: chunked\r\n", True

    async def _relay(self, request: BaseRequest, chunks: AsyncIterator[bytes], *, chunked: bool, with_body: bool) -> None:
        """Write pieces as they come. An error in the middle cuts the connection: a short transfer must never look whole."""
        try:
            async for chunk in chunks:
                if not with_body or not chunk:
                    continue
                self._write(request, b"%x\r\n%b\r\n" % (len(chunk), chunk) if chunked else chunk)
                self.sent += len(chunk)
                await request.writer.drain()
            if chunked and with_body:
                self._write(request, b"0\r\n\r\n")
        except BaseException:
            self.cut = True
            self._keep_alive = False
            if request.transport is not None:
                request.transport.abort()
            raise

    @staticmethod
    def _write(request: BaseRequest, data: bytes) -> None:
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("client is gone")
        transport.write(data)
