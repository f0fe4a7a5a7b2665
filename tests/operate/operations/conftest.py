"""The operators' service over real stores."""

from collections.abc import AsyncIterator

import pytest

from gateway.core.policy import Policy
from gateway.operate.operations import Operator
from gateway.runtime.system import SystemClock
from gateway.store.postgres import PostgresStore
from gateway.store.redis.hotpath import HotPath
from gateway.store.tiered import TieredStore
from tests.operate.operations.bench import POLICY, Bench
from tests.store.redis.support import linked


@pytest.fixture
async def bench(database: str, redis_db: str) -> AsyncIterator[Bench]:
    policies: dict[str, Policy] = {"create-charge": POLICY}
    async with linked(redis_db) as link:
        hot = HotPath(link)
        authority = PostgresStore(database, pool_size=4, timeout=30)
        store = TieredStore(authority, hot, SystemClock())
        operator = Operator(authority.operations, authority.reconciliation, lambda: policies, store.forget)
        yield Bench(store, authority, hot, database, operator, policies)
        await store.close(0)
        await authority.close()
