"""Switching protocols (RFC 9110 section 7.8): what is asked for, what counts as agreed, and the bytes that follow."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gateway.ports import DoubtReason, InDoubt, NotSent, NotSentReason, UpstreamRequest
from gateway.upstream import Balancer, Health, HttpUpstream, UpstreamSettings
from gateway.upstream.tunnel import UpstreamTunnel
from tests.upstream.stub import HOST, OK, Peer, Script, Stub, allow, answer_all, call, until, whole

MIB = 1024 * 1024
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Accept: x\r\n\r\n"


def upgrading(upgrade: bytes = b"websocket", body: bytes | AsyncIterator[bytes] = b"") -> UpstreamRequest:
    return UpstreamRequest(b"GET", b"/chat", HOST, body, upgrade=upgrade)


async def open_tunnel(client: HttpUpstream | Balancer) -> UpstreamTunnel:
    response = await client.send(upgrading(), allow)
    assert response.status == 101
    tunnel = response.tunnel()
    response.close()
    return tunnel


async def read_until_end(tunnel: UpstreamTunnel) -> bytes:
    data = b""
    while piece := await tunnel.read():
        data += piece
    return data


def switching(after: Script, answer: bytes = SWITCH) -> Script:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(answer)
        await after(peer)

    return script


async def echo(peer: Peer) -> None:
    while data := await peer.reader.read(65536):
        await peer.answer(data)


async def stay(peer: Peer) -> None:
    await peer.closed_by_client()


async def test_the_request_asks_for_the_protocol(stub: Stub, upstream: HttpUpstream) -> None:
    """`Connection` and `Upgrade` are the client's own, behind the fields that were given."""
    stub.script = switching(echo)
    tunnel = await open_tunnel(upstream)
    assert stub.requests == [b"GET /chat HTTP/1.1\r\nHost: stub\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"]
    tunnel.close()


async def test_bytes_go_both_ways(stub: Stub, upstream: HttpUpstream) -> None:
    """As they are, HTTP or not; the response is the 101 with its fields, and has no body."""
    stub.script = switching(echo)
    response = await upstream.send(upgrading(), allow)
    assert (response.status, response.reason) == (101, b"Switching Protocols")
    assert (b"Sec-WebSocket-Accept", b"x") in response.headers
    assert await whole(response) == b""
    assert await response.read(10) == b""
    tunnel = response.tunnel()
    for data in (b"\x81\x05hello", OK, b"\r\n\r\n", bytes(range(256))):
        tunnel.write(data)
        await tunnel.drain()
        got = b""
        while len(got) < len(data):
            got += await tunnel.read()
        assert got == data
    tunnel.close()


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"])
async def test_bytes_that_came_with_the_head_come_first(stub: Stub, upstream: HttpUpstream, before: bytes) -> None:
    """In the same segment, also behind an interim response; even when the upstream ends at once."""

    async def end(peer: Peer) -> None:
        peer.close()

    stub.script = switching(end, before + SWITCH + b"first bytes")
    tunnel = await open_tunnel(upstream)
    assert await read_until_end(tunnel) == b"first bytes"
    assert upstream.open == 0


async def test_bytes_that_come_before_anybody_asks_are_kept(stub: Stub, upstream: HttpUpstream) -> None:
    """Between the head and `tunnel`."""

    async def speak(peer: Peer) -> None:
        await peer.answer(b"more")
        stub.seen.set()
        await peer.closed_by_client()

    stub.script = switching(speak, SWITCH + b"some, ")
    response = await upstream.send(upgrading(), allow)
    await stub.seen.wait()
    tunnel = response.tunnel()
    data = b""
    while len(data) < 10:
        data += await tunnel.read()
    assert data == b"some, more"
    tunnel.close()


@pytest.mark.parametrize("side", ["ours", "theirs"])
async def test_the_slot_is_held_to_the_end_and_never_reused(stub: Stub, side: str) -> None:
    """By whichever side ends the tunnel; the next call has a connection of its own."""
    client = HttpUpstream(UpstreamSettings(stub.url, max_connections=1, slot_wait=0))
    stub.script = switching(stay if side == "ours" else echo_once)
    tunnel = await open_tunnel(client)
    with pytest.raises(NotSent) as caught:
        await call(client)
    assert caught.value.reason is NotSentReason.NO_SLOT
    if side == "ours":
        tunnel.close()
    else:
        tunnel.write(b"bye")
        assert await read_until_end(tunnel) == b"bye"
    assert (client.open, client.idle) == (0, 0)
    stub.script = answer_all
    assert await call(client) == (200, b"ok")
    assert stub.connections == 2
    await client.close()


