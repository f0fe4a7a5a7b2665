"""The part of the contract about records that the store has lost while their attempt was under way."""

import asyncio
from dataclasses import replace
from uuid import uuid4

from gateway.core.model import Earlier, Intent, Lease, Record, Status
from gateway.ports import OBSERVED_DOUBT_KEPT, Answered, Doubted, Retention, Transition
from tests.store.contract.harness import (
    KEPT,
    LEASE,
    MAX_EXECUTION,
    RETENTION,
    Harness,
    completed,
    found,
    intent,
    packed_response,
    reserved,
    response,
)


def lost(*, attempt: int = 1, earlier: Earlier = Earlier.NOTHING, wanted: Intent | None = None) -> tuple[Lease, Intent]:
    """A lease whose record the store knows nothing of, and the intent that it was given for."""
    wanted = wanted or intent()
    return Lease(wanted.key, uuid4(), wanted.owner, attempt, 0.0, wanted.terms.lease, earlier), wanted


class RestoreContract:
    async def test_a_lost_record_is_put_back_with_its_answer(self, harness: Harness) -> None:
        """The retry gets it, as if nothing had happened."""
        lease, wanted = lost(attempt=2, wanted=intent(captured={"order": "o-1"}, sealed=b"sealed"))
        assert (await harness.store.complete(lease, response(), KEPT)).transition is Transition.MISSING
        settled = await harness.store.restore(lease, wanted, Answered(response(), KEPT))
        record = await found(harness.store, lease.key)
        assert (settled.transition, settled.expires_at_us) == (Transition.DONE, record.expires_at_us)
        assert (record.status, record.response, record.fingerprint) == (Status.COMPLETED, response(), wanted.fingerprint)
        assert (record.record_id, record.owner, record.attempt) == (lease.record_id, lease.owner, 2)
        assert record.request_id == wanted.request_id
        again = await harness.store.reserve(intent(lease.key))
        assert isinstance(again, Record)
        assert again.response == response()

    async def test_a_packed_answer_is_put_back_packed(self, harness: Harness) -> None:
        """As `complete` stores it."""
        lease, wanted = lost()
        await harness.store.restore(lease, wanted, Answered(packed_response(), KEPT))
        assert (await found(harness.store, lease.key)).response == packed_response()

    async def test_what_is_put_back_expires_like_any(self, harness: Harness) -> None:
        """Its retention counts from now."""
        lease, wanted = lost()
        await harness.store.restore(lease, wanted, Answered(response(), Retention(RETENTION)))
        assert not (await found(harness.store, lease.key)).expired
        await harness.advance(RETENTION + 1)
        assert (await found(harness.store, lease.key)).expired

    async def test_a_lost_record_is_put_back_in_doubt(self, harness: Harness) -> None:
        """Nobody runs it again; it is due, and its doubt over, when its upstream has surely finished."""
        lease, wanted = lost()
        assert (await harness.store.doubt(lease, "upstream_timeout")).transition is Transition.MISSING
        assert (await harness.store.restore(lease, wanted, Doubted("upstream_timeout"))).transition is Transition.DONE
        record = await found(harness.store, lease.key)
        assert (record.status, record.last_error_code, record.dead_lettered) == (Status.UNKNOWN, "upstream_timeout", False)
        assert not record.doubt_over
        await harness.advance(LEASE + MAX_EXECUTION + 1)
        assert (await found(harness.store, lease.key)).doubt_over

    async def test_a_doubt_that_nobody_can_resolve_is_put_back_as_a_dead_letter(self, harness: Harness) -> None:
        """As `doubt` does."""
        lease, wanted = lost(wanted=intent(reconcilable=False))
        await harness.store.restore(lease, wanted, Doubted("x"))
        assert (await found(harness.store, lease.key)).dead_lettered

    async def test_an_observed_doubt_is_put_back_with_an_end(self, harness: Harness) -> None:
        """It guards nothing."""
        lease, wanted = lost(wanted=intent(observed=True, reconcilable=False))
        await harness.store.restore(lease, wanted, Doubted("x"))
        record = await found(harness.store, lease.key)
        assert (record.status, record.dead_lettered, record.expired) == (Status.UNKNOWN, False, False)
        await harness.advance(OBSERVED_DOUBT_KEPT + 1)
        assert (await found(harness.store, lease.key)).expired

    async def test_a_doubt_that_is_put_back_remembers_earlier_ones(self, harness: Harness) -> None:
        """A refusal of a later attempt must not be taken for the outcome."""
        lease, wanted = lost(attempt=2, earlier=Earlier.JUDGED)
        await harness.store.restore(lease, wanted, Doubted("x"))
        await harness.store.release(lease, "y", KEPT)
        assert (await found(harness.store, lease.key)).earlier is Earlier.JUDGED

    async def test_putting_back_may_be_repeated(self, harness: Harness) -> None:
        """A reply that was lost: the second sending changes nothing."""
        lease, wanted = lost()
        first = await harness.store.restore(lease, wanted, Answered(response(), KEPT))
        again = await harness.store.restore(lease, wanted, Answered(response(), Retention(1.0)))
        assert (again.transition, again.expires_at_us) == (Transition.ALREADY, first.expires_at_us)
        doubted, other = lost()
        await harness.store.restore(doubted, other, Doubted("x"))
        assert (await harness.store.restore(doubted, other, Doubted("y"))).transition is Transition.ALREADY
        assert (await found(harness.store, doubted.key)).last_error_code == "x"

    async def test_nothing_is_put_back_over_anothers_record(self, harness: Harness) -> None:
        """A retry has begun anew meanwhile: what it has stays untouched."""
        running = await reserved(harness.store, intent())
        done = await completed(harness)
        for taken in (running, done):
            before = await found(harness.store, taken.key)
            lease, wanted = lost(wanted=intent(taken.key))
            for end in (Answered(response(b"other"), KEPT), Doubted("x")):
                assert (await harness.store.restore(lease, wanted, end)).transition is Transition.STALE
            after = await found(harness.store, taken.key)
            assert (after.record_id, after.version, after.status) == (before.record_id, before.version, before.status)

    async def test_one_of_many_puts_back(self, harness: Harness) -> None:
        """Reserves race with it: either somebody has a lease, or the answer is there; never both."""
        lease, wanted = lost()
        putting = [harness.store.restore(lease, wanted, Answered(response(), KEPT)) for _ in range(3)]
        asking = [harness.store.reserve(replace(intent(lease.key), request_id=f"r-{number}")) for number in range(5)]
        settled, answers = await asyncio.gather(asyncio.gather(*putting), asyncio.gather(*asking))
        leases = [answer for answer in answers if isinstance(answer, Lease)]
        done = [one.transition for one in settled if one.transition is not Transition.STALE]
        assert len(leases) + done.count(Transition.DONE) == 1
        assert (await found(harness.store, lease.key)).status is (Status.IN_PROGRESS if leases else Status.COMPLETED)
