"""What a client was told stays true at every gateway: somebody else's lease in Redis is confirmed before it becomes an answer."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gateway.core.model import Status, Tombstone
from gateway.ports import Retention, StoreUnavailable
from gateway.store.completed import CompletedEntry
from gateway.store.redis.codec import LeaseEntry
from tests.store.redis.support import eventually, fingerprint
from tests.store.redis.tiers import KEPT, Tiers, intent, key, lease_of, record_of, response, tiers, with_terms


@pytest.fixture
async def bench(redis_db: str) -> AsyncIterator[Tiers]:
    async with tiers(redis_db) as bench:
        yield bench


async def test_a_retry_elsewhere_right_after_the_answer_is_replayed(bench: Tiers) -> None:
    """The client has its 201, Redis has not followed yet and still holds the lease: another gateway replays, and says no "in progress"."""
    for _ in range(20):
        record = key()
        lease = lease_of(await bench.store.reserve(intent(record)))
        bench.relay.requests.clear()
        await bench.store.complete(lease, response(), KEPT)
        found = record_of(await bench.other.reserve(intent(record)))
        assert (found.status, found.response) == (Status.COMPLETED, response())
        bench.relay.requests.set()
        assert isinstance(await bench.entry(record), CompletedEntry)


async def test_retries_of_an_unknown_key_all_hear_the_same(bench: Tiers) -> None:
    """Each sets a lease to ask, and takes it back: whoever finds another one's hears what the authority says, too."""
    record = key()
    await bench.store.doubt(lease_of(await bench.store.reserve(intent(record))), "upstream_timeout")
    assert await bench.entry(record) is None
    bench.authority.gate.clear()
    asking = asyncio.ensure_future(bench.store.reserve(intent(record)))
    await eventually(lambda: bench.authority.asked == 2)
    others = [asyncio.ensure_future(store.reserve(intent(record))) for store in (bench.store, bench.other)]
    assert {record_of(found).status for found in await asyncio.gather(*others)} == {Status.UNKNOWN}
    bench.authority.gate.set()
    assert record_of(await asking).status is Status.UNKNOWN


async def test_a_duplicate_of_an_attempt_elsewhere_is_confirmed(bench: Tiers) -> None:
    """It is in progress by the authority's word, whose facts it carries; the lease in Redis is left alone."""
    first = intent(key())
    lease = lease_of(await bench.store.reserve(first))
    found = record_of(await bench.other.reserve(intent(first.key)))
    assert (found.status, found.lease_live, found.record_id) == (Status.IN_PROGRESS, True, lease.record_id)
    assert await bench.entry(first.key) == LeaseEntry(first.fingerprint, first.owner)


async def test_an_attempt_that_is_being_settled_here_is_confirmed(bench: Tiers) -> None:
    """Its commit may have been acknowledged to nobody, and its client been told all the same: the lease is no answer any more."""
    record = key()
    lease = lease_of(await bench.store.reserve(intent(record)))
    bench.authority.lost = True
    with pytest.raises(StoreUnavailable):
        await bench.store.complete(lease, response(), KEPT)
    assert record_of(await bench.store.reserve(intent(record))).status is Status.COMPLETED


async def test_an_attempt_here_whose_lease_has_lapsed_is_confirmed(bench: Tiers) -> None:
    """Others may have been told that nobody knows: its lease in Redis is no answer any more."""
    first = intent(key(), lease=4.0)
    lease_of(await bench.store.reserve(first))
    bench.clock.ahead += 4.1
    assert await bench.entry(first.key) is not None
    assert not record_of(await bench.store.reserve(intent(first.key))).lease_live


async def test_who_comes_while_its_reserve_is_on_its_way_is_told_so(bench: Tiers) -> None:
    """There is a lease in Redis and no record yet: somebody is asking, and no second reserve is sent."""
    record = key()
    bench.authority.gate.clear()
    asking = asyncio.ensure_future(bench.store.reserve(intent(record)))
    await eventually(lambda: bench.authority.asked == 1)
    found = record_of(await bench.other.reserve(intent(record)))
    assert (found.status, found.lease_live) == (Status.IN_PROGRESS, True)
    bench.authority.gate.set()
    lease_of(await asking)


async def test_retries_of_a_gone_key_all_hear_of_its_tombstone(bench: Tiers) -> None:
    """A reserve alone knows tombstones, so it is asked where there is no record."""
    record, gone = key(), Retention(1.0, gone_for=86400.0)
    await bench.store.complete(lease_of(await bench.store.reserve(intent(record))), response(), gone)
    assert isinstance(await bench.entry(record), CompletedEntry)
    await bench.forget(record)
    bench.clock.ahead += 7200.0
    assert await bench.authority.reap(10) == 1
    retry = with_terms(intent(record), gone_for=86400.0)
    bench.authority.gate.clear()
    asked = bench.authority.asked
    asking = asyncio.ensure_future(bench.store.reserve(retry))
    await eventually(lambda: bench.authority.asked == asked + 1)
    other = asyncio.ensure_future(bench.other.reserve(replace(retry, owner=intent(record).owner)))
    await eventually(lambda: bench.authority.asked == asked + 3)
    bench.authority.gate.set()
    assert isinstance(await other, Tombstone)
    assert isinstance(await asking, Tombstone)


async def test_an_observed_record_under_somebody_elses_lease_guards_nothing(bench: Tiers) -> None:
    """The owner of the lease is about to take it over; who comes meanwhile is told what a reserve says, not what was observed."""
    record = key()
    watched = lease_of(await bench.store.reserve(with_terms(intent(record), observed=True)))
    await bench.store.doubt(watched, "upstream_timeout")
    bench.authority.gate.clear()
    asked = bench.authority.asked
    asking = asyncio.ensure_future(bench.store.reserve(intent(record)))
    await eventually(lambda: bench.authority.asked == asked + 1)
    other = asyncio.ensure_future(bench.other.reserve(intent(record)))
    await eventually(lambda: bench.authority.asked == asked + 3)
    bench.authority.gate.set()
    lease_of(await asking)
    assert record_of(await other).status is Status.IN_PROGRESS


async def test_without_the_authority_nothing_is_said_of_somebody_elses_entry(bench: Tiers) -> None:
    """Neither "in progress", which may be untrue by now, nor that nothing is known of the key: it must not be passed on unguarded."""
    running, done = key(), key()
    lease_of(await bench.store.reserve(intent(running)))
    await bench.store.complete(lease_of(await bench.store.reserve(intent(done))), response(), KEPT)
    assert isinstance(await bench.entry(done), CompletedEntry)
    bench.authority.away = True
    for asked in (intent(running), intent(running, fingerprint("pay 6")), intent(done, fingerprint("pay 6"))):
        with pytest.raises(StoreUnavailable) as caught:
            await bench.other.reserve(asked)
        assert (caught.value.asked, caught.value.may_have_landed) == (True, False)
    with pytest.raises(StoreUnavailable) as caught:
        await bench.other.reserve(intent(key()))
    assert not caught.value.asked
