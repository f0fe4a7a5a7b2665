from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from gateway.store.partitions import partition
from gateway.store.postgres import PostgresStore
from tests.store.contract.harness import PostgresHarness, empty_records, kept_open
from tests.store.contract.store_contract import StoreContract
from tests.support.services import SYSTEM, Services, execute, run


@pytest.fixture(scope="module")
def divided_database(services: Services) -> Iterator[str]:
    """A database whose tables are divided, on the oldest Postgres that is here, whose partitions can do least. It lacks the triggers that
    serve the release before alone, so that each rule has to be in a statement.
    """
    server = services.postgres(SYSTEM)
    dsn = services.migrated_database(server)
    run(lambda: partition(dsn, 2))
    for trigger in ("attempt", "life"):
        execute(dsn, f"DROP TRIGGER gateway_records_begin_{trigger} ON gateway_records")
    yield dsn
    services.drop_database(server, dsn)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kept(divided_database: str) -> AsyncIterator[PostgresHarness]:
    async with kept_open(divided_database, PostgresStore(divided_database, pool_size=4, timeout=30)) as harness:
        yield harness


@pytest.mark.asyncio(loop_scope="module")
class TestPartitionedStore(StoreContract):
    """The authority keeps the contract over hash partitions."""

    @pytest_asyncio.fixture(loop_scope="module")
    async def harness(self, kept: PostgresHarness) -> PostgresHarness:
        await empty_records(kept.database)
        return kept
