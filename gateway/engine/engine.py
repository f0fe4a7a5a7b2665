"""One guarded request's life: reserve, decide, execute or answer.

The engine awaits a store, lets `gateway.core.decision` judge what is there, and carries out. It holds no rule of its own about
states. Everything that is not pure comes in as an argument, so that the whole engine runs under a virtual clock and a seeded scheduler.
"""

import asyncio
from collections.abc import Awaitable

from gateway.core.decision import Claim, Decision, Gone, InProgress, Label, Lapse, Replay, Unknown, decide
from gateway.core.duplicates import Duplicates
from gateway.core.fingerprint import Content
from gateway.core.model import Earlier, Fingerprint, Lease, Record, Status, Tombstone
from gateway.core.packing import INLINE
from gateway.core.policy import InFlight, OnStoreOutage
from gateway.core.problems import Problem
from gateway.engine.accepted import AcceptedWork
from gateway.engine.answers import Refused, Reply
from gateway.engine.attempt import Attempt
from gateway.engine.attempts import Attempts
from gateway.engine.decided import answer_to, label_of, over_quota, replay_of, told_at_once
from gateway.engine.dependencies import Dependencies
from gateway.engine.foreign_fingerprints import ForeignFingerprints
from gateway.engine.intents import intent_of
from gateway.engine.kept import keep_request
from gateway.engine.lost import LostReplies, LostReply
from gateway.engine.request import GuardedRequest, content_of
from gateway.engine.response_packing import recall
from gateway.engine.sealed import seal
from gateway.engine.search import Found, Search, Statement
from gateway.engine.unprotected import forward_unprotected
from gateway.engine.waiting import Waiting
from gateway.ports import StoreUnavailable, Swept
from gateway.ports.quotas import OverQuota

ANOTHER_MEANING = "Whose keys these are is configured otherwise by now, and this gateway has not learnt of it."


