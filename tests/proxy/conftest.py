"""One database, one upstream and one gateway for each module; a module says in `ROUTES`, or in a fixture `plan`, what it wants."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from gateway.devtools.embedded import PostgresServer
from tests.proxy.house import House, Plan, PlannedSetup
from tests.support.gateway import running
from tests.support.services import Services
from tests.support.upstream import CountingUpstream, execute_and_answer


@pytest.fixture(scope="module")
def house_database(services: Services, postgres_server: PostgresServer) -> Iterator[str]:
    """DSN of a new, migrated database."""
    dsn = services.migrated_database(postgres_server)
    yield dsn
    services.drop_database(postgres_server, dsn)


@pytest.fixture(scope="module")
def plan(request: pytest.FixtureRequest) -> Plan:
    """The module's `ROUTES`."""
    return Plan(request.module.ROUTES)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house_upstream() -> AsyncIterator[CountingUpstream]:
    """The upstream of the module's gateway."""
    upstream = CountingUpstream()
    await upstream.start()
    yield upstream
    await upstream.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def standing(
    plan: Plan, house_database: str, redis_url: str, house_upstream: CountingUpstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[House]:
    """The module's gateway."""
    setup = PlannedSetup(
        house_database,
        house_upstream.port,
        redis_url,
        timeouts="{connect: 2s, first_byte: 20s, read_idle: 20s, total: 30s}",  # some tests hold an answer back
        routes=plan.routes,
        defaults=plan.defaults,
        more=plan.more,
        upstreams=plan.upstreams,
    )
    async with running(setup, tmp_path_factory.mktemp("house")) as gateway:
        yield House(gateway, setup, house_upstream)


@pytest_asyncio.fixture(loop_scope="module")
async def house(standing: House) -> House:
    """The module's gateway, in front of an upstream that executes, answers 201, and has seen nothing yet."""
    standing.upstream.behave = execute_and_answer
    standing.upstream.requests.clear()
    standing.upstream.executed.clear()
    standing.upstream.arrived.clear()
    return standing
