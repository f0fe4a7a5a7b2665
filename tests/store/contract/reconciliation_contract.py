"""The part of the contract that says how what is unknown is found out: what is due, what a verdict does, and who comes too late.

What webhooks find and leave is in `webhook_contract`.
"""

import asyncio
import secrets

import pytest

from gateway.core.model import Earlier, Lease, Status
from gateway.ports import RouteDoubt, Transition
from gateway.ports.reconciliation import Entry, Fence
from tests.store.contract.harness import (
    KEPT,
    LEASE,
    MAX_EXECUTION,
    RETENTION,
    Harness,
    completed,
    found,
    fresh_key,
    intent,
    released,
    reserved,
    response,
)
from tests.store.contract.resolving import (
    AUDIT,
    CAPTURED,
    EXECUTED,
    FOUND_ANSWER,
    HOLD,
    LOOKED,
    NOT_EXECUTED,
    PERSON,
    ROUTE,
    buried,
    complete_executed,
    event,
    fence,
    free,
    in_doubt,
    none_due,
    status_of,
    taken,
    telling,
)


class ReconciliationContract:
    """A part of `StoreContract`."""

    # what is due

    async def test_a_doubtful_record_is_due_once_the_upstream_has_surely_finished(self, harness: Harness) -> None:
        """Not before, at `reconcile_after`; then with all that a look needs to know."""
        wanted = telling(sealed=b"\x00sealed\xff", request_id="request-9")
        lease = await in_doubt(harness, wanted, due=False)
        await harness.advance(LEASE + MAX_EXECUTION - 5)
        assert await none_due(harness)
        await harness.advance(10)
        assert await harness.reconciliation.due_routes(["other", ROUTE]) == {ROUTE}
        look = await taken(harness)
        record = await found(harness.store, lease.key)
        assert look.fence == Fence(lease.key, lease.record_id, record.version)
        assert (look.owner, look.attempt, look.reason) == (lease.owner, 1, "upstream_timeout")
        assert (look.route_id, look.request_id, look.method, look.target) == (ROUTE, "request-9", "POST", wanted.target)
        assert (look.look, look.agreed, look.agreed_ago, look.over) == (1, 0, None, True)
        assert look.age == pytest.approx(LEASE + MAX_EXECUTION + 5, abs=4)
        assert (look.captured, look.sealed, look.evidence) == (CAPTURED, wanted.sealed, None)

    async def test_who_takes_a_record_holds_it(self, harness: Harness) -> None:
        """Nobody else gets it until the hold is over; whoever took it and died is followed by somebody else."""
        await in_doubt(harness)
        first = await taken(harness)
        assert await none_due(harness)
        await harness.advance(HOLD + 1)
        second = await taken(harness)
        assert second.look == 2
        assert second.fence.version == first.fence.version + 1
        assert await complete_executed(harness, first.fence) is Transition.STALE
        assert await complete_executed(harness, second.fence) is Transition.DONE

    async def test_two_who_look_at_once_share_no_record(self, harness: Harness) -> None:
        """Each of many takes others, and together they take all."""
        leases = [await in_doubt(harness, due=False) for _ in range(12)]
        await harness.advance(LEASE + MAX_EXECUTION + 1)
        looks = await asyncio.gather(*[harness.reconciliation.take_due(ROUTE, 5, HOLD) for _ in range(4)])
        keys = [look.fence.key for taken in looks for look in taken]
        while more := await harness.reconciliation.take_due(ROUTE, 5, HOLD):
            keys += [look.fence.key for look in more]
        assert sorted(key.key for key in keys) == sorted(lease.key.key for lease in leases)

    async def test_the_longest_due_come_first(self, harness: Harness) -> None:
        """In the order in which they became due, and no more than were asked for; routes are apart."""
        await in_doubt(harness, intent(route_id="other"), due=False)
        first = await in_doubt(harness, due=False)
        await harness.advance(5)
        second = await in_doubt(harness, due=False)
        await harness.advance(5)
        await in_doubt(harness, due=False)
        await harness.advance(LEASE + MAX_EXECUTION + 1)
        looks = await harness.reconciliation.take_due(ROUTE, 2, HOLD)
        assert [look.fence.key for look in looks] == [first.key, second.key]
        assert await harness.reconciliation.due_routes(["none", "other", ROUTE]) == {"other", ROUTE}

    async def test_a_swept_or_lapsed_record_is_due_like_a_doubtful_one(self, harness: Harness) -> None:
        """It counts from the end of its lease, however late that was noticed."""
        swept, lapsed = [await reserved(harness.store, intent()) for _ in range(2)]
        await harness.advance(LEASE + 1)
        assert await harness.store.lapse(await found(harness.store, lapsed.key))
        await harness.advance(MAX_EXECUTION + 1)
        assert len(await harness.maintenance.sweep(10)) == 1
        looks = await harness.reconciliation.take_due(ROUTE, 10, HOLD)
        assert {look.fence.key for look in looks} == {swept.key, lapsed.key}
        assert all(look.over and look.reason == "lease_expired" for look in looks)

    async def test_dead_letters_and_observed_records_are_never_due(self, harness: Harness) -> None:
        """Nor is one of a route without a probe, which is a dead letter at once."""
        await in_doubt(harness, intent(reconcilable=False))
        await in_doubt(harness, intent(observed=True))
        await buried(harness)
        await harness.advance(HOLD + 1)
        assert await none_due(harness)

    async def test_a_look_that_acts_has_an_owner_of_its_own(self, harness: Harness) -> None:
        """The original attempt's answer is too late from then on."""
        leases = [await in_doubt(harness, due=False) for _ in range(2)]
        await harness.advance(LEASE + MAX_EXECUTION + 1)
        owners = [secrets.token_bytes(16) for _ in range(3)]
        looks = await harness.reconciliation.take_due(ROUTE, 3, HOLD, owners)
        assert [look.owner for look in looks] == owners[:2]
        for lease in leases:
            assert (await harness.store.complete(lease, response(), KEPT)).transition is Transition.STALE
            assert (await harness.store.release(lease, "x", KEPT)).transition is Transition.STALE

    async def test_the_verdict_of_a_look_that_acts_counts(self, harness: Harness) -> None:
        """It was over when it began. Nobody else's does while what it does may be under way."""
        lease = await in_doubt(harness)
        look = await taken(harness, owners=[secrets.token_bytes(16)])
        assert look.over
        assert await free(harness, look.fence) is Transition.STALE
        assert await free(harness, look.fence, looked=True) is Transition.DONE
        assert await status_of(harness, lease.key) is Status.FAILED_RETRYABLE

    async def test_what_a_look_did_ends_with_its_answer(self, harness: Harness) -> None:
        """Then the next one counts at once."""
        await in_doubt(harness)
        look = await taken(harness, owners=[secrets.token_bytes(16)])
        again = harness.reconciliation.look_again(look.fence, 1.0, agreed=True, entry=LOOKED, ended=True)
        assert await again is Transition.DONE
        await harness.advance(2)
        second = await taken(harness, owners=[secrets.token_bytes(16)])
        assert (second.over, second.agreed) == (True, 1)
        assert await free(harness, second.fence, looked=True) is Transition.DONE

    async def test_while_what_a_look_did_may_be_under_way_nobody_looks(self, harness: Harness) -> None:
        """It would count for nothing, and put off the one that does."""
        await in_doubt(harness)
        look = await taken(harness, owners=[secrets.token_bytes(16)])
        again = harness.reconciliation.look_again(look.fence, 1.0, agreed=False, entry=LOOKED, ended=False)
        assert await again is Transition.DONE
        await harness.advance(HOLD + MAX_EXECUTION - 5)
        assert await none_due(harness)
        await harness.advance(6)
        second = await taken(harness, owners=[secrets.token_bytes(16)])
        assert second.over
        assert await free(harness, second.fence, looked=True) is Transition.DONE

    async def test_after_a_look_that_acts_and_is_not_answered_the_upstream_needs_its_time_again(self, harness: Harness) -> None:
        """*Not executed* counts only once what that look itself may have begun has surely finished."""
        lease = await in_doubt(harness)
        look = await taken(harness, owners=[secrets.token_bytes(16)])
        assert look.over
        await harness.advance(HOLD + MAX_EXECUTION - 5)
        second = await taken(harness)
        assert not second.over
        assert await free(harness, second.fence, looked=True) is Transition.STALE
        assert await free(harness, second.fence) is Transition.STALE
        await harness.advance(HOLD + 10)
        third = await taken(harness)
        assert third.over
        assert await free(harness, third.fence, looked=True) is Transition.DONE
        assert await status_of(harness, lease.key) is Status.FAILED_RETRYABLE

    # routes that nobody has any more

    async def test_what_nobody_looks_after_becomes_a_dead_letter(self, harness: Harness) -> None:
        """Due for long, and of a route that is not ours; with a line of history. What is looked after, or watched, stays."""
        orphan, ours = await in_doubt(harness, intent(route_id="gone")), await in_doubt(harness, intent(route_id="ours"))
        watched = await in_doubt(harness, intent(route_id="gone", observed=True))
        why = Entry("manual", "dead_lettered", {"after": "no_route"})
        assert await harness.reconciliation.abandon(["ours"], 3600.0, 10, why) == []
        await harness.advance(3600)
        assert await harness.reconciliation.abandon(["gone", "ours"], 3600.0, 10, why) == []
        assert await harness.reconciliation.abandon(["ours"], 3600.0, 10, why) == ["gone"]
        assert await harness.reconciliation.abandon(["ours"], 3600.0, 10, why) == []
        assert [(await found(harness.store, one.key)).dead_lettered for one in (orphan, ours, watched)] == [True, False, False]
        assert await harness.history(orphan.key) == [why]

    # executed

    async def test_executed_completes_a_record_in_doubt(self, harness: Harness) -> None:
        """With the answer that was found: it is replayed, expires, and has one line of history."""
        lease = await in_doubt(harness)
        look = await taken(harness)
        assert await complete_executed(harness, look.fence) is Transition.DONE
        record = await found(harness.store, lease.key)
        assert (record.status, record.response) == (Status.COMPLETED, FOUND_ANSWER)
        assert (record.record_id, record.attempt, record.reconcile_in) == (lease.record_id, 1, None)
        assert record.expires_in == pytest.approx(RETENTION, abs=5)
        assert await harness.history(lease.key) == [EXECUTED]
        assert await complete_executed(harness, look.fence) is Transition.STALE
        assert await harness.history(lease.key) == [EXECUTED]
        assert await none_due(harness)

    async def test_executed_counts_from_each_state_that_is_open(self, harness: Harness) -> None:
        """A dead letter, a lapsed lease, one that was thought not to have executed; no live lease, nothing completed or expired."""
        dead, lapsed, let_go = await buried(harness), await reserved(harness.store, intent()), await released(harness)
        live = await fence(harness, lapsed.key)
        assert await complete_executed(harness, live) is Transition.STALE
        await harness.advance(LEASE + 1)
        for lease in (dead, lapsed, let_go):
            assert await complete_executed(harness, await fence(harness, lease.key)) is Transition.DONE
            record = await found(harness.store, lease.key)
            assert (record.response, record.dead_lettered) == (FOUND_ANSWER, False)
            assert await complete_executed(harness, await fence(harness, lease.key)) is Transition.STALE
        expired = await released(harness, retention=60.0)
        await harness.advance(61)
        assert await complete_executed(harness, await fence(harness, expired.key)) is Transition.STALE

    async def test_a_verdict_of_a_record_that_is_none_is_missing(self, harness: Harness) -> None:
        """Nothing is remembered of it."""
        look = Fence(fresh_key(), (await completed(harness)).record_id, 1)
        assert await complete_executed(harness, look) is Transition.MISSING
        assert await free(harness, look) is Transition.MISSING
        assert await harness.reconciliation.look_again(look, 1.0, agreed=False, entry=LOOKED) is Transition.MISSING
        assert await harness.reconciliation.dead_letter(look, LOOKED) is Transition.MISSING
        assert await harness.history(look.key) == []

    async def test_observed_records_are_nobodys_to_judge(self, harness: Harness) -> None:
        """No verdict touches one."""
        lease = await in_doubt(harness, intent(observed=True))
        at = await fence(harness, lease.key)
        assert await complete_executed(harness, at) is Transition.STALE
        assert await free(harness, at) is Transition.STALE
        assert await harness.reconciliation.dead_letter(at, LOOKED) is Transition.STALE
        assert await fence(harness, lease.key) == at

    async def test_a_verdict_for_an_earlier_life_is_stale(self, harness: Harness) -> None:
        """What is found about a record says nothing about the one that took its place."""
        lease = await completed(harness, retention=60.0)
        old = await fence(harness, lease.key)
        await harness.advance(61)
        assert await harness.store.claim(await found(harness.store, lease.key), intent(lease.key)) is not None
        await harness.advance(LEASE + 1)
        assert await complete_executed(harness, old) is Transition.STALE
        assert (await found(harness.store, lease.key)).response is None

    # not executed

    async def test_not_executed_frees_the_key_for_the_next_attempt(self, harness: Harness) -> None:
        """With its reason, for its retention; the next reserve may claim it."""
        lease = await in_doubt(harness)
        look = await taken(harness)
        assert await free(harness, look.fence, looked=True) is Transition.DONE
        record = await found(harness.store, lease.key)
        assert (record.status, record.last_error_code) == (Status.FAILED_RETRYABLE, "verdict_not_executed")
        assert record.expires_in == pytest.approx(RETENTION, abs=5)
        assert await harness.history(lease.key) == [NOT_EXECUTED]
        retry = await harness.store.claim(record, intent(lease.key))
        assert retry is not None
        assert (record.judged, retry.attempt, retry.earlier) == (True, 2, Earlier.JUDGED)

    async def test_what_was_judged_is_remembered_for_the_life_of_the_record(self, harness: Harness) -> None:
        """Through releases and further attempts, but not into a new life."""
        lease = await in_doubt(harness)
        assert (await found(harness.store, lease.key)).judged is False
        look = await taken(harness)
        assert await free(harness, look.fence, looked=True) is Transition.DONE
        retry = await harness.store.claim(await found(harness.store, lease.key), intent(lease.key))
        assert retry is not None
        await harness.store.release(retry, "status_429", KEPT)
        again = await harness.store.claim(await found(harness.store, lease.key), intent(lease.key))
        assert again is not None
        assert again.earlier is Earlier.JUDGED
        await harness.store.release(again, "status_429", KEPT)
        await harness.advance(RETENTION + 1)
        fresh = await harness.store.claim(await found(harness.store, lease.key), intent(lease.key))
        assert fresh is not None
        assert (fresh.attempt, fresh.earlier) == (1, Earlier.NOTHING)
        assert (await found(harness.store, lease.key)).judged is False

    async def test_not_executed_never_counts_before_the_upstream_has_surely_finished(self, harness: Harness) -> None:
        """Neither from a look, nor from an event or a person."""
        lease = await in_doubt(harness, due=False)
        assert await free(harness, await fence(harness, lease.key)) is Transition.STALE
        await harness.advance(LEASE + MAX_EXECUTION - 5)
        assert await free(harness, await fence(harness, lease.key)) is Transition.STALE
        assert await free(harness, await fence(harness, lease.key), looked=True) is Transition.STALE
        await harness.advance(10)
        assert await free(harness, await fence(harness, lease.key), looked=True) is Transition.STALE, "nobody has looked"
        assert await free(harness, await fence(harness, lease.key)) is Transition.DONE

    async def test_not_executed_frees_nothing_but_what_is_in_doubt(self, harness: Harness) -> None:
        """A dead letter, too; but no live or lapsed lease, nothing completed or free."""
        dead, lapsed, done = await buried(harness), await reserved(harness.store, intent()), await completed(harness)
        await harness.advance(LEASE + 1)
        assert await free(harness, await fence(harness, lapsed.key)) is Transition.STALE
        assert await free(harness, await fence(harness, done.key)) is Transition.STALE
        assert await free(harness, await fence(harness, dead.key)) is Transition.DONE
        assert await free(harness, await fence(harness, dead.key)) is Transition.STALE
        assert not (await found(harness.store, dead.key)).dead_lettered

    # again, or never

    async def test_looks_that_agree_are_counted_in_a_row(self, harness: Harness) -> None:
        """One that agrees counts one more, one that is too soon changes nothing, any other begins anew."""
        lease = await in_doubt(harness)
        for agreed, count in ((True, 1), (None, 1), (True, 2), (False, 0), (None, 0), (True, 1)):
            look = await taken(harness)
            assert await harness.reconciliation.look_again(look.fence, 10.0, agreed=agreed, entry=LOOKED) is Transition.DONE
            assert await harness.reconciliation.look_again(look.fence, 10.0, agreed=agreed, entry=LOOKED) is Transition.STALE
            assert await none_due(harness)
            await harness.advance(11)
            (seen,) = await harness.reconciliation.take_due(ROUTE, 1, 0.0)
            assert seen.agreed == count
            assert (seen.agreed_ago is None) == (count == 0)
            assert agreed is not True or seen.agreed_ago == pytest.approx(11, abs=4)
        assert await harness.history(lease.key) == [LOOKED] * 6
        assert (await found(harness.store, lease.key)).status is Status.UNKNOWN

    async def test_a_dead_letter_stays_unknown_and_nobody_looks(self, harness: Harness) -> None:
        """Its clients hear that its outcome is unknown; its owner's late answer still counts."""
        lease = await buried(harness)
        await harness.advance(HOLD * 100)
        assert await none_due(harness)
        record = await found(harness.store, lease.key)
        assert (record.status, record.dead_lettered) == (Status.UNKNOWN, True)
        assert await harness.reconciliation.dead_letter(await fence(harness, lease.key), LOOKED) is Transition.STALE
        assert (await harness.store.complete(lease, response(), KEPT)).transition is Transition.DONE

    async def test_each_doubt_begins_to_count_anew(self, harness: Harness) -> None:
        """Looks and agreement of an attempt say nothing about the next."""
        lease = await in_doubt(harness)
        look = await taken(harness)
        await harness.reconciliation.look_again(look.fence, 1.0, agreed=True, entry=LOOKED)
        assert await free(harness, await fence(harness, lease.key)) is Transition.DONE
        retry = await harness.store.claim(await found(harness.store, lease.key), intent(lease.key))
        assert retry is not None
        await harness.store.doubt(retry, "upstream_disconnected")
        assert await free(harness, await fence(harness, lease.key)) is Transition.STALE
        await harness.advance(LEASE + MAX_EXECUTION + 1)
        again = await taken(harness)
        assert (again.look, again.agreed, again.agreed_ago, again.reason) == (1, 0, None, "upstream_disconnected")
        assert again.age == pytest.approx(LEASE + MAX_EXECUTION + 1, abs=4)

    # races

    async def test_a_verdict_and_a_late_answer_make_one_truth(self, harness: Harness) -> None:
        """Whoever commits first wins, in either order and at once; the other is stale, and both see the same answer."""
        for order in ("verdict", "owner", "both"):
            lease = await in_doubt(harness)
            look, late = await taken(harness), response(b"late")
            if order == "verdict":
                verdict = await complete_executed(harness, look.fence)
                owner = (await harness.store.complete(lease, late, KEPT)).transition
            elif order == "owner":
                owner = (await harness.store.complete(lease, late, KEPT)).transition
                verdict = await complete_executed(harness, look.fence)
            else:
                settled, verdict = await asyncio.gather(harness.store.complete(lease, late, KEPT), complete_executed(harness, look.fence))
                owner = settled.transition
            assert {verdict, owner} == {Transition.DONE, Transition.STALE}
            won = FOUND_ANSWER if verdict is Transition.DONE else late
            assert (await found(harness.store, lease.key)).response == won
            assert await harness.history(lease.key) == ([EXECUTED] if verdict is Transition.DONE else [])

    async def test_not_executed_and_a_late_answer_make_one_truth(self, harness: Harness) -> None:
        """The owner's answer is the better knowledge: it completes what the verdict has freed, as long as nobody has claimed it."""
        lease = await in_doubt(harness)
        look = await taken(harness)
        freed, settled = await asyncio.gather(
            free(harness, look.fence, looked=True), harness.store.complete(lease, response(b"late"), KEPT)
        )
        assert settled.transition is Transition.DONE
        assert freed in (Transition.DONE, Transition.STALE)
        assert (await found(harness.store, lease.key)).response == response(b"late")

    async def test_executed_and_a_claim_of_what_was_freed_never_both_win(self, harness: Harness) -> None:
        """Either the next attempt runs, or the record is completed."""
        for _ in range(5):
            lease = await released(harness)
            record = await found(harness.store, lease.key)
            verdict, claim = await asyncio.gather(
                complete_executed(harness, await fence(harness, lease.key)), harness.store.claim(record, intent(lease.key))
            )
            assert (verdict is Transition.DONE) == (claim is None)
            assert await status_of(harness, lease.key) is (Status.COMPLETED if claim is None else Status.IN_PROGRESS)

    # executing again

    async def test_a_doubtful_record_is_executed_again_where_that_does_no_harm(self, harness: Harness) -> None:
        """Once the attempt before has surely finished, and by one of many: the next attempt, under the record's own fingerprint."""
        lease = await in_doubt(harness, due=False)
        wanted = [intent(lease.key, reexecute=True) for _ in range(4)]
        await harness.advance(LEASE + MAX_EXECUTION - 5)
        early = await found(harness.store, lease.key)
        assert await harness.store.claim(early, wanted[0]) is None
        await harness.advance(10)
        record = await found(harness.store, lease.key)
        assert await harness.store.claim(record, intent(lease.key)) is None, "that intent does not execute again"
        claims = [claim for claim in await asyncio.gather(*[harness.store.claim(record, rival) for rival in wanted]) if claim]
        (retry,) = claims
        assert (retry.attempt, retry.reexecution, retry.record_id) == (2, True, lease.record_id)
        again = await found(harness.store, lease.key)
        assert (again.status, again.lease_live, again.dead_lettered) == (Status.IN_PROGRESS, True, False)
        assert (await harness.store.complete(lease, response(), KEPT)).transition is Transition.STALE
        assert (await harness.store.complete(retry, response(), KEPT)).transition is Transition.DONE

    async def test_what_is_not_executed_again(self, harness: Harness) -> None:
        """Dead letters, observed records, and one that a look may just be executing; nor another meaning of the key."""
        dead, watched, running = await buried(harness), await in_doubt(harness, intent(observed=True)), await in_doubt(harness)
        await taken(harness, owners=[secrets.token_bytes(16)])
        for lease in (dead, watched, running):
            rival = intent(lease.key, reexecute=True, observed=lease is watched)
            assert await harness.store.claim(await found(harness.store, lease.key), rival) is None

    async def test_a_look_and_a_new_attempt_never_share_a_record(self, harness: Harness) -> None:
        """Whoever comes first has it; a verdict of the look is stale once the attempt runs."""
        for _ in range(5):
            lease = await in_doubt(harness)
            record = await found(harness.store, lease.key)
            looks, claim = await asyncio.gather(
                harness.reconciliation.take_due(ROUTE, 1, HOLD), harness.store.claim(record, intent(lease.key, reexecute=True))
            )
            assert (len(looks) == 1) == (claim is None)
            for look in looks:
                again = await harness.store.claim(await found(harness.store, lease.key), intent(lease.key, reexecute=True))
                assert isinstance(again, Lease)
                assert await free(harness, look.fence, looked=True) is Transition.STALE
            await harness.advance(LEASE * 100)
            await harness.maintenance.sweep(10)
            for look in await harness.reconciliation.take_due(ROUTE, 10, HOLD):
                await complete_executed(harness, look.fence)

    # what is remembered

    async def test_a_persons_verdict_is_written_down(self, harness: Harness) -> None:
        """With name and reason, in its history and in the audit table, in the step that it takes; a stale one leaves nothing."""
        lease = await buried(harness)
        at, told = await fence(harness, lease.key), event()
        assert await harness.reconciliation.conclude_executed(at, FOUND_ANSWER, KEPT, PERSON, told, AUDIT) is Transition.DONE
        assert await harness.reconciliation.conclude_executed(at, FOUND_ANSWER, KEPT, PERSON, event(), AUDIT) is Transition.STALE
        assert await harness.history(lease.key) == [LOOKED, PERSON]
        assert await harness.audit(lease.key) == [AUDIT]
        assert await harness.reconciliation.seen(told)
        other = await buried(harness)
        at = await fence(harness, other.key)
        assert await harness.reconciliation.conclude_not_executed(at, "operator", KEPT, PERSON, None, AUDIT) is Transition.DONE
        assert await harness.audit(other.key) == [AUDIT]

    async def test_words_for_people_may_be_anything(self, harness: Harness) -> None:
        """What no text can hold is replaced by a mark, and loses no verdict."""
        lease = await in_doubt(harness)
        odd = Entry(
            "operator", "executed", {"line": "GET /\0?a=\ud800 é", "count": 3, "yes": True, "part": 0.5, "none": None}, "\0", "\udfff"
        )
        assert await harness.reconciliation.dead_letter((await taken(harness)).fence, odd) is Transition.DONE
        (entry,) = await harness.history(lease.key)
        assert entry.detail["count"] == 3
        assert "é" in str(entry.detail["line"])

    async def test_a_note_changes_nothing_but_the_history(self, harness: Harness) -> None:
        """It may be written about any record."""
        lease = await completed(harness)
        before = await found(harness.store, lease.key)
        await harness.reconciliation.note(lease.key, lease.record_id, Entry("webhook", "conflict", {"event": "x"}))
        assert await harness.history(lease.key) == [Entry("webhook", "conflict", {"event": "x"})]
        assert (await found(harness.store, lease.key)).version == before.version

    async def test_history_outlives_its_record_by_its_own_time(self, harness: Harness) -> None:
        """It is kept as long as the record, and for 90 days."""
        gone, stays = await in_doubt(harness), await in_doubt(harness)
        for look in await harness.reconciliation.take_due(ROUTE, 2, HOLD):
            await complete_executed(harness, look.fence) if look.fence.key == gone.key else await harness.reconciliation.dead_letter(
                look.fence, LOOKED
            )
        await harness.advance(RETENTION + 1)
        assert await harness.maintenance.reap(10) == 1
        assert await harness.maintenance.purge(10) == 0
        assert await harness.history(gone.key) == [EXECUTED]
        await harness.advance(90 * 86400)
        while await harness.maintenance.purge(10):
            pass
        assert await harness.history(gone.key) == []
        assert await harness.history(stays.key) == [LOOKED]

    async def test_doubts_are_counted_by_route(self, harness: Harness) -> None:
        """With their dead letters and the age of the oldest that is looked for; observed ones are nobody's turn."""
        await in_doubt(harness, intent(route_id="a", reconcilable=False), due=False)
        await harness.advance(40)
        await in_doubt(harness, intent(route_id="a"), due=False)
        await in_doubt(harness, intent(route_id="b"), due=False)
        await in_doubt(harness, intent(route_id="c", observed=True), due=False)
        await harness.advance(20)
        counts = await harness.maintenance.counts()
        assert [doubt[:3] for doubt in counts.by_route] == [("a", 2, 1), ("b", 1, 0)]
        assert all(isinstance(doubt, RouteDoubt) for doubt in counts.by_route)
        assert [doubt.oldest_age for doubt in counts.by_route] == [pytest.approx(20, abs=5), pytest.approx(20, abs=5)]
        assert (counts.unknown, counts.dead_letters) == (3, 1)
        assert counts.unknown_oldest_age == pytest.approx(20, abs=5)
