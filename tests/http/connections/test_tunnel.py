"""A connection that has left HTTP (RFC 9110 section 7.8): bytes both ways, and how it ends."""

import asyncio
from collections.abc import Awaitable

import pytest

from gateway.http.limits import ClientLimits
from gateway.http.request import Request
from gateway.http.response import WireResponse, wire_response
from gateway.ports import Tunnel
from tests.http.connections.house import House, Peer, connection_of, echo, get, until

ASKED = get("/ws", "Connection: Upgrade", "Upgrade: websocket")
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"


class Taking:
    """A handler that agrees to every upgrade and keeps the tunnel until it is told."""

    def __init__(self, house: House) -> None:
        house.answering = self.answering
        self.tunnels: list[Tunnel] = []
        self.finish = asyncio.Event()

    async def answering(self, request: Request) -> WireResponse:
        connection = connection_of(request)
        if not connection.upgradable:
            return await echo(request)
        assert request.connection.transport is not None
        request.connection.transport.write(SWITCHED)
        tunnel: Tunnel = connection.take_over()
        self.tunnels.append(tunnel)
        await self.finish.wait()
        response = wire_response(101, b"", ())
        response.drop()
        return response

    async def tunnel(self) -> Tunnel:
        await until(lambda: self.tunnels)
        return self.tunnels[-1]


async def test_what_comes_behind_the_head_comes_first(house: House) -> None:
    """Also if a request was pipelined before, and whatever the bytes look like (RFC 9110 section 7.8)."""
    taking = Taking(house)
    behind = b"\r\n\r\nGET / HTTP/1.1\r\n\r\n\x00"
    async with house.peer() as peer:
        await peer.send(get("/1") + ASKED + behind)
        tunnel = await taking.tunnel()
        assert await tunnel.read() == behind
        await peer.send(b"more")
        assert await tunnel.read() == b"more"
        tunnel.write(b"back")
        await tunnel.drain()
        assert (await peer.until(b"back")).endswith(SWITCHED + b"back")
        assert house.seen == ["GET /1", "GET /ws"]
        taking.finish.set()
        assert await peer.rest() == b""
    await house.closed()


async def test_a_handler_may_take_over_at_once(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it waits for anything: what came behind the head is still the tunnel's."""
    read: list[bytes] = []

    def handle(request: Request) -> Awaitable[WireResponse]:
        assert request.connection.transport is not None
        request.connection.transport.write(SWITCHED)
        return echo_all(request.connection.take_over())

    async def echo_all(tunnel: Tunnel) -> WireResponse:
        while not read or not read[-1].endswith(b"."):
            read.append(await tunnel.read())
        response = wire_response(101, b"", ())
        response.drop()
        return response

    monkeypatch.setattr(house, "handle", handle)
    async with house.peer() as peer:
        await peer.send(ASKED + b"behind ")
        await peer.until(SWITCHED)
        await peer.send(b"more.")
        await peer.rest()
    assert b"".join(read) == b"behind more."
    await house.closed()


async def test_a_declined_upgrade_is_an_ordinary_request(house: House) -> None:
    """What comes behind it is the next request (RFC 9110 section 7.8)."""
    async with house.peer() as peer:
        await peer.send(ASKED + get("/2", "Connection: close"))
        data = await peer.rest()
    assert data.count(b"200 OK") == 2


@pytest.mark.parametrize(
    "raw",
    [
        get("/1"),
        get("/1", "Connection: Upgrade", "Upgrade: h2c"),
        get("/1", "Upgrade: websocket"),
        get("/1", "Connection: Upgrade", "Upgrade: h2c, websocket"),
    ],
)
async def test_only_a_websocket_can_be_agreed_to(house: House, raw: bytes) -> None:
    """Anything else is not upgradable, and taking it over is a mistake of ours."""
    wrong = []

    async def answering(request: Request) -> WireResponse:
        try:
            connection_of(request).take_over()
        except RuntimeError:
            wrong.append(connection_of(request).upgradable)
        return await echo(request)

    house.answering = answering
    async with house.peer() as peer:
        await peer.send(raw + get("/2", "Connection: close"))
        assert (await peer.rest()).count(b"200 OK") == 2
    assert wrong == [False, False]


async def test_no_timer_cuts_a_tunnel() -> None:
    """It may be silent for longer than an idle connection."""
    async with House(ClientLimits(header_timeout=0.1, idle_timeout=0.1)) as house, house.peer() as peer:
        taking = Taking(house)
        await peer.send(get("/1"))
        await peer.until(b"GET /1 ")
        await peer.send(ASKED)
        tunnel = await taking.tunnel()
        await asyncio.sleep(0.5)
        await peer.send(b"still")
        assert await tunnel.read() == b"still"


async def test_reading_nothing_holds_the_client_back(house: House) -> None:
    """And what it sent in between is all there."""
    taking = Taking(house)
    size = 32_000_000
    async with house.peer() as peer:
        await peer.send(ASKED)
        tunnel = await taking.tunnel()
        sending = asyncio.ensure_future(peer.send(b"x" * size))
        await asyncio.sleep(0.2)
        assert not sending.done()
        received = 0
        while received < size:
            received += len(await tunnel.read())
        assert received == size
        await sending


async def swallow(peer: Peer) -> None:
    """Read for ever."""
    while True:
        await peer.some()


async def test_drain_waits_for_a_client_that_does_not_read(house: House) -> None:
    """Until it does, or is gone."""
    taking = Taking(house)
    for reads in (True, False):
        taking.tunnels.clear()
        async with house.peer(receive_buffer=4096) as peer:
            await peer.send(ASKED)
            tunnel = await taking.tunnel()
            tunnel.write(b"x" * 16_000_000)
            draining = asyncio.ensure_future(tunnel.drain())
            await asyncio.sleep(0.1)
            assert not draining.done()
            if reads:
                reading = asyncio.ensure_future(swallow(peer))
                await asyncio.wait_for(draining, 30)
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
        await asyncio.wait_for(draining, 30)
        assert await asyncio.wait_for(tunnel.read(), 30) == b""
        tunnel.write(b"into the void")
        await tunnel.drain()
        taking.finish.set()
        await house.closed()
        taking.finish.clear()


async def test_the_end_of_the_client_is_read_after_its_last_bytes(house: House) -> None:
    """A half-close ends one way only: what the other side still says gets through."""
    taking = Taking(house)
    async with house.peer() as peer:
        await peer.send(ASKED + b"last words")
        peer.end()
        tunnel = await taking.tunnel()
        assert await tunnel.read() == b"last words"
        assert await tunnel.read() == b""
        tunnel.write(b"farewell")
        tunnel.close()
        tunnel.close()
        assert (await peer.rest()).endswith(b"farewell")
        taking.finish.set()
    await house.closed()


@pytest.mark.parametrize("how", ["close", "shutdown", "reset"])
async def test_a_reader_is_woken_by_every_end(house: House, how: str) -> None:
    """By our own close, by the process's shutdown, and by the client's loss."""
    taking = Taking(house)
    async with house.peer() as peer:
        await peer.send(ASKED)
        tunnel = await taking.tunnel()
        reading = asyncio.ensure_future(tunnel.read())
        await asyncio.sleep(0.01)
        match how:
            case "close":
                tunnel.close()
            case "shutdown":
                house.server.pre_shutdown()
                await asyncio.sleep(0.02)
                assert not reading.done()
                await house.server.shutdown(0.05)
            case _:
                peer.raw.close()
        assert await asyncio.wait_for(reading, 5) == b""
        taking.finish.set()
    await house.closed()
