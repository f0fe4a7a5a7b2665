"""How Postgres goes about a statement: the plan that the gateway's own connections would have."""

import json
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg
import pytest

from gateway.store.postgres.clock import BELIEVE_ANY
from gateway.store.postgres.connecting import PLANNING

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]  # generic only in its stubs

MODE_NAMES = ("force_custom_plan", "force_generic_plan")
"""As behind a pooler, and as on connections of our own."""

MODES = pytest.mark.parametrize("mode", MODE_NAMES)


async def plan_of(connection: "Connection", mode: str, sql: str, *arguments: object) -> Any:
    """The statement's plan of this kind after it ran, with what it read; what it did is undone. One that judges by the clock believes any.

    `EXPLAIN` of a statement with parameters plans for their values, whatever the mode; of an `EXECUTE` it shows the plan that is kept.
    """
    values = []
    parameters = (await connection.prepare(sql)).get_parameters()
    given = (*arguments, BELIEVE_ANY) if len(parameters) == len(arguments) + 1 else arguments
    for parameter, value in zip(parameters, given, strict=True):
        name = await connection.fetchval("SELECT format_type($1, NULL)", parameter.oid)
        values.append(await connection.fetchval(f"SELECT quote_nullable($1::{name}::text)", value) + f"::{name}")
    transaction = connection.transaction()
    await transaction.start()
    try:
        settings = PLANNING if mode == PLANNING["plan_cache_mode"] else {"plan_cache_mode": mode}
        await connection.execute("; ".join(f"SET LOCAL {name} = {value}" for name, value in settings.items()))
        await connection.execute(f"PREPARE explained AS {sql}")
        execute = f"EXECUTE explained ({', '.join(values)})" if values else "EXECUTE explained"
        told = await connection.fetchval(f"EXPLAIN (ANALYZE, VERBOSE, FORMAT JSON) {execute}")
        return json.loads(told)[0]["Plan"]
    finally:
        await transaction.rollback()
        await connection.execute("DEALLOCATE explained")  # it has outlived its transaction


def scans(plan: Any) -> list[tuple[str, str]]:
    """(node type, index or empty) of each scan of our tables."""
    found = [scan for child in plan.get("Plans", []) for scan in scans(child)]
    if plan.get("Relation Name", "").startswith("gateway_") and "Scan" in plan["Node Type"]:
        found.append((plan["Node Type"], plan.get("Index Name", "")))
    if plan["Node Type"] == "Bitmap Index Scan":
        found.append((plan["Node Type"], plan["Index Name"]))
    return found


def rows_read(plan: Any) -> int:
    """Rows that the scans of the plan came upon, in all."""
    mine = 0
    if plan.get("Relation Name", "").startswith("gateway_") and "Scan" in plan["Node Type"]:
        mine = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return int(mine + sum(rows_read(child) for child in plan.get("Plans", [])))
