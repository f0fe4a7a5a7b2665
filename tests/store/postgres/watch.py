"""Waiting for what the server does."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]  # generic only in its stubs

OURS = "application_name = 'idempotency-gateway' AND datname = current_database()"


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what another process does: ask again until it is so."""
    async with asyncio.timeout(15):
        while not await condition():
            await asyncio.sleep(0.01)


async def waiting_for_locks(connection: "Connection") -> int:
    """Statements in this database that wait for a lock. A transaction sees what its first look saw until its end."""
    await connection.execute("SELECT pg_stat_clear_snapshot()")
    count: int = await connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return count


async def until_waiting(connection: "Connection", count: int | None = None) -> None:
    """Wait until so many statements wait for a lock; without a number, until any does."""

    async def reached() -> bool:
        waiting = await waiting_for_locks(connection)
        return waiting > 0 if count is None else waiting == count

    await until(reached)
