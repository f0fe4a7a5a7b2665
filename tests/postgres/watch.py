"""Waiting for what the server does."""

import asyncio
from collections.abc import Awaitable, Callable

OURS = "application_name = 'idempotency-gateway' AND datname = current_database()"


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what another process does: ask again until it is so."""
    async with asyncio.timeout(15):
        while not await condition():
            await asyncio.sleep(0.01)
