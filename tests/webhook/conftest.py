from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from gateway.core.policy import Route
from gateway.store.postgres import PostgresStore
from tests.webhook.house import POLICY, Hall, build, route_with

OpenHall = Callable[..., Awaitable[Hall]]


@pytest.fixture
async def open_hall(database: str) -> AsyncIterator[OpenHall]:
    """Opens halls over the test's database; each is closed at the end, and none may have met a defect."""
    async with AsyncExitStack() as stack:
        halls: list[Hall] = []

        async def open_one(route: Route | None = None, memory: int = 2**30, dsn: str | None = None) -> Hall:
            store = PostgresStore(dsn or database, pool_size=4, timeout=30.0)
            stack.push_async_callback(store.close)
            hall = build(store, database, route or route_with(POLICY), memory)
            await stack.enter_async_context(hall.house)
            halls.append(hall)
            return hall

        yield open_one
        for hall in halls:
            assert hall.observer.failures == []


@pytest.fixture
async def hall(open_hall: OpenHall) -> Hall:
    """A hall with the usual route."""
    return await open_hall()
