"""One request from a client's connection to its answer: match, admit, read, guard or pass, write, observe."""

import asyncio
import re
from functools import partial
from typing import assert_never

from aiohttp import web
from aiohttp.web_request import BaseRequest

from gateway.core.decision import Label
from gateway.core.headers import Fields, hops_left, to_upstream
from gateway.core.model import Headers, RecordKey
from gateway.core.policy import ForwardKey, Policy, Route
from gateway.core.problems import Problem
from gateway.core.routes import Matched, NoRoute, RefusedTarget
from gateway.core.scope import derived_key, key_digest
from gateway.engine.answers import Refused, Relayed, Reply
from gateway.engine.engine import Engine
from gateway.engine.request import GuardedRequest
from gateway.ports import Clock, Exchange, Memory, Observer, Randomness, RelayCut
from gateway.problem import ProblemWriter
from gateway.proxy.admission import Admitted, Unkeyed, admit, too_large
from gateway.proxy.body import BodyTooLarge, ClientGone, ClientSilent, MemoryFull, read_body
from gateway.proxy.call import Call
from gateway.proxy.head import judge_head
from gateway.proxy.passthrough import pass_through
from gateway.proxy.presence import WhilePresent
from gateway.proxy.rendering import Renderer
from gateway.proxy.routing import Routing
from gateway.wire import WireResponse

CLIENT_GONE = 499
"""The logged status of a request that nobody was there to be answered, as nginx writes it."""

_PASSED_ON = "The rest of the body did not come. What had come was passed on to the upstream; whether it acted on that is not known."
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")


class Proxy:
    """The request handler of the proxy listener."""

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
    ) -> None:
        self._routing = routing
        self._engine = engine
        self._observer = observer
        self._clock = clock
        self._randomness = randomness
        self._memory = memory
        self._renderer = Renderer(problems, clock)

    def reconfigure(self, routing: Routing, problems: ProblemWriter) -> None:
        """Use another route map from the next request on."""
        self._routing = routing
        self._renderer.problems = problems

    def close_connections(self) -> None:
        """From now on every answer is the last one on its connection: the process is being drained."""
        self._renderer.closing = True

    async def handle(self, request: BaseRequest) -> web.StreamResponse:
        """Answer one request. Never raises for anything that a client or an upstream does."""
        fields = Fields(request.raw_headers)
        raw = request.raw_path.encode("utf-8", "surrogateescape")
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
        stopped = judge_head(call)
        if stopped is not None:
            self._observer.request_started(call.route)
            return stopped
        matched = RefusedTarget(None) if method == "CONNECT" else call.routing.table.match(method, call.raw)
        if not isinstance(matched, NoRoute) and matched.route is not None:
            call.route = matched.route.id
        self._observer.request_started(call.route)
        match matched:
            case NoRoute():
                return Reply(Label.REFUSED_TARGET, Refused(Problem.NO_ROUTE))
            case RefusedTarget():
                return Reply(Label.REFUSED_TARGET, Refused(Problem.METHOD_REFUSED if method == "CONNECT" else Problem.TARGET_REFUSED))
            case Matched(route):
                return await (self._pass(call, route) if route.policy is None else self._guard(call, route, route.policy))
            case _:
                assert_never(matched)

    async def _pass(self, call: Call, route: Route) -> Reply:
        wire = to_upstream(
            call.fields.lines, call.hop(), call.routing.kept.get(route.id, frozenset()), hops=hops_left(call.request.method, call.fields)
        )
        with WhilePresent(call.connection):
            reply = await pass_through(call, wire, route.upstream, self._clock, self._observer)
        self._observer.upstream_answered(route.id, reply.upstream_status, reply.upstream_seconds or 0.0)
        return reply

    async def _guard(self, call: Call, route: Route, policy: Policy) -> Reply:
        call.mode = "enforce"
        admission = admit(call.fields, policy, call.routing.secret)
        match admission:
            case Admitted(key):
                pass
            case Unkeyed():
                return await self._pass(call, route)
            case Reply():
                return admission
            case _:
                assert_never(admission)
        call.key_digest = key_digest(call.routing.secret, key.scope_id, key.key)
        if self._memory.full:
            return _overloaded()
        call.go_on()
        try:
            body, held = await read_body(call.request, policy.limits.request_body, call.routing.edge.body_timeout, self._memory)
        except BodyTooLarge:
            return too_large(policy)
        except MemoryFull:
            return _overloaded()
        call.request_bytes = len(body) if isinstance(body, bytes) else body.length
        return await self._engine.handle(
            GuardedRequest(
                call.request_id,
                route.id,
                route.upstream,
                policy,
                key,
                call.request.method,
                call.target,
                call.fields.lines,
                partial(_keyed_headers, call, route, policy, key),
                body,
                held,
            )
        )

    # ---- the end

    def _gone(self, call: Call) -> web.StreamResponse:
        """Nobody is there to be answered: the client left before its request was whole, or before an unguarded answer came."""
        response = WireResponse(CLIENT_GONE, b"", ())
        response.drop()
        label = Label.BYPASS if call.request.content.is_eof() else Label.ABORTED
        self._observe(call, Reply(label, Refused(Problem.BAD_REQUEST)), response, gone=True)
        if call.request.transport is not None:
            call.request.transport.abort()
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
                call.request_bytes or call.request.content.total_bytes,
                response.sent,
                gone,
                call.client(),
            )
        )


def _overloaded() -> Reply:
    return Reply(Label.OVERLOADED, Refused(Problem.OVERLOADED, retry_after=1))


def _keyed_headers(call: Call, route: Route, policy: Policy, key: RecordKey) -> Headers:
    """The fields for the upstream, with the key as `forward_key` says."""
    kept, name, hop, hops = call.routing.kept[route.id], policy.key.header, call.hop(), hops_left(call.request.method, call.fields)
    match policy.forward_key:
        case ForwardKey.AS_RECEIVED:
            return to_upstream(call.fields.lines, hop, kept, hops=hops)
        case ForwardKey.NONE:
            return to_upstream(call.fields.lines, hop, kept, frozenset({name.lower().encode()}), hops=hops)
        case ForwardKey.DERIVED:
            wire = to_upstream(call.fields.lines, hop, kept, frozenset({name.lower().encode()}), hops=hops)
            return (*wire, (name.encode(), derived_key(call.routing.secret, key.scope_id, key.key)))
        case _:
            assert_never(policy.forward_key)