async def echo_once(peer: Peer) -> None:
    await peer.answer(await peer.reader.read(100))
    peer.close()


async def test_a_closed_tunnel_is_quiet(stub: Stub, upstream: HttpUpstream) -> None:
    """Closing again, writing, draining do nothing; reading gives the end, also to one who was waiting. The upstream sees it close."""
    ends: list[bytes] = []

    async def watch(peer: Peer) -> None:
        ends.append(await peer.closed_by_client())

    stub.script = switching(watch)
    tunnel = await open_tunnel(upstream)
    reading = asyncio.ensure_future(tunnel.read())
    await asyncio.sleep(0)
    tunnel.write(b"last words")
    tunnel.close()
    tunnel.close()
    tunnel.write(b"x")
    await tunnel.drain()
    assert await reading == b""
    assert await tunnel.read() == b""
    await until(lambda: ends == [b"last words"])


async def test_what_was_written_before_close_still_goes_out(stub: Stub, upstream: HttpUpstream) -> None:
    """RFC 9110 section 9.3.6: more than the kernel takes at once; the slot is free meanwhile."""
    received = 0

    async def slow(peer: Peer) -> None:
        nonlocal received
        await stub.seen.wait()
        while data := await peer.reader.read(MIB):
            received += len(data)

    stub.script = switching(slow)
    tunnel = await open_tunnel(upstream)
    tunnel.write(b"x" * (16 * MIB))
    tunnel.close()
    assert upstream.open == 0
    stub.seen.set()
    await until(lambda: received == 16 * MIB)


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_the_upstreams_end_is_the_tunnels(stub: Stub, upstream: HttpUpstream, how: str) -> None:
    """In whatever way it comes; a reader that waits is told."""

    async def end(peer: Peer) -> None:
        await stub.seen.wait()
        peer.close() if how == "close" else peer.reset()

    stub.script = switching(end)
    tunnel = await open_tunnel(upstream)
    reading = asyncio.ensure_future(tunnel.read())
    await asyncio.sleep(0)
    stub.seen.set()
    assert await reading == b""
    assert upstream.open == 0
    tunnel.write(b"x")
    await tunnel.drain()


async def test_a_reader_holds_the_upstream_back(stub: Stub, upstream: HttpUpstream) -> None:
    """64 MiB pass in bounded memory, and none gets lost."""
    written = 0

    async def pour(peer: Peer) -> None:
        nonlocal written
        for _ in range(1024):
            await peer.answer(b"x" * 65536)
            written += 65536
        peer.close()

    stub.script = switching(pour)
    tunnel = await open_tunnel(upstream)
    before = -1
    while written != before:  # until the stub has been blocked for a while
        before = written
        await asyncio.sleep(0.1)
    assert written < 32 * MIB
    received, largest = 0, 0
    while data := await tunnel.read():
        received += len(data)
        largest = max(largest, len(data))
    assert received == 64 * MIB
    assert largest < MIB


async def test_an_upstream_holds_the_writer_back(stub: Stub, upstream: HttpUpstream) -> None:
    """`drain` waits until what was written has left, and ends with the tunnel."""

    async def deaf(peer: Peer) -> None:
        await stub.seen.wait()
        peer.reset()

    stub.script = switching(deaf)
    tunnel = await open_tunnel(upstream)
    tunnel.write(b"x" * (32 * MIB))
    draining = asyncio.ensure_future(tunnel.drain())
    await asyncio.sleep(0.1)
    assert not draining.done()
    stub.seen.set()
    await draining
    assert await tunnel.read() == b""


async def test_silence_in_both_directions_ends_it(stub: Stub) -> None:
    """`stream_idle`; neither `read_idle` nor `total` has a say, and bytes of either side begin it anew."""

    async def talk(peer: Peer) -> None:
        for _ in range(5):
            await asyncio.sleep(0.2)
            await peer.answer(b"x")
        await stub.seen.wait()

    stub.script = switching(talk)
    client = HttpUpstream(UpstreamSettings(stub.url, first_byte=0.3, read_idle=0.3, total=0.3, stream_idle=0.8))
    tunnel = await open_tunnel(client)
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await read_until_end(tunnel) == b"xxxxx"
    assert loop.time() - began > 1.5
    assert client.open == 0
    stub.seen.set()
    await client.close()


async def test_writing_is_no_silence(stub: Stub) -> None:
    """An upstream that only listens keeps its tunnel."""
    stub.script = switching(stay)
    client = HttpUpstream(UpstreamSettings(stub.url, stream_idle=0.8))
    tunnel = await open_tunnel(client)
    for _ in range(6):
        await asyncio.sleep(0.2)
        tunnel.write(b"x")
    assert client.open == 1
    tunnel.close()
    await client.close()


