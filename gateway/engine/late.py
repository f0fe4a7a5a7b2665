"""An answer that proves execution, and comes when its record has another owner: a probe that acts has taken the owner token, a verdict has
freed the key, or a later attempt has claimed it.

* While the record has not ended, it completes with this answer: nobody may run the operation again.
* With a later attempt that is under way it is kept as evidence: whatever that one says, nobody executes after it.
* Where a later attempt owns the record and was not released, the operation may have run twice: that is kept, counted and alerted, unless
  the upstream deduplicates by key, and the two are one.
"""

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from gateway.core.model import Lease, Record, Status, StoredResponse
from gateway.core.policy import Mode
from gateway.core.reconcile.steps import may_complete, ran_twice
from gateway.engine.dependencies import Dependencies
from gateway.engine.request import GuardedRequest
from gateway.engine.response_packing import LARGE
from gateway.engine.retrying import until_answered
from gateway.ports import Retention, Settled, StoreUnavailable, Transition
from gateway.ports.reconciliation import Detail, Entry, Evidence, Fence, Reconciliation

ROUNDS = 3
"""How often the answer is brought to a record that has moved."""

Write: TypeAlias = Callable[[StoredResponse, Retention], Awaitable[Settled]]
"""Writes an answer in the form that is kept."""


@dataclass(frozen=True, slots=True)
class Late:
    """The late word of one attempt. `status` and `digest` are its answer's; `keep` brings that into the form that is kept, and has it
    written.
    """

    deps: Dependencies
    request: GuardedRequest
    lease: Lease
    status: int | None
    digest: bytes
    keep: Callable[[Write], Awaitable[Transition]]

    async def insist(self) -> bool:
        """Whether the record holds this answer now. Waits for the authority as long as it takes."""
        reconciliation = self.deps.reconciliation
        if reconciliation is None or self.request.guard.policy.mode is Mode.OBSERVE:
            return False
        for _ in range(ROUNDS):
            found = await until_answered(self.deps, lambda: self.deps.store.find(self.lease.key))
            if found is None:
                return False
            if found.record_id != self.lease.record_id:
                await self._tell_of_another_life(found)
                return False
            if self._holds(found):
                await self.tell_conflict(found)
                return True
            if found.status is Status.IN_PROGRESS and found.lease_live:
                if await self.keep(partial(self._attach, reconciliation, found)) is Transition.DONE:
                    return False
                continue
            if not may_complete(found):
                return False
            if await self.keep(partial(self._conclude, reconciliation, found)) is Transition.DONE:
                await self.tell_conflict(found)
                return True
        return False

    async def tell_conflict(self, found: Record) -> None:
        """If another attempt may have executed, too, as the record `found` says."""
        if not ran_twice(found, self.lease.attempt) or self.request.guard.policy.repeats:
            return
        await self._tell(found)

    async def _tell_of_another_life(self, found: Record) -> None:
        """The record of this attempt is gone, lost or freed, and its key has another, whose attempt was not released: both may have run."""
        if found.status is not Status.FAILED_RETRYABLE and not self.request.guard.policy.repeats:
            await self._tell(found)

    async def _tell(self, found: Record) -> None:
        self.deps.observer.conflicting_execution(self.request.guard.route_id, self.request.request_id)
        if self.deps.reconciliation is None:
            return
        with contextlib.suppress(StoreUnavailable):
            await self.deps.reconciliation.note(self.lease.key, found.record_id, Entry("attempt", "conflict", self._told()))

    def _holds(self, found: Record) -> bool:
        """Whether our statement's reply was lost, or somebody has found the same."""
        kept = found.response
        return found.status is Status.COMPLETED and kept is not None and (kept.status, kept.body_digest) == (self.status, self.digest)

    async def _conclude(self, reconciliation: Reconciliation, found: Record, stored: StoredResponse, retention: Retention) -> Settled:
        entry = Entry("attempt", "executed", self._told())
        return Settled(await reconciliation.conclude_executed(Fence.of(found), stored, retention, entry))

    async def _attach(self, reconciliation: Reconciliation, found: Record, stored: StoredResponse, _: Retention) -> Settled:
        kept = stored if stored.body is None or len(stored.body) <= LARGE else stored.without_body()
        evidence = Evidence(kept, Entry("attempt", "executed", self._told()))
        return Settled(await reconciliation.attach(Fence.of(found), evidence, None))

    def _told(self) -> Detail:
        """Of this attempt, for the record's history."""
        return {"request_id": self.request.request_id, "attempt": self.lease.attempt, "status": self.status}
