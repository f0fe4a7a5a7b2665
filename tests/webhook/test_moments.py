"""An event before, during and after the end of the attempt that it is about."""

import asyncio
from dataclasses import replace

import pytest

from gateway.core.model import Status
from gateway.core.reconcile.policy import OWN_KEY, Pace, Reconcile
from gateway.ports import Transition
from gateway.ports.reconciliation import Entry, Fence
from tests.store.contract.harness import response
from tests.webhook.conftest import OpenHall
from tests.webhook.house import KEPT, LEASE, MAX_EXECUTION, POLICY, TERMS, Hall, event, intent_for, route_with

ANSWER = b'{"id":"ch_1","amount":100}'


async def test_an_event_settles_a_record_in_doubt(hall: Hall) -> None:
    """The record completes with the answer that the rules build; who said so is written down; a repetition is a duplicate."""
    lease = await hall.doubt()
    told = event("charge.succeeded", lease.key.key)
    assert await hall.send(told) == (200, "applied")
    record = await hall.find(lease)
    assert record.status is Status.COMPLETED
    assert record.response is not None
    assert (record.response.status, record.response.reason, record.response.body) == (201, b"Created", ANSWER)
    assert record.response.headers == ((b"Content-Type", b"application/json"),)
    assert record.expires_in is not None
    assert POLICY.retention - 600 < record.expires_in <= POLICY.retention
    assert await hall.history(lease) == [("webhook", "executed")]
    assert await hall.send(told) == (200, "duplicate")
    assert hall.observer.results == {"applied": 1, "duplicate": 1}


async def test_a_failure_is_an_answer(hall: Hall) -> None:
    """A payment that was made and declined completes with the failure."""
    lease = await hall.doubt()
    assert await hall.send(event("charge.failed", lease.key.key)) == (200, "applied")
    record = await hall.find(lease)
    assert record.response is not None
    assert (record.status, record.response.status) == (Status.COMPLETED, 402)


async def test_an_event_settles_a_dead_letter(hall: Hall) -> None:
    """What nobody looks for any more may still be told."""
    lease = await hall.doubt()
    record = await hall.find(lease)
    fence = Fence(lease.key, lease.record_id, record.version)
    assert await hall.store.reconciliation.dead_letter(fence, Entry("lookup", "dead_lettered")) is Transition.DONE
    assert await hall.send(event("charge.succeeded", lease.key.key)) == (200, "applied")
    assert (await hall.find(lease)).status is Status.COMPLETED


async def test_an_event_settles_an_attempt_whose_lease_has_lapsed(hall: Hall) -> None:
    """A worker died, and nobody has swept yet: the event is stronger."""
    lease = await hall.reserve()
    await hall.age(LEASE + 1)
    assert await hall.send(event("charge.succeeded", lease.key.key)) == (200, "applied")
    assert (await hall.find(lease)).status is Status.COMPLETED
    assert (await hall.store.complete(lease, response(), KEPT)).transition is Transition.STALE


async def test_an_event_before_the_end_waits_with_the_record(hall: Hall) -> None:
    """It changes nothing while the attempt runs; the attempt's own answer is what counts."""
    lease = await hall.reserve()
    told = event("charge.succeeded", lease.key.key)
    assert await hall.send(told) == (200, "attached")
    assert (await hall.find(lease)).status is Status.IN_PROGRESS
    assert await hall.send(told) == (200, "duplicate")
    assert (await hall.store.complete(lease, response(b"its own"), KEPT)).transition is Transition.DONE
    record = await hall.find(lease)
    assert record.response is not None
    assert record.response.body == b"its own"


async def test_an_event_before_the_end_is_evidence_when_the_end_is_a_doubt(hall: Hall) -> None:
    """As soon as the record is unknown it is due, and whoever takes it finds the answer with it."""
    lease = await hall.reserve(terms=replace(TERMS, reconcilable=False))
    assert await hall.send(event("charge.succeeded", lease.key.key)) == (200, "attached")
    assert (await hall.store.doubt(lease, "upstream_timeout")).transition is Transition.DONE
    assert not (await hall.find(lease)).dead_lettered
    (taken,) = await hall.store.reconciliation.take_due("create-charge", 10, 60.0)
    assert taken.evidence is not None
    assert (taken.evidence.response.status, taken.evidence.response.body) == (201, ANSWER)
    assert (taken.evidence.entry.source, taken.evidence.entry.what) == ("webhook", "executed")


