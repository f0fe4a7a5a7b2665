"""Beside the release before finding out: its statements on the present schema, its records in present hands, and ours in its."""

from dataclasses import replace

import pytest

from gateway.core.model import Lease, Record, Status
from gateway.ports import Transition
from gateway.ports.reconciliation import Evidence
from gateway.store.migrate import migrate, migrations
from gateway.store.postgres import PostgresStore
from gateway.store.postgres.rows import columns
from tests.store.contract.harness import (
    KEPT,
    LEASE,
    MAX_EXECUTION,
    RETENTION,
    age_records,
    found,
    intent,
    packed_response,
    reserved,
    response,
)
from tests.store.contract.resolving import AUDIT, FOUND_ANSWER, HOLD, LOOKED, NOT_EXECUTED, ROUTE, TOLD, event, fence_of, telling
from tests.store.postgres.before import Before

MIGRATION = 3
"""The last one of that release."""


async def test_its_records_are_read_and_its_statements_go_on(before: Before, old_store: PostgresStore, old_database: str) -> None:
    """A gateway that runs through the migration keeps working as prepared, and what it writes before and after is read as it was."""
    first, second, third = [await before.reserved(intent()) for _ in range(3)]
    assert await before.complete(first, packed_response()) == "done"
    assert await migrate(old_database) == [step.name for step in migrations()[3:]]
    assert await before.complete(second, response(b"second")) == "done"
    assert await before.release(third) == "done"
    for lease, answer in ((first, packed_response()), (second, response(b"second"))):
        again = await old_store.reserve(intent(lease.key))
        assert isinstance(again, Record)
        assert again.response == answer
    assert await old_store.claim(await found(old_store, third.key), telling(third.key)) is not None
    assert [subject.fence.key for subject in await old_store.reconciliation.find_captured("payments", "order-1")] == [third.key]


async def test_every_statement_of_its_works_on_our_records(before: Before, old_store: PostgresStore, old_database: str) -> None:
    """It finds, claims, renews, settles and sweeps what we made, and counts and reaps it."""
    await migrate(old_database)
    released, expired = [await reserved(old_store, telling(sealed=b"sealed")) for _ in range(2)]
    await old_store.release(released, "x", KEPT)
    await old_store.complete(expired, response(), replace(KEPT, seconds=0.0, keep_for=60.0))
    for name, lease in (("retry", released), ("new_life", expired)):
        theirs = await before.claim(name, await found(old_store, lease.key), intent(lease.key))
        leases = columns([(theirs.key.scope_id, theirs.key.key, theirs.owner, LEASE)])
        assert [row["owner"] for row in await before.run("renew", *leases)] == [theirs.owner]
        assert await before.doubt(theirs) == "done"
        assert await before.complete(theirs, response(b"theirs")) == "done"
        assert (await before.find(lease.key))["response_body"] == b"theirs"
    lapsing, lapsed = [await reserved(old_store, telling(sealed=b"sealed")) for _ in range(2)]
    await age_records(old_database, LEASE + 1)
    assert await before.lapse(await found(old_store, lapsed.key))
    assert [row["idempotency_key"] for row in await before.run("sweep", 10, *before.doubt_kept)] == [lapsing.key.key]
    (counts,) = await before.run("counts", 1000)
    assert (counts["completed"], counts["unknown"], counts["dead_letters"]) == (2, 2, 0)
    await age_records(old_database, RETENTION + 1)
    assert [row["reaped"] for row in await before.run("reap", 10, 2**30, 0.0)] == [2]


async def test_what_it_leaves_in_doubt_of_ours_is_found_out(before: Before, old_store: PostgresStore, old_database: str) -> None:
    """It knows not of the instant from which on *not executed* counts: that is then reckoned from the doubt."""
    await migrate(old_database)
    lease = await reserved(old_store, telling(sealed=b"sealed"))
    assert await before.doubt(lease) == "done"
    reconciliation = old_store.reconciliation
    await age_records(old_database, MAX_EXECUTION - 5)
    at = fence_of(await found(old_store, lease.key))
    assert await reconciliation.conclude_not_executed(at, "x", KEPT, NOT_EXECUTED) is Transition.STALE
    assert await old_store.claim(await found(old_store, lease.key), intent(lease.key, reexecute=True)) is None
    await age_records(old_database, LEASE + 10)
    (look,) = await reconciliation.take_due(ROUTE, 10, HOLD)
    assert (look.over, look.sealed, look.captured["order"]) == (True, b"sealed", "größe-1")
    assert await reconciliation.look_again(look.fence, 0.0, agreed=True, entry=LOOKED) is Transition.DONE
    (look,) = await reconciliation.take_due(ROUTE, 10, HOLD, [b"o" * 16])
    assert await reconciliation.conclude_not_executed(look.fence, "x", KEPT, NOT_EXECUTED) is Transition.STALE
    await age_records(old_database, HOLD + MAX_EXECUTION + 1)
    at = fence_of(await found(old_store, lease.key))
    assert await reconciliation.conclude_not_executed(at, "x", KEPT, NOT_EXECUTED) is Transition.DONE


