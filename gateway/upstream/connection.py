"""One transport, one exchange at a time.

A connection is *sound* until anything happens on it that no exchange asked for: the end of the stream, an error, bytes
while it was idle. From then on it is cut and never used again; being cut is final and frees its slot at once.

An exception in any callback is a mistake of ours. It is logged, ends the exchange in doubt and cuts the connection.
"""

import asyncio
import contextlib
import logging
import math
import select
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Protocol, cast

from gateway.runtime.alarm import Alarm
from gateway.upstream.parser import ResponseParser
from gateway.upstream.response_shapes import ResponseShapes

DROP = struct.pack("ii", 1, 0)
"""For SO_LINGER: close at once, without what is left to send."""
HIGH_WATER = 256 * 1024
"""Body bytes that may wait for a slow consumer before the upstream is no longer read."""

_log = logging.getLogger(__name__)


class Owner(Protocol):
    """Who a connection belongs to while no exchange has it."""

    def release(self, connection: "Connection") -> None:
        """Take a sound connection whose exchange is over."""
        ...

    def put_back(self, connection: "Connection") -> None:
        """Take a connection that nothing was written to since it was taken."""
        ...

    def forget(self, connection: "Connection") -> None:
        """The connection was cut or lost; called at least once."""
        ...


class Occupant(Protocol):
    """What a connection belongs to for a while: an exchange, or a tunnel. Each call may cut or finish the connection."""

    __slots__ = ()

    def received(self, data: bytes) -> None: ...

    def ended(self) -> None:
        """The upstream closed its side cleanly."""
        ...

    def lost(self) -> None:
        """The connection is gone, without a clean end."""
        ...

    def expired(self) -> None:
        """The alarm rang."""
        ...

    def drained(self) -> None:
        """What had waited for the kernel has gone. TLS does not always tell."""
        ...

    def broken(self) -> None:
        """One of the calls above has raised, or what `guarded` called: wake the one that waits, with a failure. The
        connection is cut.
        """
        ...


