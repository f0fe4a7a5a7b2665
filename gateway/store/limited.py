"""An authority without Redis in front of it, with quotas that each process counts for itself."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias, TypeVar

from gateway.core.model import Intent, Lease, Record, RecordKey, StoredResponse, Tombstone
from gateway.ports import Answered, Doubted, Retention, Settled, Store
from gateway.ports.accepted import Parked, Promise
from gateway.store.quotas import Place, QuotaCounter

T = TypeVar("T")

Running: TypeAlias = Coroutine[Any, Any, T]


class LimitedStore:
    """A `Store` over `store`. Intents without a quota pass straight through."""

    def __init__(self, store: Store, quotas: QuotaCounter) -> None:
        self._store = store
        self.now_us = store.now_us
        self._quotas = quotas

    def reserve(self, intent: Intent) -> "Running[Lease | Record | Tombstone]":
        """As `Store.reserve`."""
        return self._store.reserve(intent) if intent.terms.quota is None else reserve_within(self._quotas, self._reserve, intent)

    def _reserve(self, intent: Intent, place: Place) -> "Running[Lease | Record | Tombstone]":
        return place.reserve(self._store.reserve, intent)

    def claim(self, found: Record, intent: Intent) -> "Running[Lease | None]":
        """As `Store.claim`."""
        return claim_within(self._quotas, self._store.claim, found, intent)

    def lapse(self, found: Record) -> "Running[bool]":
        """As `Store.lapse`."""
        return self._store.lapse(found)

    def find(self, key: RecordKey) -> "Running[Record | None]":
        """As `Store.find`."""
        return self._store.find(key)

    def complete(self, lease: Lease, response: StoredResponse, retention: Retention) -> "Running[Settled]":
        """As `Store.complete`."""
        return self._store.complete(lease, response, retention)

    def release(self, lease: Lease, reason: str, retention: Retention) -> "Running[Settled]":
        """As `Store.release`."""
        return self._store.release(lease, reason, retention)

    def doubt(self, lease: Lease, reason: str) -> "Running[Settled]":
        """As `Store.doubt`."""
        return self._store.doubt(lease, reason)

    def park(self, lease: Lease, reason: str, delay: float, promise: Promise, *, unstarted: bool = False) -> "Running[Parked]":
        """As `Store.park`."""
        return self._store.park(lease, reason, delay, promise, unstarted=unstarted)

    def restore(self, lease: Lease, intent: Intent, end: Answered | Doubted) -> "Running[Settled]":
        """As `Store.restore`."""
        return self._store.restore(lease, intent, end)

    def renew(self, leases: Sequence[Lease]) -> "Running[frozenset[bytes]]":
        """As `Store.renew`."""
        return self._store.renew(leases)


async def reserve_within(
    quotas: QuotaCounter, reserve: "Callable[[Intent, Place], Running[Lease | Record | Tombstone]]", intent: Intent
) -> Lease | Record | Tombstone:
    """A reserve whose lease takes a share of the quota. Raises `OverQuota`."""
    place = quotas.place(intent)
    try:
        found = await reserve(intent, place)
    except BaseException:
        place.undo()
        raise
    place.end(found)
    return found


async def claim_within(
    quotas: QuotaCounter, claim: "Callable[[Record, Intent], Running[Lease | None]]", found: Record, intent: Intent
) -> Lease | None:
    """A claim that takes a place, and a new key where it begins a new life of the record. Raises `OverQuota`."""
    if intent.terms.quota is None:
        return await claim(found, intent)
    place = quotas.place(intent, new_key=found.expired)
    await place.take()
    try:
        lease = await claim(found, intent)
    except BaseException:
        place.undo()
        raise
    place.end(lease)
    return lease
