"""Redis as a dict that forgets, and each gateway's own unreliable way to it."""

import asyncio
from collections.abc import Callable, Sequence

from gateway.ports import StoreUnavailable
from gateway.store.redis.codec import lease_prefix
from gateway.store.redis.hotpath import Acquired, Change, Found, HotPath, Outcome
from tests.system.simulation.wire import Wire


class Entries:
    """What Redis holds. `now` is its clock, in seconds; entries end by themselves."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._values: dict[bytes, tuple[bytes, float]] = {}

    def get(self, lookup: bytes) -> bytes | None:
        value, ends = self._values.get(lookup, (b"", 0.0))
        return value if ends > self._now() else None

    def acquire(self, lookup: bytes, value: bytes, ttl_ms: int) -> Acquired | Found:
        there = self.get(lookup)
        if there is not None:
            return Found(there)
        self.put(lookup, value, ttl_ms)
        return Acquired()

    def owns(self, lookup: bytes, owner: bytes) -> bool:
        return (self.get(lookup) or b"").startswith(lease_prefix(owner))

    def put(self, lookup: bytes, value: bytes, ttl_ms: int) -> None:
        self._values[lookup] = (value, self._now() + ttl_ms / 1000)

    def swap(self, lookup: bytes, owner: bytes, value: bytes | None, ttl_ms: int) -> bool:
        """Put `value` (None: nothing) in the place of the owner's lease."""
        if not self.owns(lookup, owner):
            return False
        if value is None:
            del self._values[lookup]
        else:
            self.put(lookup, value, ttl_ms)
        return True

    def extend(self, lookup: bytes, owner: bytes, ttl_ms: int) -> bool:
        return self.swap(lookup, owner, self.get(lookup) or b"", ttl_ms) if self.owns(lookup, owner) else False

    def forget(self, lookup: bytes) -> bool:
        return self._values.pop(lookup, None) is not None

    def flush(self) -> None:
        self._values.clear()


class SimulatedHotPath(HotPath):
    """The steps of `HotPath`, each carried by an unreliable wire."""

    def __init__(self, entries: Entries, wire: Wire) -> None:
        self.entries = entries
        self._wire = wire
        self._under_way: set[asyncio.Task[None]] = set()

    @property
    def open(self) -> bool:
        return self._wire.connected_since() is None

    async def acquire(self, lookup: bytes, value: bytes, ttl_ms: int) -> Acquired | Found:
        return await self._wire.carry("acquire", lookup.hex()[:4], lambda: self.entries.acquire(lookup, value, ttl_ms))

    async def get(self, lookup: bytes) -> bytes | None:
        return await self._wire.carry("get", lookup.hex()[:4], lambda: self.entries.get(lookup))

    async def extend(self, lookup: bytes, owner: bytes, ttl_ms: int) -> bool:
        return await self._wire.carry("extend", lookup.hex()[:4], lambda: self.entries.extend(lookup, owner, ttl_ms))

    def settle(self, changes: Sequence[Change]) -> None:
        """As one command: all of them land, or none does."""
        steps = [(change.lookup, change.owner, change.value, change.ttl_ms) for change in changes]
        carrying = self._carry([*changes], lambda: [self.entries.swap(*step) for step in steps])
        task = asyncio.get_running_loop().create_task(carrying)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def forget(self, lookup: bytes) -> bool:
        return await self._wire.carry("forget", lookup.hex()[:4], lambda: self.entries.forget(lookup))

    async def _carry(self, changes: list[Change], work: Callable[[], list[bool]]) -> None:
        outcomes: Sequence[Outcome]
        try:
            outcomes = await self._wire.carry("settle", changes[0].lookup.hex()[:4], work)
        except StoreUnavailable as error:
            outcomes = [error] * len(changes)
        for change, outcome in zip(changes, outcomes, strict=True):
            change.told(outcome)
