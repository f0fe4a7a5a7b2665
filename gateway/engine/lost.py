"""Reserves and claims whose reply was lost: confirmed by a write, or taken back. Never both.

*Confirmed by a write.* That a row is seen to be ours does not say that it lasts: with a synchronous standby Postgres shows a commit whose
wait was cut short (by a cancel, by a restart of the primary), and a failover takes it back. A renewal that is acknowledged does say so: a
standby that has it has all before it. So what a read shows is never a reason to execute.

*Taken back.* What may have landed, or may land yet, is released in the background until it is seen or two leases have passed, since a
blocked insert can land late. These are few kilobytes each, and at most `PENDING_MAX` of them; beyond that the oldest is given up. A row
that nobody releases comes to no harm: its lease lapses, and it is in doubt, since nobody remembers that nothing was sent.
"""

import asyncio
import contextlib
from collections import OrderedDict
from dataclasses import dataclass
from uuid import UUID

from gateway.core.model import Earlier, Intent, Lease, Status
from gateway.engine.dependencies import Dependencies
from gateway.ports import Retention, StoreUnavailable, Transition

RELEASE_BACKOFF = 0.1
PENDING_MAX = 4096
AT_ONCE = 128
"""How many are released at the same time: what fits into one statement."""
REPLY_LOST = "reserve_reply_lost"

_NOT_LANDED = UUID(int=0)


@dataclass(frozen=True, slots=True)
class LostReply:
    """One reserve or claim that may have landed.

    `settled_by_stale`: a record of somebody else's proves that the statement cannot land any more. So it is for an insert, but not for a
    claim, which may still find the record as it was. A re-execution goes back to the doubt that it came from.
    """

    lease: Lease
    retention: Retention
    settled_by_stale: bool
    earlier: Earlier = Earlier.NOTHING

    @classmethod
    def of(
        cls, intent: Intent, started: float, retention: Retention, *, settled_by_stale: bool, earlier: Earlier = Earlier.NOTHING
    ) -> "LostReply":
        lease = Lease(intent.key, _NOT_LANDED, intent.owner, 0, started, intent.terms.lease)
        return cls(lease, retention, settled_by_stale, earlier)


@dataclass(slots=True, eq=False)
class _Pending:
    lost: LostReply
    due: float
    backoff: float = RELEASE_BACKOFF


class LostReplies:
    """Confirms and takes back; one for each engine. The background work ends with `drain`, or when nothing is left."""

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps
        self._pending: OrderedDict[bytes, _Pending] = OrderedDict()
        self._worker: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._last_words = False

    @property
    def pending(self) -> int:
        """How many are still to be taken back."""
        return len(self._pending)

    async def confirm(self, lost: LostReply) -> Lease | None:
        """The lease, if an acknowledged write of ours says that it is ours and live. None: it is being taken back, and must not be used.

        So it is when this call is cancelled.
        """
        try:
            lease = await self._renewed(lost)
        except StoreUnavailable:
            lease = None
        except asyncio.CancelledError:
            self.take_back(lost)
            raise
        if lease is None:
            self.take_back(lost)
        return lease

    async def _renewed(self, lost: LostReply) -> Lease | None:
        lease, store = lost.lease, self._deps.store
        found = await store.find(lease.key)
        if found is None or found.owner != lease.owner or found.status is not Status.IN_PROGRESS or not found.lease_live:
            return None
        started = self._deps.clock.boottime()
        if lease.owner not in await store.renew([lease]):
            return None
        return Lease(lease.key, found.record_id, lease.owner, found.attempt, started, lease.duration, lost.earlier)

    def take_back(self, lost: LostReply) -> None:
        """Release it in the background: nothing was sent under it, and nothing will be."""
        if len(self._pending) >= PENDING_MAX:
            self._pending.popitem(last=False)
            self._deps.observer.background_failed("take_back", OverflowError(f"more than {PENDING_MAX} reserves to take back"))
        self._pending[lost.lease.owner] = _Pending(lost, self._deps.clock.boottime())
        self._news.set()
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._run())

    async def drain(self, limit: float) -> bool:
        """Ask once more for each that is left, then give it up, after `limit` seconds in any case. True if the store answered for all."""
        self._last_words = True
        now = self._deps.clock.boottime()
        for pending in self._pending.values():
            pending.due = now
        self._news.set()
        worker = self._worker
        if worker is not None:
            await asyncio.wait({worker}, timeout=limit)
            worker.cancel()
            await asyncio.wait({worker})
        answered = not self._pending
        self._pending.clear()
        return answered

    async def _run(self) -> None:
        try:
            while self._pending:
                self._news.clear()
                now = self._deps.clock.boottime()
                due = [pending for pending in self._pending.values() if pending.due <= now][:AT_ONCE]
                if due:
                    await asyncio.gather(*map(self._release, due))
                    continue
                pause = min(pending.due for pending in self._pending.values()) - now
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._news.wait()
        finally:
            self._worker = None

    async def _release(self, pending: _Pending) -> None:
        lost, clock = pending.lost, self._deps.clock
        lease = lost.lease
        try:
            seen = await self._released(lost)
        except StoreUnavailable:
            over = False  # a store that never answered may still run the statement: only its word, given late enough, ends the search
        else:
            over = (
                self._last_words
                or seen in {Transition.DONE, Transition.ALREADY}
                or (seen is Transition.STALE and lost.settled_by_stale)
                or clock.boottime() >= lease.started + 2 * lease.duration
            )
        if over:
            self._pending.pop(lease.owner, None)
            return
        pending.due = clock.boottime() + pending.backoff * (0.5 + self._deps.randomness.jitter())
        pending.backoff = min(lease.duration / 2, pending.backoff * 2)

    async def _released(self, lost: LostReply) -> Transition:
        if lost.earlier is Earlier.DOUBTED:
            return (await self._deps.store.doubt(lost.lease, REPLY_LOST)).transition
        return (await self._deps.store.release(lost.lease, REPLY_LOST, lost.retention)).transition
