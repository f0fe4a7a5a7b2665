"""Beside the release before accepted work: its statements on the present schema, its records in present hands, and pending ones in its."""

import asyncpg
import pytest

from gateway.core.model import Lease, RecordKey
from gateway.store.migrate import migrate, migrations
from gateway.store.postgres import PostgresStore
from gateway.store.postgres.rows import columns
from tests.store.contract.harness import KEPT, LEASE, RETENTION, age_records, found, intent, reserved, response
from tests.store.postgres.before import Before

MIGRATION = 5
"""The last one of that release."""

ACCEPT = """
    UPDATE gateway_records
    SET accepted_at = now(), pending_until = now() + interval '1 hour', retention = interval '1 day', request_sealed = 'sealed'
    WHERE scope_id = $1 AND idempotency_key = $2
    """
PARK = """
    UPDATE gateway_records
    SET status = 'pending', due_at = now() - interval '1 min', attempt = 0, locked_until = NULL, reconcile_after = NULL
    WHERE scope_id = $1 AND idempotency_key = $2
    """


async def accept(before: Before, key: RecordKey, *statements: str) -> None:
    for statement in statements:
        assert await before.connection.execute(statement, key.scope_id, key.key) == "UPDATE 1"


async def test_its_records_are_read_and_its_statements_go_on(before: Before, old_store: PostgresStore, old_database: str) -> None:
    """A gateway that runs through the migration keeps working as prepared, and what it writes before and after is read as it was."""
    first, second, third = [await before.reserved(intent()) for _ in range(3)]
    assert await before.complete(first, response(b"first")) == "done"
    assert await migrate(old_database) == [step.name for step in migrations()[MIGRATION:]]
    assert await before.complete(second, response(b"second")) == "done"
    assert await before.release(third) == "done"
    for lease, answer in ((first, response(b"first")), (second, response(b"second"))):
        assert (await found(old_store, lease.key)).response == answer
    assert await old_store.claim(await found(old_store, third.key), intent(third.key)) is not None


async def test_it_leaves_a_pending_record_alone(before: Before, old_store: PostgresStore, old_database: str) -> None:
    """No statement of that release runs it, ends it or frees its key, however late it is."""
    await migrate(old_database)
    lease = await reserved(old_store, intent())
    await accept(before, lease.key, ACCEPT, PARK)
    row = await before.reserve(intent(lease.key))
    assert not isinstance(row, Lease)
    assert row["status"] == "pending"
    seen = await before.find(lease.key)
    await age_records(old_database, RETENTION + 1)
    leases = columns([(lease.key.scope_id, lease.key.key, lease.owner, LEASE)])
    assert await before.run("renew", *leases) == []
    assert await before.run("sweep", 10, *before.doubt_kept) == []
    assert [row["reaped"] for row in await before.run("reap", 10, 2**30, 0.0)] == [0]
    assert [await before.doubt(lease), await before.release(lease), await before.complete(lease, response())] == ["stale"] * 3
    after = await before.find(lease.key)
    assert (after["status"], after["version"], after["owner"]) == ("pending", seen["version"], lease.owner)


async def test_a_new_life_that_it_begins_was_promised_to_nobody(before: Before, old_store: PostgresStore, old_database: str) -> None:
    """It knows nothing of the columns; what they say of a former life must not be taken for a promise of the new one."""
    await migrate(old_database)
    ours = await reserved(old_store, intent())
    await accept(before, ours.key, ACCEPT)
    await old_store.complete(ours, response(), KEPT)
    await age_records(old_database, RETENTION + 1)
    await before.claim("new_life", await found(old_store, ours.key), intent(ours.key))
    (row,) = await before.connection.fetch("SELECT accepted_at, pending_until, due_at, retention FROM gateway_records")
    assert set(row.values()) == {None}


async def test_what_cannot_be_pending_is_refused(before: Before, old_store: PostgresStore, old_database: str) -> None:
    """Nobody's promise, a request that is not kept, and an attempt without a number cannot be stored so."""
    await migrate(old_database)
    lease = await reserved(old_store, intent())
    with pytest.raises(asyncpg.CheckViolationError):
        await accept(before, lease.key, PARK)
    await accept(before, lease.key, ACCEPT)
    for change in ("request_sealed = NULL, due_at = now(), status = 'pending', locked_until = NULL", "attempt = 0", "due_at = now()"):
        with pytest.raises(asyncpg.CheckViolationError):
            await before.connection.execute(f"UPDATE gateway_records SET {change}")
