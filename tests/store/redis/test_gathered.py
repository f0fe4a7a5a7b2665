"""What comes between a settle and the moment in which Redis hears of it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.core.model import Lease, Status
from gateway.store.completed import CompletedEntry
from gateway.store.redis import writeback
from gateway.store.redis.codec import LeaseEntry
from tests.store.redis.tiers import KEPT, Tiers, intent, key, lease_of, record_of, response, tiers

MOMENT = 0.3


@pytest.fixture
async def bench(redis_db: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tiers]:
    monkeypatch.setattr(writeback, "GATHERED", MOMENT)
    async with tiers(redis_db, lease_ttl=5.0, replay_ttl=900.0) as bench:
        yield bench


async def test_all_gateways_know_what_is_completed(bench: Tiers) -> None:
    """As after a kill: the lease in Redis is no answer, so that each asks the authority."""
    record = key()
    lease = lease_of(await bench.store.reserve(intent(record)))
    await bench.store.complete(lease, response(), KEPT)
    for store in (bench.store, bench.other):
        found = record_of(await store.reserve(intent(record)))
        assert (found.status, found.response) == (Status.COMPLETED, response())


async def test_what_was_deleted_meanwhile_does_not_come(bench: Tiers) -> None:
    """The write finds its token gone, and leaves the next life's lease alone."""
    record = key()
    lease = lease_of(await bench.store.reserve(intent(record)))
    await bench.store.complete(lease, response(), KEPT)
    bench.authority.delete(record)
    assert await bench.other.forget(record) == 0.0
    anew = intent(record)
    assert isinstance(await bench.other.reserve(anew), Lease)
    await asyncio.sleep(MOMENT * 1.5)
    entry = await bench.entry(record)
    assert isinstance(entry, LeaseEntry)
    assert entry.owner == anew.owner


async def test_who_claims_meanwhile_keeps_its_record(bench: Tiers) -> None:
    """A released key is claimed at another gateway, and completed: what Redis hears of the release takes nothing away."""
    record = key()
    lease = lease_of(await bench.store.reserve(intent(record)))
    await bench.store.release(lease, "upstream_refused", KEPT)
    again = intent(record)
    claimed = await bench.other.claim(record_of(await bench.other.reserve(again)), again)
    assert claimed is not None
    await bench.other.complete(claimed, response(), KEPT)
    for store in (bench.store, bench.other):
        assert record_of(await store.reserve(intent(record))).status is Status.COMPLETED
    await asyncio.sleep(MOMENT * 1.5)
    assert record_of(await bench.store.reserve(intent(record))).response == response()


async def test_a_drain_does_not_wait_for_the_moment(bench: Tiers) -> None:
    record = key()
    lease = lease_of(await bench.store.reserve(intent(record)))
    await bench.store.complete(lease, response(), KEPT)
    assert await bench.store.drain(MOMENT / 2)
    assert isinstance(await bench.entry(record), CompletedEntry)
