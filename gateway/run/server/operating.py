"""The operators' service with connections of its own, for commands and for a supervisor; workers have their own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from gateway.config import Config
from gateway.observe.tracing import harmless, tracer_of
from gateway.operate.operations import Operator
from gateway.run.server.assembly import make_authority, make_hot, make_operator, make_replays
from gateway.runtime.system import SystemClock, SystemRandomness


class NotReady(Exception):
    """Postgres cannot be worked with; `str()` says why."""


@contextlib.asynccontextmanager
async def operating(config: Callable[[], Config], *, changes: bool = True, ready: bool = False) -> AsyncIterator[Operator]:
    """An operator over the stores that `config` names at the start. `config` is asked anew for the routes' policies.

    Postgres is connected to when it is first used; with `ready` at once, and `NotReady` is raised if it is away, or its
    schema is another than ours. Without `changes` it does not connect to Redis.
    """
    at_start = config()
    authority = make_authority(at_start)
    clock = SystemClock()
    tracing = at_start.tracing if changes else None
    tracer = None if tracing is None else tracer_of(tracing.endpoint, at_start.name)
    link, tiered = make_hot(at_start, authority, clock, SystemRandomness()) if changes else (None, None)
    try:
        if ready and (reason := await authority.ready()) is not None:
            raise NotReady(reason)
        if link is not None:
            await link.start()
        yield make_operator(
            config, authority, tiered, make_replays(at_start, tiered, clock), None if tracer is None else harmless(tracer.verdict)
        )
    finally:
        if tracer is not None:
            await asyncio.to_thread(tracer.close)
        if tiered is not None:
            await tiered.close(1.0)
        if link is not None:
            await link.close()
        await authority.close()
