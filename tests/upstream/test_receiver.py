"""A request that goes out at once: what comes of it is told to its receiver, once."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.ports import DoubtReason, InDoubt, NotSent, NotSentReason, UpstreamRequest, UpstreamResponse
from gateway.upstream import Balancer, Exchange, Health, HttpUpstream, UpstreamSettings
from tests.upstream.stub import OK, Fence, Peer, Stub, allow, call, raw, request, until, whole
from tests.upstream.test_callback_errors import reset

HEAD = OK[:-2]


class Told:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.response: UpstreamResponse | None = None
        self.failure: InDoubt | NotSent | None = None
        self.times = 0
        self.not_begun_times = 0

    def answered(self, response: UpstreamResponse) -> None:
        self.response, self.times = response, self.times + 1

    def failed(self, failure: InDoubt | NotSent) -> None:
        self.failure, self.times = failure, self.times + 1

    def not_begun(self) -> None:
        self.not_begun_times += 1


async def begun(upstream: HttpUpstream | Balancer, told: Told, what: UpstreamRequest | None = None) -> Exchange:
    """A request that went out over the connection of a call before."""
    await call(upstream)
    exchange = upstream.begin(what or request(), allow, told)
    assert exchange is not None
    return exchange


async def test_the_receiver_gets_the_response_when_its_head_is_there(stub: Stub, upstream: HttpUpstream) -> None:
    """What came with it can be read without waiting."""
    told = Told()
    await begun(upstream, told)
    assert told.times == 0
    await until(lambda: told.times > 0)
    assert told.response is not None
    assert (told.response.status, await told.response.read(10)) == (200, b"ok")
    assert (told.times, upstream.idle, stub.connections) == (1, 1, 1)


async def test_a_body_that_comes_later_is_read_later(stub: Stub, upstream: HttpUpstream) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(OK)
        await peer.request()
        await peer.answer(HEAD)
        await stub.seen.wait()
        await peer.answer(b"ok")

    stub.script = script
    told = Told()
    exchange = await begun(upstream, told)
    await until(lambda: told.times > 0)
    stub.seen.set()
    assert await whole(exchange) == b"ok"
    assert told.times == 1


async def test_without_a_connection_nothing_is_done(stub: Stub, upstream: HttpUpstream) -> None:
    """Nor for a streamed body, which has to wait for its pieces, nor where a target is to be left alone."""
    fence, told = Fence(), Told()
    assert upstream.begin(request(), fence, told) is None
    await call(upstream)
    assert upstream.begin(request(body=_pieces()), fence, told) is None
    health = Health(1, 60.0)
    balancer = Balancer([("one", upstream, health)])
    health.failed(asyncio.get_running_loop().time())
    assert balancer.begin(request(), fence, told) is None
    assert (fence.asked, told.times, len(stub.requests), upstream.idle) == (0, 0, 1, 1)


async def _pieces() -> AsyncIterator[bytes]:
    yield b""


async def test_the_fence_comes_first(stub: Stub, upstream: HttpUpstream) -> None:
    await call(upstream)
    told = Told()
    with pytest.raises(NotSent) as caught:
        upstream.begin(request(), lambda: False, told)
    assert caught.value.reason is NotSentReason.LEASE_LAPSED
    assert (told.times, len(stub.requests), upstream.idle) == (0, 1, 1)


async def test_a_failure_is_told_once(stub: Stub, upstream: HttpUpstream) -> None:
    """Also to the target's health."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(OK)
        await reset(peer)

    stub.script = script
    told, health = Told(), Health(1, 60.0)
    await begun(Balancer([("one", upstream, health)]), told)
    await until(lambda: told.times > 0)
    assert told.failure is not None
    assert (told.failure.reason, told.times, upstream.open, health.open) == (DoubtReason.DISCONNECTED, 1, 0, True)


