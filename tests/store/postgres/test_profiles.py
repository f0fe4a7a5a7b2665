"""The DDL for engines that are not here fits the present schema: it names what is there, and leaves nothing out. What those engines make
of it is untried.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

from gateway.store.postgres.queries import QUERIES, ROWS

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]  # generic only in its stubs

FOLDER = Path(__file__).parents[3] / "deploy/postgres"
INDEXES = "SELECT indexname, indexdef FROM pg_indexes WHERE tablename LIKE 'gateway_%' ORDER BY 1"
PLACED = """
    CREATE TABLE placed (name text PRIMARY KEY);
    CREATE FUNCTION create_distributed_table(name text, scope text, shard_count integer DEFAULT 0, colocate_with text DEFAULT '')
        RETURNS void LANGUAGE sql AS 'INSERT INTO placed VALUES (name)';
    CREATE FUNCTION create_reference_table(name text) RETURNS void LANGUAGE sql AS 'INSERT INTO placed VALUES (name)'
    """


def test_the_page_judges_every_statement() -> None:
    """One that is added is looked at with these engines in mind."""
    page = (FOLDER.parents[1] / "docs/scaling.md").read_text("utf-8")
    assert {name for name in {**QUERIES, **ROWS} if f"`{name}`" not in page} == set()


async def test_yugabytedb_gets_the_same_indexes(connection: "Connection") -> None:
    """Each that is made anew has its name, columns and condition as before: ASC is Postgres' own order."""
    before = await connection.fetch(INDEXES)
    await connection.execute((FOLDER / "yugabytedb.sql").read_text("utf-8"))
    assert await connection.fetch(INDEXES) == before
    ranges = re.compile(r"\((\w*(_until|_at|_since|_after))\)|, (reconcile_after|due_at)\)")
    read_as_ranges = {name for name, text in before if ranges.search(text)}
    text = (FOLDER / "yugabytedb.sql").read_text("utf-8")
    assert {name for name in read_as_ranges if f"CREATE INDEX {name} " not in text} == set()


async def test_citus_has_a_place_for_each_table(connection: "Connection") -> None:
    """With a primary key that holds the column by which a table is distributed."""
    await connection.execute(PLACED)
    await connection.execute((FOLDER / "citus.sql").read_text("utf-8"))
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE tablename LIKE 'gateway_%'")
    placed = {row["name"] for row in await connection.fetch("SELECT name FROM placed")}
    assert {row["tablename"] for row in tables} - {"gateway_schema_migrations"} == placed
    keys = await connection.fetch(
        "SELECT conrelid::regclass::text AS name, pg_get_constraintdef(oid) AS key FROM pg_constraint WHERE contype = 'p'"
    )
    distributed = ("gateway_records", "gateway_records_archive", "gateway_history", "gateway_audit", "gateway_proposals")
    assert {row["name"] for row in keys if row["key"].startswith("PRIMARY KEY (scope_id")} == set(distributed)
    assert not await connection.fetch("SELECT FROM pg_trigger WHERE NOT tgisinternal")
