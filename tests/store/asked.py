"""A cached store that is asked as the engine asks it: what it remembers first."""

from gateway.core.model import Intent, Lease, Record, Tombstone
from gateway.ports import Clock, Store, StoreObserver
from gateway.store.cached import CachedStore
from gateway.store.replay_cache import ReplayCache


class AskedStore(CachedStore):
    """`reserve` tells what it remembers."""

    def __init__(self, store: Store, cache: ReplayCache, clock: Clock, observer: StoreObserver | None = None) -> None:
        super().__init__(store, cache, clock, observer)
        self._now = clock.boottime

    async def reserve(self, intent: Intent) -> Lease | Record | Tombstone:
        known = None if intent.terms.observed else self.known(intent.key, intent.fingerprint, self._now())
        return await super().reserve(intent) if known is None else known.record
