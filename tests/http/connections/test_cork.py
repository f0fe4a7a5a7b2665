"""Answers that are held back until the end of a turn of the event loop leave whole, in order, and before anything else is done."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gateway.http.connection import ClientConnection
from gateway.http.request import Request
from gateway.http.response import CONTINUE, wire_response
from gateway.runtime.cork import SMALL, Cork
from tests.http.connections.house import House, Peer, answers, connection_of, get, request, until

LARGE = SMALL + 1


@pytest.fixture
def at_once(house: House, monkeypatch: pytest.MonkeyPatch) -> House:
    """Answers in the callback that read the request, with the target; a target of digits is the length of the body."""

    def handle(asked: Request) -> Any:
        name = asked.target[1:]
        return wire_response(200, b"OK", (), b"x" * int(name) if name.isdigit() else name)

    monkeypatch.setattr(house, "handle", handle)
    return house


@pytest.fixture
def others_write(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Something is written in each turn before an answer, so that this one is held back."""
    held: list[ClientConnection] = []
    hold, write_whole = Cork.hold, ClientConnection.write_whole

    def note(cork: Cork, connection: ClientConnection, size: int) -> None:
        held.append(connection)
        hold(cork, connection, size)

    def write(connection: ClientConnection, data: bytes) -> None:
        connection._cork.begin()
        write_whole(connection, data)

    monkeypatch.setattr(Cork, "hold", note)
    monkeypatch.setattr(ClientConnection, "write_whole", write)
    yield
    assert held


async def test_the_first_of_a_turn_leaves_at_once_and_the_others_at_its_end(at_once: House, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []
    write_whole = ClientConnection.write_whole

    def write(connection: ClientConnection, data: bytes) -> None:
        write_whole(connection, data)
        told.append(bool(connection._corked))

    monkeypatch.setattr(ClientConnection, "write_whole", write)
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(at_once.peer()) for _ in range(5)]
        for number, peer in enumerate(peers):  # all are there when the loop looks next
            peer.raw.send(get(f"/of-{number}"))
        for number, peer in enumerate(peers):
            assert (await peer.until(b"of-")).endswith(b"of-%d" % number)
    assert told[0] is False
    assert any(told)


@pytest.mark.usefixtures("others_write")
async def test_what_follows_a_held_answer_comes_after_it(at_once: House) -> None:
    """On one connection: small and large answers, and the refusal of what is no request."""
    async with at_once.peer() as peer:
        await peer.send(get("/a") + get("/b") + get(f"/{LARGE}") + get("/c") + b"no request\r\n\r\n")
        found = await answers(await peer.rest())
    assert [answer.status for answer in found] == [200, 200, 200, 200, 400]
    assert [answer.body for answer in found[:4]] == [b"a", b"b", b"x" * LARGE, b"c"]


@pytest.mark.usefixtures("others_write")
async def test_a_client_that_ends_its_sending_gets_its_held_answer(at_once: House) -> None:
    async with at_once.peer() as peer:
        peer.raw.send(get("/a") + get("/b"))
        peer.end()
        assert [answer.body for answer in await answers(await peer.rest())] == [b"a", b"b"]


@pytest.mark.usefixtures("others_write")
async def test_a_connection_is_closed_after_its_held_answer(at_once: House) -> None:
    async with at_once.peer() as peer:
        peer.raw.send(get("/a") + get("/b", "Connection: close"))
        assert [answer.body for answer in await answers(await peer.rest())] == [b"a", b"b"]


@pytest.mark.usefixtures("others_write")
async def test_a_drain_lets_held_answers_leave(at_once: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end comes in the same turn."""
    answered = ClientConnection._answered

    def close(connection: ClientConnection, *about: Any) -> None:
        answered(connection, *about)
        at_once.server.pre_shutdown()

    monkeypatch.setattr(ClientConnection, "_answered", close)
    async with at_once.peer() as peer:
        await peer.send(get("/a"))
        assert (await peer.answer()).body == b"a"


@pytest.mark.usefixtures("others_write")
async def test_what_a_handler_writes_itself_comes_after_a_held_answer(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(asked: Request) -> Any:
        transport = connection_of(asked).transport if asked.fields.first(b"expect") is not None else None
        if transport is not None:
            transport.write(CONTINUE)
        return wire_response(200, b"OK", (), asked.target)

    monkeypatch.setattr(house, "handle", handle)
    async with house.peer() as peer:
        await peer.send(get("/a") + request("POST", "/b", "Expect: 100-continue", "Content-Length: 1", body=b"x"))
        data = await peer.until(b"/b")
    assert data.count(b"HTTP/1.1 ") == 3
    assert data.index(b"/a") < data.index(b" 100 ") < data.index(b"/b")


@pytest.mark.usefixtures("others_write")
async def test_a_held_answer_that_cannot_be_written_cuts_its_connection_and_no_other(
    at_once: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    uncork = ClientConnection.uncork
    failed: list[ClientConnection] = []

    def fail(connection: ClientConnection) -> None:
        if connection._corked and (not failed or connection in failed):
            failed.append(connection)
            raise ZeroDivisionError
        uncork(connection)

    monkeypatch.setattr(ClientConnection, "uncork", fail)
    async with at_once.peer() as broken, at_once.peer() as sound:
        broken.raw.send(get("/a"))
        assert await _end_of(broken) == b""
        sound.raw.send(get("/b"))
        assert (await sound.until(b"\r\n\r\nb")).startswith(b"HTTP/1.1 200")
    await at_once.closed()
    assert any(record.exc_info and isinstance(record.exc_info[1], ZeroDivisionError) for record in caplog.records)


async def _end_of(peer: Peer) -> bytes:
    try:
        return await peer.rest()
    except ConnectionError:
        return b""


@pytest.mark.usefixtures("others_write")
async def test_one_that_takes_nothing_is_not_answered_without_end(at_once: House) -> None:
    """Small answers to pipelined requests wait for their client like large ones."""
    async with at_once.peer(receive_buffer=4096) as peer:
        sent = get(f"/{SMALL // 2}") * 2000
        sending = 0
        while sending < len(sent):
            try:
                sending += peer.raw.send(sent[sending : sending + 65536])
            except BlockingIOError:
                break
            await asyncio.sleep(0.001)
        [connection] = at_once.server.connections
        await until(lambda: connection.writing_paused)
        assert connection.transport is not None
        assert connection.transport.get_write_buffer_size() < 2**20
