"""The leases of one process in Redis: what the process knows of each, and how it extends those of long attempts."""

import asyncio
from dataclasses import dataclass

from gateway.core.model import Intent
from gateway.ports import Clock, StoreObserver, StoreUnavailable
from gateway.store.redis.hotpath import HotPath

_EXTEND_AT_ONCE = 128


@dataclass(slots=True, eq=False)
class Held:
    """A lease of ours in Redis. Instants are CLOCK_BOOTTIME: `ends` is when the entry is surely gone unless it is
    written again, `extended` is when its TTL last began, `trusted_until` is when the lease at the authority may no
    longer be trusted. `settling`: an end of the attempt was sent to the authority, and its client may know it.
    """

    lookup: bytes
    intent: Intent
    ttl: float
    extended: float
    ends: float
    trusted_until: float = 0.0
    settling: bool = False


class HeldLeases:
    """Those of attempts that run here, by owner token."""

    def __init__(self, hot: HotPath, clock: Clock, observer: StoreObserver) -> None:
        self._hot = hot
        self._clock = clock
        self._observer = observer
        self._held: dict[bytes, Held] = {}

    def add(self, held: Held, trusted_until: float) -> None:
        """The authority has given the attempt its lease."""
        held.trusted_until = trusted_until
        self._held[held.intent.owner] = held

    def pop(self, owner: bytes) -> Held | None:
        """The attempt has ended, or its lease in Redis is another's."""
        return self._held.pop(owner, None)

    def settle(self, owner: bytes) -> None:
        """An end of the attempt is about to be sent."""
        held = self._held.get(owner)
        if held is not None:
            held.settling = True

    def trust(self, owner: bytes, until: float) -> None:
        """The lease at the authority was renewed."""
        held = self._held.get(owner)
        if held is not None:
            held.trusted_until = max(held.trusted_until, until)

    def runs(self, owner: bytes) -> bool:
        """Whether it is the token of an attempt of this process that has not ended: then the authority's answer is
        known.
        """
        held = self._held.get(owner)
        return held is not None and not held.settling and self._clock.boottime() < held.trusted_until

    async def tick(self) -> None:
        """As `TieredStore.tick`."""
        now = self._clock.boottime()
        for owner in [owner for owner, held in self._held.items() if now >= held.trusted_until]:
            del self._held[owner]
        due = [owner for owner, held in self._held.items() if now >= held.extended + held.ttl / 2]
        for start in range(0, len(due), _EXTEND_AT_ONCE):
            await asyncio.gather(*map(self._extend, due[start : start + _EXTEND_AT_ONCE]))

    async def _extend(self, owner: bytes) -> None:
        held = self._held.get(owner)
        if held is None:
            return
        ttl = min(held.ttl, held.trusted_until - self._clock.boottime())
        if ttl <= 0:
            return
        try:
            done = await self._hot.extend(held.lookup, owner, milliseconds(ttl))
        except StoreUnavailable:
            held.ends = self._clock.boottime() + held.ttl
            return
        if done:
            held.extended = self._clock.boottime()
            held.ends = held.extended + held.ttl
        else:
            # Redis has lost it. What is or will be there now belongs to somebody else.
            self._held.pop(owner, None)
            self._observer.stale_write("redis_extend")


def milliseconds(seconds: float) -> int:
    """A TTL for Redis, rounded down so that an entry never ends late, and at least 1, since Redis refuses 0."""
    return max(1, int(seconds * 1000))
