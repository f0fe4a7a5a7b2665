"""Schema migrations: the numbered files of `gateway/store/migrations`, applied in order, each in a transaction of its own.

A ledger in the database holds the name and SHA-256 of what was applied. A file that changed after it was applied is an error, as is a
ledger that knows more than the release after this code can have added. Every step holds a transaction-level advisory lock (safe behind
pgbouncer): any number of migrators may start at once.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import asyncpg

from gateway.store.hosts import connect

LOCK = 0x1DE_4907E_C47E
"""The advisory lock that migrators take; any constant that others are unlikely to use."""

CONNECT_TIMEOUT = 10.0
"""Seconds to wait for a connection."""

READABLE_AHEAD = 1
"""How many migrations a process tolerates beyond its own: each is written so that the release before still works on it. `migrate`
tolerates them, too, since a roll back that installs the release before as a whole runs its `migrate`, and nothing is to do then.
"""

LEDGER = """\
CREATE TABLE IF NOT EXISTS gateway_schema_migrations (
    version    integer PRIMARY KEY,
    name       text NOT NULL,
    checksum   bytea NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)"""

MIGRATIONS = "gateway/store/migrations"
"""The folder of the files."""

_RECORD = "INSERT INTO gateway_schema_migrations (version, name, checksum) VALUES ($1, $2, $3)"
_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")


class MigrationError(Exception):
    """The ledger and this code's migrations contradict each other, others hold what a file must lock, or something must be done before it.
    The message names the file.
    """


@dataclass(frozen=True, slots=True)
class Migration:
    """One file. `version` is the number that its name begins with."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> bytes:
        return hashlib.sha256(self.sql.encode()).digest()


@cache
def migrations() -> tuple[Migration, ...]:
    """The migrations of this code, in order."""
    found = [
        Migration(int(match[1]), entry.name, entry.read_text("utf-8"))
        for entry in files("gateway.store").joinpath("migrations").iterdir()
        if (match := _NAME.fullmatch(entry.name))
    ]
    return tuple(sorted(found, key=lambda migration: migration.version))


async def migrate(dsn: str, *, steps: Sequence[Migration] | None = None, ahead: int = READABLE_AHEAD) -> list[str]:
    """Bring the database at `dsn` to this code's schema (or to `steps`); returns the names applied, none if it was there already, or is
    `ahead` migrations further.

    Raises `MigrationError`, `OSError` and asyncpg's errors. Whatever happens, each file was applied and recorded whole, or not at all.
    """
    connection = await connect(dsn, CONNECT_TIMEOUT, statement_cache_size=0)
    try:
        return await _migrate(connection, migrations() if steps is None else steps, ahead)
    finally:
        await connection.close(timeout=5)


async def _migrate(connection: asyncpg.Connection, steps: Sequence[Migration], ahead: int) -> list[str]:
    applied: list[str] = []
    for step in steps:
        # READ COMMITTED, whatever the database's default: after the wait for the lock the ledger must be read as it is now.
        async with connection.transaction(isolation="read_committed"):
            await connection.execute(
                "SET LOCAL idle_in_transaction_session_timeout = '30s'"
            )  # ours may lose its power with the tables locked
            await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
            await connection.execute(LEDGER)
            if step in await _missing(connection, steps, ahead=ahead):
                await _apply(connection, step)
                await connection.execute(_RECORD, step.version, step.name, step.checksum)
                applied.append(step.name)
    return applied


async def _apply(connection: asyncpg.Connection, step: Migration) -> None:
    try:
        await connection.execute(step.sql)
    except asyncpg.LockNotAvailableError as error:
        raise MigrationError(f"{step.name} waits for no long transaction, and one is in its way; nothing was changed, try again") from error
    except asyncpg.ObjectNotInPrerequisiteStateError as error:  # said by the file itself
        raise MigrationError(f"{step.name} ({MIGRATIONS}): {error}; nothing was changed") from error


async def _missing(connection: asyncpg.Connection, steps: Sequence[Migration], *, ahead: int) -> list[Migration]:
    """The steps that the ledger does not hold. Raises `MigrationError` if it holds a changed one, or more than `ahead` unknown ones."""
    ledger = {row["version"]: row for row in await connection.fetch("SELECT version, name, checksum FROM gateway_schema_migrations")}
    missing: list[Migration] = []
    for step in steps:
        row = ledger.pop(step.version, None)
        if row is None:
            missing.append(step)
        elif row["checksum"] != step.checksum:
            raise MigrationError(
                f"the schema is another build's: {step.name} was changed after it was applied; use that build, or a new database"
            )
    last = steps[-1].version if steps else 0
    unknown = [row["name"] for version, row in sorted(ledger.items()) if version > last + ahead]
    if unknown:
        raise MigrationError(f"the schema is ahead of this version: {unknown[-1]} is applied and not known here")
    return missing


async def pending(connection: asyncpg.Connection) -> list[str]:
    """Names of migrations that the database still lacks; empty if this code can serve on it.

    A schema that is `READABLE_AHEAD` ahead passes. Raises `MigrationError` when it is further ahead, or an applied file was changed.
    """
    if await connection.fetchval("SELECT to_regclass('gateway_schema_migrations')") is None:
        return [step.name for step in migrations()]
    return [step.name for step in await _missing(connection, migrations(), ahead=READABLE_AHEAD)]


def script() -> str:
    """All migrations as one SQL script for an empty schema, ledger included, for databases whose owner applies DDL by hand."""
    parts = ["BEGIN;", LEDGER + ";"]
    for step in migrations():
        record = _RECORD.replace("$1", str(step.version)).replace("$2", f"'{step.name}'").replace("$3", f"'\\x{step.checksum.hex()}'")
        parts += [f"-- {step.name}", step.sql.rstrip(), record + ";"]
    return "\n\n".join([*parts, "COMMIT;"]) + "\n"
