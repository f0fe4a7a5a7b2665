"""What comes in on a client's connection: bytes become requests, one at a time, each head within its limits."""

import asyncio
import contextlib
from collections.abc import Callable

from gateway.core.headers import Fields
from gateway.core.problems import Problem
from gateway.http.chunks import ChunkedBody, MalformedChunks, TooMuchFraming
from gateway.http.head_parser import HeadParser, HeadTooLarge, MalformedHead
from gateway.http.limits import ClientLimits
from gateway.http.refusals import Refusal
from gateway.http.request import RequestBody
from gateway.http.request_body import NO_BODY, READ_BUFFER, IncomingBody, WholeBody
from gateway.http.request_shapes import RequestShape, RequestShapes
from gateway.http.unfinished import EAGER, UnfinishedHead
from gateway.ports import Memory

_END = b"\r\n\r\n"
_PROTOCOL = len(" HTTP/1.1\r")


AT_ONCE = 16
"""So many pipelined requests are answered in one go; then it is the turn of other connections."""


class NoRoom(Exception):
    """The process holds as much as it may."""


class Intake(asyncio.Protocol):
    """The reading half of a client's connection.

    Each head has a parser of its own, unless one of its shape was read before (`RequestShapes`). The parser gets it up to its last byte and
    no further, and each chunked body another one: what comes behind a whole request waits as bytes until that one is answered. So a head is
    measured to the byte whatever surrounds it, what follows an upgrade is at hand, no trailer becomes a field, and a malformed request
    takes no well-formed one before it along. Of a long head the parser gets the beginning as it comes, and the rest once it is whole.
    """

    __slots__ = (
        "_busy",
        "_carry",
        "_chunks",
        "_due",
        "_head",
        "_incoming",
        "_left",
        "_line",
        "_loop",
        "_max_header_size",
        "_max_headers",
        "_parser",
        "_reading_paused",
        "_rest",
        "_shapes",
        "_sink",
        "_taking",
        "_ticket",
        "_unfinished",
        "_upgrade",
        "_wire",
        "half_closed",
        "refusal",
        "upgradable",
    )

    def __init__(self, limits: ClientLimits, memory: Memory, shapes: RequestShapes) -> None:
        self._shapes = shapes
        self._ticket = 0  # of the last head, if its shape was known
        self._loop = asyncio.get_running_loop()
        self._max_header_size = limits.max_header_size
        self._max_headers = limits.max_headers
        self._wire: asyncio.Transport | None = None  # until the connection is lost
        self._parser: HeadParser | None = None  # of a head that is not whole
        self._busy = False  # a request was handed over and is not done with
        self._incoming: IncomingBody | None = None  # its body, while there is more of it to come
        self._left = 0  # how much more
        self._chunks: ChunkedBody | None = None  # unless it is chunked
        self._head = 0  # bytes of a head that is not whole
        self._unfinished = UnfinishedHead(memory)
        self._line: bytes | None = None  # the end of a request line that is not whole
        self._carry = b""  # its last bytes, in which its end may have begun
        self._rest = b""  # what came behind the request at hand
        self._taking = False  # bytes are being looked at
        self._due = False  # `_go_on` is about to be called
        self._reading_paused = False
        self._sink: Callable[[bytes], None] | None = None  # who gets the bytes that are no more requests
        self._upgrade = False  # the request at hand asks for another protocol
        self.half_closed = False
        self.refusal: Refusal | None = None
        self.upgradable = False

    def take_in(self, data: bytes) -> None:
        """More bytes of the client."""
        if self._sink is not None:
            self._sink(data)
            return
        if self._rest:
            data, self._rest = self._rest + data, b""
        self._taking, heads = True, 0
        try:
            while data and self._sink is None:
                if self._incoming is not None:
                    if self._incoming.full:
                        break
                    data = self._take_body(self._incoming, data)
                elif self._busy:
                    break
                elif heads == AT_ONCE:
                    self._ask_for_turn()
                    break
                else:
                    data, heads = self._take_head(data), heads + 1
        finally:
            self._taking = False
        if self._sink is None:
            self._rest = data
            if data or self._reading_paused or self._incoming is not None:
                self._balance()
        elif data:
            self._sink(data)

    def _ask_for_turn(self) -> None:
        """One at a time, however many pieces come before it."""
        if not self._due:
            self._due = True
            self._loop.call_soon(self._go_on)

    def refuse(self, problem: Problem, reason: str) -> None:
        """What came in is no request, and nothing after it will be one. What was well-formed before it is answered first."""
        self.refusal = Refusal(problem, reason)
        self._sink = self._ignore
        self._drop_parsers()
        self._balance()
        if not self._busy:
            self._no_more()

    # ---- for the writing half

    def _handed_over(self, head: HeadParser | RequestShape, method: str, target: bytes, fields: Fields, body: RequestBody) -> None:
        """A request has come in."""
        raise NotImplementedError

    def _no_more(self) -> None:
        """There will be no request any more, and none is at hand."""
        raise NotImplementedError

    def _head_begun(self) -> None:
        """A head has begun that is not whole."""
        raise NotImplementedError

    def _body_ended(self) -> None:
        """The body of the request at hand has come in to its end, after the request itself."""
        raise NotImplementedError

    def _body_broken(self) -> None:
        """The body of the request at hand is malformed, which its reader is about to be told."""
        raise NotImplementedError

    def _read_on(self) -> None:
        """The reader of the body has taken what held the client back."""
        raise NotImplementedError

    def _go_on(self) -> None:
        """It is this connection's turn again."""
        raise NotImplementedError

    def _drop_parsers(self) -> None:
        if self._parser is not None:
            self._parser.close()
            self._parser = None
        if self._chunks is not None:
            self._chunks.close()
            self._chunks = None

    # ---- heads

    def _take_head(self, data: bytes) -> bytes:
        """Parse what belongs to a head; returns what comes after it."""
        begun = self._head > 0
        if not begun and data[0] in _END:
            data = data.lstrip(b"\r\n")  # empty lines before a request line are ignored (RFC 9112 section 2.2)
            if not data:
                return b""
        cut = self._end_in(data)
        piece = data[:cut] if cut else data
        if not begun:
            if 0 < cut <= self._max_header_size and (read := self._shapes.read(piece, self._max_headers, self._ticket)) is not None:
                shape, method, target, fields, length, self._ticket = read
                return self._hand_over(shape, method, target, fields, length, data[cut:])
            self._parser = HeadParser(self._max_headers)
        self._head += len(piece)
        try:
            whole = self._parse(piece, begun=begun, whole=cut > 0)
        except HeadTooLarge:  # RFC 6585 section 5
            self.refuse(Problem.HEADER_TOO_LARGE, "header_too_large")
        except MalformedHead:
            self.refuse(Problem.BAD_REQUEST, "malformed")
        except NoRoom:
            self.refuse(Problem.OVERLOADED, "overloaded")
        else:
            if whole:
                return self._parsed(piece, data[cut:], begun=begun)
            self._carry = _last(self._carry, piece)
            if not begun:
                self._head_begun()
        return b""

    def _parsed(self, piece: bytes, data: bytes, *, begun: bool) -> bytes:
        """The parser has read a head to its end, which is in `piece`."""
        head, self._parser = self._parser, None
        assert head is not None
        if not begun:
            self._shapes.learn(piece, head)
        return self._hand_over(head, head.method, head.target, head.fields, head.length, data)

    def _parse(self, piece: bytes, *, begun: bool, whole: bool) -> bool:
        """Give the parser more of a head, now or later. Whether that is `whole`; raises what is wrong with it."""
        parser, over = self._parser, self._head - self._max_header_size
        assert parser is not None
        http = self._speaks_http(piece, begun=begun)
        if not whole and over < 0 and self._head > EAGER:
            if not http:
                raise MalformedHead("another protocol")
            if not self._unfinished.keep(piece):
                raise NoRoom
            return False
        fed = self._unfinished.before(piece) if begun else piece
        too_large = over > 0 or (over == 0 and not whole)
        parser.feed(fed[: len(fed) - over] if too_large else fed)
        if not whole and self._line is None:
            parser.check_target()
        if too_large:
            raise HeadTooLarge
        if not http or parser.complete != whole:  # nothing is safe where this and the parser do not agree
            raise MalformedHead("another protocol, or another end")
        return whole

    def _speaks_http(self, piece: bytes, *, begun: bool) -> bool:
        """Whether the request line may be one of HTTP, as far as it has come in. The parser takes RTSP and ICE for it."""
        line = self._line if begun else b""
        if line is None:
            return True
        end = piece.find(b"\n")
        line = (line + (piece if end < 0 else piece[:end]))[-_PROTOCOL:]
        self._line = line if end < 0 else None
        return end < 0 or b" HTTP/" in line

    def _hand_over(self, head: HeadParser | RequestShape, method: str, target: bytes, fields: Fields, length: int, data: bytes) -> bytes:
        """A head is whole. `data` is what came behind it; returns what of it is not of this request."""
        if self._head > EAGER:
            self._unfinished.parsed(self._head)
        self._head, self._carry, self._busy = 0, b"", True
        body: RequestBody
        if not head.chunked and length <= len(data):
            self.upgradable = head.upgrade
            body, data = (WholeBody(data[:length]), data[length:]) if length else (NO_BODY, data)
        else:
            self._upgrade, self._left = head.upgrade, length
            self._chunks = ChunkedBody(self._max_header_size) if head.chunked else None
            body = self._incoming = IncomingBody(self._read_on)
            if data:
                data = self._take_body(self._incoming, data)
        self._handed_over(head, method, target, fields, body)
        return data

    # ---- bodies

    def _take_body(self, body: IncomingBody, data: bytes) -> bytes:
        """Take what belongs to the body; returns what may come after it."""
        chunks = self._chunks
        if chunks is None:
            piece = data[: self._left]
            taken = len(piece)
            self._left -= taken
            ended = not self._left
        else:
            try:
                piece, taken = chunks.feed(data)
            except TooMuchFraming:
                self._break(body, Problem.HEADER_TOO_LARGE, "header_too_large")
                return b""
            except MalformedChunks:
                self._break(body, Problem.BAD_REQUEST, "malformed")
                return b""
            ended = chunks.done
        body.feed(piece)
        if ended:
            self._drop_parsers()
            self._incoming = None
            self.upgradable, self._upgrade = self._upgrade, False
            body.end()
            self._body_ended()
        return data[taken:]

    def _break(self, body: IncomingBody, problem: Problem, reason: str) -> None:
        self.refuse(problem, reason)
        self._body_broken()
        body.lose("the body is malformed")

    # ---- bytes

    def _end_in(self, data: bytes) -> int:
        """Where the first empty line ends in `data`, which may have begun in what was fed before; 0: nowhere."""
        if self._carry:
            at = (self._carry + data[:3]).find(_END)
            if at >= 0:
                return at + 4 - len(self._carry)
        at = data.find(_END)
        return at + 4 if at >= 0 else 0

    def _balance(self) -> None:
        """Hold the client back, or let it go on."""
        held = self.refusal is not None or len(self._rest) >= READ_BUFFER or (self._incoming is not None and self._incoming.full)
        if held != self._reading_paused:
            self._pause_reading() if held else self._resume_reading()

    def _pause_reading(self) -> None:
        self._reading_paused = True
        if self._wire is not None:
            with contextlib.suppress(RuntimeError):  # it is being closed
                self._wire.pause_reading()

    def _resume_reading(self) -> None:
        self._reading_paused = False
        if self._wire is not None:
            with contextlib.suppress(RuntimeError):  # it is being closed
                self._wire.resume_reading()

    def _ignore(self, data: bytes) -> None:
        """After a refusal, until it can be written: nothing is read, but one read may be on its way."""


def _last(carry: bytes, piece: bytes) -> bytes:
    return piece[-3:] if len(piece) >= 3 else (carry + piece)[-3:]
