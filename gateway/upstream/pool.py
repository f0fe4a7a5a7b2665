"""Connections to one upstream: idle ones for reuse, the newest first, and a limit on how many there are.

A slot is held by each sound connection and by each call that is connecting. Slots and connections that come free go to
the longest waiting call at once, so that no call overtakes: while calls wait, there is neither a free slot nor an idle
connection.
"""

import asyncio
import ssl
from collections import OrderedDict

from gateway.ports import NotSent, NotSentReason
from gateway.upstream.connection import Connection
from gateway.upstream.dial import dial
from gateway.upstream.response_shapes import ResponseShapes
from gateway.upstream.settings import Endpoint, UpstreamSettings

MARGIN = 1.0
"""Seconds before the end that an upstream announces: its clock began when it had sent the response, and ours when it
was here.
"""

_Waiter = asyncio.Future["Connection | None"]


class Pool:
    """See the module. `take` and `acquire` hand out sound connections, which come back by `release` or, cut, by
    `forget`.
    """

    def __init__(self, settings: UpstreamSettings, endpoint: Endpoint, tls: ssl.SSLContext | None, server_name: str | None = None) -> None:
        self._settings = settings
        self._endpoint = endpoint
        self._tls = tls
        self._server_name = server_name
        self._idle: list[Connection] = []
        self._connections: set[Connection] = set()
        self._reserved = 0
        self._waiters: OrderedDict[_Waiter, None] = OrderedDict()
        self.shut = False
        self._shapes = ResponseShapes()

    @property
    def open(self) -> int:
        """Slots in use: connections, idle ones included, and attempts to connect."""
        return len(self._connections) + self._reserved

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def full(self) -> bool:
        """Whether the next call would have to wait for a slot."""
        return not self._idle and self.open >= self._settings.max_connections

    def take(self, *, later: bool = False) -> Connection | None:
        """An idle connection that is `usable`, if there is one. `later`: who takes it looks itself, in the step that
        writes to it.
        """
        idle = self._idle
        while idle:
            connection = idle.pop()
            if later or connection.usable():
                return connection
            connection.cut()
        return None

    async def acquire(self, deadline: float | None, *, patient: bool = True) -> Connection:
        """A connection, idle or new, by `deadline` (loop time) and within `slot_wait` (if `patient`, else 0) and
        `connect`.

        Raises NotSent.
        """
        slot_by = self._by(self._settings.slot_wait, deadline)
        while True:
            if self.shut:
                raise NotSent(NotSentReason.SHUTTING_DOWN)
            connection = self.take()
            if connection is not None:
                return connection
            if self.open < self._settings.max_connections:
                self._reserved += 1
                return await self._connect(deadline)
            if not patient:
                raise NotSent(NotSentReason.NO_SLOT)
            handed = await self._queue(slot_by)
            if handed is None:
                return await self._connect(deadline)
            if handed.quiet():
                return handed
            handed.cut()

    def release(self, connection: Connection) -> None:
        limit, told = self._settings.keepalive, connection.patience - MARGIN
        limit = min(limit, told)
        if self.shut or limit <= 0:
            connection.cut()
            return
        waiter = self._next_waiter() if self._waiters else None
        if waiter is not None:
            waiter.set_result(connection)
        else:
            connection.rest(limit)
            self._idle.append(connection)

    def put_back(self, connection: Connection) -> None:
        """Take back one that nothing was written to: it rests for as long as it would have."""
        if not connection.rests_until:  # it is new
            self.release(connection)
        elif self.shut or not connection.usable():
            connection.cut()
        elif self._waiters and (waiter := self._next_waiter()) is not None:
            waiter.set_result(connection)
        else:
            self._idle.append(connection)

    def forget(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            if connection in self._idle:
                self._idle.remove(connection)
            self._offer_slot()

    async def close(self) -> None:
        """Cut the idle connections, refuse those who wait, and let running exchanges end: their connections are cut
        then.
        """
        self.shut = True
        while (waiter := self._next_waiter()) is not None:
            waiter.set_exception(NotSent(NotSentReason.SHUTTING_DOWN))
        idle = tuple(self._idle)
        for connection in idle:
            connection.cut()
        for connection in idle:
            await connection.closed

    def _by(self, limit: float, deadline: float | None) -> float:
        due = asyncio.get_running_loop().time() + limit
        return due if deadline is None else min(due, deadline)

    async def _queue(self, until: float) -> Connection | None:
        """Wait for a connection, or (None) for a slot that is already counted in `_reserved`."""
        loop = asyncio.get_running_loop()
        waiter: _Waiter = loop.create_future()
        self._waiters[waiter] = None
        timer = loop.call_at(until, self._give_up, waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._pass_on(waiter.result())  # cancelled after the hand-over, before it could run
            raise
        finally:
            timer.cancel()
            self._waiters.pop(waiter, None)

    def _give_up(self, waiter: _Waiter) -> None:
        if not waiter.done():
            waiter.set_exception(NotSent(NotSentReason.NO_SLOT))

    def _pass_on(self, handed: Connection | None) -> None:
        if handed is None:
            self._reserved -= 1
            self._offer_slot()
        elif handed.sound:
            self.release(handed)

    def _next_waiter(self) -> _Waiter | None:
        while self._waiters:
            waiter, _ = self._waiters.popitem(last=False)
            if not waiter.done():
                return waiter
        return None

    def _offer_slot(self) -> None:
        waiter = self._next_waiter()
        if waiter is not None:
            self._reserved += 1
            waiter.set_result(None)

    async def _connect(self, deadline: float | None) -> Connection:
        """Turn a reserved slot into a connection, or free it. Raises NotSent."""
        connection = None
        try:
            connection = await self._dial(deadline)
        finally:
            self._reserved -= 1
            if connection is not None and connection.sound:
                self._connections.add(connection)
            else:
                self._offer_slot()
        if self.shut:
            connection.cut()
            raise NotSent(NotSentReason.SHUTTING_DOWN)
        if not connection.sound:
            raise NotSent(NotSentReason.CONNECT_REFUSED if self._tls is None else NotSentReason.TLS)
        return connection

    async def _dial(self, deadline: float | None) -> Connection:
        loop = asyncio.get_running_loop()
        until = self._by(self._settings.connect, deadline)
        return await dial(self._endpoint, self._tls, self._server_name, lambda: Connection(loop, self, self._shapes), until)
