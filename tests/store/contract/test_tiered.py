from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from gateway.core.model import Record, RecordKey
from gateway.ports.reconciliation import Audit, Entry
from gateway.runtime.system import SystemClock
from gateway.store.completed import CompletedEntry
from gateway.store.postgres import PostgresStore
from gateway.store.redis.breaker import Breaker
from gateway.store.redis.codec import Seal, decode, encode_completed
from gateway.store.redis.hotpath import HotPath
from gateway.store.redis.link import Link
from gateway.store.tiered import TieredStore
from tests.store.contract.harness import PostgresHarness, empty_records, kept_open
from tests.store.contract.store_contract import StoreContract
from tests.support.memory_store.reconciliation import MemoryReconciliation
from tests.support.memory_store.store import MemoryStore

SEAL = Seal(b"")


class PassingClock(SystemClock):
    """The holder's clock: the system's, and the time that was made to pass."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0

    def boottime(self) -> float:
        return super().boottime() + self.passed


class TieredHarness:
    """Redis in front of an authority. Time passes in both; what is still on its way to Redis arrives first."""

    def __init__(self, authority: MemoryStore | PostgresStore, clock: PassingClock, link: Link) -> None:
        self.clock = clock
        self.link = link
        self.store = TieredStore(authority, HotPath(link), clock)
        self.maintenance = authority
        self.reconciliation = authority.reconciliation
        self.participation = authority.participation
        self.acceptance = authority.acceptance

    async def advance(self, seconds: float) -> None:
        assert await self.store.drain(10)
        self.clock.passed += seconds
        keys = await self.link.execute(b"KEYS", b"idem:*")
        assert isinstance(keys, list)
        for key in keys:
            await self.age(key, seconds)

    async def archived(self, key: RecordKey) -> list[Record]:
        assert isinstance(self.maintenance, MemoryStore)
        return [record for record in self.maintenance.archived() if record.key == key]

    async def history(self, key: RecordKey) -> list[Entry]:
        assert isinstance(self.reconciliation, MemoryReconciliation)
        return [entry for _, entry in self.reconciliation.history(key)]

    async def audit(self, key: RecordKey) -> list[Audit]:
        assert isinstance(self.reconciliation, MemoryReconciliation)
        return self.reconciliation.audit(key)

    async def age(self, key: bytes, seconds: float) -> None:
        """Bring the end of an entry nearer."""
        left = await self.link.execute(b"PTTL", key)
        assert isinstance(left, int)
        await self.link.execute(b"PEXPIRE", key, left - int(seconds * 1000))


class TieredPostgresHarness(TieredHarness):
    """Where time passes by moving the instants back, those in Redis move as well."""

    def __init__(self, behind: PostgresHarness, clock: PassingClock, link: Link) -> None:
        super().__init__(behind.store, clock, link)
        self.behind = behind

    async def advance(self, seconds: float) -> None:
        await super().advance(seconds)
        await self.behind.advance(seconds)

    async def archived(self, key: RecordKey) -> list[Record]:
        return await self.behind.archived(key)

    async def history(self, key: RecordKey) -> list[Entry]:
        return await self.behind.history(key)

    async def audit(self, key: RecordKey) -> list[Audit]:
        return await self.behind.audit(key)

    async def age(self, key: bytes, seconds: float) -> None:
        value = await self.link.execute(b"GET", key)
        assert isinstance(value, bytes)
        lookup = urlsafe_b64decode(key.removeprefix(b"idem:{").removesuffix(b"}") + b"=")
        match decode(lookup, value, SEAL):
            case CompletedEntry() as entry:
                earlier = replace(entry, expires_at_us=entry.expires_at_us - int(seconds * 1e6))
                moved = encode_completed(lookup, earlier, len(value), SEAL)
                assert moved is not None
                await self.link.execute(b"SET", key, moved, b"KEEPTTL")
            case _:
                pass
        await super().age(key, seconds)


class TestRedisOverMemory(StoreContract):
    """Redis in front of the reference store keeps the contract, on every Redis that is here."""

    @pytest.fixture
    async def harness(self, every_redis_db: str) -> AsyncIterator[TieredHarness]:
        link = Link(every_redis_db, Breaker(lambda: 0.5), timeout=30.0)
        await link.start()
        clock = PassingClock()
        harness = TieredHarness(MemoryStore(clock.boottime, clock.boottime), clock, link)
        yield harness
        await harness.store.close(10)
        await link.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def behind(contract_database: str) -> AsyncIterator[PostgresHarness]:
    async with kept_open(contract_database, PostgresStore(contract_database, pool_size=4, timeout=30)) as harness:
        yield harness


@pytest.mark.asyncio(loop_scope="module")
class TestRedisOverPostgres(StoreContract):
    """Redis in front of Postgres, as production runs it, keeps the contract, on every Postgres that is here."""

    @pytest_asyncio.fixture(loop_scope="module")
    async def harness(self, behind: PostgresHarness, redis_db: str) -> AsyncIterator[TieredPostgresHarness]:
        await empty_records(behind.database)
        link = Link(redis_db, Breaker(lambda: 0.5), timeout=30.0)
        await link.start()
        harness = TieredPostgresHarness(behind, PassingClock(), link)
        yield harness
        await harness.store.close(10)
        await link.close()