async def test_a_response_closed_without_its_tunnel_cuts(stub: Stub, upstream: HttpUpstream) -> None:
    """Nobody else would; once handed out, the tunnel is its caller's."""
    stub.script = switching(stay)
    response = await upstream.send(upgrading(), allow)
    response.close()
    assert upstream.open == 0
    with pytest.raises(LookupError):
        response.tunnel()
    tunnel = await open_tunnel(upstream)
    assert upstream.open == 1
    tunnel.close()


async def test_a_tunnel_is_given_once(stub: Stub, upstream: HttpUpstream) -> None:
    """And never for another status."""
    stub.script = switching(stay)
    response = await upstream.send(upgrading(), allow)
    response.tunnel().close()
    with pytest.raises(LookupError):
        response.tunnel()


@pytest.mark.parametrize("status", [200, 400, 426, 500])
async def test_any_other_answer_is_a_response(stub: Stub, upstream: HttpUpstream, status: int) -> None:
    """RFC 9110 section 7.8: a server may ignore the wish. The connection goes on as HTTP."""

    async def refuse(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.answer(b"HTTP/1.1 %d X\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nno" % status)

    stub.script = refuse
    response = await upstream.send(upgrading(), allow)
    assert (response.status, await whole(response)) == (status, b"no")
    with pytest.raises(LookupError):
        response.tunnel()
    assert (upstream.idle, stub.connections) == (1, 1)


NOT_AGREED = {
    "another protocol": SWITCH.replace(b"WebSocket", b"h2c"),
    "two protocols": SWITCH.replace(b"WebSocket", b"websocket, h2c"),
    "two lines": SWITCH.replace(b"Upgrade: WebSocket", b"Upgrade: websocket\r\nUpgrade: websocket"),
    "no protocol": SWITCH.replace(b"Upgrade: WebSocket\r\n", b""),
    "no connection option": SWITCH.replace(b"Connection: Upgrade\r\n", b""),
    "HTTP/1.0": SWITCH.replace(b"HTTP/1.1", b"HTTP/1.0"),
}


@pytest.mark.parametrize("answer", NOT_AGREED.values(), ids=NOT_AGREED)
async def test_a_101_that_agrees_to_something_else_is_invalid(stub: Stub, upstream: HttpUpstream, answer: bytes) -> None:
    """RFC 9110 sections 7.8 and 15.2.2."""
    stub.script = switching(stay, answer)
    with pytest.raises(InDoubt) as caught:
        await upstream.send(upgrading(), allow)
    assert caught.value.reason is DoubtReason.INVALID_RESPONSE
    assert upstream.open == 0


async def test_a_switch_before_the_request_is_through_is_invalid(stub: Stub, upstream: HttpUpstream) -> None:
    """RFC 9110 section 7.8: the new protocol begins after the request has ended."""

    async def hasty(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.answer(SWITCH)
        await peer.closed_by_client()

    async def body() -> AsyncIterator[bytes]:
        yield b"abc"
        await asyncio.Event().wait()

    stub.script = hasty
    with pytest.raises(InDoubt) as caught:
        await upstream.send(upgrading(body=body()), allow)
    assert caught.value.reason is DoubtReason.INVALID_RESPONSE
    assert upstream.open == 0


async def test_a_cancelled_call_leaves_no_tunnel(stub: Stub, upstream: HttpUpstream) -> None:
    """Cancelled when the 101 has come, but the call could not run yet."""
    loop = asyncio.get_running_loop()
    stub.script = switching(stay, b"HTTP/1.1 103 Early Hints\r\n\r\n" + SWITCH)

    def cancel(*_: object) -> None:
        loop.call_soon(calling.cancel)  # before the task that the 101 behind this wakes up

    wish = replace(upgrading(), informational=cancel)
    calling = asyncio.ensure_future(upstream.send(wish, allow))
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert upstream.open == 0


async def test_a_balancer_gives_tunnels_too(stub: Stub) -> None:
    """Its head is the target's success; how the tunnel ends tells nothing."""
    told: list[tuple[str, bool]] = []
    stub.script = switching(end_by_reset)
    client = HttpUpstream(UpstreamSettings(stub.url))
    balancer = Balancer([("a", client, Health(1, 60.0))], lambda name, healthy: told.append((name, healthy)))
    tunnel = await open_tunnel(balancer)
    assert await tunnel.read() == b""
    assert told == []
    await balancer.close()


async def end_by_reset(peer: Peer) -> None:
    peer.reset()
