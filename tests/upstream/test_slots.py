"""The connection limit: first come, first served, and no slot is ever lost."""

import asyncio
import random

import pytest

from gateway.ports import InDoubt, NotSent
from gateway.upstream import HttpUpstream, UpstreamSettings
from gateway.upstream.pool import Pool
from gateway.upstream.settings import parse_endpoint
from tests.upstream.stub import OK, Peer, Stub, allow, answer_all, call, request, until


class Gate:
    """Lets requests be answered one by one, in the order of arrival at the stub."""

    def __init__(self, stub: Stub, response: bytes = OK) -> None:
        self.permits = asyncio.Semaphore(0)
        self.response = response
        stub.script = self.script

    async def script(self, peer: Peer) -> None:
        while True:
            await peer.request()
            await self.permits.acquire()
            await peer.answer(self.response)


def numbered(client: HttpUpstream, number: int) -> "asyncio.Future[object]":
    return asyncio.ensure_future(client.send(request(target=b"/%d" % number), allow))


async def turn() -> None:
    await asyncio.sleep(0)


def order(stub: Stub) -> list[bytes]:
    return [head.split(b" ")[1] for head in stub.requests]


@pytest.mark.parametrize("response", [OK, OK.replace(b"200 OK\r\n", b"200 OK\r\nConnection: close\r\n")], ids=["kept", "closed"])
async def test_waiting_calls_are_served_in_order(stub: Stub, response: bytes) -> None:
    """By a connection that comes free or, if it may not be reused, by its slot; never more than the limit at once."""
    gate = Gate(stub, response)
    client = HttpUpstream(UpstreamSettings(stub.url, max_connections=1, slot_wait=30))
    calls = []
    for number in range(5):
        calls.append(numbered(client, number))
        await turn()
    for done in range(1, 6):
        await until(lambda done=done: len(stub.requests) == done)  # type: ignore[misc]  # mypy knows no defaults in a lambda
        assert client.open == 1
        gate.permits.release()
    await asyncio.gather(*calls)
    assert order(stub) == [b"/0", b"/1", b"/2", b"/3", b"/4"]
    await client.close()


async def test_a_cancelled_wait_gives_its_turn_to_the_next(stub: Stub) -> None:
    """Cancelled while it waits, the next in line moves up."""
    gate = Gate(stub)
    client = HttpUpstream(UpstreamSettings(stub.url, max_connections=1, slot_wait=30))
    calls = [numbered(client, number) for number in range(3)]
    await until(lambda: len(stub.requests) == 1)
    calls[1].cancel()
    gate.permits.release()
    gate.permits.release()
    await asyncio.gather(calls[0], calls[2])
    assert order(stub) == [b"/0", b"/2"]
    await client.close()


@pytest.mark.parametrize("reusable", [True, False], ids=["connection", "slot"])
async def test_a_call_cancelled_after_the_hand_over_passes_it_on(stub: Stub, reusable: bool) -> None:
    """The race of a cancellation with the hand-over: the slot was already given, the call could not run yet."""
    pool = Pool(UpstreamSettings(stub.url, max_connections=1, slot_wait=30), parse_endpoint(stub.url), None)
    connection = await pool.acquire(None)
    second, third = asyncio.ensure_future(pool.acquire(None)), asyncio.ensure_future(pool.acquire(None))
    await turn()
    connection.finish(reusable=reusable)
    second.cancel()
    taken = await third
    assert (taken is connection) is reusable
    assert second.cancelled()
    assert pool.open == 1
    taken.finish(reusable=True)
    assert (pool.open, pool.idle) == (1, 1)
    await pool.close()
    assert pool.open == 0


async def test_a_failed_attempt_to_connect_frees_its_slot_for_the_next() -> None:
    """The next in line tries for itself, and learns the same."""
    client = HttpUpstream(UpstreamSettings("unix:/nonexistent/x.sock", max_connections=1, slot_wait=30))
    results = await asyncio.gather(*(call(client) for _ in range(4)), return_exceptions=True)
    assert [str(result) for result in results] == ["connection_refused"] * 4
    assert client.open == 0


async def test_a_handed_over_connection_that_has_died_is_replaced(stub: Stub) -> None:
    """Nothing was written to it, so the waiting call connects anew."""
    gate = Gate(stub)
    client = HttpUpstream(UpstreamSettings(stub.url, max_connections=1, slot_wait=30))

    async def one_answer(peer: Peer) -> None:
        await peer.request()
        await gate.permits.acquire()
        peer.writer.write(OK)
        peer.close()

    stub.script = one_answer
    calls = [numbered(client, number) for number in range(3)]
    for _ in calls:
        gate.permits.release()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(not isinstance(result, NotSent) for result in results)
    assert len(stub.requests) == 3
    await client.close()
    assert client.open == 0


async def unruly(peer: Peer) -> None:
    """Answers, stalls within a response, closes or resets, as it likes."""
    dice = random.Random(peer.stub.connections)
    while True:
        await peer.request()
        if dice.random() < 0.3:
            await asyncio.sleep(dice.random() / 50)
        match dice.randrange(8):
            case 0:
                return peer.reset()
            case 1:
                return peer.close()
            case 2:
                await peer.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234")
            case 3:
                await peer.answer(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
            case 4:
                await peer.answer(OK + b"unsolicited")
            case _:
                await peer.answer(OK)


@pytest.mark.parametrize("seed", range(4))
async def test_no_slot_is_lost_under_random_cancellations(stub: Stub, seed: int) -> None:
    """Hundreds of calls over few slots, cancelled, timed out and failing at any point: in the end all slots are free and usable."""
    dice = random.Random(seed)
    stub.script = unruly
    client = HttpUpstream(
        UpstreamSettings(stub.url, max_connections=3, slot_wait=0.05, read_idle=0.03, first_byte=0.03, total=0.2, keepalive=0.02)
    )
    sent = 0

    def fence() -> bool:
        nonlocal sent
        sent += 1
        return True

    async def one() -> None:
        await asyncio.sleep(dice.random() / 2)
        response = await client.send(request(), fence)
        try:
            await response.read(100)
        finally:
            response.close()

    calls = [asyncio.ensure_future(one()) for _ in range(400)]
    loop = asyncio.get_running_loop()
    for victim in dice.sample(calls, 150):
        loop.call_later(dice.random() / 2, victim.cancel)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(result) for result in results} <= {type(None), InDoubt, NotSent, asyncio.CancelledError}
    assert client.open <= 3
    assert len(stub.requests) <= sent
    await until(lambda: client.open == 0)  # idle ones go by `keepalive`
    stub.script = answer_all
    patient = HttpUpstream(UpstreamSettings(stub.url, max_connections=3, slot_wait=30))
    assert await asyncio.gather(*(call(patient) for _ in range(20))) == [(200, b"ok")] * 20
    assert patient.open <= 3
    await patient.close()
    await client.close()
