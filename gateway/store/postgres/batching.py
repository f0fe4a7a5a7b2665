"""Concurrent calls of one kind travel in one statement.

A call that finds nobody ahead of it goes at once; calls that arrive while a statement waits for a connection join it. Those that arrive
while a statement is under way wait for its end, since what waits makes the next batch larger and so cheaper for each; but at most for
`STAGGER`: then another statement goes beside it, up to `width` of a kind.

Every call has a deadline of its own. One whose deadline passes gets its timeout while the batch goes on for the others; at the last
one's deadline the statement is given up. A caller that is cancelled is dropped before sending, and ignored after.
"""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from gateway.core.shards import ShardOf
from gateway.ports import StoreObserver, StoreUnavailable
from gateway.store.postgres.lane import STORE, DataRefused, Lane, unavailable
from gateway.store.postgres.lanes import Lanes

I = TypeVar("I")  # noqa: E741 (an item; the letter is a type variable's whole name)
R = TypeVar("R")

ROWS_MAX = 128
BYTES_MAX = 1024 * 1024
ALONE_BYTES = 256 * 1024
WAITING_MAX = 16384
STAGGER = 0.002
"""Seconds. A server that is near ends a statement in about that time, and gets fewer and larger ones. One that is far
away, or waits for a standby, is given the next statement before it has ended the first.
"""

Statement = Callable[[Lane, Sequence[I]], Awaitable[Mapping[bytes, R | StoreUnavailable]]]
"""Runs one statement for some items; the answers are found by owner token. Raises `DataRefused` and `StoreUnavailable`."""


@dataclass(slots=True, eq=False)
class Call(Generic[I, R]):
    """One caller and what it waits for. `size` is the number of bytes that the item adds to a statement; `taken`: it is in one."""

    owner: bytes
    item: I
    size: int
    deadline: float
    future: "asyncio.Future[R | None]"
    taken: bool = False


