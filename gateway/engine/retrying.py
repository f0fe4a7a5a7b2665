"""Asking an authority that is away until it answers."""

import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.engine.dependencies import Dependencies
from gateway.ports import StoreUnavailable

BACKOFF = 0.05
BACKOFF_MAX = 2.0
"""Seconds between two tries: the first ones, and at most."""

T = TypeVar("T")


async def until_answered(deps: Dependencies, ask: Callable[[], Awaitable[T]]) -> T:
    """What the authority answers, asked again and again until it does."""
    try:
        return await ask()
    except StoreUnavailable:
        return await asked_again(deps, ask)


async def asked_again(deps: Dependencies, ask: Callable[[], Awaitable[T]]) -> T:
    """The same, when it has just not answered."""
    backoff = BACKOFF
    while True:
        await deps.clock.sleep(backoff * (0.5 + deps.randomness.jitter()))
        backoff = min(BACKOFF_MAX, backoff * 2)
        with contextlib.suppress(StoreUnavailable):
            return await ask()
