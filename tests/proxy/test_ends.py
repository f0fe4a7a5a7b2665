"""How requests end: the client gets one answer for each, and the observer hears of each once, whatever ends it."""

import asyncio
import gc
import socket
import struct
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import cast

import pytest

from gateway.core.model import Headers
from gateway.core.policy import Route
from gateway.engine.engine import Engine
from gateway.http.connection import ClientConnection
from gateway.http.problem import ProblemWriter
from gateway.http.request import Request, RequestFactory
from gateway.http.response import Answering
from gateway.ports import DoubtReason, FinishedRequest, InDoubt, NotSent, NotSentReason, Receiver, Tunnel, UpstreamRequest, UpstreamResponse
from gateway.proxy.call import Call
from gateway.proxy.handler import Proxy
from gateway.proxy.rendering import Renderer
from gateway.proxy.routing import Edge, make_routing
from gateway.runtime.system import SystemClock, SystemRandomness
from tests.engine.stage import NotingObserver
from tests.http.connections.house import House, Peer, answers, connection_of, get, until


class Counting(NotingObserver):
    """Knows how many requests of a route are under way; a defect of its own is injected where it is `broken`."""

    broken = False

    def __init__(self) -> None:
        super().__init__()
        self.in_flight: Counter[str] = Counter()

    def request_started(self, route: str) -> None:
        self.in_flight[route] += 1

    def request_ended(self, exchange: object) -> None:
        self.in_flight[cast("FinishedRequest", exchange).route] -= 1
        if self.broken:
            raise RuntimeError("a defect")


class Silent:
    """An upstream that answers when it is told to, if ever. With `at_once` it takes requests without a wait, and calls who asked."""

    held = False

    def __init__(self, *, at_once: bool = False) -> None:
        self._at_once = at_once
        self.says: Exception | None = None
        self.receiver: Receiver | None = None
        self.closed = 0
        self.sent: list[UpstreamRequest] = []

    async def send(self, request: UpstreamRequest, fence: Callable[[], bool]) -> UpstreamResponse:
        self.sent.append(request)
        if isinstance(self.says, NotSent):
            raise self.says
        await asyncio.Event().wait()
        raise AssertionError("nothing happened")

    def begin(self, request: UpstreamRequest, fence: Callable[[], bool], receiver: Receiver) -> "Silent | None":
        self.receiver = receiver
        if isinstance(self.says, InDoubt):
            receiver.failed(self.says)  # before the one that asks could know that it was taken
        elif self.says is not None:
            raise self.says
        return self if self._at_once else None

    def close(self) -> None:
        self.closed += 1


class Begun:
    """An answer whose head is there, and nothing else, ever: of a stream, or of another protocol. `left`: its connection was let go."""

    reason = b""

    def __init__(self, status: int, headers: Headers = ()) -> None:
        self.content_length: int | None = None
        self.status = status
        self.headers = headers
        self.left = False

    async def chunks(self) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async def read(self, limit: int) -> bytes | None:
        return b"" if self.status == 101 else None

    def at_hand(self, limit: int) -> bytes | None:
        return None

    def tunnel(self) -> Tunnel:
        return cast("Tunnel", self)

    def close(self) -> None:
        self.left = True


class Front(House):
    """The proxy behind a listener, with one unguarded route. `at_once` is called when the proxy has taken a request."""

    make_request: RequestFactory[Request] = Call

    def __init__(self, *, at_once: bool = False) -> None:
        super().__init__()
        self.observer = Counting()
        self.upstream = Silent(at_once=at_once)
        clock, randomness = SystemClock(), SystemRandomness()
        self.at_once: Callable[[Request], object] = lambda _: None
        self.proxy = Proxy(
            make_routing((Route("slow", "/slow", "payments"),), {"payments": self.upstream}, b"", (), Edge()),
            cast("Engine", None),
            self.observer,
            clock,
            randomness,
            problems=ProblemWriter(),
            memory=self.memory,
        )

    def handle(self, request: Request) -> Answering:  # type: ignore[override]  # as the proxy does
        answering = self.proxy.handle(cast("Call", request))
        self.seen.append(request.target.decode())
        self.at_once(request)
        return answering


WAYS = pytest.mark.parametrize("at_once", [True, False], ids=["written-at-once", "waited-for"])


