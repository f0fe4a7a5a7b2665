"""A Postgres whose clock really steps: nothing is judged too early, from the very first statement after it on."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from uuid import uuid4

import pytest

from gateway.core.model import Lease, Record
from gateway.ports import Retention, Transition
from gateway.ports.reconciliation import Fence
from gateway.store.null_observer import NullObserver
from gateway.store.postgres import PostgresStore, ScopeClaim
from gateway.store.postgres.clock import STEADY_LEAST
from tests.store.contract import harness
from tests.store.contract.harness import KEPT, found, intent, response
from tests.store.contract.resolving import AUDIT, HOLD, NOT_EXECUTED, ROUTE
from tests.support.clocks import SteppingPostgres, stepping_postgres
from tests.support.services import Services

MINUTES, DAY = 600.0, 90_000.0
STEPS = pytest.mark.parametrize("seconds", [MINUTES, DAY])


@dataclass
class Told(NullObserver):
    """What the store told of the clock."""

    steps: list[float] = field(default_factory=list)
    disagreements: list[float] = field(default_factory=list)
    suspended: dict[str, bool] = field(default_factory=dict)

    def clock_stepped(self, seconds: float) -> None:
        self.steps.append(seconds)

    def clock_disagrees(self, seconds: float) -> None:
        self.disagreements.append(seconds)

    def clock_suspended(self, judgements: Mapping[str, bool]) -> None:
        self.suspended = dict(judgements)


@dataclass
class World:
    """One gateway's store, and the clock of its database. `passes` moves the clock of both on."""

    postgres: SteppingPostgres
    dsn: str
    told: Told = field(default_factory=Told)
    passed: float = 0.0
    stepped: float = 0.0
    stores: list[PostgresStore] = field(default_factory=list)

    def start(self, *, accept_clock: bool = False) -> PostgresStore:
        store = PostgresStore(
            self.dsn,
            timeout=30,
            boottime=lambda: time.clock_gettime(time.CLOCK_BOOTTIME) + self.passed,
            wallclock=lambda: time.time() + self.passed,  # noqa: TID251 - what a host's clock is
            observer=self.told,
            accept_clock=accept_clock,
        )
        self.stores.append(store)
        return store

    def step(self, seconds: float) -> None:
        self.stepped = seconds
        self.postgres.step(seconds + self.passed)

    def passes(self, seconds: float) -> None:
        self.passed += seconds
        self.step(self.stepped)


@pytest.fixture(scope="module")
def postgres(services: Services) -> Iterator[SteppingPostgres]:
    with stepping_postgres(services.root) as server:
        yield server


@pytest.fixture
async def world(services: Services, postgres: SteppingPostgres) -> AsyncIterator[World]:
    postgres.step(0)
    world = World(postgres, services.migrated_database(postgres.server))
    yield world
    for store in world.stores:
        await store.close()
    postgres.step(0)
    services.drop_database(postgres.server, world.dsn)


async def reserved(store: PostgresStore) -> Lease:
    return await harness.reserved(store, intent())


async def doubted(store: PostgresStore) -> Lease:
    lease = await reserved(store)
    assert (await store.doubt(lease, "upstream_timeout")).transition is Transition.DONE
    return lease


async def completed(store: PostgresStore, retention: Retention = KEPT) -> Lease:
    lease = await reserved(store)
    assert (await store.complete(lease, response(), retention)).transition is Transition.DONE
    return lease


@STEPS
async def test_a_live_attempt_is_not_taken_for_lapsed_after_a_step(world: World, seconds: float) -> None:
    """Neither by the first statement after it, whichever that is, nor by a later one."""
    store = world.start()
    leases = [await reserved(store) for _ in range(3)]
    world.step(seconds)
    met = await store.reserve(intent(leases[0].key))
    assert isinstance(met, Record)
    assert met.lease_live
    assert not await store.lapse(met)
    assert await store.sweep(10) == []
    assert (await store.renew(leases)) == {lease.owner for lease in leases}
    for lease in leases:
        assert (await store.complete(lease, response(), KEPT)).transition is Transition.DONE
    assert world.told.steps == [pytest.approx(seconds, abs=5)]
    assert world.told.suspended == {"lapse": True, "expiry": True, "age": False}


@STEPS
@pytest.mark.parametrize("first", ["sweep", "lapse"])
async def test_the_very_first_statement_after_a_step_lapses_nothing(world: World, seconds: float, first: str) -> None:
    """Before anything could tell of the step."""
    store = world.start()
    lease = await reserved(store)
    record = await found(store, lease.key)
    world.step(seconds)
    if first == "sweep":
        assert await store.sweep(10) == []
    else:
        assert not await store.lapse(record)
    assert (await found(store, lease.key)).lease_live


@STEPS
async def test_an_answer_is_neither_reaped_nor_replaced_after_a_step(world: World, seconds: float) -> None:
    """Its retries get it, for as long as they were promised; so do tombstones refuse."""
    store = world.start()
    kept = await completed(store, Retention(500.0))
    gone = await completed(store, Retention(500.0, gone_for=500.0))
    world.step(seconds)
    assert await store.reap(100) == 0
    for lease in (kept, gone):
        met = await store.reserve(intent(lease.key))
        assert isinstance(met, Record)
        assert not met.expired
        assert met.response is not None
        assert await store.claim(met, intent(lease.key)) is None
    assert await store.purge(100) == 0
    world.passes(501.0)  # truly over now, whatever the clock shows
    assert await store.reap(100) == 1  # the other one is too young for a tombstone
    world.passes(4000.0)
    assert await store.reap(100) == 1


