"""Beside the release before scopes were held: its statements on the present schema, its records in present hands."""

from dataclasses import replace

from gateway.core.model import Record
from gateway.store.migrate import migrate, migrations
from gateway.store.postgres import PostgresStore
from gateway.store.postgres.rows import columns
from tests.store.contract.harness import KEPT, LEASE, RETENTION, age_records, found, intent, reserved, response
from tests.store.postgres.before import Before

MIGRATION = 4
"""The last one of that release."""


async def test_its_records_are_read_and_its_statements_go_on(before: Before, old_store: PostgresStore, old_database: str) -> None:
    """A gateway that runs through the migration keeps working as prepared, and what it writes before and after is read as it was."""
    first, second, third = [await before.reserved(intent()) for _ in range(3)]
    assert await before.complete(first, response(b"first")) == "done"
    assert await migrate(old_database) == [step.name for step in migrations()[MIGRATION:]]
    assert await before.complete(second, response(b"second")) == "done"
    assert await before.release(third) == "done"
    for lease, answer in ((first, response(b"first")), (second, response(b"second"))):
        again = await old_store.reserve(intent(lease.key))
        assert isinstance(again, Record)
        assert again.response == answer
    assert await old_store.claim(await found(old_store, third.key), intent(third.key)) is not None


async def test_every_statement_of_its_works_on_our_records(before: Before, old_store: PostgresStore, old_database: str) -> None:
    """It finds, claims, renews, settles and sweeps what we made, and counts, archives and reaps it."""
    await migrate(old_database)
    released, expired = [await reserved(old_store, intent()) for _ in range(2)]
    await old_store.release(released, "x", KEPT)
    await old_store.complete(expired, response(), replace(KEPT, seconds=0.0, keep_for=60.0))
    for name, lease in (("retry", released), ("new_life", expired)):
        theirs = await before.claim(name, await found(old_store, lease.key), intent(lease.key))
        leases = columns([(theirs.key.scope_id, theirs.key.key, theirs.owner, LEASE)])
        assert [row["owner"] for row in await before.run("renew", *leases)] == [theirs.owner]
        assert await before.doubt(theirs) == "done"
        assert await before.complete(theirs, response(b"theirs")) == "done"
        assert (await before.find(lease.key))["response_body"] == b"theirs"
    lapsing, lapsed = [await reserved(old_store, intent()) for _ in range(2)]
    await age_records(old_database, LEASE + 1)
    assert await before.lapse(await found(old_store, lapsed.key))
    assert [row["idempotency_key"] for row in await before.run("sweep", 10, *before.doubt_kept)] == [lapsing.key.key]
    await age_records(old_database, RETENTION + 1)
    assert [row["reaped"] for row in await before.run("reap", 10, 2**30, 0.0)] == [2]
