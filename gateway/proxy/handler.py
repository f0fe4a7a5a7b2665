"""One request from a client's connection to its answer: match, admit, read, guard or pass, write, observe."""

import re
from functools import partial
from typing import assert_never

from aiohttp import web
from aiohttp.web_request import BaseRequest

from gateway.core.decision import Label
from gateway.core.headers import Fields, to_upstream
from gateway.core.model import Headers, RecordKey
from gateway.core.policy import ForwardKey, Policy, Route
from gateway.core.problems import Problem
from gateway.core.routes import Matched, NoRoute, RefusedTarget
from gateway.core.scope import derived_key, key_digest
from gateway.engine.answers import Passed, Refused, RelayCut, Relayed, Replayed, Reply
from gateway.engine.engine import Engine
from gateway.engine.request import GuardedRequest
from gateway.ports import Clock, Exchange, Observer, Randomness
from gateway.problem import ProblemWriter
from gateway.proxy.admission import Admitted, Unkeyed, admit, too_large
from gateway.proxy.body import BodyTooLarge, ClientGone, expect_continue, read_body
from gateway.proxy.call import Call
from gateway.proxy.passthrough import pass_through
from gateway.proxy.routing import Routing
from gateway.wire import WireResponse, reason_of

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")


class Proxy:
    """The request handler of the proxy listener. `closing` makes every answer the last one on its connection, for a drain."""

    def __init__(
        self, routing: Routing, engine: Engine, observer: Observer, clock: Clock, randomness: Randomness, problems: ProblemWriter
    ) -> None:
        self._routing = routing
        self._engine = engine
        self._observer = observer
        self._clock = clock
        self._randomness = randomness
        self._problems = problems
        self.closing = False

    def reconfigure(self, routing: Routing, problems: ProblemWriter) -> None:
        """Use another route map from the next request on."""
        self._routing = routing
        self._problems = problems

    async def handle(self, request: BaseRequest) -> web.StreamResponse:
        """Answer one request. Never raises for anything that a client or an upstream does."""
        fields = Fields(request.raw_headers)
        raw = request.raw_path.encode("utf-8", "surrogateescape")
        call = Call(request, self._routing, self._request_id(fields.first(b"x-request-id")), self._clock.boottime(), raw, fields)
        try:
            reply = await self._route(call)
        except ClientGone:
            return self._gone(call)
        response = self._render(reply, call)
        gone = False
        try:
            await response.prepare(request)
        except (ConnectionError, RelayCut):
            gone = True
            response.force_close()
        self._observe(call, reply, response, gone=gone)
        return response

    def _request_id(self, given: bytes | None) -> str:
        if given is not None and _REQUEST_ID.fullmatch(given):
            return given.decode()
        return self._randomness.token().hex()

    # ---- match and guard

    async def _route(self, call: Call) -> Reply:
        method = call.request.method
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
        wire = to_upstream(call.fields.lines, call.hop(), call.routing.kept.get(route.id, frozenset()))
        reply = await pass_through(call, wire, call.routing.upstreams[route.upstream], self._clock)
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
        expect_continue(call.request, call.fields.first(b"expect"))
        try:
            body = await read_body(call.request, policy.limits.request_body)
        except BodyTooLarge:
            return too_large(policy)
        call.request_bytes = len(body)
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
            )
        )

    # ---- answer

    def _render(self, reply: Reply, call: Call) -> WireResponse:
        ours: Headers = ((b"X-Request-Id", call.request_id.encode()),)
        match reply.answer:
            case Passed(status, reason, headers, body):
                return WireResponse(status, reason, _without_request_id(headers) + ours, body, close=self.closing)
            case Relayed(status, reason, headers, length, chunks):
                fields = _without_request_id(headers) + ours
                return WireResponse(status, reason, fields, chunks=chunks, length=length, close=self.closing)
            case Replayed(status, reason, headers, body, original):
                marks = ((b"Idempotent-Replayed", b"true"), (b"Original-Request", original.encode()))
                return WireResponse(status, reason, headers + marks + ours, body, close=self.closing)
            case Refused():
                return self._render_refusal(reply.answer, call, ours)
            case _:
                assert_never(reply.answer)

    def _render_refusal(self, refused: Refused, call: Call, ours: Headers) -> WireResponse:
        status, headers, body = self._problems.render(
            refused.problem,
            request_id=call.request_id,
            status=refused.status,
            retry_after=refused.retry_after,
            detail=refused.detail,
            members=refused.members,
        )
        more: Headers = ((b"Date", self._clock.http_date()),)
        if status == 405:
            more += ((b"Allow", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),)
        # The rest of a body that was refused unread is not waited for: it could be endless.
        unread = refused.problem in {Problem.BODY_TOO_LARGE, Problem.METHOD_REFUSED}
        return WireResponse(status, reason_of(status), headers + ours + more, body, close=self.closing or unread)

    def _gone(self, call: Call) -> web.StreamResponse:
        """The client left before its request was whole: nothing was reserved, nobody is there to be answered."""
        response = WireResponse(400, b"Bad Request", ())
        response.drop()
        self._observe(call, Reply(Label.ABORTED, Refused(Problem.BAD_REQUEST)), response, gone=True)
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
                call.request_bytes,
                response.sent,
                gone,
            )
        )


def _without_request_id(headers: Headers) -> Headers:
    """The upstream's own copy goes: the one answer has one request id, and it is the one in our log."""
    return tuple([field for field in headers if len(field[0]) != 12 or field[0].lower() != b"x-request-id"])


def _keyed_headers(call: Call, route: Route, policy: Policy, key: RecordKey) -> Headers:
    """The fields for the upstream, with the key as `forward_key` says."""
    kept, name = call.routing.kept[route.id], policy.key.header
    match policy.forward_key:
        case ForwardKey.AS_RECEIVED:
            return to_upstream(call.fields.lines, call.hop(), kept)
        case ForwardKey.NONE:
            return to_upstream(call.fields.lines, call.hop(), kept, frozenset({name.lower().encode()}))
        case ForwardKey.DERIVED:
            wire = to_upstream(call.fields.lines, call.hop(), kept, frozenset({name.lower().encode()}))
            return (*wire, (name.encode(), derived_key(call.routing.secret, key.scope_id, key.key)))
        case _:
            assert_never(policy.forward_key)
