"""One gateway process and one raw peer behind it for each module: a whole table of cases runs through the same process."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Self

import asyncpg
import pytest
import pytest_asyncio

from gateway.devtools.embedded import PostgresServer, RedisServer
from tests.http.wire.stub import Stub
from tests.support.gateway import Gateway, Setup, running
from tests.support.services import Services, redis_command

GUARD = "idempotency: {principal: [{header: Authorization}]"
ROUTES = f"""
  - {{id: pay, methods: [POST], path: /v1/pay, upstream: payments, {GUARD}}}}}
  - {{id: stream, methods: [POST], path: /v1/stream, upstream: payments, {GUARD}, stream: true, limits: {{response_body: 1MiB}}}}}}
  - {{id: small, methods: [POST], path: /v1/small, upstream: payments, {GUARD}, limits: {{response_body: 1KiB}}}}}}
  - {{id: rest, path: /**, upstream: payments}}
"""


@dataclass(slots=True)
class Wire:
    """A gateway, the peer behind it, and the database that holds its records. Use `async with`."""

    gateway: Gateway
    stub: Stub
    database: str
    _connection: "asyncpg.Connection[asyncpg.Record] | None" = None

    @property
    def port(self) -> int:
        return self.gateway.port

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def record(self, key: bytes) -> tuple[str, str | None] | None:
        """State and last error of the record under this key; None if there is none."""
        if self._connection is None:
            self._connection = await asyncpg.connect(self.database)
        query = "SELECT status::text, last_error_code FROM gateway_records WHERE idempotency_key = $1"
        row = await self._connection.fetchrow(query, key.decode())
        return None if row is None else (row[0], row[1])


@pytest.fixture(scope="module")
def module_database(services: Services, postgres_server: PostgresServer) -> Iterator[str]:
    """DSN of a new, migrated database for one module."""
    dsn = services.migrated_database(postgres_server)
    yield dsn
    services.drop_database(postgres_server, dsn)


@pytest.fixture(scope="module")
def module_redis(redis_server: RedisServer) -> str:
    """URL of a Redis that is empty when the module begins."""
    assert redis_command(redis_server, "FLUSHALL") == b"+OK"
    return redis_server.url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(
    request: pytest.FixtureRequest, module_database: str, module_redis: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Wire]:
    """The module's gateway and stub. At its end the stub must have read nothing that could be framed in two ways.

    A module's `TIMEOUTS` are those of its upstream.
    """
    async with Stub() as stub:
        timeouts = getattr(request.module, "TIMEOUTS", "{connect: 1s, first_byte: 1s, read_idle: 1s, total: 2s}")
        made = Setup(module_database, stub.port, module_redis, routes=ROUTES, timeouts=timeouts, health="{failures: 0}")
        folder = tmp_path_factory.mktemp("wire")
        async with running(made, folder) as process, Wire(process, stub, module_database) as wire:
            yield wire
        assert stub.faults == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def brief(wire: Wire, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Wire]:
    """Another gateway before the same peer, whose limits a stream must outlive."""
    timeouts = "{connect: 1s, first_byte: 1s, read_idle: 500ms, total: 1s}"
    setup = Setup(wire.database, wire.stub.port, routes=ROUTES, timeouts=timeouts)
    async with running(setup, tmp_path_factory.mktemp("brief")) as process, Wire(process, wire.stub, wire.database) as brief:
        yield brief
