"""The operators' service with connections of its own: for commands, and for a supervisor, whose workers have theirs."""

import contextlib
from collections.abc import AsyncIterator, Callable

from gateway.config import Config
from gateway.operator import Operator
from gateway.server.assembly import make_authority, make_hot, make_operator
from gateway.system import SystemClock, SystemRandomness


@contextlib.asynccontextmanager
async def operating(config: Callable[[], Config]) -> AsyncIterator[Operator]:
    """An operator over the stores that `config` names at the start. It connects when it is first used, but for Redis, and raises nothing
    before. `config` is asked anew for the routes' policies.
    """
    at_start = config()
    authority = make_authority(at_start)
    link, tiered = make_hot(at_start, authority, SystemClock(), SystemRandomness())
    try:
        if link is not None:
            await link.start()
        yield make_operator(config, authority, tiered)
    finally:
        if tiered is not None:
            await tiered.close(1.0)
        if link is not None:
            await link.close()
        await authority.close()
