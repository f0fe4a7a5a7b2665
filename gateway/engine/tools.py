"""What the engine works with; the same for all requests of a process."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gateway.engine.leases import LeaseKeeper
from gateway.engine.meanings import Meanings, Unchanging
from gateway.ports import Clock, Memory, Observer, Randomness, Store, StoreUnavailable
from gateway.ports.reconciliation import Reconciliation, Sealer

LARGE_AT_ONCE = 2
"""How many large answers are brought into memory for their commit at the same time."""

SETTLE_BACKOFF = 0.05
SETTLE_BACKOFF_MAX = 2.0

T = TypeVar("T")
Offload = Callable[..., Awaitable[Any]]
"""Calls a function with arguments where it does not hold up the event loop, and gives its result."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The ports, and what attempts share. `large` is held by whoever has a large answer in memory for its commit. `sealer` is there if some
    route may have to send a request again.
    """

    store: Store
    clock: Clock
    randomness: Randomness
    observer: Observer
    keeper: LeaseKeeper
    memory: Memory
    offload: Offload = asyncio.to_thread
    large: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LARGE_AT_ONCE))
    sealer: Sealer | None = None
    reconciliation: Reconciliation | None = None
    meanings: Meanings = field(default_factory=Unchanging)


async def until_answered(tools: Tools, ask: Callable[[], Awaitable[T]]) -> T:
    """What the authority answers, asked again and again until it does."""
    try:
        return await ask()
    except StoreUnavailable:
        return await asked_again(tools, ask)


async def asked_again(tools: Tools, ask: Callable[[], Awaitable[T]]) -> T:
    """The same, when it has just not answered."""
    backoff = SETTLE_BACKOFF
    while True:
        await tools.clock.sleep(backoff * (0.5 + tools.randomness.jitter()))
        backoff = min(SETTLE_BACKOFF_MAX, backoff * 2)
        with contextlib.suppress(StoreUnavailable):
            return await ask()
