"""How connections end: drains, shutdowns, and clients that do not take what they asked for."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.http.connection import ClientConnection
from gateway.http.limits import ClientLimits
from gateway.http.request import Request
from gateway.http.response import WireResponse, wire_response
from tests.http.connections.house import House, answers, echo, get, request, until

LARGE = 16_000_000


async def large(request: Request) -> WireResponse:
    """More than socket buffers take, without waiting for the client."""
    response = wire_response(200, b"OK", (), b"x" * LARGE, close=request.target == b"/close")
    writing = asyncio.ensure_future(response.prepare(request))
    await asyncio.sleep(0.01)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    return response


@pytest.mark.parametrize("target", ["/keep", "/close"])
async def test_a_client_that_never_reads_is_cut(target: str) -> None:
    """Whether the connection was kept or is being closed: bytes stuck in a buffer do not keep it for ever (RFC 9112 section 9.5)."""
    async with House(ClientLimits(header_timeout=30, idle_timeout=0.2)) as house, house.peer(receive_buffer=4096) as peer:
        house.answering = large
        await peer.send(get(target))
        await until(lambda: house.seen)
        await house.closed()
        with pytest.raises(ConnectionError):
            await peer.send_until_cut(get("/"))


async def test_a_slow_client_gets_its_last_answer_whole() -> None:
    """As long as it takes anything at all, a connection that is being closed stays (RFC 9112 section 9.6)."""
    async with House(ClientLimits(header_timeout=30, idle_timeout=1)) as house, house.peer(receive_buffer=65536) as peer:
        house.answering = large
        await peer.send(get("/close"))
        size = 0
        while piece := await peer.some():
            size += len(piece)
            await asyncio.sleep(0.01)
        assert size > LARGE


async def test_a_client_that_said_close_is_closed_at_once(house: House) -> None:
    """It has sent all it has to send: nothing is waited for (RFC 9112 section 9.6)."""
    async with house.peer() as peer:
        await peer.send(get("/1", "Connection: close"))
        await peer.rest()
        await house.closed()


async def test_our_close_leaves_the_client_to_close_first(house: House) -> None:
    """What it still sends meets no reset (RFC 9112 section 9.6)."""

    async def answering(request: Request) -> WireResponse:
        return wire_response(200, b"OK", (), b"last", close=True)

    house.answering = answering
    async with house.peer() as peer:
        await peer.send(get("/1"))
        assert b"last" in await peer.rest()
        for _ in range(10):
            await peer.send(get("/2"))
            await asyncio.sleep(0.005)
        assert house.server.connections
    await house.closed()
    assert house.seen == ["GET /1"]


async def test_a_drain_closes_idle_connections_at_once_and_others_after_their_answers(house: House) -> None:
    """A request whose body is still coming in is read to its end."""
    async with house.peer() as idle, house.peer() as silent, house.peer() as busy:
        await idle.send(get("/idle"))
        await idle.until(b"GET /idle ")
        await busy.send(request("POST", "/busy", "Content-Length: 4", body=b"ab"))
        await until(lambda: "POST /busy" in house.seen)
        house.server.pre_shutdown()
        assert await idle.rest() == b""
        assert await silent.rest() == b""
        await busy.send(b"cd" + get("/next"))
        assert [answer.body for answer in await answers(await busy.rest())] == [b"POST /busy abcd"]
    await house.closed()


async def test_a_drain_answers_what_has_arrived(house: House) -> None:
    """A request that is in the socket while its idle connection is to be closed is answered: closed over it, its client would be reset."""
    async with house.peer() as peer, house.peer() as idle:
        for one in (peer, idle):
            await one.send(get("/1"))
            await one.until(b"GET /1 ")
        await until(lambda: len(house.seen) == 2)
        peer.raw.send(get("/2"))  # and the loop does not come to read it before
        house.server.retire(0.0)
        await peer.until(b"GET /2 ")
        assert await idle.rest() == b""
        await idle.send(get("/crossing"))  # what crosses our end meets no reset
        await asyncio.sleep(0)
        assert await idle.rest() == b""
        house.server.retire(0.0)
        assert await peer.rest() == b""
    await house.closed()


async def test_a_drain_ends_with_a_body_that_is_read_past(house: House) -> None:
    """The request is answered already, and what is left of its body is the last that is read."""

    async def refuse(request: Request) -> WireResponse:
        return wire_response(413, b"Content Too Large", (), b"no")

    house.answering = refuse
    async with house.peer() as peer:
        await peer.send(request("POST", "/1", "Content-Length: 4", body=b"ab"))
        await peer.until(b"no")
        house.server.retire(30.0)
        await peer.send(b"cd")
        assert await peer.rest() == b""
        await peer.send(get("/crossing"))  # meets no reset
        await asyncio.sleep(0)
        assert await peer.rest() == b""
    await house.closed()


async def test_a_drain_leaves_time_to_ask_again(house: House) -> None:
    """A connection that was just answered, or just opened, is kept for a while: its next request may be on the wire."""
    async with house.peer() as peer, house.peer() as fresh:
        await peer.send(get("/1"))
        await peer.until(b"GET /1 ")
        await until(lambda: len(house.server.connections) == 2)
        house.server.retire(30.0)
        for one in (peer, fresh):
            await one.send(get("/2"))
            await one.until(b"GET /2 ")
        house.server.retire(0.0)
        assert await peer.rest() == await fresh.rest() == b""
    await house.closed()


async def test_a_shutdown_ends_what_will_not_end(house: House) -> None:
    """aiohttp's `shutdown` waits, then cancels the handler, and no connection is left."""
    cancelled = asyncio.Event()

    async def answering(request: Request) -> WireResponse:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return await echo(request)

    house.answering = answering
    async with house.peer() as peer:
        await peer.send(get("/1"))
        await until(lambda: house.seen)
        house.server.pre_shutdown()
        await house.server.shutdown(0.05)
        await asyncio.wait_for(cancelled.wait(), 5)
        assert await peer.rest() == b""


