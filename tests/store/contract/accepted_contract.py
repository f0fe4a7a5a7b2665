"""What every store does with accepted work."""

from dataclasses import replace

import pytest

from gateway.core.model import Earlier, Intent, Lease, RecordKey, Status, Terms
from gateway.ports import Retention, Transition
from gateway.ports.accepted import Acceptance, Parked, Promise, Taken
from gateway.ports.reconciliation import Entry, Fence
from tests.store.contract.harness import KEPT, LEASE, MAX_EXECUTION, RETENTION, Harness, found, intent, reserved, response

PROMISE = Promise(600.0, KEPT, 1000, 1000)
ABANDONED = response(b"abandoned", 408)
LOOK = Entry("lookup", "not_executed")


def sealed(key: RecordKey | None = None, route: str = "pay") -> Intent:
    wanted = intent(key) if key is not None else intent()
    return replace(wanted, sealed=b"the request", terms=replace(wanted.terms, route_id=route, reconcilable=True))


class AcceptedContract:
    """`park`, and `gateway.ports.accepted.Acceptance`."""

    @pytest.fixture
    def acceptance(self, harness: Harness) -> Acceptance:
        return harness.acceptance

    async def parked(self, harness: Harness, wanted: Intent | None = None, *, delay: float = 0.0, promise: Promise = PROMISE) -> Lease:
        lease = await reserved(harness.store, wanted or sealed())
        assert await harness.store.park(lease, "no_slot", delay, promise, unstarted=True) is Parked.DONE
        return lease

    async def taken(self, harness: Harness, count: int = 10, route: str = "pay", *, doubtful: float | None = None) -> list[Taken]:
        owners = [intent().owner for _ in range(count)]
        terms = Terms(route, LEASE, MAX_EXECUTION, reconcilable=True)
        return list(await harness.acceptance.take(terms, count, owners, doubtful=doubtful))

    async def test_what_is_parked_is_pending_and_unstarted(self, harness: Harness) -> None:
        """It lasts, has no lease, counts no attempt, and its owner's word on it is heard no more."""
        lease = await self.parked(harness)
        record = await found(harness.store, lease.key)
        assert (record.status, record.attempt, record.accepted, record.due_in) == (Status.PENDING, 0, True, 0.0)
        assert not record.lease_live
        assert await harness.store.renew([lease]) == frozenset()
        assert (await harness.store.release(lease, "x", KEPT)).transition is Transition.STALE
        assert (await harness.store.doubt(lease, "x")).transition is Transition.STALE
        assert await harness.maintenance.sweep(10) == []
        assert await harness.store.park(lease, "again", 0.0, PROMISE) is Parked.ALREADY

    async def test_only_its_owner_parks_it(self, harness: Harness) -> None:
        """Another's, one that has ended, one that is gone, and one whose request was not kept stay as they are."""
        lease = await reserved(harness.store, sealed())
        stranger = replace(lease, owner=intent().owner)
        assert await harness.store.park(stranger, "x", 0.0, PROMISE) is Parked.STALE
        await harness.store.complete(lease, response(), KEPT)
        assert await harness.store.park(lease, "x", 0.0, PROMISE) is Parked.STALE
        assert await harness.store.park(replace(lease, key=intent().key), "x", 0.0, PROMISE) is Parked.MISSING
        unkept = await reserved(harness.store, intent())
        assert await harness.store.park(unkept, "x", 0.0, PROMISE) is Parked.STALE

    async def test_a_late_word_that_nothing_was_sent_parks_a_doubt(self, harness: Harness) -> None:
        lease = await reserved(harness.store, sealed())
        await harness.store.doubt(lease, "timeout")
        assert await harness.store.park(lease, "connect", 5.0, PROMISE) is Parked.DONE
        record = await found(harness.store, lease.key)
        assert (record.status, record.attempt, record.last_error_code) == (Status.PENDING, 1, "connect")
        assert record.due_in is not None
        assert 0 < record.due_in <= 5.0

    async def test_accepting_says_so_once(self, harness: Harness) -> None:
        """The attempt goes on; only its owner accepts it."""
        lease = await reserved(harness.store, sealed())
        assert not (await found(harness.store, lease.key)).accepted
        assert await harness.acceptance.accept(replace(lease, owner=intent().owner), PROMISE) is Transition.STALE
        assert await harness.acceptance.accept(lease, PROMISE) is Transition.DONE
        assert await harness.acceptance.accept(lease, PROMISE) is Transition.ALREADY
        record = await found(harness.store, lease.key)
        assert (record.status, record.accepted, record.lease_live) == (Status.IN_PROGRESS, True, True)
        assert (await harness.store.complete(lease, response(), KEPT)).transition is Transition.DONE
        assert await harness.acceptance.accept(replace(lease, key=intent().key), PROMISE) is Transition.MISSING

    async def test_a_doubt_that_was_quicker_is_accepted_all_the_same(self, harness: Harness) -> None:
        """Else a verdict *not executed* would free the key, and what was promised would not be run."""
        lease = await reserved(harness.store, sealed())
        await harness.store.doubt(lease, "disconnected")
        assert await harness.acceptance.accept(lease, PROMISE) is Transition.DONE
        record = await found(harness.store, lease.key)
        assert (record.status, record.accepted) == (Status.UNKNOWN, True)

    async def test_what_is_due_is_taken_once(self, harness: Harness) -> None:
        """With a new owner, a lease and all that is needed to run it; what is not due yet, or another route's, stays."""
        wanted = sealed()
        first, later = await self.parked(harness, wanted), await self.parked(harness, delay=60.0)
        await self.parked(harness, sealed(route="other"))
        (taken,) = await self.taken(harness)
        assert taken.lease.key == first.key
        assert taken.lease.owner != first.owner
        assert (taken.lease.attempt, taken.sealed, taken.fingerprint) == (1, b"the request", wanted.fingerprint)
        assert (taken.request_id, taken.method, taken.target) == (wanted.request_id, wanted.method, wanted.target)
        assert taken.lease.earlier is Earlier.NOTHING
        assert 0 < taken.left <= PROMISE.pending_for
        assert await self.taken(harness) == []
        assert await harness.store.renew([taken.lease]) == frozenset([taken.lease.owner])
        assert (await harness.store.complete(first, response(), KEPT)).transition is Transition.STALE
        assert (await harness.store.complete(taken.lease, response(), KEPT)).transition is Transition.DONE
        await harness.advance(60.0)
        assert [each.lease.key for each in await self.taken(harness)] == [later.key]

    async def test_of_each_principal_the_first_comes_first(self, harness: Harness) -> None:
        """Whoever has put in a thousand does not keep one waiting who has put in one."""
        many = [RecordKey("pay:many", f"m{number}") for number in range(5)]
        for key in [*many, RecordKey("pay:few", "f0")]:
            await self.parked(harness, sealed(key))
        assert {each.lease.key.key for each in await self.taken(harness, 2)} == {"m0", "f0"}
        assert [each.lease.key.key for each in await self.taken(harness, 2)] == ["m1", "m2"]

    async def test_an_attempt_that_sent_nothing_waits_again(self, harness: Harness) -> None:
        """Its number stays, the promise is no longer for that, and the next attempt is another."""
        await self.parked(harness, promise=replace(PROMISE, pending_for=100.0))
        (taken,) = await self.taken(harness)
        assert await harness.store.park(taken.lease, "connect", 10.0, PROMISE) is Parked.DONE
        await harness.advance(10.0)
        (again,) = await self.taken(harness)
        assert again.lease.attempt == 2
        assert again.left <= 90.0

    async def test_what_nobody_knows_to_have_taken_is_given_back(self, harness: Harness) -> None:
        """By the owner tokens of a statement whose reply was lost; others' work stays."""
        lost, kept = await self.parked(harness), await reserved(harness.store, sealed())
        (taken,) = await self.taken(harness)
        assert await harness.acceptance.give_back([kept.owner, intent().owner]) == 0
        assert await harness.acceptance.give_back([taken.lease.owner]) == 1
        assert (await found(harness.store, lost.key)).status is Status.PENDING
        (again,) = await self.taken(harness)
        assert again.lease.attempt == 1

    async def test_too_much_is_refused_before_it_is_accepted(self, harness: Harness) -> None:
        """Of a route, and of a principal: no record is left. What was accepted before may always wait again."""
        tight = replace(PROMISE, per_route=3, per_principal=2)
        for number in range(2):
            await self.parked(harness, sealed(RecordKey("pay:a", f"a{number}")), promise=tight)
        refused = await reserved(harness.store, sealed(RecordKey("pay:a", "a2")))
        assert await harness.store.park(refused, "no_slot", 0.0, tight, unstarted=True) is Parked.FULL
        assert await harness.store.find(refused.key) is None
        await self.parked(harness, sealed(RecordKey("pay:b", "b0")), promise=tight)
        refused = await reserved(harness.store, sealed(RecordKey("pay:c", "c0")))
        assert await harness.store.park(refused, "no_slot", 0.0, tight, unstarted=True) is Parked.FULL
        assert await harness.store.find(refused.key) is None
        running = await reserved(harness.store, sealed(RecordKey("pay:d", "d0")))
        await harness.acceptance.accept(running, tight)
        assert await harness.store.park(running, "connect", 0.0, tight) is Parked.DONE

    async def test_what_waited_for_too_long_is_ended(self, harness: Harness) -> None:
        """With the answer that says so, once; nothing of what is under way or not over."""
        over, fresh = await self.parked(harness, promise=replace(PROMISE, pending_for=50.0)), await self.parked(harness)
        assert await harness.acceptance.abandon(10, ABANDONED) == []
        await harness.advance(50.0)
        ended = await harness.acceptance.abandon(10, ABANDONED)
        assert [each.route_id for each in ended] == ["pay"]
        record = await found(harness.store, over.key)
        assert (record.status, record.response, record.attempt) == (Status.COMPLETED, ABANDONED, 0)
        assert record.expires_in is not None
        assert record.expires_in <= RETENTION
        assert (await found(harness.store, fresh.key)).status is not Status.COMPLETED
        assert await harness.acceptance.abandon(10, ABANDONED) == []

    async def test_what_is_over_is_not_run_any_more(self, harness: Harness) -> None:
        await self.parked(harness, promise=replace(PROMISE, pending_for=50.0))
        await harness.advance(50.0)
        assert await self.taken(harness) == []

    async def test_only_what_waits_is_cancelled(self, harness: Harness) -> None:
        waits, runs = await self.parked(harness), await reserved(harness.store, sealed())
        answer = response(b"cancelled", 410)
        standing = await harness.acceptance.standing(waits.key)
        assert standing is not None
        assert (standing.status, standing.attempt) == (Status.PENDING, 0)
        assert await harness.acceptance.cancel(standing, answer) is Transition.DONE
        assert await harness.acceptance.cancel(standing, answer) is Transition.ALREADY
        assert (await found(harness.store, waits.key)).response == answer
        running = await harness.acceptance.standing(runs.key)
        assert running is not None
        assert await harness.acceptance.cancel(running, answer) is Transition.STALE
        assert (await found(harness.store, runs.key)).status is Status.IN_PROGRESS
        assert await harness.acceptance.cancel(replace(standing, key=intent().key), answer) is Transition.MISSING
        assert await harness.acceptance.standing(intent().key) is None

    async def test_a_verdict_not_executed_returns_it(self, harness: Harness) -> None:
        """It waits to be run once more, judged; a key that was promised to nobody is free."""
        promised, free = await reserved(harness.store, sealed()), await reserved(harness.store, sealed())
        await harness.acceptance.accept(promised, PROMISE)
        for lease in (promised, free):
            await harness.store.doubt(lease, "timeout")
        await harness.advance(LEASE + MAX_EXECUTION)
        for lease in (promised, free):
            record = await found(harness.store, lease.key)
            done = await harness.reconciliation.conclude_not_executed(Fence.of(record), "verdict_not_executed", KEPT, LOOK)
            assert done is Transition.DONE
        assert (await found(harness.store, free.key)).status is Status.FAILED_RETRYABLE
        assert (await found(harness.store, promised.key)).status is Status.PENDING
        (taken,) = await self.taken(harness)
        assert (taken.lease.attempt, taken.lease.earlier) == (2, Earlier.JUDGED)

    async def test_the_late_answer_of_its_last_owner_counts_while_it_waits(self, harness: Harness) -> None:
        """As after a release: a verdict may have been wrong, and nobody has run it again."""
        lease = await reserved(harness.store, sealed())
        await harness.acceptance.accept(lease, PROMISE)
        await harness.store.doubt(lease, "timeout")
        await harness.advance(LEASE + MAX_EXECUTION)
        record = await found(harness.store, lease.key)
        await harness.reconciliation.conclude_not_executed(Fence.of(record), "verdict_not_executed", KEPT, LOOK)
        assert (await harness.store.complete(lease, response(b"late"), KEPT)).transition is Transition.DONE
        assert await self.taken(harness) == []

    async def test_a_doubt_is_run_again_only_when_it_is_over(self, harness: Harness) -> None:
        """And only what was promised; the attempt is a re-execution."""
        promised, free = await reserved(harness.store, sealed()), await reserved(harness.store, sealed())
        await harness.acceptance.accept(promised, PROMISE)
        for lease in (promised, free):
            await harness.store.doubt(lease, "timeout")
        assert await self.taken(harness, doubtful=3600.0) == []
        await harness.advance(LEASE + MAX_EXECUTION)
        assert await self.taken(harness, doubtful=LEASE) == []
        (taken,) = await self.taken(harness, doubtful=3600.0)
        assert (taken.lease.key, taken.lease.attempt, taken.lease.earlier) == (promised.key, 2, Earlier.DOUBTED)
        assert (await found(harness.store, free.key)).status is Status.UNKNOWN

    async def test_a_doubt_that_is_run_again_is_promised_as_before(self, harness: Harness) -> None:
        """By a request that keeps no request of its own, say: the one that was promised is run again, should this attempt end in doubt."""
        lease = await reserved(harness.store, sealed())
        await harness.acceptance.accept(lease, PROMISE)
        await harness.store.doubt(lease, "timeout")
        await harness.advance(LEASE + MAX_EXECUTION)
        wanted = sealed(lease.key)
        wanted = replace(wanted, sealed=None, terms=replace(wanted.terms, reexecute=True))
        again = await harness.store.claim(await found(harness.store, lease.key), wanted)
        assert again is not None
        assert (await found(harness.store, lease.key)).accepted
        await harness.store.doubt(again, "timeout")
        await harness.advance(LEASE + MAX_EXECUTION)
        (taken,) = await self.taken(harness, doubtful=3600.0)
        assert (taken.lease.key, taken.lease.attempt, taken.sealed) == (lease.key, 3, b"the request")

    async def test_what_is_run_again_without_a_doubt_is_promised_to_nobody(self, harness: Harness) -> None:
        lease = await reserved(harness.store, sealed())
        await harness.acceptance.accept(lease, PROMISE)
        await harness.store.release(lease, "503", KEPT)
        assert await harness.store.claim(await found(harness.store, lease.key), intent(lease.key)) is not None
        assert not (await found(harness.store, lease.key)).accepted

    async def test_pending_records_are_counted_by_route(self, harness: Harness) -> None:
        await self.parked(harness)
        await harness.advance(30.0)
        await self.parked(harness)
        counts = await harness.maintenance.counts()
        assert counts.pending == 2
        (pay,) = counts.pending_by_route
        assert (pay.route_id, pay.pending) == ("pay", 2)
        assert 30.0 <= pay.oldest_age < 40.0

    async def test_a_new_life_is_promised_to_nobody(self, harness: Harness) -> None:
        lease = await reserved(harness.store, sealed())
        await harness.acceptance.accept(lease, PROMISE)
        await harness.store.complete(lease, response(), Retention(1.0))
        await harness.advance(1.0)
        assert await harness.store.claim(await found(harness.store, lease.key), sealed(lease.key)) is not None
        assert not (await found(harness.store, lease.key)).accepted
