"""The way to one Redis server: one connection, a bounded queue in front of it, and a breaker that makes an outage cost one timeout.

Commands that come in one round of the event loop share one write; those that come while a batch is in flight share the next, which leaves
as soon as all replies of the last one are there. No task stands between a command and its reply. When a connection fails, everything that
waits fails with it and the breaker opens; a task looks for Redis again, callers never do. A server that answers and cannot serve (a
replica, a node of a cluster, one that takes no writes) is away, too: at the next connection its name is looked up anew and may lead to
another one. A connection that ends while nothing waits is replaced when the next command comes, within that command's time. Where the
server's place may change (`Place.changed`), the link moves along at once.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

from gateway.ports import StoreObserver, StoreUnavailable
from gateway.store.null_observer import NullObserver
from gateway.store.redis.breaker import Breaker
from gateway.store.redis.connection import STORE, Asked, Command, ErrorReply, Wire, pack
from gateway.store.redis.place import FixedPlace, Place
from gateway.store.redis.server import Probe, Server, Unfit
from gateway.store.redis.topology import Eras

_MAX_QUEUED = 1024
_MAX_QUEUED_BYTES = 8 * 1024 * 1024
_MAX_BATCH = 256
_MAX_BATCH_BYTES = 1024 * 1024

_log = logging.getLogger(__name__)


class Link:
    """Commands to one Redis. `timeout` is seconds from `send` to the reply; `connect_timeout` bounds a connection that nobody awaits.

    `server` is the one that answers at present, or did last. `where` is a URL, or who finds it; ValueError if the URL cannot be used.
    `probe`: it is a node of a cluster. `eras` is shared by those nodes, `era` is that of the server.
    """

    def __init__(
        self,
        where: str | Place,
        breaker: Breaker,
        *,
        timeout: float = 0.1,
        connect_timeout: float = 1.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        observer: StoreObserver | None = None,
        eras: Eras | None = None,
        probe: Probe | None = None,
    ) -> None:
        self.spread = False
        self.server = Server()
        self.eras = eras or Eras()
        self._era = 0
        self._probe = probe
        self._place: Place = FixedPlace(where) if isinstance(where, str) else where
        self._breaker = breaker
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._sleep = sleep
        self._observer = observer or NullObserver()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: deque[Command] = deque()
        self._queued_bytes = 0
        self._turn = False
        """Whether the queue will have its turn without another word: in the next round of the loop, after a batch, after a connection."""
        self._wire: Wire | None = None
        self._over: asyncio.Future[float | None] | None = None
        """Of the present connection: None when another one is wanted at once, else the seconds until the next try."""
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
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(), name="redis-link")
        await self._tried.wait()

    async def close(self) -> None:
        """Fail what waits and cut the connection. May be called repeatedly."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._place.close()

    def era(self, lookup: bytes) -> int:
        """As `Topology.era`."""
        return self._era

    def redirect(self, command: Command, error: ErrorReply) -> None:
        """As `Topology.redirect`."""
        raise error

    def send(self, command: Command) -> None:
        """Queue one command for the next write. Raises `StoreUnavailable` when it cannot be queued; then `command` hears of nothing."""
        loop = self._loop
        if loop is None or self._breaker.open:
            raise StoreUnavailable(STORE, "not_ready", may_have_landed=False)
        size = self._queued_bytes + len(command.packed)
        if len(self._queue) >= _MAX_QUEUED or size > _MAX_QUEUED_BYTES:
            raise StoreUnavailable(STORE, "overloaded", may_have_landed=False)
        command.deadline = loop.time() + self._timeout
        self._queue.append(command)
        self._queued_bytes = size
        if not self._turn:
            self._turn = True
            loop.call_soon(self._flush)

    def enqueue(self, *command: bytes | int) -> "asyncio.Future[object]":
        """Queue one command; the future is its reply. Raises `StoreUnavailable` when it cannot be queued.

        The future raises `ErrorReply` when Redis refused this command, and `StoreUnavailable` when the reply did not come. A cancelled
        one may or may not have been sent.
        """
        asked = Asked(pack(*command), asyncio.get_running_loop().create_future())
        self.send(asked)
        return asked.reply

    async def execute(self, *command: bytes | int) -> object:
        """The reply to one command. As `enqueue`, awaited."""
        return await self.enqueue(*command)

    # ---- the queue

    def _flush(self) -> None:
        """Send what has queued up, if nothing is in flight."""
        try:
            self._turn = self._send_some()
        except Exception as error:
            _log.exception("Unexpected failure while commands were sent to Redis")
            if self._wire is not None:
                self._wire.end("error", error)

    def _send_some(self) -> bool:
        """Whether the queue will have its turn again without another word."""
        queue, wire = self._queue, self._wire
        if not queue:
            return False
        if wire is None:
            if self._over is not None and not self._over.done():
                self._over.set_result(None)  # `_session` connects anew
            return True
        flying, size = wire.flying, 0
        if flying:
            return True
        while queue and len(flying) < _MAX_BATCH and size < _MAX_BATCH_BYTES:
            command = queue.popleft()
            length = len(command.packed)
            self._queued_bytes -= length
            # A caller that was cancelled before its command was sent leaves nothing to send.
            if command.future is None or not command.future.done():
                flying.append(command)
                size += length
        if not flying:
            return False
        wire.send()
        self._observer.store_batch(STORE, len(flying))
        return True

    def _replied(self) -> None:
        self._breaker.served()
        if self._queue:
            self._flush()
        else:
            self._turn = False

    def _ended(self, reason: str, cause: Exception) -> None:
        wire, self._wire = self._wire, None
        if wire is None or self._over is None or self._over.done():
            return
        if reason == "disconnected" and not wire.flying:
            self._flush()  # what waits, or will, has another connection
        else:
            self._over.set_result(self._away(reason, cause, wire.flying))

    def _fail(self, reason: str, flying: Iterable[Command]) -> None:
        """Tell all that wait: those in flight may have landed, the others were not sent."""
        queue, self._queue = self._queue, deque()
        self._queued_bytes, self._turn = 0, False
        for commands, landed in ((flying, True), (queue, False)):
            for command in commands:
                try:
                    command.take(StoreUnavailable(STORE, reason, may_have_landed=landed))
                except Exception:
                    _log.exception("A command's failure could not be told")

    # ---- the connection's life, in a task of its own

    async def _run(self) -> None:
        try:
            while True:
                pause = await self._session()
                self._tried.set()
                await self._rest(pause)
        finally:
            self._breaker.trip()
            wire, self._wire = self._wire, None
            if wire is not None:
                wire.close()
            self._fail("not_ready", () if wire is None else wire.flying)

    async def _session(self) -> float:
        """Connect and serve until Redis is away; returns the seconds until the next try."""
        assert self._loop is not None
        deadline = self._loop.time() + self._connect_timeout
        while True:
            try:
                wire = await Wire.open(await self._place.find(deadline), deadline, self._probe)
            except Unfit as unfit:
                return self._away(unfit.reason, unfit)
            except (TimeoutError, ErrorReply, OSError) as error:
                return self._away("refused", error)
            except Exception as error:
                _log.exception("Unexpected failure of the connection to Redis")
                return self._away("error", error)
            if not wire.in_step:
                return self._away("disconnected", ConnectionResetError("it closed the connection"))
            over: asyncio.Future[float | None] = self._loop.create_future()
            self._over = over
            self._ready(wire)
            pause = await self._stay(over)
            if pause is not None:
                return pause
            deadline = self._queue[0].deadline

    async def _stay(self, over: "asyncio.Future[float | None]") -> float | None:
        """What `over` says in the end, which a change of the place brings about."""
        if self._place.changed is not None:
            await self._first(over, self._place.changed())
            if not over.done() and self._wire is not None:
                self._wire.end("disconnected", ConnectionResetError("the primary is another one now"))
        return await over

    async def _rest(self, pause: float) -> None:
        """The time between two tries: it is over when the place changes."""
        if self._place.changed is None:
            await self._sleep(pause)
        else:
            slept = asyncio.ensure_future(self._sleep(pause))
            try:
                await self._first(slept, self._place.changed())
            finally:
                slept.cancel()

    async def _first(self, future: "asyncio.Future[Any]", change: Coroutine[Any, Any, None]) -> None:
        """Wait for either."""
        changed = asyncio.get_running_loop().create_task(change, name="redis-place")
        try:
            await asyncio.wait((future, changed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await changed

    def _ready(self, wire: Wire) -> None:
        if self._told:
            _log.warning("Redis at %s is back", self._place.address)
            self._told = False
        if wire.server.instance != self.server.instance:
            self._era = self.eras.begin()
        self._wire, self.server = wire, wire.server
        wire.serve(self._replied, self._ended)
        self._breaker.close()
        self._observer.redis_breaker(is_open=False)
        self._tried.set()
        self._flush()

    def _away(self, reason: str, cause: Exception, flying: Iterable[Command] | None = None) -> float:
        """Open the breaker, then fail what waits; `flying` is None if there was no connection. Returns the seconds until the next try."""
        pause = self._breaker.trip()
        self._fail(reason, flying or ())
        self._observer.redis_breaker(is_open=True)
        if flying is None:
            self._observer.store_error(STORE, "connect", reason)
        if not self._told:
            _log.warning(
                "Redis at %s is away (%s: %s): slower until it is back", self._place.address, reason, str(cause) or type(cause).__name__
            )
            self._told = True
        return pause