class Engine:
    """Guards requests. One for each process; attempts and their background work are its own and end with `drain`."""

    def __init__(self, deps: Dependencies, foreign: ForeignFingerprints) -> None:
        self._deps = deps
        self._foreign = foreign
        self._attempts = Attempts(deps.clock, deps.observer, self._ended)
        self._waiting = Waiting(deps.clock, deps.observer, deps.store.find, self._attempts.runs)
        self._lost = LostReplies(deps)
        self.accepted: AcceptedWork | None = None
        if deps.acceptance is not None and deps.abandoned is not None:
            self.accepted = AcceptedWork(deps, deps.acceptance, self._attempts, deps.abandoned)

    async def handle(self, request: GuardedRequest) -> Reply:
        """As `answer`, for those who wait in any case."""
        reply = self.answer(request)
        return reply if isinstance(reply, Reply) else await reply

    def answer(self, request: GuardedRequest) -> Reply | Awaitable[Reply]:
        """Answer one request: at once, if all that it takes is in this process's memory. What the caller awaits raises
        nothing; cancelled, it leaves a running attempt alone.

        On a route that observes, it is forwarded whatever is decided about it, and recorded, so that a later one can be
        judged: the reply's label is the decision. The request is closed as soon as nobody needs its body.
        """
        deps, guard = self._deps, request.guard
        started, found = deps.clock.boottime(), None
        try:
            if guard.observes:
                return self._find_out(request, Search(started), self._prepare(request), None)
            if deps.meanings.differs(guard.policy):
                request.close()
                return Reply(Label.STORE_UNAVAILABLE, Refused(Problem.STORE_UNAVAILABLE, retry_after=1, detail=ANOTHER_MEANING))
            preparation = self._prepare(request)
            if preparation is None and deps.remembered is not None:
                found = deps.remembered(request.key, request.meaning, started)
            if found is not None and (reply := told_at_once(found, request)) is not None:
                request.original = found.record.request_id
                request.close()
                reply.store_seconds = deps.clock.boottime() - started
                return reply
        except BaseException:
            request.close()
            raise
        return self._find_out(request, Search(started), preparation, None if found is None else found.record)

    async def _find_out(self, request: GuardedRequest, search: Search, preparation: Awaitable[None] | None, found: Found) -> Reply:
        """Answer a request that waits for something: its `preparation`, a store, an upstream. `found` is what is known
        already.
        """
        try:
            if preparation is not None:
                await preparation
            if request.guard.captures:
                await self._keep(request)
            while found is None or isinstance(found, Record | Tombstone):
                if found is not None:
                    found = await self._judge(request, found, search)
                    continue
                intent = search.begin(self._statement(request))
                try:
                    found = await self._deps.store.reserve(intent)
                except (StoreUnavailable, OverQuota, asyncio.CancelledError) as error:
                    found = await self._not_reserved(request, search.statement, error)
                if search.place is not None:
                    search.place.hurry()
            return await self._end(request, found, search)
        except (StoreUnavailable, OverQuota) as error:
            return await self._without_record(request, error, search)
        finally:
            if search.place is not None:
                search.leave()
            if not search.executes:
                request.close()
                if isinstance(found, Lease) and self._deps.quotas is not None:
                    self._deps.quotas.leave(found.owner)

    # ---- before the reserve

    def _prepare(self, request: GuardedRequest) -> Awaitable[None] | None:
        """Make the fingerprint. What has to be waited for is returned."""
        guard, content = request.guard, content_of(request)
        if isinstance(content.body, bytes) and len(content.body) > INLINE:
            return self._prepare_slowly(request, content)
        request.meaning = guard.fingerprinter.fingerprint(content, request.read_head)
        return None

    async def _prepare_slowly(self, request: GuardedRequest, content: Content) -> None:
        """The fingerprint of a large body is made off the event loop."""
        request.meaning = await self._deps.offload(request.guard.fingerprinter.fingerprint, content)

    async def _keep(self, request: GuardedRequest) -> None:
        """What is kept with the record for finding out a doubt: it is in the reserve's row, so that it lasts before anything is sent."""
        request.capture()
        if request.guard.seals:
            await seal(self._deps, request)

    # ---- reserve and decide

    def _statement(self, request: GuardedRequest) -> Statement:
        """With a fresh owner token: a statement that was lost can then never be taken for another's."""
        return Statement(intent_of(request, request.meaning, self._deps.randomness.token()), self._deps.clock.boottime())

    async def _judge(self, request: GuardedRequest, found: Record | Tombstone, search: Search) -> Found:
        """Carry out what the core decides about what is there. None: reserve again."""
        search.seen = True
        request.original = None if isinstance(found, Tombstone) else found.request_id
        if isinstance(found, Tombstone):
            return Gone(found)
        if search.statement is not None and found.owner == search.statement.intent.owner:  # it was repeated, and sees that it had landed
            return await self._reply_lost(request, search.statement, StoreUnavailable("authority", "timeout", may_have_landed=True))
        decision = decide(found, await self._comparable(request, found), request.guard.policy, later=request.later)
        match decision:
            case Claim() if search.place is not None:  # nobody who waits runs again what an attempt has given back
                return InProgress(found)
            case Claim() if request.guard.observes and found.status is Status.UNKNOWN:
                return decision
            case Claim() | Lapse() if search.over:
                return InProgress(found)
            case Claim():
                return await self._claim(request, found)
            case Lapse():
                await self._lapse(request, found, search)
            case InProgress() if self._waits(request, search):
                pass
            case _:
                return decision
        return await search.next(found)

    async def _comparable(self, request: GuardedRequest, found: Record) -> Fingerprint | None:
        return await self._foreign.comparable(content_of(request), request.meaning, found.fingerprint)

    async def _claim(self, request: GuardedRequest, found: Record) -> Lease | Decision | None:
        statement = self._statement(request)
        try:
            return await self._deps.store.claim(found, statement.intent)
        except OverQuota as error:
            if found.status is Status.UNKNOWN:  # a refusal would say that nothing has run
                return Unknown(found, error.exceeded.retry_after)
            raise
        except (StoreUnavailable, asyncio.CancelledError) as error:
            return await self._reply_lost(request, statement, error, claimed=found)

    async def _lapse(self, request: GuardedRequest, found: Record, search: Search) -> None:
        """What the sweeper would do, found on the way: counted and logged like its own finds."""
        if not search.mine:
            return
        if await self._deps.store.lapse(found):
            self._deps.observer.swept([Swept(found.key, request.guard.route_id, found.request_id, found.attempt)])
        if search.place is not None:
            search.place.hurry()

    def _waits(self, request: GuardedRequest, search: Search) -> bool:
        """Whether the request waits for the running attempt's end, at most `wait` seconds: for a replay, or the conflict answer."""
        policy = request.guard.policy
        if search.place is None and policy.in_flight is InFlight.WAIT and not (request.guard.observes or self._waiting.full):
            search.wait(self._waiting.place(request.key, policy.wait, request.client))
        return search.place is not None

    # ---- lost replies

    async def _not_reserved(
        self, request: GuardedRequest, statement: Statement | None, error: StoreUnavailable | OverQuota | asyncio.CancelledError
    ) -> Lease | Record | Tombstone:
        """What there is all the same. Replays and duplicates are for callers without a quota, too: where the authority has a record, or a
        tombstone that the route asks for, that counts. Raises `error`; or that the store is away, since a refusal would say that nothing
        has run.
        """
        if not isinstance(error, OverQuota):
            return await self._reply_lost(request, statement, error)
        try:
            found = await self._deps.store.find(request.key) or await self._tombstone(request)
        except StoreUnavailable as away:
            raise StoreUnavailable(away.store, away.reason, may_have_landed=False, asked=True) from error
        if found is None:
            raise error
        return found

    async def _tombstone(self, request: GuardedRequest) -> Tombstone | None:
        acceptance = None if request.guard.terms.gone_for is None else self._deps.acceptance
        return None if acceptance is None else await acceptance.tombstone(request.key)

    async def _reply_lost(
        self,
        request: GuardedRequest,
        statement: Statement | None,
        error: StoreUnavailable | asyncio.CancelledError,
        *,
        claimed: Record | None = None,
    ) -> Lease:
        """What follows from a statement that failed. Either a write of ours says that the record is ours, and we go on; or we answer 503,
        having sent nothing upstream, and release in the background. Never both. Raises `error`.
        """
        if statement is None or (isinstance(error, StoreUnavailable) and not error.may_have_landed):
            raise error
        earlier = Earlier.NOTHING if claimed is None else claimed.earlier
        retention = request.guard.retention
        lost = LostReply.of(statement.intent, statement.sent, retention, settled_by_stale=claimed is None, earlier=earlier)
        if isinstance(error, asyncio.CancelledError):
            self._lost.take_back(lost)
            raise error
        lease = await self._confirm(lost)
        if lease is None:
            raise error
        if self._deps.quotas is not None:
            self._deps.quotas.regain(statement.intent)
        return lease

    async def _confirm(self, lost: LostReply) -> Lease | None:
        return await self._lost.confirm(lost)

    # ---- execute or answer

    def _end(self, request: GuardedRequest, found: Lease | Decision, search: Search) -> Awaitable[Reply]:
        """Execute, or answer."""
        guard = request.guard
        seconds = 0.0 if guard.observes else self._deps.clock.boottime() - search.started
        if not isinstance(found, Lease):
            return self._answer(request, found, seconds)
        if request.later and self.accepted is not None:
            return self._accept(request, found, seconds)
        try:
            duplicate = guard.duplicates is not None and self._duplicate(request, guard.duplicates)
            attempt = Attempt(self._deps, request, found, store_seconds=seconds, duplicate=duplicate)
            self._attempts.begin(attempt, guards=not guard.observes)
        except BaseException:  # a defect of ours: nothing was sent under this lease, and nothing will be
            self._lost.take_back(LostReply(found, guard.retention, settled_by_stale=True, earlier=found.earlier))
            raise
        search.executes = True
        return attempt.reply

    async def _accept(self, request: GuardedRequest, lease: Lease, store_seconds: float) -> Reply:
        """Promise to run it. Where that cannot be done, nothing was sent, and the record is taken back."""
        assert self.accepted is not None, "asked before"
        try:
            kept = await keep_request(request)
            begun = self.accepted.begin(kept, lease)
        except BaseException as error:
            self._lost.take_back(LostReply(lease, request.guard.retention, settled_by_stale=True, earlier=lease.earlier))
            if not isinstance(error, OSError):
                raise
            self._deps.observer.background_failed("seal", error)
            return Reply(Label.STORE_UNAVAILABLE, Refused(Problem.STORE_UNAVAILABLE, retry_after=1))
        reply = await self.accepted.promise(kept, lease, begun, request.patience)
        if reply.label is Label.TOO_MANY_PENDING and self._deps.quotas is not None:
            self._deps.quotas.give_back(lease.owner)
        reply.store_seconds = store_seconds
        return reply

    async def _answer(self, request: GuardedRequest, decision: Decision, store_seconds: float) -> Reply:
        if request.guard.observes:
            return await forward_unprotected(self._deps, request, label_of(decision))
        reply = await self._replay(decision) if isinstance(decision, Replay) else answer_to(decision)
        reply.store_seconds = store_seconds
        return reply

    async def _replay(self, decision: Replay) -> Reply:
        """The stored answer. One that cannot be unpacked is told like a record that cannot be read: never guessed at, never run again."""
        try:
            body = await recall(self._deps, decision.response)
        except ValueError as error:
            self._deps.observer.background_failed("replay", error)
            return Reply(Label.STORE_UNAVAILABLE, Refused(Problem.STORE_UNAVAILABLE, retry_after=1))
        return replay_of(decision, body)

    async def _without_record(self, request: GuardedRequest, error: StoreUnavailable | OverQuota, search: Search) -> Reply:
        """The caller has used up its quota, or a store could not be asked. Where a record was seen, forwarding without it could run the
        operation twice, whatever the route says of an outage.
        """
        if isinstance(error, OverQuota):
            reply = over_quota(request.guard.terms, error.exceeded)
            reply.store_seconds = self._deps.clock.boottime() - search.started
            return reply
        if request.guard.observes:
            return await forward_unprotected(self._deps, request, Label.STORE_UNAVAILABLE)
        if request.guard.policy.on_store_outage is OnStoreOutage.FORWARD and not self._asked(error, search):
            return await forward_unprotected(self._deps, request)
        seconds = self._deps.clock.boottime() - search.started
        return Reply(Label.STORE_UNAVAILABLE, Refused(Problem.STORE_UNAVAILABLE, retry_after=1), store_seconds=seconds)

    def _asked(self, unavailable: StoreUnavailable, search: Search) -> bool:
        """Whether the authority may know anything of the request, or of its key."""
        return unavailable.asked or search.seen

    def _duplicate(self, request: GuardedRequest, duplicates: Duplicates) -> bool:
        """Whether this caller has lately sent an equal request under another key: counted and told of, never deduplicated."""
        digest, now = request.meaning.digest, self._deps.clock.boottime()
        if not duplicates.seen(request.key.scope_id, digest, request.key.lookup_digest(), now):
            return False
        self._deps.observer.duplicate_seen(request.guard.route_id, request.key_digest or "")
        return True

    # ---- lifetimes

    def _ended(self, attempt: Attempt) -> None:
        self._waiting.ended(attempt.key)

    @property
    def in_flight(self) -> int:
        """How many attempts and background releases this process still owes an end."""
        return self._attempts.in_flight + self._lost.pending + (0 if self.accepted is None else self.accepted.pending)

    async def drain(self, timeout: float, grace: float = 2.0) -> bool:
        """Wait for all attempts to settle. After `timeout` seconds those at an upstream end in doubt at once, so that nobody has to wait
        for their leases to lapse, and nothing new is sent; after `grace` more the rest is given up. True if no attempt was given up.

        What was to be taken back after a lost reply is asked for once more, for `grace` at most.
        """
        if self.accepted is not None:
            self.accepted.stop()
            await self.accepted.stopped()
        await self._attempts.quiet(timeout)
        self._attempts.stop()
        await asyncio.gather(self._attempts.quiet(grace), self._lost.drain(grace))
        if self.accepted is not None:
            await self.accepted.drain(grace)
        return await self._attempts.give_up()
