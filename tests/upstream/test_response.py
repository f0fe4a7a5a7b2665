"""What comes back: heads byte for byte, bodies by their framing, in bounded memory."""

import asyncio

import pytest

from gateway.ports import DoubtReason, InDoubt
from gateway.upstream import HttpUpstream, UpstreamSettings
from gateway.upstream.connection import HIGH_WATER
from tests.upstream.stub import OK, Peer, Stub, allow, call, raw, request, until, whole

MIB = 1024 * 1024


async def test_the_head_is_handed_over_as_received(stub: Stub, upstream: HttpUpstream) -> None:
    """Status, reason and field lines: order, case, duplicates, empty values, bytes above 0x7F; hop-by-hop fields too."""
    fields = (
        (b"Set-Cookie", b"a=1; Expires=Mon, 21 Oct 2030 07:28:00 GMT"),
        (b"x-CaSe", b"y"),
        (b"Set-Cookie", b"b=2"),
        (b"X-Name", b"caf\xe9"),
        (b"X-Empty", b""),
        (b"Connection", b"keep-alive, X-Hop"),
        (b"CONTENT-length", b"0"),
    )
    stub.script = raw(b"HTTP/1.1 402 Pl\xe9ase pay\r\n" + b"".join(b"%b: %b\r\n" % field for field in fields) + b"\r\n")
    response = await upstream.send(request(), allow)
    assert (response.status, response.reason, response.headers, response.content_length) == (402, b"Pl\xe9ase pay", fields, 0)


async def test_the_request_arrives_as_given(stub: Stub, upstream: HttpUpstream) -> None:
    """Not a byte more than the request and its framing."""
    await call(upstream)
    assert stub.requests == [b"POST / HTTP/1.1\r\nHost: stub\r\nContent-Length: 2\r\n\r\n{}"]


async def test_the_host_can_be_the_targets(stub: Stub) -> None:
    """`host` in the settings stands in for what the request says."""
    client = HttpUpstream(UpstreamSettings(stub.url, host=b"payments.internal:8000"))
    await call(client)
    assert stub.requests == [b"POST / HTTP/1.1\r\nHost: payments.internal:8000\r\nContent-Length: 2\r\n\r\n{}"]
    await client.close()


async def test_compressed_bodies_and_redirects_pass_as_they_are(stub: Stub, upstream: HttpUpstream) -> None:
    """Nothing is decoded, followed or remembered."""
    stub.script = raw(
        b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /elsewhere\r\nSet-Cookie: a=b\r\nContent-Encoding: gzip\r\n"
        b"Content-Length: 3\r\n\r\n\x1f\x8b!"
    )
    assert await call(upstream) == (307, b"\x1f\x8b!")
    await call(upstream)
    assert stub.requests[0] == stub.requests[1]


