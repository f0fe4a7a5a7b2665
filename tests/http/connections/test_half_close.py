"""Clients that end their sending while they are still reading, and clients that are gone."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from functools import partial

import pytest

from gateway.http.request import Request
from gateway.http.response import WireResponse, wire_response
from tests.http.connections.house import House, answers, connection_of, echo, get, request, until

PIPELINED = get("/1") + request("POST", "/2", "Content-Length: 2", body=b"ok")


async def slow(request: Request) -> WireResponse:
    """Answers once the client's end of sending has been noticed."""
    response = await echo(request)
    await until(lambda: connection_of(request).half_closed)
    return response


async def test_a_request_before_the_end_is_answered(house: House) -> None:
    """As for `nc -N` (RFC 9112 section 9.6: a half-closed connection may still be read from)."""
    house.answering = slow
    async with house.peer() as peer:
        await peer.send(request("POST", "/1", "Content-Length: 2", body=b"ok"))
        peer.end()
        assert (await peer.answer()).body == b"POST /1 ok"
    await house.closed()


async def test_pipelined_requests_before_the_end_are_answered(house: House) -> None:
    """All of them, in order, and then the connection is closed (RFC 9112 section 9.3.2)."""
    house.answering = slow
    async with house.peer() as peer:
        await peer.send(PIPELINED)
        peer.end()
        assert [answer.body for answer in await answers(await peer.rest())] == [b"GET /1 ", b"POST /2 ok"]
    await house.closed()


@pytest.mark.parametrize("part", [b"GET", b"GET /3 HTTP/1.1\r\nHost: a\r\n"])
async def test_a_head_that_was_cut_is_no_request(house: House, part: bytes) -> None:
    """Nobody is answered, whatever was before it (RFC 9112 section 8)."""
    house.answering = slow
    async with house.peer() as peer:
        await peer.send(PIPELINED + part)
        peer.end()
        assert len(await answers(await peer.rest())) == 2
    async with house.peer() as peer:
        await peer.send(part)
        peer.end()
        assert await peer.rest() == b""
    assert house.seen == ["GET /1", "POST /2"]
    assert not house.refused


@pytest.mark.parametrize("before", [b"", PIPELINED])
@pytest.mark.parametrize("framing", ["Content-Length: 9", "Transfer-Encoding: chunked"])
async def test_a_body_that_was_cut_is_a_client_gone(house: House, framing: str, before: bytes) -> None:
    """Its handler is told; it is not answered (RFC 9112 section 8)."""
    async with house.peer() as peer:
        await peer.send(before + request("POST", "/3", framing, body=b"3\r\nabc"))
        peer.end()
        assert len(await answers(await peer.rest())) == (2 if before else 0)
    await house.closed()
    assert house.gone == ["/3"]


async def test_a_reset_is_a_client_gone(house: House) -> None:
    """While its body is read, and while its answer is prepared: `on_lost` tells."""
    told: list[str] = []

    async def answering(request: Request) -> WireResponse:
        if request.target == b"/body":
            return await echo(request)
        lost = asyncio.Event()
        connection_of(request).on_lost(lost.set)
        connection_of(request).on_lost(lambda: told.append("called off"))()
        await lost.wait()
        told.append("lost")
        return await echo(request)

    house.answering = answering
    for number, raw in enumerate((request("POST", "/body", "Content-Length: 9"), get("/answer"))):
        async with house.peer() as peer:
            await peer.send(raw)
            await until(partial(lambda number: len(house.seen) > number, number))
            peer.raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a close is a reset
        await house.closed()
    assert told == ["lost"]
    assert house.gone == ["/body", "/answer"]


async def test_on_lost_after_the_loss_tells_soon(house: House) -> None:
    """Nobody waits for an event that has passed."""
    told = asyncio.Event()

    async def answering(request: Request) -> WireResponse:
        await until(lambda: request.connection.transport is None)
        await asyncio.sleep(0.01)
        connection_of(request).on_lost(told.set)
        return await echo(request)

    house.answering = answering
    async with house.peer() as peer:
        await peer.send(request("POST", "/1", "Content-Length: 2", body=b"o"))
    await asyncio.wait_for(told.wait(), 5)


@pytest.mark.parametrize("streaming", [True, False])
async def test_an_end_during_a_streamed_answer_counts_as_gone(house: House, streaming: bool) -> None:
    """An event stream that nobody reads must not stay open for ever; to a handler that is not streaming, the client is waiting."""
    told, finish = asyncio.Event(), asyncio.Event()

    class Events:
        async def pieces(self) -> AsyncIterator[bytes]:
            yield b"event"
            await finish.wait()

    async def answering(request: Request) -> WireResponse:
        connection_of(request).on_lost(told.set, streaming=streaming)
        return wire_response(200, b"OK", (), Events())

    house.answering = answering
    async with house.peer() as peer:
        await peer.send(get("/1"))
        await peer.until(b"event")
        [connection] = house.server.connections
        peer.end()
        await until(lambda: connection.half_closed)
        assert told.is_set() == streaming
        finish.set()
        assert (await peer.rest()).endswith(b"0\r\n\r\n")


async def test_an_idle_client_that_ends_is_closed(house: House) -> None:
    """There is nothing left to say."""
    async with house.peer() as peer:
        await peer.send(get("/1"))
        await peer.until(b"GET /1 ")
        peer.end()
        assert await peer.rest() == b""
    await house.closed()
