"""Beside the release before upstreams took part: its statements on records with points, and on those that an upstream completed."""

import asyncpg

from gateway.core.attempt_token import AttemptToken, write_token
from gateway.core.recovery_point import RecoveryPoint
from gateway.ports import Retention
from gateway.ports.participation import Participant
from gateway.store import co_commit
from gateway.store.migrate import migrate
from gateway.store.postgres import PostgresStore
from gateway.store.postgres.rows import columns
from tests.store.contract.harness import KEPT, LEASE, MAX_EXECUTION, RETENTION, age_records, found, intent, reserved, response
from tests.store.postgres.before import Before

MIGRATION = 5
"""The last one of that release."""

CHARGED = RecoveryPoint("charge_created", '{"charge":"ch_1"}')


async def test_its_statements_go_on_with_records_that_have_points(before: Before, old_store: PostgresStore, old_database: str) -> None:
    """It renews, settles, claims and sweeps them; the next attempt is told the point, whichever release claims it."""
    await migrate(old_database)
    renewed, ended, released, lapsed = [await reserved(old_store, intent()) for _ in range(4)]
    for lease in (renewed, ended, released, lapsed):
        assert await old_store.participation.advance(AttemptToken(lease.key, lease.owner), CHARGED) is not None
    leases = columns([(renewed.key.scope_id, renewed.key.key, renewed.owner, LEASE)])
    assert [row["owner"] for row in await before.run("renew", *leases)] == [renewed.owner]
    assert await before.complete(ended, response()) == "done"
    assert await before.release(released) == "done"
    theirs = await before.claim("retry", await found(old_store, released.key), intent(released.key))
    progress = await old_store.participation.progress(AttemptToken(theirs.key, theirs.owner))
    assert progress is not None
    assert (progress.attempt, progress.point) == (2, CHARGED)
    await age_records(old_database, LEASE + 1)
    assert lapsed.key.key in {row["idempotency_key"] for row in await before.run("sweep", 10, *before.doubt_kept)}
    await age_records(old_database, MAX_EXECUTION + 1)
    ours = await old_store.claim(await found(old_store, lapsed.key), intent(lapsed.key, reexecute=True))
    assert ours is not None
    progress = await old_store.participation.progress(AttemptToken(ours.key, ours.owner))
    assert progress is not None
    assert progress.point == CHARGED


async def test_what_an_upstream_completed_is_read_and_expires(before: Before, old_store: PostgresStore, old_database: str) -> None:
    """It replays the answer; a new life that it begins knows nothing of points, nor of who completed the life before."""
    await migrate(old_database)
    role = await before.connection.fetchval("SELECT current_user")
    await co_commit.install(old_database, role)
    await old_store.participation.register([Participant("create-charge", LEASE, Retention(RETENTION), 1000, co_commit=True)])
    lease = await reserved(old_store, intent())
    token = write_token(AttemptToken(lease.key, lease.owner))
    connection = await asyncpg.connect(old_database)
    await connection.execute("SELECT gateway_advance($1, 'x', '{\"a\": 1}')", token)
    await connection.execute("SELECT gateway_complete($1, 201, '[]', 'ride')", token)
    row = await before.find(lease.key)
    assert (row["status"], row["response_status_code"], row["response_body"], row["response_schema_version"]) == (
        "completed",
        201,
        b"ride",
        1,
    )
    assert await before.complete(lease, response()) == "stale"
    assert await before.doubt(lease) == "stale"
    await age_records(old_database, RETENTION + 1)
    await before.claim("new_life", await found(old_store, lease.key), intent(lease.key))
    (row,) = await connection.fetch("SELECT recovery_point, recovery_data, completed_by FROM gateway_records")
    assert set(row.values()) == {None}
    await connection.close()


async def test_ours_expires_the_same(before: Before, old_store: PostgresStore, old_database: str) -> None:
    """A record with a point is archived and reaped by either release."""
    await migrate(old_database)
    lease = await reserved(old_store, intent())
    await old_store.participation.advance(AttemptToken(lease.key, lease.owner), CHARGED)
    await old_store.complete(lease, response(), KEPT)
    await age_records(old_database, RETENTION + 1)
    assert [row["reaped"] for row in await before.run("reap", 10, 2**30, 0.0)] == [1]