async def test_an_event_after_the_end_says_nothing_new(hall: Hall) -> None:
    """A completed record keeps its answer; the event is known again."""
    lease = await hall.reserve()
    await hall.store.complete(lease, response(b"its own"), KEPT)
    told = event("charge.succeeded", lease.key.key)
    assert await hall.send(told) == (200, "already")
    assert await hall.send(told) == (200, "duplicate")
    record = await hall.find(lease)
    assert record.response is not None
    assert record.response.body == b"its own"
    assert await hall.history(lease) == []


async def test_an_event_settles_what_was_released(hall: Hall) -> None:
    """A retry would have run it twice: now it gets the answer."""
    lease = await hall.reserve()
    await hall.store.release(lease, "connection_refused", KEPT)
    assert await hall.send(event("charge.succeeded", lease.key.key)) == (200, "applied")
    assert (await hall.find(lease)).status is Status.COMPLETED


async def test_what_was_released_and_is_over_is_no_record_any_more(hall: Hall) -> None:
    """An event about a released record whose retention is over matches nothing."""
    lease = await hall.reserve()
    await hall.store.release(lease, "connection_refused", KEPT)
    await hall.age(KEPT.seconds + 1)
    assert await hall.send(event("charge.succeeded", lease.key.key)) == (200, "unmatched")
    assert (await hall.find(lease)).status is Status.FAILED_RETRYABLE


async def test_not_executed_counts_only_when_it_is_over(hall: Hall) -> None:
    """What was said while the upstream might still be at it is no word of afterwards, however often it is sent; a new event is."""
    lease = await hall.reserve()
    running, doubted, told = (event("charge.expired", lease.key.key) for _ in range(3))
    assert await hall.send(running) == (200, "too_early")
    await hall.store.doubt(lease, "upstream_timeout")
    assert await hall.send(doubted) == (200, "too_early")
    await hall.age(LEASE + MAX_EXECUTION + 1)
    assert [await hall.send(early) for early in (running, doubted)] == [(200, "duplicate")] * 2
    assert (await hall.find(lease)).status is Status.UNKNOWN
    assert await hall.send(told) == (200, "applied")
    record = await hall.find(lease)
    assert (record.status, record.last_error_code) == (Status.FAILED_RETRYABLE, "verdict_not_executed")
    assert await hall.history(lease) == [("webhook", "not_executed")] * 3
    assert await hall.send(told) == (200, "duplicate")
    assert await hall.send(event("charge.expired", lease.key.key)) == (200, "already")


async def test_not_executed_counts_as_one_look(open_hall: OpenHall) -> None:
    """Where two looks must agree, an event is one of them, and its repetition is not the second."""
    hall = await open_hall(route_with(replace(POLICY, reconcile=Reconcile(pace=Pace(looks=2, apart=30.0)))))
    lease = await hall.doubt(over=True)
    first, second = event("charge.expired", lease.key.key), event("charge.expired", lease.key.key)
    assert await hall.send(first) == (200, "applied")
    assert await hall.send(first) == (200, "duplicate")
    assert await hall.send(second) == (200, "too_early")
    assert (await hall.find(lease)).status is Status.UNKNOWN
    await hall.age(31)
    assert [await hall.send(known) for known in (first, second)] == [(200, "duplicate")] * 2
    assert (await hall.find(lease)).status is Status.UNKNOWN
    assert await hall.send(event("charge.expired", lease.key.key)) == (200, "applied")
    assert (await hall.find(lease)).status is Status.FAILED_RETRYABLE


async def test_not_executed_does_not_count_for_a_second_attempt(hall: Hall) -> None:
    """It may be about the first: the record stays as it is. What says *executed* counts all the same."""
    lease = await hall.reserve()
    await hall.store.release(lease, "connection_refused", KEPT)
    found = await hall.find(lease)
    again = await hall.store.claim(found, intent_for(lease.key))
    assert again is not None
    await hall.store.doubt(again, "upstream_timeout")
    await hall.age(LEASE + MAX_EXECUTION + 1)
    assert await hall.send(event("charge.expired", lease.key.key)) == (200, "no_verdict")
    assert (await hall.find(lease)).status is Status.UNKNOWN
    assert await hall.send(event("charge.succeeded", lease.key.key)) == (200, "applied")


async def test_an_event_that_no_rule_knows_decides_nothing(hall: Hall) -> None:
    """It is not remembered either: with other rules its repetition may say more."""
    lease = await hall.doubt(over=True)
    told = event("charge.pending", lease.key.key)
    for _ in range(2):
        assert await hall.send(told) == (200, "no_verdict")
    assert (await hall.find(lease)).status is Status.UNKNOWN


