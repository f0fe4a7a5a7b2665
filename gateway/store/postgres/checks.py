"""Whether a Postgres keeps what it has acknowledged."""

from collections.abc import Mapping
from typing import Any

from gateway.store.hosts import connect

OLDEST = 15

SETTINGS = """
SELECT
    current_setting('fsync') AS fsync,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('synchronous_standby_names') <> '' AND current_setting('max_wal_senders') <> '0' AS has_standby,
    pg_is_in_recovery() AS in_recovery,
    current_setting('server_version_num')::integer / 10000 AS version
"""
"""What `problems_of` judges."""


async def check_server(dsn: str, allow_unsafe: frozenset[str] = frozenset(), *, standby: bool = False) -> list[str]:
    """What makes the server at `dsn` unfit to be the authority, one message each, beginning with the name by which it can be allowed.

    Names: `fsync_off`, `synchronous_commit_off` and `synchronous_commit_remote_write` (as our own sessions see it: whatever set it, the
    server, the role, the database, a pooler), `in_recovery`. A version below 15 cannot be allowed, nor, with `standby`, that commits wait
    for no synchronous standby. Raises `OSError` and asyncpg's errors when it cannot be asked.
    """
    connection = await connect(dsn, 10.0, statement_cache_size=0)
    try:
        async with connection.transaction():  # which a pooler in transaction mode keeps together
            row = await connection.fetchrow(SETTINGS)
    finally:
        await connection.close(timeout=5)
    assert row is not None
    return problems_of(dict(row), allow_unsafe, standby=standby)


def problems_of(row: Mapping[str, Any], allow_unsafe: frozenset[str], *, standby: bool = False) -> list[str]:
    """As `check_server`, of a row of `SETTINGS`."""
    found = {
        "fsync_off": row["fsync"] == "off" and "a crash of the machine loses or corrupts records",
        "synchronous_commit_off": _forgets(row["synchronous_commit"], has_standby=row["has_standby"]),
        "synchronous_commit_remote_write": row["synchronous_commit"] == "remote_write"
        and row["has_standby"]
        and "commits do not wait until the standby has them on disk: a crash of both machines, and a failover, forget acknowledged records",
        "in_recovery": row["in_recovery"] and "this is a standby: it cannot be written, and what it shows may be old",
    }
    problems = [f"{name}: {why}" for name, why in found.items() if why and name not in allow_unsafe]
    if standby and not row["has_standby"] and not row["in_recovery"]:
        problems.append("require_standby: commits wait for no standby (synchronous_standby_names is empty): a failover forgets them")
    if row["version"] < OLDEST:
        problems.append(f"version: Postgres {row['version']} is older than {OLDEST}")
    return problems


def _forgets(synchronous_commit: str, *, has_standby: bool) -> str | None:
    """What makes the server forget commits that it has acknowledged; None if nothing does."""
    if synchronous_commit == "off":
        return "a crash of the server forgets acknowledged records"
    if synchronous_commit == "local" and has_standby:
        return "it is `local`, so that commits do not wait for the synchronous standby: a failover forgets acknowledged records"
    return None
