"""One request from a client's connection to its answer: head, admit, guard or pass, write, observe. `gateway.plan` draws the whole way."""

import asyncio
import re
from collections.abc import Awaitable
from typing import Protocol, assert_never

from gateway.core.cors import Preflight, answer_preflight, preflight_of
from gateway.core.decision import Label
from gateway.core.headers import to_upstream
from gateway.core.key_location import not_named
from gateway.core.key_policy import ForwardKey, HeaderKey
from gateway.core.model import Headers
from gateway.core.overrides import nothing_misleads
from gateway.core.policy import Policy, Route
from gateway.core.problems import Problem, retry_of
from gateway.core.routes import NoRoute, RefusedTarget
from gateway.core.trace_context import carry, trace_id_of
from gateway.engine.answers import Answer, Passed, Refused, Relayed, Reply, Switched
from gateway.engine.engine import Engine
from gateway.http.body import ClientGone, ClientSilent
from gateway.http.cancel_on_disconnect import WhilePresent
from gateway.http.problem import ProblemWriter
from gateway.http.request import Request, RequestFactory
from gateway.http.response import CLIENT_GONE, Answering, WireResponse
from gateway.plan import RoutePlan
from gateway.ports import Clock, Memory, Observer, Randomness, RelayCut
from gateway.proxy.admission import Unkeyed
from gateway.proxy.call import Call
from gateway.proxy.elsewhere import judge_body, judge_overrides, may_mislead, unlisted
from gateway.proxy.guard import Admission, Guard, Missing
from gateway.proxy.head import is_plain, judge_head
from gateway.proxy.known_head import KnownShape
from gateway.proxy.operations import Operations
from gateway.proxy.passthrough import Passage
from gateway.proxy.rendering import Renderer
from gateway.proxy.routing import Place, Routing

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
    """The request handler of the proxy listener. `webhooks` None: they have a listener of their own. `operations`
    answers those who ask how accepted work stands. The next request goes by `routing`.
    """

    make_request: RequestFactory[Call] = Call

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
        operations: Operations | None = None,
    ) -> None:
        self._operations = operations
        self.routing = routing
        self._webhooks = webhooks
        self._observer = observer
        self._clock = clock
        self._randomness = randomness
        self._memory = memory
        self._engine = engine
        self._guard = Guard(observer, memory)
        self._renderer = Renderer(problems, clock)

    def reconfigure(self, routing: Routing, problems: ProblemWriter) -> None:
        """Use another route map from the next request on."""
        self.routing = routing
        self._renderer.problems = problems

    def close_connections(self) -> None:
        """From now on every answer is the last one on its connection: the process is being drained."""
        self._renderer.closing = True
        if self._operations is not None:
            self._operations.closing = True

    def handle(self, call: Call) -> Answering:
        """Answer one request: at once, if all that it takes is at hand. The answer is written then. Never raises for
        anything that a client or an upstream does.
        """
        known = self._recall(call)
        if known is None and self._webhooks is not None and (route := self._webhooks.match(call.target)) is not None:
            return self._webhooks.handle(call, route)
        given, parent = call.fields.first(b"x-request-id"), call.fields.first(b"traceparent")
        call.trace_id = trace_id = None if parent is None else trace_id_of(parent)
        if given is not None and _REQUEST_ID.fullmatch(given):
            request_id = given.decode()
        elif trace_id is None:
            request_id = self._randomness.token().hex()
        else:  # records keep it, and so are found by the trace without a column for that
            request_id = f"{trace_id}-{self._randomness.token()[:8].hex()}"
        call.begin(self.routing, request_id, self._clock.boottime())
        if (tracing := call.routing.edge.tracing) is not None:
            call.trace = tracing.begin(parent, request_id, self._randomness.token())
            call.trace_id = call.trace.trace_id
        found = self._look(call) if known is None else self._enter(call, known)
        if not isinstance(found, RoutePlan):
            return self.finish(call, found) if isinstance(found, Reply) else self.wait(call, found)
        if found.guard is None:
            return self._pass_unguarded(call, found)
        coming = self._go_on(call, found, self._guard.admit(call))
        return self.finish(call, coming) if isinstance(coming, Reply) else self.wait(call, coming)

    async def wait(self, call: Call, coming: Awaitable[Reply]) -> WireResponse:
        """For a reply that takes its time."""
        try:
            reply = await coming
        except ClientGone:
            return self.gone(call)
        except ClientSilent:
            reply = Reply(Label.ABORTED, _too_slow(call))
        except asyncio.CancelledError:
            self.gone(call)  # a drain is out of patience
            raise
        finished = self.finish(call, reply)
        return finished if isinstance(finished, WireResponse) else await finished

    def finish(self, call: Call, reply: Reply) -> WireResponse | Awaitable[WireResponse]:
        """Render, write, observe."""
        gone = False
        try:
            response = self._renderer.render(reply, call)
        except Exception:
            self._not_written(call, reply)
            raise
        try:
            if not response.send(call):
                return self._finish_slowly(call, reply, response)
        except ConnectionError:
            response.force_close()
            gone = True
        except Exception:
            self._not_written(call, reply)
            raise
        self._observe(call, reply, response, gone=gone)
        return response

    def _not_written(self, call: Call, reply: Reply) -> None:
        """A defect of ours: the connection answers 500."""
        _let_go(reply.answer)
        self._observe(call, reply, WireResponse(500, b""), gone=False)

    async def _finish_slowly(self, call: Call, reply: Reply, response: WireResponse) -> WireResponse:
        """The body comes in pieces, or the client takes its time."""
        gone = await self._send(reply, response, call)
        self._observe(call, reply, response, gone=gone)
        return response

    async def _send(self, reply: Reply, response: WireResponse, call: Call) -> bool:
        """Write what is left of the answer. Whether the client is gone, or was cut."""
        try:
            if isinstance(reply.answer, Relayed):
                with WhilePresent(call.connection, streaming=True):
                    await response.prepare(call)
            else:
                await response.prepare(call)
        except RelayCut:
            response.force_close()
        except (ConnectionError, ClientGone):
            response.force_close()
            return True
        except BaseException:
            self._observe(call, reply, response, gone=False)
            raise
        finally:
            _let_go(reply.answer)
        return False

    # ---- head

    def _look(self, call: Call) -> RoutePlan | Reply | Awaitable[Reply]:
        """Judge the head, and find the plan of the request's route; or the answer, if it goes no further."""
        routing, plain = call.routing, is_plain(call)
        place = routing.places.get((call.method, call.target, call.effective_host)) if plain else None
        if place is not None:
            return self._take_plain(call, place)
        call.cors = routing.edge.cors
        stopped = judge_head(call)
        if stopped is not None:
            self._observer.request_started(call.route)
            return stopped
        host = call.effective_host if call.routing.table.by_host else b""
        if routing.edge.operations is not None and self._operations is not None and call.origin_form.startswith(routing.edge.operations):
            path = call.origin_form.removeprefix(routing.edge.operations)
            if path.startswith(b"/"):
                return self._operations.answer(call, path[1:])
        asked = preflight_of(call.method, call.fields)
        if asked is not None and (answered := self._answer_preflight(call, asked, host)) is not None:
            return answered
        found = RefusedTarget(None) if call.method == "CONNECT" else routing.find(call.method, call.target, host)
        match found:
            case RoutePlan():
                if plain:
                    place = routing.places.keep((call.method, call.target, call.effective_host), Place(found))
                    return self._take_plain(call, place)
                return self._take_plan(call, found)
            case NoRoute():
                self._observer.request_started(call.route)
                return Reply(Label.REFUSED_TARGET, Refused(Problem.NO_ROUTE))
            case RefusedTarget(route):
                if route is not None:
                    call.route, call.cors = route.id, route.cors
                self._observer.request_started(call.route)
                problem = Problem.METHOD_REFUSED if call.method == "CONNECT" else Problem.TARGET_REFUSED
                return Reply(Label.REFUSED_TARGET, Refused(problem))
            case _:
                assert_never(found)

    def _recall(self, call: Call) -> RoutePlan | None:
        """The same for a head of a shape that was judged before, on that route, and which leads there by its target."""
        shape, routing = call.shape, self.routing
        of: KnownShape | None = None if shape is None else shape.known
        if of is None or of.routing is not routing:
            return None
        place = routing.places.get((call.method, call.target, call.fields.first(b"host") or b""))
        if place is None or not place.taken or (known := of.heads.get(place.kind)) is None:
            return None
        call.place, call.known = place, known
        return place.plan

    def _take_plain(self, call: Call, place: Place) -> RoutePlan | Reply:
        """As `_take_plan`. Place and head are known from now on, unless something had to be taken out of it, or its target had a say."""
        plan, shape, call.place = place.plan, call.shape, place
        plainly = plan.overrides is None or nothing_misleads(call.method, call.fields.names(), call.target)
        taken = self._take_plan(call, plan)
        if taken is plan and plainly:
            place.taken = True
            if shape is not None:
                if shape.known is None or shape.known.routing is not call.routing:
                    shape.known = KnownShape(call.routing)
                call.known = shape.known.on(place, shape)
        return taken

    def _enter(self, call: Call, plan: RoutePlan) -> RoutePlan:
        """The request is its route's from now on."""
        call.route, call.cors = plan.id, plan.cors
        if plan.guard is not None:
            call.guard, call.guarded, call.mode = plan.guard, True, plan.mode
        self._observer.request_started(plan.id)
        return plan

    def _take_plan(self, call: Call, plan: RoutePlan) -> RoutePlan | Reply:
        refused = None if plan.overrides is None else judge_overrides(call, plan.overrides, plan)
        if refused is None and plan.rewriting is not None and not plan.rewriting.takes(call.origin_form):
            refused = Reply(Label.REFUSED_TARGET, Refused(Problem.TARGET_REFUSED))
        if refused is None:
            return self._enter(call, plan)
        call.route, call.cors = plan.id, plan.cors
        self._observer.request_started(plan.id)
        return refused

    def _answer_preflight(self, call: Call, asked: Preflight, host: bytes) -> Reply | None:
        """Where the route that takes the request to come says that we answer. Nothing is run, so no guard is asked."""
        plan = call.routing.find(asked.method, call.target, host)
        if not isinstance(plan, RoutePlan) or plan.cors is None or not plan.cors.answers:
            return None
        call.route, call.mode, call.cors = plan.id, plan.mode, None
        self._observer.request_started(call.route)
        fields = (*answer_preflight(plan.cors, asked), (b"Date", self._clock.http_date()))
        return Reply(Label.BYPASS, Passed(204, b"No Content", fields, b""))

    # ---- admitted, or not

    def _go_on(self, call: Call, plan: RoutePlan, admitted: Admission) -> Reply | Awaitable[Reply]:
        """What follows from the guard's judgement. An observing route refuses nobody, but what would fill the memory: the
        request goes through, counted under what would have been said.
        """
        match admitted:
            case None:
                return self._engine.answer(call)
            case Missing():
                return self._fetch(call, plan, admitted)
            case Unkeyed():
                return self._pass(call, plan)
            case Reply():
                if call.guard.observes and admitted.label is not Label.OVERLOADED:
                    return self._pass_as(call, plan, admitted.label)
                call.close()
                return admitted
            case _:
                assert_never(admitted)

    async def _fetch(self, call: Call, plan: RoutePlan, missing: Missing) -> Reply:
        """Wait for what is missing, until nothing is."""
        admitted: Admission = missing
        while isinstance(admitted, Missing):
            admitted = await self._guard.fetch(call, admitted) or self._guard.admit(call)
        found = self._go_on(call, plan, admitted)
        return found if isinstance(found, Reply) else await found

    # ---- pass on

    async def _pass_as(self, call: Call, plan: RoutePlan, label: Label) -> Reply:
        reply = await self._pass(call, plan)
        reply.label = label
        return reply

    def _pass_unguarded(self, call: Call, plan: RoutePlan) -> Answering:
        """Without a task, if the request is whole, a connection is idle, and the answer comes in one piece."""
        call.unlisted = unlisted(call)
        if may_mislead(call, plan):
            return self.wait(call, self._pass(call, plan))
        passage = self._passage(call, plan)
        return passage.begin() or self.wait(call, passage.run())

    async def _pass(self, call: Call, plan: RoutePlan) -> Reply:
        try:
            if may_mislead(call, plan) and (refused := await judge_body(call, plan, self._memory)) is not None:
                return refused
            return await self._passage(call, plan).run()
        finally:
            if call.held is not None:
                call.held.close()

    def _passage(self, call: Call, plan: RoutePlan) -> Passage:
        guard = plan.guard
        if guard is None:
            lines = call.lines() if plan.sent is None else None
            if lines is not None:
                return Passage(call, plan, (), self, self._clock, self._observer, lines=lines)
            wire = to_upstream(call.fields.lines, call.hop(), hops=call.hops)
        else:
            wire = _without_our_key(to_upstream(call.fields.lines, call.hop(), guard.kept, hops=call.hops), guard.policy)
        if call.trace is not None:
            wire = carry(wire, call.trace)
        if plan.sent is not None:
            wire = plan.sent.apply(wire)
        return Passage(call, plan, wire, self, self._clock, self._observer)

    # ---- the end

    def gone(self, call: Call) -> WireResponse:
        """Nobody is there to be answered: the client left before its request was whole, or before an unguarded answer came."""
        response = WireResponse(CLIENT_GONE, b"")
        response.drop()
        label = Label.BYPASS if call.body.complete else Label.ABORTED
        self._observe(call, Reply(label, Refused(Problem.BAD_REQUEST)), response, gone=True)
        if call.connection.transport is not None:
            call.connection.transport.abort()
        return response

    def _observe(self, call: Call, reply: Reply, response: WireResponse, *, gone: bool) -> None:
        """The client has its answer, or what it takes of one: a defect of ours here is no second one."""
        try:
            call.end(reply, response.status, response.sent, self._clock.boottime() - call.started, gone=gone)
            self._observer.request_ended(call)
        except Exception as error:
            self._observer.background_failed("observe", error)


def _let_go(answer: Answer) -> None:
    """Close what an answer still holds of an upstream's connection, or of a file."""
    held = answer.tunnel if isinstance(answer, Switched) else getattr(answer, "body", None)
    if held is not None and not isinstance(held, bytes):
        held.close()


def _too_slow(call: Call) -> Refused:
    """The body did not come. Where nothing holds it back, its beginning was passed on."""
    if call.mode == "enforce":
        return Refused(Problem.REQUEST_TIMEOUT)
    return Refused(Problem.REQUEST_TIMEOUT, detail=_PASSED_ON, retry=retry_of(Problem.UPSTREAM_FAILED, method=call.method))


def _without_our_key(headers: Headers, policy: Policy | None) -> Headers:
    """Without the field in which the upstream expects keys of our making: a client without one must not write it itself."""
    if policy is None or policy.forward_key is not ForwardKey.DERIVED:
        return headers
    place = policy.key_goes_to
    return not_named(headers, *place.names) if isinstance(place, HeaderKey) else headers
