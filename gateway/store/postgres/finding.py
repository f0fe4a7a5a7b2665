"""Looks at single records. Answers of any size are read, and few large ones at once."""

import asyncio

from gateway.core.model import Record, RecordKey
from gateway.runtime.outlasting import outlasting
from gateway.store.postgres.calls import Calls
from gateway.store.postgres.lane import STORE, Lane, unavailable
from gateway.store.postgres.lanes import Lanes
from gateway.store.postgres.queries import QUERIES
from gateway.store.postgres.rows import decode_record
from gateway.store.postgres.statements import BODY_LEFT_OUT, INLINE_BYTES, BodyLeftOut

LARGE_READS = 2
"""Answers above `INLINE_BYTES` that may be read at once: few, so that they neither fill the memory nor take all connections."""

ANY_SIZE = 2**62


class Finder:
    """Reads one record at a time, each by `deadline`, in event loop time."""

    def __init__(self, calls: Calls, lanes: Lanes) -> None:
        self._calls = calls
        self._lanes = lanes
        self._large_reads = asyncio.Semaphore(LARGE_READS)

    async def find(self, key: RecordKey, deadline: float) -> Record | None:
        """The record, with its answer."""
        found = await self._read(key, INLINE_BYTES, deadline)
        return await self.find_large(key, deadline) if isinstance(found, BodyLeftOut) else found

    async def find_large(self, key: RecordKey, deadline: float) -> Record | None:
        """The record, with an answer of any size, in its turn. A caller that is cancelled leaves; a read that runs keeps its turn."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._large_reads.acquire()
        except TimeoutError as error:
            self._calls.observer.store_error(STORE, "find", "timeout")
            raise unavailable("timeout", may_have_landed=False) from error
        reading = self._lanes.spawn(self._read(key, ANY_SIZE, deadline))
        reading.add_done_callback(lambda _: self._large_reads.release())
        found = await outlasting(reading)
        assert not isinstance(found, BodyLeftOut)  # nothing is larger than any size
        return found

    async def _read(self, key: RecordKey, limit: int, deadline: float) -> Record | BodyLeftOut | None:
        async def work(lane: Lane) -> Record | BodyLeftOut | None:
            sent = self._calls.clock.boottime()
            for row in await lane.fetch(QUERIES["find"], key.scope_id, key.key, limit, self._calls.clock.limits()):
                self._calls.clock.read(row["now_us"], sent)
                return BODY_LEFT_OUT if row["body_left_out"] else decode_record(key, row[1:], self._calls.clock.behind())
            return None

        return await self._calls.run("find", work, deadline)
