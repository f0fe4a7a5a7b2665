"""How long a connection goes on with a plan that a table has outgrown."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from gateway.devtools.embedded import PostgresServer
from gateway.ports import StoreUnavailable, Transition
from gateway.store.postgres import PostgresStore
from gateway.store.postgres.connecting import PLANS
from gateway.store.postgres.lane import PLANS_KEPT
from gateway.store.postgres.queries import QUERIES
from tests.store.contract.harness import KEPT, fresh_key, intent, reserved, response
from tests.store.postgres.conftest import MakeStore
from tests.support.faults import FaultProxy
from tests.support.services import Services

FLUSHED = 1.1
"""Seconds after which a session hands in what it counted, with its next statement."""


@pytest.fixture
async def dsn(services: Services, every_postgres: PostgresServer) -> AsyncIterator[str]:
    """A database whose tables are empty, and known to be: as after `vacuumdb --analyze`."""
    dsn = services.migrated_database(every_postgres)
    connection = await asyncpg.connect(dsn)
    await connection.execute("ALTER TABLE gateway_records SET (autovacuum_enabled = off)")
    await connection.execute("VACUUM ANALYZE gateway_records")
    await connection.close()
    yield dsn
    services.drop_database(every_postgres, dsn)


async def whole_reads(store: PostgresStore, dsn: str, lookups: int) -> int:
    """How often the table was read as a whole by so many lookups."""
    connection = await asyncpg.connect(dsn)
    seen = []
    for count in (1, lookups):
        for _ in range(count):
            await store.find(fresh_key())
        await asyncio.sleep(FLUSHED)
        await store.ready()  # a statement of another table
        seen.append(await connection.fetchval("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'gateway_records'"))
    await connection.close()
    return int(seen[1] - seen[0])


async def test_a_plan_made_for_an_empty_table_finds_keys_by_the_index(dsn: str) -> None:
    """It read the whole table for each key, for as long as it was kept."""
    store = PostgresStore(dsn, pool_size=1, timeout=30.0)
    try:
        assert await whole_reads(store, dsn, 5) == 0
        leases = await asyncio.gather(*[reserved(store, intent()) for _ in range(100)])
        await asyncio.gather(*[store.complete(lease, response(), KEPT) for lease in leases])
        await asyncio.gather(*[store.reserve(intent(lease.key)) for lease in leases])
        assert await whole_reads(store, dsn, 5) == 0
    finally:
        await store.close()


@pytest.mark.parametrize(("cuts", "reason"), [(False, "timeout"), (True, "disconnected")])
async def test_a_fault_while_a_connection_plans_anew(
    make_store: MakeStore, proxied: str, proxy: FaultProxy, cuts: bool, reason: str
) -> None:
    """Neither a reserve nor a settle has left when the server stalls or goes away there: no record is made, and the settle is done when it
    is repeated. (A call that runs into its own deadline says that it may have landed: it does not know how far its batch was.)
    """
    store = make_store(proxied, pool_size=1, timeout=2.0)
    lease, wanted = await reserved(store, intent()), intent()
    calls: list[Callable[[], Awaitable[object]]] = [lambda: store.reserve(wanted), lambda: store.complete(lease, response(), KEPT)]
    for used, call in enumerate(calls):
        for _ in range(PLANS_KEPT - 1 + used):  # the first connection has made the lease
            await store.find(lease.key)
        planning = proxy.hold_reply_to(b"DISCARD PLANS")
        asked = asyncio.ensure_future(call())
        await planning.reached.wait()
        if cuts:
            proxy.cut()
        with pytest.raises(StoreUnavailable) as met:
            await asked
        planning.let_go()
        assert (met.value.reason, met.value.may_have_landed) == (reason, not cuts)
    assert await store.find(wanted.key) is None
    assert (await store.complete(lease, response(), KEPT)).transition is Transition.DONE


async def test_no_statement_is_compiled(every_database: str) -> None:
    """To compile one takes a hundred times as long as to run it."""
    connection = await asyncpg.connect(every_database)
    try:
        await connection.execute(PLANS)
        for name, sql in QUERIES.items():
            parameters = (await connection.prepare(sql)).get_parameters()
            await connection.execute(f"PREPARE explained AS {sql}")
            nothing = ", ".join("NULL" for _ in parameters)
            told = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE explained {f'({nothing})' if nothing else ''}")
            await connection.execute("DEALLOCATE explained")
            assert "JIT" not in json.loads(told)[0], name
    finally:
        await connection.close()
