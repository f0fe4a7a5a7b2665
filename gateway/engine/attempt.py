"""One attempt, from the fence to the settled record. It belongs to the process, not to the client's connection.

Order: send behind the fence, read the answer, settle in the authority (commit), then let the answer go. What happens if ...

* the process dies before the settle: the lease lapses, the record becomes `unknown`, nobody runs it again;
* the settle's reply is lost: it is repeated, which the owner token makes harmless;
* the authority stays away: after `settle_timeout` the client gets the true answer and settling goes on for as long as the process
  lives, also past a lapsed lease (`complete` is allowed from `unknown` for the attempt's own owner);
* the settle finds no record, or what the attempt's claim had found: the authority has lost it, and it is put back
  (`gateway.engine.restore`);
* the settle is refused: somebody else owns the record. An answer that proves execution completes it all the same while it has not ended;
  else the record is read again, and the client gets what is stored, or `outcome-unknown`;
* the upstream completes records itself: the record is looked at before anything is settled, and what it holds is the answer;
* the client is gone: nothing changes.
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from gateway.core.decision import Settlement, settlement_name
from gateway.core.headers import Crossed, to_store
from gateway.core.model import Lease, Record, RecordKey, Status
from gateway.core.packing import INLINE
from gateway.core.policy import OnUnknown
from gateway.core.recovery_point import RecoveryPoint
from gateway.core.upstream_answer import answer_fields, kept_for
from gateway.engine.answers import Answer, Passed, Relayed, Replayed, Reply
from gateway.engine.dependencies import Dependencies
from gateway.engine.failures import tell_unreachable
from gateway.engine.outcome import Outcome, Response, first_answer, judged, label_of, unknown_answer
from gateway.engine.participation import committed, last_point, told
from gateway.engine.patience import Patience
from gateway.engine.promised import Commitment, PromisedSettling
from gateway.engine.relay import Relay
from gateway.engine.request import GuardedRequest, to_send
from gateway.engine.response_packing import recall
from gateway.engine.settling import Settling
from gateway.engine.signals import heard, wants_body
from gateway.ports import (
    DoubtReason,
    Exchanging,
    InDoubt,
    NotSent,
    NotSentReason,
    Spool,
    StoreUnavailable,
    Transition,
    UpstreamRequest,
    UpstreamResponse,
)

COMMIT_UNCONFIRMED = "commit_unconfirmed"
"""The logged reason of an answer that left after `settle_timeout`, while its settle goes on."""
ATTEMPT = b"Idempotency-Attempt"
"""Toward an upstream that deduplicates by key (`on_unknown: reexecute`): the number of a re-execution."""
_NOTHING_YET = Crossed((), ())


Came: TypeAlias = UpstreamResponse | Exception | None
"""What came of the request so far: an answer whose head is there, or why there is none. None: it was not sent yet."""


class Attempt:
    """One execution under one lease, from `begin` to the call of `on_end`; `reply` is done as soon as the client may be answered.

    The request goes out in `begin` where nothing has to be waited for. The upstream's connection then calls the attempt, its `Receiver`,
    with the answer, and a task reads and settles that; where the request must wait (for a connection, for its scope), the task sends it.

    Stopped before anything was sent, the attempt is released; stopped while the upstream works, it ends in doubt and still settles.
    """

    __slots__ = (
        "_crossed",
        "_deps",
        "_duplicate",
        "_exchange",
        "_executing",
        "_guard",
        "_lease",
        "_on_end",
        "_patience",
        "_point",
        "_relay",
        "_request",
        "_resumes",
        "_settling",
        "_started",
        "_stopped",
        "_store_seconds",
        "_task",
        "_upstream_seconds",
        "_upstream_status",
        "key",
        "reply",
    )

    def __init__(
        self,
        deps: Dependencies,
        request: GuardedRequest,
        lease: Lease,
        *,
        store_seconds: float = 0.0,
        duplicate: bool = False,
        commitment: Commitment | None = None,
    ) -> None:
        self._deps = deps
        self._request = request
        self._guard = request.guard
        self._lease = lease
        self.key: RecordKey = lease.key
        self._settling = Settling(deps, request, lease) if commitment is None else PromisedSettling(deps, request, lease, commitment)
        self._store_seconds = store_seconds
        self._duplicate = duplicate
        self._crossed = _NOTHING_YET
        self._relay: Relay | None = None
        self._upstream_seconds = 0.0
        self._upstream_status: int | None = None
        self._started = 0.0
        self._stopped = False
        self._executing = False
        self._resumes = request.guard.takes_part and lease.attempt > 1
        self._point: RecoveryPoint | None = None
        self._exchange: Exchanging | None = None
        self._task: asyncio.Task[None] | None = None
        self._on_end: Callable[[Attempt, BaseException | None], None] | None = None
        self._patience: Patience | None = None
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    # ---- lifetime

    def begin(self, on_end: "Callable[[Attempt, BaseException | None], None]", patience: Patience) -> None:
        """Send, or have a task send. What goes wrong is the task's, too."""
        self._on_end, self._patience = on_end, patience
        guard, deps = self._guard, self._deps
        self._started = deps.clock.boottime()
        came: Came = None
        try:
            deps.keeper.hold(self._lease)
            if not (self._stopped or self._resumes) and (guard.observes or deps.meanings.held(guard.policy)):
                self._exchange = guard.upstream.begin(self._to_send(), self._fence(), self)
        except Exception as error:
            came = error
        if self._exchange is None:
            self._go_on(came)

    def answered(self, response: UpstreamResponse) -> None:
        """See `gateway.ports.Receiver`."""
        self._go_on(response)

    def failed(self, failure: InDoubt | NotSent) -> None:
        """See `gateway.ports.Receiver`."""
        self._go_on(failure)

    def not_begun(self) -> None:
        """See `gateway.ports.Receiver`."""
        self._exchange = None
        self._go_on(None)

    def stop(self) -> None:
        """The process is going away: what was not sent yet is not sent any more, and what is at the upstream ends in doubt."""
        self._stopped = True
        exchange = self._exchange
        if exchange is not None and self._task is None:
            held = exchange.held
            exchange.close()
            self._go_on(NotSent(NotSentReason.SHUTTING_DOWN) if held else InDoubt(DoubtReason.GATEWAY_STOPPED))
        elif self._executing and self._task is not None:
            self._task.cancel()

    def give_up(self) -> None:
        """End without settling, at once."""
        self.stop()
        if self._task is not None:
            self._task.cancel()

    def _go_on(self, came: Came) -> None:
        """The rest is a task's. The first word of the upstream counts."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(came))
            self._task.add_done_callback(self._end)

    async def _run(self, came: Came) -> None:
        outcome = await self._execute(came)
        if self._guard.co_commits and not self._relaying:
            outcome = await self._look(outcome)
        await self._settle(outcome)

    def _end(self, task: "asyncio.Task[None]") -> None:
        """Whatever has ended the task, and if it was cancelled before its first step: leave `reply` done, and nothing held."""
        assert self._on_end is not None, "given before anything could end"
        try:
            self._deps.keeper.drop(self._settling.lease)
            self._request.close()
            if self._relay is not None:
                self._relay.close()
            if not self.reply.done():
                self._answer(unknown_answer(None, self._lease, self._guard.policy))
            if self._guard.terms.quota is not None and self._deps.quotas is not None:
                self._deps.quotas.leave(self._lease.owner)
        finally:
            self._on_end(self, None if task.cancelled() else task.exception())

    # ---- execute

    async def _execute(self, came: Came) -> Outcome:
        """Read the whole answer that came; send first, if nothing has been sent. A stop of the process while the upstream works is a doubt
        like any other.
        """
        deps, guard = self._deps, self._guard
        self._executing = True
        try:
            if came is None:
                came = await self._send()
            elif isinstance(came, Exception):
                raise came
            try:
                self._upstream_status = came.status
                return await (self._read_now(came) if self._stopped else self._read(came))
            finally:
                came.close()
        except NotSent as failure:
            tell_unreachable(deps.observer, guard.upstream_name, failure)
            return failure
        except InDoubt as failure:
            return failure
        except asyncio.CancelledError:
            return InDoubt(DoubtReason.GATEWAY_STOPPED)
        except Exception as error:  # a defect of ours must end in doubt, never in a record that nobody settles
            deps.observer.background_failed("attempt", error)
            return InDoubt(DoubtReason.GATEWAY_ERROR)
        finally:
            self._executing = False
            self._request.close()
            self._upstream_seconds = deps.clock.boottime() - self._started
            deps.observer.upstream_answered(guard.route_id, self._upstream_status, self._upstream_seconds)

    async def _send(self) -> UpstreamResponse:
        """Send what could not be sent at once."""
        if self._stopped:
            raise NotSent(NotSentReason.SHUTTING_DOWN)
        guard = self._guard
        if not (guard.observes or self._deps.meanings.held(guard.policy)):
            await self._confirm_scope()
        if self._resumes:
            self._point = await last_point(self._deps, self._lease)
        return await guard.upstream.send(self._to_send(), self._fence())

    def _fence(self) -> Callable[[], bool]:
        return partial(self._deps.keeper.trusted, self._lease)

    async def _confirm_scope(self) -> None:
        """The record is there; so nobody gives its scope another meaning from now on, unless somebody has before. Raises `NotSent`."""
        try:
            confirmed = await self._deps.meanings.confirm(self._guard.policy)
        except StoreUnavailable:
            confirmed = False
        if not confirmed:
            raise NotSent(NotSentReason.SCOPE_UNCONFIRMED)

    def _to_send(self) -> UpstreamRequest:
        """The request. An upstream that deduplicates by key is told which attempt this is, by us alone."""
        request = to_send(self._request)
        if self._guard.takes_part:
            return told(request, self._lease, self._point)
        if self._guard.policy.on_unknown is not OnUnknown.REEXECUTE:
            return request
        headers = tuple([field for field in request.headers if field[0].lower() != ATTEMPT.lower()])
        if self._lease.reexecution:
            headers += ((ATTEMPT, b"%d" % self._lease.attempt),)
        return replace(request, headers=headers)

    async def _read(self, response: UpstreamResponse) -> Response:
        """Read to the end, keeping at most `response_body`. What is larger, or streams by the route's wish, is relayed meanwhile."""
        guard, policy, method = self._guard, self._guard.policy, self._request.method
        crossed = answer_fields(method, response.status, response.headers, guard.removed, self._deps.clock.http_date(), guard.added)
        # An answer without a body has no last piece that could wait for the commit: it waits itself.
        stream = policy.stream and response.content_length != 0 and method != "HEAD" and response.status not in {204, 304}
        whole = None if stream else await response.read(min(INLINE, policy.limits.response_body))
        body: bytes | Spool | None = whole
        if whole is not None:
            length, digest = len(whole), hashlib.sha256(whole).digest()
        else:
            self._crossed = crossed
            self._relay = self._settling.relay = relay = Relay(self._deps.memory, self._deps.observer, self._relayed)
            length, digest = await relay.read(response, policy.limits.response_body, stream=policy.stream)
            body = relay.spool if length <= policy.limits.response_body else None
        own = Response(response.status, response.reason, crossed.to_client, crossed.to_store, body, length, digest)
        if policy.trust_retention:
            own.retention = kept_for(response.headers, policy)
        return await self._hear(response, own) if policy.hints else own

    async def _read_now(self, response: UpstreamResponse) -> Response:
        """The process was stopped as the answer came: what is not there yet is not waited for."""
        try:
            async with asyncio.timeout(0):
                return await self._read(response)
        except TimeoutError:
            raise InDoubt(DoubtReason.GATEWAY_STOPPED) from None

    async def _hear(self, response: UpstreamResponse, own: Response) -> Response:
        """With what the upstream says of it itself."""
        whole: bytes | None = None
        if own.body is not None and wants_body(self._request, response.status, own.length):
            whole = own.body if isinstance(own.body, bytes) else await self._whole(own.length)
        said = await heard(self._deps, self._request, self._lease.earlier, response, whole)
        own.hinted = said.outcome
        if said.answer is None:
            return own
        there = said.answer
        headers = (*there.headers, (b"Date", self._deps.clock.http_date()))
        sent = tuple([field for field in headers if field[0].lower() != b"x-request-id"])
        body, length, digest = there.body, there.body_length, there.body_digest
        return Response(there.status, there.reason, sent, to_store(headers), body, length, digest, said.outcome, own.retention)

    async def _whole(self, length: int) -> bytes | None:
        assert self._relay is not None, "what was not read in one piece was spooled"
        return await self._relay.whole(length)

    def _relayed(self, response: UpstreamResponse, spool: Spool) -> None:
        self._answer(Relayed(response.status, response.reason, self._crossed.to_client, response.content_length, spool))

    # ---- settle

    async def _look(self, outcome: Outcome) -> Outcome:
        """What the upstream has committed is the answer, whatever it said over HTTP, and ends every doubt. The client waits for the look as
        for a commit.
        """
        guard, patience = self._guard, self._patience
        assert patience is not None, "it has begun"
        answer = first_answer(outcome, judged(outcome, guard, self._lease.earlier), self._lease, guard.policy)
        patience.wait(self, guard.patience, partial(self._let_go, answer, None, COMMIT_UNCONFIRMED))
        try:
            return await committed(self._deps, self._request, self._settling.lease, outcome) or outcome
        finally:
            patience.end(self)

    async def _settle(self, outcome: Outcome) -> None:
        guard, patience = self._guard, self._patience
        assert patience is not None, "it has begun"
        settlement = judged(outcome, guard, self._lease.earlier)
        name = settlement_name(settlement)
        answer = first_answer(outcome, settlement, self._lease, guard.policy)
        patience.wait(self, guard.patience, partial(self._let_go, answer, None, COMMIT_UNCONFIRMED))
        try:
            transition = await self._settling.record(settlement, outcome)
            if transition is not Transition.DONE:
                transition = await self._settle_all_the_same(transition, settlement, outcome, patience)
        finally:
            patience.end(self)
        self._deps.observer.settled(guard.route_id, name, settlement.reason)
        relay = self._relay
        if relay is not None and relay.relaying:
            self._tell_relayed(name, settlement.reason)
        if transition is Transition.DONE or transition is Transition.ALREADY:
            self._let_go(answer, name, settlement.reason)
        else:
            self._deps.observer.stale_write(name)
            if guard.observes:
                self._let_go(answer, name, settlement.reason)  # the record is another's; the answer is this client's all the same
            else:
                await self._answer_stale(outcome)

    async def _settle_all_the_same(
        self, transition: Transition, settlement: Settlement, outcome: Outcome, patience: Patience
    ) -> Transition:
        """The authority has lost the record, or it is another's."""
        if transition is Transition.MISSING:
            transition = await self._settling.restore(settlement, outcome)
        if transition is not Transition.STALE:
            return transition
        if isinstance(outcome, Response) and not self._relaying:
            # Somebody else has settled it: what the record holds is the answer now, not ours.
            unknown = unknown_answer(outcome, self._lease, self._guard.policy)
            patience.wait(self, self._guard.patience, partial(self._let_go, unknown, None, COMMIT_UNCONFIRMED))
        return await self._settling.insist(settlement, outcome)

    def _tell_relayed(self, name: str, reason: str) -> None:
        """What became of an answer that is under way since before anybody knew; it ends after this."""
        reply = self.reply.result()
        reply.settlement, reply.reason, reply.upstream_seconds = name, reason, self._upstream_seconds

    async def _answer_stale(self, outcome: Outcome) -> None:
        """Our write was refused: somebody with better knowledge was first. The client gets what is stored, if anything is.

        Stored in this very record, that is: under its key another operation may have begun a new life since.
        """
        lease = self._settling.lease
        if self._relaying and self._relay is not None:
            self._relay.cut()
        try:
            found = await self._deps.store.find(lease.key)
        except StoreUnavailable:
            found = None
        if found is not None and found.record_id != lease.record_id:
            found = None
        if not self.reply.done():
            await self._answer_found(found, outcome)
        await self._settling.tell_conflict(outcome, found)

    async def _answer_found(self, found: Record | None, outcome: Outcome) -> None:
        kept = None if found is None else found.response
        if found is not None and found.status is Status.COMPLETED and kept is not None and kept.body is not None:
            try:
                body = await recall(self._deps, kept)
            except ValueError as error:  # nobody knows what is stored
                self._deps.observer.background_failed("replay", error)
                self._answer(unknown_answer(outcome, self._lease, self._guard.policy))
                return
            self._answer(Replayed(kept.status, kept.reason, kept.headers, body, found.request_id, found.expires_at_us))
        else:
            self._answer(unknown_answer(outcome, self._lease, self._guard.policy))

    # ---- answer

    @property
    def _relaying(self) -> bool:
        return self._relay is not None and self._relay.relaying

    def _let_go(self, answer: Answer, settlement: str | None, reason: str) -> None:
        """Let the true answer out: whole, or the end of what is being relayed already."""
        relay = self._relay
        if relay is None or not relay.relaying:
            self._answer(answer, settlement, reason)
        elif relay.ended:
            return
        elif isinstance(answer, Passed):
            relay.end()
        else:
            relay.cut()

    def _answer(self, answer: Answer, settlement: str | None = None, reason: str | None = None) -> None:
        if self.reply.done():
            return
        relay = self._relay
        if relay is not None and isinstance(answer, Passed | Relayed) and answer.body is relay.spool:
            relay.spool.hold()  # the reader's; ours ends with the attempt
        self.reply.set_result(
            Reply(
                label_of(self._lease),
                answer,
                settlement,
                reason,
                self._settling.lease.attempt,
                self._store_seconds,
                self._upstream_seconds,
                self._upstream_status,
                self._settling.expires_at_us,
                self._duplicate,
                self._started or None,
            )
        )
