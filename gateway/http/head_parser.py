"""One request's head as bytes come in: the rules of RFC 9112 on top of llhttp. Knows no connection.

llhttp refuses by itself, measured with httptools 0.9: `Content-Length` beside `Transfer-Encoding`, a second `Content-Length` even if equal,
lengths that are not plain digits or need more than 64 bits, a last transfer coding other than `chunked`, bare LF and CR, folded lines,
control characters in values, spaces around names, unknown methods, versions such as 1.2.

It lets pass, so that this module refuses: repeated fields of which there can be only one, a missing `Host`, fields without number, targets
of no form. `gateway.core.framing` judges what can be answered as a request that came whole.
"""

import httptools

from gateway.core.headers import Fields
from gateway.core.request_target import is_target

SINGLETONS = frozenset(
    {
        b"content-length",
        b"content-location",
        b"content-range",
        b"content-type",
        b"etag",
        b"host",
        b"max-forwards",
        b"server",
        b"transfer-encoding",
        b"user-agent",
    }
)
"""Fields of which a request has one at most (RFC 9110 section 5.3): of two, nobody knows which one the next reader believes."""

_UNFRAMED_BODY = b"sec-websocket-key1"
"""A draft of WebSocket, long dead, in which eight bytes follow the head that no field announces."""

_VERSIONS = {"1.1": (1, 1), "1.0": (1, 0)}


class MalformedHead(Exception):
    """What came in is no head of a request."""


class HeadTooLarge(Exception):
    """The head has more bytes or field lines than it may have."""


class HeadParser:
    """Parses exactly one head, of at most `most` field lines.

    When `complete`, all of this holds: `method`, `target` (as received), `version`, `fields` (values without surrounding whitespace),
    `keep_alive` (the client lets the connection be used again), `length` and `chunked` (the body's framing; neither: there is none), and
    `upgrade` (it asks for WebSocket, or is a CONNECT).
    """

    __slots__ = (
        "_first",
        "_lines",
        "_llhttp",
        "_most",
        "_repeated",
        "_too_many",
        "chunked",
        "complete",
        "fields",
        "keep_alive",
        "length",
        "method",
        "target",
        "upgrade",
        "version",
    )

    fields: Fields
    method: str
    version: tuple[int, int]

    def __init__(self, most: int) -> None:
        self._most = most
        self._lines: list[tuple[bytes, bytes]] = []
        self._first: dict[bytes, bytes] = {}
        self._repeated = False
        self._too_many = False
        self.target = b""
        self.complete = False
        self.keep_alive = False
        self.length = 0
        self.chunked = False
        self.upgrade = False
        self._llhttp: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)

    def feed(self, data: bytes) -> None:
        """Take in bytes of the head, and none behind it. Raises `MalformedHead` or `HeadTooLarge`, after which no more may be fed."""
        llhttp = self._llhttp
        assert llhttp is not None
        try:
            llhttp.feed_data(data)
        except httptools.HttpParserUpgrade as end:  # raised where the head ends that asks for another protocol, whichever
            if end.args[0] != len(data):
                raise MalformedHead("a head ended within what was taken for it") from None
        except httptools.HttpParserError as error:
            raise (HeadTooLarge() if self._too_many else MalformedHead(str(error))) from None
        if self.complete:
            self._finish()

    def check_target(self) -> None:
        """Judge the target, once the request line is whole. Raises `MalformedHead`."""
        llhttp = self._llhttp
        if not self.target.startswith(b"/") and llhttp is not None and not is_target(llhttp.get_method().decode(), self.target):
            raise MalformedHead("the target has no form that there is")

    def close(self) -> None:
        """Nothing more is fed."""
        self._llhttp = None  # breaks the reference cycle between the two parsers

    def _finish(self) -> None:
        self._llhttp = None
        first = self._first
        self.fields = Fields.indexed(tuple(self._lines), first, repeated=self._repeated)
        if (not self.target.startswith(b"/") or self.method == "CONNECT") and not is_target(self.method, self.target):
            raise MalformedHead("the target has no form that there is")
        if b"host" not in first and self.version == (1, 1):
            raise MalformedHead("no Host")
        if _UNFRAMED_BODY in first:
            raise MalformedHead("a body without framing")
        if self.upgrade:
            self._read_upgrade()
        elif b"transfer-encoding" in first:
            self.chunked = True  # llhttp has seen to it that this is the last coding
        elif (length := first.get(b"content-length")) is not None:
            self.length = int(length)

    def _read_upgrade(self) -> None:
        """Of a CONNECT, or a head whose `Connection` nominates `Upgrade`. A CONNECT has no body (RFC 9110 section 9.3.6)."""
        if self.method == "CONNECT":
            return
        self.upgrade = self._first.get(b"upgrade", b"").lower() == b"websocket"
        coding = self._first.get(b"transfer-encoding")
        self.chunked = coding is not None and coding.rpartition(b",")[2].strip(b" \t").lower() == b"chunked"
        self.length = int(self._first.get(b"content-length", b"0"))

    # Callbacks of httptools. What they raise is reported as an error of llhttp's.

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        lines, lower, value = self._lines, name.lower(), value.rstrip(b" \t")
        if lower not in self._first:
            self._first[lower] = value
        elif lower in SINGLETONS:
            raise ValueError(name)
        else:
            self._repeated = True
        lines.append((name, value))
        if len(lines) > self._most:
            self._too_many = True
            raise ValueError(name)

    def on_headers_complete(self) -> None:
        llhttp = self._llhttp
        assert llhttp is not None
        version = llhttp.get_http_version()
        self.method = llhttp.get_method().decode()
        self.version = _VERSIONS.get(version) or _version(version)
        self.keep_alive = llhttp.should_keep_alive()
        self.upgrade = llhttp.should_upgrade()
        self.complete = True


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)
