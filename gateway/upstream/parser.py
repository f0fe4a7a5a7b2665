"""One response as bytes come in: the rules of RFC 9112 on top of llhttp. Knows no socket and no clock.

llhttp refuses by itself, measured with httptools 0.9: `Content-Length` beside `Transfer-Encoding`, a second
`Content-Length` even if equal, lengths that are not plain digits, bare LF and CR, folded lines, control characters in
values, spaces around names. A head that it refuses is repaired where RFC 9112 allows that (`gateway.upstream.repair`)
and given to it anew; then the connection is not used again. In bodies only spaces behind a chunk size are put up with
(section 7.1.1): llhttp is told so.

It lets pass, so that this module refuses: transfer codings other than `chunked`, chunked in HTTP/1.0, the versions 0.9
and 2.0, RTSP, a status below 100, control characters in the reason, heads without a limit, and interim responses with a
body, which it would read as one or not, depending on the status. It knows nothing of HEAD, parses bytes behind the
response as the next one, and takes an interim response that announces the connection's end for the last one.
"""

import math
import re
from collections.abc import Callable
from typing import NoReturn

import httptools

from gateway.core.model import Headers
from gateway.upstream.repair import MAX_HEAD, Malformed, MalformedHeads, Violation
from gateway.upstream.response_shapes import ResponseShapes

MAX_INFORMATIONAL = 32
"""How many interim responses are handed on; what comes beyond is skipped, and all heads together are at most `MAX_HEAD`
long.
"""

_TIMEOUT = re.compile(rb"(?:^|[,; \t])timeout[ \t]*=[ \t]*\"?([0-9]{1,9})", re.IGNORECASE)
_CONTROLS = bytes(code for code in (*range(0x20), 0x7F) if code != 0x09)
_BODILESS = frozenset({204, 304})
_START = b"H\r\n"  # empty lines before the status line are skipped by llhttp


