"""The request's bytes: head and framing (RFC 9112 sections 3, 6 and 7)."""

from collections.abc import AsyncIterator

from gateway.core.model import Headers
from gateway.ports import UpstreamRequest


def head_and_body(request: UpstreamRequest, host: bytes | None = None) -> bytes:
    """The whole request as one buffer, or its head alone when the body is streamed. `host` replaces the value of its Host line.

    Raises ValueError if a part holds a line break, the target a space, or `headers` a framing field: a caller's mistake that
    would otherwise become a second request on the wire (RFC 9112 section 11.2).
    """
    body, headers = request.body, request.headers
    if host is not None:
        headers = with_host(headers, host)
    if request.upgrade is not None:
        headers += ((b"Connection", b"upgrade"), (b"Upgrade", request.upgrade))
    fields = b"\r\n".join(map(b": ".join, headers))
    _refuse_unsafe(request.method + request.target, fields, max(len(headers) - 1, 0))
    if isinstance(body, bytes):
        framing = b"Content-Length: %d\r\n" % len(body) if body or request.frame_empty else b""
    else:
        framing, body = stream_framing(body, request.body_length), b""
    if fields:
        fields += b"\r\n"
    return b"%b %b HTTP/1.1\r\n%b%b\r\n%b" % (request.method, request.target, fields, framing, body)


def with_host(headers: Headers, host: bytes) -> Headers:
    """`headers` with this host, in the place of the first Host line, or first of all if there is none (RFC 9112 section 3.2)."""
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


def _refuse_unsafe(start: bytes, fields: bytes, breaks: int) -> None:
    if fields.count(b"\n") != breaks or fields.count(b"\r") != breaks or b"\r" in start or b"\n" in start or b" " in start:
        raise ValueError("a line break or a space inside the request head")
    lowered = b"\n" + fields.lower()
    if b"\ncontent-length:" in lowered or b"\ntransfer-encoding:" in lowered:
        raise ValueError("framing fields belong to the upstream client")
