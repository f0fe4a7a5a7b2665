"""Beside the release before records had one CHECK constraint: that release stays ready, and what is refused is what the twelve refused."""

import itertools
import secrets
from collections.abc import Iterator
from urllib.parse import urlsplit

import asyncpg
import pytest

from gateway.store import migrate as schema
from gateway.store.migrate import migrate, migrations
from gateway.store.postgres import PostgresStore
from tests.store.contract.harness import intent, reserved

MIGRATION = 6
"""The last one of that release."""

SIXTEEN, THIRTY_TWO = f"'\\x{'ab' * 16}'::bytea", f"'\\x{'cd' * 32}'::bytea"
INSTANT, SPAN, BYTES = "timestamptz '2026-01-01'", "interval '1 min'", "'\\x00'::bytea"

NOTHING = dict.fromkeys(
    (
        *("locked_until", "reconcile_after", "unknown_since", "dead_lettered_at", "last_error_code", "accepted_at", "pending_until"),
        *("due_at", "retention", "request_sealed", "completed_at", "expires_at", "response_status_code", "response_reason"),
        *("response_headers", "response_body", "response_body_length", "response_body_digest", "response_schema_version"),
    ),
    "NULL",
)
RECORD = {
    **NOTHING,
    "owner": SIXTEEN,
    "request_fingerprint": THIRTY_TWO,
    "version": "1",
    "attempt": "1",
    "observed": "false",
    "max_execution": SPAN,
    "reconcile_attempts": "0",
    "response_body_encoding": "0",
}
ANSWER = {
    "completed_at": INSTANT,
    "expires_at": INSTANT,
    "response_status_code": "201",
    "response_reason": BYTES,
    "response_headers": BYTES,
    "response_body": BYTES,
    "response_body_length": "1",
    "response_body_digest": BYTES,
    "response_schema_version": "1",
}
ACCEPTED = {"accepted_at": INSTANT, "pending_until": INSTANT, "retention": SPAN}
DOUBT = {"status": "'unknown'", "unknown_since": INSTANT, "reconcile_after": INSTANT, "last_error_code": "'x'"}
SOUND = (
    {**RECORD, "status": "'in_progress'", "locked_until": INSTANT, "reconcile_after": INSTANT},
    {**RECORD, "status": "'completed'", **ANSWER},
    {**RECORD, "status": "'completed'", **ANSWER, **ACCEPTED, "attempt": "0"},
    {**RECORD, "status": "'completed'", **ANSWER, "response_schema_version": "2", "response_body_encoding": "1"},
    {**RECORD, "status": "'failed_retryable'", "expires_at": INSTANT},
    {**RECORD, **DOUBT},
    {**RECORD, **DOUBT, "observed": "true", "expires_at": INSTANT, "dead_lettered_at": INSTANT},
    {**RECORD, "status": "'pending'", **ACCEPTED, "due_at": INSTANT, "request_sealed": BYTES, "attempt": "0"},
)
"""A record of each kind."""

OTHERWISE = {
    **{name: (INSTANT, "NULL") for name in NOTHING if name.endswith(("_until", "_after", "_since", "_at"))},
    "status": ("'in_progress'", "'completed'", "'failed_retryable'", "'unknown'", "'pending'", "'lost'"),
    "owner": (BYTES,),
    "request_fingerprint": (SIXTEEN,),
    "version": ("0",),
    "attempt": ("0", "-1", "1"),
    "observed": ("true", "false"),
    "max_execution": ("interval '-1 s'",),
    "reconcile_attempts": ("-1",),
    "last_error_code": ("'x'", "NULL"),
    "retention": (SPAN, "NULL"),
    "request_sealed": (BYTES, "NULL"),
    "response_status_code": ("201", "NULL"),
    "response_reason": (BYTES, "NULL"),
    "response_headers": (BYTES, "NULL"),
    "response_body": (BYTES, "NULL"),
    "response_body_encoding": ("1", "0"),
    "response_body_length": ("1", "NULL"),
    "response_body_digest": (BYTES, "NULL"),
    "response_schema_version": ("1", "2", "3", "NULL"),
}
"""What a column may hold instead."""


def changed(record: dict[str, str]) -> Iterator[dict[str, str]]:
    """The record with each change of one column, and with each of two."""
    single = [(name, value) for name, values in OTHERWISE.items() for value in values if record[name] != value]
    yield record
    for one in single:
        yield {**record, **dict((one,))}
    for one, other in itertools.combinations(single, 2):
        if one[0] != other[0]:
            yield {**record, **dict((one, other))}


async def test_it_stays_ready(old_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet is replaced one by one, after `migrate`: those who are still to go must not all leave their load balancers at once."""
    await migrate(old_database)
    known = migrations()[:MIGRATION]
    monkeypatch.setattr(schema, "migrations", lambda: known)
    connection = await asyncpg.connect(old_database)
    try:
        assert await schema.pending(connection) == []
    finally:
        await connection.close()


async def checks(connection: "asyncpg.Connection[asyncpg.Record]") -> list[str]:
    """What the constraints of records demand."""
    query = "SELECT pg_get_expr(conbin, conrelid) FROM pg_constraint WHERE conrelid = 'gateway_records'::regclass AND contype = 'c'"
    return [row[0] for row in await connection.fetch(query)]


async def test_one_constraint_says_what_twelve_said(old_database: str) -> None:
    """Of a record of each kind, with every change of one column or of two."""
    connection = await asyncpg.connect(old_database)
    try:
        await compare(connection)
    finally:
        await connection.close()


async def compare(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    before = await checks(connection)
    await connection.execute(migrations()[6].sql)
    (after,) = await checks(connection)
    names = sorted({**RECORD, "status": ""})
    rows = [f"({', '.join(record[name] for name in names)})" for sound in SOUND for record in changed(sound)]
    await connection.execute("CREATE TEMPORARY TABLE told (LIKE gateway_records)")
    for column in await connection.fetch(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'pg_temp.told'::regclass AND attnum > 0 AND attnotnull"
    ):
        await connection.execute(f"ALTER TABLE told ALTER COLUMN {column['attname']} DROP NOT NULL")
    for first in range(0, len(rows), 2000):
        await connection.execute(f"INSERT INTO told ({', '.join(names)}) VALUES {', '.join(rows[first : first + 2000])}")
    twelve = " AND ".join(f"({check}) IS NOT FALSE" for check in before)
    assert len(before) == 12
    differing = await connection.fetch(f"SELECT * FROM told WHERE ({twelve}) IS DISTINCT FROM (({after}) IS NOT FALSE)")
    assert not differing
    sound = await connection.fetchval(f"SELECT count(*) FROM told WHERE {after}")
    assert len(SOUND) <= sound < len(rows) // 2, "records of both kinds were looked at"


async def test_a_role_with_rights_to_tables_alone_goes_on(empty_database: str) -> None:
    """The twelve called nothing of ours, so that who migrates and who serves could be two roles, and functions nobody's to call."""
    admin = await asyncpg.connect(empty_database)
    role = f"serving_{secrets.token_hex(4)}"
    await admin.execute("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
    await migrate(empty_database)
    await admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'; GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
    at = urlsplit(empty_database)
    store = PostgresStore(f"postgresql://{role}:x@{at.hostname}:{at.port}{at.path}")
    try:
        await reserved(store, intent())
    finally:
        await store.close()
        await admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}; ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO PUBLIC")
        await admin.close()
