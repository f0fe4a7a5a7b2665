"""One round of the reaper: all that has expired goes, and all that the rounds before it left and whose own period is over."""

import asyncio
import secrets

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.background import maintenance
from gateway.background.maintenance import Background, rest_after
from gateway.core.model import Lease, Tombstone
from gateway.ports import Retention
from gateway.runtime.system import SystemClock
from gateway.store.postgres import PostgresStore, store
from tests.engine.stage import NotingObserver
from tests.store.contract.harness import Harness, MemoryHarness, PostgresHarness, completed, intent, response

RETENTION, PERIOD = 3600.0, 600.0
BOTH = Retention(RETENTION, gone_for=PERIOD, keep_for=PERIOD)


class Counting(NotingObserver):
    """Notes how many records each batch reaped."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []
        self.ran: list[str] = []

    def background_ran(self, task: str) -> None:
        self.ran.append(task)

    def reaped(self, count: int) -> None:
        self.batches.append(count)


class Chance:
    def token(self) -> bytes:
        return secrets.token_bytes(16)

    def jitter(self) -> float:
        return 0.5


def reaper(harness: Harness, observer: Counting) -> Background:
    return Background(harness.maintenance, SystemClock(), Chance(), observer, connected_since=lambda: 0.0, longest_lease=lambda: 0.0)


async def test_a_round_reaps_and_purges_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """In small batches, as many as it takes; the next rounds find nothing, until a period is over."""
    monkeypatch.setattr(maintenance, "REAP_BATCH", 2)
    harness, observer = MemoryHarness(), Counting()
    leases = [await completed(harness, retention=BOTH) for _ in range(5)]
    rounds = reaper(harness, observer)
    assert await rounds.reap() == 0
    await harness.advance(RETENTION + 1)
    assert await rounds.reap() == 5
    assert observer.batches == [2, 2, 1]
    assert await rounds.reap() == 0
    assert [len(await harness.archived(lease.key)) for lease in leases] == [1] * 5
    assert isinstance(await harness.store.reserve(intent(leases[0].key, gone_for=PERIOD)), Tombstone)
    await harness.advance(PERIOD)
    assert await rounds.reap() == 0
    assert [await harness.archived(lease.key) for lease in leases] == [[]] * 5
    assert isinstance(await harness.store.reserve(intent(leases[0].key, gone_for=PERIOD)), Lease)


async def test_a_round_does_not_stop_at_a_batch_that_was_cut_short(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large answers make batches of fewer records than were asked for; that is no sign that nothing is left."""
    monkeypatch.setattr(store, "REAPED_BYTES", 1000)
    postgres = PostgresStore(database, pool_size=2, timeout=30)
    harness, observer = PostgresHarness(database, postgres), Counting()
    for _ in range(3):
        await completed(harness, response(bytes(2000)), BOTH)
    await harness.advance(RETENTION + 1)
    assert await reaper(harness, observer).reap() == 3
    assert observer.batches == [1, 1, 1]
    await harness.advance(PERIOD)
    await reaper(harness, observer).reap()
    assert await postgres.purge(10) == 0
    await postgres.close()


class Slow(SystemClock):
    """A clock that moves on by so much each time it is read, and notes how long is slept."""

    def __init__(self, *steps: float) -> None:
        super().__init__()
        self.steps = iter(steps)
        self.now = 100.0
        self.slept: list[float] = []

    def boottime(self) -> float:
        self.now += next(self.steps, 0.0)
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_the_reaper_rests_after_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that requests do not wait while many records expire together. What a frozen process slept is no reason to rest for long."""
    monkeypatch.setattr(maintenance, "REAP_BATCH", 2)
    harness, clock = MemoryHarness(), Slow(0.0, 0.0, 0.25, 0.0, 50.0)
    for _ in range(3):
        await completed(harness, retention=Retention(RETENTION))
    await harness.advance(RETENTION + 1)
    observer = Counting()
    rounds = Background(harness.maintenance, clock, Chance(), observer, connected_since=lambda: 0.0, longest_lease=lambda: 0.0)
    assert await rounds.reap() == 3
    assert observer.ran == ["reap", "reap"], "a long backlog is no standstill"
    assert clock.slept == [2.25, maintenance.REAP_EVERY]


@given(batch=st.floats(0, 100), lasted=st.floats(0, 10_000), more=st.floats(0, 10_000))
@example(batch=1.0, lasted=59.0, more=1.0)
def test_no_backlog_grows_for_ever(batch: float, lasted: float, more: float) -> None:
    """The longer a reaping lasts the less the reaper rests, and in the end it does not rest at all."""
    assert rest_after(batch, lasted + more) <= rest_after(batch, lasted) <= batch * maintenance.REAP_REST
    assert rest_after(batch, 60 * maintenance.REAP_REST + more) == 0


class Rounds(SystemClock):
    """A clock under which work goes round so many times, without waiting."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.left = count

    async def sleep(self, seconds: float) -> None:
        self.left -= 1
        if self.left < 0:
            raise asyncio.CancelledError


@pytest.mark.parametrize(("since", "ran"), [(None, []), (0.0, ["sweep", "sweep"])])
async def test_a_round_that_waits_for_owners_is_none(since: float | None, ran: list[str]) -> None:
    """What tells when the sweeper last went round does not count the rounds in which it waited."""

    observer = Counting()
    sweeper = Background(
        MemoryHarness().maintenance, Rounds(2), Chance(), observer, connected_since=lambda: since, longest_lease=lambda: 0.0
    )
    with pytest.raises(asyncio.CancelledError):
        await sweeper.run_sweeper()
    assert observer.ran == ran
