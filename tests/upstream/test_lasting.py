"""Exchanges that may last: after the head only silence counts."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gateway.ports import DoubtReason, InDoubt
from gateway.upstream import HttpUpstream, UpstreamSettings
from tests.upstream.stub import OK, Peer, Script, Stub, allow, request, until, whole

MIB = 1024 * 1024
PLAIN = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


def pieces(head: bytes, pause: float, count: int) -> Script:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(head)
        for _ in range(count):
            await asyncio.sleep(pause)
            await peer.answer(b"1\r\nx\r\n")
        await peer.answer(b"0\r\n\r\n")

    return script


async def silent(peer: Peer) -> None:
    await peer.request()
    await peer.closed_by_client()


@pytest.mark.parametrize("lasting", [True, False])
async def test_a_body_may_last_longer_than_total_where_asked(stub: Stub, lasting: bool) -> None:
    """As long as pieces keep coming."""
    stub.script = pieces(PLAIN, 0.1, 8)
    client = HttpUpstream(UpstreamSettings(stub.url, total=0.4, first_byte=60))
    response = await client.send(replace(request(), lasting=lasting), allow)
    if lasting:
        assert await whole(response) == b"x" * 8
    else:
        with pytest.raises(InDoubt) as caught:
            await whole(response)
        assert caught.value.reason is DoubtReason.TOTAL_TIMEOUT
    await client.close()
    assert client.open == 0


async def test_total_still_bounds_the_wait_for_the_head(stub: Stub) -> None:
    """A lasting request is not one that waits for ever."""
    stub.script = silent
    client = HttpUpstream(UpstreamSettings(stub.url, total=0.2))
    with pytest.raises(InDoubt) as caught:
        await client.send(replace(request(), lasting=True), allow)
    assert caught.value.reason is DoubtReason.TOTAL_TIMEOUT
    await client.close()


@pytest.mark.parametrize("lasting", [True, False])
async def test_an_upload_may_last_longer_than_total_where_asked(stub: Stub, lasting: bool) -> None:
    """As long as its client keeps sending; then the wait for the head has its own limit."""

    async def slow() -> AsyncIterator[bytes]:
        for _ in range(8):
            await asyncio.sleep(0.1)
            yield b"x"

    client = HttpUpstream(UpstreamSettings(stub.url, total=0.4, first_byte=60))
    uploading = client.send(replace(request(), body=slow(), body_length=8, lasting=lasting), allow)
    if lasting:
        assert await whole(await uploading) == b"ok"
    else:
        with pytest.raises(InDoubt) as caught:
            await uploading
        assert caught.value.reason is DoubtReason.TOTAL_TIMEOUT
    await client.close()


@pytest.mark.parametrize(
    ("head", "limits", "good"),
    [
        (PLAIN, {"read_idle": 0.1, "stream_idle": 60.0}, False),
        (EVENTS, {"read_idle": 0.1, "stream_idle": 60.0}, True),
        (EVENTS, {"read_idle": 60.0, "stream_idle": 0.1}, False),
        (PLAIN, {"read_idle": 60.0, "stream_idle": 0.1}, True),
    ],
)
async def test_each_kind_of_body_has_its_own_silence(stub: Stub, head: bytes, limits: dict[str, float], good: bool) -> None:
    """`stream_idle` for event streams, `read_idle` for all else."""
    stub.script = pieces(head, 0.4, 1)
    client = HttpUpstream(UpstreamSettings(stub.url, total=0.3, first_byte=60, **limits))  # type: ignore[arg-type]  # keywords from the table
    response = await client.send(replace(request(), lasting=True), allow)
    if good:
        assert await whole(response) == b"x"
    else:
        with pytest.raises(InDoubt) as caught:
            await whole(response)
        assert caught.value.reason is DoubtReason.READ_TIMEOUT
    await client.close()


async def test_events_come_through_one_by_one(stub: Stub, upstream: HttpUpstream) -> None:
    """Each before the next is sent."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(EVENTS)
        for number in range(3):
            await peer.answer(b"9\r\ndata: %d\n\n\r\n" % number)
            await stub.seen.wait()
            stub.seen.clear()
        await peer.answer(b"0\r\n\r\n")

    stub.script = script
    response = await upstream.send(replace(request(), lasting=True), allow)
    events = []
    async for piece in response.chunks():
        events.append(piece)
        stub.seen.set()
    assert events == [b"data: 0\n\n", b"data: 1\n\n", b"data: 2\n\n"]