class Connection(asyncio.Protocol):
    """See the module. Created by the pool, connected by the event loop; then it has a `parser`, for one response after the other.
    `shapes` are known of their heads.
    """

    __slots__ = (
        "_below_tls",
        "_exchange",
        "_linger",
        "_owner",
        "_paused",
        "_poll",
        "_reading",
        "_shapes",
        "_tls",
        "_transport",
        "_writable",
        "alarm",
        "closed",
        "loop",
        "parser",
        "patience",
        "rests_until",
        "sound",
    )

    parser: ResponseParser

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: Owner, shapes: ResponseShapes | None = None) -> None:
        self.loop = loop
        self.sound = True
        self.closed: asyncio.Future[None] = loop.create_future()
        self.alarm = Alarm(loop, self._on_alarm)
        self.patience = math.inf
        self.rests_until = 0.0
        self._owner = owner
        self._shapes = shapes
        self._exchange: Occupant | None = None
        self._transport: asyncio.Transport | None = None
        self._poll = select.poll()
        self._reading = True
        self._paused = False
        self._tls: ssl.SSLObject | None = None
        self._below_tls: asyncio.Transport | None = None
        self._writable: asyncio.Future[None] | None = None
        self._linger: asyncio.TimerHandle | None = None

    async def secure(self, context: ssl.SSLContext, server_name: str) -> None:
        """Put TLS on a connection that nothing was written to. Raises OSError or ValueError; the connection is to be
        cut then.
        """
        plain = self._transport
        if plain is None or not self.sound or plain.is_closing():
            raise ConnectionResetError  # or it has spoken first, which TLS servers do not
        secured = await self.loop.start_tls(plain, self, context, server_hostname=server_name)
        if secured is None or not self.sound:
            raise ConnectionResetError
        self._below_tls = plain
        self._transport = secured
        self._tls = secured.get_extra_info("ssl_object")
        secured.set_write_buffer_limits(high=1, low=0)  # it pauses *at* its limit, not above it: with 0 it would never resume

    def begin(self, exchange: Occupant, data: bytes) -> None:
        """Write the request's first bytes, and let all that comes back belong to `exchange`."""
        self._exchange = exchange
        assert self._transport is not None
        try:
            self._transport.write(data)
        except Exception as error:
            self._break(exchange, error)

    def hand_over(self, exchange: Occupant) -> None:
        """Let all that happens from now on belong to `exchange` instead of the one before, and read on for it."""
        self._exchange = exchange
        self.set_reading(on=True)

    def write(self, data: bytes) -> None:
        """Write more for the exchange that has it; nothing, if it was cut."""
        if self._exchange is not None:
            self.begin(self._exchange, data)

    async def drain(self) -> None:
        """Return when what was written has gone to the kernel (all but the last of it, under TLS), or the connection
        was cut.
        """
        while self._paused and self.sound:
            self._writable = self.loop.create_future()
            await self._writable

    @property
    def unsent(self) -> bool:
        """Whether bytes that were written still wait for the kernel to take them."""
        return self._paused or (self._below_tls is not None and self.backlog() > 0)

    def backlog(self) -> int:
        """How many bytes `unsent` is about, TLS's own included."""
        if not self.sound or self._transport is None:
            return 0
        waiting = self._transport.get_write_buffer_size()
        return waiting if self._below_tls is None else waiting + self._below_tls.get_write_buffer_size()

    def set_reading(self, *, on: bool) -> None:
        if on is not self._reading and self._transport is not None and self.sound:
            self._reading = on
            if on:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def finish(self, *, reusable: bool, patience: float = math.inf) -> None:
        """The exchange is over, with nothing `unsent` if it is `reusable`: keep the connection, or cut it.

        `patience`: how many seconds the upstream says that it keeps it.
        """
        if reusable and self.sound:
            self.patience = patience
            self._exchange = None
            if not self._reading:
                self.set_reading(on=True)
            self._owner.release(self)
        else:
            self.cut()

    def put_back(self) -> None:
        """Nothing was written: the exchange is another's that comes."""
        self._exchange = None
        self._owner.put_back(self)

    def rest(self, limit: float) -> None:
        """Lie idle in the pool, for `limit` seconds at most."""
        self.rests_until = due = self.loop.time() + limit
        self.alarm.set(due)

    def cut(self, *, unsent: bool = True) -> None:
        """Final and idempotent. What the kernel has not taken yet is not sent any more; without `unsent`, nor is what
        it has taken and not sent: it says so to the peer, by a reset.
        """
        if self.sound:
            try:
                self._end()
            finally:
                if self._transport is not None:
                    if not unsent:
                        with contextlib.suppress(OSError):  # it is closed already
                            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, DROP)
                    self._transport.abort()

    def leave(self, limit: float) -> None:
        """As `cut`, but what was written still goes out, for `limit` seconds at most, and TLS is closed in order."""
        transport = self._transport
        if self.sound and transport is not None:
            self._end()
            if self.unsent or self._tls is not None:
                transport.close()
                self._linger = self.loop.call_later(limit, transport.abort)
            else:
                transport.abort()

    def usable(self) -> bool:
        """Whether it is `quiet`, and its time to rest is not up: the alarm may not have rung yet."""
        return self.loop.time() < self.rests_until and self.quiet()

    def quiet(self) -> bool:
        """Whether neither the kernel nor TLS holds an end of stream, an error or a byte that this was not told of yet. Where
        they do, the connection is of no use any more.

        Narrows the race with an upstream that closes idle connections: from one turn of the loop to a microsecond.
        """
        transport = self._transport
        if not self.sound or transport is None or transport.is_closing() or self._poll.poll(0):
            return False
        return self._tls is None or _has_nothing(self._tls)

    def guarded(self, occupant: Occupant, callback: Callable[[], None]) -> None:
        """Call back an occupant under the rule of this module for exceptions."""
        try:
            callback()
        except BaseException as error:
            self._break(occupant, error)

    def _end(self) -> None:
        self.sound = False
        self._exchange = None
        self.alarm.stop()
        if self._transport is not None:
            self.parser.close()
        self._wake_writer()
        self._owner.forget(self)

    def _break(self, occupant: Occupant | None, error: BaseException) -> None:
        _log.error("a callback of an upstream connection failed", exc_info=error)
        try:
            if occupant is not None:
                occupant.broken()
        finally:
            other = self._exchange  # who was told of an answer may have begun the next exchange here, and failed then
            self.cut()
            if other is not None and other is not occupant:
                other.lost()
        if not isinstance(error, Exception):
            raise error

    def _on_alarm(self) -> None:
        exchange = self._exchange
        if exchange is not None:
            self.guarded(exchange, exchange.expired)
        else:
            self.cut()

    def _wake_writer(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = stream = cast("asyncio.Transport", transport)  # uvloop's are no subclass
        self.parser = ResponseParser(shapes=self._shapes)
        try:
            stream.set_write_buffer_limits(high=0)  # so that the pauses are exact
            self._poll.register(stream.get_extra_info("socket").fileno(), select.POLLIN)
        except Exception as error:
            self._break(None, error)

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            self.cut()
            return
        try:
            exchange.received(data)
        except BaseException as error:
            self._break(exchange, error)

    def eof_received(self) -> None:
        exchange = self._exchange
        if exchange is not None:
            orderly = self._tls is None or _close_notified(self._tls)
            self.guarded(exchange, exchange.ended if orderly else exchange.lost)
        self.cut()

    def connection_lost(self, exc: Exception | None) -> None:
        exchange = self._exchange
        try:
            if self.sound:
                self._end()
        finally:
            if self._linger is not None:
                self._linger.cancel()
            if not self.closed.done():
                self.closed.set_result(None)
            if exchange is not None:
                self.guarded(exchange, exchange.lost)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._wake_writer()
        exchange = self._exchange
        if exchange is not None:
            self.guarded(exchange, exchange.drained)


def _has_nothing(tls: ssl.SSLObject) -> bool:
    """Whether nothing is left to be read. The transport tells of what came with an answer before it tells of the end behind it."""
    try:
        tls.read(1)
    except ssl.SSLWantReadError:
        return True
    except ssl.SSLError:
        return False
    return False


def _close_notified(tls: ssl.SSLObject) -> bool:
    """Whether TLS was closed in order. asyncio reports an end of the TCP stream alone in the same way, and
    anything on the network path can cause that.
    """
    try:
        return tls.read(1) == b""
    except ssl.SSLZeroReturnError:
        return True
    except ssl.SSLError:
        return False
