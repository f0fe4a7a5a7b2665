"""The part of the contract that says what webhooks find, leave with a running attempt, and remember."""

import asyncio

import pytest

from gateway.core.model import Status
from gateway.ports import Transition
from gateway.ports.reconciliation import Evidence
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
    CAPTURED,
    FOUND_ANSWER,
    TOLD,
    complete_executed,
    correlated,
    event,
    fence,
    free,
    in_doubt,
    none_due,
    proved,
    status_of,
    taken,
    telling,
)


class WebhookContract:
    """A part of `StoreContract`."""

    # finding

    async def test_a_record_is_found_by_what_was_captured(self, harness: Harness) -> None:
        """In its scope, whoever its principal is, with all that an event's verdict needs to know."""
        lease = await reserved(harness.store, telling(request_id="request-3"))
        (subject,) = await correlated(harness)
        assert subject.fence == await fence(harness, lease.key)
        assert (subject.status, subject.lease_live, subject.expired, subject.dead_lettered) == (Status.IN_PROGRESS, True, False, False)
        assert (subject.route_id, subject.request_id, subject.attempt) == ("create-charge", "request-3", 1)
        assert (subject.agreed, subject.agreed_ago, subject.over, subject.captured) == (0, None, False, CAPTURED)
        assert await correlated(harness, "order-2") == []
        assert await correlated(harness, scope="payment") == []
        assert await correlated(harness, scope="payments:none") == []
        assert await correlated(harness, "\0") == []

    async def test_a_value_of_two_tenants_is_ambiguous(self, harness: Harness) -> None:
        """Both are found, however many there are: two of them."""
        for principal in ("a", "b", "c"):
            await reserved(harness.store, telling(fresh_key(f"payments:{principal}")))
        assert len(await correlated(harness)) == 2

    async def test_observed_records_are_not_found(self, harness: Harness) -> None:
        """Nor those that captured nothing."""
        await reserved(harness.store, telling(observed=True))
        await reserved(harness.store, intent())
        assert await correlated(harness) == []

    async def test_what_was_captured_stays_when_the_record_ends(self, harness: Harness) -> None:
        """An event may come late, and more than once."""
        leases = [await completed(harness, wanted=telling()), await released(harness, telling(value="order-2"))]
        for lease, value in zip(leases, ("order-1", "order-2"), strict=True):
            (subject,) = await correlated(harness, value)
            assert (subject.fence, subject.captured) == (await fence(harness, lease.key), CAPTURED)
            assert not subject.over
        await harness.advance(RETENTION + 1)
        (subject,) = await correlated(harness)
        assert subject.expired

    async def test_a_claim_replaces_what_was_captured(self, harness: Harness) -> None:
        """Each attempt is found by its own request's values, a new life has nothing of the old one's."""
        lease = await released(harness, telling())
        retry = telling(lease.key, {"key": "other"}, "order-2")
        assert await harness.store.claim(await found(harness.store, lease.key), retry) is not None
        assert await correlated(harness) == []
        (subject,) = await correlated(harness, "order-2")
        assert subject.captured == {"key": "other"}
        done = await completed(harness, retention=60.0, wanted=telling(value="order-3"))
        await harness.advance(61)
        assert await harness.store.claim(await found(harness.store, done.key), intent(done.key)) is not None
        assert await correlated(harness, "order-3") == []

    async def test_what_no_text_can_hold_is_not_captured(self, harness: Harness) -> None:
        """A request is not refused for it."""
        lease = await reserved(harness.store, telling(captured={"key": "k", "odd": "\0", "half": "\ud800"}, value="\ud800"))
        assert (await found(harness.store, lease.key)).lease_live

    async def test_what_a_subject_says_of_time(self, harness: Harness) -> None:
        """`over` is what a look that began now would be told."""
        lease = await reserved(harness.store, telling())
        await harness.advance(LEASE + MAX_EXECUTION - 5)
        (subject,) = await correlated(harness)
        assert (subject.lease_live, subject.over) == (False, False)
        await harness.maintenance.sweep(10)
        (subject,) = await correlated(harness)
        assert (subject.status, subject.over) == (Status.UNKNOWN, False)
        await harness.advance(10)
        (subject,) = await correlated(harness)
        assert subject.over
        assert subject.fence == await fence(harness, lease.key)

    # evidence

    async def test_evidence_waits_for_the_attempt(self, harness: Harness) -> None:
        """When the record becomes unknown it is due at once, though the upstream may not have finished, and concluded with it."""
        for leave in ("doubt", "sweep", "lapse"):
            lease = await proved(harness)
            assert await status_of(harness, lease.key) is Status.IN_PROGRESS
            assert await none_due(harness)
            if leave == "doubt":
                await harness.store.doubt(lease, "upstream_timeout")
            else:
                await harness.advance(LEASE + 1)
                await (harness.maintenance.sweep(1) if leave == "sweep" else harness.store.lapse(await found(harness.store, lease.key)))
            look = await taken(harness)
            assert look.evidence == Evidence(FOUND_ANSWER, TOLD)
            assert not look.over
            assert await complete_executed(harness, look.fence) is Transition.DONE
            assert (await found(harness.store, lease.key)).response == FOUND_ANSWER

    async def test_evidence_keeps_a_record_from_the_dead_letters(self, harness: Harness) -> None:
        """Also where the route has no probe."""
        lease = await proved(harness, telling(reconcilable=False))
        await harness.store.doubt(lease, "upstream_timeout")
        assert not (await found(harness.store, lease.key)).dead_lettered
        assert (await taken(harness)).evidence is not None

    async def test_a_look_that_acts_leaves_evidence_alone(self, harness: Harness) -> None:
        """There is nothing to do: the original owner keeps the record, and its late answer counts."""
        lease = await proved(harness)
        await harness.store.doubt(lease, "upstream_timeout")
        look = await taken(harness, owners=[b"a" * 16])
        assert look.owner == lease.owner
        assert (await harness.store.complete(lease, response(), KEPT)).transition is Transition.DONE

    async def test_evidence_forbids_what_it_contradicts(self, harness: Harness) -> None:
        """Neither a verdict nor a person frees such a record, and nobody executes it again."""
        lease = await proved(harness)
        await harness.store.doubt(lease, "upstream_timeout")
        await harness.advance(LEASE + MAX_EXECUTION + 1)
        assert await free(harness, await fence(harness, lease.key)) is Transition.STALE
        assert await harness.store.claim(await found(harness.store, lease.key), intent(lease.key, reexecute=True)) is None

    async def test_an_attempt_that_completes_drops_its_evidence(self, harness: Harness) -> None:
        """Its own answer is the record's."""
        lease = await proved(harness)
        assert (await harness.store.complete(lease, response(), KEPT)).transition is Transition.DONE
        assert (await found(harness.store, lease.key)).response == response()
        assert await none_due(harness)

    async def test_an_attempt_that_says_it_did_not_execute_is_not_believed_against_evidence(self, harness: Harness) -> None:
        """A released key would run the operation twice: the record is in doubt instead, and due at once with its evidence."""
        lease = await proved(harness)
        assert (await harness.store.release(lease, "released_by_status", KEPT)).transition is Transition.STALE
        doubtful = await found(harness.store, lease.key)
        assert (doubtful.status, doubtful.last_error_code, doubtful.dead_lettered) == (Status.UNKNOWN, "released_by_status", False)
        assert (await harness.store.release(lease, "released_by_status", KEPT)).transition is Transition.STALE
        assert (await found(harness.store, lease.key)).version == doubtful.version
        look = await taken(harness)
        assert look.evidence is not None
        assert await harness.reconciliation.conclude_executed(look.fence, look.evidence.response, KEPT, TOLD) is Transition.DONE

    async def test_a_late_word_that_it_did_not_execute_is_not_believed_against_evidence(self, harness: Harness) -> None:
        """Nor from doubt: a lapsed attempt that comes back frees nothing."""
        lease = await proved(harness)
        await harness.store.doubt(lease, "upstream_timeout")
        assert (await harness.store.release(lease, "released_by_status", KEPT)).transition is Transition.STALE
        assert (await taken(harness)).evidence is not None

    async def test_a_release_and_evidence_at_once_never_free_an_executed_record(self, harness: Harness) -> None:
        """Either the key was free before anybody said otherwise, and the evidence is refused; or it stays in doubt with its evidence."""
        for _ in range(5):
            lease = await reserved(harness.store, telling())
            at = await fence(harness, lease.key)
            kept, settled = await asyncio.gather(
                harness.reconciliation.attach(at, Evidence(FOUND_ANSWER, TOLD), event()), harness.store.release(lease, "refused", KEPT)
            )
            expected = (Transition.STALE, Status.UNKNOWN) if kept is Transition.DONE else (Transition.DONE, Status.FAILED_RETRYABLE)
            assert (settled.transition, (await found(harness.store, lease.key)).status) == expected

    async def test_the_newest_evidence_wins(self, harness: Harness) -> None:
        """An attempt may be told of twice; renewing its lease loses nothing."""
        lease = await proved(harness)
        other = Evidence(response(b"second"), TOLD)
        assert await harness.reconciliation.attach(await fence(harness, lease.key), other, None) is Transition.DONE
        assert await harness.store.renew([lease]) == {lease.owner}
        await harness.store.doubt(lease, "upstream_timeout")
        assert (await taken(harness)).evidence == other
        assert await harness.history(lease.key) == [TOLD, TOLD]

    async def test_evidence_without_a_body_replaces_none_that_has_one(self, harness: Harness) -> None:
        """Both say that it executed, and one of them with what answer."""
        lease = await proved(harness)
        bare = Evidence(FOUND_ANSWER.without_body(), TOLD)
        assert await harness.reconciliation.attach(await fence(harness, lease.key), bare, None) is Transition.DONE
        await harness.store.doubt(lease, "upstream_timeout")
        look = await taken(harness)
        assert look.evidence is not None
        assert look.evidence.response.body == FOUND_ANSWER.body

    async def test_evidence_is_kept_with_what_runs_and_nothing_else(self, harness: Harness) -> None:
        """Too late, it is refused: the record is judged by what it is now."""
        doubtful, done, told = await in_doubt(harness, telling(), due=False), await completed(harness), event()
        for lease in (doubtful, done):
            at = await fence(harness, lease.key)
            assert await harness.reconciliation.attach(at, Evidence(FOUND_ANSWER, TOLD), told) is Transition.STALE
        assert not await harness.reconciliation.seen(told)
        assert await harness.history(doubtful.key) == []

    async def test_evidence_and_the_end_of_an_attempt_are_never_lost_between_them(self, harness: Harness) -> None:
        """At once, evidence is kept and the record due, or refused and the record in doubt without it."""
        for _ in range(5):
            lease = await reserved(harness.store, telling())
            at = await fence(harness, lease.key)
            kept, settled = await asyncio.gather(
                harness.reconciliation.attach(at, Evidence(FOUND_ANSWER, TOLD), event()), harness.store.doubt(lease, "upstream_timeout")
            )
            assert settled.transition is Transition.DONE
            looks = await harness.reconciliation.take_due("create-charge", 1, 60.0)
            assert [look.fence.key for look in looks] == ([lease.key] if kept is Transition.DONE else [])

    # events

    async def test_an_event_is_known_again(self, harness: Harness) -> None:
        """Once it was applied, attached or ignored, for as long as it is remembered; by its webhook."""
        ignored, applied = event("a"), event("b", remember=60.0)
        assert not await harness.reconciliation.seen(ignored)
        await harness.reconciliation.remember(ignored)
        await harness.reconciliation.remember(ignored)
        lease = await in_doubt(harness)
        at = (await taken(harness)).fence
        assert await harness.reconciliation.look_again(at, 1.0, agreed=True, entry=TOLD, event=applied) is Transition.DONE
        assert await harness.reconciliation.seen(ignored)
        assert await harness.reconciliation.seen(applied)
        assert not await harness.reconciliation.seen(event("a", "other"))
        await harness.advance(61)
        assert not await harness.reconciliation.seen(applied)
        assert await harness.maintenance.purge(10) == 1
        assert await harness.reconciliation.seen(ignored)
        look = await taken(harness)
        assert look.agreed_ago == pytest.approx(61, abs=4)
        assert await harness.history(lease.key) == [TOLD]

    async def test_a_known_event_does_nothing_more(self, harness: Harness) -> None:
        """A delivery that was held up since it asked whether the event is known: its step is stale, whatever it is."""
        told = event("held up")
        lease, running = await in_doubt(harness, telling()), await reserved(harness.store, intent())
        (subject,) = await correlated(harness)
        assert await harness.reconciliation.look_again(subject.fence, 1.0, agreed=True, entry=TOLD, event=told) is Transition.DONE
        at = await fence(harness, lease.key)
        assert await harness.reconciliation.look_again(at, 1.0, agreed=True, entry=TOLD, event=told) is Transition.STALE
        assert await harness.reconciliation.conclude_not_executed(at, "verdict", KEPT, TOLD, told) is Transition.STALE
        assert await harness.reconciliation.conclude_executed(at, FOUND_ANSWER, KEPT, TOLD, told) is Transition.STALE
        other = await fence(harness, running.key)
        assert await harness.reconciliation.attach(other, Evidence(FOUND_ANSWER, TOLD), told) is Transition.STALE
        assert await harness.history(lease.key) == [TOLD]
        assert await free(harness, at) is Transition.DONE

    async def test_one_of_many_deliveries_of_an_event_applies_it(self, harness: Harness) -> None:
        """The others are stale, and find it known."""
        lease = await in_doubt(harness, telling())
        (subject,) = await correlated(harness)
        told = event()
        results = await asyncio.gather(
            *[harness.reconciliation.conclude_executed(subject.fence, FOUND_ANSWER, KEPT, TOLD, told) for _ in range(5)]
        )
        assert sorted(result.value for result in results) == ["done"] + ["stale"] * 4
        assert await harness.reconciliation.seen(told)
        assert await harness.history(lease.key) == [TOLD]
