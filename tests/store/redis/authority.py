"""An authority for the tests of the tiers: the reference store, with a clock to turn and faults to switch on."""

import asyncio
from collections.abc import Callable

from gateway.core.model import Intent, Lease, Record, RecordKey, StoredResponse, Tombstone
from gateway.ports import Retention, Settled, StoreUnavailable
from gateway.runtime.system import SystemClock
from tests.support.memory_store.store import MemoryStore


class ShiftedClock(SystemClock):
    """The system's clock, some seconds ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0

    def boottime(self) -> float:
        return super().boottime() + self.ahead


class Authority(MemoryStore):
    """`asked` counts the questions. `away`: nothing arrives. `lost`: reserves and completions land, their replies do not
    come. `gate` holds reserves. `silent`: the clock has not been learned yet.
    """

    def __init__(self, now: Callable[[], float], boottime: Callable[[], float]) -> None:
        super().__init__(now, boottime)
        self.asked = 0
        self.away = False
        self.lost = False
        self.silent = False
        self.gate = asyncio.Event()
        self.gate.set()

    def now_us(self) -> int | None:
        return None if self.silent else super().now_us()

    async def reserve(self, intent: Intent) -> Lease | Record | Tombstone:
        self._ask()
        await self.gate.wait()
        found = await super().reserve(intent)
        if self.lost:
            raise StoreUnavailable("memory", "timeout", may_have_landed=True)
        return found

    async def find(self, key: RecordKey) -> Record | None:
        self._ask()
        return await super().find(key)

    async def complete(self, lease: Lease, response: StoredResponse, retention: Retention) -> Settled:
        self._ask()
        settled = await super().complete(lease, response, retention)
        if self.lost:
            raise StoreUnavailable("memory", "timeout", may_have_landed=True)
        return settled

    def delete(self, key: RecordKey) -> None:
        """What an operator does first."""
        del self._rows[key]

    def _ask(self) -> None:
        self.asked += 1
        if self.away:
            raise StoreUnavailable("memory", "refused", may_have_landed=False)
