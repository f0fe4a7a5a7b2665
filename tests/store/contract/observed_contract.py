"""The part of the contract that says what observed records are: they move like others, and guard nothing unless they are completed."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gateway.core.model import Intent, Lease, Record, RecordKey, Status, Tombstone
from gateway.ports import OBSERVED_DOUBT_KEPT, Retention, Transition
from tests.store.contract.harness import (
    KEPT,
    LEASE,
    RETENTION,
    Harness,
    completed,
    doubted,
    fingerprint,
    found,
    intent,
    released,
    reserved,
    response,
)

Prepare = Callable[[Harness], Awaitable[Lease]]


def observing(key: RecordKey | None = None, meaning: str = "charge 10", *, reconcilable: bool = True) -> Intent:
    """An intent of a route with `mode: observe`."""
    return intent(key, fingerprint(meaning), observed=True, reconcilable=reconcilable)


async def running(harness: Harness) -> Lease:
    return await reserved(harness.store, observing())


async def lapsed(harness: Harness) -> Lease:
    lease = await running(harness)
    await harness.advance(LEASE + 1)
    return lease


async def swept(harness: Harness) -> Lease:
    lease = await lapsed(harness)
    assert len(await harness.maintenance.sweep(10)) == 1
    return lease


async def in_doubt(harness: Harness) -> Lease:
    return await doubted(harness, observing(reconcilable=False))


async def let_go(harness: Harness) -> Lease:
    return await released(harness, observing())


async def let_go_long_ago(harness: Harness) -> Lease:
    lease = await let_go(harness)
    await harness.advance(RETENTION + 1)
    return lease


async def in_doubt_long_ago(harness: Harness) -> Lease:
    lease = await in_doubt(harness)
    await harness.advance(OBSERVED_DOUBT_KEPT + 1)
    return lease


unfinished = pytest.mark.parametrize("prepare", [running, lapsed, swept, in_doubt, let_go, let_go_long_ago, in_doubt_long_ago])


class ObservedContract:
    """Inherited by `StoreContract`."""

    @unfinished
    async def test_an_enforcing_reserve_takes_over_what_is_not_completed(self, harness: Harness, prepare: Prepare) -> None:
        """A new life, with a meaning of its own and nothing of the old one; the former owner has no say in it any more."""
        former = await prepare(harness)
        before = await found(harness.store, former.key)
        wanted = intent(former.key, fingerprint("charge 77", policy="newer", version=2), request_id="request-2")
        lease = await reserved(harness.store, wanted)
        assert (lease.attempt, lease.owner, lease.duration) == (1, wanted.owner, wanted.terms.lease)
        assert lease.record_id != former.record_id
        record = await found(harness.store, former.key)
        assert (record.record_id, record.owner, record.attempt) == (lease.record_id, wanted.owner, 1)
        assert (record.status, record.fingerprint, record.request_id) == (Status.IN_PROGRESS, wanted.fingerprint, "request-2")
        assert (record.last_error_code, record.dead_lettered, record.expires_in) == (None, False, None)
        assert record.lease_live
        assert record.version > before.version
        assert (await harness.store.complete(former, response(b"late"), KEPT)).transition is Transition.STALE
        assert (await harness.store.release(former, "late", KEPT)).transition is Transition.STALE
        assert (await harness.store.doubt(former, "late")).transition is Transition.STALE
        assert await harness.store.renew([former]) == frozenset()
        assert (await harness.store.complete(lease, response(b"mine"), KEPT)).transition is Transition.DONE
        assert (await found(harness.store, former.key)).response == response(b"mine")

    @unfinished
    async def test_one_of_many_takes_over(self, harness: Harness, prepare: Prepare) -> None:
        """Exactly one of any number of enforcing racers gets the lease; the others see its record, which is in their way."""
        former = await prepare(harness)
        answers = await asyncio.gather(*[harness.store.reserve(intent(former.key)) for _ in range(20)])
        (winner,) = [answer for answer in answers if isinstance(answer, Lease)]
        losers = [answer for answer in answers if isinstance(answer, Record)]
        assert len(losers) == 19
        assert {(record.owner, record.status) for record in losers} == {(winner.owner, Status.IN_PROGRESS)}

    @unfinished
    async def test_an_observing_reserve_sees_what_is_there(self, harness: Harness, prepare: Prepare) -> None:
        """As a duplicate does under `enforce`: it gets the record, and changes nothing."""
        former = await prepare(harness)
        before = await found(harness.store, former.key)
        record = await harness.store.reserve(observing(former.key, "charge 99"))
        assert isinstance(record, Record)
        assert (record.record_id, record.version, record.status) == (before.record_id, before.version, before.status)
        assert (record.owner, record.fingerprint, record.expired) == (before.owner, before.fingerprint, before.expired)
        assert (await found(harness.store, former.key)).version == before.version

    async def test_a_completed_observed_record_counts(self, harness: Harness) -> None:
        """It is replayed, compared and refused like any other, by whoever asks."""
        lease = await completed(harness, wanted=observing())
        for wanted in (intent(lease.key), intent(lease.key, fingerprint("charge 99")), observing(lease.key)):
            record = await harness.store.reserve(wanted)
            assert isinstance(record, Record)
            assert (record.status, record.owner, record.response) == (Status.COMPLETED, lease.owner, response())

    async def test_a_completed_observed_record_leaves_a_tombstone(self, harness: Harness) -> None:
        """What has executed is not executed again, whoever watched; an observing route that asks is told as well."""
        lease = await completed(harness, retention=Retention(RETENTION, gone_for=600.0), wanted=observing())
        await harness.advance(RETENTION + 1)
        assert await harness.maintenance.reap(10) == 1
        for observed in (False, True):
            assert isinstance(await harness.store.reserve(intent(lease.key, gone_for=600.0, observed=observed)), Tombstone)

    async def test_observing_takes_nothing_from_an_enforced_record(self, harness: Harness) -> None:
        """Nor does it make an enforced record observed: after it the next enforcing request is refused as before."""
        for lease in (await reserved(harness.store, intent()), await doubted(harness), await released(harness)):
            before = await found(harness.store, lease.key)
            assert isinstance(await harness.store.reserve(observing(lease.key)), Record)
            again = await harness.store.reserve(intent(lease.key))
            assert isinstance(again, Record)
            assert (again.owner, again.status) == (lease.owner, before.status)
            assert (await found(harness.store, lease.key)).version == before.version

    async def test_the_last_taker_says_whether_a_record_is_observed(self, harness: Harness) -> None:
        """A claim by an observing intent, of a released or an expired record, makes it observed; one by an enforcing intent guards it."""
        for expired in (False, True):
            first = await released(harness)
            if expired:
                await harness.advance(RETENTION + 1)
            watched = await harness.store.claim(await found(harness.store, first.key), observing(first.key))
            assert watched is not None
            assert isinstance(await harness.store.reserve(intent(first.key)), Lease)
            second = await released(harness, observing())
            if expired:
                await harness.advance(RETENTION + 1)
            guarded = await harness.store.claim(await found(harness.store, second.key), intent(second.key))
            assert guarded is not None
            record = await harness.store.reserve(intent(second.key))
            assert isinstance(record, Record)
            assert (record.status, record.owner) == (Status.IN_PROGRESS, guarded.owner)

    async def test_an_observing_claim_takes_no_record_in_doubt(self, harness: Harness) -> None:
        """Not even one that has expired: it is judged as under `enforce`, where doubt does not end."""
        lease = await in_doubt_long_ago(harness)
        record = await found(harness.store, lease.key)
        assert record.expired
        assert await harness.store.claim(record, observing(lease.key)) is None

    @pytest.mark.parametrize("way", ["doubt", "sweep", "lapse"])
    async def test_an_observed_record_in_doubt_is_nobodys_turn_and_expires(self, harness: Harness, way: str) -> None:
        """No dead letter, none of the gauges' doubts, and gone after its time; its owner may still settle it until then."""
        lease, late = [await reserved(harness.store, observing(reconcilable=False)) for _ in range(2)]
        guarded = await doubted(harness, intent(reconcilable=False))
        if way != "doubt":
            await harness.advance(LEASE + 1)
        for each in (lease, late):
            if way == "doubt":
                assert (await harness.store.doubt(each, "upstream_timeout")).transition is Transition.DONE
            elif way == "lapse":
                assert await harness.store.lapse(await found(harness.store, each.key))
        if way == "sweep":
            assert {one.key for one in await harness.maintenance.sweep(10)} == {lease.key, late.key}
        record = await found(harness.store, lease.key)
        assert (record.status, record.dead_lettered, record.expired) == (Status.UNKNOWN, False, False)
        assert record.expires_in == pytest.approx(OBSERVED_DOUBT_KEPT, abs=60)
        counts = await harness.maintenance.counts()
        assert (counts.unknown, counts.dead_letters) == (1, 1)
        assert (await harness.store.complete(late, response(), Retention(OBSERVED_DOUBT_KEPT * 2))).transition is Transition.DONE
        assert await harness.maintenance.reap(10) == 0
        await harness.advance(OBSERVED_DOUBT_KEPT + 1)
        assert await harness.maintenance.reap(10) == 1
        assert await harness.store.find(lease.key) is None
        assert await harness.archived(lease.key) == []
        assert (await found(harness.store, late.key)).status is Status.COMPLETED
        assert (await found(harness.store, guarded.key)).dead_lettered

    async def test_an_observed_doubt_is_not_the_oldest(self, harness: Harness) -> None:
        """The alarm about old doubts is for those that somebody must resolve."""
        await in_doubt(harness)
        assert (await harness.maintenance.counts()).unknown_oldest_age == 0
