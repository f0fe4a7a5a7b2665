"""Duplicates that wait for the end of another attempt (`in_flight: wait`).

One watch looks at a key's record for all requests that wait for it: when an attempt of this process ends, else now and
then. One of the requests that hear of a look does what one must do for all: reserve again where there is no record,
lapse a record whose owner is gone. The number of places is bounded; a client that leaves, or ends its sending, frees
its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from gateway.core.model import Record, RecordKey
from gateway.engine.request import Client
from gateway.ports import Clock, Observer, StoreUnavailable

MAX_WAITERS = 1000
"""How many requests of this process may wait at a time. Further ones get the conflict answer at once."""

POLL_FIRST = 0.05
POLL_LONGEST = 1.0
"""Seconds between looks for an attempt of another process: the first ones, and at most."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look has found; None if there is no record. `mine`: it is this request's turn to do what one must do for
    all.
    """

    found: Record | None
    mine: bool


@dataclass(slots=True, eq=False)
class _Watch:
    """The requests that wait for one key. `askers` hear of the next look, in order, since the first of them has the
    turn.
    """

    places: int = 0
    askers: dict["asyncio.Future[Seen | StoreUnavailable | None]", None] = field(default_factory=dict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None


class Place:
    """One waiter's place, up to its deadline."""

    def __init__(self, watch: _Watch, clock: Clock, seconds: float) -> None:
        self._watch = watch
        self._clock = clock
        self._deadline = clock.boottime() + seconds
        self._asked: asyncio.Future[Seen | StoreUnavailable | None] | None = None
        self._left = False

    async def next(self) -> Seen | None:
        """The result of the next look that begins from now on. None: the time is up, or the client has left. Raises
        `StoreUnavailable`.
        """
        remaining = self._deadline - self._clock.boottime()
        if self._left or remaining <= 0:
            return None
        asked: asyncio.Future[Seen | StoreUnavailable | None] = asyncio.get_running_loop().create_future()
        self._asked = asked
        self._watch.askers[asked] = None
        try:
            async with asyncio.timeout(remaining):
                heard = await asked
        except TimeoutError:
            return None
        finally:
            self._watch.askers.pop(asked, None)
        if isinstance(heard, StoreUnavailable):
            raise StoreUnavailable(heard.store, heard.reason, may_have_landed=heard.may_have_landed, asked=heard.asked)
        return heard

    def hurry(self) -> None:
        """Something has changed: the next look need not wait."""
        self._watch.wake.set()

    def leave(self) -> None:
        """End the watch: no request waits here any more."""
        self._left = True
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(None)


class Waiting:
    """All requests that wait in this process. `running` says whether an attempt of this process is under way; `ended`
    reports its end.
    """

    def __init__(
        self,
        clock: Clock,
        observer: Observer,
        find: Callable[[RecordKey], Awaitable[Record | None]],
        running: Callable[[RecordKey], bool],
    ) -> None:
        self._clock = clock
        self._observer = observer
        self._find = find
        self._running = running
        self._watches: dict[RecordKey, _Watch] = {}
        self.places = 0

    @property
    def full(self) -> bool:
        return self.places >= MAX_WAITERS

    @contextmanager
    def place(self, key: RecordKey, seconds: float, client: Client | None) -> Iterator[Place]:
        """A place for at most `seconds`. A client that ends its sending frees it at once: the gateway cannot tell it
        from a client that has left.
        """
        watch = self._watches.get(key)
        if watch is None:
            watch = self._watches[key] = _Watch()
            watch.task = asyncio.get_running_loop().create_task(self._look(key, watch))
            watch.task.add_done_callback(self._ended_badly)
        place = Place(watch, self._clock, seconds)
        unsubscribe = None
        if client is not None:
            if client.half_closed:
                place.leave()
            unsubscribe = client.on_lost(place.leave, streaming=True)
        watch.places += 1
        self.places += 1
        try:
            yield place
        finally:
            if unsubscribe is not None:
                unsubscribe()
            self.places -= 1
            watch.places -= 1
            if not watch.places and watch.task is not None:
                del self._watches[key]
                watch.task.cancel()

    def ended(self, key: RecordKey) -> None:
        """An attempt of this process has ended: all requests that wait for it hear of it at once."""
        watch = self._watches.get(key)
        if watch is not None:
            watch.wake.set()

    async def _look(self, key: RecordKey, watch: _Watch) -> None:
        poll = POLL_FIRST
        while True:
            woken = await _woken(watch.wake, None if self._running(key) else poll)
            poll = POLL_FIRST if woken else min(POLL_LONGEST, poll * 2)
            # Who asks from here on may not be told what this look reads: it may be of before.
            askers, watch.askers = watch.askers, {}
            if not askers:
                continue
            heard: Record | StoreUnavailable | None
            try:
                heard = await self._find(key)
            except StoreUnavailable as error:
                heard = error
            mine = True
            for asked in askers:
                if not asked.done():
                    asked.set_result(heard if isinstance(heard, StoreUnavailable) else Seen(heard, mine))
                    mine = False

    def _ended_badly(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._observer.background_failed("wait", error)


async def _woken(wake: asyncio.Event, patience: float | None) -> bool:
    """Whether it was set, within `patience` seconds (None: however long it takes)."""
    try:
        async with asyncio.timeout(patience):
            await wake.wait()
    except TimeoutError:
        return False
    wake.clear()
    return True
