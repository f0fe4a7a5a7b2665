"""An attempt that finds no record when it is to be settled: the authority has lost it, as an asynchronous failover does.

It is put back with what the attempt came to, so that retries get the answer, or wait in doubt, and do not execute again. After a release
nothing is put back: a key without a record is as free as a released one.
"""

from dataclasses import dataclass

from gateway.core.model import Lease, StoredResponse
from gateway.engine.intents import intent_of
from gateway.engine.request import GuardedRequest
from gateway.engine.tools import Tools
from gateway.ports import Answered, Doubted, Retention, Settled, Transition


@dataclass(frozen=True, slots=True)
class Restoring:
    """Puts back the record of one attempt. Raises as `Store.restore`."""

    tools: Tools
    request: GuardedRequest
    lease: Lease

    async def completed(self, response: StoredResponse, retention: Retention) -> Settled:
        return await self._put_back(Answered(response, retention))

    async def doubted(self, reason: str) -> Settled:
        return await self._put_back(Doubted(reason))

    async def _put_back(self, end: Answered | Doubted) -> Settled:
        meaning = self.request.meaning
        assert meaning is not None, "a request that was reserved has a meaning"
        settled = await self.tools.store.restore(self.lease, intent_of(self.request, meaning, self.lease.owner), end)
        if settled.transition is Transition.DONE:
            self.tools.observer.record_lost(self.request.route_id, self.request.request_id)
        return settled
