"""An operator of a configuration's own stores, for as long as a command needs it. No gateway need run."""

import contextlib
import logging
from collections.abc import AsyncIterator

from gateway.config import Config
from gateway.operator import Operator
from gateway.server.assembly import make_authority, make_hot, make_operator
from gateway.system import SystemClock, SystemRandomness


class NotReady(Exception):
    """Postgres cannot be worked with; `str()` says why."""


@contextlib.asynccontextmanager
async def operating(config: Config, *, changes: bool) -> AsyncIterator[Operator]:
    """For reads nobody asks Redis. Raises `NotReady` if Postgres is away, or its schema is another than ours."""
    # What stores log is for processes that serve. Without any handler, Python would print warnings among the output.
    logging.getLogger("gateway").addHandler(logging.NullHandler())
    authority = make_authority(config)
    link, tiered = make_hot(config, authority, SystemClock(), SystemRandomness()) if changes else (None, None)
    try:
        if (reason := await authority.ready()) is not None:
            raise NotReady(reason)
        if link is not None:
            await link.start()
        yield make_operator(lambda: config, authority, tiered)
    finally:
        if tiered is not None:
            await tiered.close(0.0)
        if link is not None:
            await link.close()
        await authority.close()
