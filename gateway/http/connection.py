"""A client's connection: what the event loop tells it, its times, and how it ends. What it reads is in `intake`, its requests one after
the other in `request_cycle`.
"""

import asyncio
import contextlib
import logging
import select
from collections.abc import Callable
from functools import partial
from typing import Protocol, cast

from gateway.core.headers import Fields
from gateway.core.problems import Problem
from gateway.http.head_parser import HeadParser
from gateway.http.limits import ClientLimits, Crowd, peer_address
from gateway.http.lingering_close import FAREWELL, LINGER
from gateway.http.refusals import Refusals
from gateway.http.request import RequestBody
from gateway.http.request_cycle import Handler, RequestCycle
from gateway.http.request_shapes import RequestShape, RequestShapes
from gateway.http.response import untaken
from gateway.http.upgrade import ClientTunnel
from gateway.ports import Memory
from gateway.principal import certificate_subject
from gateway.runtime.cork import Cork

TURNED_AWAY = 256
"""As many connections too many are told so at a time; what comes on top is cut."""

_log = logging.getLogger(__name__)


class Keeper(Protocol):
    """Who knows which connections are open."""

    def connection_made(self, connection: "ClientConnection") -> None: ...

    def connection_lost(self, connection: "ClientConnection") -> None: ...


