"""The profile for large installations on one Postgres: hash partitions, made of the migrated schema itself (`partitions.sql`)."""

from importlib.resources import files

import asyncpg

from gateway.store import co_commit
from gateway.store.hosts import connect
from gateway.store.migrate import CONNECT_TIMEOUT, LOCK, MigrationError

_COUNTED = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'gateway_records'::regclass"


def script(partitions: int) -> str:
    """The SQL that divides the tables, for one transaction on a schema that is up to date and is not divided yet."""
    return files("gateway.store").joinpath("partitions.sql").read_text("utf-8").replace(":partitions", str(partitions))


async def partition(dsn: str, partitions: int, *, co_commit_is_installed_next: bool = False) -> bool:
    """Divide the tables, rows included; no gateway may run meanwhile. False: they are divided so already.

    Raises `MigrationError` if they are divided into another number, or if something else depends on them: the functions for
    upstreams that complete records, unless `co_commit_is_installed_next`. Raises OSError and asyncpg's errors. Whatever happens, all
    of it is done, or nothing.
    """
    connection = await connect(dsn, CONNECT_TIMEOUT, statement_cache_size=0)
    try:
        async with connection.transaction(isolation="read_committed"):
            await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
            present = await connection.fetchval(_COUNTED)
            if present == partitions:
                return False
            if present:
                raise MigrationError(f"the tables have {present} partitions, and their number cannot be changed")
            if co_commit_is_installed_next:
                await connection.execute(co_commit.REMOVED)
            await connection.execute(script(partitions))
    except asyncpg.DependentObjectsStillExistError as error:
        raise MigrationError(
            f"{error}: {error.detail}; nothing was changed. Functions of upstreams that complete records are installed anew "
            "where --co-commit-role is given, too"
        ) from error
    finally:
        await connection.close(timeout=5)
    return True
