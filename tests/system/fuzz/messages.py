"""Requests as they are made up here: in pieces, so that each piece can be spoilt by itself."""

from collections.abc import Callable
from dataclasses import dataclass, field

FRESH = b"@@@@@@@@"
"""Stands for eight characters that no other connection has, so that keys and principals are new each time a case is played."""

SMUGGLED = b"POST /v1/pay HTTP/1.1\r\nHost: smuggled\r\nContent-Length: 2\r\n\r\nhi"
"""A request that stands in bodies: should it ever be taken for one, two readers disagree about where a message ends."""


@dataclass(slots=True)
class Line:
    """A field line in its pieces."""

    name: bytes
    value: bytes
    colon: bytes = b": "
    ending: bytes = b"\r\n"


@dataclass(slots=True)
class Message:
    """A request in its pieces. `before` stands in front of the start line."""

    method: bytes
    target: bytes
    lines: list[Line]
    body: bytes = b""
    version: bytes = b"HTTP/1.1"
    before: bytes = b""
    spaces: list[bytes] = field(default_factory=lambda: [b" ", b" "])
    ending: bytes = b"\r\n"
    blank: bytes = b"\r\n"

    def render(self) -> bytes:
        head = b"%b%b%b%b%b%b%b" % (self.before, self.method, self.spaces[0], self.target, self.spaces[1], self.version, self.ending)
        fields = b"".join([b"%b%b%b%b" % (line.name, line.colon, line.value, line.ending) for line in self.lines])
        return head + fields + self.blank + self.body


def chunked(*pieces: bytes, trailers: bytes = b"") -> bytes:
    """A body in chunks."""
    return b"".join([b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]) + b"0\r\n" + trailers + b"\r\n"


def request(method: bytes, target: bytes, *lines: tuple[bytes, bytes], body: bytes = b"", version: bytes = b"HTTP/1.1") -> Message:
    """A request as a careful client writes it, with a Host line; the framing is the caller's."""
    fields = [Line(b"Host", b"gateway.test"), *(Line(name, value) for name, value in lines)]
    return Message(method, target, fields, body, version)


def with_length(method: bytes, target: bytes, body: bytes, *lines: tuple[bytes, bytes], version: bytes = b"HTTP/1.1") -> Message:
    """The same with a body under its length."""
    return request(method, target, *lines, (b"Content-Length", b"%d" % len(body)), body=body, version=version)


def payment(serial: int, *lines: tuple[bytes, bytes], body: bytes = b'{"amount":100}') -> Message:
    """A guarded operation by a caller of its own under a key of its own."""
    return request(
        b"POST",
        b"/v1/pay",
        (b"Authorization", b"Bearer t-" + FRESH),
        (b"Idempotency-Key", b"k%d-%b" % (serial, FRESH)),
        (b"Content-Type", b"application/json"),
        *(lines or ((b"Content-Length", b"%d" % len(body)),)),
        body=body,
    )


_CHUNKED = (b"Transfer-Encoding", b"chunked")

TEMPLATES: tuple[Callable[[int], Message], ...] = (
    lambda _: request(b"GET", b"/x"),
    payment,
    lambda _: with_length(b"POST", b"/x", b"hello"),
    lambda _: request(b"POST", b"/x", _CHUNKED, body=chunked(b"hello", b" world")),
    lambda _: request(b"POST", b"/x", _CHUNKED, body=b'5;a=b;c="d\\"e"\r\nhello\r\n000\r\nX-Sum: 1\r\nIdempotency-Key: trailing\r\n\r\n'),
    lambda serial: payment(serial, _CHUNKED, body=chunked(b'{"amount"', b":100}")),
    lambda serial: payment(serial, body=SMUGGLED),
    lambda serial: payment(serial, _CHUNKED, body=chunked(SMUGGLED, trailers=b"X-Trailer: 1\r\n")),
    lambda _: with_length(b"POST", b"/v1/pay", b"no key", (b"Authorization", b"Bearer t")),
    lambda serial: with_length(b"POST", b"/v1/pay", b"nobody", (b"Idempotency-Key", b"n%d-%b" % (serial, FRESH))),
    lambda _: with_length(b"PUT", b"/x?q=%2F+%20&s=%27", SMUGGLED),
    lambda _: request(b"PUT", b"/big", _CHUNKED, body=chunked(SMUGGLED, b"z" * 3000)),
    lambda _: with_length(b"POST", b"/big", b"z" * 70_000),
    lambda _: request(b"GET", b"/x", (b"Connection", b"close")),
    lambda _: with_length(b"POST", b"/x", b"old", version=b"HTTP/1.0"),
    lambda _: request(b"GET", b"/x", (b"Connection", b"keep-alive"), version=b"HTTP/1.0"),
    lambda _: request(b"GET", b"http://other.test:8080/x?y"),
    lambda _: request(b"HEAD", b"/x"),
    lambda _: request(b"OPTIONS", b"*"),
    lambda _: request(b"DELETE", b"/x/y/z"),
    lambda _: with_length(b"POST", b"/x", b"expected", (b"Expect", b"100-continue")),
    lambda serial: payment(serial, (b"Expect", b"100-continue"), (b"Content-Length", b"2"), body=b"{}"),
    lambda _: request(b"GET", b"/x", (b"Connection", b"Upgrade, X-Hop"), (b"Upgrade", b"h2c"), (b"X-Hop", b"1")),
    lambda _: request(
        *(b"GET", b"/x", (b"Connection", b"Upgrade"), (b"Upgrade", b"websocket"), (b"Sec-WebSocket-Version", b"13")),
        (b"Sec-WebSocket-Key", b"dGhlIHNhbXBsZSBub25jZQ=="),
    ),
    lambda _: request(b"GET", b"/v1/pay"),
    lambda _: request(
        *(b"GET", b"/odd", (b"X-Caf\x65", b"caf\xe9"), (b"x-empty", b""), (b"X-List", b"a,  b"), (b"X-List", b"c\td")),
        (b"X-Forwarded-For", b"10.0.0.1"),
    ),
)
"""Valid requests of all kinds, the plainest first."""
