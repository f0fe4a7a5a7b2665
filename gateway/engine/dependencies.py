"""What the engine works with; the same for all requests of a process."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from gateway.core.model import RecordKey, StoredResponse
from gateway.engine.leases import LeaseKeeper
from gateway.engine.meanings import Meanings, Unchanging
from gateway.ports import Clock, Memory, Observer, Randomness, Recollection, Store
from gateway.ports.accepted import Acceptance
from gateway.ports.participation import Participation
from gateway.ports.quotas import Quotas
from gateway.ports.reconciliation import Reconciliation, Sealer

LARGE_AT_ONCE = 2
"""How many large answers are brought into memory for their commit at the same time."""

Offload = Callable[..., Awaitable[Any]]
"""Calls a function with arguments where it does not hold up the event loop, and gives its result."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The ports, and what attempts share. `large` is held by whoever has a large answer in memory for its commit. `sealer` is there if some
    route may have to send a request again, `remembered` if the process remembers completed answers, `participation` if some
    upstream may take part. `quotas` is there where a store counts them. `acceptance` and `abandoned` are for accepted work;
    `digest` gives a key as logs show it.
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
    remembered: Recollection | None = None
    participation: Participation | None = None
    acceptance: Acceptance | None = None
    abandoned: Callable[[], StoredResponse] | None = None
    quotas: Quotas | None = None
    digest: Callable[[RecordKey], str] | None = None
