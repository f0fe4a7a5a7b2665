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
* the client is gone: nothing changes.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, assert_never

from gateway.core import decision as core
from gateway.core.answers import for_client, kept_for
from gateway.core.decision import Complete, Doubt, Label, Release, Settlement, settlement_name
from gateway.core.headers import first, to_store
from gateway.core.model import Headers, Lease, Record, RecordKey, Status, StoredResponse
from gateway.core.packing import INLINE
from gateway.core.policy import HintedOutcome, Mode, OnUnknown
from gateway.core.problems import Problem
from gateway.engine.answers import LOOK_AGAIN, Answer, Passed, Refused, Relayed, Replayed, Reply
from gateway.engine.failures import failed, status_in_doubt, tell_unreachable, unreachable
from gateway.engine.late import Late, Write
from gateway.engine.request import GuardedRequest
from gateway.engine.response_packing import LARGE, keep, recall
from gateway.engine.restore import Restoring
from gateway.engine.signals import heard, wants_body
from gateway.engine.tools import Tools, until_answered
from gateway.ports import (
    DoubtReason,
    InDoubt,
    NotSent,
    NotSentReason,
    Retention,
    Settled,
    Spool,
    StoreUnavailable,
    Transition,
    Upstream,
    UpstreamRequest,
    UpstreamResponse,
)

OBSERVED_PATIENCE = 0.2
"""Seconds that an observed request waits for its record at most: long enough for its repetition to be seen as one."""
SILENCE = 0.05
"""Seconds without a piece after which a stream counts as silent, not as ended."""
COMMIT_UNCONFIRMED = "commit_unconfirmed"
"""The logged reason of an answer that left after `settle_timeout`, while its settle goes on."""
ATTEMPT = b"Idempotency-Attempt"
"""Toward an upstream that deduplicates by key (`on_unknown: reexecute`): the number of a re-execution."""


@dataclass(frozen=True, slots=True)
class _Response:
    """A whole response as the client and the store see it. `body` is None once it outgrew what is kept.

    `hinted` and `retention` are what the upstream says of it, where the route trusts its word; a retention of 0 keeps no body.
    """

    status: int
    reason: bytes
    headers: Headers
    body: bytes | Spool | None
    length: int
    digest: bytes
    hinted: HintedOutcome | None = None
    retention: float | None = None

    def stored(self, body: bytes | None) -> StoredResponse:
        return StoredResponse(self.status, self.reason, to_store(self.headers), body, self.length, self.digest)


_Failure: TypeAlias = NotSent | InDoubt


