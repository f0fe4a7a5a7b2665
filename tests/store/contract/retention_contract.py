"""The part of the contract that says what is left of expired records: tombstones, and the archive."""

import asyncio
import random
from dataclasses import replace

import pytest

from gateway.core.model import Intent, Lease, Record, RecordKey, Status, Tombstone
from gateway.ports import TOMBSTONE_AFTER, Retention, Transition
from tests.store.contract.harness import (
    KEPT,
    RETENTION,
    Harness,
    completed,
    doubted,
    fingerprint,
    found,
    fresh_key,
    intent,
    packed_response,
    released,
    reserved,
    response,
)

PERIOD = 600.0
GONE = Retention(RETENTION, gone_for=PERIOD)
ARCHIVED = Retention(RETENTION, keep_for=PERIOD)


def asking(key: RecordKey | None = None, meaning: str = "charge 10") -> Intent:
    """An intent of a route with `on_expired: gone`."""
    return intent(key, fingerprint(meaning), gone_for=PERIOD)


async def buried(harness: Harness, wanted: Intent | None = None, retention: Retention = GONE) -> RecordKey:
    """The key of a completed record that has expired and was reaped."""
    lease = await completed(harness, retention=retention, wanted=wanted)
    await harness.advance(retention.seconds + 1)
    assert await harness.maintenance.reap(10) == 1
    assert await harness.store.find(lease.key) is None
    return lease.key