async def test_a_shutdown_lets_a_request_finish(house: House) -> None:
    """Within its time."""
    gate = asyncio.Event()

    async def answering(request: Request) -> WireResponse:
        await gate.wait()
        return await echo(request)

    house.answering = answering
    async with house.peer() as peer:
        await peer.send(get("/1"))
        await until(lambda: house.seen)
        house.server.pre_shutdown()
        ending = asyncio.ensure_future(house.server.shutdown(20))
        await asyncio.sleep(0.02)
        gate.set()
        assert (await peer.answer()).body == b"GET /1 "
        await ending


async def test_a_loss_while_an_unread_body_is_skipped_leaves_nothing_behind(house: House) -> None:
    """The connection's task ends with the connection."""

    async def answering(request: Request) -> WireResponse:
        return wire_response(400, b"Bad Request", (), b"no")

    house.answering = answering
    async with house.peer() as peer:
        await peer.send(request("POST", "/1", "Content-Length: 1000"))
        await peer.until(b"no")
    await house.closed()


@pytest.mark.parametrize(
    "raw", [get("/1"), request("POST", "/1", "Transfer-Encoding: chunked", body=b"nonsense")], ids=["get", "malformed"]
)
async def test_a_connection_that_was_cut_by_its_handler_is_lost(house: House, raw: bytes) -> None:
    """Nothing more is said on it."""

    async def answering(request: Request) -> WireResponse:
        if request.connection.transport is not None:
            request.connection.transport.abort()
        [connection] = house.server.connections
        assert isinstance(connection, ClientConnection)
        assert connection._wire is not None
        connection._wire.abort()
        response = wire_response(200, b"OK", ())
        response.drop()
        return response

    house.answering = answering
    async with house.peer() as peer:
        await peer.send(raw)
        with contextlib.suppress(ConnectionResetError):
            assert await peer.rest() == b""
    await house.closed()


async def test_a_streamed_answer_is_held_back_by_a_client_that_does_not_read(house: House) -> None:
    """Only a buffer's worth is taken from the source."""
    taken = 0

    class Source:
        async def pieces(self) -> AsyncIterator[bytes]:
            nonlocal taken
            while taken < 50_000_000:
                taken += 65536
                yield b"x" * 65536

    async def answering(request: Request) -> WireResponse:
        return wire_response(200, b"OK", (), Source())

    house.answering = answering
    async with house.peer(receive_buffer=4096) as peer:
        await peer.send(get("/1"))
        await asyncio.sleep(0.2)
        assert taken < 20_000_000
    await house.closed()


async def test_a_closed_connection_is_no_garbage(house: House) -> None:
    """It is freed at once: nothing that it holds holds it."""
    gc.collect()
    gc.disable()
    try:
        for raw in (get("/1", "Connection: close"), get("/1") + request("POST", "/2", "Content-Length: 3", body=b"abc"), b"\0", b""):
            async with house.peer() as peer:
                await peer.send(raw)
                peer.end()
                await peer.rest()
            await house.closed()
            await asyncio.sleep(0.01)
            assert not [one for one in gc.get_objects() if isinstance(one, ClientConnection)]
    finally:
        gc.enable()


async def test_on_a_unix_socket_all_is_the_same(tmp_path: Path) -> None:
    """Half-closes and lingering closes included."""
    async with House(path=tmp_path / "socket") as house, house.peer() as peer:
        await peer.send(get("/1") + get("/2"))
        peer.end()
        assert len(await answers(await peer.rest())) == 2
        async with house.peer() as other:
            await other.send(b"\x00" * 300_000)
            assert (await other.answer()).status == 400
