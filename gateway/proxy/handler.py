"""One request from a client's connection to its answer: match, admit, read, guard or pass, write, observe."""

import asyncio
import re
from typing import Protocol, assert_never

from gateway.core.cors import Preflight, answer_preflight, preflight_of
from gateway.core.decision import Label
from gateway.core.headers import hops_left, to_upstream
from gateway.core.host import effective_host
from gateway.core.key_location import not_named
from gateway.core.model import Headers
from gateway.core.policy import ForwardKey, HeaderKey, Policy, Route
from gateway.core.problems import Problem
from gateway.core.routes import Matched, NoRoute, RefusedTarget
from gateway.engine.answers import Passed, Refused, Relayed, Reply
from gateway.engine.engine import Engine
from gateway.http.body import ClientGone, ClientSilent
from gateway.http.cancel_on_disconnect import WhilePresent
from gateway.http.problem import ProblemWriter
from gateway.http.request import Request, RequestFactory
from gateway.http.response import CLIENT_GONE, WireResponse
from gateway.ports import Clock, Exchange, Memory, Observer, Randomness, RelayCut
from gateway.proxy.call import Call
from gateway.proxy.elsewhere import judge_body, judge_overrides, unlisted
from gateway.proxy.guard import Guard
from gateway.proxy.head import judge_head
from gateway.proxy.passthrough import pass_through
from gateway.proxy.rendering import Renderer
from gateway.proxy.routing import Routing

_PASSED_ON = "The rest of the body did not come. What had come was passed on to the upstream; whether it acted on that is not known."
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")


class Webhooks(Protocol):
    """Endpoints that are answered here, and of no upstream's."""

    def match(self, target: bytes) -> Route | None:
        """The route whose endpoint this is; None if there is none."""
        ...

    async def handle(self, request: Request, route: Route) -> WireResponse:
        """Answer a request to it. Raises nothing but CancelledError."""
        ...


