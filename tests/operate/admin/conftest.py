"""An admin listener over real stores."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from gateway.store.postgres import PostgresStore
from tests.operate.admin.house import House, listening, silent_ports


@pytest.fixture
async def house(database: str) -> AsyncIterator[House]:
    """Postgres with records in it, and an operator over it."""
    store = PostgresStore(database)
    yield House(database, store)
    await store.close()


@pytest.fixture
async def api(house: House) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the admin API of `house`."""
    async with listening(silent_ports(house.operator)) as session:
        yield session
