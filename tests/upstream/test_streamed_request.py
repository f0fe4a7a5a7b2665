"""Request bodies that are sent as they come."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.ports import DoubtReason, InDoubt, NotSent
from gateway.upstream import HttpUpstream, UpstreamSettings
from tests.upstream.stub import OK, Peer, Stub, allow, call, raw, request, until, whole

MIB = 1024 * 1024
EARLY = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno"


class Source:
    """Yields pieces; knows how many were taken and whether it was closed."""

    def __init__(self, *pieces: bytes, error: Exception | None = None, stall: bool = False) -> None:
        self.pieces = pieces
        self.error = error
        self.stall = stall
        self.taken = 0
        self.closed = False

    async def body(self) -> AsyncIterator[bytes]:
        try:
            for piece in self.pieces:
                self.taken += 1
                yield piece
            if self.stall:
                await asyncio.Event().wait()
            if self.error is not None:
                raise self.error
        finally:
            self.closed = True


@pytest.mark.parametrize(
    ("length", "wire"),
    [
        (None, b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n"),
        (4, b"Content-Length: 4\r\n\r\nabcd"),
    ],
)
async def test_pieces_go_out_as_they_come(stub: Stub, upstream: HttpUpstream, length: int | None, wire: bytes) -> None:
    """Each as a chunk, or bare under an announced length. Empty pieces send nothing: they would end a chunked body."""
    source = Source(b"", b"abc", b"", b"d", b"")
    response = await upstream.send(request(body=source.body(), length=length), allow)
    assert (response.status, await whole(response)) == (200, b"ok")
    assert stub.requests == [b"POST / HTTP/1.1\r\nHost: stub\r\n" + wire]
    assert source.closed
    await call(upstream)
    assert stub.connections == 1


@pytest.mark.parametrize(("length", "wire"), [(None, b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), (0, b"Content-Length: 0\r\n\r\n")])
async def test_an_empty_stream_is_an_empty_body(stub: Stub, upstream: HttpUpstream, length: int | None, wire: bytes) -> None:
    """Framed as announced."""
    await upstream.send(request(body=Source().body(), length=length), allow)
    assert stub.requests == [b"POST / HTTP/1.1\r\nHost: stub\r\n" + wire]


async def test_a_lapsed_lease_does_not_touch_the_body(stub: Stub, upstream: HttpUpstream) -> None:
    """The fence is asked before the head, and nothing of the body is taken."""
    source = Source(b"abc")
    with pytest.raises(NotSent):
        await upstream.send(request(body=source.body()), lambda: False)
    assert (source.taken, upstream.idle) == (0, 1)


async def test_an_upstream_that_does_not_read_slows_the_source(stub: Stub, upstream: HttpUpstream) -> None:
    """64 MiB are not taken from the source before the upstream has read most of them; all arrive."""
    received = 0

    async def script(peer: Peer) -> None:
        nonlocal received
        await peer.reader.readuntil(b"\r\n\r\n")
        await stub.seen.wait()
        while received < 64 * MIB:
            received += len(await peer.reader.read(MIB))
        await peer.answer(OK)

    stub.script = script
    source = Source(*[b"x" * (256 * 1024)] * 256)
    calling = asyncio.ensure_future(upstream.send(request(body=source.body(), length=64 * MIB), allow))
    before = -1
    while source.taken != before or not before:  # until the source has been left alone for a while
        before = source.taken
        await asyncio.sleep(0.1)
    assert source.taken < 128  # the kernel's socket buffers hold a few MiB, ours one piece
    stub.seen.set()
    response = await calling
    assert await whole(response) == b"ok"
    assert (source.taken, received) == (256, 64 * MIB)


@pytest.mark.parametrize("stall", [True, False], ids=["source stalls", "upstream stops reading"])
async def test_an_early_answer_stops_the_sending(stub: Stub, upstream: HttpUpstream, stall: bool) -> None:
    """The final response comes before the body is through: it is returned, the source closed, the connection not used again."""

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.answer(EARLY)
        await stub.seen.wait()
        await peer.closed_by_client()

    stub.script = script
    source = Source(*[b"x" * MIB] * (1 if stall else 1000), stall=stall)
    response = await upstream.send(request(body=source.body()), allow)
    assert (response.status, await whole(response)) == (413, b"no")
    assert source.closed
    assert source.taken < 1000
    assert upstream.open == 0
    stub.seen.set()


async def test_the_body_of_an_early_answer_can_be_read_on(stub: Stub, upstream: HttpUpstream) -> None:
    """Only its head has come when the sending stops."""

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.answer(EARLY[:-2])
        await stub.seen.wait()
        await peer.answer(b"no")
        await peer.closed_by_client()

    stub.script = script
    source = Source(b"x", stall=True)
    response = await upstream.send(request(body=source.body()), allow)
    assert source.closed
    stub.seen.set()
    assert await whole(response) == b"no"
    assert upstream.open == 0


async def test_an_interim_response_does_not_stop_the_sending(stub: Stub, upstream: HttpUpstream) -> None:
    """100 and its like are no answer."""

    async def script(peer: Peer) -> None:
        await peer.answer(b"HTTP/1.1 100 Continue\r\n\r\n")
        await peer.request()
        await peer.answer(OK)

    stub.script = script
    response = await upstream.send(request(body=Source(b"abc", b"def").body()), allow)
    assert response.status == 200
    assert stub.requests[0].endswith(b"\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n")


async def test_an_error_of_the_source_is_raised_as_it_is(stub: Stub, upstream: HttpUpstream) -> None:
    """The connection is cut, so that the upstream cannot take what it got for a whole request."""
    ends: list[bytes] = []

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        ends.append(await peer.closed_by_client())

    stub.script = script
    error = LookupError("client went away")
    with pytest.raises(LookupError) as caught:
        await upstream.send(request(body=Source(b"abc", error=error).body()), allow)
    assert caught.value is error
    assert upstream.open == 0
    await until(lambda: len(ends) == 1)
    assert not ends[0].endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("length", [2, 4])
async def test_a_body_of_another_length_than_announced_is_doubt(stub: Stub, upstream: HttpUpstream, length: int) -> None:
    """Never a byte more than announced, never a connection left waiting for the rest: it is cut."""
    ends: list[bytes] = []

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        ends.append(await peer.closed_by_client())

    stub.script = script
    source = Source(b"a", b"bc")
    with pytest.raises(InDoubt) as caught:
        await upstream.send(request(body=source.body(), length=length), allow)
    assert caught.value.reason is DoubtReason.DISCONNECTED
    assert upstream.open == 0
    await until(lambda: len(ends) == 1)
    assert len(ends[0]) <= length
    assert source.closed


async def test_an_upstream_that_goes_away_stops_the_sending(stub: Stub, upstream: HttpUpstream) -> None:
    """While the source has nothing to give, the end of the connection is noticed."""

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")

    stub.script = script
    source = Source(b"abc", stall=True)
    with pytest.raises(InDoubt) as caught:
        await upstream.send(request(body=source.body()), allow)
    assert caught.value.reason is DoubtReason.DISCONNECTED
    assert source.closed


async def test_an_upstream_that_stops_reading_is_a_timeout(stub: Stub) -> None:
    """`first_byte` bounds each wait for the upstream to take more."""

    async def script(peer: Peer) -> None:
        await stub.seen.wait()

    stub.script = script
    client = HttpUpstream(UpstreamSettings(stub.url, first_byte=0.2, total=None))
    source = Source(*[b"x" * MIB] * 1000)
    with pytest.raises(InDoubt) as caught:
        await client.send(request(body=source.body()), allow)
    stub.seen.set()
    assert caught.value.reason is DoubtReason.FIRST_BYTE_TIMEOUT
    assert source.closed
    await client.close()


async def test_a_slow_source_is_no_silent_upstream(stub: Stub) -> None:
    """While the body is awaited from the caller, only `total` counts."""

    async def slowly() -> AsyncIterator[bytes]:
        yield b"a"
        await asyncio.sleep(0.5)
        yield b"b"

    client = HttpUpstream(UpstreamSettings(stub.url, first_byte=0.3))
    response = await client.send(request(body=slowly()), allow)
    assert response.status == 200
    await client.close()


async def test_total_bounds_a_stalled_source(stub: Stub) -> None:
    """A caller that never ends its body does not hold the slot for ever."""
    client = HttpUpstream(UpstreamSettings(stub.url, total=0.2))
    source = Source(b"abc", stall=True)
    with pytest.raises(InDoubt) as caught:
        await client.send(request(body=source.body()), allow)
    assert caught.value.reason is DoubtReason.TOTAL_TIMEOUT
    assert (client.open, source.closed) == (0, True)
    await client.close()


async def test_a_cancelled_call_closes_the_source_and_cuts(stub: Stub, upstream: HttpUpstream) -> None:
    """Nothing is left running behind it."""
    source = Source(b"abc", stall=True)
    calling = asyncio.ensure_future(upstream.send(request(body=source.body()), allow))
    await until(lambda: source.taken == 1)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert (upstream.open, source.closed) == (0, True)


async def test_an_early_answer_to_a_whole_body_is_returned_too(stub: Stub, upstream: HttpUpstream) -> None:
    """The body is still in our buffers when the answer comes: the connection is not used again."""

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.answer(EARLY)
        await stub.seen.wait()

    stub.script = script
    response = await upstream.send(request(body=b"x" * (32 * MIB)), allow)
    assert (response.status, await whole(response)) == (413, b"no")
    assert upstream.open == 0
    stub.seen.set()


async def test_a_large_whole_body_arrives(stub: Stub, upstream: HttpUpstream) -> None:
    """Also one that the kernel does not take at once; the connection is reused."""
    body = bytes(range(256)) * 32768
    await upstream.send(request(body=body), allow)
    assert stub.requests[0].endswith(body)
    assert upstream.idle == 1


async def test_a_stream_ended_by_its_own_cancellation_is_doubt(stub: Stub, upstream: HttpUpstream) -> None:
    """A source that raises CancelledError by itself does not leave the call waiting for an answer that cannot come."""
    stub.script = raw(OK)

    async def given_up() -> AsyncIterator[bytes]:
        yield b"abc"
        raise asyncio.CancelledError

    with pytest.raises(InDoubt):
        await upstream.send(request(body=given_up()), allow)
    assert upstream.open == 0
