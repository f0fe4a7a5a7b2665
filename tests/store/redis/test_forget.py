"""What becomes of Redis when an operator has deleted or released a record at the authority."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.core.model import Lease
from gateway.store.completed import CompletedEntry
from gateway.store.redis.codec import LeaseEntry
from tests.store.redis.support import eventually
from tests.store.redis.tiers import KEPT, Tiers, intent, key, lease_of, record_of, response, tiers


@pytest.fixture
async def bench(redis_db: str) -> AsyncIterator[Tiers]:
    async with tiers(redis_db, lease_ttl=5.0, replay_ttl=900.0) as bench:
        yield bench


async def test_a_deleted_record_is_forgotten(bench: Tiers) -> None:
    """Once Redis has acknowledged, no gateway replays it any more: the next request runs."""
    record = key()
    lease = lease_of(await bench.store.reserve(intent(record)))
    await bench.store.complete(lease, response(), KEPT)
    assert isinstance(await bench.entry(record), CompletedEntry)
    bench.authority.delete(record)
    assert record_of(await bench.other.reserve(intent(record))).response == response()
    assert await bench.store.forget(record) == 0.0
    assert await bench.entry(record) is None
    assert isinstance(await bench.other.reserve(intent(record)), Lease)


async def test_nothing_to_forget_is_fine(bench: Tiers) -> None:
    """The record may have been too large for Redis, or long gone from it."""
    assert await bench.store.forget(key()) == 0.0


async def test_without_redis_the_longest_life_of_an_entry_is_told(bench: Tiers) -> None:
    """Of a record that was never completed there can be leases alone."""
    await bench.lose_redis()
    assert await bench.store.forget(key()) == 905.0
    assert await bench.store.forget(key(), completed=False) == 5.0


async def test_a_short_outage_is_waited_for(bench: Tiers) -> None:
    """An operator who waits a moment is better served than one who is told to wait for a quarter of an hour."""
    record = key()
    lease = lease_of(await bench.other.reserve(intent(record)))
    await bench.other.complete(lease, response(), KEPT)
    assert isinstance(await bench.entry(record), CompletedEntry)
    await bench.lose_redis()
    forgotten = asyncio.ensure_future(bench.store.forget(record))
    await eventually(lambda: bool(bench.heard.errors))
    await bench.relay.listen()
    assert await forgotten == 0.0
    assert await bench.entry(record) is None


async def test_a_late_answer_does_not_come_back(bench: Tiers) -> None:
    """The gateway that completed the record writes it to Redis after the deletion: over its own lease, which is gone."""
    record = key()
    lease = lease_of(await bench.store.reserve(intent(record)))
    assert isinstance(await bench.entry(record), LeaseEntry)
    bench.relay.requests.clear()
    await bench.store.complete(lease, response(), KEPT)
    bench.authority.delete(record)
    assert await bench.other.forget(record) == 0.0
    bench.relay.requests.set()
    assert await bench.entry(record) is None
    assert bench.heard.stale == ["redis_complete"]


async def test_a_gateway_that_read_the_record_before_does_not_bring_it_back(bench: Tiers) -> None:
    """It has its own lease in Redis and would fill that with what it has read: the deletion has taken the lease, too."""
    record = key()
    lease = lease_of(await bench.other.reserve(intent(record)))
    await bench.other.complete(lease, response(), KEPT)
    assert isinstance(await bench.entry(record), CompletedEntry)
    await bench.forget(record)
    bench.authority.gate.clear()
    reading = asyncio.ensure_future(bench.store.reserve(intent(record)))
    await eventually(lambda: bench.authority.asked == 3)
    bench.relay.requests.clear()
    bench.authority.gate.set()
    assert record_of(await reading).response == response()
    bench.authority.delete(record)
    assert await bench.other.forget(record) == 0.0
    bench.relay.requests.set()
    assert await bench.entry(record) is None
    assert bench.heard.stale == ["redis_fill"]
