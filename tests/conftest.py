"""Fixtures that every test may use. Servers start when a test first asks for them and stop with the session."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from gateway.devtools.embedded import PostgresServer, RedisServer
from tests.support.services import POSTGRES_VARIANTS, REDIS_VARIANTS, Services, new_root, redis_command, remove_data

# Machines are shared: how long an example takes, or the making of one, says nothing of the code. Before the tests are imported: a property
# takes its settings when it is decorated.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")

FIRST = ("tests/packaging/", "tests/deploy/", "tests/system/", "tests/run/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with few tests that take long begin first. By the number of tests they would be last, one worker busy with
    each while the others have nothing left.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))


@pytest.fixture(scope="session")
def services() -> Iterator[Services]:
    """The session's servers, by variant."""
    services = Services()
    try:
        yield services
    finally:
        services.stop()


@pytest.fixture(scope="session")
def postgres_server(services: Services) -> PostgresServer:
    """Postgres 18 from the wheel."""
    return services.postgres()


@pytest.fixture(scope="session")
def postgres_dsn(postgres_server: PostgresServer) -> str:
    """Superuser access to Postgres 18; the database is shared by all tests."""
    return postgres_server.dsn


@pytest.fixture(scope="session")
def redis_server(services: Services) -> RedisServer:
    """Redis 6.2 from the wheel."""
    return services.redis()


@pytest.fixture(scope="session")
def redis_url(redis_server: RedisServer) -> str:
    """Redis 6.2, with whatever earlier tests left in it; `redis_db` is the empty one."""
    return redis_server.url


@pytest.fixture(scope="session", params=POSTGRES_VARIANTS, ids=lambda variant: f"postgres-{variant}")
def every_postgres(services: Services, request: pytest.FixtureRequest) -> PostgresServer:
    """Each Postgres that is here: the wheel's 18, the system's. One that is missing skips the test at home and fails it in CI."""
    return services.postgres(request.param)


@pytest.fixture(scope="session", params=REDIS_VARIANTS, ids=lambda variant: f"redis-{variant}")
def every_redis(services: Services, request: pytest.FixtureRequest) -> RedisServer:
    """Each Redis that is here: the wheel's 6.2, a newer one of the PATH. Missing: as `every_postgres`."""
    return services.redis(request.param)


@pytest.fixture
def empty_database(services: Services, postgres_server: PostgresServer) -> Iterator[str]:
    """DSN of a new database without any table, on Postgres 18."""
    dsn = services.empty_database(postgres_server)
    yield dsn
    services.drop_database(postgres_server, dsn)


@pytest.fixture
def database(services: Services, postgres_server: PostgresServer) -> Iterator[str]:
    """DSN of a new, migrated database on Postgres 18."""
    dsn = services.migrated_database(postgres_server)
    yield dsn
    services.drop_database(postgres_server, dsn)


@pytest.fixture
def every_database(services: Services, every_postgres: PostgresServer) -> Iterator[str]:
    """DSN of a new, migrated database, on each Postgres that is here."""
    dsn = services.migrated_database(every_postgres)
    yield dsn
    services.drop_database(every_postgres, dsn)


@pytest.fixture
def redis_db(redis_server: RedisServer) -> str:
    """URL of an empty Redis 6.2."""
    assert redis_command(redis_server, "FLUSHALL") == b"+OK"
    return redis_server.url


@pytest.fixture
def every_redis_db(every_redis: RedisServer) -> str:
    """URL of an empty Redis, on each that is here."""
    assert redis_command(every_redis, "FLUSHALL") == b"+OK"
    return every_redis.url


@pytest.fixture
def data_folder() -> Iterator[Path]:
    """A data folder for embedded servers of the test's own, which every user can reach; removed at the end."""
    folder = new_root()
    yield folder
    remove_data(folder)