async def test_an_event_without_what_the_answer_needs_completes_without_an_answer(hall: Hall) -> None:
    """An answer is never guessed, and what was executed is never run again: retries learn that it ran, and with what status."""
    lease = await hall.doubt()
    assert await hall.send(event("charge.succeeded", lease.key.key, data={"key": lease.key.key})) == (200, "applied")
    record = await hall.find(lease)
    assert record.status is Status.COMPLETED
    assert record.response is not None
    assert (record.response.status, record.response.headers, record.response.body) == (201, (), None)


async def test_an_event_without_what_the_answer_needs_is_evidence(hall: Hall) -> None:
    """An attempt that says later that it did not execute is not believed."""
    lease = await hall.reserve()
    assert await hall.send(event("charge.succeeded", lease.key.key, data={"key": lease.key.key})) == (200, "attached")
    assert (await hall.store.release(lease, "status_429", KEPT)).transition is Transition.STALE
    assert (await hall.find(lease)).status is Status.UNKNOWN


async def test_events_may_come_in_any_order(hall: Hall) -> None:
    """What came first in the world and last here changes nothing any more."""
    lease = await hall.doubt(over=True)
    succeeded, expired, pending = (event(f"charge.{word}", lease.key.key) for word in ("succeeded", "expired", "pending"))
    assert await hall.send(succeeded) == (200, "applied")
    assert await hall.send(expired) == (200, "already")
    assert await hall.send(pending) == (200, "no_verdict")
    assert (await hall.find(lease)).status is Status.COMPLETED


async def test_one_event_at_once_is_applied_once(hall: Hall) -> None:
    """Of many deliveries at one moment one is applied; the others change nothing."""
    lease = await hall.doubt()
    told = event("charge.succeeded", lease.key.key)
    outcomes = await asyncio.gather(*(hall.send(told) for _ in range(8)))
    assert outcomes.count((200, "applied")) == 1
    assert set(outcomes) <= {(200, "applied"), (200, "duplicate"), (200, "already")}
    assert await hall.history(lease) == [("webhook", "executed")]


@pytest.mark.parametrize("round_number", range(5))
async def test_an_event_and_a_verdict_at_once_make_one_truth(hall: Hall, round_number: int) -> None:
    """A probe concludes *not executed* while an event says otherwise: whoever is second is stale, and looks again."""
    lease = await hall.doubt(over=True)
    (taken,) = await hall.store.reconciliation.take_due("create-charge", 1, 60.0)
    conclude = hall.store.reconciliation.conclude_not_executed(
        taken.fence, "verdict_not_executed", KEPT, Entry("lookup", "not_executed"), looked=True
    )
    (status, result), verdict = await asyncio.gather(hall.send(event("charge.succeeded", lease.key.key)), conclude)
    assert (status, result) == (200, "applied")
    assert verdict in (Transition.DONE, Transition.STALE)
    assert (await hall.find(lease)).status is Status.COMPLETED


@pytest.mark.parametrize("round_number", range(5))
async def test_an_event_and_the_late_answer_at_once_make_one_truth(hall: Hall, round_number: int) -> None:
    """The attempt's own late answer and the event: one of the two answers is kept, whole, and nobody is told that both are."""
    lease = await hall.doubt()
    late = hall.store.complete(lease, response(b"late"), KEPT)
    (status, result), settled = await asyncio.gather(hall.send(event("charge.succeeded", lease.key.key)), late)
    record = await hall.find(lease)
    assert record.response is not None
    if settled.transition is Transition.DONE:
        assert (status, result, record.response.body) == (200, "already", b"late")
    else:
        assert settled.transition is Transition.STALE
        assert (status, result, record.response.body) == (200, "applied", ANSWER)


async def test_a_record_is_found_by_a_captured_value(open_hall: OpenHall) -> None:
    """The event may name the operation by something of the request that was kept."""
    webhook = POLICY.webhook
    assert webhook is not None
    hall = await open_hall(route_with(replace(POLICY, webhook=replace(webhook, find="/data/order", by="order"))))
    lease = await hall.reserve(captured={OWN_KEY: "k", "order": "4711"}, correlation="4711")
    await hall.store.doubt(lease, "upstream_timeout")
    assert await hall.send(event("charge.succeeded", "whatever", data={"order": 4711, "object": {}})) == (200, "applied")
    assert (await hall.find(lease)).status is Status.COMPLETED
