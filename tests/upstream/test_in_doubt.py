"""Failures after the first byte may have been written: sent once, and not known whether executed."""

import asyncio

import pytest

from gateway.ports import DoubtReason, InDoubt
from gateway.upstream import Exchange, HttpUpstream, UpstreamSettings
from tests.upstream.stub import OK, Fence, Peer, Script, Stub, allow, call, raw, request, until, whole

HEAD = b"HTTP/1.1 200 OK\r\n"
LONG = HEAD + b"Content-Length: 10\r\n\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
OPEN_END = HEAD + b"\r\n"


async def received(stub: Stub, response: Exchange) -> bytes:
    stub.seen.set()
    return await whole(response)


async def doubt(stub: Stub, script: Script, settings: UpstreamSettings | None = None, method: bytes = b"POST") -> InDoubt:
    """The doubt that an exchange ends in, from `send` or from the body. The request was written once, the slot is free again."""
    stub.script = script
    client = HttpUpstream(settings or UpstreamSettings(stub.url))
    fence = Fence()
    try:
        with pytest.raises(InDoubt) as caught:
            await received(stub, await client.send(request(method), fence))
        assert client.open == 0
    finally:
        await client.close()
    assert (fence.asked, len(stub.requests), stub.connections) == (1, 1, 1)
    return caught.value


def reset(after: bytes) -> Script:
    """Answer with a part, and reset once the client has it."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(after)
        if after:
            await peer.stub.seen.wait()  # a reset discards what the client has not read
        peer.reset()

    return script


DISCONNECTED, TRUNCATED, INVALID = DoubtReason.DISCONNECTED, DoubtReason.TRUNCATED_RESPONSE, DoubtReason.INVALID_RESPONSE

CASES: dict[str, tuple[Script, DoubtReason, int | None]] = {
    "closed without an answer": (raw(b"", close=True), DISCONNECTED, None),
    "closed within the status line": (raw(b"HTTP/1.1 2", close=True), DISCONNECTED, None),
    "closed within the head": (raw(HEAD + b"Content-Le", close=True), DISCONNECTED, None),
    "closed after an interim response": (raw(b"HTTP/1.1 100 Continue\r\n\r\n", close=True), DISCONNECTED, None),
    "closed within the body": (raw(LONG + b"abc", close=True), TRUNCATED, 200),
    "closed before the body": (raw(LONG, close=True), TRUNCATED, 200),
    "closed within a chunk": (raw(CHUNKED + b"5\r\nab", close=True), TRUNCATED, 200),
    "closed between chunks": (raw(CHUNKED + b"2\r\nab\r\n", close=True), TRUNCATED, 200),
    "closed before the last empty line": (raw(CHUNKED + b"2\r\nab\r\n0\r\n", close=True), TRUNCATED, 200),
    "reset without an answer": (reset(b""), DISCONNECTED, None),
    "reset within the body": (reset(LONG + b"abc"), DISCONNECTED, 200),
    "reset within chunks": (reset(CHUNKED + b"2\r\nab\r\n"), DISCONNECTED, 200),
    "reset instead of the end of the stream": (reset(OPEN_END + b"abc"), DISCONNECTED, 200),
    "garbage": (raw(b"garbage\r\n\r\n"), INVALID, None),
    "garbage after an interim response": (raw(b"HTTP/1.1 100 Continue\r\n\r\ngarbage\r\n\r\n"), INVALID, None),
    "switching protocols": (raw(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"), INVALID, None),
    "length and chunked": (raw(HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"), INVALID, None),
    "two lengths": (raw(HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"), INVALID, None),
    "another coding": (raw(HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), INVALID, 200),
    "chunked in HTTP/1.0": (raw(b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), INVALID, 200),
    "bad trailer": (raw(CHUNKED + b"2\r\nab\r\n0\r\nA : b\r\n\r\n"), INVALID, 200),
    "HTTP/1.0 reset instead of the end of the stream": (reset(b"HTTP/1.0 200 OK\r\n\r\nabc"), DISCONNECTED, 200),
    "bad chunk": (raw(CHUNKED + b"2\r\nabX"), INVALID, 200),
    "endless head": (raw(HEAD + b"X: " + b"a" * 1_000_000), INVALID, None),
}


@pytest.mark.parametrize(("script", "reason", "status"), CASES.values(), ids=CASES)
async def test_no_whole_answer_is_doubt(stub: Stub, script: Script, reason: DoubtReason, status: int | None) -> None:
    """Each way in which a response can stay away, with the status as evidence if its head arrived."""
    caught = await doubt(stub, script)
    assert caught.reason is reason
    assert caught.status == status


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE", b"POST", b"PATCH"])
async def test_no_method_is_ever_sent_again(stub: Stub, method: bytes) -> None:
    """A server that closes silently has got the request once, on a fresh connection..."""
    assert (await doubt(stub, raw(b"", close=True), method=method)).reason is DISCONNECTED


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE", b"POST", b"PATCH"])
async def test_no_method_is_ever_sent_again_on_a_pooled_connection(stub: Stub, upstream: HttpUpstream, method: bytes) -> None:
    """... and on a reused one."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(OK)
        await peer.request()

    stub.script = script
    await call(upstream, b"POST")
    with pytest.raises(InDoubt) as caught:
        await upstream.send(request(method), allow)
    assert caught.value.reason is DISCONNECTED
    assert (len(stub.requests), stub.connections) == (2, 1)


