"""Tasks that outlast those who wait for them."""

import asyncio
import logging
from typing import TypeVar

from gateway.ports import StoreUnavailable

T = TypeVar("T")

_log = logging.getLogger(__name__)


async def outlasting(task: "asyncio.Task[T]", *expected: type[Exception]) -> T:
    """What the task comes to. A caller that is cancelled leaves it to run to its end.

    What it raises then is for nobody: a store that was away, or one of the `expected`, is no news, and anything else goes to the log.
    """
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        # `shield` would leave its error to the garbage collector, and that to asyncio's log.
        task.add_done_callback(lambda done: _tell(done, (StoreUnavailable, *expected)))
        raise


def _tell(task: "asyncio.Task[T]", expected: tuple[type[Exception], ...]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, expected):
        _log.error("What went on for a caller that had left has failed", exc_info=error)
