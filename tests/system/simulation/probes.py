"""A reconciler in few words: it looks at the upstream, when it may, and gives a verdict on what is unknown."""

import asyncio
import hashlib
from typing import TYPE_CHECKING
from uuid import UUID

from gateway.core.model import Lease, Record, RecordKey, Status, StoredResponse
from gateway.ports import Retention, Settled
from gateway.ports.reconciliation import Entry, Fence
from tests.system.simulation.authority import at_once
from tests.system.simulation.upstream import Operation, answer_body

if TYPE_CHECKING:
    from tests.system.simulation.world import World


class Reconciler:
    """Looks begin after `reconcile_after`; a verdict is applied only if the record is still exactly as it was looked at."""

    def __init__(self, world: "World") -> None:
        self._world = world

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._world.random.uniform(0.3, 1.5))
            for key in list(self._world.oracle.facts):
                await self._look(key)

    async def _look(self, key: RecordKey) -> None:
        world = self._world
        found = at_once(world.authority.find(key))
        if found is None or found.status is not Status.UNKNOWN or found.reconcile_in is None or found.reconcile_in > 0:
            return
        executed = world.oracle.has_executed(found.request_id, key)
        await asyncio.sleep(world.random.choice((0.0, 0.05, 1.0)))
        now = at_once(world.authority.find(key))
        if now is not None and (now.record_id, now.version) == (found.record_id, found.version):
            world.journal.count(f"verdict {'executed' if executed else 'not executed'}")
            self._apply(found, executed=executed)

    def _apply(self, found: Record, *, executed: bool) -> None:
        """As the attempt's own owner would say it: no statement for verdicts is needed to see what they lead to."""
        world = self._world
        lease = Lease(found.key, UUID(int=0), found.owner, found.attempt, 0.0, 0.0)
        if not executed and found.accepted:
            look, kept = Entry("lookup", "not_executed"), Retention.of(world.scenario.policy)
            done = at_once(world.authority.reconciliation.conclude_not_executed(Fence.of(found), "verdict", kept, look))
            settled = Settled(done)
        elif not executed:
            settled = at_once(world.authority.release(lease, "verdict", Retention.of(world.scenario.policy)))
        else:
            operation = next(one for _, one in world.oracle.facts[found.key].executions if one.request_id == found.request_id)
            response = _rebuilt(operation)
            settled = at_once(world.authority.complete(lease, response, Retention.of(world.scenario.policy)))
            world.oracle.settled(found.key, response, settled)
        world.journal.tell("verdict", "{} {} -> {}", found.key.key, "executed" if executed else "not executed", settled.transition.value)


def _rebuilt(operation: Operation) -> StoredResponse:
    body = answer_body(operation, executed=True, number=0, verdict=True)
    return StoredResponse(200, b"OK", ((b"X-Answer", b"rebuilt"),), body, len(body), hashlib.sha256(body).digest())
