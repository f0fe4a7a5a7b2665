"""Whether a Postgres keeps what it has acknowledged."""

from gateway.store.hosts import connect
from gateway.store.postgres.rows import Row

OLDEST = 15

SETTINGS = """
SELECT
    current_setting('fsync') AS fsync,
    current_setting('synchronous_commit') AS synchronous_commit,
    pg_is_in_recovery() AS in_recovery,
    current_setting('server_version_num')::integer / 10000 AS version
"""
"""What `problems_of` judges."""


async def check_server(dsn: str, allow_unsafe: frozenset[str] = frozenset()) -> list[str]:
    """What makes the server at `dsn` unfit to be the authority, one message each, beginning with the name by which it can be allowed.

    Names: `fsync_off`, `synchronous_commit_off` (as our own sessions see it), `in_recovery`. A version below 15 cannot be allowed.
    Raises `OSError` and asyncpg's errors when it cannot be asked.
    """
    connection = await connect(dsn, 10.0, statement_cache_size=0)
    try:
        row = await connection.fetchrow(SETTINGS)
    finally:
        await connection.close(timeout=5)
    assert row is not None
    return problems_of(row, allow_unsafe)


def problems_of(row: Row, allow_unsafe: frozenset[str]) -> list[str]:
    """As `check_server`, of a row of `SETTINGS`."""
    found = {
        "fsync_off": row["fsync"] == "off" and "a crash of the machine loses or corrupts records",
        "synchronous_commit_off": row["synchronous_commit"] == "off" and "a crash of the server forgets acknowledged records",
        "in_recovery": row["in_recovery"] and "this is a standby: it cannot be written, and what it shows may be old",
    }
    problems = [f"{name}: {why}" for name, why in found.items() if why and name not in allow_unsafe]
    if row["version"] < OLDEST:
        problems.append(f"version: Postgres {row['version']} is older than {OLDEST}")
    return problems
