from collections.abc import AsyncIterator
from dataclasses import replace

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.model import Headers
from gateway.ports import UpstreamRequest
from gateway.upstream.framing import chunk, encode

HOST = ((b"Host", b"a"),)


async def streamed() -> AsyncIterator[bytes]:
    yield b"x"


@pytest.mark.parametrize(
    ("request_", "wire"),
    [
        (UpstreamRequest(b"GET", b"/", HOST, b""), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        (UpstreamRequest(b"GET", b"/", (), b""), b"GET / HTTP/1.1\r\n\r\n"),
        (UpstreamRequest(b"POST", b"/", (), b"x"), b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx"),
        (UpstreamRequest(b"POST", b"/", HOST, b"", frame_empty=True), b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"),
        (UpstreamRequest(b"PATCH", b"/", HOST, b"abc"), b"PATCH / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"),
        (
            UpstreamRequest(b"GET", b"/a%2Fb/%41/(x)%28y%29/%7e?q=%2F+%20&s=%27%3A?", HOST, b""),
            b"GET /a%2Fb/%41/(x)%28y%29/%7e?q=%2F+%20&s=%27%3A? HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
        (UpstreamRequest(b"GET", b"//a/../%zz?x=\xe9?", HOST, b""), b"GET //a/../%zz?x=\xe9? HTTP/1.1\r\nHost: a\r\n\r\n"),
        (
            UpstreamRequest(b"GET", b"/", ((b"x-CaSe", b"y"), (b"X-Name", b"caf\xe9"), (b"E", b""), (b"x-case", b"z")), b""),
            b"GET / HTTP/1.1\r\nx-CaSe: y\r\nX-Name: caf\xe9\r\nE: \r\nx-case: z\r\n\r\n",
        ),
    ],
)
def test_a_request_is_exactly_its_parts(request_: UpstreamRequest, wire: bytes) -> None:
    """Target, names, values and order go out byte for byte; the only field added is the framing."""
    assert encode(request_)[0] == wire


@pytest.mark.parametrize(
    ("headers", "lines"),
    [
        (HOST, b"Host: b:1"),
        (((b"A", b"x"), (b"hOST", b"a"), (b"B", b"y")), b"A: x\r\nhOST: b:1\r\nB: y"),
        (((b"Host", b"a"), (b"A", b"x"), (b"host", b"c")), b"Host: b:1\r\nA: x"),
        (((b"A", b"x"),), b"Host: b:1\r\nA: x"),
        ((), b"Host: b:1"),
    ],
)
def test_the_host_is_replaced_where_it_stands(headers: Headers, lines: bytes) -> None:
    """RFC 9112 section 3.2: there is exactly one afterwards, in the line's own place and spelling, or before all others."""
    assert encode(UpstreamRequest(b"GET", b"/", headers, b""), b"b:1")[0] == b"GET / HTTP/1.1\r\n" + lines + b"\r\n\r\n"


def test_a_switch_of_protocols_is_asked_for() -> None:
    """RFC 9110 section 7.8: the field and the connection option that nominates it, in the form of the caller."""
    wire, _ = encode(UpstreamRequest(b"GET", b"/", HOST, b"", upgrade=b"WebSocket"))
    assert wire == b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: WebSocket\r\n\r\n"


@pytest.mark.parametrize(("host", "upgrade"), [(b"b\r\nA: x", None), (b"b\n", None), (None, b"x\r\nContent-Length: 5"), (b"a", b"\r")])
def test_neither_a_host_nor_a_protocol_breaks_the_head(host: bytes | None, upgrade: bytes | None) -> None:
    """Wherever they come from."""
    with pytest.raises(ValueError, match="line break"):
        encode(UpstreamRequest(b"GET", b"/", HOST, b"", upgrade=upgrade), host)


@pytest.mark.parametrize(("length", "field"), [(None, b"Transfer-Encoding: chunked"), (7, b"Content-Length: 7")])
async def test_a_streamed_body_is_framed_by_its_length_if_that_is_known(length: int | None, field: bytes) -> None:
    """An announced length is used as it is; without one the body goes out in chunks."""
    wire, _ = encode(UpstreamRequest(b"PUT", b"/", HOST, streamed(), length))
    assert wire == b"PUT / HTTP/1.1\r\nHost: a\r\n" + field + b"\r\n\r\n"


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        (b"GET", b"/ HTTP/1.1\r\nX: y", HOST),
        (b"GET", b"/a b", HOST),
        (b"GET", b"/a\n", HOST),
        (b"GET /x", b"/", HOST),
        (b"GET\r", b"/", HOST),
        (b"GET", b"/", ((b"A", b"b\r\nContent-Length: 5"),)),
        (b"GET", b"/", ((b"A", b"b\nc"),)),
        (b"GET", b"/", ((b"A", b"b\rc"),)),
        (b"GET", b"/", ((b"A\r\nB", b"c"),)),
        (b"GET", b"/", ((b"cOntent-lEngth", b"5"),)),
        (b"GET", b"/", ((b"A", b"b"), (b"Transfer-Encoding", b"chunked"))),
    ],
)
def test_a_request_that_would_break_its_framing_is_refused(method: bytes, target: bytes, headers: Headers) -> None:
    """No mistake of a caller can put a second request, or a second framing, on the wire."""
    with pytest.raises(ValueError, match=r"line break|framing"):
        encode(UpstreamRequest(method, target, headers, b"{}"))


@pytest.mark.parametrize(
    "lines",
    [b"A: b\r\nContent-Length: 5\r\n", b"A: b\n", b"A: b\rC: d\r\n", b"\r\nA: b", b"A: b\r\n\n", b"\r\nA: b\r\n", b"A: b\r\n\r\nC: d\r\n"],
)
def test_prepared_lines_are_judged_as_well(lines: bytes) -> None:
    """They end where lines end, and bring no framing."""
    with pytest.raises(ValueError, match=r"line break|framing"):
        encode(UpstreamRequest(b"GET", b"/", (), b"", lines=lines))


@pytest.mark.parametrize(
    ("value", "binds"),
    [
        (b"Negotiate", True),
        (b"nTlM  abc", True),
        (b"\tKerberos YII=", True),
        (b"Bearer ntlm", False),
        (b"NegotiateX y", False),
        (b"", False),
    ],
)
def test_a_scheme_that_authenticates_the_connection_is_told(value: bytes, binds: bool) -> None:
    """Wherever its line stands."""
    for headers in (((b"AUTHORIZATION", value), *HOST), (*HOST, (b"authorization", value))):
        assert encode(UpstreamRequest(b"GET", b"/", headers, b""))[1] is binds


def test_a_chunk_is_its_size_in_hex_and_its_data() -> None:
    """RFC 9112 section 7.1."""
    assert chunk(b"x" * 26) == b"1a\r\n" + b"x" * 26 + b"\r\n"


class Collected:
    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.messages = 0

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.messages += 1


names = st.from_regex(rb"[A-Za-z][A-Za-z0-9-]{0,20}", fullmatch=True).filter(
    lambda name: not name.lower().startswith((b"content-length", b"transfer-encoding", b"connection", b"upgrade", b"proxy-connection"))
)
values = st.from_regex(rb"([!-~\x80-\xff]([ -~\x80-\xff]{0,20}[!-~\x80-\xff])?)?", fullmatch=True)


@given(st.lists(st.tuples(names, values)), st.from_regex(rb"/[!-~]{0,30}", fullmatch=True), st.binary(max_size=200))
def test_a_server_reads_what_was_meant(headers: list[tuple[bytes, bytes]], target: bytes, body: bytes) -> None:
    """Whatever the parts, a strict parser finds one message with those parts and the framing field."""
    seen = Collected()
    wire, _ = encode(UpstreamRequest(b"POST", target, tuple(headers), body, frame_empty=True))
    httptools.HttpRequestParser(seen).feed_data(wire)
    assert (seen.url, seen.body, seen.messages) == (target, body, 1)
    assert seen.headers == [*headers, (b"Content-Length", b"%d" % len(body))]


@given(st.lists(st.tuples(names, values)))
def test_prepared_lines_are_sent_as_their_fields_would_be(headers: list[tuple[bytes, bytes]]) -> None:
    """With another host and with a switch of protocols, too."""
    plain = UpstreamRequest(b"POST", b"/", tuple(headers), b"{}")
    prepared = replace(plain, headers=(), lines=b"".join([b"%b: %b\r\n" % field for field in headers]))
    for upgrade in (None, b"websocket"):
        for host in (None, b"b:1"):
            assert encode(replace(prepared, upgrade=upgrade), host) == encode(replace(plain, upgrade=upgrade), host)