class Proxy:
    """The request handler of the proxy listener. `webhooks` None: they have a listener of their own."""

    make_request: RequestFactory[Request] = Request

    def __init__(
        self,
        routing: Routing,
        engine: Engine,
        observer: Observer,
        clock: Clock,
        randomness: Randomness,
        *,
        problems: ProblemWriter,
        memory: Memory,
        webhooks: Webhooks | None = None,
    ) -> None:
        self._routing = routing
        self._webhooks = webhooks
        self._observer = observer
        self._clock = clock
        self._randomness = randomness
        self._memory = memory
        self._guard = Guard(engine, observer, memory, self._pass)
        self._renderer = Renderer(problems, clock)

    def reconfigure(self, routing: Routing, problems: ProblemWriter) -> None:
        """Use another route map from the next request on."""
        self._routing = routing
        self._renderer.problems = problems

    def close_connections(self) -> None:
        """From now on every answer is the last one on its connection: the process is being drained."""
        self._renderer.closing = True

    async def handle(self, request: Request) -> WireResponse:
        """Answer one request. Never raises for anything that a client or an upstream does."""
        fields = request.fields
        raw = request.target
        if self._webhooks is not None and (route := self._webhooks.match(raw)) is not None:
            return await self._webhooks.handle(request, route)
        call = Call(request, self._routing, self._request_id(fields.first(b"x-request-id")), self._clock.boottime(), raw, fields)
        expected = fields.first(b"expect")
        call.waited_for = expected is not None and expected.strip(b" \t").lower() == b"100-continue"
        try:
            reply = await self._route(call)
        except ClientGone:
            return self._gone(call)
        except ClientSilent:
            reply = Reply(Label.ABORTED, Refused(Problem.REQUEST_TIMEOUT, detail=None if call.mode == "enforce" else _PASSED_ON))
        except asyncio.CancelledError:
            self._gone(call)  # a drain is out of patience
            raise
        response = self._renderer.render(reply, call)
        gone = await self._send(reply, response, call)
        self._observe(call, reply, response, gone=gone)
        return response

    async def _send(self, reply: Reply, response: WireResponse, call: Call) -> bool:
        """Write the answer. Whether the client is gone, or was cut."""
        body = getattr(reply.answer, "body", None)
        try:
            if isinstance(reply.answer, Relayed):
                with WhilePresent(call.connection, streaming=True):
                    await response.prepare(call.request)
            else:
                await response.prepare(call.request)
        except RelayCut:
            response.force_close()
        except (ConnectionError, ClientGone):
            response.force_close()
            return True
        except asyncio.CancelledError:
            self._observe(call, reply, response, gone=False)
            raise
        finally:
            if body is not None and not isinstance(body, bytes):
                body.close()
        return False

    def _request_id(self, given: bytes | None) -> str:
        if given is not None and _REQUEST_ID.fullmatch(given):
            return given.decode()
        return self._randomness.token().hex()

    # ---- match and guard

    async def _route(self, call: Call) -> Reply:
        method = call.request.method
        call.cors = call.routing.edge.cors
        stopped = judge_head(call)
        if stopped is not None:
            self._observer.request_started(call.route)
            return stopped
        table = call.routing.table
        host = effective_host(call.raw, call.fields.first(b"host")) if table.by_host else b""
        asked = preflight_of(method, call.fields)
        if asked is not None and (answered := self._answer_preflight(call, asked, host)) is not None:
            return answered
        matched = RefusedTarget(None) if method == "CONNECT" else table.match(method, call.raw, host)
        if not isinstance(matched, NoRoute) and matched.route is not None:
            call.route, call.cors = matched.route.id, matched.route.cors
        self._observer.request_started(call.route)
        match matched:
            case NoRoute():
                return Reply(Label.REFUSED_TARGET, Refused(Problem.NO_ROUTE))
            case RefusedTarget():
                return Reply(Label.REFUSED_TARGET, Refused(Problem.METHOD_REFUSED if method == "CONNECT" else Problem.TARGET_REFUSED))
            case Matched(route):
                if (refused := judge_overrides(call, route)) is not None:
                    return refused
                return await (self._pass_unguarded(call, route) if route.policy is None else self._guard.answer(call, route, route.policy))
            case _:
                assert_never(matched)

    def _answer_preflight(self, call: Call, asked: Preflight, host: bytes) -> Reply | None:
        """Where the route that takes the request to come says that we answer. Nothing is run, so no guard is asked."""
        matched = call.routing.table.match(asked.method, call.raw, host)
        if not isinstance(matched, Matched) or matched.route.cors is None or not matched.route.cors.answers:
            return None
        route, call.cors = matched.route, None
        call.route, call.mode = route.id, "off" if route.policy is None else route.policy.mode.value
        self._observer.request_started(call.route)
        fields = (*answer_preflight(matched.route.cors, asked), (b"Date", self._clock.http_date()))
        return Reply(Label.BYPASS, Passed(204, b"No Content", fields, b""))

    async def _pass_unguarded(self, call: Call, route: Route) -> Reply:
        call.unlisted = unlisted(call)
        reply = await self._pass(call, route)
        if call.unlisted is not None and reply.label is Label.BYPASS:
            reply.label = Label.UNPROTECTED
        return reply

    async def _pass(self, call: Call, route: Route) -> Reply:
        kept, hops = call.routing.kept.get(route.id, frozenset()), hops_left(call.request.method, call.fields)
        wire = _without_our_key(to_upstream(call.fields.lines, call.hop(), kept, hops=hops), call.policy)
        try:
            if (refused := await judge_body(call, route, self._memory)) is not None:
                return refused
            with WhilePresent(call.connection):
                reply = await pass_through(call, wire, route.upstream, self._clock, self._observer)
        finally:
            if call.held is not None:
                call.held.close()
        self._observer.upstream_answered(route.id, reply.upstream_status, reply.upstream_seconds or 0.0)
        return reply

    # ---- the end

    def _gone(self, call: Call) -> WireResponse:
        """Nobody is there to be answered: the client left before its request was whole, or before an unguarded answer came."""
        response = WireResponse(CLIENT_GONE, b"", ())
        response.drop()
        label = Label.BYPASS if call.request.body.complete else Label.ABORTED
        self._observe(call, Reply(label, Refused(Problem.BAD_REQUEST)), response, gone=True)
        if call.connection.transport is not None:
            call.connection.transport.abort()
        return response

    def _observe(self, call: Call, reply: Reply, response: WireResponse, *, gone: bool) -> None:
        self._observer.request_ended(
            Exchange(
                call.request_id,
                call.route,
                call.mode,
                reply.label,
                call.request.method,
                response.status,
                self._clock.boottime() - call.started,
                reply.store_seconds,
                reply.upstream_seconds,
                reply.upstream_status,
                reply.settlement,
                reply.reason,
                call.key_digest,
                reply.attempt,
                call.request_bytes or call.request.body.received,
                response.sent,
                gone,
                call.client(),
            )
        )


def _without_our_key(headers: Headers, policy: Policy | None) -> Headers:
    """Without the field in which the upstream expects keys of our making: a client without one must not write it itself."""
    if policy is None or policy.forward_key is not ForwardKey.DERIVED:
        return headers
    place = policy.key_goes_to
    return not_named(headers, *place.names) if isinstance(place, HeaderKey) else headers
