"""Handles webhook requests: finds the route and the record, and applies the event.

What if ...

* the same event comes twice, also at once: the step that applies it writes its id, so that one of the two is a
  duplicate;
* a probe, an operator or the attempt itself is faster: the step is fenced by what the receiver saw, so the store
  refuses it, and the receiver looks at the record again;
* the store is away, or its reply is lost: the answer is 503, the sender repeats the event, and the receiver finds what
  there is then;
* the event comes before its record is in doubt: the store keeps it with the record as evidence, and the reconciler uses
  it once the record is in doubt;
* the event says *not executed* about a record with more than one attempt: it may mean an earlier attempt, so it decides
  nothing;
* it says so before the upstream has surely finished: it never counts, however often the sender sends it, since it
  describes no later instant;
* it says *executed*, and its answer cannot be built: the record completes without one, since the operation must not run
  again.
"""

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import assert_never

from gateway.core.framing import judge_framing
from gateway.core.model import Headers
from gateway.core.policy import Policy, Route
from gateway.core.reconcile.found import Found, Judged, Names, judge
from gateway.core.reconcile.policy import OWN_KEY, Verdict, Webhook
from gateway.core.reconcile.signatures import Refusal, verify
from gateway.core.reconcile.steps import ROUNDS, Again, Attach, Conclude, Free, Ignore, webhook_step
from gateway.core.routes import split_target
from gateway.core.upstream_answer import built
from gateway.http.request import Request
from gateway.http.response import CLIENT_GONE, WireResponse
from gateway.ports import Clock, Memory, Observer, Retention, StoreUnavailable, Transition, WebhookExchange
from gateway.ports.reconciliation import VERDICT_REASONS, Detail, Entry, Event, Evidence, Reconciliation, Subject
from gateway.runtime.packing import pack_response
from gateway.webhook.outcome import AWAY, FORGED, NO_EVENT, NOT_POST, NOT_WHOLE, SLOW, TOO_LARGE, TOO_OLD, Outcome, respond
from gateway.webhook.reading import BodyTooLarge, MemoryFull, SenderGone, read_body, tell

