"""How a client's connection ends: so that the client gets to read its last answer, and yet within bounds of time and size."""

import asyncio
import contextlib

from gateway.http.intake import Intake
from gateway.http.limits import ClientLimits
from gateway.http.request_shapes import RequestShapes
from gateway.http.response import untaken
from gateway.ports import Memory
from gateway.runtime.alarm import Alarm

LINGER = 10.0
"""Seconds for which a client that is still sending is listened to after its last answer, so that it gets to read that."""
LINGER_BYTES = 64 * 1024 * 1024
FAREWELL = 2.0
"""Seconds for which a client that has sent all is given to close first."""


class LingeringClose(Intake):
    """The end of a client's connection. `_writable` is where answers are written, as long as they may be; `_wire` is the same, until the
    connection is lost.
    """

    __slots__ = ("_alarm", "_discarded", "_idle_timeout", "_leaving", "_untaken", "_writable")

    def __init__(self, limits: ClientLimits, memory: Memory, shapes: RequestShapes) -> None:
        super().__init__(limits, memory, shapes)
        self._idle_timeout = limits.idle_timeout
        self._alarm = Alarm(self._loop, self._ring)
        self._writable: asyncio.Transport | None = None
        self._leaving = False  # nothing more is written
        self._discarded = 0
        self._untaken: int | None = None  # bytes of the last answer that the client had still not taken

    def _ring(self) -> None:
        """A time is up."""
        raise NotImplementedError

    def uncork(self) -> None:
        """Write what was held back."""
        raise NotImplementedError

    def _shut(self) -> None:
        """Close, without waiting for the client's side."""
        self._leave()
        wire = self._wire
        if wire is not None:
            self._alarm.set(self._loop.time() + self._idle_timeout)
            wire.close()

    def _part(self, patience: float, *, sending: bool = True) -> None:
        """Close in stages (RFC 9112 section 9.6): end our side, then read and discard until the client ends its own.

        It has `patience` seconds for that. Closed at once, with bytes of the client unread or on their way, the kernel would send a
        reset, which may destroy the answer before the client has read it. Under TLS our side cannot be ended alone; there a client is
        listened to only if it is known to be `sending`.
        """
        wire = self._wire
        if self._leaving or wire is None:
            return
        if self.half_closed or wire.is_closing() or not (sending or wire.can_write_eof()):
            self._shut()
            return
        self._leave()
        self._resume_reading()
        self._alarm.set(self._loop.time() + min(patience, self._idle_timeout))
        with contextlib.suppress(OSError):  # the client may be gone
            if wire.can_write_eof():
                wire.write_eof()

    def _leave(self) -> None:
        self.uncork()
        self._leaving = True
        self._untaken = None
        self._sink = self._discard
        self._rest = b""
        self._writable = None
        self._drop_parsers()
        if self._incoming is not None:
            self._incoming.lose("the connection was closed")
            self._incoming = None

    def _discard(self, data: bytes) -> None:
        self._discarded += len(data)
        if self._discarded > LINGER_BYTES and self._wire is not None:
            self._wire.abort()

    def _press(self, wire: asyncio.Transport) -> None:
        """The client had its time to close. One that is still taking its answer gets more; one that takes nothing of it does not."""
        unsent = wire.get_write_buffer_size() > 0
        if unsent and self._takes(wire):
            self._alarm.set(self._loop.time() + self._idle_timeout)
        elif unsent or wire.is_closing():
            wire.abort()
        else:
            wire.close()
            self._alarm.set(self._loop.time() + FAREWELL)

    def _takes(self, wire: asyncio.Transport) -> bool:
        """Whether the client has taken something of its answer since this was asked last, or was not asked yet."""
        left, before = untaken(wire), self._untaken
        self._untaken = left
        return before is None or left < before
