"""What is left behind by reserves that failed: little, whatever their number, and nothing that a drain would have to wait for."""

import asyncio
from uuid import UUID

from gateway.core.model import Lease, RecordKey, Status
from gateway.engine.dependencies import Dependencies
from gateway.engine.lost import AT_ONCE, PENDING_MAX, LostReplies, LostReply
from gateway.ports import Retention, Settled, Transition
from tests.engine.stage import FORWARD, Stage, refused, scene
from tests.engine.store import Lands, Undone
from tests.support.memory_store.store import MemoryStore


def deps(stage: Stage, store: MemoryStore) -> Dependencies:
    return Dependencies(store, stage.clock, stage.randomness, stage.observer, stage.keeper, stage.memory_budget)


class Missing(MemoryStore):
    """Never holds what is looked for; knows how many look at the same time."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.loop.time, stage.loop.time)
        self.asked = 0
        self.now = 0
        self.most = 0

    async def release(self, lease: Lease, reason: str, retention: Retention) -> Settled:
        self.asked += 1
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)
        self.now -= 1
        return Settled(Transition.MISSING)


def lose(stage: Stage, lost: LostReplies, number: int) -> None:
    lease = Lease(RecordKey("payments:none", f"key-{number}"), UUID(int=0), number.to_bytes(16, "big"), 0, stage.clock.boottime(), 30.0)
    lost.take_back(LostReply(lease, Retention(60.0), settled_by_stale=True))


@scene
async def test_a_statement_that_the_store_undid_is_not_looked_for(stage: Stage) -> None:
    """It says itself that nothing was written. But it was asked: a record may be in the way, so nothing is forwarded unguarded."""
    stage.store.script("reserve", Undone(), Undone())
    assert refused(await stage.ask()) == (503, "store-unavailable")
    assert refused(await stage.ask(FORWARD)) == (503, "store-unavailable")
    assert stage.engine.in_flight == 0
    assert stage.transcript == ["reserve: undone", "reserve: undone"]
    assert stage.upstream.sent == []


@scene
async def test_what_is_taken_back_is_bounded(stage: Stage) -> None:
    """In number: beyond that the oldest is given up, which is told."""
    store = Missing(stage)
    lost = LostReplies(deps(stage, store))
    for number in range(PENDING_MAX + 10):
        lose(stage, lost, number)
    assert lost.pending == PENDING_MAX
    assert [task for task, _ in stage.observer.failures] == ["take_back"] * 10
    assert not await lost.drain(0.0)
    assert lost.pending == 0


@scene
async def test_a_drain_asks_once_more_and_goes(stage: Stage) -> None:
    """It does not wait for the two leases in which a blocked insert may still land."""
    store = Missing(stage)
    lost = LostReplies(deps(stage, store))
    for number in range(300):
        lose(stage, lost, number)
    await stage.clock.sleep(5.0)
    before = store.asked
    assert await lost.drain(2.0)
    assert (lost.pending, store.asked - before, store.most) == (0, 300, AT_ONCE)
    assert stage.loop.time() < 6


@scene
async def test_a_drain_does_not_wait_for_a_store_that_is_away(stage: Stage) -> None:
    """After its limit it gives up: the leases of what has landed lapse, and are in doubt then."""
    stage.store.script("reserve", Lands(0.5))
    assert refused(await stage.ask()) == (503, "store-unavailable")
    await stage.clock.sleep(0.05)
    stage.store.away = True
    started = stage.loop.time()
    assert await stage.engine.drain(30.0, grace=2.0)
    assert stage.loop.time() - started < 3
    assert stage.engine.in_flight == 0
    await stage.clock.sleep(1.0)
    assert (await stage.record()).status is Status.IN_PROGRESS