class Attempt:
    """One execution under one lease. `run` is to be run as a task of its own; `reply` is done as soon as the client may be answered.

    Cancelled while the upstream works (`executing`), the attempt ends in doubt and still settles; cancelled later, it gives up settling.
    One that is stopped before `run` begins sends nothing and is released.
    """

    def __init__(
        self,
        tools: Tools,
        request: GuardedRequest,
        lease: Lease,
        upstream: Upstream,
        *,
        store_seconds: float = 0.0,
        duplicate: bool = False,
    ) -> None:
        self._tools = tools
        self._request = request
        self._lease = lease
        self._upstream = upstream
        self._store_seconds = store_seconds
        self._duplicate = duplicate
        self._label = _label(lease)
        self._spool: Spool | None = None
        self._relaying = False
        self._held_back = b""
        self._upstream_seconds = 0.0
        self._upstream_status: int | None = None
        self._expires_at_us: int | None = None
        self._executing = False
        self._stopped = False
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Execute and settle. Always leaves `reply` done; raises nothing but CancelledError."""
        self._tools.keeper.hold(self._lease)
        try:
            outcome = NotSent(NotSentReason.SHUTTING_DOWN) if self._stopped else await self._execute()
            await self._settle(outcome)
        finally:
            self._tools.keeper.drop(self._lease)
            if self._spool is not None:
                if not self._spool.ended:
                    self._spool.cut()
                self._spool.close()
            self.give_up()

    @property
    def key(self) -> RecordKey:
        return self._lease.key

    @property
    def executing(self) -> bool:
        return self._executing

    def stop(self) -> None:
        """The process is going away: if nothing has been begun yet, nothing will be."""
        self._stopped = True

    def give_up(self) -> None:
        """Leave `reply` done, also if `run` was cancelled before its first step."""
        if not self.reply.done():
            self._answer(self._unknown_answer(None), None)

    # ---- execute

    async def _execute(self) -> _Response | _Failure:
        """Send once and read the whole answer. A stop of the process while the upstream works is a doubt like any other."""
        started = self._tools.clock.boottime()
        self._executing = True
        try:
            await self._confirm_scope()
            response = await self._upstream.send(self._to_send(), lambda: self._tools.keeper.trusted(self._lease))
            try:
                self._upstream_status = response.status
                return await self._read(response)
            finally:
                response.close()
        except NotSent as failure:
            tell_unreachable(self._tools.observer, self._request.upstream, failure)
            return failure
        except InDoubt as failure:
            return failure
        except asyncio.CancelledError:
            return InDoubt(DoubtReason.GATEWAY_STOPPED)
        except Exception as error:  # a defect of ours must end in doubt, never in a record that nobody settles
            self._tools.observer.background_failed("attempt", error)
            return InDoubt(DoubtReason.GATEWAY_ERROR)
        finally:
            self._executing = False
            self._request.close()
            self._upstream_seconds = self._tools.clock.boottime() - started
            self._tools.observer.upstream_answered(self._request.route_id, self._upstream_status, self._upstream_seconds)

    async def _confirm_scope(self) -> None:
        """The record is there; so nobody gives its scope another meaning from now on, unless somebody has before. Raises `NotSent`."""
        policy, meanings = self._request.policy, self._tools.meanings
        if meanings.held(policy) or policy.mode is Mode.OBSERVE:
            return
        try:
            confirmed = await meanings.confirm(policy)
        except StoreUnavailable:
            confirmed = False
        if not confirmed:
            raise NotSent(NotSentReason.SCOPE_UNCONFIRMED)

    def _to_send(self) -> UpstreamRequest:
        """The request. An upstream that deduplicates by key is told which attempt this is, by us alone."""
        request = self._request.to_send()
        if self._request.policy.on_unknown is not OnUnknown.REEXECUTE:
            return request
        headers = tuple([field for field in request.headers if field[0].lower() != ATTEMPT.lower()])
        if self._lease.reexecution:
            headers += ((ATTEMPT, b"%d" % self._lease.attempt),)
        return replace(request, headers=headers)

    async def _read(self, response: UpstreamResponse) -> _Response:
        """Read to the end, keeping at most `response_body`. What is larger, or streams by the route's wish, is relayed meanwhile."""
        policy = self._request.policy
        headers = for_client(self._request.method, response.status, response.headers, policy, self._tools.clock.http_date())
        bodiless = self._request.method == "HEAD" or response.status in {204, 304}
        # An answer without a body has no last piece that could wait for the commit: it waits itself.
        stream = policy.stream and not bodiless and response.content_length != 0
        body = None if stream else await response.read(min(INLINE, policy.limits.response_body))
        if body is not None:
            return await self._response(response, headers, body, len(body), hashlib.sha256(body).digest())
        return await self._spool_body(response, headers)

    async def _response(
        self, response: UpstreamResponse, headers: Headers, body: bytes | Spool | None, length: int, digest: bytes
    ) -> _Response:
        """With what the upstream says of it itself."""
        policy = self._request.policy
        retention = kept_for(response.headers, policy)
        own = _Response(response.status, response.reason, headers, body, length, digest, None, retention)
        if not policy.hints:
            return own
        whole: bytes | None = None
        if body is not None and wants_body(self._request, response.status, length):
            whole = body if isinstance(body, bytes) else await self._whole(body, length)
        said = await heard(self._tools, self._request, self._lease.earlier, response, whole)
        own = replace(own, hinted=said.outcome)
        if said.answer is None:
            return own
        there, date = said.answer, (b"Date", self._tools.clock.http_date())
        return replace(
            own,
            status=there.status,
            reason=there.reason,
            headers=(*there.headers, date),
            body=there.body,
            length=there.body_length,
            digest=there.body_digest,
        )

    async def _spool_body(self, response: UpstreamResponse, headers: Headers) -> _Response:
        """Read at the upstream's pace, whatever the client's. A relayed answer leaves as it comes, all but its last piece, which waits
        for the commit.
        """
        cap = self._request.policy.limits.response_body
        spool = self._spool = self._tools.memory.spool()
        if self._request.policy.stream or (response.content_length or 0) > cap:
            self._relay(response, headers, spool)
        length, digest = 0, hashlib.sha256()
        chunks = response.chunks()
        while (chunk := await self._next(chunks, response, spool)) is not None:
            if not chunk:
                continue  # the piece that is held back until the commit must be a real one
            length += len(chunk)
            digest.update(chunk)
            if length > cap:
                self._relay(response, headers, spool)
                spool.let_go()
            await spool.write(self._held_back)
            self._held_back = chunk
        if not self._relaying:
            spool.end(self._held_back)
        body = spool if length <= cap else None
        return await self._response(response, headers, body, length, digest.digest())

    async def _next(self, chunks: AsyncIterator[bytes], response: UpstreamResponse, spool: Spool) -> bytes | None:
        """The next piece; None at the end. While a stream of unknown length is silent, the piece that is held back is let go: an event
        must not wait for the next one. What waits for the commit then is the end of the body alone.
        """
        coming = anext(chunks, None)
        if not (self._relaying and self._held_back) or response.content_length is not None:
            return await coming
        task = asyncio.ensure_future(coming)
        try:
            await asyncio.wait({task}, timeout=SILENCE)
            if not task.done():
                await spool.write(self._held_back)
                self._held_back = b""
            return await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    def _relay(self, response: UpstreamResponse, headers: Headers, spool: Spool) -> None:
        if not self._relaying:
            self._relaying = True
            self._answer(Relayed(response.status, response.reason, headers, response.content_length, spool), None)

    # ---- settle

    async def _settle(self, outcome: _Response | _Failure) -> None:
        settlement = core.settle(_as_core(outcome), self._request.policy, self._lease.earlier)
        answer = self._first_answer(outcome, settlement)
        policy = self._request.policy
        longest = policy.settle_timeout if policy.mode is Mode.ENFORCE else min(policy.settle_timeout, OBSERVED_PATIENCE)
        patience = asyncio.get_running_loop().call_later(longest, self._let_go, answer, None)
        try:
            transition = await self._record(settlement, outcome)
            if transition is Transition.MISSING:
                transition = await self._restore(settlement, outcome)
            if transition is Transition.STALE:
                if isinstance(outcome, _Response) and not self._relaying:
                    # Somebody else has settled it: what the record holds is the answer now, not ours.
                    patience.cancel()
                    patience = asyncio.get_running_loop().call_later(longest, self._let_go, self._unknown_answer(outcome), None)
                transition = await self._insist(settlement, outcome)
        finally:
            patience.cancel()
        self._tools.observer.settled(self._request.route_id, settlement_name(settlement), settlement.reason)
        if self._relaying:
            self._tell_relayed(settlement)
        if transition in (Transition.DONE, Transition.ALREADY):  # a set would be made anew every time, and its enums hashed
            self._let_go(answer, settlement)
        else:
            self._tools.observer.stale_write(settlement_name(settlement))
            if policy.mode is Mode.OBSERVE:
                self._let_go(answer, settlement)  # the record is another's; the answer is this client's all the same
            else:
                await self._answer_stale(outcome)

    def _tell_relayed(self, settlement: Settlement) -> None:
        """What became of an answer that is under way since before anybody knew; it ends after this."""
        reply = self.reply.result()
        reply.settlement, reply.reason, reply.upstream_seconds = settlement_name(settlement), settlement.reason, self._upstream_seconds

    async def _record(self, settlement: Settlement, outcome: _Response | _Failure) -> Transition:
        """Settle in the authority."""
        policy, lease, store = self._request.policy, self._lease, self._tools.store
        match settlement:
            case Complete():
                assert isinstance(outcome, _Response), "only a response completes"
                return await self._complete(outcome, partial(store.complete, lease))
            case Release(reason):
                return await self._until_settled(lambda: store.release(lease, reason, Retention.of(policy)))
            case Doubt(reason):
                return await self._until_settled(lambda: store.doubt(lease, reason))
            case _:
                assert_never(settlement)

    async def _restore(self, settlement: Settlement, outcome: _Response | _Failure) -> Transition:
        """There is no record, though this attempt had one: put it back. Another's that is there by now stays, and this one is stale."""
        restoring = Restoring(self._tools, self._request, self._lease)
        match settlement:
            case Complete():
                assert isinstance(outcome, _Response), "only a response completes"
                return await self._complete(outcome, restoring.completed)
            case Release():
                return Transition.DONE
            case Doubt(reason):
                return await self._until_settled(lambda: restoring.doubted(reason))
            case _:
                assert_never(settlement)

    async def _insist(self, settlement: Settlement, outcome: _Response | _Failure) -> Transition:
        """The record is not this attempt's, any more or again: bring its word to it all the same, where that counts."""
        policy = self._request.policy
        if not isinstance(settlement, Release) and policy.mode is Mode.ENFORCE:
            lease = await Restoring(self._tools, self._request, self._lease).claimed_again()
            if lease is not None:
                self._tools.keeper.drop(self._lease)
                self._lease = lease
                return await self._record(settlement, outcome)
        if isinstance(outcome, _Response) and core.proves_execution(_as_core(outcome), policy) and await self._late(outcome).insist():
            return Transition.DONE
        return Transition.STALE

    async def _complete(self, outcome: _Response, write: Write) -> Transition:
        """Bring the answer into the form that is kept, and write it."""
        tools, body = self._tools, outcome.body
        retention = Retention.of(self._request.policy, outcome.retention or None)
        if outcome.retention == 0.0:  # the upstream wants its answer kept nowhere; that the operation ran is kept all the same
            bare = replace(outcome.stored(None), headers=())
            return await self._until_settled(lambda: write(bare, retention))
        if body is None or isinstance(body, bytes):
            stored = await keep(tools, outcome.stored(body))
            return await self._until_settled(lambda: write(stored, retention))
        async with tools.large if outcome.length > LARGE else contextlib.nullcontext():
            tools.memory.take(outcome.length)
            try:
                large = await keep(tools, outcome.stored(await self._whole(body, outcome.length)))
                return await self._until_settled(lambda: write(large, retention))
            finally:
                tools.memory.give(outcome.length)

    async def _whole(self, body: Spool, length: int) -> bytes | None:
        """A spooled body in one piece. None if some of it is lost: then the record completes without it."""
        try:
            whole = await body.load()
        except OSError as error:
            self._tools.observer.background_failed("attempt", error)
            return None
        whole = whole if body.ended else whole + self._held_back
        return whole if len(whole) == length else None

    async def _until_settled(self, write: Callable[[], Awaitable[Settled]]) -> Transition:
        """Repeating is harmless: the owner token tells our own write."""
        settled = await until_answered(self._tools, write)
        self._expires_at_us = settled.expires_at_us
        return settled.transition

    def _late(self, outcome: _Response) -> Late:
        return Late(self._tools, self._request, self._lease, outcome.status, outcome.digest, partial(self._complete, outcome))

    async def _answer_stale(self, outcome: _Response | _Failure) -> None:
        """Our write was refused: somebody with better knowledge was first. The client gets what is stored, if anything is.

        Stored in this very record, that is: under its key another operation may have begun a new life since.
        """
        if self._relaying and self._spool is not None and not self._spool.ended:
            self._spool.cut()
        try:
            found = await self._tools.store.find(self._lease.key)
        except StoreUnavailable:
            found = None
        if found is not None and found.record_id != self._lease.record_id:
            found = None
        if not self.reply.done():
            await self._answer_found(found, outcome)
        if found is not None and isinstance(outcome, _Response) and core.proves_execution(_as_core(outcome), self._request.policy):
            await self._late(outcome).tell_conflict(found)

    async def _answer_found(self, found: Record | None, outcome: _Response | _Failure) -> None:
        kept = None if found is None else found.response
        if found is not None and found.status is Status.COMPLETED and kept is not None and kept.body is not None:
            body = await recall(self._tools, kept)
            self._answer(Replayed(kept.status, kept.reason, kept.headers, body, found.request_id, found.expires_at_us), None)
        else:
            self._answer(self._unknown_answer(outcome), None)

    # ---- answer

    def _first_answer(self, outcome: _Response | _Failure, settlement: Settlement) -> Answer:
        """Of a repetition that leaves the doubt, the client is told that nobody knows: a refusal would be taken for the operation's."""
        match outcome:
            case _Response() if self._lease.reexecution and isinstance(settlement, Doubt):
                return self._unknown_answer(outcome)
            case _Response(status, reason, headers, body):
                return Passed(status, reason, headers, body or b"")
            case NotSent():
                return unreachable(outcome)
            case InDoubt():
                return self._unknown_answer(outcome)
            case _:
                assert_never(outcome)

    def _unknown_answer(self, outcome: _Response | _Failure | None) -> Refused:
        policy, cause = self._request.policy, outcome.reason.value if isinstance(outcome, InDoubt) else None
        if policy.mode is Mode.OBSERVE:
            return failed(cause)
        status = status_in_doubt(cause)
        members = {"upstream_status": outcome.status} if isinstance(outcome, _Response) else {}
        if not policy.reconcilable:
            return Refused(Problem.OUTCOME_UNKNOWN, status, cause=cause, members=members)
        first_look = core.retry_after(self._lease.duration + policy.max_execution)
        return Refused(Problem.OUTCOME_UNKNOWN, status, retry_after=first_look, detail=LOOK_AGAIN, cause=cause, members=members)

    def _let_go(self, answer: Answer, settlement: Settlement | None) -> None:
        """Let the true answer out: whole, or the end of what is being relayed already."""
        spool = self._spool
        if not self._relaying or spool is None:
            self._answer(answer, settlement, COMMIT_UNCONFIRMED if settlement is None else None)
        elif spool.ended:
            return
        elif isinstance(answer, Passed):
            spool.end(self._held_back)
        else:
            spool.cut()

    def _answer(self, answer: Answer, settlement: Settlement | None, unsettled: str | None = None) -> None:
        if self.reply.done():
            return
        spool = self._spool
        if spool is not None and isinstance(answer, Passed | Relayed) and answer.body is spool:
            spool.hold()  # the reader's; ours ends with the attempt
        name, reason = (settlement_name(settlement), settlement.reason) if settlement is not None else (None, unsettled)
        reply = Reply(
            self._label,
            answer,
            name,
            reason,
            self._lease.attempt,
            self._store_seconds,
            self._upstream_seconds,
            self._upstream_status,
            self._expires_at_us,
            self._duplicate,
        )
        self.reply.set_result(reply)


def _label(lease: Lease) -> Label:
    if lease.reexecution:
        return Label.REEXECUTE
    return Label.EXECUTE if lease.attempt == 1 else Label.EXECUTE_RETRY


def _as_core(outcome: _Response | _Failure) -> core.Outcome:
    match outcome:
        case _Response(status):
            return core.Responded(status, outcome.hinted, bool(first(outcome.headers, b"location")))
        case NotSent():
            return core.NotSent(outcome.reason.value)
        case InDoubt():
            return core.InDoubt(outcome.reason.value)
        case _:
            assert_never(outcome)
