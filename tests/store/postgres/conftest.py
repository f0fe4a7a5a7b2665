from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit

import asyncpg
import pytest

from gateway.devtools.embedded import PostgresServer
from gateway.store.migrate import migrate, migrations
from gateway.store.postgres import PostgresStore
from tests.store.postgres.before import Before
from tests.store.postgres.recorder import Recorder
from tests.support.faults import FaultProxy, fault_proxy
from tests.support.services import Services

MakeStore = Callable[..., PostgresStore]


@pytest.fixture
async def make_store(database: str) -> AsyncIterator[MakeStore]:
    """Stores over the test's database (or over `dsn`), closed at the end."""
    stores: list[PostgresStore] = []

    def make(dsn: str | None = None, **settings: object) -> PostgresStore:
        options: dict[str, object] = {"pool_size": 4, "timeout": 30.0, **settings}
        store = PostgresStore(dsn or database, **options)  # type: ignore[arg-type]  # keyword settings of a test
        stores.append(store)
        return store

    yield make
    for store in stores:
        await store.close()


@pytest.fixture
async def connection(database: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A connection of the test's own, for looking and for getting in the way."""
    connection = await asyncpg.connect(database)
    yield connection
    await connection.close()


@pytest.fixture
async def proxy(database: str) -> AsyncIterator[FaultProxy]:
    """A fault proxy in front of the test's server."""
    at = urlsplit(database)
    assert at.hostname is not None
    assert at.port is not None
    async with fault_proxy(at.hostname, at.port) as proxy:
        yield proxy


@pytest.fixture
def proxied(database: str, proxy: FaultProxy) -> str:
    """DSN of the test's database through the fault proxy."""
    at = urlsplit(database)
    return database.replace(f"{at.hostname}:{at.port}", f"127.0.0.1:{proxy.port}")


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def old_database(services: Services, every_postgres: PostgresServer, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """DSN of a database as the release left it whose last migration is the test module's `MIGRATION`, on each Postgres that is here."""
    dsn = services.empty_database(every_postgres)
    await migrate(dsn, steps=migrations()[: request.module.MIGRATION])
    yield dsn
    services.drop_database(every_postgres, dsn)


@pytest.fixture
async def before(old_database: str, request: pytest.FixtureRequest) -> AsyncIterator[Before]:
    """A gateway of that release."""
    connection = await asyncpg.connect(old_database)
    gateway = Before(connection, request.module.MIGRATION)
    await gateway.start()
    yield gateway
    await connection.close()


@pytest.fixture
async def old_store(old_database: str) -> AsyncIterator[PostgresStore]:
    """A present gateway's store over the database of `before`."""
    store = PostgresStore(old_database, pool_size=2, timeout=30)
    yield store
    await store.close()
