"""Installs the functions of `co_commit.sql` for a database role."""

from importlib.resources import files

import asyncpg

from gateway.store.hosts import connect
from gateway.store.migrate import CONNECT_TIMEOUT, LOCK, MigrationError


def script(role: str) -> str:
    """The functions and the grants to `role` as SQL, for one transaction on a schema that is up to date. Safe to run again."""
    quoted = "'" + role.replace("'", "''") + "'"
    return files("gateway.store").joinpath("co_commit.sql").read_text("utf-8").replace(":role", quoted)


INSTALLED = """
SELECT bool_and(to_regprocedure(name) IS NOT NULL) FROM unnest(ARRAY[
    'gateway_fence(text)', 'gateway_advance(text, text, jsonb)', 'gateway_complete(text, integer, jsonb, bytea)'
]) AS name
"""


REMOVED = "DROP FUNCTION IF EXISTS gateway_attempt(text)"
"""The one that is bound to the records' table, so that the table can be made anew; the next installation brings it back."""


async def is_installed(dsn: str) -> bool:
    """Whether the functions are there, whoever may call them. Raises OSError and asyncpg's errors."""
    connection = await connect(dsn, CONNECT_TIMEOUT, statement_cache_size=0)
    try:
        return bool(await connection.fetchval(INSTALLED))
    finally:
        await connection.close(timeout=5)


async def install(dsn: str, role: str) -> None:
    """Install the functions, or bring them up to date, and let `role` call them. Raises `MigrationError` if there is no such
    role, OSError and asyncpg's errors.
    """
    connection = await connect(dsn, CONNECT_TIMEOUT, statement_cache_size=0)
    try:
        async with connection.transaction(isolation="read_committed"):
            await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
            await connection.execute(script(role))
    except asyncpg.UndefinedObjectError as error:
        raise MigrationError(f'there is no role "{role}" in this database; create it first: CREATE ROLE "{role}" LOGIN') from error
    finally:
        await connection.close(timeout=5)
