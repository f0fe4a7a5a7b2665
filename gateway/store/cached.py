"""A store with a cache of completed answers in front of it (`replay_cache`): what it learns from, and what it may answer."""

from collections.abc import Sequence

from gateway.core.model import Fingerprint, Intent, Lease, Record, RecordKey, StoredResponse, Tombstone
from gateway.ports import Answered, Clock, Doubted, Remembered, Retention, Settled, Store, StoreObserver, Transition
from gateway.ports.accepted import Parked, Promise
from gateway.store.completed import CompletedEntry, completed_entry
from gateway.store.null_observer import NullObserver
from gateway.store.replay_cache import ReplayCache

STORE = "local"


class CachedStore:
    """A `Store` over `store`. It learns from what `store` reports as completed, and from the completions of its own
    attempts. The engine asks `known` before it reserves.

    Observing requests neither ask it nor teach it: whatever they are told, they go on.
    """

    def __init__(self, store: Store, cache: ReplayCache, clock: Clock, observer: StoreObserver | None = None) -> None:
        self._store = store
        self.now_us = store.now_us
        self._cache = cache
        self._clock = clock
        self._observer = observer or NullObserver()

    def known(self, key: RecordKey, fingerprint: Fingerprint, now: float) -> Remembered | None:
        """A `Recollection`. A completed record that is told from here has the version 0, or the one that it was read with."""
        known = self._cache.get(key, fingerprint, self.now_us, now)
        if known is not None:
            self._observer.store_operation(STORE, "replay", self._clock.boottime() - now)
        return known

    async def reserve(self, intent: Intent) -> Lease | Record | Tombstone:
        """As `Store.reserve`."""
        if intent.terms.observed:
            return await self._store.reserve(intent)
        asked = self._clock.boottime()
        found = await self._store.reserve(intent)
        if isinstance(found, Record):
            self._learn(found, asked)
        return found

    async def claim(self, found: Record, intent: Intent) -> Lease | None:
        """As `Store.claim`."""
        return await self._store.claim(found, intent)

    async def lapse(self, found: Record) -> bool:
        """As `Store.lapse`."""
        return await self._store.lapse(found)

    async def find(self, key: RecordKey) -> Record | None:
        """As `Store.find`."""
        return await self._store.find(key)

    async def complete(self, lease: Lease, response: StoredResponse, retention: Retention) -> Settled:
        """As `Store.complete`."""
        asked = self._clock.boottime()
        settled = await self._store.complete(lease, response, retention)
        intent, expires_at_us = lease.intent, settled.expires_at_us
        done = settled.transition is Transition.DONE or settled.transition is Transition.ALREADY
        if intent is not None and not intent.terms.observed and expires_at_us is not None and done and settled.whole:
            entry = CompletedEntry(
                intent.fingerprint, lease.owner, expires_at_us, lease.record_id, 0, lease.attempt, intent.request_id, response
            )
            self._cache.put(lease.key, entry, asked)
        return settled

    async def release(self, lease: Lease, reason: str, retention: Retention) -> Settled:
        """As `Store.release`."""
        return await self._store.release(lease, reason, retention)

    async def doubt(self, lease: Lease, reason: str) -> Settled:
        """As `Store.doubt`."""
        return await self._store.doubt(lease, reason)

    async def park(self, lease: Lease, reason: str, delay: float, promise: Promise, *, unstarted: bool = False) -> Parked:
        """As `Store.park`."""
        return await self._store.park(lease, reason, delay, promise, unstarted=unstarted)

    async def restore(self, lease: Lease, intent: Intent, end: Answered | Doubted) -> Settled:
        """As `Store.restore`."""
        return await self._store.restore(lease, intent, end)

    async def renew(self, leases: Sequence[Lease]) -> frozenset[bytes]:
        """As `Store.renew`."""
        return await self._store.renew(leases)

    def _learn(self, found: Record, asked: float) -> None:
        entry = completed_entry(found)
        if entry is not None:
            self._cache.put(found.key, entry, asked)
