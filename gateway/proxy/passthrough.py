"""Requests on unguarded routes, or without a key where none is required. They stream both ways at the pace of the slower side, with bounded
memory, and touch no store.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Protocol

from gateway.core.decision import Label
from gateway.core.headers import cross, to_client, upgrade_of
from gateway.core.model import Headers
from gateway.engine.answers import Answer, Passed, Relayed, Reply, Switched
from gateway.engine.failures import failed, tell_unreachable, unreachable
from gateway.engine.streams import UpstreamStream
from gateway.http.body import ClientGone, ClientSilent, stream_body
from gateway.http.cancel_on_disconnect import WhilePresent
from gateway.http.response import Answering, Underway, WireResponse, send_informational
from gateway.plan import RoutePlan
from gateway.ports import Clock, DoubtReason, Exchanging, InDoubt, NotSent, Observer, UpstreamRequest, UpstreamResponse
from gateway.proxy.call import Call

SMALL_BODY = 64 * 1024
"""Bodies announced to be at most this long are read whole first: one write instead of several."""


class Desk(Protocol):
    """Who answers clients."""

    def finish(self, call: Call, reply: Reply) -> WireResponse | Awaitable[WireResponse]:
        """Render, write, observe: at once, or when it is awaited."""
        ...

    def wait(self, call: Call, coming: Awaitable[Reply]) -> Awaitable[WireResponse]:
        """The same for a reply that takes its time."""
        ...

    def gone(self, call: Call) -> WireResponse:
        """Nobody is there to be answered."""
        ...


class Passage(Underway):
    """One request on its way through its route's upstream, and the answer on its way back. `fields` are those that the upstream shall see,
    unless they are there as `lines` (`UpstreamRequest`).

    The short way is `begin`, where nothing has to be waited for: the upstream's connection calls this, its `Receiver`, with the answer.
    The long way, from the start or from the head of the answer on, is `run`. On both, a client that leaves cuts the upstream's connection.
    """

    __slots__ = (
        "_call",
        "_call_off",
        "_clock",
        "_desk",
        "_exchange",
        "_fields",
        "_lines",
        "_observer",
        "_over",
        "_plan",
        "_request",
        "_started",
        "_status",
    )

    _started: float

    def __init__(
        self, call: Call, plan: RoutePlan, fields: Headers, desk: Desk, clock: Clock, observer: Observer, *, lines: bytes | None = None
    ) -> None:
        self.due = None
        self._call = call
        self._plan = plan
        self._fields = fields
        self._lines = lines
        self._desk = desk
        self._clock = clock
        self._observer = observer
        self._request: UpstreamRequest | None = None
        self._exchange: Exchanging | None = None
        self._call_off: Callable[[], None] | None = None
        self._status: int | None = None
        self._over = False

    # ---- the short way

    def begin(self) -> Answering | None:
        """Write the request, if all of it is here and a connection is idle. Else None, and nothing was sent: `run` is the way."""
        call = self._call
        self._started = self._clock.boottime()
        try:
            request = self._request = self._at_hand()
            if request is None:
                return None
            call.go_on()
            self._exchange = self._plan.upstream.begin(request, _no_fence, self)
        except Exception as error:  # it may have come after the write
            self._over = True
            return self._desk.finish(call, self._failed(error))
        if self._exchange is None:
            return None
        self._call_off = call.connection.on_lost(self.cancel)
        return self

    def answered(self, response: UpstreamResponse) -> None:
        """See `gateway.ports.Receiver`."""
        self._end(self._receive, response)

    def failed(self, failure: InDoubt | NotSent) -> None:
        """See `gateway.ports.Receiver`."""
        self._end(self._fall, failure)

    def not_begun(self) -> None:
        """See `gateway.ports.Receiver`."""
        self._end(self._resume, self._call)

    def cancel(self) -> None:
        """See `Underway`. The client may be gone, too."""
        if self._exchange is not None and not self._over:
            self._exchange.close()
        self._end(self._desk.gone, self._call)

    def _end(self, make: Callable[[Any], Answering], of: Any) -> None:
        """The first word counts. What comes before there is somebody to hear it comes again."""
        if self._over:
            return
        if self.due is None:
            asyncio.get_running_loop().call_soon(self._end, make, of)
            return
        self._over = True
        if self._call_off is not None:
            self._call_off()
        self._call_off = self._exchange = None  # which hold this: what refers to itself is left to the garbage collector
        self.due(make, of)

    def _receive(self, response: UpstreamResponse) -> Answering:
        try:
            body = None
            if self._is_read_whole(response) and (body := response.at_hand(SMALL_BODY)) is None:
                return self._desk.wait(self._call, self.run(response))
            reply = self._reply(self._answer(response, body))
        except Exception as error:
            response.close()
            reply = self._failed(error)
        return self._desk.finish(self._call, reply)

    def _fall(self, failure: InDoubt | NotSent) -> Answering:
        return self._desk.finish(self._call, self._failed(failure))

    def _resume(self, call: Call) -> Answering:
        return self._desk.wait(call, self.run())

    # ---- the long way

    async def run(self, response: UpstreamResponse | None = None) -> Reply:
        """Send, unless the head of the `response` is there already, and relay the answer.

        Raises `ClientGone` and `ClientSilent` when the request never becomes whole; cancelled, it cuts the upstream's connection.
        """
        with WhilePresent(self._call.connection):
            try:
                if response is None:
                    self._started = self._clock.boottime()
                    self._call.go_on()
                    response = await self._plan.upstream.send(self._request or await self._wire_request(), _no_fence)
                return self._reply(await self._relay(response))
            except (ClientGone, ClientSilent):
                raise
            except Exception as error:
                return self._failed(error)

    # ---- the request

    def _at_hand(self) -> UpstreamRequest | None:
        """The request, if its body is here, and was not read before."""
        call, body = self._call, self._call.body
        announced = call.fields.first(b"content-length")
        if not body.exists:
            return (
                None if call.body_read else self._framed(b"", None if announced is None else int(announced), framed=announced is not None)
            )
        if announced is None or not body.complete or body.received > SMALL_BODY or call.body_read:
            return None
        return self._framed(body.take(), body.received, framed=True)

    async def _wire_request(self) -> UpstreamRequest:
        call, given = self._call, self._call.fields.first(b"content-length")
        announced = None if given is None else int(given)
        if call.body_read:
            return self._read_already()
        if not call.body.exists:
            return self._framed(b"", announced, framed=announced == 0)
        if announced is None or announced > SMALL_BODY:
            return self._framed(stream_body(call, call.pace()), announced, framed=False)
        if call.body.complete:
            return self._framed(call.body.take(), announced, framed=True)
        whole = b"".join([piece async for piece in stream_body(call, call.pace())])
        return self._framed(whole, announced, framed=True)

    def _read_already(self) -> UpstreamRequest:
        """A request whose body was read in search of a key."""
        body = self._call.payload
        if isinstance(body, bytes):
            return self._framed(body, None, framed=True)
        return self._framed(body.pieces(), body.length, framed=False)

    def _framed(self, body: bytes | AsyncIterator[bytes], announced: int | None, *, framed: bool) -> UpstreamRequest:
        call, rewriting = self._call, self._plan.rewriting
        return UpstreamRequest(
            call.method.encode(),
            call.origin_form if rewriting is None else rewriting.apply(call.origin_form),
            self._fields,
            body,
            announced,
            framed,
            lasting=True,
            upgrade=upgrade_of(call.method, call.fields, b"%d.%d" % call.version) if call.connection.upgradable else None,
            informational=partial(send_informational, call),
            lines=self._lines,
        )

    # ---- the answer

    def _is_read_whole(self, response: UpstreamResponse) -> bool:
        """Whether the answer has a body that is read before any of it leaves, should it be small."""
        return response.content_length is not None and response.status not in {101, 204, 304} and self._call.method != "HEAD"

    async def _relay(self, response: UpstreamResponse) -> Answer:
        """Whatever goes wrong meanwhile cuts the connection."""
        self._status = response.status
        try:
            body = await response.read(SMALL_BODY) if self._is_read_whole(response) else None
            return self._answer(response, body)
        except BaseException:
            response.close()
            raise

    def _answer(self, response: UpstreamResponse, body: bytes | None) -> Answer:
        """With its `body`, if that was read whole; else as it comes. RFC 9110 section 6.6.1: what has no Date gets that of its receipt."""
        self._status = response.status
        if response.status == 101:
            headers = tuple([field for field in to_client(response.headers) if field[0].lower() != b"x-request-id"])
            return Switched(response.status, response.reason, headers, response.tunnel())
        plan = self._plan
        headers = cross(response.headers, self._clock.http_date(), removed=plan.removed, added=plan.added).to_client
        if body is None:
            return Relayed(response.status, response.reason, headers, response.content_length, UpstreamStream(response))
        response.close()
        return Passed(response.status, response.reason, headers, body)

    def _failed(self, failure: Exception) -> Reply:
        """What to answer when it went wrong. What is no outcome of an exchange is a defect of ours: something may have been sent."""
        match failure:
            case NotSent():
                tell_unreachable(self._observer, self._plan.route.upstream, failure)
                return self._reply(unreachable(failure), failure.reason.value)
            case InDoubt():
                reason = failure.reason.value
            case _:
                self._observer.background_failed("attempt", failure)
                reason = DoubtReason.GATEWAY_ERROR.value
        return self._reply(failed(reason), reason)

    def _reply(self, answer: Answer, reason: str | None = None) -> Reply:
        """The upstream has answered, or was not reached."""
        started, status = self._started, self._status
        seconds = self._clock.boottime() - started
        self._observer.upstream_answered(self._plan.id, status, seconds)
        label = Label.BYPASS if self._call.unlisted is None else Label.UNPROTECTED
        return Reply(label, answer, reason=reason, upstream_seconds=seconds, upstream_status=status, upstream_started=started)


def _no_fence() -> bool:
    return True
