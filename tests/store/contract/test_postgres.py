from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gateway.store.postgres import PostgresStore
from tests.store.contract.harness import PostgresHarness, empty_records, kept_open
from tests.store.contract.store_contract import StoreContract


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kept(contract_database: str) -> AsyncIterator[PostgresHarness]:
    async with kept_open(contract_database, PostgresStore(contract_database, pool_size=4, timeout=30)) as harness:
        yield harness


@pytest.mark.asyncio(loop_scope="module")
class TestPostgresStore(StoreContract):
    """The authority keeps the contract, on every Postgres that is here."""

    @pytest_asyncio.fixture(loop_scope="module")
    async def harness(self, kept: PostgresHarness) -> PostgresHarness:
        await empty_records(kept.database)
        return kept
