"""A few connections to Postgres, opened when needed, reused last in first out, handed out in the order of asking.

What an outage costs: a failed connect fails everybody who waits for a lane, since none of them would fare better. From then until a
connect succeeds the server counts as down: at most one connect is tried at a time, at most one every `PROBE_INTERVAL`, and who asks
meanwhile waits for it no longer than `PROBE_PATIENCE`.

What a standby that does not answer costs: each commit that waits for it is given up at its deadline, but stays at the server. So before a
lane that has hung up is replaced, the server is asked how many such sessions it has, and from `size` of them on there is no new one: fewer
requests, which are told at once that nothing was sent, instead of a server that runs out of connections.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from gateway.runtime.outlasting import outlasting
from gateway.store.postgres.lane import Connection, DataRefused, Lane, failure_reason, said, unavailable

T = TypeVar("T")
Stuck = Callable[[Connection], Awaitable[int]]
"""How many sessions, of ours and of our siblings, wait for a standby at the server for longer than their clients do."""

_log = logging.getLogger(__name__)

PROBE_INTERVAL = 0.25
PROBE_PATIENCE = 0.25
WAITERS_MAX = 1024

BLINK = 2.0
"""Times of a call, after which an interruption is an outage: owners who could not renew for so long may need the time to do it now."""

FAILURES_TOLD = 10.0
"""Seconds between two log lines about connects that fail."""


class Lanes:
    """At most `size` connections, made by `connect` (bounded by `timeout` seconds each), besides those being buried. One event loop's.

    `former` tells whether a connection leads to a server that is known to have been replaced. `failed` hears why a connect failed, and
    `where` names the servers that it tried.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        *,
        size: int,
        timeout: float,
        explicit: bool,
        boottime: Callable[[], float],
        stuck: Stuck,
        former: Callable[[Connection], bool],
        failed: Callable[[str], None],
        where: Callable[[], str],
    ) -> None:
        self._since: float | None = None
        self._answered = 0.0
        self._troubled = False
        self._connect = connect
        self._stuck = stuck
        self._former = former
        self._tell_failed = failed
        self._where = where
        self._told = -FAILURES_TOLD
        self._untold = 0
        self._hung_up = False
        self._size = size
        self._timeout = timeout
        self._explicit = explicit
        self._boottime = boottime
        self._idle: list[Lane] = []
        self._lanes: set[Lane] = set()
        self._live = 0
        self._connecting: set[asyncio.Task[None]] = set()
        self._waiters: dict[asyncio.Future[Lane], None] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._down: str | None = None
        self._next_probe = 0.0
        self._closed = False

    @property
    def connected_since(self) -> float | None:
        """The `boottime` reading at the first answer after the last outage, None during one and before the first answer: how long owners
        have had to renew their leases. A lane that is lost is no outage while others, or the next one, answer soon: they could renew, too.
        """
        return None if self._troubled and self._boottime() - self._answered > self._blink else self._since

    async def acquire(self, deadline: float) -> Lane:
        """A lane, to be given back with `release`. Nothing has been sent when this raises.

        Raises TimeoutError at `deadline` (event loop time) and `StoreUnavailable` when there is no server to wait for.
        """
        if self._closed:
            raise unavailable("not_ready", may_have_landed=False)
        if (lane := self.idle()) is not None:
            return lane
        if len(self._waiters) >= WAITERS_MAX:
            raise unavailable("overloaded", may_have_landed=False)
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Lane] = loop.create_future()
        self._waiters[waiter] = None
        self._grow()
        limit = deadline if self._down is None else min(deadline, loop.time() + PROBE_PATIENCE)
        timer = loop.call_at(limit, self._give_up, waiter, limit < deadline)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.release(waiter.result())
            raise
        finally:
            timer.cancel()
            self._waiters.pop(waiter, None)

    def idle(self) -> Lane | None:
        """A lane that nobody uses, as `acquire` gives it, if there is one at once."""
        while self._idle and not self._closed:
            lane = self._idle.pop()
            if lane.usable:
                return lane
            self._forget(lane)
        return None

    def release(self, lane: Lane) -> None:
        """Give a lane back: to the next who waits, or to the idle ones; a broken one is dropped and replaced if somebody waits."""
        if lane.usable:
            lane.limit = self._timeout
            if self._waiters:
                self._hand_on(lane)
            else:
                self._idle.append(lane)
            self._succeeded()
        else:
            self._hung_up |= lane.hung_up
            self._forget(lane)
            self.spawn(lane.bury())
            if lane.demoted:
                self.retire(disown=False)
            self._grow()

    def retire(self, *, disown: bool) -> None:
        """Have every connection replaced, those in use after what runs on them. `disown`: they lead to a former primary, of which nothing
        is believed any more.
        """
        for lane in self._lanes:
            lane.retire(disown=disown)
        idle, self._idle = self._idle, []
        for lane in idle:
            self._forget(lane)
            self.spawn(lane.bury())

    async def call(self, work: Callable[[Lane], Awaitable[T]], deadline: float, limit: float | None = None) -> T:
        """Run `work` on a lane, in a task of our own: a caller that is cancelled leaves its statement to run to its end.

        `limit`: seconds that a statement may take, if it is another time than everybody's. Raises what `work` raises, and
        `StoreUnavailable`, at `deadline` at the latest.
        """
        return await outlasting(self.spawn(self._work(work, deadline, limit)), DataRefused)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task that `close` waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Refuse new work, let running statements end (each has its deadline), close all connections."""
        self._closed = True
        self._fail_waiters("not_ready")
        for connecting in self._connecting:
            connecting.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)
        while tasks := list(self._tasks):
            await asyncio.gather(*tasks, return_exceptions=True)
            # Gathering what is done already does not yield from Python 3.12 on: their own callbacks could wait for ever.
            self._tasks.difference_update(tasks)
        idle, self._idle, self._live = self._idle, [], 0
        await asyncio.gather(*[lane.bury() for lane in idle])

    async def _work(self, work: Callable[[Lane], Awaitable[T]], deadline: float, limit: float | None) -> T:
        try:
            lane = await self.acquire(deadline)
        except TimeoutError as error:
            raise unavailable("timeout", may_have_landed=False) from error
        lane.deadline = deadline
        lane.limit = limit or lane.limit
        try:
            return await work(lane)
        finally:
            self.release(lane)

    def _forget(self, lane: Lane) -> None:
        self._lanes.discard(lane)
        self._live -= 1
        self._troubled = True

    def _hand_on(self, lane: Lane) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(lane)
                del self._waiters[waiter]
                return
        self._idle.append(lane)

    def _grow(self) -> None:
        """Open connections for those who wait, as far as size and the state of the server allow."""
        if asyncio.get_running_loop().time() < self._next_probe:
            if self._live == 0 and not self._connecting:
                self._fail_waiters(self._down or "refused")
            return
        connecting = len(self._connecting)
        wanted = min(len(self._waiters), self._size - self._live, self._size if self._down is None else 1) - connecting
        if self._closed:
            return
        for _ in range(wanted):
            task = asyncio.get_running_loop().create_task(self._open())
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _open(self) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                connection = await self._connect()
                if self._hung_up and await self._crowded(connection):
                    raise TimeoutError
            if self._former(connection):  # `retire` did not reach it: it was under way as another connect found the successor
                connection.terminate()
                raise ConnectionResetError("another server was promoted meanwhile")
        except Exception as error:  # whatever it was, those who wait must hear of it
            reason = failure_reason(error)
            self._failed("refused" if reason == "disconnected" else reason, error)
            return
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._connecting.discard(task)
        self._live += 1
        if self._down is not None:
            _log.warning("Postgres is back")
        self._down = None
        self._next_probe = 0.0
        self._succeeded()
        lane = Lane(connection, explicit=self._explicit, limit=self._timeout)
        self._lanes.add(lane)
        self._hand_on(lane)
        self._grow()

    async def _crowded(self, connection: Connection) -> bool:
        """Whether there are as many stuck sessions at the server as there may be. Closes the connection if so, or if it cannot tell."""
        crowded = True
        try:
            stuck = await self._stuck(connection)
            self._hung_up = stuck > 0
            crowded = stuck >= self._size
        finally:
            if crowded:
                connection.terminate()
        return crowded

    @property
    def _blink(self) -> float:
        return BLINK * self._timeout

    def _succeeded(self) -> None:
        now = self._boottime()
        if self._since is None or (self._troubled and now - self._answered > self._blink):
            self._since = now
        self._answered = now
        self._troubled = False

    def _failed(self, reason: str, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        self._next_probe = now + PROBE_INTERVAL
        self._troubled = True
        self._tell_failed(reason)
        self._untold += 1
        if now - self._told >= FAILURES_TOLD:
            _log.warning(
                "A connection to Postgres at %s could not be opened: %s (%d in use, %d failures)",
                self._where(),
                said(error),
                self._live,
                self._untold,
            )
            self._told, self._untold = now, 0
        if self._live == 0:  # otherwise lanes in use will come back, and the server has merely no room for more
            self._since = None
            if self._down is None:
                _log.warning("Postgres is away (%s): guarded routes answer 503 for what they cannot know", reason)
            self._down = reason
            self._fail_waiters(reason)

    def _fail_waiters(self, reason: str) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(unavailable(reason, may_have_landed=False))

    def _give_up(self, waiter: asyncio.Future[Lane], impatient: bool) -> None:  # noqa: FBT001 (a timer passes no keywords)
        if not waiter.done():
            error: Exception = unavailable(self._down or "timeout", may_have_landed=False) if impatient else TimeoutError()
            waiter.set_exception(error)