class RetentionContract:
    """Inherited by `StoreContract`."""

    # tombstones

    async def test_an_expired_record_answers_itself_and_then_its_tombstone_does(self, harness: Harness) -> None:
        """Whoever asks gets the record until it is reaped, and from then on the tombstone; never a lease."""
        lease = await completed(harness, retention=GONE)
        await harness.advance(RETENTION + 1)
        record = await harness.store.reserve(asking(lease.key))
        assert isinstance(record, Record)
        assert record.expired
        assert record.expires_at_us is not None
        assert await harness.maintenance.reap(10) == 1
        remembered = await harness.acceptance.tombstone(lease.key)
        assert remembered is not None
        for meaning in ("charge 10", "charge 10", "charge 99"):
            tombstone = await harness.store.reserve(asking(lease.key, meaning))
            assert isinstance(tombstone, Tombstone)
            assert (tombstone.key, tombstone.route_id) == (lease.key, "create-charge")
            assert tombstone.expires_in == pytest.approx(PERIOD - 1, abs=60)
            assert tombstone.expires_at_us == pytest.approx(record.expires_at_us + PERIOD * 1e6, abs=10)
            assert replace(remembered, expires_in=tombstone.expires_in) == tombstone
        assert await harness.store.find(lease.key) is None
        await harness.advance(PERIOD)
        assert await harness.acceptance.tombstone(lease.key) is None

    async def test_a_tombstone_counts_from_the_expiry_whenever_the_reaper_comes(self, harness: Harness) -> None:
        """A late reaper neither lengthens nor shortens it; one that comes after its end leaves nothing that answers."""
        late, too_late = await completed(harness, retention=GONE), await completed(harness, retention=Retention(RETENTION, gone_for=10.0))
        await harness.advance(RETENTION + PERIOD / 2)
        assert await harness.maintenance.reap(10) == 2
        tombstone = await harness.store.reserve(asking(late.key))
        assert isinstance(tombstone, Tombstone)
        assert tombstone.expires_in == pytest.approx(PERIOD / 2, abs=60)
        assert isinstance(await harness.store.reserve(asking(too_late.key)), Lease)

    async def test_a_tombstone_ends(self, harness: Harness) -> None:
        """After its own period the key is free again, whether or not it has been purged."""
        keys = [await buried(harness) for _ in range(2)]
        await harness.advance(PERIOD)
        assert isinstance(await harness.store.reserve(asking(keys[0])), Lease)
        assert await harness.maintenance.purge(10) == 2
        assert isinstance(await harness.store.reserve(asking(keys[1])), Lease)

    async def test_only_who_asks_is_told(self, harness: Harness) -> None:
        """A route that executes late retries makes a new record, which then answers everybody; the tombstone outlives it."""
        key = await buried(harness, retention=Retention(TOMBSTONE_AFTER, gone_for=RETENTION * 10))
        lease = await reserved(harness.store, intent(key))
        again = await harness.store.reserve(asking(key))
        assert isinstance(again, Record)
        assert (again.status, again.owner) == (Status.IN_PROGRESS, lease.owner)
        await harness.store.complete(lease, response(), Retention(1.0))
        await harness.advance(2)
        assert await harness.maintenance.reap(10) == 1
        assert isinstance(await harness.store.reserve(asking(key)), Tombstone)

    async def test_the_longer_of_two_periods_counts(self, harness: Harness) -> None:
        """A second life of a key neither shortens what its first one left, nor is cut short by it."""
        for first, second in ((RETENTION * 5, 1.0), (RETENTION, RETENTION * 5)):
            key = await buried(harness, retention=Retention(RETENTION, gone_for=first))
            await buried(harness, intent(key), Retention(RETENTION, gone_for=second))
            tombstone = await harness.store.reserve(asking(key))
            assert isinstance(tombstone, Tombstone)
            assert tombstone.expires_in > RETENTION * 3

    async def test_who_asks_for_a_new_key_gets_a_lease(self, harness: Harness) -> None:
        """Exactly one of many, as ever; and where a tombstone is, none of them, of whom some may meet each other instead."""
        key = fresh_key()
        answers = await asyncio.gather(*[harness.store.reserve(asking(key)) for _ in range(20)])
        assert len([answer for answer in answers if isinstance(answer, Lease)]) == 1
        key = await buried(harness)
        answers = await asyncio.gather(*[harness.store.reserve(asking(key)) for _ in range(20)])
        assert not [answer for answer in answers if isinstance(answer, Lease)]
        assert [answer for answer in answers if isinstance(answer, Tombstone)]
        assert isinstance(await harness.store.reserve(asking(key)), Tombstone)

    async def test_tombstones_live_inside_scopes(self, harness: Harness) -> None:
        """What is gone for one caller is free for another, and keys differ by every octet, also beyond ASCII."""
        key = await buried(harness, asking(RecordKey("zahlungen-für:näm€", "schlüssel-\U0001f511")))
        assert isinstance(await harness.store.reserve(asking(key)), Tombstone)
        others = [replace(key, scope_id=key.scope_id + "s"), replace(key, key=key.key.upper()), RecordKey(key.scope_id[:-1], "€" + key.key)]
        for other in others:
            assert isinstance(await harness.store.reserve(asking(other)), Lease)

    async def test_many_who_ask_and_do_not_are_not_mixed_up(self, harness: Harness) -> None:
        """Concurrent intents for free, used and buried keys get each their own answer."""
        gone = [await completed(harness, retention=GONE) for _ in range(10)]
        await harness.advance(RETENTION + 1)
        assert await harness.maintenance.reap(10) == 10
        used = [await completed(harness) for _ in range(10)]
        kinds = (
            [(lease.key, Tombstone) for lease in gone] + [(lease.key, Record) for lease in used] + [(fresh_key(), Lease) for _ in range(10)]
        )
        random.Random(1).shuffle(kinds)
        answers = await asyncio.gather(*[harness.store.reserve(asking(key)) for key, _ in kinds])
        for (key, kind), answer in zip(kinds, answers, strict=True):
            assert isinstance(answer, kind)
            assert answer.key == key

    async def test_only_completed_records_leave_tombstones(self, harness: Harness) -> None:
        """Nothing was executed under a released record, and a route that did not say so leaves none."""
        leases = [await released(harness, retention=GONE), await completed(harness)]
        await harness.advance(RETENTION + 1)
        assert await harness.maintenance.reap(10) == 2
        for lease in leases:
            assert isinstance(await harness.store.reserve(asking(lease.key)), Lease)

    async def test_the_first_completion_says_what_is_left(self, harness: Harness) -> None:
        """Repeating it with another retention changes nothing; what an earlier release said is void."""
        first = await completed(harness, retention=GONE)
        assert (await harness.store.complete(first, response(), ARCHIVED)).transition is Transition.ALREADY
        late = await released(harness, retention=Retention(RETENTION, gone_for=PERIOD, keep_for=PERIOD))
        assert (await harness.store.complete(late, response(), KEPT)).transition is Transition.DONE
        await harness.advance(RETENTION + 1)
        assert await harness.maintenance.reap(10) == 2
        assert isinstance(await harness.store.reserve(asking(first.key)), Tombstone)
        assert isinstance(await harness.store.reserve(asking(late.key)), Lease)
        assert [await harness.archived(lease.key) for lease in (first, late)] == [[], []]

    async def test_a_young_record_is_not_buried(self, harness: Harness) -> None:
        """However short its retention, a record that leaves a tombstone answers itself until no older reserve can be on its way."""
        lease = await completed(harness, retention=Retention(1.0, gone_for=TOMBSTONE_AFTER * 2))
        other = await completed(harness, retention=1.0)
        await harness.advance(2)
        assert await harness.maintenance.reap(10) == 1
        assert await harness.store.find(other.key) is None
        assert isinstance(await harness.store.reserve(asking(lease.key)), Record)
        await harness.advance(TOMBSTONE_AFTER)
        assert await harness.maintenance.reap(10) == 1
        assert isinstance(await harness.store.reserve(asking(lease.key)), Tombstone)

    async def test_nobody_slips_between_a_record_and_its_tombstone(self, harness: Harness) -> None:
        """Whoever asks while the reaper is at work gets the expired record or its tombstone, or meets another who asks; never a lease."""
        leases = await asyncio.gather(*[completed(harness, retention=GONE) for _ in range(60)])
        await harness.advance(RETENTION + 1)

        async def reap() -> None:
            while await harness.maintenance.reap(7):
                pass

        async def ask() -> None:
            for lease in leases:
                assert not isinstance(await harness.store.reserve(asking(lease.key)), Lease)

        await asyncio.gather(reap(), *[ask() for _ in range(4)], reap())
        assert await harness.maintenance.reap(10) == 0
        for lease in leases:
            assert isinstance(await harness.store.reserve(asking(lease.key)), Tombstone)

    # the archive

    async def test_a_kept_record_moves_to_the_archive(self, harness: Harness) -> None:
        """Whole and as it was, with its body of any size; its key is free, and nothing of it is replayed."""
        answers = [response(), packed_response(), response(random.Random(3).randbytes(200_000)), response(b"x").without_body()]
        leases = [await completed(harness, answer, ARCHIVED) for answer in answers]
        before = [await found(harness.store, lease.key) for lease in leases]
        await harness.advance(RETENTION + 1)
        assert await harness.maintenance.reap(10) == 4
        for record in before:
            (kept,) = await harness.archived(record.key)
            assert (kept.record_id, kept.version, kept.status, kept.owner) == (
                record.record_id,
                record.version,
                record.status,
                record.owner,
            )
            assert (kept.fingerprint, kept.request_id, kept.response) == (record.fingerprint, record.request_id, record.response)
            assert await harness.store.find(record.key) is None
            assert isinstance(await harness.store.reserve(asking(record.key)), Lease)

    async def test_released_records_are_kept_too(self, harness: Harness) -> None:
        """An audit also wants to know what was not executed, and why."""
        lease = await released(harness, retention=ARCHIVED)
        await harness.advance(RETENTION + 1)
        assert await harness.maintenance.reap(10) == 1
        (kept,) = await harness.archived(lease.key)
        assert (kept.status, kept.last_error_code, kept.response) == (Status.FAILED_RETRYABLE, "connection_refused", None)

    async def test_a_record_may_leave_both(self, harness: Harness) -> None:
        """A tombstone refuses, the archive keeps, each for its own period."""
        key = await buried(harness, retention=Retention(RETENTION, gone_for=PERIOD, keep_for=PERIOD * 3))
        assert len(await harness.archived(key)) == 1
        assert isinstance(await harness.store.reserve(asking(key)), Tombstone)
        await harness.advance(PERIOD)
        assert isinstance(await harness.store.reserve(asking(key)), Lease)
        assert len(await harness.archived(key)) == 1

    async def test_the_lives_of_a_key_are_kept_side_by_side(self, harness: Harness) -> None:
        """A key that was used again is in the archive twice."""
        key = await buried(harness, retention=Retention(RETENTION, keep_for=RETENTION * 3))
        await buried(harness, intent(key, fingerprint("charge 20")), Retention(RETENTION, keep_for=RETENTION * 3))
        kept = await harness.archived(key)
        assert [record.fingerprint for record in kept] == [fingerprint("charge 10"), fingerprint("charge 20")]

    async def test_a_late_retry_archives_the_life_that_it_replaces(self, harness: Harness) -> None:
        """Whoever comes first, reaper or retry: nothing that was to be kept is lost. A period that is over keeps nothing."""
        leases = [await completed(harness, retention=ARCHIVED), await released(harness, retention=ARCHIVED)]
        await harness.advance(RETENTION + 1)
        for lease in leases:
            before = await found(harness.store, lease.key)
            assert await harness.store.claim(before, intent(lease.key, fingerprint("charge 20"))) is not None
            assert await harness.store.claim(before, intent(lease.key)) is None
            (kept,) = await harness.archived(lease.key)
            assert (kept.record_id, kept.version, kept.status, kept.response) == (
                before.record_id,
                before.version,
                before.status,
                before.response,
            )
        late = await completed(harness, retention=ARCHIVED)
        await harness.advance(RETENTION + PERIOD + 1)
        assert await harness.store.claim(await found(harness.store, late.key), intent(late.key)) is not None
        assert await harness.archived(late.key) == []
        await harness.maintenance.purge(10)
        assert [await harness.archived(lease.key) for lease in leases] == [[], []]

    async def test_a_new_life_has_its_own_retention(self, harness: Harness) -> None:
        """What the old life was to leave, the new one does not, be it claimed while expired or after a release."""
        both = Retention(RETENTION, gone_for=PERIOD, keep_for=PERIOD)
        leases = [await completed(harness, retention=both), await released(harness, retention=both)]
        await harness.advance(RETENTION + 1)
        leases.append(await released(harness, retention=both))
        for lease in leases:
            taken = await harness.store.claim(await found(harness.store, lease.key), intent(lease.key))
            assert taken is not None
            assert (await harness.store.complete(taken, response(), KEPT)).transition is Transition.DONE
        await harness.advance(RETENTION + 1)
        assert await harness.maintenance.reap(10) == 3
        kept = [[record.record_id for record in await harness.archived(lease.key)] for lease in leases]
        assert kept == [[leases[0].record_id], [leases[1].record_id], []]
        for lease in leases:
            assert isinstance(await harness.store.reserve(asking(lease.key)), Lease)

    # purge

    async def test_purge_takes_what_is_over_only(self, harness: Harness) -> None:
        """Tombstones and archived records go at the end of their own periods; records are the reaper's business."""
        both = Retention(RETENTION, gone_for=PERIOD, keep_for=PERIOD * 2)
        key = await buried(harness, retention=both)
        others = [await completed(harness, retention=1.0), await doubted(harness)]
        assert await harness.maintenance.purge(10) == 0
        await harness.advance(PERIOD)
        assert await harness.maintenance.purge(10) == 1
        assert len(await harness.archived(key)) == 1
        await harness.advance(PERIOD)
        assert await harness.maintenance.purge(10) == 1
        assert await harness.archived(key) == []
        assert await harness.maintenance.purge(10) == 0
        assert all([await harness.store.find(lease.key) for lease in others])

    async def test_purge_is_limited(self, harness: Harness) -> None:
        """A batch holds no more of either than was asked for, and the rest comes next."""
        for _ in range(3):
            await completed(harness, retention=Retention(RETENTION, gone_for=1.0, keep_for=1.0))
        await harness.advance(RETENTION + 2)
        assert await harness.maintenance.reap(10) == 3
        assert [await harness.maintenance.purge(2) for _ in range(3)] == [4, 2, 0]