async def test_a_slow_consumer_may_take_longer_than_total(stub: Stub) -> None:
    """A download at the client's pace: the upstream waits, and nothing is counted meanwhile."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (16 * MIB))
        await peer.answer(b"x" * (16 * MIB))

    stub.script = script
    client = HttpUpstream(UpstreamSettings(stub.url, total=0.3, read_idle=0.3))
    response = await client.send(replace(request(), lasting=True), allow)
    got = 0
    async for piece in response.chunks():
        if not got:
            await asyncio.sleep(0.7)
        got += len(piece)
    assert got == 16 * MIB
    await client.close()


async def test_a_large_body_that_goes_out_slowly_is_no_silence(stub: Stub) -> None:
    """`first_byte` begins anew as long as the upstream takes some of it, and once more when it has all."""

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        left = 32 * MIB
        while left:
            left -= len(await peer.reader.read(min(left, 64 * 1024)))
            if left % (4 * MIB) == 0:
                await asyncio.sleep(0.3)
        await asyncio.sleep(0.5)
        await peer.answer(OK)

    stub.script = script
    client = HttpUpstream(UpstreamSettings(stub.url, first_byte=1.0, total=None))
    response = await client.send(request(body=b"x" * (32 * MIB)), allow)
    assert await whole(response) == b"ok"
    assert client.idle == 1
    await client.close()


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_upstream_that_takes_no_more_is_silent(stub: Stub, streamed: bool) -> None:
    """Be the body whole or streamed."""

    async def one() -> AsyncIterator[bytes]:
        yield b"x" * (32 * MIB)

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await stub.seen.wait()

    stub.script = script
    client = HttpUpstream(UpstreamSettings(stub.url, first_byte=0.2, total=None))
    with pytest.raises(InDoubt) as caught:
        await client.send(request(body=one() if streamed else b"x" * (32 * MIB)), allow)
    assert caught.value.reason is DoubtReason.FIRST_BYTE_TIMEOUT
    assert client.open == 0
    stub.seen.set()
    await client.close()


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_early_answer_costs_the_connection_even_if_the_rest_is_taken(stub: Stub, upstream: HttpUpstream, streamed: bool) -> None:
    """RFC 9112 section 9.3: its head came while the request was under way; that all was read in the end does not mend it."""

    async def one() -> AsyncIterator[bytes]:
        yield b"x" * (32 * MIB)

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.answer(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nn")
        await stub.seen.wait()
        left = 32 * MIB
        while left and (data := await peer.reader.read(MIB)):
            left -= len(data)
        await peer.answer(b"o")
        await peer.closed_by_client()

    stub.script = script
    response = await upstream.send(request(body=one() if streamed else b"x" * (32 * MIB), length=32 * MIB), allow)
    assert response.status == 413
    stub.seen.set()
    assert await whole(response) == b"no"
    assert upstream.open == 0


async def test_an_early_interim_answer_costs_nothing(stub: Stub, upstream: HttpUpstream) -> None:
    """100 and its like say nothing about the end."""

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.answer(b"HTTP/1.1 102 Processing\r\n\r\n")
        await peer.reader.readexactly(8 * MIB)
        await peer.answer(OK)
        await peer.closed_by_client()

    stub.script = script
    response = await upstream.send(request(body=b"x" * (8 * MIB)), allow)
    assert await whole(response) == b"ok"
    await until(lambda: upstream.idle == 1)