async def test_its_own_doubts_are_dead_letters(before: Before, old_store: PostgresStore, old_database: str) -> None:
    """It knows no probe: nobody looks until a person asks, and then by our rules."""
    await migrate(old_database)
    lease = await before.reserved(intent(reconcilable=False))
    assert await before.doubt(lease) == "done"
    assert await old_store.reconciliation.take_due(ROUTE, 10, HOLD) == []
    record = await found(old_store, lease.key)
    assert record.dead_lettered
    assert await old_store.reconciliation.conclude_executed(fence_of(record), FOUND_ANSWER, KEPT, TOLD) is Transition.DONE


@pytest.mark.parametrize("ends", ["release", "complete"])
async def test_a_doubt_is_not_judged_by_an_earlier_one(before: Before, old_store: PostgresStore, old_database: str, ends: str) -> None:
    """What we wrote down of the first, the release before leaves in the row. Its own second one is over only when its upstream is."""
    await migrate(old_database)
    first = await before.reserved(intent(reconcilable=False))
    await age_records(old_database, LEASE + 1)
    assert len(await old_store.sweep(10)) == 1
    if ends == "release":
        assert await before.release(first) == "done"
        await age_records(old_database, MAX_EXECUTION + 5)
        second = await before.claim("retry", await found(old_store, first.key), intent(first.key))
    else:
        assert await before.complete(first, response()) == "done"
        await age_records(old_database, RETENTION + 5)
        second = await before.claim("new_life", await found(old_store, first.key), intent(first.key))
    assert await before.doubt(second) == "done"
    record = await found(old_store, first.key)
    assert not record.doubt_over
    assert await old_store.operations.release(fence_of(record), KEPT, AUDIT) is Transition.STALE
    await age_records(old_database, MAX_EXECUTION + 1)
    assert await old_store.operations.release(fence_of(await found(old_store, first.key)), KEPT, AUDIT) is Transition.DONE


async def test_what_is_left_of_an_earlier_life_is_not_taken_for_the_present_one(
    before: Before, old_store: PostgresStore, old_database: str
) -> None:
    """In a row that it takes over, an event finds no record of ours, and evidence says nothing of its attempt."""
    await migrate(old_database)
    ours = await reserved(old_store, telling())
    at = fence_of(await found(old_store, ours.key))
    assert await old_store.reconciliation.attach(at, Evidence(FOUND_ANSWER, TOLD), event()) is Transition.DONE
    assert await before.complete(ours, response()) == "done"
    await age_records(old_database, RETENTION + 1)
    theirs = await before.claim("new_life", await found(old_store, ours.key), intent(ours.key))
    assert await old_store.reconciliation.find_captured("payments", "order-1") == []
    assert await before.doubt(theirs) == "done"
    assert await old_store.reconciliation.take_due(ROUTE, 10, HOLD) == []
    await age_records(old_database, LEASE + MAX_EXECUTION + 1)
    (look,) = await old_store.reconciliation.take_due(ROUTE, 10, HOLD)
    assert look.evidence is None
    assert await old_store.reconciliation.conclude_not_executed(look.fence, "x", KEPT, NOT_EXECUTED, looked=True) is Transition.DONE


async def test_it_replays_what_was_found(before: Before, old_store: PostgresStore, old_database: str) -> None:
    """A verdict's answer is one like any other to it, and a freed key is free."""
    await migrate(old_database)
    leases = [await reserved(old_store, telling()) for _ in range(2)]
    for lease in leases:
        await old_store.doubt(lease, "upstream_timeout")
    await age_records(old_database, LEASE + MAX_EXECUTION + 1)
    executed, not_executed = await old_store.reconciliation.take_due(ROUTE, 2, HOLD)
    await old_store.reconciliation.conclude_executed(executed.fence, FOUND_ANSWER, KEPT, TOLD)
    await old_store.reconciliation.conclude_not_executed(not_executed.fence, "x", KEPT, NOT_EXECUTED, looked=True)
    row = await before.reserve(intent(executed.fence.key))
    assert not isinstance(row, Lease)
    assert (row["status"], row["response_body"]) == (Status.COMPLETED, FOUND_ANSWER.body)
    key = not_executed.fence.key
    theirs = await before.claim("retry", await found(old_store, key), intent(key))
    assert theirs.attempt == 2
