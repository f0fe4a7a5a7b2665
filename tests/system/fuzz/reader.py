"""A strict reader of requests, straight from RFC 9112, that knows nothing of the gateway: what do these bytes say?

Where the RFC lets a recipient choose, this reader takes the safe side (bare LF, folded lines, `Content-Length` beside
`Transfer-Encoding` or repeated: no request), or reads on and calls the request `doubtful`: refusing it is as right as serving it.
"""

import re
from dataclasses import dataclass
from typing import TypeAlias

Lines: TypeAlias = tuple[tuple[bytes, bytes], ...]

_TOKEN = rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_START = re.compile(rb"(%b)( +)([^\x00-\x20\x7f]+)( +)HTTP/([0-9])\.([0-9])" % _TOKEN)
_FIELD = re.compile(rb"(%b):[ \t]*((?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?)[ \t]*" % _TOKEN)
_CHARACTERS = rb"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*"
_TARGET = re.compile(
    rb"\*|/%b|[A-Za-z][A-Za-z0-9+.-]*://(?:[A-Za-z0-9._~-]+@)?[A-Za-z0-9._~-]+(?::[0-9]{1,4})?(?:[/?]%b)?" % (_CHARACTERS, _CHARACTERS)
)
_HOST = re.compile(rb"(?:\[[0-9A-Za-z:.%_~-]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]*)?")
_VALUE = rb'(?:%b|"(?:[\t\x20\x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*")' % _TOKEN
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})((?:;%b(?:=%b)?)*)" % (_TOKEN, _VALUE))
_ODD_SIZE = re.compile(rb"([0-9A-Fa-f]+)(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
MANY = 100
"""As many field lines as no recipient refuses."""

SINGLE = frozenset(
    b"content-length content-location content-range content-type etag host max-forwards server transfer-encoding user-agent".split()
)
"""Fields that may be refused when there are two of them."""

_TABS = re.compile(rb"\r\n(?:transfer-encoding|content-length):[^\r]*\t", re.IGNORECASE)
_EMPTY = re.compile(rb"[\r\n]*")
_DIGITS = 18  # a length of more digits is never met either


@dataclass(frozen=True, slots=True)
class Request:
    """One whole request. Values are without surrounding whitespace, `body` without its framing; `last` if the connection ends with it."""

    method: bytes
    target: bytes
    minor: int
    fields: Lines
    body: bytes
    chunked: bool
    last: bool
    doubtful: bool

    def values(self, name: bytes) -> list[bytes]:
        """The values of all lines with this lower-case name."""
        return values(self.fields, name)


@dataclass(frozen=True, slots=True)
class Incomplete:
    """More bytes could still make a request of it. `head`: those that are missing belong to its body."""

    head: bool = False


@dataclass(frozen=True, slots=True)
class Invalid:
    """No bytes that follow could make a request of it. `head`: its body is what is wrong."""

    why: str
    head: bool = False


@dataclass(frozen=True, slots=True)
class Stream:
    """What one connection's bytes say: whole requests, and what stands behind them. `end` is None when nothing does.

    What follows a `last` request does not count (RFC 9112 section 9.6). `methods` are those of the requests, and of what stands behind
    them as far as it names one.
    """

    requests: tuple[Request, ...]
    end: Incomplete | Invalid | None
    methods: tuple[bytes, ...]


def read_stream(data: bytes) -> Stream:
    """All requests of a connection, read to its end."""
    requests: list[Request] = []
    end: Incomplete | Invalid | None = None
    at = 0
    while at < len(data) and not _EMPTY.fullmatch(data, at) and not (requests and requests[-1].last):
        found = read_request(data, at)
        if isinstance(found, Invalid | Incomplete):
            end = found
            break
        request, at = found
        requests.append(request)
    method = data[at:].lstrip(b"\r\n").partition(b" ")[0] if end is not None else b""
    return Stream(tuple(requests), end, (*(request.method for request in requests), method))


def read_request(data: bytes, at: int) -> tuple[Request, int] | Incomplete | Invalid:
    """The request that begins at `at`, and where it ends."""
    empty = _EMPTY.match(data, at)
    assert empty is not None
    start = empty.end()
    head = read_head(data, start)
    if isinstance(head, Incomplete | Invalid):
        return head
    line, fields, at = head
    found = _START.fullmatch(line)
    if found is None:
        return Invalid("start line")
    method, before, target, behind, major, minor = found.groups()
    if (major, minor) not in {(b"1", b"1"), (b"1", b"0")}:
        return Invalid("version")
    old = minor == b"0"
    fault = _judge_host(fields, old=old) or _judge_framing(fields, old=old)
    if fault is not None:
        return Invalid(fault)
    doubtful = not _TARGET.fullmatch(target) or empty[0].replace(b"\r\n", b"") != b"" or before + behind != b"  "
    doubtful |= _TABS.search(data, start, at) is not None
    codings = values(fields, b"transfer-encoding")
    if codings:
        body = read_chunked(data, at)
        if isinstance(body, Invalid | Incomplete):
            return body
        content, at, odd = body
        doubtful |= odd
    else:
        length = int((values(fields, b"content-length") or [b"0"])[0][:_DIGITS])
        content, at = data[at : at + length], at + length
        if len(content) < length:
            return Incomplete(head=True)
    return Request(method, target, int(minor), fields, content, bool(codings), _is_last(fields, old=old), doubtful), at


def read_head(data: bytes, at: int) -> tuple[bytes, Lines, int] | Incomplete | Invalid:
    """A start line, the field lines behind it, and where the head ends. Lines end in CRLF (RFC 9112 section 2.2)."""
    end = data.find(b"\r\n", at)
    if end < 0:
        return Incomplete()
    line = data[at:end]
    fields = read_fields(data, end + 2)
    return fields if isinstance(fields, Incomplete | Invalid) else (line, *fields)


def read_fields(data: bytes, at: int) -> tuple[Lines, int] | Incomplete | Invalid:
    """Field lines up to an empty one, and where that ends (RFC 9112 section 5)."""
    fields: list[tuple[bytes, bytes]] = []
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            return Incomplete()
        line, at = data[at:end], end + 2
        if not line:
            return tuple(fields), at
        found = _FIELD.fullmatch(line)
        if found is None:
            return Invalid("field line")
        fields.append((found[1], found[2]))


def read_chunked(data: bytes, at: int) -> tuple[bytes, int, bool] | Incomplete | Invalid:
    """A chunked body, where it ends, and whether a recipient may dislike how it is written (RFC 9112 section 7.1)."""
    pieces: list[bytes] = []
    odd = False
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            return Incomplete(head=True)
        usual = _SIZE.fullmatch(data, at, end)
        odd |= usual is None
        found = usual or _ODD_SIZE.fullmatch(data, at, end)
        if found is None:
            return Invalid("chunk size", head=True)
        size, at = int(found[1], 16), end + 2
        if size == 0:
            break
        if data[at + size : at + size + 2] != b"\r\n":
            whole = len(data) >= at + size + 2 or not b"\r\n".startswith(data[at + size :])
            return Invalid("chunk end", head=True) if whole else Incomplete(head=True)
        pieces.append(data[at : at + size])
        at += size + 2
    trailers = read_fields(data, at)
    if isinstance(trailers, Invalid):
        return Invalid("trailer", head=True)
    return (
        Incomplete(head=True) if isinstance(trailers, Incomplete) else (b"".join(pieces), trailers[1], odd or not _may_trail(trailers[0]))
    )


def _may_trail(fields: Lines) -> bool:
    """Whether no recipient can dislike these as trailers (RFC 9110 section 6.5.1)."""
    return len(fields) <= MANY and not {name.lower() for name, _ in fields} & SINGLE


def values(fields: Lines, name: bytes) -> list[bytes]:
    """The values of all lines with this lower-case name."""
    return [value for field, value in fields if field.lower() == name]


def tokens(fields: Lines, name: bytes) -> list[bytes]:
    """The lower-case members of a list field, all lines taken together; empty ones left out (RFC 9110 section 5.6.1)."""
    members = (member.strip(b" \t").lower() for value in values(fields, name) for member in value.split(b","))
    return [member for member in members if member]


def _judge_host(fields: Lines, *, old: bool) -> str | None:
    """RFC 9112 section 3.2."""
    hosts = values(fields, b"host")
    if len(hosts) > 1 or not (hosts or old):
        return "host count"
    return None if not hosts or _HOST.fullmatch(hosts[0]) else "host value"


def _judge_framing(fields: Lines, *, old: bool) -> str | None:
    """RFC 9112 sections 6.1 to 6.3."""
    codings, lengths = values(fields, b"transfer-encoding"), values(fields, b"content-length")
    if codings:
        if old or lengths:
            return "two framings" if lengths else "coding in 1.0"
        return None if [coding.lower() for coding in codings] == [b"chunked"] else "coding"
    return None if not lengths or (len(lengths) == 1 and re.fullmatch(rb"[0-9]+", lengths[0])) else "length"


def _is_last(fields: Lines, *, old: bool) -> bool:
    """RFC 9112 section 9.3; an old client's Proxy-Connection counts with most servers."""
    options = tokens(fields, b"connection")
    return b"close" in options or (old and b"keep-alive" not in [*options, *tokens(fields, b"proxy-connection")])
