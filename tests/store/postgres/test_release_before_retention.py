"""Beside the release before tombstones: its statements on the present schema, its records in present hands, and ours in its."""

from gateway.core.model import Lease, Record, Status, Tombstone
from gateway.ports import Retention, Transition
from gateway.store.migrate import migrate, migrations
from gateway.store.postgres import PostgresStore
from gateway.store.postgres.rows import columns
from tests.store.contract.harness import (
    KEPT,
    LEASE,
    RETENTION,
    age_records,
    archived_records,
    found,
    intent,
    packed_response,
    reserved,
    response,
)
from tests.store.postgres.before import Before

MIGRATION = 2
"""The last one of that release."""

LEFT = Retention(RETENTION, gone_for=RETENTION * 9, keep_for=RETENTION * 9)


async def test_its_records_are_read_and_its_statements_go_on(before: Before, old_store: PostgresStore, old_database: str) -> None:
    """A gateway that runs through the migration keeps working as prepared, and what it writes before and after is read as it was."""
    first, second, third = [await before.reserved(intent()) for _ in range(3)]
    assert await before.complete(first, packed_response()) == "done"
    assert await migrate(old_database) == [step.name for step in migrations()[2:]]
    assert await before.complete(second, response(b"second")) == "done"
    assert await before.complete(second, response(b"second")) == "already"
    assert await before.release(third) == "done"
    for lease, answer in ((first, packed_response()), (second, response(b"second"))):
        assert (await found(old_store, lease.key)).response == answer
        again = await old_store.reserve(intent(lease.key, gone_for=60.0))
        assert isinstance(again, Record)
        assert again.response == answer
    assert await old_store.claim(await found(old_store, third.key), intent(third.key)) is not None


async def test_every_statement_of_its_works_on_our_records(before: Before, old_store: PostgresStore, old_database: str) -> None:
    """It finds, claims, renews, settles and sweeps what we made, and counts it."""
    await migrate(old_database)
    released, expired = [await reserved(old_store, intent()) for _ in range(2)]
    await old_store.release(released, "x", LEFT)
    await old_store.complete(expired, response(), Retention(0.0, gone_for=60.0, keep_for=60.0))
    for name, lease in (("retry", released), ("new_life", expired)):
        theirs = await before.claim(name, await found(old_store, lease.key), intent(lease.key))
        leases = columns([(theirs.key.scope_id, theirs.key.key, theirs.owner, LEASE)])
        assert [row["owner"] for row in await before.run("renew", *leases)] == [theirs.owner]
        assert await before.doubt(theirs) == "done"
        assert await before.complete(theirs, response(b"theirs")) == "done"
        assert (await before.find(lease.key))["response_body"] == b"theirs"
    lapsing, lapsed = [await reserved(old_store, intent()) for _ in range(2)]
    await age_records(old_database, LEASE + 1)
    record = await found(old_store, lapsed.key)
    assert len(await before.run("lapse", lapsed.key.scope_id, lapsed.key.key, record.record_id, record.version)) == 1
    assert [row["idempotency_key"] for row in await before.run("sweep", 10)] == [lapsing.key.key]
    (counts,) = await before.run("counts", 1000)
    assert (counts["completed"], counts["unknown"]) == (2, 2)
    (live,) = await before.run("live_records", "payments", 1000)
    assert (live["found"], live["endless"]) == (4, True)


async def test_its_reaper_leaves_nothing_and_its_reserves_ask_for_nothing(
    before: Before, old_store: PostgresStore, old_database: str
) -> None:
    """It deletes expired records as it always did: what a route wants to be left is left once the last process of that release has gone."""
    await migrate(old_database)
    lease, ours = [await reserved(old_store, intent()) for _ in range(2)]
    await old_store.complete(lease, response(), LEFT)
    await age_records(old_database, RETENTION + 1)
    assert [row["reaped"] for row in await before.run("reap", 10)] == [1]
    assert await archived_records(old_database, lease.key) == []
    assert isinstance(await old_store.reserve(intent(lease.key, gone_for=60.0)), Lease)
    await old_store.complete(ours, response(), LEFT)
    await age_records(old_database, RETENTION + 1)
    assert await old_store.reap(10) == 1
    assert isinstance(await old_store.reserve(intent(ours.key, gone_for=60.0)), Tombstone)
    assert isinstance(await before.reserve(intent(ours.key)), Lease)


async def test_what_it_does_to_observed_records_stands_in_nobodys_way(before: Before, old_store: PostgresStore, old_database: str) -> None:
    """To it they are records like others; ours are taken over all the same, its own never, and its reaper takes no doubt of ours."""
    await migrate(old_database)
    doubtful, swept, late = [await reserved(old_store, intent(observed=True)) for _ in range(3)]
    assert await before.doubt(doubtful) == "done"
    await age_records(old_database, LEASE + 1)
    assert len(await before.run("sweep", 10)) == 2
    assert isinstance(await old_store.reserve(intent(doubtful.key)), Lease)
    assert isinstance(await old_store.reserve(intent(swept.key)), Lease)
    assert (await old_store.complete(late, response(), KEPT)).transition is Transition.DONE
    ours = await reserved(old_store, intent(observed=True))
    await old_store.doubt(ours, "x")
    await age_records(old_database, RETENTION * 100)
    await before.run("reap", 10)
    assert (await found(old_store, ours.key)).expired
    assert (await before.find(ours.key))["status"] == Status.UNKNOWN
    assert await before.complete(ours, response()) == "done"
    guarded = await before.reserved(intent())
    assert isinstance(await old_store.reserve(intent(guarded.key)), Record)
