"""The way to Redis: one connection, a bounded queue in front of it, and a breaker that makes an outage cost one timeout.

A single task owns the connection. It sends what has queued up in one write, reads all replies, and looks at the queue again: commands
that come while a batch is in flight share the next one, a lone command goes at once. Before each write nothing may be outstanding, so
any byte that can be read then is out of step and the connection is replaced. When a connection fails, everything that waits fails with
it, the breaker opens, and the same task looks for Redis again; callers never do. A server that answers and cannot serve (a replica, a
node of a cluster, one that takes no writes) is away, too: at the next connection its name is looked up anew and may lead to another one.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import hiredis
from redis.exceptions import RedisError

from gateway.ports import StoreObserver, StoreUnavailable
from gateway.store.null_observer import Quiet
from gateway.store.redis.breaker import Breaker
from gateway.store.redis.connection import Command, ErrorReply, Wire, address_of, opener
from gateway.store.redis.server import REFUSALS, Server, Unfit

STORE = "redis"
_MAX_QUEUED = 1024
_MAX_QUEUED_BYTES = 8 * 1024 * 1024
_MAX_BATCH = 256
_MAX_BATCH_BYTES = 1024 * 1024

_log = logging.getLogger(__name__)


class Link:
    """Commands to one Redis. `timeout` is seconds from `execute` to the reply; `connect_timeout` bounds a connection that nobody awaits.

    `server` is the one that answers at present, or did last. ValueError if the URL cannot be used.
    """

    def __init__(
        self,
        url: str,
        breaker: Breaker,
        *,
        timeout: float = 0.1,
        connect_timeout: float = 1.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        observer: StoreObserver | None = None,
    ) -> None:
        self.server = Server()
        self._address = address_of(url)
        self._make = opener(url)
        self._breaker = breaker
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._sleep = sleep
        self._observer = observer or Quiet()
        self._queue: deque[Command] = deque()
        self._queued_bytes = 0
        self._flying: Sequence[Command] = ()
        self._sent = False
        self._wire: Wire | None = None
        self._wake = asyncio.Event()
        self._tried = asyncio.Event()
        self._told = False
        self._task: asyncio.Task[None] | None = None

    @property
    def open(self) -> bool:
        """Whether Redis is away: calls then fail at once."""
        return self._breaker.open

    async def start(self) -> None:
        """Begin, and return when the first attempt to connect has ended, well or not."""
        self._observer.redis_breaker(is_open=True)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="redis-link")
        await self._tried.wait()

    async def close(self) -> None:
        """Fail what waits and cut the connection. May be called repeatedly."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def execute(self, *command: bytes | int) -> object:
        """The reply to one command. As `enqueue`, awaited."""
        return await self.enqueue(*command)

    def enqueue(self, *command: bytes | int) -> "asyncio.Future[object]":
        """Queue one command for the next pipeline; the future is its reply. Raises `StoreUnavailable` when it cannot be queued.

        The future raises `ErrorReply` when Redis refused this command, and `StoreUnavailable` when the reply did not come. A cancelled
        one may or may not have been sent.
        """
        if self._breaker.open:
            raise StoreUnavailable(STORE, "not_ready", may_have_landed=False)
        # hiredis declares a tuple of one element but takes any number
        packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]
        if len(self._queue) >= _MAX_QUEUED or self._queued_bytes + len(packed) > _MAX_QUEUED_BYTES:
            raise StoreUnavailable(STORE, "overloaded", may_have_landed=False)
        loop = asyncio.get_running_loop()
        waiting = Command(packed, loop.time() + self._timeout, loop.create_future())
        self._queue.append(waiting)
        self._queued_bytes += len(packed)
        self._wake.set()
        return waiting.reply

    async def _run(self) -> None:
        try:
            while True:
                reason, cause = await self._session()
                # No await since the failure: nobody has queued behind the broken connection meanwhile.
                pause = self._away(reason, cause)
                self._tried.set()
                await self._hang_up()
                await self._sleep(pause)
        finally:
            self._breaker.trip()
            self._fail("not_ready")
            await self._hang_up()

    async def _session(self) -> tuple[str, Exception]:
        """Connect and serve until something breaks; returns the reason's word and what it was."""
        reason = "refused"
        try:
            wire = await self._connect(asyncio.get_running_loop().time() + self._connect_timeout)
            self._ready()
            while True:
                self._flying = await self._next_batch()
                reason = "refused"
                if not await wire.in_step():
                    await self._hang_up()
                    wire = await self._connect(self._flying[0].deadline)
                reason, self._sent = "disconnected", True
                self._observer.store_batch(STORE, len(self._flying))
                unfit = await wire.exchange(self._flying)
                self._flying, self._sent = (), False
                if unfit is not None:
                    raise Unfit(REFUSALS[unfit.code], str(unfit))
                self._breaker.served()
        except Unfit as unfit:
            return unfit.reason, unfit
        except TimeoutError as error:
            return "timeout" if self._sent else reason, error
        except (RedisError, ErrorReply, OSError) as error:
            return reason, error
        except Exception as error:
            _log.exception("Unexpected failure of the connection to Redis")
            return "error", error

    async def _connect(self, deadline: float) -> Wire:
        self._wire = wire = await Wire.open(self._make, deadline)
        self.server = wire.server
        return wire

    async def _hang_up(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()

    async def _next_batch(self) -> Sequence[Command]:
        batch: list[Command] = []
        while not batch:
            await self._wake.wait()
            size = 0
            while self._queue and len(batch) < _MAX_BATCH and size < _MAX_BATCH_BYTES:
                command = self._queue.popleft()
                self._queued_bytes -= len(command.packed)
                # A caller that was cancelled before its command was sent leaves nothing to send.
                if not command.reply.done():
                    batch.append(command)
                    size += len(command.packed)
            if not self._queue:
                self._wake.clear()
        return batch

    def _ready(self) -> None:
        if self._told:
            _log.warning("Redis at %s is back", self._address)
            self._told = False
        self._breaker.close()
        self._observer.redis_breaker(is_open=False)
        self._tried.set()

    def _away(self, reason: str, cause: Exception) -> float:
        pause = self._breaker.trip()
        self._observer.redis_breaker(is_open=True)
        if self._wire is None:
            self._observer.store_error(STORE, "connect", reason)
        if not self._told:
            _log.warning("Redis at %s is away (%s: %s): slower until it is back", self._address, reason, str(cause) or type(cause).__name__)
            self._told = True
        self._fail(reason)
        return pause

    def _fail(self, reason: str) -> None:
        for command in self._flying:
            if not command.reply.done():
                command.reply.set_exception(StoreUnavailable(STORE, reason, may_have_landed=self._sent))
        for command in self._queue:
            if not command.reply.done():
                command.reply.set_exception(StoreUnavailable(STORE, reason, may_have_landed=False))
        self._flying, self._sent = (), False
        self._queue.clear()
        self._queued_bytes = 0
        self._wake.clear()
