"""Requests on one connection, one after the other, however their bytes arrive."""

import asyncio

import pytest

from gateway.http.request import Request
from gateway.http.response import WireResponse, wire_response
from tests.http.connections.house import House, answers, echo, get, request

SEQUENCE = b"".join(
    [
        get("/1"),
        request("POST", "/2", "Content-Length: 9", body=b"a\r\n\r\nb\r\n\r"),
        request(
            "POST",
            "/3",
            "Transfer-Encoding: chunked",
            body=b"4\r\n\r\n\r\n\r\n3;x=\r\r\nabc\r\n0\r\nTrailer: x\r\n\r\n".replace(b"=\r", b"=1"),
        ),
        b"\r\n\r\n",
        get("/4", "Connection: Upgrade", "Upgrade: h2c"),
        request("POST", "/5", "Content-Length: 0"),
        get("/6", "Connection: Upgrade", "Upgrade: websocket"),
        request("POST", "/7", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
        get("/8", "Connection: close"),
    ]
)
BODIES = [
    b"GET /1 ",
    b"POST /2 a\r\n\r\nb\r\n\r",
    b"POST /3 \r\n\r\nabc",
    b"GET /4 ",
    b"POST /5 ",
    b"GET /6 ",
    b"POST /7 ",
    b"GET /8 ",
]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 13, 64, 10_000])
async def test_pipelined_requests_are_answered_in_order(house: House, size: int) -> None:
    """However the bytes are cut, each request is read to its end and no further (RFC 9112 sections 6.3, 7.1 and 9.3.2)."""
    async with house.peer() as peer:
        for at in range(0, len(SEQUENCE), size):
            await peer.send(SEQUENCE[at : at + size])
            if size < 64:
                await asyncio.sleep(0)
        found = await answers(await peer.rest())
    assert [answer.body for answer in found] == BODIES
    assert [answer.field("connection") for answer in found] == [None] * 7 + [b"close"]
    assert not house.refused


@pytest.mark.parametrize("at", range(1, len(SEQUENCE), 7))
async def test_a_cut_anywhere_changes_nothing(house: House, at: int) -> None:
    """Two reads see what one read sees, wherever the second begins."""
    async with house.peer() as peer:
        await peer.send(SEQUENCE[:at])
        await asyncio.sleep(0.001)
        await peer.send(SEQUENCE[at:])
        assert [answer.body for answer in await answers(await peer.rest())] == BODIES


async def test_no_request_is_looked_at_before_the_one_before_it_is_answered(house: House) -> None:
    """A client that pipelines gets no more of the process than one that waits (RFC 9112 section 9.3.2)."""
    gate = asyncio.Event()

    async def answering(request: Request) -> WireResponse:
        await gate.wait()
        return await echo(request)

    house.answering = answering
    async with house.peer() as peer:
        await peer.send(get("/1") * 100 + get("/end", "Connection: close"))
        await asyncio.sleep(0.05)
        assert len(house.seen) == 1
        gate.set()
        assert len(await answers(await peer.rest())) == 101


async def test_pipelined_bytes_hold_the_client_back(house: House) -> None:
    """Behind an unanswered request no more than a buffer's worth is taken in."""
    gate = asyncio.Event()

    async def answering(request: Request) -> WireResponse:
        await gate.wait()
        return await echo(request)

    house.answering = answering
    flood = get("/next", "X-Fill: " + "x" * 900) * 20_000
    async with house.peer() as peer:
        await peer.send(get("/1"))
        sending = asyncio.ensure_future(peer.send(flood))
        await asyncio.sleep(0.2)
        assert not sending.done()
        [connection] = house.server.connections
        assert len(connection._rest) < 512 * 1024
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        gate.set()


async def test_a_body_that_nobody_reads_holds_the_client_back(house: House) -> None:
    """aiohttp's buffer of a body is bounded, and reading goes on where it stopped."""
    gate = asyncio.Event()
    size = 16 * 1024 * 1024

    async def answering(request: Request) -> WireResponse:
        await gate.wait()
        length = 0
        while not request.body.at_end:
            length += len(await request.body.read())
        return wire_response(200, b"OK", (), b"%d" % length)

    house.answering = answering
    for framing, body in {
        f"Content-Length: {size}": b"\r\n\r\n" * (size // 4),
        "Transfer-Encoding: chunked": b"%x\r\n%b\r\n0\r\n\r\n" % (size, b"\r\n\r\n" * (size // 4)),
    }.items():
        gate.clear()
        async with house.peer() as peer:
            await peer.send(request("POST", "/", framing))
            sending = asyncio.ensure_future(peer.send(body + get("/next", "Connection: close")))
            await asyncio.sleep(0.2)
            assert not sending.done()
            gate.set()
            found = await answers(await peer.rest())
            await sending
        assert found[0].body == b"%d" % size
        assert len(found) == 2


async def test_a_failing_handler_is_500_and_close(house: House) -> None:
    """Our own failure is told in our format, with a request id and a date (RFC 9110 section 15.6.1)."""

    async def answering(request: Request) -> WireResponse:
        raise ZeroDivisionError

    house.answering = answering
    async with house.peer() as peer:
        await peer.send(get("/1") + get("/2"))
        answer = await peer.answer()
    assert (answer.status, answer.problem) == (500, "internal-error")
    assert answer.field("x-request-id")
    assert answer.field("date")
    assert house.seen == ["GET /1"]