async def keep_silent(peer: Peer) -> None:
    await peer.request()
    await peer.closed_by_client()


def stall(after: bytes) -> Script:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(after)
        await peer.closed_by_client()

    return script


async def drip(peer: Peer) -> None:
    """A body that never ends and never pauses for long."""
    await peer.request()
    await peer.answer(CHUNKED)
    while True:
        await peer.answer(b"1\r\nx\r\n")
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("script", "limits", "reason", "status"),
    [
        (keep_silent, {"first_byte": 0.1}, DoubtReason.FIRST_BYTE_TIMEOUT, None),
        (stall(b"HTTP/1.1 100 Continue\r\n\r\n"), {"first_byte": 0.1}, DoubtReason.FIRST_BYTE_TIMEOUT, None),
        (stall(HEAD), {"first_byte": 0.1}, DoubtReason.FIRST_BYTE_TIMEOUT, None),
        (stall(LONG + b"abc"), {"read_idle": 0.1}, DoubtReason.READ_TIMEOUT, 200),
        (stall(CHUNKED), {"read_idle": 0.1}, DoubtReason.READ_TIMEOUT, 200),
        (stall(OPEN_END + b"abc"), {"read_idle": 0.1, "total": None}, DoubtReason.READ_TIMEOUT, 200),
        (keep_silent, {"total": 0.1}, DoubtReason.TOTAL_TIMEOUT, None),
        (stall(LONG), {"total": 0.1}, DoubtReason.TOTAL_TIMEOUT, 200),
        (drip, {"total": 0.2, "read_idle": 5.0}, DoubtReason.TOTAL_TIMEOUT, 200),
    ],
)
async def test_each_phase_has_its_limit(
    stub: Stub, script: Script, limits: dict[str, float | None], reason: DoubtReason, status: int | None
) -> None:
    """The phase that ran out is named; the connection is cut."""
    caught = await doubt(stub, script, UpstreamSettings(stub.url, **limits))  # type: ignore[arg-type]  # keywords from the table
    assert (caught.reason, caught.status) == (reason, status)


async def test_a_steady_body_may_take_longer_than_one_silence(stub: Stub) -> None:
    """`read_idle` and `first_byte` start anew with each piece, and `total` can be off."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(CHUNKED)
        for _ in range(10):
            await peer.answer(b"1\r\nx\r\n")
            await asyncio.sleep(0.1)
        await peer.answer(b"0\r\n\r\n")

    stub.script = script
    client = HttpUpstream(UpstreamSettings(stub.url, first_byte=0.6, read_idle=0.6, total=None))
    assert await call(client) == (200, b"x" * 10)
    await client.close()


async def test_a_slow_consumer_is_no_silent_upstream(stub: Stub) -> None:
    """`read_idle` counts only while somebody waits for the upstream."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(LONG)
        await stub.seen.wait()
        await peer.answer(b"01234")
        await consumed.wait()
        await peer.answer(b"56789")

    consumed = asyncio.Event()
    stub.script = script
    client = HttpUpstream(UpstreamSettings(stub.url, read_idle=0.2, first_byte=0.2))
    response = await client.send(request(), allow)
    pieces = response.chunks()
    asyncio.get_running_loop().call_soon(stub.seen.set)
    assert await anext(pieces) == b"01234"
    await asyncio.sleep(0.4)
    consumed.set()
    assert await anext(pieces) == b"56789"
    assert [piece async for piece in pieces] == []
    await client.close()


async def test_what_arrived_before_a_failure_can_be_read(stub: Stub, upstream: HttpUpstream) -> None:
    """A relayed body breaks off where the upstream's did, and then says why, each time it is asked."""
    stub.script = stall(LONG + b"abc")
    response = await upstream.send(request(), allow)
    pieces = response.chunks()
    assert await anext(pieces) == b"abc"
    response.close()
    with pytest.raises(InDoubt):
        await anext(pieces)
    with pytest.raises(InDoubt):
        await response.read(100)


@pytest.mark.parametrize("script", [keep_silent, stall(LONG + b"abc")], ids=["head", "body"])
async def test_a_cancelled_call_cuts_the_connection(stub: Stub, upstream: HttpUpstream, script: Script) -> None:
    """The upstream sees its client go away, and the slot is free at once."""
    gone: list[bytes] = []

    async def watched(peer: Peer) -> None:
        await script(peer)
        gone.append(b"closed")

    stub.script = watched
    calling = asyncio.ensure_future(call(upstream))
    await until(lambda: len(stub.requests) == 1)
    await asyncio.sleep(0.05)  # the second case is then waiting for the body; either way the cancellation must be clean
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert upstream.open == 0
    await until(lambda: gone == [b"closed"])