class ClientConnection(RequestCycle):
    """One client's connection, until it is lost. `address` is the peer's (IPv4-mapped ones as IPv4), None on a unix socket.

    `half_closed`: the client has ended its sending and may still be reading. `upgradable`: the request at hand asked for another
    protocol in a way that lets `take_over` be called once it was agreed to. `entered`: the crowd was asked already, and said this.
    `made`: it was, and counts itself out of the crowd when it is lost.

    An exception in one of the loop's callbacks is ours, and leaves nobody waiting: the connection is cut and its loss is told, as if the
    client had left.
    """

    __slots__ = (
        "_cork",
        "_corked",
        "_crowd",
        "_drained",
        "_entered",
        "_header_timeout",
        "_keeper",
        "_lost",
        "_make",
        "_subject",
        "address",
        "made",
        "secure",
        "writing_paused",
    )

    def __init__(
        self,
        keeper: Keeper,
        handler: Handler,
        limits: ClientLimits,
        memory: Memory,
        crowd: Crowd,
        refusals: Refusals,
        *,
        cork: Cork,
        shapes: RequestShapes,
        entered: bool | None = None,
    ) -> None:
        super().__init__(handler, limits, memory, refusals, shapes)
        self._keeper = keeper
        self._make = handler.make_request
        self._header_timeout = limits.header_timeout
        self._crowd = crowd
        self._entered = entered
        self._cork = cork
        self._corked = b""  # written, and held back until the end of this turn of the loop
        self.made = False
        self._lost: list[tuple[Callable[[], object], bool]] = []
        self._drained: asyncio.Future[None] | None = None
        self._subject: bytes | None = None
        self.address: str | None = None
        self.secure = False
        self.writing_paused = False

    # ---- for the request's handler

    @property
    def certificate_subject(self) -> bytes | None:
        """The subject of the client's certificate, read once; None without one."""
        if self._subject is None:
            connection = None if self._wire is None else self._wire.get_extra_info("ssl_object")
            self._subject = certificate_subject(connection) or b""
        return self._subject or None

    @property
    def transport(self) -> asyncio.Transport | None:
        """Where answers are written, behind all that was written before; None once nothing may be written any more."""
        self.uncork()
        return self._writable

    def write(self, data: bytes) -> None:
        """Write now. Raises ConnectionError when the client is gone."""
        self.uncork()
        wire = self._writable
        if wire is None or wire.is_closing():
            raise ConnectionResetError("client is gone")
        wire.write(data)

    def write_whole(self, data: bytes) -> None:
        """Write all of an answer, now or at the end of this turn of the event loop (`Cork`). Raises as `write`."""
        wire = self._writable
        if wire is None or wire.is_closing():
            raise ConnectionResetError("client is gone")
        cork = self._cork
        if not cork.turn or not cork.takes(len(self._corked) + len(data)) or wire.get_write_buffer_size():
            if self._corked:
                self.uncork()
            cork.begin()
            wire.write(data)
        elif self._corked:
            cork.count(len(data))
            self._corked += data
        else:
            cork.hold(self, len(data))
            self._corked = data

    def uncork(self) -> None:
        """Write what was held back. Called before whatever else is done to the transport."""
        if not self._corked:
            return
        wire, data, self._corked = self._wire, self._corked, b""
        if wire is None or wire.is_closing():
            return
        wire.write(data)
        if not self._busy and wire.get_write_buffer_size():
            self._untaken = untaken(wire)

    async def drain(self) -> None:
        """Wait until writing is not paused. Raises ConnectionError when the client is gone."""
        if self.transport is None:
            raise ConnectionResetError("client is gone")
        if self.writing_paused:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)

    def on_lost(self, callback: Callable[[], object], *, streaming: bool = False) -> Callable[[], None]:
        """Have `callback` called once, when the connection is lost (soon, if it is already). Returns what calls that off.

        With `streaming`, an answer is under way that may never end: then the client's ending of its side counts as well. (Without, it
        may have sent all it has to send and be waiting for its answer.)
        """
        entry = (callback, streaming)
        self._lost.append(entry)
        if self._wire is None:
            self._loop.call_soon(self._tell_lost)
        return partial(self._call_off, entry)

    def take_over(self) -> ClientTunnel:
        """The connection's bytes, after a 101 answer was written; those that came behind the request are the first.

        Only while the request is being handled, and only if `upgradable`. No timer runs any more; the tunnel ends with the handler, or
        with a shutdown.
        """
        wire = self._wire
        if wire is None:
            raise ConnectionResetError("client is gone")
        if not self.upgradable or self._tunnel is not None:
            raise RuntimeError("the request did not ask for another protocol")
        tunnel = self._tunnel = ClientTunnel(wire, self.drain, partial(self._part, FAREWELL, sending=False))
        first, self._rest = self._rest, b""
        self._balance()
        self._sink = tunnel.feed
        tunnel.feed(first)
        if self.half_closed:
            tunnel.end()
        return tunnel

    # ---- what the loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made = True
        wire = self._wire = self._writable = cast("asyncio.Transport", transport)
        self._keeper.connection_made(self)
        try:
            self._open(wire)
        except Exception as error:
            self._fail(error)

    def data_received(self, data: bytes) -> None:
        try:
            self.take_in(data)
            skipped = self._skipped
            if skipped is not None and skipped.body.received > self._skip_to:
                self._part(LINGER)
            elif self._close and not self._busy:  # the last request ended with these bytes
                self._no_more()
        except Exception as error:
            self._fail(error)

    def eof_received(self) -> bool:
        """The client ended its sending. Whether the connection stays open, for what is still to be said."""
        try:
            self.uncork()  # what this says may close the connection
            return self._client_ended()
        except Exception as error:
            self._fail(error)
            return False

    def pause_writing(self) -> None:
        self.writing_paused = True

    def resume_writing(self) -> None:
        self.writing_paused = False
        try:
            self._release(None)
        except Exception as error:
            self._fail(error)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._wire = self._writable = None
        self._corked = b""
        self._sink = self._ignore
        self._rest = b""  # a turn may be due: it must find nothing that it would hold, or answer to nobody
        for step in (
            self._count_out,
            self._alarm.stop,
            self._unfinished.close,
            self._drop_parsers,
            self._lose_body,
            partial(self._release, exc),
            self._end_tunnel,
            self._tell_lost,
            self._tell_handled,
        ):
            try:
                step()
            except Exception as error:
                _log.error("The end of a client's connection failed", exc_info=error)
        self._sink = None  # which holds this, and would leave it to the garbage collector

    def _ring(self) -> None:
        try:
            self._time_is_up()
        except Exception as error:
            self._fail(error)

    def turn_ended(self) -> None:
        try:
            self.uncork()
        except Exception as error:
            self._fail(error)

    def _read_on(self) -> None:
        try:
            self.take_in(b"")
        except Exception as error:
            self._fail(error)

    def _go_on(self) -> None:
        self._due = False
        try:
            self._continue()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """One of the callbacks failed: nobody knows what state this is in. Its loss, which follows, is told to all who wait."""
        _log.error("A client's connection failed", exc_info=error)
        with contextlib.suppress(Exception):  # what failed may be this
            self.uncork()
        self._leaving = True
        self._sink = self._ignore
        self._writable = None
        if self._wire is not None:
            self._wire.abort()

    def _handed_over(self, head: HeadParser | RequestShape, method: str, target: bytes, fields: Fields, body: RequestBody) -> None:
        self._asked = True
        shape = head if isinstance(head, RequestShape) else None
        request = self._make(self, method, target, head.version, fields, body, head.keep_alive, shape)
        self._take_answer(request, self._answer, request)

    # ---- its beginning

    def _open(self, wire: asyncio.Transport) -> None:
        self.address = peer_address(wire.get_extra_info("peername"))
        self.secure = wire.get_extra_info("sslcontext") is not None
        if self._entered is None:
            self._entered = self._crowd.enter(self.address)
        now = self._loop.time()
        if self._entered:
            self._alarm.set(now + self._header_timeout)
        else:
            self._turn_away(wire, now)

    def _turn_away(self, wire: asyncio.Transport, now: float) -> None:
        answer = self._refusals.turned_away(now)
        if self._crowd.outside > TURNED_AWAY:
            wire.abort()
        else:
            wire.write(answer)
            self._part(FAREWELL)

    # ---- the end

    def close(self) -> None:
        """Answer what is at hand, then close."""
        self._close = True
        if not self._busy:
            self._no_more()

    def retire(self, quiet: float) -> None:
        """For a drain, again and again: answer what is at hand, then close. One that is idle is closed when nothing came for `quiet`
        seconds and nothing is in its socket: a client whose last answer is younger may be about to ask again, and a request that came is
        answered.
        """
        wire = self._wire
        if wire is None or self._leaving:
            return
        if self._busy:
            self._close = self._farewell = True
        elif not (self._head or self._rest) and self._loop.time() >= self._since + quiet and not _unread(wire):
            self._farewell = True  # what crosses our end on the wire is read, and meets no reset
            self.close()

    def force_close(self) -> None:
        """Close now. What was written still leaves, if the client takes it in time."""
        self._shut()

    def end_tunnel(self) -> None:
        """Close the tunnel that this has become, if it has."""
        if self._tunnel is not None:
            self._tunnel.close()

    # ---- events

    def _client_ended(self) -> bool:
        wire = self._wire
        if wire is None or self._leaving or not wire.can_write_eof():  # TLS knows no half-closed connections
            return False
        if self._tunnel is not None:
            self.half_closed = True
            self._tunnel.end()
            return True
        if self.refusal is not None or self.half_closed:
            return True
        waiting = self._busy or bool(self._rest)
        if not waiting or self._incoming is not None:  # idle, or in the middle of a request: there will be none
            return False
        self.half_closed = True
        for entry in [entry for entry in self._lost if entry[1]]:
            self._call_off(entry)
            entry[0]()
        return True

    def _time_is_up(self) -> None:
        """While a request is being handled no time runs: what it left set is ignored, and its end sets the next."""
        wire = self._wire
        if wire is None:
            return
        if self._leaving:
            self._press(wire)
        elif self._skipped is not None:
            self._part(LINGER)
        elif self._busy:
            return
        elif self._head:
            self.refuse(Problem.REQUEST_TIMEOUT, "header_timeout")
        elif wire.get_write_buffer_size():
            if self._takes(wire):
                self._alarm.set(self._loop.time() + self._idle_timeout)
            else:
                wire.abort()
        else:
            self.force_close()

    def _head_begun(self) -> None:
        if self._asked:  # the first head's time runs since the connection began
            self._alarm.set(self._loop.time() + self._header_timeout)

    def _body_broken(self) -> None:
        """The handler is to find nobody there, and the client is told what is wrong; but not in the middle of an answer."""
        if any(streaming for _, streaming in self._lost):
            self.force_close()
        elif self._skipped is not None:
            self._part(LINGER)
        else:
            self.uncork()
            self._writable = None

    # ---- its loss

    def _count_out(self) -> None:
        self._keeper.connection_lost(self)
        if self._entered is not None:
            self._crowd.leave(self.address, entered=self._entered)

    def _lose_body(self) -> None:
        if self._incoming is not None:
            self._incoming.lose("the client is gone")
            self._incoming = None
        self._skipped = None

    def _release(self, error: BaseException | None) -> None:
        """Let those go on who wait for the client to take what was written."""
        drained, self._drained = self._drained, None
        if drained is None or drained.done():
            return
        if error is None:
            drained.set_result(None)
        else:
            drained.set_exception(ConnectionResetError(str(error)))

    def _end_tunnel(self) -> None:
        if self._tunnel is not None:
            self._tunnel.end()

    def _tell_lost(self) -> None:
        while self._lost:
            callback, _ = self._lost.pop()
            try:
                callback()
            except Exception as error:
                _log.error("Whom the loss of a client concerns could not be told", exc_info=error)

    def _call_off(self, entry: tuple[Callable[[], object], bool]) -> None:
        if entry in self._lost:
            self._lost.remove(entry)


def _unread(wire: asyncio.Transport) -> bool:
    """Whether something came in, or the end, that the loop has not read yet."""
    poll = select.poll()
    poll.register(wire.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))
