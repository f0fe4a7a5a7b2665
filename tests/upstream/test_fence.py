"""A lease that is lost while its request is being sent: nothing more goes out, not even what the kernel holds."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from gateway.ports import DoubtReason, InDoubt
from gateway.upstream import HttpUpstream
from tests.upstream.stub import Peer, Stub, call, request, until

MIB = 1024 * 1024
PIECE = 64 * 1024


class Lease:
    """A fence that says no from the `lost`-th question on, or once it is told to."""

    def __init__(self, lost: int | None = None) -> None:
        self.asked = 0
        self.lost = lost

    def __call__(self) -> bool:
        self.asked += 1
        return self.lost is None or self.asked < self.lost


async def pieces(count: int, size: int = PIECE) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x" * size


class Reader:
    """Reads a request's head at once, its body once `stub.seen` is set, as far as it comes."""

    def __init__(self, stub: Stub) -> None:
        self.stub = stub
        self.got = 0
        self.reset = False

    async def __call__(self, peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await self.stub.seen.wait()
        try:
            while piece := await peer.reader.read(MIB):
                self.got += len(piece)
        except ConnectionResetError:
            self.reset = True


async def doubted(upstream: HttpUpstream, fence: Callable[[], bool], body: bytes | AsyncIterator[bytes], length: int | None) -> InDoubt:
    with pytest.raises(InDoubt) as caught:
        await upstream.send(request(body=body, length=length), fence)
    return caught.value


@pytest.mark.parametrize("length", [16 * PIECE, None], ids=["announced", "chunked"])
async def test_the_fence_is_asked_for_every_piece(stub: Stub, upstream: HttpUpstream, length: int | None) -> None:
    """Two pieces go out under the lease, the third does not; the upstream sees that the request was broken off."""
    reader = stub.script = Reader(stub)
    stub.seen.set()
    lease = Lease(lost=4)  # asked for the head, the first and the second piece
    failure = await doubted(upstream, lease, pieces(16), length)
    assert (failure.reason, lease.asked) == (DoubtReason.LEASE_LOST, 4)
    await until(lambda: reader.reset or reader.got == 0)
    assert reader.got <= 2 * (PIECE + 12)


async def test_the_last_chunk_is_a_piece_like_any_other(stub: Stub, upstream: HttpUpstream) -> None:
    """Without it the upstream knows that the body is not whole."""
    stub.script = Reader(stub)
    failure = await doubted(upstream, Lease(lost=3), pieces(1, 10), None)
    assert failure.reason is DoubtReason.LEASE_LOST


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "in one piece"])
async def test_what_waits_to_be_sent_is_not_sent_any_more(stub: Stub, upstream: HttpUpstream, streamed: bool) -> None:
    """A slow upstream has the kernel's buffers filled; the lease is lost; when it reads on, the body does not become whole."""
    reader = stub.script = Reader(stub)
    lease = Lease()
    body = pieces(64 * 16) if streamed else b"x" * 64 * MIB
    sending = asyncio.ensure_future(doubted(upstream, lease, body, 64 * MIB if streamed else None))
    await until(lambda: lease.asked > 3)  # the head, some pieces, and what waits
    lease.lost = 0
    assert (await sending).reason is DoubtReason.LEASE_LOST
    stub.seen.set()
    await until(lambda: reader.reset)
    assert reader.got < 64 * MIB


async def test_a_lost_lease_is_no_failure_of_the_upstream(stub: Stub, upstream: HttpUpstream) -> None:
    """The next request is sent, on a connection of its own."""
    stub.script = Reader(stub)
    failed: list[bool] = []
    with pytest.raises(InDoubt):
        await upstream.send(request(body=pieces(2), length=2 * PIECE), Lease(lost=2), failed=lambda: failed.append(True))
    assert failed == []
    stub.script = _answers
    assert (await call(upstream))[0] == 200


async def _answers(peer: Peer) -> None:
    await peer.request()
    await peer.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


async def test_a_lease_that_holds_costs_a_small_request_one_question(stub: Stub, upstream: HttpUpstream) -> None:
    """Nothing waits to be sent: nothing more is asked."""
    stub.script = _answers
    lease = Lease()
    response = await upstream.send(request(), lease)
    response.close()
    assert lease.asked == 1
