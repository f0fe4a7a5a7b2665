import pytest

from gateway.core.model import Record, RecordKey
from gateway.ports.reconciliation import Audit, Entry
from gateway.runtime.system import SystemClock
from gateway.store.replay_cache import ReplayCache
from tests.store.asked import AskedStore
from tests.store.contract.harness import ManualClock, MemoryHarness
from tests.store.contract.store_contract import StoreContract


class TurnedClock(SystemClock):
    """The holder's clock is the store's."""

    def __init__(self, now: ManualClock) -> None:
        super().__init__()
        self._now = now

    def boottime(self) -> float:
        return self._now()


class CachedHarness:
    """A cache of completed answers in front of the reference store."""

    def __init__(self) -> None:
        self.behind = MemoryHarness()
        clock = TurnedClock(self.behind.clock)
        self.store = AskedStore(self.behind.store, ReplayCache(1 << 24, 3.0, clock.boottime), clock)
        self.maintenance = self.behind.maintenance
        self.reconciliation = self.behind.reconciliation
        self.participation = self.behind.participation
        self.acceptance = self.behind.acceptance

    async def advance(self, seconds: float) -> None:
        await self.behind.advance(seconds)

    async def archived(self, key: RecordKey) -> list[Record]:
        return await self.behind.archived(key)

    async def history(self, key: RecordKey) -> list[Entry]:
        return await self.behind.history(key)

    async def audit(self, key: RecordKey) -> list[Audit]:
        return await self.behind.audit(key)


class TestCacheOverMemory(StoreContract):
    """A store with a cache of completed answers keeps the contract."""

    @pytest.fixture
    def harness(self) -> CachedHarness:
        return CachedHarness()
