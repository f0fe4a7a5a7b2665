"""Answers that carry no body, and every framing there is: the connection is in step afterwards, on both sides."""

import pytest

from tests.http.wire.conftest import Wire
from tests.http.wire.peer import ask, connect, guarded, request, rest, slug
from tests.http.wire.stub import DATE, FIN, KEEP, reply

pytestmark = pytest.mark.asyncio(loop_scope="module")


def head(status_line: bytes, *lines: bytes) -> bytes:
    return b"\r\n".join((b"HTTP/1.1 " + status_line, DATE, *lines, b"", b""))


BODILESS = {
    "9110-9.3.2 HEAD with a length": (b"HEAD", head(b"200 OK", b"Content-Length: 77"), 200, b"77"),
    "9110-9.3.2 HEAD with length 0": (b"HEAD", head(b"200 OK", b"Content-Length: 0"), 200, b"0"),
    "9110-9.3.2 HEAD without framing": (b"HEAD", head(b"200 OK"), 200, None),
    "9110-9.3.2 HEAD chunked": (b"HEAD", head(b"200 OK", b"Transfer-Encoding: chunked"), 200, None),
    "9110-9.3.2 HEAD of an error": (b"HEAD", head(b"404 Not Found", b"Content-Length: 9"), 404, b"9"),
    "9110-15.3.5 204": (b"GET", head(b"204 No Content"), 204, None),
    "9110-8.6 204 with length 0": (b"GET", head(b"204 No Content", b"Content-Length: 0"), 204, None),
    "9110-15.4.5 304": (b"GET", head(b"304 Not Modified", b'ETag: "x"'), 304, None),
    "9110-15.4.5 304 with a length": (b"GET", head(b"304 Not Modified", b"Content-Length: 77"), 304, b"77"),
    "9110-15.4.5 304 chunked": (b"GET", head(b"304 Not Modified", b"Transfer-Encoding: chunked"), 304, None),
    "9110-15.3.6 205": (b"GET", head(b"205 Reset Content", b"Content-Length: 0"), 205, b"0"),
    "9112-6.3 length 0": (b"GET", head(b"200 OK", b"Content-Length: 0"), 200, b"0"),
    "9110-9.3.7 OPTIONS": (b"OPTIONS", head(b"204 No Content", b"Access-Control-Allow-Origin: *"), 204, None),
}


@pytest.mark.parametrize(("method", "raw", "status", "length"), BODILESS.values(), ids=BODILESS.keys())
async def test_no_body_and_the_connection_stays_in_step(wire: Wire, method: bytes, raw: bytes, status: int, length: bytes | None) -> None:
    """RFC 9112 6.3: no body and no framing of one; the next request works on the client's connection and on the upstream's."""
    case = slug(f"{method!r} {raw!r}")
    wire.stub.scripts[case] = reply(raw)
    async with await connect(wire.port) as client:
        answer = await ask(client, request(case, method=method), head_only=True)
        assert (answer.status, answer.field("content-length"), answer.field("transfer-encoding")) == (status, length, None)
        following = await ask(client, request(case + b"-next"))
        assert (following.status, following.body) == (201, b"created")
    assert wire.stub.one(case).connection == wire.stub.one(case + b"-next").connection


GUARDED = {
    "9110-15.3.5 204": (head(b"204 No Content"), 204),
    "9110-15.4.5 304": (head(b"304 Not Modified", b'ETag: "x"'), 304),
    "9110-15.3.6 205": (head(b"205 Reset Content", b"Content-Length: 0"), 205),
    "9112-6.3 length 0": (head(b"200 OK", b"Content-Length: 0"), 200),
    "9112-7.1 only a last chunk": (head(b"200 OK", b"Transfer-Encoding: chunked") + b"0\r\n\r\n", 200),
}


