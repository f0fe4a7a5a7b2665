from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from gateway.core.model import Record, RecordKey
from gateway.runtime.record_sealing import RecordSealer
from gateway.runtime.sealing import AesSealer
from gateway.store.postgres import PostgresStore
from gateway.store.sealed import SealedStore
from tests.store.contract.harness import Database, PostgresHarness, connected, empty_records
from tests.store.contract.store_contract import StoreContract

SEALER = RecordSealer(AesSealer((b"a secret", b"a former one")), seals=True)


class SealedHarness(PostgresHarness):
    """Everything sealed on its way to Postgres. What the archive holds is opened as a store's records are."""

    def __init__(self, database: Database, store: PostgresStore) -> None:
        super().__init__(database, store)
        self.store = SealedStore(store, SEALER)  # type: ignore[assignment]  # the harness of Postgres names its own store

    async def archived(self, key: RecordKey) -> list[Record]:
        records = await super().archived(key)
        opened = [None if one.response is None else SEALER.open_answer(key, one.record_id, one.response) for one in records]
        return [replace(one, response=response) for one, response in zip(records, opened, strict=True)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kept(contract_database: str) -> AsyncIterator[SealedHarness]:
    store = PostgresStore(contract_database, pool_size=4, timeout=30, sealer=SEALER)
    async with connected(contract_database) as connection:
        yield SealedHarness(connection, store)
        await store.close()


@pytest.mark.asyncio(loop_scope="module")
class TestSealedPostgresStore(StoreContract):
    """A store whose records are sealed keeps the contract."""

    @pytest_asyncio.fixture(loop_scope="module")
    async def harness(self, kept: SealedHarness) -> SealedHarness:
        await empty_records(kept.database)
        return kept
