from collections.abc import AsyncIterator

import pytest

from gateway.store.postgres import PostgresStore
from tests.store.contract.harness import PostgresHarness, empty_records
from tests.store.contract.store_contract import StoreContract


class TestPostgresStore(StoreContract):
    """The authority keeps the contract, on every Postgres that is here."""

    @pytest.fixture
    async def harness(self, contract_database: str) -> AsyncIterator[PostgresHarness]:
        await empty_records(contract_database)
        store = PostgresStore(contract_database, pool_size=4, timeout=30)
        yield PostgresHarness(contract_database, store)
        await store.close()
