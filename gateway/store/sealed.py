"""A store whose records are sealed on their way in, and opened on their way out: what is behind it never sees an answer or a request."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from gateway.core.model import SEALED, Intent, Lease, Record, RecordKey, StoredResponse, Tombstone
from gateway.core.packing import INLINE
from gateway.ports import Answered, Doubted, Retention, Settled, Store
from gateway.ports.accepted import Parked, Promise
from gateway.ports.reconciliation import Unsealable
from gateway.runtime.record_sealing import RecordSealer

T = TypeVar("T")

_log = logging.getLogger(__name__)


class SealedStore:
    """A `Store` over `store`. It stands before every cache, which then hold sealed answers, too.

    An answer that no configured key opens is reported sealed, as it is. Its body cannot be unpacked, so that whoever asks is told that the
    store is unavailable, and the operation is not run again.
    """

    def __init__(self, store: Store, sealer: RecordSealer) -> None:
        self._store = store
        self.now_us = store.now_us
        self._sealer = sealer

    async def reserve(self, intent: Intent) -> Lease | Record | Tombstone:
        """As `Store.reserve`."""
        found = await self._store.reserve(self._sealer.seal_intent(intent))
        return await self._opened(found) if isinstance(found, Record) else found

    async def claim(self, found: Record, intent: Intent) -> Lease | None:
        """As `Store.claim`."""
        return await self._store.claim(found, self._sealer.seal_intent(intent))

    async def lapse(self, found: Record) -> bool:
        """As `Store.lapse`."""
        return await self._store.lapse(found)

    async def find(self, key: RecordKey) -> Record | None:
        """As `Store.find`."""
        found = await self._store.find(key)
        return None if found is None else await self._opened(found)

    async def complete(self, lease: Lease, response: StoredResponse, retention: Retention) -> Settled:
        """As `Store.complete`."""
        return await self._store.complete(lease, await self._sealed(lease, response), retention)

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
        if isinstance(end, Answered):
            end = Answered(await self._sealed(lease, end.response), end.retention)
        return await self._store.restore(lease, self._sealer.seal_intent(intent), end)

    async def renew(self, leases: Sequence[Lease]) -> frozenset[bytes]:
        """As `Store.renew`."""
        return await self._store.renew(leases)

    async def _sealed(self, lease: Lease, response: StoredResponse) -> StoredResponse:
        if not self._sealer.seals:
            return response
        return await _beside(response, partial(self._sealer.seal_answer, lease.key, lease.record_id, response))

    async def _opened(self, found: Record) -> Record:
        response = found.response
        if response is None or response.encoding != SEALED:
            return found
        try:
            opened = await _beside(response, partial(self._sealer.open_answer, found.key, found.record_id, response))
        except Unsealable as error:
            _log.error("A stored answer cannot be opened: %s", error, extra={"record_id": str(found.record_id)})
            return found
        return replace(found, response=opened)


async def _beside(response: StoredResponse, work: Callable[[], T]) -> T:
    """A long body would hold the event loop up."""
    return work() if response.body is None or len(response.body) <= INLINE else await asyncio.to_thread(work)
