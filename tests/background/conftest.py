from collections.abc import AsyncIterator

import pytest

from gateway.store.postgres import PostgresStore
from tests.background.house import Bank, House
from tests.support.upstream import CountingUpstream


@pytest.fixture
async def house(database: str) -> AsyncIterator[House]:
    """A house over a new database, closed at the end."""
    bank = Bank()
    server = CountingUpstream(behave=bank.behave)
    await server.start()
    store = PostgresStore(database, pool_size=4, timeout=30.0)
    house = House(database, store, bank, server)
    yield house
    await house.close()
    await store.close()
