"""Holds leases: the fence before sending, and the renewal while the owner lives.

The process trusts a lease from the *start* of the last acknowledged reserve or renewal, so that a slow round trip
cannot stretch ownership, on a clock that counts suspend. After that it sends nothing. Only the database's clock decides
when a lease lapses; ours only makes the process stop earlier.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from gateway.core.model import Lease
from gateway.core.policy import LEASE_MARGIN
from gateway.ports import Clock, Observer, Store, StoreUnavailable

LONGEST_TICK = 1.0
"""Seconds between two rounds, at most. Shorter leases have shorter ones: a sixth of the shortest that was ever held here."""


@dataclass(slots=True)
class _Held:
    lease: Lease
    due: float


class LeaseKeeper:
    """The leases that this process holds. `run` must run for as long as any is held; `on_tick` is called about once a
    second.
    """

    def __init__(self, store: Store, clock: Clock, observer: Observer, on_tick: Callable[[], Awaitable[None]] | None = None) -> None:
        self._store = store
        self._clock = clock
        self._observer = observer
        self._on_tick = on_tick
        self._held: dict[bytes, _Held] = {}
        self._shortest = math.inf
        self._shorter = asyncio.Event()

    def hold(self, lease: Lease) -> None:
        """Start renewing a lease, every third of it."""
        self._held[lease.owner] = _Held(lease, lease.started + lease.duration / 3)
        if lease.duration < self._shortest:  # the round that is waited for may be too late for it
            self._shortest = lease.duration
            self._shorter.set()

    def drop(self, lease: Lease) -> None:
        """Stop renewing: the attempt is settled. Dropping twice is harmless."""
        self._held.pop(lease.owner, None)

    @property
    def holding(self) -> int:
        """How many leases are being renewed."""
        return len(self._held)

    def trusted(self, lease: Lease) -> bool:
        """Whether the holder may still send. Synchronous, so that nothing can come between the answer and the write."""
        held = self._held.get(lease.owner)
        return held is not None and self._clock.boottime() < held.lease.started + held.lease.duration * (1 - LEASE_MARGIN)

    async def run(self) -> None:
        """Renew for ever. A failed renewal is counted and tried again at the next tick; nothing else depends on it."""
        while True:
            await self._until_next()
            try:
                await self.renew_due()
                if self._on_tick is not None:
                    await self._on_tick()
            except Exception as error:  # without renewals every long attempt would end as unknown: outlive whatever one round meets
                self._observer.background_failed("renew", error)

    async def _until_next(self) -> None:
        self._shorter.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(LONGEST_TICK, self._shortest / 6)):
                await self._shorter.wait()

    async def renew_due(self) -> None:
        """One statement for all leases that are due."""
        started = self._clock.boottime()
        due = [held.lease for held in self._held.values() if held.due <= started]
        if not due:
            return
        try:
            renewed = await self._store.renew(due)
        except StoreUnavailable:
            return  # counted by the store; due again at the next tick
        for lease in due:
            held = self._held.get(lease.owner)
            if held is None:
                continue
            if lease.owner in renewed:
                held.lease = replace(held.lease, started=started)
                held.due = started + lease.duration / 3
            else:
                self._observer.stale_write("renew")
                held.due = started + lease.duration / 6