@pytest.mark.parametrize("target", [b"/v1/pay", b"/v1/stream", b"/v1/small"])
@pytest.mark.parametrize(("raw", "status"), GUARDED.values(), ids=GUARDED.keys())
async def test_empty_answers_are_kept_and_replayed(wire: Wire, raw: bytes, status: int, target: bytes) -> None:
    """RFC 9112 6.3: an answer without a body is an answer: first, replayed and the next request on one connection."""
    case = slug(f"{raw!r} {target!r}")
    wire.stub.scripts[case] = reply(raw)
    async with await connect(wire.port) as client:
        for replayed in (None, b"true"):
            answer = await ask(client, guarded(case, target=target))
            assert (answer.status, answer.body, answer.field("idempotent-replayed")) == (status, b"", replayed)
            if status in {204, 304}:
                assert answer.field("transfer-encoding") is None
                assert status == 304 or answer.field("content-length") is None
        assert (await ask(client, request(case + b"-next"))).status == 201
    assert wire.stub.runs[case] == 1


FRAMED = {
    "9112-6.3 length": (head(b"200 OK", b"Content-Length: 5") + b"hello", KEEP),
    "9112-7.1 one chunk": (head(b"200 OK", b"Transfer-Encoding: chunked") + b"5\r\nhello\r\n0\r\n\r\n", KEEP),
    "9112-7.1 capitals": (head(b"200 OK", b"TRANSFER-ENCODING: Chunked") + b"5\r\nhello\r\n0\r\n\r\n", KEEP),
    "9112-7.1.1 extensions and trailers": (
        head(b"200 OK", b"Transfer-Encoding: chunked") + b'2;a="b"\r\nhe\r\n003\r\nllo\r\n00;z\r\nX-T: 1\r\nConnection: close\r\n\r\n',
        KEEP,
    ),
    "9112-6.3 until FIN": (head(b"200 OK") + b"hello", FIN),
    "9112-6.3 until FIN, told so": (head(b"200 OK", b"Connection: close") + b"hello", FIN),
    "9112-9.6 length and close": (head(b"200 OK", b"Connection: close", b"Content-Length: 5") + b"hello", FIN),
    "9112-9.3 HTTP/1.0 until FIN": (b"HTTP/1.0 200 OK\r\n%b\r\n\r\nhello" % DATE, FIN),
    "9112-9.3 HTTP/1.0 keep-alive": (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello", KEEP),
}


@pytest.mark.parametrize("target", [b"/plain", b"/v1/pay", b"/v1/stream"])
@pytest.mark.parametrize(("raw", "then"), FRAMED.values(), ids=FRAMED.keys())
async def test_every_framing_becomes_ours(wire: Wire, raw: bytes, then: str, target: bytes) -> None:
    """RFC 9112 6.1: exactly one framing toward the client, whatever the upstream's was; trailers are dropped."""
    case = slug(f"{raw!r} {target!r}")
    wire.stub.scripts[case] = reply(raw, then)
    message = request(case, target) if target == b"/plain" else guarded(case, target=target)
    async with await connect(wire.port) as client:
        for _ in range(2):
            answer = await ask(client, message)
            assert (answer.status, answer.body) == (200, b"hello")
            assert (answer.field("content-length") is None) == (answer.field("transfer-encoding") == b"chunked")
            assert answer.field("x-t") is None
        assert (await ask(client, request(case + b"-next"))).status == 201


@pytest.mark.parametrize(("raw", "then"), FRAMED.values(), ids=FRAMED.keys())
@pytest.mark.parametrize("target", [b"/plain", b"/v1/stream"])
async def test_http10_clients_get_no_chunks(wire: Wire, raw: bytes, then: str, target: bytes) -> None:
    """RFC 9112 6.1: an HTTP/1.0 client gets a length, or an answer that ends with its connection."""
    case = slug(f"1.0 {raw!r} {target!r}")
    wire.stub.scripts[case] = reply(raw, then)
    message = request(case, target) if target == b"/plain" else guarded(case, target=target)
    for _ in range(2):
        async with await connect(wire.port) as client:
            answer = await ask(client, message.replace(b"HTTP/1.1", b"HTTP/1.0", 1))
            assert (answer.status, answer.body, answer.field("transfer-encoding")) == (200, b"hello", None)
            assert await rest(client) == b""