FOUND_AT_MOST = 16
"""The receiver looks at no more records under one value to find the one of the route."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Heard:
    """A verified event of a route."""

    route: Route
    policy: Policy
    webhook: Webhook
    headers: Headers
    body: bytes
    event: Event


class WebhookReceiver:
    """Handles webhook requests of all routes that have an endpoint. `wall` gives the wall clock's seconds since the
    epoch.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        reconciliation: Reconciliation,
        observer: Observer,
        memory: Memory,
        clock: Clock,
        wall: Callable[[], float] = time.time,  # noqa: TID251 - signatures hold instants of the wall clock
    ) -> None:
        self._reconciliation = reconciliation
        self._observer = observer
        self._memory = memory
        self._clock = clock
        self._wall = wall
        self._closing = False
        self._endpoints = _endpoints(routes)

    def reconfigure(self, routes: Iterable[Route]) -> None:
        """Use another route map from the next request on."""
        self._endpoints = _endpoints(routes)

    def close_connections(self) -> None:
        """From now on every answer is the last one on its connection: the process is being drained."""
        self._closing = True

    def match(self, target: bytes) -> Route | None:
        """The route whose endpoint a request target names, byte for byte, whatever the query; None if there is none."""
        return self._endpoints.get(split_target(target)[0]) if self._endpoints else None

    def answer(self, outcome: Outcome) -> WireResponse:
        """The answer that tells an outcome."""
        return respond(outcome, self._clock.http_date(), close=self._closing)

    async def handle(self, request: Request, route: Route) -> WireResponse:
        """Answer a request to the endpoint of `route`. Raises nothing but CancelledError: the event is then applied
        whole or not at all.
        """
        started = self._clock.boottime()
        try:
            outcome = await self._outcome(request, route)
        except SenderGone:
            response = self.answer(NOT_WHOLE)
            response.drop()
            if request.connection.transport is not None:
                request.connection.transport.abort()
            self._tell(request, route, NOT_WHOLE, response, started, gone=True)
            return response
        except Exception as error:  # whatever is wrong with us, the event must come again
            self._observer.background_failed("webhook", error)
            outcome = AWAY
        response = self.answer(outcome)
        self._tell(request, route, outcome, response, started)
        return response

    def _tell(
        self, request: Request, route: Route, outcome: Outcome, response: WireResponse, started: float, *, gone: bool = False
    ) -> None:
        seconds, size = self._clock.boottime() - started, request.body.received
        peer = request.connection.address
        status = CLIENT_GONE if gone else response.status
        self._observer.webhook_event(
            WebhookExchange(route.id, outcome.result, request.method, status, seconds, size, peer, gone, outcome.request_id)
        )

    async def _outcome(self, request: Request, route: Route) -> Outcome:
        policy = route.policy
        assert policy is not None
        webhook = policy.webhook
        assert webhook is not None, "the route has an endpoint"
        body = await self._body(request, webhook)
        if isinstance(body, Outcome):
            return body
        try:
            headers = request.headers
            verified = verify(webhook.signature, headers, body, self._wall())
            if isinstance(verified, Refusal):
                return FORGED if verified.reason == "bad_signature" else TOO_OLD
            told = tell(webhook, headers, body)
            if told is None:
                return NO_EVENT
            if told.value is None:
                return Outcome("unmatched")
            heard = _Heard(route, policy, webhook, headers, body, Event(route.id, told.digest, webhook.remember))
            return await self._use(heard, told.value)
        except StoreUnavailable:
            return AWAY
        finally:
            self._memory.give(len(body))

    async def _body(self, request: Request, webhook: Webhook) -> bytes | Outcome:
        """The body, whose memory the caller gives back; or why there is none."""
        fields = request.fields
        problem = judge_framing(request.version, fields)
        if problem is not None:
            return Outcome("malformed", problem.value.title, problem.value.status, unread=True)
        if request.method != "POST":
            return NOT_POST
        try:
            return await read_body(request, fields, webhook.limit, self._memory)
        except BodyTooLarge:
            return TOO_LARGE
        except TimeoutError:
            return SLOW
        except MemoryFull:
            return Outcome(AWAY.result, AWAY.detail, unread=True)

    async def _use(self, heard: _Heard, value: str) -> Outcome:
        """Find the record and apply the event; repeat while another process is faster."""
        for _ in range(ROUNDS):
            if await self._reconciliation.seen(heard.event):
                return Outcome("duplicate")
            found = await self._reconciliation.find_captured(heard.policy.scope, value, FOUND_AT_MOST)
            subjects = [subject for subject in found if subject.route_id == heard.route.id]
            if not subjects:
                return Outcome("unmatched")  # not remembered: a repetition may find the record, if this gateway ever gets one
            if len(subjects) > 1:  # only one of them may be the caller's whom the event is about
                subjects = [subject for subject in subjects if _judge(heard, subject).rule is not None] or subjects
            if len(subjects) > 1 or len(found) == FOUND_AT_MOST:
                _log.warning("An event of route %s fits several records: nothing is done (event %s)", heard.route.id, _digest(heard.event))
                return Outcome("ambiguous")
            outcome = await self._apply(heard, subjects[0])
            if outcome is not None:
                return outcome
            self._observer.stale_write("verdict")
        return AWAY

    async def _apply(self, heard: _Heard, subject: Subject) -> Outcome | None:
        """One step on one record, fenced by what the receiver saw. None: the record has moved meanwhile."""
        judged = _judge(heard, subject)
        if judged.bare is not None:
            judged = Judged(Verdict.EXECUTED, judged.bare, judged.rule, judged.why)
        if judged.verdict is Verdict.NOT_EXECUTED and subject.attempt > 1:
            judged = Judged(Verdict.NOT_YET_KNOWN, rule=judged.rule, why=f"{judged.why}, which may be about an earlier attempt")
        step = webhook_step(judged.verdict, subject, heard.policy.reconcile.pace)
        if isinstance(step, Ignore):
            await self._ignore(heard, subject, judged, step)
            return Outcome(step.result, request_id=subject.request_id)
        transition, result = await self._carry_out(step, heard, subject, judged)
        if transition not in (Transition.DONE, Transition.ALREADY):
            return None
        _log.info(
            "An event was %s (route %s, request %s, %s, event %s)",
            result,
            heard.route.id,
            subject.request_id,
            judged.verdict,
            _digest(heard.event),
        )
        return Outcome(result, request_id=subject.request_id)

    async def _carry_out(
        self, step: Conclude | Attach | Free | Again, heard: _Heard, subject: Subject, judged: Judged
    ) -> tuple[Transition, str]:
        """The transition, and the word for it if it is done."""
        reconciliation, fence, event = self._reconciliation, subject.fence, heard.event
        entry = _entry(heard, judged)
        match step:
            case Conclude() | Attach():
                assert judged.answer is not None, "an executed verdict has an answer"
                response = await pack_response(built(judged.answer))
                if isinstance(step, Attach):
                    return await reconciliation.attach(fence, Evidence(response, entry), event), "attached"
                return await reconciliation.conclude_executed(fence, response, Retention.of(heard.policy), entry, event), "applied"
            case Free():
                reason, retention = VERDICT_REASONS[Verdict.NOT_EXECUTED], Retention.of(heard.policy)
                return await reconciliation.conclude_not_executed(fence, reason, retention, entry, event), "applied"
            case Again(seconds, agreed):
                return await reconciliation.look_again(fence, seconds, agreed=agreed, entry=entry, event=event), "applied"
            case _:
                assert_never(step)

    async def _ignore(self, heard: _Heard, subject: Subject, judged: Judged, step: Ignore) -> None:
        """Leave the record as it is. The store remembers only an event that a repetition cannot change; the log says
        which came too early.
        """
        if step.result in {"already", "too_early"}:
            await self._reconciliation.remember(heard.event)
        if step.result == "too_early":
            late = Judged(judged.verdict, rule=judged.rule, why=f"{judged.why}, too early to count")
            await self._reconciliation.note(subject.fence.key, subject.fence.record_id, _entry(heard, late))


def _endpoints(routes: Iterable[Route]) -> Mapping[bytes, Route]:
    return {route.policy.webhook.path.encode(): route for route in routes if route.policy is not None and route.policy.webhook is not None}


def _names(subject: Subject) -> Names:
    return Names(subject.captured.get(OWN_KEY, ""), subject.captured, subject.request_id)


def _judge(heard: _Heard, subject: Subject) -> Judged:
    return judge(Found(None, heard.headers, heard.body), heard.webhook.rules, _names(subject))


def _entry(heard: _Heard, judged: Judged) -> Entry:
    """The line of history for an event: digests, never a text of it."""
    body = heard.body
    detail: Detail = {"event": _digest(heard.event), "length": len(body), "sha256": hashlib.sha256(body).hexdigest(), "why": judged.why}
    return Entry("webhook", judged.verdict.value, detail)


def _digest(event: Event) -> str:
    return event.digest.hex()