class ResponseParser:
    """Parses one final response at a time: the first one is to `method`, each next one begins with `begin`.

    Of the 1xx responses before the final one, 100 is skipped and the others go to `informational`. `upgrade` is the
    protocol that was asked for: a 101 that switches to it (RFC 9110 section 7.8) is a final response without a body,
    `switched` is then set, and `rest` holds the first bytes of that protocol. Any other 101 is malformed.

    `status`, `reason`, `headers` (values without surrounding whitespace) and `content_length` (as announced) hold once
    `head_complete`; trailers are dropped. `complete`: the body has ended by its own framing, and no more may be fed.
    `reusable` is then whether the connection may carry another exchange, with `begin`. De-framed body bytes wait in
    `body`, `buffered` of them, until taken. `violations` are those that were put right in its heads. `patience` is for
    how many seconds the upstream says that it keeps an idle connection. `shapes` are known of heads, for all parsers that share them.
    """

    __slots__ = (
        "_again",
        "_ends_with_head",
        "_fault",
        "_fresh",
        "_head_request",
        "_informational",
        "_informational_left",
        "_interims",
        "_last",
        "_llhttp",
        "_malformed",
        "_quiet",
        "_seen",
        "_shapes",
        "_ticket",
        "_until_eof",
        "_untouched",
        "_upgrade",
        "body",
        "buffered",
        "complete",
        "content_length",
        "head_complete",
        "headers",
        "patience",
        "reason",
        "rest",
        "reusable",
        "status",
        "switched",
        "violations",
    )

    def __init__(
        self,
        method: bytes = b"GET",
        upgrade: bytes | None = None,
        informational: Callable[[int, bytes, Headers], None] | None = None,
        *,
        shapes: ResponseShapes | None = None,
    ) -> None:
        self._shapes = ResponseShapes() if shapes is None else shapes
        self._ticket = 0  # of the last head, if its shape was known
        self._llhttp: httptools.HttpResponseParser | None = None
        self.begin(method, upgrade, informational)

    def begin(
        self, method: bytes, upgrade: bytes | None = None, informational: Callable[[int, bytes, Headers], None] | None = None
    ) -> None:
        """Forget the last response, which must have been the first or `reusable`, and expect the one to this request."""
        self.status = 0
        self.reason = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.content_length: int | None = None
        self.head_complete = False
        self.complete = False
        self.reusable = False
        self.patience = math.inf
        self.switched = False
        self.rest = b""
        self.body: list[bytes] = []
        self.buffered = 0
        self.violations: frozenset[Violation] = frozenset()
        self._seen: bytearray | None = None  # all that was fed, while the head is not whole
        self._malformed: MalformedHeads | None = None  # while heads have to be repaired
        self._interims = 0
        self._again = 0  # interim responses that were handed on before all of it was given to another parser
        self._fresh: list[bytes] = []
        self._quiet = 0
        self._fault: str | None = None
        self._until_eof = False
        self._last = False
        self._head_request = method == b"HEAD"
        self._ends_with_head = False
        self._upgrade = upgrade
        self._informational = informational
        self._informational_left = MAX_INFORMATIONAL
        self._untouched = True  # nothing has come yet
        if self._llhttp is None:
            self._llhttp = self._new_llhttp()

    def feed(self, data: bytes) -> None:
        """Take in received bytes (not empty). Raises Malformed, after which only what is in `body` may still be read."""
        untouched, self._untouched = self._untouched, False
        if untouched and self._recall(data):
            return
        self._feed(data)
        if untouched and self.complete:
            self._learn(data)
        if self.complete:
            self._finish(data)

    def _feed(self, data: bytes) -> None:
        headed, quiet = self.head_complete, self._quiet
        if not headed:
            if quiet == 0 and data[0] not in _START:
                self._refuse("not HTTP")
            if self._malformed is not None:
                self._repair(self._malformed, data)
            elif (why := self._parse(data)) is not None:
                self._begin_anew(data, why)
            elif not self.head_complete:
                self._seen = self._seen or bytearray()
                self._seen += data
            if quiet + len(data) > MAX_HEAD and self.head_complete and _size(self.headers) > MAX_HEAD:
                self._refuse("head too long")
        elif (why := self._parse(data)) is not None:
            self._refuse(why)
        fresh = self._fresh
        if fresh:
            piece = fresh[0] if len(fresh) == 1 else b"".join(fresh)
            self.body.append(piece)
            self.buffered += len(piece)
            self._quiet = 0
            self._fresh = []
        else:
            self._quiet += len(data)
        if not self.complete and self._quiet > MAX_HEAD:
            self._refuse("head, trailers or chunk sizes too long")

    def eof(self) -> bool:
        """The connection ended cleanly (FIN, or close_notify under TLS): whether that completes the response."""
        if self._until_eof and not self.complete:
            self.complete = True
            self._llhttp = None
        return self.complete

    def take(self) -> bytes:
        """All body bytes that are waiting, as one piece; a piece that came alone is given as it is."""
        pieces = self.body
        whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self.body = []
        self.buffered = 0
        return whole

    def close(self) -> None:
        """Nothing will be fed any more: lets go of llhttp, which holds this parser as this one holds it. What was
        parsed stays.
        """
        self._llhttp = None

    def _recall(self, data: bytes) -> bool:
        """Whether these bytes are all of a response whose shape is known: then nothing remains to be parsed."""
        cut = data.find(b"\r\n\r\n") + 4
        if cut < 4 or self._head_request or self._upgrade is not None or (known := self._shapes.read(data[:cut], self._ticket)) is None:
            return False
        shape, lines, length, self._ticket = known
        if cut + length != len(data):
            return False
        self.status, self.reason, self.headers, self.patience = shape.status, shape.reason, lines, shape.patience
        self.content_length = length
        self.head_complete = self.complete = self.reusable = True
        if length:
            self.body.append(data[cut:])
            self.buffered = length
        self._informational = None
        return True

    def _learn(self, data: bytes) -> None:
        """What came in one piece was parsed to its end. Others that are framed so, and read as simply, need not be."""
        cut = data.find(b"\r\n\r\n") + 4
        simple = self.reusable and not (self.violations or self._head_request or self.switched)
        if simple and self.status not in _BODILESS and self.content_length == len(data) - cut:
            self._shapes.learn(data[:cut], self.status, self.reason, self.headers.copy(), self.patience)

    def _refuse(self, why: str) -> NoReturn:
        self._llhttp = None
        raise Malformed(why) from None

    def _parse(self, data: bytes) -> str | None:
        """Give it to llhttp. Returns what is wrong with it. What a callback raises, a mistake of ours, is raised."""
        assert self._llhttp is not None
        try:
            self._llhttp.feed_data(data)
        except httptools.HttpParserUpgrade as end:  # raised for every 101 that names a protocol
            if self.switched:
                self.rest = data[end.args[0] :]
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except httptools.HttpParserError as error:
            if not self.complete:
                return str(error)
            self.reusable = False
        return self._fault

    def _new_llhttp(self) -> httptools.HttpResponseParser:
        parser = httptools.HttpResponseParser(self)
        parser.set_dangerous_leniencies(lenient_spaces_after_chunk_size=True)
        return parser

    # Heads that have to be repaired

    def _begin_anew(self, data: bytes, why: str) -> None:
        """Go through all that was fed so far once more, head by head. Raises Malformed if it is not a head that is
        malformed.
        """
        if self.head_complete:  # by these very bytes
            self._refuse(why)
        seen, self._seen = self._seen or bytearray(), None
        self._malformed = MalformedHeads()
        self._llhttp = self._new_llhttp()
        self._again, self._interims = self._interims, 0
        self.reason, self.headers, self.content_length = b"", [], None
        self._fault, self._last, self._fresh = None, False, []
        seen += data
        self._repair(self._malformed, seen)

    def _repair(self, heads: MalformedHeads, data: bytes | bytearray) -> None:
        heads.feed(data)
        while not self.head_complete:
            try:
                repaired = heads.take()
            except Malformed as error:
                self._refuse(str(error))
            if repaired is None:
                return
            self.violations |= repaired.violations
            why = self._parse(repaired.head)
            if why is not None:
                self._refuse(why)
        rest, self._malformed = heads.rest, None
        if self.switched:
            self.rest = rest
        elif rest and not self.complete and (why := self._parse(rest)) is not None:
            self._refuse(why)

    def _finish(self, data: bytes) -> None:
        if self.violations or (self._head_request and not data.endswith(b"\r\n\r\n")):
            self.reusable = False
        if self._head_request or not self.reusable:
            self._llhttp = None  # it is not where the next response begins
        self._informational = None  # an idle connection keeps nothing of the client that was told

    # Callbacks of httptools. Every one may be called again for bytes behind the response, and must then change nothing
    # but `reusable`.

    def on_message_begin(self) -> None:
        if self.complete:
            self.reusable = False

    def on_status(self, reason: bytes) -> None:
        if not self.head_complete:
            self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.head_complete:
            self.headers.append((name, value.rstrip()))

    def on_headers_complete(self) -> None:
        parser = self._llhttp
        if self.head_complete or parser is None:
            return
        self.status = status = parser.get_status_code()
        version = parser.get_http_version()
        framed = self._read_framing(version)
        if version not in {"1.1", "1.0"}:
            self._fault = "not HTTP/1.x"
        elif status < 100:
            self._fault = "a status below 100"
        elif len(self.reason.translate(None, _CONTROLS)) != len(self.reason):
            self._fault = "control character in the reason"
        elif status == 101:
            self._switch(parser, version)
        elif status < 200:
            self._begin_interim(parser, framed=framed)
        else:
            self.head_complete = True
            self._seen = None
            self._quiet = 0
            if self._head_request:
                self.complete = True
                self._ends_with_head = self.content_length == 0
                self.reusable = _persistent(version, self.headers) and not self._last
            else:
                self._until_eof = not framed and status not in {204, 304}

    def on_body(self, data: bytes) -> None:
        if self.complete:
            self.reusable = False
        else:
            self._fresh.append(data)

    def on_message_complete(self) -> None:
        parser = self._llhttp
        if self._ends_with_head:
            self._ends_with_head = False  # llhttp, which knows nothing of HEAD, tells of a body of no bytes
        elif self.complete or parser is None:
            self.reusable = False
        elif self.head_complete:
            self.complete = True
            self.reusable = parser.should_keep_alive() and not self._last
        else:
            self._end_interim()

    def _switch(self, parser: httptools.HttpResponseParser, version: str) -> None:
        """101: complete if it leaves HTTP/1.1 for the protocol asked for, and nothing else."""
        upgrade = self._upgrade
        names = [value for name, value in self.headers if name.lower() == b"upgrade"]
        if upgrade is None or version != "1.1" or not parser.should_upgrade() or [name.lower() for name in names] != [upgrade.lower()]:
            self._fault = "a switch of protocols that was not asked for"
        else:
            self.head_complete = self.complete = self.switched = True

    def _begin_interim(self, parser: httptools.HttpResponseParser, *, framed: bool) -> None:
        """RFC 9112 section 6.3 rule 1: it ends with its head. A length or coding says otherwise, and not every reader
        ignores it.
        """
        if framed and self.content_length != 0:
            self._fault = "an interim response with a body"
        elif not parser.should_keep_alive():
            self._last = True
            parser.set_dangerous_leniencies(lenient_keep_alive=True)  # else all that follows is refused

    def _end_interim(self) -> None:
        if self._fault is None:
            self._interims += 1
        if self._again:
            self._again -= 1
        elif self._informational is not None and self._fault is None and self.status != 100 and self._informational_left > 0:
            self._informational_left -= 1
            self._informational(self.status, self.reason, tuple(self.headers))
        self.reason, self.headers, self.content_length = b"", [], None

    def _read_framing(self, version: str) -> bool:
        """Whether the end of the body is told by a length or by chunks (RFC 9112 section 6.3)."""
        codings = 0
        for name, value in self.headers:
            length = len(name)
            if length == 14 and name.lower() == b"content-length":
                self.content_length = int(value)
            elif length == 17 and name.lower() == b"transfer-encoding":
                codings += 1
                if value.lower() != b"chunked" or codings > 1 or version == "1.0":
                    self._fault = "transfer coding other than chunked"
            elif length == 10 and name.lower() == b"keep-alive":
                self.patience = _patience(value)
        return self.content_length is not None or codings > 0


def _size(headers: list[tuple[bytes, bytes]]) -> int:
    return sum([len(name) + len(value) + 4 for name, value in headers])


def _patience(value: bytes) -> float:
    """Seconds for which the sender of this `Keep-Alive` keeps an idle connection; infinite if it does not say (RFC
    2068, 19.7.1.1).
    """
    found = _TIMEOUT.search(value)
    return float(found[1]) if found else math.inf


def _persistent(version: str, headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether the connection outlives a response that ends with its head (RFC 9112 section 9.3)."""
    options = {token.strip().lower() for name, value in headers if name.lower() == b"connection" for token in value.split(b",")}
    return b"close" not in options and (version == "1.1" or b"keep-alive" in options)
