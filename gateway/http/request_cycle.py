"""The requests of a client's connection, one after the other: each is handed to the handler, answered, and its body read to the end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

from gateway.http.limits import ClientLimits
from gateway.http.lingering_close import FAREWELL, LINGER, LINGER_BYTES, LingeringClose
from gateway.http.refusals import Refusals
from gateway.http.request import Request, RequestFactory
from gateway.http.request_shapes import RequestShapes
from gateway.http.response import Answering, Underway, WireResponse, reason_of, untaken, wire_response
from gateway.http.upgrade import ClientTunnel
from gateway.ports import Memory

_log = logging.getLogger(__name__)


class Handler(Protocol):
    """Who answers requests."""

    @property
    def make_request(self) -> RequestFactory[Any]:
        """What makes of a head that has come in the request that `handle` takes."""
        ...

    @property
    def handle(self) -> Callable[[Any], Answering]:
        """Answers one. It is called as soon as the head is whole; what it gives to be awaited runs in a task of its own."""
        ...


class RequestCycle(LingeringClose):
    """From a request that has come in to the one behind it. `task` handles the request at hand, if that waits for something that no
    callback brings.
    """

    __slots__ = (
        "_answer",
        "_asked",
        "_close",
        "_farewell",
        "_handled",
        "_refusals",
        "_since",
        "_skip_to",
        "_skipped",
        "_tunnel",
        "_underway",
        "task",
    )

    def __init__(self, handler: Handler, limits: ClientLimits, memory: Memory, refusals: Refusals, shapes: RequestShapes) -> None:
        super().__init__(limits, memory, shapes)
        self._answer = handler.handle
        self._refusals = refusals
        self._asked = False  # at least one request has come in
        self._close = False  # the request at hand is the last
        self._farewell = False
        self._since = self._loop.time()  # idle since, or open since if nothing was asked yet
        self._skipped: Request | None = None  # whose body is read past
        self._skip_to = 0
        self._tunnel: ClientTunnel | None = None  # what the connection has become
        self.task: asyncio.Task[None] | None = None
        self._underway: Underway | None = None
        self._handled: asyncio.Future[None] | None = None

    def _fail(self, error: Exception) -> None:
        """A step failed that a callback has made: a defect of ours."""
        raise NotImplementedError

    # ---- an answer

    def _take_answer(self, request: Request, make: Callable[[Any], Answering], of: Any) -> None:
        """Write the answer if it is at hand. Else a task waits for it, unless a callback brings it."""
        answering: Answering
        written: WireResponse | None = None
        try:
            answering = make(of)
            if isinstance(answering, WireResponse) and (answering.started or answering.send(request)):
                written = answering
        except ConnectionError:
            self._answered(request, None)
            return
        except Exception as error:  # whatever it is, the client is answered
            answering = self._failure(error)
        if written is not None:
            self._answered(request, written)  # what fails in it is no reason for a second answer
        elif isinstance(answering, Underway):
            self._underway = answering
            answering.due = partial(self._came, request)
        else:
            self.task = self._loop.create_task(self._exchange(request, answering))

    def _came(self, request: Request, make: Callable[[Any], Answering], of: Any) -> None:
        """What was under way is here, or will be after a wait."""
        self._underway = None
        try:
            self._take_answer(request, make, of)
        except Exception as error:
            self._fail(error)

    async def _exchange(self, request: Request, answering: WireResponse | Awaitable[WireResponse]) -> None:
        """Have a request answered that waits for something, or whose client takes its time."""
        response: WireResponse | None
        try:
            response = answering if isinstance(answering, WireResponse) else await answering
            if answering is response or not response.started:
                await response.prepare(request)
        except ConnectionError:
            response = None
        except Exception as error:  # whatever it is, the client is answered
            response = await self._answer_failure(request, error)
        except BaseException:
            self.task = None
            self._tell_handled()
            self._shut()
            raise
        self.task = None
        try:
            self._answered(request, response)
        except Exception as error:
            self._fail(error)

    async def _answer_failure(self, request: Request, error: Exception) -> WireResponse | None:
        response = self._failure(error)
        if self._tunnel is not None:  # no place for an answer
            return None
        try:
            await response.prepare(request)
        except Exception as broken:
            if not isinstance(broken, ConnectionError):
                _log.error("A failure could not be told", exc_info=broken)
            return None
        return response

    def _failure(self, error: Exception) -> WireResponse:
        """A failure of our own. The connection is closed after it."""
        _log.error("Error handling request", exc_info=error)
        status, headers, body = self._refusals.failure()
        return wire_response(status, reason_of(status), headers, body, close=True)

    def _answered(self, request: Request, response: WireResponse | None) -> None:
        """The answer was written. None: there is nobody to talk to any more."""
        if self._handled is not None:
            self._tell_handled()
        if response is None or self._ends_with(request, response):
            self._no_more()
        elif request.body.complete:
            self._request_done()
        else:
            self._skip(request)

    # ---- what comes after it

    def _ends_with(self, request: Request, response: WireResponse) -> bool:
        """After an answer: whether it was the last. If so, the connection is being closed, or is about to be told why."""
        if self._tunnel is not None:
            self._tunnel.close()
            self._tunnel = None
            return True
        if self.refusal is not None or self._leaving:
            return True
        if response.keep_alive and not self._close:
            return False
        complete = request.body.complete
        if complete and not self._rest and (self.half_closed or not request.keep_alive):
            self._shut()  # the client sends no more, and all it has sent was read
        else:
            sending = not complete or bool(self._rest)
            self._part(LINGER if sending else FAREWELL, sending=sending)
        return True

    def _skip(self, request: Request) -> None:
        """Read past what is left of a body that nobody wanted, unless that takes too long."""
        body = self._incoming
        assert body is not None, "a body that is not complete is coming in"
        self._skipped = request
        self._skip_to = body.received + LINGER_BYTES
        self._alarm.set(self._loop.time() + LINGER)
        body.discard()
        self._continue()

    def _body_ended(self) -> None:
        if self._skipped is not None:
            self._request_done()

    def _request_done(self) -> None:
        """The request that was handed over is answered and its body is read: on to what came behind it."""
        if self._unfinished.counted:
            self._unfinished.close()
        self._busy = self.upgradable = False
        self._skipped = None
        wire = self._wire
        self._untaken = untaken(wire) if wire is not None and wire.get_write_buffer_size() else None
        self._since = now = self._loop.time()
        self._alarm.set(now + self._idle_timeout)
        if self._rest or self._reading_paused or self.half_closed or self._close:
            self._continue()

    def _continue(self) -> None:
        """Look at what came behind the request at hand, unless that is being done."""
        if self._taking or self._leaving:
            return
        if self._rest or self._reading_paused:
            self.take_in(b"")
        if self.half_closed and self._incoming is not None:
            self._incoming.lose("the client ended in the middle of its request")
        if not self._busy and (self._close or (self.half_closed and not self._rest)):
            self._no_more()

    def _no_more(self) -> None:
        wire, self._tunnel = self._wire, None
        if self._leaving or wire is None:
            return
        if self.refusal is not None and not wire.is_closing():
            self.uncork()
            wire.write(self._refusals.refusal(self.refusal))
            self._part(LINGER)
        elif self._farewell:
            self._part(FAREWELL, sending=False)
        else:
            self._shut()

    # ---- for those who wait for the request at hand

    def handled(self) -> asyncio.Future[None] | None:
        """Done when the request at hand is answered, or the connection is lost. None if there is no request that waits for anything."""
        if self._handled is None and (self.task is not None or self._underway is not None):
            self._handled = self._loop.create_future()
        return self._handled

    def give_up(self) -> None:
        """End the handling of the request at hand, which is told so: not before its first step, without which it would tell nobody."""
        if self.task is not None:
            self._loop.call_soon(self.task.cancel)
        elif self._underway is not None:
            self._loop.call_soon(self._give_up_underway)

    def _give_up_underway(self) -> None:
        """Its answer may have come meanwhile, and a task may wait for the rest of it."""
        if self._underway is None:
            self.give_up()
        else:
            self._underway.cancel()

    def _tell_handled(self) -> None:
        handled, self._handled = self._handled, None
        if handled is not None and not handled.done():
            handled.set_result(None)
