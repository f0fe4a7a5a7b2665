"""The statements of accepted work on a busy table: by which index, and how many rows, whatever waits."""

from typing import TYPE_CHECKING, TypeAlias

import asyncpg

from gateway.ports import Retention
from gateway.ports.accepted import Promise
from gateway.store.postgres.acceptance import Accepting, accept_statement
from gateway.store.postgres.queries import QUERIES
from gateway.store.postgres.resolving_rows import response_arguments
from tests.store.contract.harness import intent, response
from tests.store.postgres.plans import MODE_NAMES, plan_of, rows_read, scans
from tests.store.postgres.test_statements import fill

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]  # generic only in its stubs

PRIMARY, PENDING, UNTIL = "gateway_records_pkey", "gateway_records_pending", "gateway_records_pending_until"
WAITING = """
    INSERT INTO gateway_records (
        scope_id, idempotency_key, record_id, route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy,
        status, attempt, owner, request_method, request_target, max_execution, request_sealed, accepted_at, pending_until, retention, due_at
    )
    SELECT
        'waiting-' || n % 500 || ':none', 'w' || n, gen_random_uuid(), 'pay', 'q', sha256('f'), 1, sha256('p'),
        'pending', 0, decode(md5('w' || n), 'hex'), 'POST', '/v1', interval '1 min', 'sealed', now(),
        now() + n * interval '1 min' - interval '5 min', interval '1 day', now() - (n % 100) * interval '1 s'
    FROM generate_series(1, 10000) AS n
    """


async def waiting(connection: "Connection") -> None:
    """Twenty thousand other records, and ten thousand that wait, of five hundred principals."""
    await fill(connection)
    await connection.execute(WAITING)
    await connection.execute("VACUUM ANALYZE gateway_records")


async def test_every_statement_is_backed_by_an_index(connection: "Connection") -> None:
    """What is due is found by stepping through its principals; what is over by its instant; the rest by its key."""
    await waiting(connection)
    owners = [intent().owner for _ in range(8)]
    terms = ("pay", 8, 30.0, owners, 60.0, True)
    key = ("waiting-7:none", "w7")
    promise = Promise(600.0, Retention(60.0), 100, 10)
    parking = [Accepting((*key, owners[0], "no_slot", 0.0, True, True), promise, limited=True)]
    answer = response_arguments(response(b"{}", 408))
    cases = [
        (QUERIES["take"], terms, {PRIMARY, PENDING}, 6000),
        (QUERIES["take_doubtful"], (*terms, 3600.0), {PRIMARY, "gateway_records_due_by_route"}, 1000),
        (QUERIES["abandon_pending"], (10, *answer), {PRIMARY, UNTIL}, 100),
        (QUERIES["cancel_pending"], (*key, (await row_of(connection, key))["record_id"], *answer), {PRIMARY}, 10),
        (QUERIES["standing"], key, {PRIMARY}, 5),
        (*accept_statement(parking), {PRIMARY, PENDING}, 600),
    ]
    for mode in MODE_NAMES:
        for sql, arguments, allowed, rows in cases:
            plan = await plan_of(connection, mode, sql, *arguments)
            used = scans(plan)
            assert {index for _, index in used if index} <= allowed, (mode, sql, used)
            assert not [node for node, _ in used if node == "Seq Scan"], (mode, sql)
            assert rows_read(plan) <= rows, (mode, rows_read(plan), sql)


async def row_of(connection: "Connection", key: tuple[str, str]) -> asyncpg.Record:
    row = await connection.fetchrow("SELECT * FROM gateway_records WHERE scope_id = $1 AND idempotency_key = $2", *key)
    assert row is not None
    return row


async def test_what_is_given_back_is_looked_for_among_what_runs(connection: "Connection") -> None:
    """Once in a while, and never in the whole table."""
    await waiting(connection)
    for mode in MODE_NAMES:
        plan = await plan_of(connection, mode, QUERIES["give_back"], [intent().owner])
        assert not [node for node, _ in scans(plan) if node == "Seq Scan"], mode
        assert rows_read(plan) <= 1000, mode
