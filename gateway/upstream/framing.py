"""The request's bytes: head and framing (RFC 9112 sections 3, 6 and 7)."""

import re
from collections.abc import AsyncIterator

from gateway.core.model import Headers
from gateway.ports import UpstreamRequest

_FRAMING = rb"content-length:|transfer-encoding:"
_BINDING = rb"authorization:[ \t]*(?:ntlm|negotiate|kerberos)(?![^ \t\r])"
"""The schemes by which servers take all that comes on one connection for the same caller's."""
_TELLING = re.compile(rb"\n(?=[CTActa])(?i:%b|%b)" % (_FRAMING, _BINDING))
"""Field lines that decide something here. Of most lines the first letter tells that they do not."""


def encode(request: UpstreamRequest, host: bytes | None = None, prefix: bytes = b"") -> tuple[bytes, bool]:
    """The whole request as one buffer, or its head alone when the body is streamed. `host` replaces the value of its
    Host line, `prefix` stands before its target (which stays `*` where it is that).

    With it comes whether the request binds its connection to its caller, so that the client must not use it for another
    one. Raises ValueError if a part holds a line break, the target a space, or the fields framing: a caller's mistake
    that would otherwise become a second request on the wire (RFC 9112 section 11.2).
    """
    method, target, body = request.method, request.target, request.body
    if prefix and target != b"*":
        target = prefix + target
    head, breaks = _head(b"%b %b HTTP/1.1" % (method, target), request, host)
    binds = _judge(head, breaks)
    if b" " in target or b" " in method:
        raise ValueError("a line break or a space inside the request head")
    if not isinstance(body, bytes):
        return b"%b%b\r\n" % (head, stream_framing(body, request.body_length)), binds
    if body or request.frame_empty:
        return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body), binds
    return head + b"\r\n", binds


def with_host(headers: Headers, host: bytes) -> Headers:
    """`headers` with this host, in the place of the first Host line, or first of all if there is none (RFC 9112 section
    3.2).
    """
    places = [place for place, (name, _) in enumerate(headers) if name.lower() == b"host"]
    if not places:
        return ((b"Host", host), *headers)
    place = places[0]
    rest = tuple(field for field in headers[place + 1 :] if field[0].lower() != b"host")
    return (*headers[:place], (headers[place][0], host), *rest)


def stream_framing(_body: AsyncIterator[bytes], length: int | None) -> bytes:
    return b"Transfer-Encoding: chunked\r\n" if length is None else b"Content-Length: %d\r\n" % length


def chunk(data: bytes) -> bytes:
    """One chunk of RFC 9112 section 7.1. `data` is never empty: an empty chunk would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
_LINE_ENDS = frozenset({b"\r\n", b""})


def _head(start: bytes, request: UpstreamRequest, host: bytes | None) -> tuple[bytes, int]:
    """The start line and the field lines, and how many line breaks they should have."""
    lines, headers = request.lines, request.headers
    if lines is not None:
        if lines[-2:] not in _LINE_ENDS or lines[:1] == b"\r" or b"\n\r" in lines:
            raise ValueError("a line break in the wrong place")
        if host is None and request.upgrade is None:
            return b"%b\r\n%b" % (start, lines), lines.count(b"\r\n") + 1
        headers = _fields(lines)
    if host is not None:
        headers = with_host(headers, host)
    if request.upgrade is not None:
        headers += ((b"Connection", b"upgrade"), (b"Upgrade", request.upgrade))
    return b"\r\n".join([start, *map(b": ".join, headers), b""]), len(headers) + 1


def _fields(lines: bytes) -> Headers:
    pairs = [line.partition(b": ") for line in lines.split(b"\r\n")[:-1]]
    return tuple([(name, value) for name, _, value in pairs])


def _judge(head: bytes, breaks: int) -> bool:
    """Whether the head binds its connection to its caller. Raises ValueError unless it has so many line breaks, and no
    framing.
    """
    if len(head) - len(head.translate(None, b"\r\n")) != 2 * breaks:
        raise ValueError("a line break or a space inside the request head")
    if _TELLING.search(head) is None:
        return False
    if re.search(rb"\n(?i:%b)" % _FRAMING, head):
        raise ValueError("framing fields belong to the upstream client")
    return True
