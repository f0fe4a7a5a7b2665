"""An attempt that does not find its record when it is to be settled: the authority has lost it, as an asynchronous failover does.

Where there is none, it is put back with what the attempt came to, so that retries get the answer, or wait in doubt, and do not execute
again. Where there is what the attempt's claim had found, a released or an expired record, that is claimed once more. After a release
neither is done: such a key is free, as it should be.
"""

from dataclasses import dataclass

from gateway.core.model import Intent, Lease, Record, Status, StoredResponse
from gateway.engine.dependencies import Dependencies
from gateway.engine.intents import intent_of, uncounted
from gateway.engine.request import GuardedRequest
from gateway.engine.retrying import until_answered
from gateway.ports import Answered, Doubted, Retention, Settled, Transition

ROUNDS = 3
"""How often a record that has moved is looked at again."""


@dataclass(frozen=True, slots=True)
class Restoring:
    """Puts back the record of one attempt. Raises as `Store.restore`."""

    deps: Dependencies
    request: GuardedRequest
    lease: Lease

    async def completed(self, response: StoredResponse, retention: Retention) -> Settled:
        return await self._put_back(Answered(response, retention))

    async def doubted(self, reason: str) -> Settled:
        return await self._put_back(Doubted(reason))

    async def claimed_again(self) -> Lease | None:
        """A lease on the record that the attempt's claim had found, where the authority has gone back to that; None: it has not. Waits for
        the authority as long as it takes.
        """
        intent = self._intent(self.deps.randomness.token())
        for _ in range(ROUNDS):
            found = await until_answered(self.deps, lambda: self.deps.store.find(self.lease.key))
            if found is not None and found.owner == intent.owner:  # it has landed, and its reply was lost
                started = self.deps.clock.boottime()
                lease: Lease | None = Lease(found.key, found.record_id, intent.owner, found.attempt, started, intent.terms.lease)
            elif found is not None and self._was_there_before(found):
                lease = await self._claim(found, intent)
            else:
                return None
            if lease is not None:
                self.deps.observer.record_lost(self.request.guard.route_id, self.request.request_id)
                return lease
        return None

    async def _claim(self, found: Record, intent: Intent) -> Lease | None:
        return await until_answered(self.deps, lambda: self.deps.store.claim(found, intent))

    def _was_there_before(self, found: Record) -> bool:
        """Lives and attempts follow each other: what is earlier than ours is there again only if the authority has gone back."""
        if found.record_id == self.lease.record_id:
            return found.status is Status.FAILED_RETRYABLE and found.attempt < self.lease.attempt
        return found.expired and found.born_ago > self.deps.clock.boottime() - self.lease.started

    def _intent(self, owner: bytes) -> Intent:
        return uncounted(intent_of(self.request, self.request.meaning, owner))

    async def _put_back(self, end: Answered | Doubted) -> Settled:
        settled = await self.deps.store.restore(self.lease, self._intent(self.lease.owner), end)
        if settled.transition is Transition.DONE:
            self.deps.observer.record_lost(self.request.guard.route_id, self.request.request_id)
        if settled.transition is Transition.MISSING:  # an operator has deleted it: what it came to is its own client's alone
            return Settled(Transition.DONE)
        return settled