async def test_a_defect_after_an_answer_is_no_second_answer() -> None:
    """A 500 behind it would be taken for the answer to the next request of the connection."""
    async with Front() as front, front.peer() as peer:
        front.observer.broken = True
        await peer.send(get("/nowhere") + get("/nowhere", "Connection: close"))
        found = await answers(await peer.rest())
    assert [answer.status for answer in found] == [404, 404]
    assert [task for task, _ in front.observer.failures] == ["observe", "observe"]


@WAYS
async def test_a_request_that_is_given_up_before_its_first_step_is_heard_of(at_once: bool) -> None:
    """Else it would be under way for ever, and a coroutine that nobody awaits."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", RuntimeWarning)
        async with Front(at_once=at_once) as front, front.peer() as peer:
            loop = asyncio.get_running_loop()
            front.at_once = lambda request: loop.call_soon(connection_of(request).give_up)  # comes before the task's first step
            await peer.send(get("/slow"))
            await until(lambda: front.seen)
            assert await peer.rest() == b""
            await front.closed()
        gc.collect()
    assert front.observer.in_flight == {"slow": 0}
    assert [str(warning.message) for warning in warned if "never awaited" in str(warning.message)] == []


@WAYS
async def test_a_shutdown_ends_what_has_begun_meanwhile(at_once: bool) -> None:
    async with Front(at_once=at_once) as front, front.peer() as one, front.peer() as other:
        await one.send(get("/slow"))
        await until(lambda: len(front.seen) == 1)
        ending = asyncio.ensure_future(front.server.shutdown(0.3))
        await asyncio.sleep(0)
        await other.send(get("/slow"))
        await until(lambda: len(front.seen) == 2)
        await ending
        assert front.observer.in_flight == {"slow": 0}
        assert [await peer.rest() for peer in (one, other)] == [b"", b""]


async def begun(front: Front, peer: Peer, *lines: str) -> Receiver:
    """A request was written at once. Gives who waits for its answer."""
    await peer.send(get("/slow", *lines))
    await until(lambda: front.seen)
    assert front.upstream.receiver is not None
    return front.upstream.receiver


async def test_a_stream_that_begins_as_its_request_is_given_up_is_cut() -> None:
    """It has a task now, which has to hear of it, or a shutdown would wait for the end of the stream."""
    async with Front(at_once=True) as front, front.peer() as peer:
        receiver, answer = await begun(front, peer), Begun(200)
        for connection in front.server.connections:
            connection.give_up()
        receiver.answered(answer)
        await until(lambda: not front.observer.in_flight.total())
        await front.closed()
    assert answer.left


async def test_a_switch_of_protocols_that_its_client_does_not_see_is_let_go() -> None:
    """The upstream's connection would else be held for as long as a tunnel may be silent."""
    switch = Begun(101, ((b"Upgrade", b"websocket"), (b"Connection", b"upgrade")))
    async with Front(at_once=True) as front, front.peer() as peer:
        receiver = await begun(front, peer, "Upgrade: websocket", "Connection: upgrade")
        receiver.answered(switch)
        for connection in front.server.connections:
            connection.force_close()  # before the answer's task has made its first step
        await until(lambda: not front.observer.in_flight.total())
    assert switch.left


