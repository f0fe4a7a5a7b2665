"""Requests that their handler answers at once, without a task: the connection does for them what it does for others."""

import asyncio
import itertools
import socket
import struct
from collections.abc import AsyncIterator

import pytest

from gateway.http.intake import AT_ONCE
from gateway.http.request import Request
from gateway.http.response import Answering, wire_response
from tests.http.connections.house import House, Peer, answers, get, request, until
from tests.http.connections.test_requests import BODIES, SEQUENCE


class AtOnceHouse(House):
    """Answers whatever is whole at once. `answer` is the body of its answers, by default what `echo` tells."""

    answer: bytes | None = None
    broken = False

    def handle(self, request: Request) -> Answering:  # type: ignore[override]  # the other way to answer
        if not request.body.complete:
            return super().handle(request)
        if self.broken:
            raise RuntimeError("a defect")
        self.seen.append(f"{request.method} {request.target.decode()}")
        told = b"%b %b %b" % (request.method.encode(), request.target, request.body.take())
        return wire_response(200, b"OK", (), told if self.answer is None else self.answer)


@pytest.fixture
async def at_once() -> AsyncIterator[AtOnceHouse]:
    async with AtOnceHouse() as house:
        yield house


@pytest.mark.parametrize("size", [1, 3, 7, 64, 10_000])
async def test_pipelined_requests_are_answered_in_order(at_once: AtOnceHouse, size: int) -> None:
    async with at_once.peer() as peer:
        for at in range(0, len(SEQUENCE), size):
            await peer.send(SEQUENCE[at : at + size])
            await asyncio.sleep(0)
        found = await answers(await peer.rest())
    assert [answer.body for answer in found] == BODIES
    assert [answer.field("connection") for answer in found] == [None] * 7 + [b"close"]


async def test_a_client_that_pipelines_lets_others_take_their_turn(at_once: AtOnceHouse) -> None:
    """And gets all its answers, though it ends its sending right behind its requests."""
    number, turns = 10 * AT_ONCE, [0]

    def turn() -> None:
        turns.append(len(at_once.seen))
        if len(at_once.seen) < number:
            asyncio.get_running_loop().call_soon(turn)

    async with at_once.peer() as peer:
        await peer.send(get("/") * number)
        peer.end()
        turn()
        found = await answers(await peer.rest())
    assert len(found) == number
    assert max(later - earlier for earlier, later in itertools.pairwise(turns)) <= 2 * AT_ONCE
    await at_once.closed()


async def test_a_client_that_pipelines_in_pieces_gets_no_more_turns(at_once: AtOnceHouse) -> None:
    """Each piece that comes while others wait is looked at once; it does not earn the connection another turn in every round."""
    pieces, each, turns = 6, 16 * AT_ONCE, [0]

    def turn() -> None:
        turns.append(len(at_once.seen))
        if len(at_once.seen) < pieces * each:
            asyncio.get_running_loop().call_soon(turn)

    async with at_once.peer() as peer:
        turn()
        for _ in range(pieces):
            await peer.send(get("/") * each)
            await asyncio.sleep(0)
        await until(lambda: len(at_once.seen) == pieces * each)
    assert max(later - earlier for earlier, later in itertools.pairwise(turns)) <= 2 * AT_ONCE


async def test_a_drain_answers_what_is_pipelined_no_further_than_the_request_at_hand(at_once: AtOnceHouse) -> None:
    async with at_once.peer() as peer:
        await peer.send(get("/") * (3 * AT_ONCE))
        await until(lambda: at_once.seen)
        at_once.server.pre_shutdown()
        found = await answers(await peer.rest())
    assert AT_ONCE <= len(found) <= 3 * AT_ONCE
    await at_once.closed()


async def test_a_client_that_does_not_read_is_answered_no_further(at_once: AtOnceHouse) -> None:
    at_once.answer = bytes(1_000_000)
    async with at_once.peer(receive_buffer=4096) as peer:
        await peer.send(get("/") * 64)
        await asyncio.sleep(0.1)
        assert len(at_once.seen) < 32
        reading = 0
        while reading < 64_000_000:
            reading += len(await peer.some())
        await until(lambda: len(at_once.seen) == 64)


async def test_a_defect_is_answered_and_ends_the_connection(at_once: AtOnceHouse) -> None:
    at_once.broken = True
    async with at_once.peer() as peer:
        await peer.send(get("/") * 3)
        found = await answers(await peer.rest())
    assert [(answer.status, answer.field("connection")) for answer in found] == [(500, b"close")]
    await at_once.closed()


async def test_a_body_that_nobody_wants_is_read_past(at_once: AtOnceHouse) -> None:
    """An answer by the head alone goes out at once; what comes of the body after it is skipped, and the next request is served."""

    class ByHead(AtOnceHouse):
        def handle(self, request: Request) -> Answering:  # type: ignore[override]  # the other way to answer
            return wire_response(400, b"Bad Request", (), request.target)

    async with ByHead() as house, house.peer() as peer:
        await peer.send(request("POST", "/1", "Content-Length: 100000", body=b"x" * 10))
        assert b"/1" in await peer.until(b"/1")
        await peer.send(b"x" * 99_990 + get("/2", "Connection: close"))
        assert [answer.body for answer in await answers(await peer.rest())] == [b"/2"]


async def test_a_lost_connection_has_no_turn_any_more(at_once: AtOnceHouse) -> None:
    """The client resets it while the last answer of a turn is written: what came behind is dropped, and holds no memory."""
    handle, peers = at_once.handle, list[Peer]()

    def reset_at_the_last(request: Request) -> Answering:
        if len(at_once.seen) == AT_ONCE - 1:
            peers[0].raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peers[0].raw.close()
        return handle(request)

    at_once.handle = reset_at_the_last  # type: ignore[method-assign]  # before a connection is made, which asks for it once
    async with at_once.peer() as peer:
        peers.append(peer)
        await peer.send(get("/") * AT_ONCE + b"GET / HTTP/1.1\r\nX: " + b"x" * 10_000)
        await until(lambda: len(at_once.seen) == AT_ONCE)
        await at_once.closed()
        await asyncio.sleep(0.01)
    assert at_once.memory.held == 0
