"""The same connections under TLS, which knows no half-closed ones (RFC 8446 section 6.1)."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

import pytest
import trustme

from gateway.http.connection import TURNED_AWAY
from gateway.http.limits import ClientLimits
from gateway.http.request import Request
from gateway.http.response import WireResponse, wire_response
from tests.http.connections.house import PATIENT, House, answers, connection_of, echo, get, request, until


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    return context


@pytest.fixture(scope="module")
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture
async def house(tls: ssl.SSLContext) -> AsyncIterator[House]:
    """The listener under TLS."""
    async with House(ClientLimits(header_timeout=30, idle_timeout=0.5), tls=tls) as house:
        yield house


async def talk(house: House, trusting: ssl.SSLContext, raw: bytes) -> bytes:
    """Send everything, then read everything."""
    reader, writer = await asyncio.open_connection("127.0.0.1", house.port, ssl=trusting, server_hostname="localhost")
    try:
        writer.write(raw)
        await writer.drain()
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()


async def test_requests_are_answered(house: House, trusting: ssl.SSLContext) -> None:
    """One after the other, until the client's last."""
    found = await answers(
        await talk(house, trusting, get("/1") + request("POST", "/2", "Content-Length: 2", "Connection: close", body=b"ok"))
    )
    assert [answer.body for answer in found] == [b"GET /1 ", b"POST /2 ok"]


async def test_a_refusal_arrives(house: House, trusting: ssl.SSLContext) -> None:
    """Also while the client is still sending: its bytes are read for a while (RFC 9112 section 9.6)."""
    [answer] = await answers(await talk(house, trusting, b"\x00 / HTTP/1.1\r\n\r\n" + b"x" * 500_000))
    assert (answer.status, answer.problem) == (400, "bad-request")


async def test_a_client_that_closes_is_gone(house: House, trusting: ssl.SSLContext) -> None:
    """Nothing can be sent to it any more; the handler is told."""
    told = asyncio.Event()

    async def answering(request: Request) -> WireResponse:
        connection_of(request).on_lost(told.set)
        await told.wait()
        return await echo(request)

    house.answering = answering
    _, writer = await asyncio.open_connection("127.0.0.1", house.port, ssl=trusting, server_hostname="localhost")
    writer.write(get("/1"))
    await until(lambda: house.seen)
    writer.close()
    await asyncio.wait_for(told.wait(), 20)
    await house.closed()


async def test_a_tunnel_carries_bytes(house: House, trusting: ssl.SSLContext) -> None:
    """Behind a 101 (RFC 9110 section 7.8)."""

    async def answering(request: Request) -> WireResponse:
        assert request.connection.transport is not None
        request.connection.transport.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        tunnel = connection_of(request).take_over()
        while data := await tunnel.read():
            tunnel.write(data.upper())
            await tunnel.drain()
            if data.endswith(b"."):
                tunnel.close()
        response = wire_response(101, b"", ())
        response.drop()
        return response

    house.answering = answering
    data = await talk(house, trusting, get("/ws", "Connection: Upgrade", "Upgrade: websocket") + b"x" * 200_000 + b".")
    assert data.endswith(b"\r\n\r\n" + b"X" * 200_000 + b".")


async def test_one_too_many_is_told_so(tls: ssl.SSLContext, trusting: ssl.SSLContext) -> None:
    """After its handshake (RFC 9110 section 15.6.4)."""
    async with House(ClientLimits(max_connections=1, idle_timeout=30), tls=tls) as house:
        _, writer = await asyncio.open_connection("127.0.0.1", house.port, ssl=trusting, server_hostname="localhost")
        [answer] = await answers(await talk(house, trusting, get("/2")))
        assert answer.problem == "too-many-connections"
        writer.close()


async def test_silent_handshakes_take_places(tls: ssl.SSLContext, trusting: ssl.SSLContext) -> None:
    """From their accept on; the next one is one too many, and is told so after its own handshake."""
    async with House(ClientLimits(header_timeout=30, idle_timeout=30, max_connections=2), tls=tls) as house:
        async with house.peer(), house.peer() as second:
            await second.send(b"\x16\x03\x01")
            await until(lambda: house.server.size == 2)
            [answer] = await answers(await talk(house, trusting, get("/3")))
            assert answer.problem == "too-many-connections"
        await until(lambda: house.server.size == 0)
        [answer] = await answers(await talk(house, trusting, get("/4", "Connection: close")))
        assert answer.body == b"GET /4 "


async def test_a_handshake_has_its_time(tls: ssl.SSLContext) -> None:
    """A client that says nothing, or stops in the middle, is cut."""
    async with House(ClientLimits(header_timeout=0.2, idle_timeout=30), tls=tls) as house:
        for begun in (b"", b"\x16\x03\x01\x02"):
            async with house.peer() as peer:
                await peer.send(begun)
                with contextlib.suppress(ConnectionError):
                    assert await peer.rest() == b""
        await until(lambda: house.server.size == 0)


async def test_a_handshake_that_fails_frees_its_place_at_once(tls: ssl.SSLContext) -> None:
    """Whoever speaks no TLS, trusts another authority or resets."""
    async with House(PATIENT, tls=tls) as house:
        for _ in range(3):
            async with house.peer() as peer:
                await peer.send(get("/1"))
                with contextlib.suppress(ConnectionError):
                    await peer.rest()
        with pytest.raises(ssl.SSLError):
            await talk(house, ssl.create_default_context(), get("/1"))
        await until(lambda: house.server.size == 0)
    assert not house.seen


async def test_a_flood_of_silent_handshakes_is_not_held(tls: ssl.SSLContext) -> None:
    """Beyond those that may be told, connections are cut at their accept."""
    async with House(ClientLimits(header_timeout=30, max_connections=1), tls=tls) as house:
        streams = [await asyncio.open_connection("127.0.0.1", house.port) for _ in range(TURNED_AWAY + 20)]
        assert await asyncio.wait_for(streams[-1][0].read(), 20) == b""
        await until(lambda: house.refused["too_many_connections"] == 19)
        assert house.server.size == TURNED_AWAY + 1
        for _, writer in streams:
            writer.close()
        await until(lambda: house.server.size == 0)
