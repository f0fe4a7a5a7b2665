"""Requests of one turn of the event loop leave together, at its end, and each is judged in the step that writes it."""

import asyncio
import os
import socket

import pytest

from gateway.ports import DoubtReason, InDoubt, NotSent, NotSentReason, UpstreamRequest
from gateway.runtime.cork import ROOM, SMALL
from gateway.upstream import Exchange, HttpUpstream
from gateway.upstream.connection import Connection
from tests.upstream.stub import Fence, Peer, Stub, allow, answer_all, call, request, until
from tests.upstream.test_receiver import Told


async def warm(upstream: HttpUpstream, connections: int) -> None:
    """So many idle connections."""
    await asyncio.gather(*(call(upstream) for _ in range(connections)))
    assert upstream.idle == connections


def hold(upstream: HttpUpstream, told: Told, fence: Fence, what: UpstreamRequest | None = None) -> Exchange:
    """A request that is held back, since another was written in this turn."""
    first = upstream.begin(request(), allow, Told())
    assert first is not None
    assert not first.held
    exchange = upstream.begin(what or request(), fence, told)
    assert exchange is not None
    assert exchange.held
    assert fence.asked == 0
    return exchange


async def test_the_first_of_a_turn_is_written_at_once_and_the_others_at_its_end(stub: Stub, upstream: HttpUpstream) -> None:
    await warm(upstream, 3)
    all_told, fences = [Told() for _ in range(3)], [Fence() for _ in range(3)]
    begun = [upstream.begin(request(), fence, told) for fence, told in zip(fences, all_told, strict=True)]
    assert [exchange is not None and exchange.held for exchange in begun] == [False, True, True]
    assert [fence.asked for fence in fences] == [1, 0, 0]
    await until(lambda: all(told.times > 0 for told in all_told))
    assert [fence.asked for fence in fences] == [1, 1, 1]
    assert all(told.response is not None and told.times == 1 for told in all_told)
    assert (stub.connections, len(stub.requests), upstream.idle) == (3, 6, 3)


async def test_the_next_turn_begins_anew(upstream: HttpUpstream) -> None:
    await warm(upstream, 2)
    for _ in range(3):
        told, other = Told(), Told()
        fence = Fence()
        hold(upstream, told, fence)
        await until(lambda told=told: told.times > 0)  # type: ignore[misc]  # bound now
        await until(lambda: upstream.idle == 2)
        exchange = upstream.begin(request(), allow, other)
        assert exchange is not None
        assert not exchange.held
        await until(lambda other=other: other.times > 0)  # type: ignore[misc]  # bound now
        await until(lambda: upstream.idle == 2)


async def test_who_has_no_receiver_is_not_held_back(upstream: HttpUpstream) -> None:
    await warm(upstream, 3)
    hold(upstream, Told(), Fence())
    exchange = upstream.begin(request(), allow)
    assert exchange is not None
    assert not exchange.held
    await exchange.head()


async def test_a_lease_that_lapses_meanwhile_sends_nothing(stub: Stub, upstream: HttpUpstream) -> None:
    """The receiver is told, and the connection is another's."""
    await warm(upstream, 2)
    told, fence = Told(), Fence(allows=False)
    hold(upstream, told, fence)
    await until(lambda: told.times > 0)
    assert isinstance(told.failure, NotSent)
    assert told.failure.reason is NotSentReason.LEASE_LAPSED
    await until(lambda: upstream.idle == 2)
    assert (fence.asked, told.times, len(stub.requests), stub.connections) == (1, 1, 3, 2)
    assert await call(upstream) == (200, b"ok")


async def test_a_connection_that_closes_meanwhile_is_written_nothing(stub: Stub, upstream: HttpUpstream) -> None:
    """Its end is in the kernel, and this process was not told of it yet."""
    sockets: list[socket.socket] = []

    async def script(peer: Peer) -> None:
        with socket.socket(fileno=os.dup(peer.writer.get_extra_info("socket").fileno())) as own:
            sockets.append(own)
            await answer_all(peer)

    stub.script = script
    await warm(upstream, 2)
    told, fence = Told(), Fence()
    hold(upstream, told, fence)
    for each in sockets:
        each.shutdown(socket.SHUT_WR)
    await until(lambda: told.not_begun_times > 0)
    assert (told.times, told.not_begun_times, fence.asked) == (0, 1, 0)
    assert len(stub.requests) <= 3
    assert await call(upstream) == (200, b"ok"), "the long way is open"


async def test_what_is_closed_before_its_turn_ends_is_never_written(stub: Stub, upstream: HttpUpstream) -> None:
    """Its connection, untouched, is another's."""
    await warm(upstream, 2)
    told, fence = Told(), Fence()
    exchange = hold(upstream, told, fence)
    exchange.close()
    exchange.close()
    assert not exchange.held
    await until(lambda: upstream.idle == 2)
    assert (told.times, told.not_begun_times, fence.asked, len(stub.requests), stub.connections) == (0, 0, 0, 3, 2)


