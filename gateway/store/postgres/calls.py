"""Calls that travel alone, each on a lane for as long as its statement runs."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.ports import StoreObserver, StoreUnavailable
from gateway.store.postgres.clock import DatabaseClock
from gateway.store.postgres.lane import STORE, DataRefused, Lane, unavailable
from gateway.store.postgres.lanes import Lanes
from gateway.store.postgres.queries import JUDGING, QUERIES
from gateway.store.postgres.rows import Row, Unreadable

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Calls:
    """Runs work on a lane, at most `timeout` seconds. Any error becomes `StoreUnavailable`; timed and counted by
    operation.
    """

    def __init__(self, lanes: Lanes, timeout: float, observer: StoreObserver, clock: DatabaseClock) -> None:
        self._lanes = lanes
        self._timeout = timeout
        self.observer = observer
        self.clock = clock

    def deadline(self) -> float:
        """Of a call that begins now, in event loop time."""
        return asyncio.get_running_loop().time() + self._timeout

    async def fetch(self, operation: str, query: str, *arguments: object) -> list[Row]:
        """The rows of one statement of `QUERIES`. What judges by the clock is given its limits as it is sent."""
        limits = self.clock.limits
        if query in JUDGING:
            return await self.run(operation, lambda lane: lane.fetch(QUERIES[query], *arguments, limits()))
        return await self.run(operation, lambda lane: lane.fetch(QUERIES[query], *arguments))

    async def run(self, operation: str, work: Callable[[Lane], Awaitable[T]], deadline: float | None = None) -> T:
        """Run `work` alone on a lane."""
        try:
            return await self.attempt(operation, work, deadline)
        except DataRefused as error:
            self.observer.store_error(STORE, operation, "error")
            raise unavailable("error", may_have_landed=False, asked=True) from error

    async def attempt(self, operation: str, work: Callable[[Lane], Awaitable[T]], deadline: float | None = None) -> T:
        """As `run`, but raises `DataRefused` for those who have something smaller to try."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            return await self._lanes.call(work, started + self._timeout if deadline is None else deadline, self._timeout)
        except Unreadable as error:
            self.observer.store_error(STORE, operation, "error")
            raise unavailable("error", may_have_landed=True) from error
        except StoreUnavailable as error:
            self.observer.store_error(STORE, operation, error.reason)
            raise
        except DataRefused:
            raise
        except Exception as error:  # a defect of ours, after something was sent or before
            _log.error("Unexpected failure of a call to Postgres", exc_info=error)
            self.observer.store_error(STORE, operation, "error")
            raise unavailable("error", may_have_landed=True) from error
        finally:
            self.observer.store_operation(STORE, operation, loop.time() - started)