class Batcher(Generic[I, R]):
    """Batches the calls of one `operation`.

    `smaller` gives what to try for an item that is refused even alone, or None to give up.
    """

    def __init__(
        self,
        operation: str,
        lanes: Lanes,
        statement: Statement[I, R],
        observer: StoreObserver,
        *,
        width: int,
        smaller: Callable[[I], I | None] = lambda item: None,
    ) -> None:
        self._operation = operation
        self._lanes = lanes
        self._statement = statement
        self._observer = observer
        self._width = width
        self._smaller = smaller
        self._queue: deque[Call[I, R]] = deque()
        self._deadlines = _Deadlines(self._late)
        self._runners = 0
        self._fetching = 0
        self._latest = 0.0  # of all deadlines so far
        self._begun = 0.0  # when the last statement was given its batch
        self._timer: asyncio.TimerHandle | None = None

    def submit(self, owner: bytes, item: I, size: int, deadline: float) -> "asyncio.Future[R | None]":
        """The answer to come; None if the statement had no row for this owner. Fails with `StoreUnavailable` and nothing else."""
        if len(self._queue) >= WAITING_MAX:
            self._observer.store_error(STORE, self._operation, "overloaded")
            raise unavailable("overloaded", may_have_landed=False)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R | None] = loop.create_future()
        call = Call(owner, item, size, deadline, future)
        self._queue.append(call)
        if deadline >= self._latest:
            self._latest = deadline
        else:  # one that asks again, behind others that may wait for longer
            loop.call_at(deadline, self._overdue, call)
        if self._fetching == 0:
            self._start()
        return future

    def _overdue(self, call: Call[I, R]) -> None:
        if not (call.taken or call.future.done()):
            _fail(call, "timeout", may_have_landed=False)
            self._late()

    def _start(self) -> None:
        """There are calls that wait: have a runner fetch them, now or soon, unless one is about to."""
        if self._fetching or self._runners >= self._width:
            return
        if self._runners and len(self._queue) < ROWS_MAX:
            if self._timer is not None:
                return
            loop, due = asyncio.get_running_loop(), self._begun + STAGGER
            if loop.time() < due:
                self._timer = loop.call_at(due, self._ring)
                return
        self._runners += 1
        self._fetching += 1
        self._lanes.spawn(self._run())

    def _ring(self) -> None:
        self._timer = None
        if self._queue and self._runners:
            self._start()

    async def _run(self) -> None:
        """Take batches until nobody waits. `_fetching` counts the runners that have yet to take one: newcomers need no other."""
        fetching = True
        try:
            while self._queue:
                if not fetching:
                    self._fetching += 1
                    fetching = True
                lane = self._lanes.idle() or await self._lane()
                self._fetching -= 1
                fetching = False
                if lane is None:
                    continue
                try:
                    if batch := self._take():
                        self._begun = asyncio.get_running_loop().time()
                        if self._queue:
                            self._start()
                        await self._execute(lane, batch)
                finally:
                    self._lanes.release(lane)
        finally:
            self._fetching -= fetching
            self._runners -= 1
            if self._queue:
                self._start()

    async def _lane(self) -> Lane | None:
        """A lane, or None after those for whom there will be none have been told."""
        deadline = self._queue[0].deadline
        try:
            return await self._lanes.acquire(deadline)
        except TimeoutError:
            self._abandon("timeout", deadline)
        except StoreUnavailable as error:
            self._abandon(error.reason, math.inf)
        return None

    def _abandon(self, reason: str, deadline: float) -> None:
        """Fail those who wait, up to this deadline. Nothing of theirs has been sent."""
        keep: deque[Call[I, R]] = deque()
        for call in self._queue:
            if call.deadline <= deadline:
                _fail(call, reason, may_have_landed=False)
            else:
                keep.append(call)
        self._queue = keep
        self._observer.store_error(STORE, self._operation, reason)

    def _take(self) -> list[Call[I, R]]:
        """The next batch: capped in rows and bytes, a large item alone, no owner twice, nobody who has left."""
        batch: list[Call[I, R]] = []
        owners: set[bytes] = set()
        size = 0
        while self._queue and len(batch) < ROWS_MAX:
            call = self._queue[0]
            if call.future.done():
                self._queue.popleft()
                continue
            size += call.size
            if batch and (size > BYTES_MAX or call.size > ALONE_BYTES or call.owner in owners):
                break
            self._queue.popleft()
            call.taken = True
            batch.append(call)
            owners.add(call.owner)
            if call.size > ALONE_BYTES:
                break
        return batch

    async def _execute(self, lane: Lane, batch: list[Call[I, R]]) -> None:
        """Answer all of the batch, or fail them, whatever fails here."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            self._observer.store_batch(self._operation, len(batch))
            deadlines = [call.deadline for call in batch]
            lane.deadline = max(deadlines)
            self._deadlines.watch(loop, batch, min(deadlines))
            await self._send(lane, batch)
        finally:
            self._deadlines.leave(batch)
            for call in batch:
                if not call.future.done():
                    _fail(call, "error", may_have_landed=True)
            self._observer.store_operation(STORE, self._operation, loop.time() - started)

    def _late(self) -> None:
        self._observer.store_error(STORE, self._operation, "timeout")

    async def _send(self, lane: Lane, batch: list[Call[I, R]], *, again: bool = False) -> None:
        """Run the statement; halve a batch that is refused, until the row at fault stands alone. `again`: sent before, and refused."""
        try:
            answers = await self._statement(lane, [call.item for call in batch])
        except DataRefused:
            if len(batch) > 1:
                middle = len(batch) // 2
                await self._send(lane, batch[:middle], again=True)
                await self._send(lane, batch[middle:], again=True)
                return
            smaller = self._smaller(batch[0].item)
            if smaller is not None:
                batch[0].item = smaller
                await self._send(lane, batch, again=True)
                return
            self._observer.store_error(STORE, self._operation, "error")
            _fail(batch[0], "error", may_have_landed=False, asked=True)
        except StoreUnavailable as error:
            self._observer.store_error(STORE, self._operation, error.reason)
            for call in batch:
                _fail(call, error.reason, may_have_landed=error.may_have_landed, asked=again or error.asked)
        else:
            for call in batch:
                answer, future = answers.get(call.owner), call.future
                if future.done():
                    continue
                if isinstance(answer, StoreUnavailable):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)


class ShardedBatcher(Generic[I, R]):
    """A batcher for each part of a divided database, so that one statement touches one part. `shard_of` tells an item's part.

    They share the connections: how many statements are under way at once is the pool's limit, as ever.
    """

    def __init__(self, make: Callable[[], Batcher[I, R]], shard_of: Callable[[I], int]) -> None:
        self._make = make
        self._shard_of = shard_of
        self._batchers: dict[int, Batcher[I, R]] = {}

    def submit(self, owner: bytes, item: I, size: int, deadline: float) -> "asyncio.Future[R | None]":
        """As `Batcher.submit`."""
        shard = self._shard_of(item)
        batcher = self._batchers.get(shard)
        if batcher is None:
            batcher = self._batchers[shard] = self._make()
        return batcher.submit(owner, item, size, deadline)


AnyBatcher: TypeAlias = Batcher[I, R] | ShardedBatcher[I, R]


def batcher_for(make: Callable[[], Batcher[I, R]], shard_of: ShardOf | None, scope_of: Callable[[I], str]) -> AnyBatcher[I, R]:
    """One batcher, or where the database is divided one for each part."""
    return make() if shard_of is None else ShardedBatcher(make, lambda item: shard_of(scope_of(item)))


class _Deadlines:
    """Gives each call under way its timeout when its deadline passes; `late` hears of it.

    One timer for all batches. It is left where it is when a batch ends: nearly all end long before, and one timer for
    each would cost more.
    """

    __slots__ = ("_batches", "_due", "_late", "_timer")

    def __init__(self, late: Callable[[], None]) -> None:
        self._late = late
        self._batches: dict[int, list[Call[Any, Any]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # when it rings, if it is set: uvloop's handles of what is due at once do not tell

    def watch(self, loop: asyncio.AbstractEventLoop, batch: "list[Call[Any, Any]]", earliest: float) -> None:
        self._batches[id(batch)] = batch
        if self._timer is None or self._due > earliest:
            self._ring_by(loop, earliest)

    def leave(self, batch: "list[Call[Any, Any]]") -> None:
        self._batches.pop(id(batch), None)

    def _ring_by(self, loop: asyncio.AbstractEventLoop, instant: float) -> None:
        if self._timer is not None:
            if self._due <= instant:
                return
            self._timer.cancel()
        self._due = instant
        self._timer = loop.call_at(instant, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time() + 0.001  # timers may be a clock tick early
        for batch in self._batches.values():
            late = [call for call in batch if call.deadline <= now and not call.future.done()]
            for call in late:
                _fail(call, "timeout", may_have_landed=True)
            waiting = [call.deadline for call in batch if not call.future.done()]
            if waiting:
                self._ring_by(loop, min(waiting))
                if late:  # when nobody is left the statement ends by the same deadline, and tells so itself
                    self._late()


def _fail(call: Call[I, R], reason: str, *, may_have_landed: bool, asked: bool | None = None) -> None:
    if not call.future.done():
        call.future.set_exception(unavailable(reason, may_have_landed=may_have_landed, asked=asked))
