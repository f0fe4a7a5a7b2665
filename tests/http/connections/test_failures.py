"""Failures of our own in what the event loop calls: nobody waits for a connection that nobody serves any more."""

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest

from gateway.http.body import ClientGone
from gateway.http.cancel_on_disconnect import WhilePresent
from gateway.http.connection import ClientConnection
from gateway.http.limits import ClientLimits
from gateway.http.request import BodyLost, Request
from gateway.http.response import Patience, WireResponse, beginning, wire_response
from tests.http.connections.house import House, Peer, connection_of, get, request, until


class Injected(Exception):
    """Of no kind that anybody expects."""


def inject(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Have a method of connections fail, once."""
    whole: Callable[..., Any] = getattr(ClientConnection, method)
    failed = False

    def fail(*args: Any, **kwargs: Any) -> Any:
        nonlocal failed
        if failed:
            return whole(*args, **kwargs)
        failed = True
        raise Injected(method)

    monkeypatch.setattr(ClientConnection, method, fail)


class Waiting:
    """A handler that waits for nothing but its client's loss, as a guarded request does, and whose work goes on."""

    def __init__(self, house: House) -> None:
        house.answering = self.answering
        self.begun = asyncio.Event()
        self.told = asyncio.Event()

    async def answering(self, asked: Request) -> WireResponse:
        connection_of(asked).on_lost(self.told.set)
        self.begun.set()
        await self.told.wait()
        assert asked.connection.transport is None
        return wire_response(200, b"OK", (), b"done")


async def end_of(peer: Peer) -> None:
    """The connection is cut, in whatever way."""
    with suppress(ConnectionError):
        while await peer.some():
            pass


@pytest.fixture
def failures(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What was logged of failures, by the method that failed."""
    caplog.set_level(logging.ERROR)
    return lambda: [str(record.exc_info[1]) for record in caplog.records if record.exc_info and isinstance(record.exc_info[1], Injected)]


async def sends_more(peer: Peer) -> None:
    await peer.send(b"more")


async def ends(peer: Peer) -> None:
    peer.end()


async def leaves(peer: Peer) -> None:
    peer.raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a close is a reset
    peer.raw.close()


@pytest.mark.parametrize(
    ("method", "event"),
    [
        ("take_in", sends_more),
        ("_client_ended", ends),
        ("_count_out", leaves),
        ("_drop_parsers", leaves),
        ("_lose_body", leaves),
        ("_release", leaves),
        ("_end_tunnel", leaves),
    ],
)
async def test_a_request_under_way_ends_as_when_its_client_left(
    house: House, monkeypatch: pytest.MonkeyPatch, failures: Callable[[], list[str]], method: str, event: Callable[[Peer], Any]
) -> None:
    """data_received, eof_received, and each step of connection_lost."""
    waiting = Waiting(house)
    async with house.peer() as peer:
        await peer.send(get("/1"))
        await waiting.begun.wait()
        inject(monkeypatch, method)
        await event(peer)
        if event is not leaves:
            await end_of(peer)
        await asyncio.wait_for(waiting.told.wait(), 5)
    if method == "_count_out":  # it is what failed
        [connection] = house.server.connections
        assert connection._wire is None
        connection._count_out()
    await house.closed()
    assert house.server.size == 0
    assert failures() == [method]


async def test_one_who_is_told_and_fails_keeps_nobody_from_being_told(house: House, failures: Callable[[], list[str]]) -> None:
    """Of several who wait for the loss of one client."""
    told = asyncio.Event()

    def fail() -> None:
        raise Injected("told")

    async def answering(asked: Request) -> WireResponse:
        connection_of(asked).on_lost(told.set)
        connection_of(asked).on_lost(fail)
        await told.wait()
        return wire_response(200, b"OK", ())

    house.answering = answering
    async with house.peer() as peer:
        await peer.send(get("/1"))
        await until(lambda: house.seen)
        await leaves(peer)
    await asyncio.wait_for(told.wait(), 5)
    await house.closed()
    assert failures() == ["told"]


async def test_an_unguarded_request_is_cancelled(house: House, monkeypatch: pytest.MonkeyPatch, failures: Callable[[], list[str]]) -> None:
    """Nobody is there for whom it would be worth doing."""
    gone: list[bool] = []

    async def answering(asked: Request) -> WireResponse:
        try:
            with WhilePresent(connection_of(asked)):
                await asyncio.Event().wait()
        except ClientGone:
            gone.append(True)
        raise ConnectionResetError

    house.answering = answering
    async with house.peer() as peer:
        await peer.send(get("/1"))
        await until(lambda: house.seen)
        inject(monkeypatch, "take_in")
        await peer.send(b"more")
        await end_of(peer)
    await house.closed()
    assert gone == [True]
    assert failures() == ["take_in"]


@pytest.mark.parametrize("method", ["_take_body", "_body_ended"])
async def test_the_reader_of_a_body_is_told(
    house: House, monkeypatch: pytest.MonkeyPatch, failures: Callable[[], list[str]], method: str
) -> None:
    """A body that fails us is lost, or was whole already."""
    lost: list[bool] = []

    async def answering(asked: Request) -> WireResponse:
        try:
            while not asked.body.at_end:
                await asked.body.read()
        except BodyLost:
            lost.append(True)
            raise
        return wire_response(200, b"OK", ())

    house.answering = answering
    async with house.peer() as peer:
        await peer.send(request("POST", "/1", "Content-Length: 4", body=b"ab"))
        await until(lambda: house.seen)
        inject(monkeypatch, method)
        await peer.send(b"cd")
        await end_of(peer)
    await house.closed()
    assert lost == ([True] if method == "_take_body" else [])
    assert failures() == [method]


@pytest.mark.parametrize("method", ["_answered", "_request_done", "_continue"])
async def test_a_failure_after_an_answer_cuts_the_connection(
    house: House, monkeypatch: pytest.MonkeyPatch, failures: Callable[[], list[str]], method: str
) -> None:
    """The answer has left; the next request is not taken."""
    inject(monkeypatch, method)
    async with house.peer() as peer:
        await peer.send(get("/1") + get("/2"))
        await end_of(peer)
    await house.closed()
    assert failures() == [method]


async def test_a_failing_alarm_cuts_the_connection(monkeypatch: pytest.MonkeyPatch, failures: Callable[[], list[str]]) -> None:
    """An idle connection whose time is up is not kept for ever."""
    inject(monkeypatch, "_time_is_up")
    async with House(ClientLimits(header_timeout=0.1, idle_timeout=30)) as house:
        async with house.peer() as peer:
            await end_of(peer)
        await house.closed()
    assert failures() == ["_time_is_up"]


async def test_a_failing_beginning_cuts_the_connection(
    house: House, monkeypatch: pytest.MonkeyPatch, failures: Callable[[], list[str]]
) -> None:
    """connection_made."""
    inject(monkeypatch, "_open")
    async with house.peer() as peer:
        await end_of(peer)
    await house.closed()
    assert house.server.size == 0
    assert failures() == ["_open"]


async def test_who_waits_for_a_slow_client_is_released(
    house: House, monkeypatch: pytest.MonkeyPatch, failures: Callable[[], list[str]]
) -> None:
    """resume_writing fails: the answer is cut, and its source is closed."""
    closed = asyncio.Event()

    class Source:
        async def pieces(self) -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"x" * 65536
            finally:
                closed.set()

    async def answering(_: Request) -> WireResponse:
        return WireResponse(200, beginning(200, b"OK", ()), Source(), patience=Patience(send_timeout=60))

    house.answering = answering
    async with house.peer(receive_buffer=4096) as peer:
        await peer.send(get("/1"))
        await peer.until(b"x")
        [connection] = house.server.connections
        await until(lambda: connection._drained is not None)
        inject(monkeypatch, "_release")
        with suppress(ConnectionError):
            while await peer.some():
                pass
        await asyncio.wait_for(closed.wait(), 5)
    await house.closed()
    assert failures() == ["_release"]


async def test_a_request_that_cannot_be_made_is_none(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler's factory fails: there is nothing to answer with."""

    def make(*_: object) -> Request:
        raise Injected("make")

    monkeypatch.setattr(house, "make_request", make)
    async with house.peer() as peer:
        await peer.send(get("/1"))
        await end_of(peer)
    await house.closed()
    assert not house.seen


async def test_a_handler_that_answers_at_once_needs_no_task(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipelined requests are answered in order, whether their handlers wait or not; and a failure at once is a 500."""

    async def wait(asked: Request) -> WireResponse:
        await asyncio.sleep(0)
        return wire_response(200, b"OK", (), b"waited " + asked.target)

    def answer(asked: Request) -> Any:
        if asked.target == b"/fails":
            raise ZeroDivisionError
        return wait(asked) if asked.target == b"/waits" else wire_response(200, b"OK", (), b"at once " + asked.target)

    monkeypatch.setattr(house, "handle", answer)
    async with house.peer() as peer:
        await peer.send(get("/1") + get("/waits") + get("/2") + get("/3") + get("/fails") + get("/4"))
        data = await peer.rest()
    assert [data.find(text) for text in (b"at once /1", b"waited /waits", b"at once /2", b"at once /3", b" 500 ")] == sorted(
        data.find(text) for text in (b"at once /1", b"waited /waits", b"at once /2", b"at once /3", b" 500 ")
    )
    assert b"/4" not in data
    assert data.count(b"HTTP/1.1 ") == 5