@STEPS
async def test_not_executed_does_not_count_early_after_a_step(world: World, seconds: float) -> None:
    """The upstream may still be at it: no look is due, and neither a verdict nor a person's word frees the key."""
    store = world.start()
    lease = await doubted(store)
    world.step(seconds)
    assert await store.reconciliation.due_routes([ROUTE]) == frozenset()
    assert await store.reconciliation.take_due(ROUTE, 10, HOLD) == []
    record = await found(store, lease.key)
    assert not record.doubt_over
    fence = Fence.of(record)
    assert await store.reconciliation.conclude_not_executed(fence, "x", KEPT, NOT_EXECUTED) is Transition.STALE
    assert await store.operations.release(fence, KEPT, AUDIT) is Transition.STALE
    assert await store.claim(record, intent(lease.key, reexecute=True)) is None


@STEPS
async def test_a_scope_keeps_its_meaning_after_a_step(world: World, seconds: float) -> None:
    """Its records and tombstones are as live as before, also to a process that starts now, and so is who serves it."""
    store, served = world.start(), uuid4()
    claim = ScopeClaim("payments", "none", "k", "secret-1")
    assert await store.registry.register([claim], [], holder=served) == []
    kept = await completed(store, Retention(500.0))
    world.step(seconds)
    for registry in (store.registry, world.start().registry):
        (drift,) = await registry.register([replace(claim, secret_check="secret-2")], [], holder=uuid4())
        assert "1 record is live" in drift
        assert "1 other process serves it" in drift
    assert (await found(store, kept.key)).response is not None


async def test_a_clock_that_comes_back_is_believed_at_once(world: World) -> None:
    """Judged by it again, and said so."""
    store = world.start()
    await store.watch_clock()
    world.step(DAY)
    await store.watch_clock()
    assert world.told.suspended["expiry"]
    world.step(0)
    await store.watch_clock()
    assert world.told.steps == [pytest.approx(DAY, abs=5), pytest.approx(-DAY, abs=5)]
    assert world.told.suspended == {"lapse": False, "expiry": False, "age": True}


async def test_lapses_follow_a_clock_that_stays_and_expiry_waits_for_a_restart(world: World) -> None:
    """When all leases and doubts of before have ended, those of after it lapse in their time; answers of before are kept on."""
    store = world.start()
    old = await completed(store, Retention(5000.0))
    world.step(DAY)
    orphan = await reserved(store)
    world.passes(STEADY_LEAST - 1)
    await store.watch_clock()
    assert await store.sweep(10) == []
    world.passes(2)
    await store.watch_clock()
    assert world.told.suspended == {"lapse": False, "expiry": True, "age": False}
    assert [swept.key for swept in await store.sweep(10)] == [orphan.key]
    assert await store.reap(10) == 0
    assert await world.start().reap(10) == 0
    accepting = world.start(accept_clock=True)
    assert await accepting.reap(10) == 1
    assert await accepting.find(old.key) is None


async def test_a_slight_step_is_followed_by_itself(world: World) -> None:
    """What a failover to a server with a slightly other clock does asks nobody for anything."""
    store = world.start()
    await store.watch_clock()
    world.step(30.0)
    await store.watch_clock()
    assert world.told.suspended["expiry"]
    world.passes(STEADY_LEAST + 1)
    await store.watch_clock()
    assert world.told.suspended == {"lapse": False, "expiry": False, "age": False}


@pytest.mark.parametrize("first", [lambda store, lease: store.sweep(10), lambda store, lease: store.find(lease.key)])
async def test_a_process_that_starts_after_the_step_goes_by_its_host(
    world: World, first: Callable[[PostgresStore, Lease], Awaitable[object]]
) -> None:
    """It has nothing else to compare with, says so, and judges by the earlier of the two."""
    lease = await reserved(world.start())
    kept = await completed(world.stores[0], Retention(5000.0))
    world.step(DAY)
    store = world.start()
    await first(store, lease)
    assert (await found(store, lease.key)).lease_live
    assert await store.sweep(10) == []
    assert await store.reap(10) == 0
    assert not (await found(store, kept.key)).expired
    assert world.told.disagreements == [pytest.approx(DAY, abs=5)]


async def test_a_clock_set_back_makes_nobody_younger(world: World) -> None:
    """Ages bound how long an upstream is trusted to know a key: they do not shrink."""
    store = world.start()
    lease = await doubted(store)
    world.passes(5000.0)
    assert (await found(store, lease.key)).born_ago == pytest.approx(5000, abs=20)
    world.step(-DAY)
    await store.watch_clock()
    assert (await found(store, lease.key)).born_ago == pytest.approx(5000, abs=20)
    assert world.told.suspended == {"lapse": False, "expiry": False, "age": True}
    world.step(0)
    lapsing = await reserved(store)
    assert await store.sweep(10) == []
    assert (await found(store, lapsing.key)).lease_live