async def test_after_close_nothing_is_told(stub: Stub, upstream: HttpUpstream) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(OK)
        await peer.request()
        await peer.closed_by_client()
        stub.seen.set()

    stub.script = script
    told = Told()
    (await begun(upstream, told)).close()
    await stub.seen.wait()
    assert (told.times, upstream.open) == (0, 0)


async def test_silence_is_a_failure(stub: Stub) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(OK)
        await peer.request()
        await peer.closed_by_client()

    stub.script = script
    client = HttpUpstream(UpstreamSettings(stub.url, first_byte=0.05))
    told = Told()
    await begun(client, told)
    await until(lambda: told.times > 0)
    assert told.failure is not None
    assert told.failure.reason is DoubtReason.FIRST_BYTE_TIMEOUT
    await client.close()


@pytest.mark.parametrize("name", ["received", "_begin_response", "_complete"])
async def test_a_mistake_of_the_exchange_is_told(stub: Stub, upstream: HttpUpstream, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The receiver does not wait for ever, whatever went wrong."""
    told = Told()
    await begun(upstream, told)
    monkeypatch.setattr(Exchange, name, _raises)
    await until(lambda: told.times > 0)
    assert told.times == 1
    assert upstream.open == 0


class Raising(Told):
    """Raises when it is told for the first time."""

    raised = False

    def answered(self, response: UpstreamResponse) -> None:
        self._raise()
        super().answered(response)

    def failed(self, failure: InDoubt | NotSent) -> None:
        self._raise()
        super().failed(failure)

    def _raise(self) -> None:
        if not self.raised:
            self.raised = True
            raise ZeroDivisionError


@pytest.mark.parametrize("second", [OK, HEAD, b"", b"not HTTP"], ids=["a response", "a head", "an end", "rubbish"])
async def test_a_receiver_that_raises_is_told_again(stub: Stub, upstream: HttpUpstream, second: bytes) -> None:
    """An attempt that could not be told would wait for ever, and keep its lease."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(OK)
        await peer.request()
        await peer.answer(second)
        if not second:
            peer.close()
        await peer.closed_by_client()

    stub.script = script
    told = Raising()
    await begun(upstream, told)
    await until(lambda: told.times > 0)
    assert (told.raised, told.times) == (True, 1)
    assert (told.response is not None) is (second == OK)
    await until(lambda: upstream.open == 0)


def _raises(*_: object) -> None:
    raise ZeroDivisionError


async def test_targets_take_turns(stub: Stub) -> None:
    """Each request goes to the next target, as long as it has a connection."""
    async with Stub(raw(OK)) as other:
        clients = [HttpUpstream(UpstreamSettings(one.url)) for one in (stub, other)]
        balancer = Balancer([(str(place), client, Health(3, 60.0)) for place, client in enumerate(clients)])
        for client in clients:
            await call(client)
        for _ in range(4):
            told = Told()
            assert balancer.begin(request(), allow, told) is not None
            await until(lambda told=told: told.times > 0)  # type: ignore[misc]  # bound now
        assert (len(stub.requests), len(other.requests)) == (3, 3)
        await balancer.close()


class Greedy(Told):
    """Begins the next exchange as soon as it is told, over the connection that has just become free, and then fails."""

    def __init__(self, upstream: HttpUpstream, following: Told) -> None:
        super().__init__()
        self._upstream = upstream
        self._following = following

    def answered(self, response: UpstreamResponse) -> None:
        super().answered(response)
        if self.times == 1:
            assert self._upstream.begin(request(), allow, self._following) is not None
            raise ValueError("a mistake of ours")


async def test_a_mistake_of_one_receiver_is_told_to_the_next_on_the_connection(stub: Stub, upstream: HttpUpstream) -> None:
    """Else the next would wait for ever: its connection is cut, and with it the alarm."""
    following = Told()
    await begun(upstream, greedy := Greedy(upstream, following))
    await until(lambda: following.times > 0)
    assert (stub.connections, greedy.times, following.times) == (1, 2, 1)
    assert following.failure is not None
    assert following.failure.reason is DoubtReason.DISCONNECTED
    assert upstream.open == 0