@pytest.mark.parametrize("where", ["the fence", "the look at the connection", "the write"])
async def test_a_defect_at_the_end_of_a_turn_is_a_doubt_of_that_request_alone(
    stub: Stub, upstream: HttpUpstream, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    await warm(upstream, 3)

    def fails(*_: object) -> bool:
        raise ZeroDivisionError

    told, other = Told(), Told()
    first = upstream.begin(request(), allow, Told())
    exchange = upstream.begin(request(), fails if where == "the fence" else allow, told)
    assert upstream.begin(request(), allow, other) is not None
    assert first is not None
    assert exchange is not None
    connection = exchange._connection
    assert connection is not None
    if where != "the fence":
        name = "usable" if where == "the look at the connection" else "begin"
        method = getattr(Connection, name)
        monkeypatch.setattr(Connection, name, lambda of, *args: fails() if of is connection else method(of, *args))
    await until(lambda: told.times > 0 and other.times > 0)
    assert isinstance(told.failure, InDoubt)
    assert (told.failure.reason, told.times) == (DoubtReason.GATEWAY_ERROR, 1)
    assert other.response is not None
    await until(lambda: upstream.open == upstream.idle == 2)


async def test_one_that_cannot_be_told_that_nothing_was_begun_is_in_doubt(
    stub: Stub, upstream: HttpUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect of ours: it must not wait for ever."""

    class Raising(Told):
        def not_begun(self) -> None:
            raise ZeroDivisionError

    await warm(upstream, 2)
    told = Raising()
    exchange = hold(upstream, told, Fence())
    assert exchange._connection is not None
    exchange._connection.cut()
    await until(lambda: told.times > 0)
    assert isinstance(told.failure, InDoubt)
    assert (told.failure.reason, told.times) == (DoubtReason.GATEWAY_ERROR, 1)


@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError])
async def test_a_defect_that_cannot_even_be_told_is_that_of_one_request(upstream: HttpUpstream, error: type[BaseException]) -> None:
    """The others of its turn are written all the same: else they would wait for ever, and their keys with them."""

    class Raising(Told):
        def failed(self, failure: InDoubt | NotSent) -> None:
            raise error

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    await warm(upstream, 5)

    def fails() -> bool:
        raise error

    all_told = [Told(), Raising(), Told(), Raising(), Told()]
    for told in all_told:
        assert upstream.begin(request(), fails if isinstance(told, Raising) else allow, told) is not None
    await until(lambda: all(told.response is not None for told in all_told[::2]))
    await until(lambda: upstream.open == upstream.idle == 3)


async def test_a_large_request_is_not_held_back(stub: Stub, upstream: HttpUpstream) -> None:
    """Copies of what is held would else be there at once, beside the bodies that memory is reserved for."""
    await warm(upstream, 3)
    hold(upstream, Told(), Fence())
    fence, told = Fence(), Told()
    exchange = upstream.begin(request(body=b"x" * (SMALL + 1)), fence, told)
    assert exchange is not None
    assert (exchange.held, fence.asked) == (False, 1)
    await until(lambda: told.times > 0)
    assert told.response is not None


async def test_a_large_request_meets_no_connection_that_has_closed(stub: Stub, upstream: HttpUpstream) -> None:
    """Whatever is written at once in a turn in which others are held back."""
    await warm(upstream, 3)
    exchange = hold(upstream, Told(), Fence())
    for connection in [*upstream._pool._idle]:
        connection.cut()
    assert exchange.held
    assert upstream.begin(request(body=b"x" * (SMALL + 1)), allow, Told()) is None
    await until(lambda: upstream.open == upstream.idle == 2)


async def test_no_more_is_held_back_than_there_is_room_for(stub: Stub, upstream: HttpUpstream) -> None:
    count = ROOM // SMALL + 8
    await warm(upstream, count)
    begun = [upstream.begin(request(body=b"x" * SMALL), allow, Told()) for _ in range(count)]
    held = [exchange for exchange in begun if exchange is not None and exchange.held]
    assert 0 < len(held) * SMALL <= ROOM
    assert len(held) + 4 < count
    await until(lambda: len(stub.requests) == 2 * count)


async def test_a_connection_that_nothing_was_written_to_rests_no_longer_for_it(stub: Stub, upstream: HttpUpstream) -> None:
    """Its upstream's patience began with the last answer."""
    await warm(upstream, 2)
    before = {connection: connection.rests_until for connection in upstream._pool._idle}
    exchange = hold(upstream, Told(), Fence())
    connection = exchange._connection
    assert connection is not None
    exchange.close()
    assert connection.rests_until == before[connection]
    assert connection in upstream._pool._idle
    with pytest.raises(NotSent):
        upstream.begin(request(body=b"x" * (SMALL + 1)), lambda: False, Told())
    assert connection.rests_until == before[connection]


async def test_a_connection_whose_time_is_up_as_its_turn_ends_is_written_nothing(upstream: HttpUpstream) -> None:
    """As after a freeze of the process: the bell has not rung yet."""
    await warm(upstream, 2)
    told, fence = Told(), Fence()
    exchange = hold(upstream, told, fence)
    assert exchange._connection is not None
    exchange._connection.rests_until = asyncio.get_running_loop().time()
    await until(lambda: told.not_begun_times > 0)
    assert (told.times, fence.asked) == (0, 0)
