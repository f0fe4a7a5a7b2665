"""Looks at single records of the authority, shared by all who want the same one."""

import asyncio
from collections.abc import Awaitable, Callable

from gateway.core.model import Record, RecordKey
from gateway.runtime.outlasting import outlasting

Find = Callable[[RecordKey], Awaitable[Record | None]]


class Looks:
    """At most one look at a time for each key. Each caller gets what was read after it came.

    A caller that comes during a look shares the next one: the present one may have read before a commit that the caller
    knows of.
    """

    def __init__(self, find: Find) -> None:
        self._find = find
        self._next: dict[RecordKey, asyncio.Task[Record | None]] = {}
        self._running: dict[RecordKey, asyncio.Task[Record | None]] = {}

    async def find(self, key: RecordKey) -> Record | None:
        """As `Store.find`. A caller that is cancelled leaves; the look goes on for the others."""
        look = self._next.get(key)
        if look is None:
            look = self._next[key] = asyncio.get_running_loop().create_task(self._look(key, self._running.get(key)))
        return await outlasting(look)

    async def close(self) -> None:
        """Give up what is under way."""
        looks = [*self._next.values(), *self._running.values()]
        for look in looks:
            look.cancel()
        await asyncio.gather(*looks, return_exceptions=True)

    async def _look(self, key: RecordKey, before: "asyncio.Task[Record | None] | None") -> Record | None:
        if before is not None:
            await asyncio.wait([before])
        # From here to the statement there is no await: whoever comes from now on may not be told what it reads.
        self._running[key] = self._next.pop(key)
        try:
            return await self._find(key)
        finally:
            del self._running[key]
