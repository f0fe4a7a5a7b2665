from collections.abc import Iterator

import pytest

from gateway.devtools.embedded import PostgresServer
from tests.support.services import Services


@pytest.fixture(scope="module")
def contract_database(services: Services, every_postgres: PostgresServer) -> Iterator[str]:
    """DSN of a migrated database that the tests of one module share, on each Postgres that is here; `empty_records` empties it."""
    dsn = services.migrated_database(every_postgres)
    yield dsn
    services.drop_database(every_postgres, dsn)