@pytest.mark.parametrize("status", [200, 101])
async def test_an_answer_that_cannot_be_rendered_is_heard_of_and_let_go(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of ours: the client gets a 500, the upstream its connection back."""
    monkeypatch.setattr(Renderer, "render", lambda *_: 1 / 0)
    answer = Begun(status)
    async with Front(at_once=True) as front, front.peer() as peer:
        (await begun(front, peer)).answered(answer)
        assert (await peer.answer()).status == 500
    assert front.observer.in_flight == {"slow": 0}
    assert answer.left


@pytest.mark.parametrize("status", [200, None], ids=["in-pieces", "whole"])
async def test_an_answer_that_cannot_be_written_is_heard_of_and_ends_the_connection(
    status: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect of ours that meets the 500, too: nobody waits for ever."""
    async with Front(at_once=True) as front, front.peer() as peer:
        receiver = await begun(front, peer)
        monkeypatch.setattr(ClientConnection, "write_whole", lambda *_: 1 / 0)
        monkeypatch.setattr(ClientConnection, "write", lambda *_: 1 / 0)
        if status is None:
            receiver.failed(InDoubt(DoubtReason.DISCONNECTED))
        else:
            receiver.answered(Begun(status))
        assert await peer.rest() == b""
        await front.closed()
    assert front.observer.in_flight == {"slow": 0}


async def test_what_fails_behind_an_answer_is_no_second_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next request is looked at in the same step."""
    async with Front(at_once=True) as front, front.peer() as peer:
        receiver = await begun(front, peer)
        monkeypatch.setattr(ClientConnection, "_request_done", lambda *_: 1 / 0)
        receiver.failed(InDoubt(DoubtReason.DISCONNECTED))
        [answer] = await answers(await peer.rest())
        await front.closed()
    assert answer.status == 502
    assert front.observer.in_flight == {"slow": 0}


async def test_what_was_held_back_and_not_begun_goes_the_long_way() -> None:
    async with Front(at_once=True) as front, front.peer() as peer:
        receiver = await begun(front, peer, "Connection: close")
        front.upstream.says = NotSent(NotSentReason.SHUTTING_DOWN)
        receiver.not_begun()
        answer = await peer.answer()
    assert (answer.status, len(front.upstream.sent), front.upstream.closed) == (503, 1, 0)
    assert front.observer.in_flight == {"slow": 0}


async def test_what_was_held_back_and_will_not_be_sent_is_answered() -> None:
    async with Front(at_once=True) as front, front.peer() as peer:
        (await begun(front, peer, "Connection: close")).failed(NotSent(NotSentReason.LEASE_LAPSED))
        assert (await peer.answer()).status == 503
    assert (front.upstream.sent, front.observer.in_flight) == ([], {"slow": 0})


async def test_what_is_not_begun_once_its_client_has_left_is_not_sent() -> None:
    async with Front(at_once=True) as front:
        async with front.peer() as peer:
            receiver = await begun(front, peer)
            peer.raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # its end is no half-close, but a reset
        await until(lambda: front.upstream.closed)
        receiver.not_begun()
        await front.closed()
    assert (front.upstream.sent, front.observer.in_flight) == ([], {"slow": 0})


async def test_a_client_that_leaves_cuts_what_was_written_at_once() -> None:
    async with Front(at_once=True) as front:
        async with front.peer() as peer:
            await peer.send(get("/slow"))
            await until(lambda: front.seen)
            peer.raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # its end is no half-close, but a reset
        await until(lambda: front.upstream.closed)
        await front.closed()
        assert front.upstream.receiver is not None
        front.upstream.receiver.failed(InDoubt(DoubtReason.DISCONNECTED))  # a word that comes late tells nothing
    assert front.observer.in_flight == {"slow": 0}


@pytest.mark.parametrize(("says", "reason"), [(InDoubt, []), (RuntimeError, ["attempt"])], ids=["early", "raises"])
async def test_what_fails_before_it_is_known_to_be_written_is_answered_once(says: type[Exception], reason: list[str]) -> None:
    """The word may come before `begin` has returned. A defect there may have come after the write: nothing is sent again."""
    async with Front(at_once=True) as front, front.peer() as peer:
        front.upstream.says = says(DoubtReason.DISCONNECTED)
        await peer.send(get("/slow") + get("/nowhere", "Connection: close"))
        found = await answers(await peer.rest())
    assert [answer.status for answer in found] == [502, 404]
    assert not front.observer.in_flight.total()
    assert [task for task, _ in front.observer.failures] == reason


async def test_an_answer_under_way_goes_before_a_shutdown() -> None:
    """A drain waits for what no task waits for, too."""
    async with Front(at_once=True) as front, front.peer() as peer:
        await peer.send(get("/slow"))
        await until(lambda: front.seen)
        ending = asyncio.ensure_future(front.server.shutdown(30))
        await asyncio.sleep(0)
        assert front.upstream.receiver is not None
        front.upstream.receiver.failed(InDoubt(DoubtReason.DISCONNECTED))
        await ending
        [answer] = await answers(await peer.rest())
    assert answer.status == 502
    assert front.observer.in_flight == {"slow": 0}
