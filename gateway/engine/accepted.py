"""Accepted work of one process: it promises, runs what it has slots for, and takes what is left by others.

A first request is reserved like any other. Then its operation is begun at once where there is a free slot, and the record says that it was
accepted; or the record is parked, with nothing sent, for whoever has a slot first. Either write answers before the client is told 202; the
client waits for it `settle_timeout` at most, since the record lasts already, and the write is repeated in the background.

There is no leader. Each process looks about once a second for what is due on its accepting routes, and as soon as one of its slots is free
where it knows of more. A statement whose reply is lost may have taken records of which this process does not know: pending ones are given
back by their owner tokens, for as long as it can land; those in doubt are in doubt again when their leases have lapsed.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from gateway.core.decision import Label
from gateway.core.model import Lease, Status, StoredResponse
from gateway.core.problems import Problem
from gateway.engine.answers import Passed, Promised, Refused, Relayed, Replayed, Reply
from gateway.engine.attempt import COMMIT_UNCONFIRMED, Attempt
from gateway.engine.attempts import Attempts
from gateway.engine.dependencies import Dependencies
from gateway.engine.intents import intent_of, uncounted
from gateway.engine.kept import KeptRequest, open_request
from gateway.engine.promised import Commitment
from gateway.engine.retrying import until_answered
from gateway.engine.told import finished_attempt
from gateway.plan import GuardPlan
from gateway.ports import StoreUnavailable
from gateway.ports.accepted import Acceptance, Parked, Promise, Taken
from gateway.ports.reconciliation import Unsealable

LOOK_EVERY = 1.0
"""Seconds, give or take a half, between two looks for due work."""

AT_ONCE = 64
"""How many records one statement takes, at most."""

ABANDON_EVERY, ABANDON_IDLE = 2.0, 60.0
"""Seconds between two looks for what is over; where no route accepts, there can only be what others have left."""

ABANDON_AT_ONCE = 200
UNSEALABLE_AGAIN = 60.0
"""Seconds after which a request is opened again that no key of this process opens."""

_NO_LIMIT = 2**62

NO_SLOT = "no_slot"
UNSEALABLE = "unsealable"
TASK = "accepted"

T = TypeVar("T")


@dataclass(slots=True)
class _Lost:
    """Owner tokens under which records may have been taken, or may be yet."""

    owners: Sequence[bytes]
    until: float


class AcceptedWork:
    """One for each engine. `abandoned` makes what an operation is completed with when no try is left."""

    def __init__(self, deps: Dependencies, acceptance: Acceptance, attempts: Attempts, abandoned: Callable[[], StoredResponse]) -> None:
        self._deps = deps
        self._acceptance = acceptance
        self._attempts = attempts
        self._abandoned = abandoned
        self._guards: Sequence[GuardPlan] = ()
        self._running: Counter[str] = Counter()
        self._more: set[str] = set()
        self._lost: list[_Lost] = []
        self._writes: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._stopped = False
        self._taking = asyncio.Lock()
        self._abandon_at = 0.0

    def serve(self, guards: Sequence[GuardPlan]) -> None:
        """From now on these are the guarded routes."""
        self._guards = [guard for guard in guards if guard.promise is not None]

    @property
    def pending(self) -> int:
        """How many writes are still repeated."""
        return len(self._writes)

    # ---- accept

    def begin(self, kept: KeptRequest, lease: Lease) -> Attempt | None:
        """Run the operation whose record this lease is of, where there is a free slot and nobody waits for it. A re-execution
        needs no slot: it may not wait as pending, since an attempt before it may have executed.
        """
        guard, promise = kept.guard, kept.guard.promise
        assert promise is not None, "the route accepts"
        if not lease.reexecution and (self._stopped or guard.route_id in self._more or self._free(guard) <= 0):
            return None
        return self._begin(kept, lease, lease.started + promise.pending_for, 0.0)

    async def promise(self, kept: KeptRequest, lease: Lease, begun: Attempt | None, patience: int) -> Reply:
        """Have the record say that it was accepted, and tell the client; or park it, where the operation was not begun. A client that waits
        for `patience` seconds gets the answer, if there is one by then.
        """
        guard, promise = kept.guard, kept.guard.promise
        assert promise is not None, "the route accepts"
        if begun is None:
            return await self._park(kept, lease, promise)
        reply: Reply | None = None
        try:
            await self._said(guard, lambda: self._acceptance.accept(lease, promise))
            if patience:
                reply = await _within(patience, begun.reply)
        finally:  # also if the client has left
            if reply is None:
                begun.reply.add_done_callback(partial(self._unheard, kept, lease, 0.0))
        return reply or _told(kept, lease, Status.IN_PROGRESS)

    async def _park(self, kept: KeptRequest, lease: Lease, promise: Promise) -> Reply:
        guard, store = kept.guard, self._deps.store
        late: Callable[[Parked], Awaitable[None]] = partial(self._keep_promise, kept, lease, promise)
        parked = await self._said(guard, lambda: store.park(lease, NO_SLOT, 0.0, promise, unstarted=True), late)
        match parked:
            case Parked.FULL:
                self._write(lambda: store.release(lease, NO_SLOT, guard.retention))
                return Reply(Label.TOO_MANY_PENDING, Refused(Problem.TOO_MANY_PENDING, retry_after=1))
            case Parked.STALE | Parked.MISSING:
                return Reply(Label.IN_PROGRESS, Refused(Problem.REQUEST_IN_PROGRESS, retry_after=1))
            case Parked.DONE | Parked.ALREADY | None:
                self._more.add(guard.route_id)
                if self._free(guard) > 0:  # the last slot was freed meanwhile: nobody else wakes the look
                    self._wake.set()
                return _told(kept, lease, Status.PENDING)

    async def _keep_promise(self, kept: KeptRequest, lease: Lease, promise: Promise, parked: Parked) -> None:
        """The client has a 202, or nothing, and now the authority says that too many wait: no limit counts any more. A refusal whose reply
        was lost has deleted the record; then it is made anew, unless the key has another by now.
        """
        if parked is not Parked.FULL and parked is not Parked.MISSING:
            return
        deps, store = self._deps, self._deps.store
        promise = replace(promise, per_route=_NO_LIMIT, per_principal=_NO_LIMIT)
        if await until_answered(deps, partial(store.park, lease, NO_SLOT, 0.0, promise, unstarted=True)) is Parked.MISSING:
            intent = uncounted(intent_of(kept, kept.meaning, deps.randomness.token()))
            await until_answered(deps, partial(store.reserve, intent))
            anew = replace(lease, owner=intent.owner, attempt=1, intent=intent)
            await until_answered(deps, partial(store.park, anew, NO_SLOT, 0.0, promise, unstarted=True))

    async def _said(
        self, guard: GuardPlan, ask: Callable[[], Awaitable[T]], late: Callable[[T], Awaitable[None]] | None = None
    ) -> T | None:
        """What the authority answers, asked until it does; None if that takes longer than a client waits. It is asked on then,
        and `late` is told the answer. So it is when this call is cancelled.
        """
        answered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        waits = True

        async def write() -> None:
            said = await until_answered(self._deps, ask)
            if waits:
                answered.set_result(said)
            elif late is not None:
                await late(said)

        self._spawn(write())
        # A wait that cancels nothing: an answer that comes in the moment in which it ends is still an answer.
        try:
            await asyncio.wait([answered], timeout=guard.policy.settle_timeout)
        finally:  # also if the request was given up, as a drain does: then nobody else hears what the authority says
            waits = answered.done()
        return answered.result() if waits else None

    def _write(self, ask: Callable[[], Awaitable[object]]) -> None:
        async def write() -> None:
            await until_answered(self._deps, ask)

        self._spawn(write())

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._writes.add(task)
        task.add_done_callback(self._written)

    def _written(self, task: "asyncio.Task[None]") -> None:
        self._writes.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._deps.observer.background_failed(TASK, error)

    # ---- run

    def _free(self, guard: GuardPlan) -> int:
        return guard.policy.concurrency - self._running[guard.upstream_name]

    def _begin(self, kept: KeptRequest, lease: Lease, until: float, waited: float) -> Attempt:
        """Run it in a slot, which is free again when the attempt has come to its end."""
        deps, guard = self._deps, kept.guard
        assert guard.promise is not None, "the route accepts"
        attempt = Attempt(deps, kept, lease, commitment=Commitment(guard.promise, until, self._abandoned))
        # Before the attempt begins: whoever catches a defect takes it that nothing was sent.
        deps.observer.work_began(guard.route_id, waited + deps.clock.boottime() - lease.started)
        self._attempts.begin(attempt, guards=True)
        self._running[guard.upstream_name] += 1
        attempt.reply.add_done_callback(lambda _: self._ended(guard))
        return attempt

    def _unheard(self, kept: KeptRequest, lease: Lease, waited: float, reply: "asyncio.Future[Reply]") -> None:
        """Its answer goes to nobody: give back what that holds, and tell of the attempt, since the end of no request does."""
        answer = reply.result().answer
        if isinstance(answer, Passed | Relayed | Replayed) and not isinstance(answer.body, bytes):
            answer.body.close()
        self._deps.observer.attempt_ended(finished_attempt(self._deps, kept, lease, waited, reply.result()))

    def _ended(self, guard: GuardPlan) -> None:
        self._running[guard.upstream_name] -= 1
        if guard.route_id in self._more:
            self._wake.set()

    async def run(self) -> None:
        """Look for due work for ever. A store that is away is counted by itself; anything else is reported."""
        while True:
            await self._pause()
            try:
                await self.look()
                self._deps.observer.background_ran(TASK)
            except StoreUnavailable:
                continue
            except Exception as error:  # what was promised must be run, whatever one round meets
                self._deps.observer.background_failed(TASK, error)

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY * (0.5 + self._deps.randomness.jitter())):
                await self._wake.wait()
        self._wake.clear()

    async def look(self) -> None:
        """One round: what is lost is given back, what is due is begun, what is over is ended."""
        await self._give_back()
        for guard in self._guards:
            await self._take(guard, None)
            if guard.policy.repeats:
                await self._take(guard, guard.policy.reconcile.pace.max_age)
        now = self._deps.clock.boottime()
        if now >= self._abandon_at:
            self._abandon_at = now + (ABANDON_EVERY if self._guards else ABANDON_IDLE)
            for ended in await self._acceptance.abandon(ABANDON_AT_ONCE, self._abandoned()):
                self._deps.observer.abandoned(ended.route_id)

    async def _take(self, guard: GuardPlan, doubtful: float | None) -> None:
        async with self._taking:
            limit = min(self._free(guard), AT_ONCE)
            if self._stopped or limit <= 0:
                return
            owners = [self._deps.randomness.token() for _ in range(limit)]
            if doubtful is None:
                self._more.discard(guard.route_id)
            self._running[guard.upstream_name] += limit  # who comes meanwhile is parked: these slots may be needed
            try:
                taken = await self._acceptance.take(guard.terms, limit, owners, doubtful=doubtful)
            except BaseException as error:
                # Also after a defect of ours, which may come of what was taken already. A doubt is left to the lapse of its lease: what an
                # attempt may have executed is never pending.
                if doubtful is None and (not isinstance(error, StoreUnavailable) or error.may_have_landed):
                    self._lost.append(_Lost(owners, self._deps.clock.boottime() + 2 * guard.terms.lease))
                raise
            finally:
                self._running[guard.upstream_name] -= limit
            if doubtful is None:
                if guard.route_id in self._more:  # parked during the look, which may not have seen it
                    self._wake.set()
                elif taken:
                    self._more.add(guard.route_id)
            for one in taken:
                self._go_on(one, guard)

    def _go_on(self, taken: Taken, guard: GuardPlan) -> None:
        """Run what was taken. Nothing was sent if that goes wrong, so it waits again."""
        deps, promise = self._deps, guard.promise
        assert promise is not None, "the route accepts"
        try:
            kept = open_request(taken, guard, deps.sealer)
            attempt = self._begin(kept, taken.lease, taken.lease.started + taken.left, taken.waited)
            attempt.reply.add_done_callback(partial(self._unheard, kept, taken.lease, taken.waited))
        except Exception as error:
            deps.observer.background_failed(TASK, error)
            reason = UNSEALABLE if isinstance(error, Unsealable) else TASK
            if taken.lease.reexecution:
                self._write(lambda: deps.store.doubt(taken.lease, reason))
            else:
                self._write(lambda: deps.store.park(taken.lease, reason, UNSEALABLE_AGAIN, promise))

    async def _give_back(self) -> None:
        now = self._deps.clock.boottime()
        for lost in self._lost:
            await self._acceptance.give_back(lost.owners)
            if now >= lost.until:  # a drain may ask at the same time
                self._lost = [one for one in self._lost if one is not lost]

    # ---- the end

    def stop(self) -> None:
        """From now on nothing is taken, and what comes is parked: the process is being drained."""
        self._stopped = True

    async def stopped(self) -> None:
        """After `stop`: what was being taken then is an attempt, or its taking has failed."""
        async with self._taking:
            pass

    async def drain(self, limit: float) -> bool:
        """Repeat the last writes for so many seconds, and give back what may have been taken. Whether nothing is left."""
        with contextlib.suppress(StoreUnavailable):
            await self._give_back()
        if self._writes:
            await asyncio.wait(self._writes, timeout=limit)
        for task in list(self._writes):
            task.cancel()
        return not self._writes


def _told(kept: KeptRequest, lease: Lease, status: Status) -> Reply:
    return Reply(Label.ACCEPTED, Promised(kept.key, status, 1), attempt=lease.attempt)


async def _within(seconds: float, reply: "asyncio.Future[Reply]") -> Reply | None:
    """The answer, if it is final within so many seconds. Of what waits again, it is not; nor may it be before its commit."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            answered = await asyncio.shield(reply)
            return None if answered.settlement == "release" or answered.reason == COMMIT_UNCONFIRMED else answered
    return None
