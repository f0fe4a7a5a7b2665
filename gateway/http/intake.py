"""What comes in on a client's connection: bytes become requests, one at a time, each head within its limits."""

import asyncio
import logging
from collections.abc import Callable

from aiohttp import hdrs, web
from aiohttp.http import HttpProcessingError, HttpRequestParser, RawRequestMessage
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from gateway.core.problems import Problem
from gateway.http.chunks import Chunks
from gateway.http.refusals import Refusal
from gateway.http.unfinished import EAGER, UnfinishedHead
from gateway.ports import Memory

READ_BUFFER = 64 * 1024
"""As many bytes of a body that nobody reads, or behind a request that is not answered yet, hold the client back."""

_END = b"\r\n\r\n"
_PROTOCOL = len(" HTTP/1.1\r")
_NO_LOG = logging.getLogger("gateway.proxy.unused")
_NO_LOG.disabled = True


class Intake(RequestHandler):
    """The reading half of a client's connection.

    The parser is given one message at a time: up to the end of a head, then up to the end of its body. What comes behind a whole
    request waits as bytes until that one is answered. So a head is measured to the byte whatever surrounds it, what follows an
    upgrade is at hand, and a malformed request takes no well-formed one before it along. Of a long head the parser gets the beginning as
    it comes, and the rest once it is whole. (aiohttp feeds whatever arrives, and with
    it loses whole requests before a malformed one, and everything behind an upgrade that it does not know.)
    """

    __slots__ = (
        "_busy",
        "_carry",
        "_chunks",
        "_head",
        "_held",
        "_incoming",
        "_left",
        "_line",
        "_rest",
        "_sink",
        "_tainted",
        "_unfinished",
        "half_closed",
        "refusal",
        "upgradable",
    )

    def __init__(self, manager: web.Server, max_header_size: int, max_headers: int, memory: Memory) -> None:
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            access_log=_NO_LOG,
            max_line_size=max_header_size,
            max_field_size=max_header_size,
            max_headers=max_headers,
            read_bufsize=READ_BUFFER,
            auto_decompress=False,
        )
        self._busy = False  # a request was handed over and is not done with
        self._incoming: StreamReader | None = None  # its body, while there is more of it to come
        self._left = 0  # how much more
        self._chunks: Chunks | None = None  # unless it is chunked, and this will tell where it ends
        self._head = 0  # bytes of a head that is not whole; within a chunked body: of what is not its content
        self._unfinished = UnfinishedHead(memory)
        self._line: bytes | None = None  # the end of a request line that is not whole
        self._carry = b""  # its last bytes, in which its end may have begun
        self._rest = b""  # what came behind the request at hand
        self._held = False  # whether that holds the client back
        self._sink: Callable[[bytes], None] | None = None  # who gets the bytes that are no more requests
        self._tainted = False  # whether the body at hand had trailers
        self.half_closed = False
        self.refusal: Refusal | None = None
        self.upgradable = False

    def _new_parser(self) -> HttpRequestParser:
        """As aiohttp makes one for each connection."""
        return HttpRequestParser(
            self,
            self._loop,
            READ_BUFFER,
            max_line_size=self.max_line_size,
            max_field_size=self.max_field_size,
            max_headers=self.max_headers,
            payload_exception=web.RequestPayloadError,
            auto_decompress=False,
            max_msg_queue_size=self._max_msg_queue_size,
        )

    def data_received(self, data: bytes) -> None:
        if self._sink is not None:
            self._sink(data)
            return
        if self._rest:
            data, self._rest = self._rest + data, b""
        while data and not self._reading_paused:
            if self._incoming is not None:
                data = self._take_body(data)
            elif self._busy:
                break
            else:
                data = self._take_head(data)
        if data or self._held:
            self._keep(data)

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001 (as aiohttp declares it)
        """A body has been read so far that more of it is wanted. Called by aiohttp for every piece, whether anything was paused or not."""
        if not self._reading_paused:
            return
        self._reading_paused = False
        if self._parser is None:
            return
        if resume_parser:
            if self._incoming is not None:
                self._feed_body(b"")  # what the parser kept when it was paused
            self.data_received(b"")
        self._let_in()

    def refuse(self, problem: Problem, reason: str) -> None:
        """What came in is no request, and nothing after it will be one. What was well-formed before it is answered first."""
        self.refusal = Refusal(problem, reason)
        self._sink = self._ignore
        self._pause_transport_reading()
        self._wake()

    # ---- for the writing half

    def _request_done(self) -> None:
        """The request that was handed over is answered and its body is read: on to the next."""
        assert self._parser is not None
        self._unfinished.close()
        self._parser.message_consumed()
        if self._tainted:  # aiohttp's parser keeps the last trailer line, and would put it among the fields of the next request
            self._tainted, self._parser = False, self._new_parser()
        if self.upgradable:  # and nobody took the connection over
            self.upgradable = False
            self._parser.set_upgraded(False)
        self._busy = False
        if self._rest:
            self.data_received(b"")
        if self.half_closed and self._incoming is not None:
            self._incoming.set_exception(ConnectionResetError("the client ended in the middle of its request"))

    def _head_begun(self) -> None:
        """A head has begun that is not whole."""

    def _body_broken(self, body: StreamReader) -> None:
        """The body of the request at hand is malformed, which its reader is about to be told."""

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # ---- heads

    def _take_head(self, data: bytes) -> bytes:
        """Feed what belongs to a head; returns what comes after it."""
        if not self._head:
            data = data.lstrip(b"\r\n")  # empty lines before a request line are ignored (RFC 9112 section 2.2)
            if not data:
                return b""
        cut = self._end_in(data)
        whole = cut > 0
        piece = data[:cut] if whole else data
        begun, limit = self._head, self.max_field_size
        self._head = begun + len(piece)
        too_large = self._head > limit or (self._head == limit and not whole)
        if not whole and not too_large and self._head > EAGER:
            self._put_off(piece, begun=begun > 0)
            return b""
        fed = self._unfinished.before(piece)
        assert self._parser is not None
        try:
            messages, upgraded, _ = self._parser.feed_data(fed[: limit - self._head + len(fed)] if too_large else fed)
        except HttpProcessingError as error:
            self._malformed(error)
            return b""
        if too_large:
            self.refuse(Problem.HEADER_TOO_LARGE, "header_too_large")
            return b""
        if not self._speaks_http(piece, begun=begun > 0):
            self.refuse(Problem.BAD_REQUEST, "malformed")
            return b""
        if len(messages) != whole:  # nothing is safe where this and the parser do not agree
            self.refuse(Problem.BAD_REQUEST, "malformed")
            return b""
        if whole:
            self._unfinished.parsed(self._head)
            self._head, self._carry = 0, b""
            self._hand_over(*messages[0], upgraded=upgraded)
            return data[cut:]
        self._goes_on(piece, begun=begun > 0)
        return b""

    def _put_off(self, piece: bytes, *, begun: bool) -> None:
        """Have the parser wait for the rest of a long head."""
        if not self._speaks_http(piece, begun=begun):
            self.refuse(Problem.BAD_REQUEST, "malformed")
        elif self._unfinished.keep(piece):
            self._goes_on(piece, begun=begun)
        else:
            self.refuse(Problem.OVERLOADED, "overloaded")

    def _goes_on(self, piece: bytes, *, begun: bool) -> None:
        self._carry = _last(self._carry, piece)
        if not begun:
            self._head_begun()

    def _speaks_http(self, piece: bytes, *, begun: bool) -> bool:
        """Whether the request line may be one of HTTP, as far as it has come in. The parser takes RTSP and ICE for it."""
        line = self._line if begun else b""
        if line is None:
            return True
        end = piece.find(b"\n")
        line = (line + (piece if end < 0 else piece[:end]))[-_PROTOCOL:]
        self._line = line if end < 0 else None
        return end < 0 or b" HTTP/" in line

    def _hand_over(self, message: RawRequestMessage, payload: StreamReader, *, upgraded: bool) -> None:
        self._busy = True
        self._request_count += 1
        self._messages.append((message, payload))
        if payload.is_eof():
            self.upgradable = upgraded
        else:
            self._incoming = payload
            if message.chunked:
                self._chunks = Chunks()
            else:
                self._left = int(message.headers[hdrs.CONTENT_LENGTH])
        self._wake()

    def _malformed(self, error: HttpProcessingError) -> None:
        if isinstance(error, LineTooLong) or "too many" in error.message.lower():  # RFC 6585 section 5
            self.refuse(Problem.HEADER_TOO_LARGE, "header_too_large")
        else:
            self.refuse(Problem.BAD_REQUEST, "malformed")

    # ---- bodies

    def _take_body(self, data: bytes) -> bytes:
        """Feed what belongs to the body; returns what may come after it."""
        if self._chunks is not None:
            piece = data[: self._chunks.cut(data)]
        else:
            piece = data[: self._left]
            self._left -= len(piece)
        self._feed_body(piece)
        return b"" if self.refusal is not None else data[len(piece) :]

    def _feed_body(self, piece: bytes) -> None:
        body, chunks = self._incoming, self._chunks
        assert body is not None
        assert self._parser is not None
        before = body.total_bytes
        try:
            messages, self.upgradable, _ = self._parser.feed_data(piece)
            if messages or (body.is_eof() and chunks is not None and not chunks.done):
                raise BadHttpMessage("the body ended before its end")  # nothing is safe where this and the parser do not agree
            if body.is_eof():
                self._tainted = chunks is not None and chunks.trailers
                self._incoming, self._chunks, self._head = None, None, 0
            elif chunks is not None:
                self._head = 0 if body.total_bytes > before else self._head + len(piece)
                if self._head > self.max_field_size:  # trailers, or extensions of a chunk, without end
                    raise LineTooLong(b"", self.max_field_size)
        except HttpProcessingError as error:
            self._malformed(error)
            self._body_broken(body)
            body.set_exception(web.RequestPayloadError("the body is malformed"), error)

    # ---- bytes

    def _end_in(self, data: bytes) -> int:
        """Where the first empty line ends in `data`, which may have begun in what was fed before; 0: nowhere."""
        if self._carry:
            at = (self._carry + data[:3]).find(_END)
            if at >= 0:
                return at + 4 - len(self._carry)
        at = data.find(_END)
        return at + 4 if at >= 0 else 0

    def _keep(self, data: bytes) -> None:
        self._rest = data
        if len(data) >= READ_BUFFER:
            self._held = True
            self._pause_transport_reading()
        elif self._held:
            self._held = False
            self._let_in()

    def _let_in(self) -> None:
        if not self._reading_paused and not self._held and self.refusal is None:
            self._resume_transport_reading()

    def _ignore(self, data: bytes) -> None:
        """After a refusal, until it can be written: nothing is read, but one read may be on its way."""


def _last(carry: bytes, piece: bytes) -> bytes:
    return piece[-3:] if len(piece) >= 3 else (carry + piece)[-3:]