@pytest.mark.parametrize(
    ("response", "body"),
    [
        (OK, b"ok"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n", b"ok"),
        (b"HTTP/1.1 200 OK\r\n\r\nok", b"ok"),
        (b"HTTP/1.0 200 OK\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n" + OK, b"ok"),
    ],
)
async def test_bodies_end_by_their_framing(stub: Stub, upstream: HttpUpstream, response: bytes, body: bytes) -> None:
    """By length, by chunks, by a clean end of the stream; `chunks` and `read` agree."""
    stub.script = raw(response, close=True)
    assert await call(upstream) == (200, body)
    answer = await upstream.send(request(), allow)
    assert await answer.read(2) == body


@pytest.mark.parametrize(
    ("method", "response", "status"),
    [
        (b"HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n", 200),
        (b"HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200),
        (b"POST", b"HTTP/1.1 204 No Content\r\n\r\n", 204),
        (b"POST", b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", 204),
        (b"GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304),
        (b"GET", b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", 304),
    ],
)
async def test_bodiless_responses_leave_the_connection_usable(
    stub: Stub, upstream: HttpUpstream, method: bytes, response: bytes, status: int
) -> None:
    """Whatever their fields say; the next exchange on the same connection is not disturbed."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(response)
        await peer.request()
        await peer.answer(OK)

    stub.script = script
    assert await call(upstream, method) == (status, b"")
    assert await call(upstream) == (200, b"ok")
    assert stub.connections == 1


async def test_long_fields_are_relayed(stub: Stub, upstream: HttpUpstream) -> None:
    """A policy header of 64 KiB is no reason to lose an answer."""
    stub.script = raw(b"HTTP/1.1 200 OK\r\nContent-Security-Policy: " + b"a" * 65536 + b"\r\nContent-Length: 2\r\n\r\nok")
    response = await upstream.send(request(), allow)
    assert len(response.headers[0][1]) == 65536
    assert await whole(response) == b"ok"


async def test_a_body_within_the_limit_is_read_whole(stub: Stub, upstream: HttpUpstream) -> None:
    """Also one that is larger than the usual buffer; the connection is given back."""
    body = bytes(range(256)) * 8192
    stub.script = raw(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    response = await upstream.send(request(), allow)
    assert await response.read(len(body)) == body
    assert (upstream.open, upstream.idle) == (1, 1)


@pytest.mark.parametrize("framing", [b"Content-Length: 2097152", b"Connection: close"])
async def test_a_longer_body_is_still_there_for_chunks(stub: Stub, upstream: HttpUpstream, framing: bytes) -> None:
    """`read` gives None at once if the announced length is over the limit, else when that many bytes have come; nothing is lost."""
    body = bytes(range(256)) * 8192
    stub.script = raw(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n" + body, close=True)
    response = await upstream.send(request(), allow)
    assert await response.read(MIB) is None
    assert await whole(response) == body


async def test_reading_pauses_while_nobody_consumes(stub: Stub, upstream: HttpUpstream) -> None:
    """The upstream's writes block when our buffers are full: 64 MiB go through in bounded memory, and none gets lost."""
    total, piece = 64 * MIB, 64 * 1024
    written = 0

    async def script(peer: Peer) -> None:
        nonlocal written
        await peer.request()
        await peer.answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        for number in range(total // piece):
            await peer.answer(number.to_bytes(4, "big") * (piece // 4))
            written += piece

    stub.script = script
    response = await upstream.send(request(), allow)
    before = -1
    while written != before:  # until the stub has been blocked for a while
        before = written
        await asyncio.sleep(0.1)
    assert written < total // 2  # the kernel's socket buffers hold a few MiB, ours 256 KiB
    received, largest = 0, 0
    async for data in response.chunks():
        assert data[:4] == (received // piece).to_bytes(4, "big") or received % piece
        received += len(data)
        largest = max(largest, len(data))
    assert received == total
    assert largest <= 2 * HIGH_WATER
    assert upstream.idle == 1


async def test_a_response_closed_half_way_is_cut_off(stub: Stub, upstream: HttpUpstream) -> None:
    """The upstream sees the end; closing again, or reading on, does no harm."""
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234")
        await peer.closed_by_client()
        gone.set()

    stub.script = script
    response = await upstream.send(request(), allow)
    pieces = response.chunks()
    assert await anext(pieces) == b"01234"
    response.close()
    assert upstream.open == 0
    response.close()
    with pytest.raises(InDoubt):
        await anext(pieces)
    async with asyncio.timeout(10):
        await gone.wait()


async def test_closing_an_old_response_does_not_touch_the_next_exchange(stub: Stub, upstream: HttpUpstream) -> None:
    """The connection is given back once; what was received whole stays readable after `close`."""
    first = await upstream.send(request(), allow)
    first.close()
    second = await upstream.send(request(), allow)
    first.close()
    assert await whole(second) == b"ok"
    assert await whole(first) == b"ok"
    assert (stub.connections, upstream.open) == (1, 1)


async def test_a_cancelled_read_cuts_the_connection(stub: Stub, upstream: HttpUpstream) -> None:
    """Nobody is left to read the rest."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
        await peer.closed_by_client()

    stub.script = script
    response = await upstream.send(request(), allow)
    reading = asyncio.ensure_future(response.read(100))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert upstream.open == 0


async def test_an_abandoned_response_is_cut_at_the_total_limit(stub: Stub) -> None:
    """A caller that forgets to close does not keep the slot for ever."""
    stub.script = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234")
    client = HttpUpstream(UpstreamSettings(stub.url, total=0.2))
    response = await client.send(request(), allow)
    await until(lambda: client.open == 0)
    with pytest.raises(InDoubt) as caught:
        await whole(response)
    assert caught.value.reason is DoubtReason.TOTAL_TIMEOUT
    await client.close()
