"""The SQL that the README gives to a person who resolves an operation that nobody knows the outcome of."""

import re
from pathlib import Path

import asyncpg

from gateway.core.model import Status
from gateway.store.postgres import PostgresStore
from tests.contract.harness import intent, reserved

README = Path(__file__).resolve().parents[2] / "README.md"


def recipes() -> tuple[str, str]:
    """The listing and the update, as printed."""
    listing, update = re.findall(r"```sql\n(.*?)```", README.read_text(), re.DOTALL)
    return listing, update


async def test_the_readme_lists_and_resolves_what_nobody_knows(database: str) -> None:
    """The listing shows the record; the update waits for the upstream's time to pass, then frees it for the next retry, once."""
    listing, update = recipes()
    store = PostgresStore(database)
    connection = await asyncpg.connect(database)
    try:
        lease = await reserved(store, intent())
        await store.doubt(lease, "upstream_timeout")
        (row,) = await connection.fetch(listing)
        assert (row["idempotency_key"], row["last_error_code"]) == (lease.key.key, "upstream_timeout")
        filled = update
        for name in ("scope_id", "idempotency_key"):
            filled = filled.replace(f"{name} = '…'", f"{name} = '{row[name]}'")
        filled = filled.replace("version = …", f"version = {row['version']}")
        assert await connection.execute(filled) == "UPDATE 0"
        await connection.execute("UPDATE gateway_records SET reconcile_after = now()")
        assert await connection.execute(filled) == "UPDATE 1"
        assert await connection.execute(filled) == "UPDATE 0"
        found = await store.find(lease.key)
        assert found is not None
        assert found.status is Status.FAILED_RETRYABLE
        assert await store.claim(found, intent()) is not None
    finally:
        await connection.close()
        await store.close()
