"""What is no HTTP request is refused in our own format, and the refusal arrives."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.http.limits import ClientLimits
from gateway.http.lingering_close import LINGER
from gateway.http.request import Request
from gateway.http.response import WireResponse, wire_response
from tests.http.connections.house import House, answers, connection_of, echo, get, request

HEADS = {
    "content-length and transfer-encoding (RFC 9112 section 6.3)": request("POST", "/", "Content-Length: 3", "Transfer-Encoding: chunked"),
    "transfer-encoding and content-length (RFC 9112 section 6.3)": request("POST", "/", "Transfer-Encoding: chunked", "Content-Length: 3"),
    "two content-lengths (RFC 9112 section 6.3)": request("POST", "/", "Content-Length: 3", "Content-Length: 4"),
    "two equal content-lengths (RFC 9112 section 6.3)": request("POST", "/", "Content-Length: 3", "Content-Length: 3"),
    "a list of content-lengths (RFC 9112 section 6.3)": request("POST", "/", "Content-Length: 3, 3"),
    "a signed content-length (RFC 9110 section 8.6)": request("POST", "/", "Content-Length: +3"),
    "a negative content-length (RFC 9110 section 8.6)": request("POST", "/", "Content-Length: -1"),
    "a content-length beyond 64 bits (RFC 9110 section 8.6)": request("POST", "/", "Content-Length: 99999999999999999999999"),
    "the greatest content-length of 64 bits (RFC 9110 section 8.6)": request("POST", "/", "Content-Length: 18446744073709551616"),
    "chunked not last (RFC 9112 section 6.1)": request("POST", "/", "Transfer-Encoding: chunked, gzip"),
    "an unknown coding (RFC 9112 section 6.1)": request("POST", "/", "Transfer-Encoding: xchunked"),
    "two transfer-encodings (RFC 9112 section 6.1)": request("POST", "/", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    "a space before the colon (RFC 9112 section 5.1)": get("/", "X : y"),
    "a folded line (RFC 9112 section 5.2)": get("/", "X: y", " z"),
    "a bare LF in the request line (RFC 9112 section 2.2)": b"GET / HTTP/1.1\nHost: a\r\n\r\n",
    "a bare LF in a field (RFC 9112 section 2.2)": b"GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n",
    "a bare CR in a field (RFC 9112 section 2.2)": b"GET / HTTP/1.1\r\nHost: a\r\nX: y\rz\r\n\r\n",
    "a NUL in a field (RFC 9110 section 5.5)": b"GET / HTTP/1.1\r\nHost: a\r\nX: y\0z\r\n\r\n",
    "no host (RFC 9112 section 3.2)": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts (RFC 9112 section 3.2)": get("/", "Host: b"),
    "HTTP/1.2 (RFC 9112 section 2.3)": b"GET / HTTP/1.2\r\nHost: a\r\n\r\n",
    "HTTP/2 by prior knowledge (RFC 9113 section 3.4)": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS (RFC 8446 section 5.1)": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x7f" * 500,
    "no method (RFC 9112 section 3)": b"\x7f\x7f / HTTP/1.1\r\nHost: a\r\n\r\n",
}
BODIES = {
    "a prefixed size (RFC 9112 section 7.1)": b"0x2\r\nab\r\n0\r\n\r\n",
    "a signed size (RFC 9112 section 7.1)": b"+2\r\nab\r\n0\r\n\r\n",
    "an underscored size (RFC 9112 section 7.1)": b"0_2\r\nab\r\n0\r\n\r\n",
    "a size with a space (RFC 9112 section 7.1)": b" 2\r\nab\r\n0\r\n\r\n",
    "no size (RFC 9112 section 7.1)": b"\r\nab\r\n0\r\n\r\n",
    "a size beyond 64 bits (RFC 9112 section 7.1)": b"f" * 17 + b"\r\nab",
    "a bare LF behind the size (RFC 9112 section 7.1)": b"2\nab\r\n0\r\n\r\n",
    "a chunk that is too long (RFC 9112 section 7.1)": b"2\r\nabc\r\n0\r\n\r\n",
    "a chunk that is too short (RFC 9112 section 7.1)": b"4\r\nab\r\n0\r\n\r\n",
    "a bare LF behind the chunk (RFC 9112 section 7.1)": b"2\r\nab\n0\r\n\r\n",
    "a bare LF in an extension (RFC 9112 section 7.1.1)": b"2;a\nb\r\nab\r\n0\r\n\r\n",
    "a malformed trailer (RFC 9112 section 7.1.2)": b"2\r\nab\r\n0\r\nX : y\r\n\r\n",
}
SMUGGLED = get("/smuggled") + b"x" * 200_000
"""What comes behind: a request, and more bytes than any buffer of ours takes."""


@pytest.mark.parametrize("raw", HEADS.values(), ids=HEADS.keys())
async def test_a_malformed_head_is_400_and_close(house: House, raw: bytes) -> None:
    """The answer is read to its end by a client that still has bytes on their way: no reset comes first (RFC 9112 section 9.6)."""
    async with house.peer() as peer:
        await peer.send(raw + SMUGGLED)
        answer = await peer.answer()
    assert (answer.status, answer.problem, answer.field("connection")) == (400, "bad-request", b"close")
    assert answer.field("x-request-id")
    assert answer.field("date")
    await asyncio.wait_for(house.closed(), LINGER / 2)  # the client has closed: nothing is waited for
    assert house.refused == {"malformed": 1}
    assert not house.seen


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("raw", BODIES.values(), ids=BODIES.keys())
async def test_malformed_chunks_are_400_and_close(house: House, raw: bytes, together: bool) -> None:
    """Also when the request is being handled already: its handler finds the client gone, and writes nothing."""
    async with house.peer() as peer:
        head = request("POST", "/1", "Transfer-Encoding: chunked")
        if not together:
            await peer.send(head)
            await asyncio.sleep(0.005)
        await peer.send((head if together else b"") + raw + SMUGGLED)
        answer = await peer.answer()
    assert (answer.status, answer.problem) == (400, "bad-request")
    await asyncio.wait_for(house.closed(), LINGER / 2)  # the client has closed: nothing is waited for
    assert house.refused == {"malformed": 1}
    assert house.seen == ["POST /1"]
    assert house.gone == ["/1"]


async def test_what_was_well_formed_before_is_answered(house: House) -> None:
    """Whether it came in the same segment or not (RFC 9112 section 9.3.2)."""
    async with house.peer() as peer:
        await peer.send(get("/1") + request("POST", "/2", "Content-Length: 2", body=b"ok") + b"\x00" + SMUGGLED)
        assert [answer.status for answer in await answers(await peer.rest())] == [200, 200, 400]


async def test_nothing_is_read_after_a_close(house: House) -> None:
    """What follows a request that said it was the last is no request (RFC 9112 section 9.6)."""
    async with house.peer() as peer:
        await peer.send(get("/1", "Connection: close") + SMUGGLED)
        assert (await peer.answer()).body == b"GET /1 "
    assert house.seen == ["GET /1"]


async def test_a_malformed_body_is_no_answer_in_the_middle_of_another(house: House) -> None:
    """An answer that is under way is cut: a client must not take the refusal for a part of it."""
    begun = asyncio.Event()

    class Endless:
        async def pieces(self) -> AsyncIterator[bytes]:
            yield b"piece"
            begun.set()
            await asyncio.Event().wait()

    async def answering(request: Request) -> WireResponse:
        response = wire_response(200, b"OK", (), Endless())
        answer = asyncio.ensure_future(response.prepare(request))
        connection_of(request).on_lost(answer.cancel, streaming=True)
        await asyncio.wait([answer])
        return response

    house.answering = answering
    async with house.peer() as peer:
        await peer.send(request("POST", "/1", "Transfer-Encoding: chunked"))
        await begun.wait()
        await peer.send(b"nonsense\r\n")
        data = await peer.rest()
    assert data.endswith(b"\r\n5\r\npiece\r\n")


async def test_a_refusal_after_an_endless_body_is_bounded() -> None:
    """A client that goes on sending is cut in the end (RFC 9112 section 9.6)."""

    async def answering(request: Request) -> WireResponse:
        return wire_response(413, b"Content Too Large", (), b"no", close=True)

    async with House(ClientLimits(header_timeout=30, idle_timeout=0.3)) as house, house.peer() as peer:
        house.answering = answering
        await peer.send(request("POST", "/1", "Content-Length: 1000000000000"))
        assert b"413" in await peer.until(b"no")
        with pytest.raises(ConnectionError):
            await peer.send_until_cut(b"x" * 65536)


@pytest.mark.parametrize("close", [True, False])
async def test_an_answer_before_the_body_was_read_arrives(house: House, close: bool) -> None:
    """A client reads its answer after it has sent all of a body that nobody wanted (RFC 9112 section 9.6)."""

    async def answering(request: Request) -> WireResponse:
        if request.target != b"/1":
            return await echo(request)
        return wire_response(413, b"Content Too Large", (), b"no", close=close)

    house.answering = answering
    size = 20_000_000
    async with house.peer() as peer:
        await peer.send(request("POST", "/1", f"Content-Length: {size}"))
        await peer.send(b"x" * size)
        await peer.send(get("/2", "Connection: close"))
        found = await answers(await peer.rest())
    assert [answer.status for answer in found] == ([413] if close else [413, 200])
