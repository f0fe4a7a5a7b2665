"""A client's connection: its requests one after the other, its times, and how it ends."""

import asyncio
import logging
import select
from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast

from aiohttp import ClientError, web
from aiohttp.http import RawRequestMessage
from aiohttp.streams import EmptyStreamReader, StreamReader
from aiohttp.web_protocol import RequestHandler

from gateway.core.problems import Problem
from gateway.http.limits import ClientLimits, Crowd, peer_address
from gateway.http.lingering_close import FAREWELL, LINGER, Departing
from gateway.http.refusals import Refusals
from gateway.http.request import BodyLost, Request, RequestFactory
from gateway.http.response import WireResponse, reason_of, untaken
from gateway.http.upgrade import ClientTunnel
from gateway.ports import Memory
from gateway.principal import certificate_subject

TURNED_AWAY = 256
"""As many connections too many are told so at a time; what comes on top is cut."""


class ParsedBody:
    """The `RequestBody` of what aiohttp's parser makes of it."""

    __slots__ = ("_reader", "exists")

    def __init__(self, reader: StreamReader) -> None:
        self._reader = reader
        self.exists = type(reader) is not EmptyStreamReader

    @property
    def received(self) -> int:
        return self._reader.total_bytes

    @property
    def complete(self) -> bool:
        return self._reader.is_eof()

    @property
    def at_end(self) -> bool:
        return self._reader.at_eof()

    def take(self) -> bytes:
        try:
            return self._reader.read_nowait()
        except _BROKEN as error:
            raise BodyLost(str(error)) from error

    async def read(self) -> bytes:
        try:
            return await self._reader.readany()
        except _BROKEN as error:
            raise BodyLost(str(error)) from error


_BROKEN = (ClientError, web.RequestPayloadError, ConnectionError, RuntimeError)
"""What a body's reader is told. (RuntimeError: that the connection was lost between two looks at it.)"""


_log = logging.getLogger(__name__)


class ClientConnection(Departing):
    """One client's connection, until it is lost. `address` is the peer's (IPv4-mapped ones as IPv4), None on a unix socket.

    `half_closed`: the client has ended its sending and may still be reading. `upgradable`: the request at hand asked for another
    protocol in a way that lets `take_over` be called once it was agreed to. `entered`: the crowd was asked already, and said this.
    `made`: it was, and counts itself out of the crowd when it is lost.
    """

    __slots__ = (
        "_answer",
        "_crowd",
        "_entered",
        "_farewell",
        "_header_timeout",
        "_lost",
        "_make",
        "_payload",
        "_refusals",
        "_since",
        "_subject",
        "_tunnel",
        "address",
        "made",
    )

    def __init__(
        self,
        manager: web.Server,
        limits: ClientLimits,
        memory: Memory,
        crowd: Crowd,
        refusals: Refusals,
        *,
        make: RequestFactory[Request],
        answer: Callable[[Request], Awaitable[WireResponse]],
        entered: bool | None = None,
    ) -> None:
        super().__init__(manager, limits, memory)
        self._header_timeout = limits.header_timeout
        self._make = make
        self._answer = answer
        self._crowd = crowd
        self._refusals = refusals
        self._entered = entered
        self.made = False
        self._lost: list[tuple[Callable[[], object], bool]] = []
        self._tunnel: ClientTunnel | None = None
        self._subject: bytes | None = None
        self._since = self._loop.time()  # idle since, or open since if nothing was asked yet
        self._farewell = False
        self._payload: StreamReader | None = None  # the body of the request at hand
        self.address: str | None = None

    # ---- for the request's handler

    @property
    def secure(self) -> bool:
        """Whether it is under TLS."""
        return self._wire is not None and self._wire.get_extra_info("sslcontext") is not None

    async def drain(self) -> None:
        """Wait until the client has taken most of what was written. Raises ConnectionError when it is gone."""
        await self._drain_helper()

    @property
    def certificate_subject(self) -> bytes | None:
        """The subject of the client's certificate, read once; None without one."""
        if self._subject is None:
            connection = None if self._wire is None else self._wire.get_extra_info("ssl_object")
            self._subject = certificate_subject(connection) or b""
        return self._subject or None

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
        tunnel = self._tunnel = ClientTunnel(wire, self._drain_helper, partial(self._part, FAREWELL, sending=False))
        self._sink = tunnel.feed
        tunnel.feed(self._rest)
        self._keep(b"")
        if self.half_closed:
            tunnel.end()
        return tunnel

    # ---- what the loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made = True
        super(RequestHandler, self).connection_made(transport)  # aiohttp's own would set its timer and start its task
        wire = self._wire = cast("asyncio.Transport", transport)
        self.address = peer_address(wire.get_extra_info("peername"))
        if self._entered is None:
            self._entered = self._crowd.enter(self.address)
        now = self._loop.time()
        assert self._manager is not None
        self._manager.connection_made(self, wire)
        if not self._entered:
            self._turn_away(wire, now)
            return
        self._alarm.set(now + self._header_timeout)
        self._task_handler = self._loop.create_task(self.start())

    def _turn_away(self, wire: asyncio.Transport, now: float) -> None:
        answer = self._refusals.turned_away(now)
        if self._crowd.outside > TURNED_AWAY:
            wire.abort()
        else:
            wire.write(answer)
            self._part(FAREWELL)

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio declares it; aiohttp never keeps a connection
        """The client ended its sending. Whether the connection stays open, for what is still to be said."""
        wire = self._wire
        if wire is None or self._leaving or not wire.can_write_eof():  # TLS knows no half-closed connections
            return False
        if self._tunnel is not None:
            self.half_closed = True
            self._tunnel.end()
            return True
        if self.refusal is not None or self.half_closed:
            return True
        if not self._busy or self._incoming is not None:  # idle, or in the middle of a request: there will be none
            return False
        self.half_closed = True
        for entry in [entry for entry in self._lost if entry[1]]:
            self._call_off(entry)
            entry[0]()
        return True

    def connection_lost(self, exc: BaseException | None) -> None:
        self._crowd.leave(self.address, entered=bool(self._entered))
        self._alarm.stop()
        self._unfinished.close()
        super().connection_lost(exc)
        self._wire = self._sink = self._incoming = None  # which hold this, and would leave it to the garbage collector
        if self._tunnel is not None:
            self._tunnel.end()
        self._tell_lost()

    # ---- one request after the other

    async def start(self) -> None:
        try:
            while self._messages or await self._next():
                message, payload = self._messages.popleft()
                assert isinstance(message, RawRequestMessage)
                response = await self._exchange(message, payload)
                if response is None or self._ends_with(response, message, payload):
                    break
                if not payload.is_eof() and not await self._skip(payload):
                    self._part(LINGER)
                    break
                self._request_done()
                self._untaken = untaken(self._wire) if self._wire is not None and self._wire.get_write_buffer_size() else None
                self._since = self._loop.time()
                self._alarm.set(self._since + (self._header_timeout if self._head else self._idle_timeout))
        except BaseException:
            self.force_close()
            raise
        self._task_handler = self._tunnel = None
        if self._leaving or self._wire is None:
            return
        if self.refusal is not None and not self._wire.is_closing():
            self._wire.write(self._refusals.refusal(self.refusal))
            self._part(LINGER)
        elif self._farewell:
            self._part(FAREWELL, sending=False)
        else:
            self._shut()

    async def _next(self) -> bool:
        """Wait for a request. False: there will be none."""
        while not (self._force_close or self._close or self.half_closed or self.refusal is not None):
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
            if self._messages:
                return not self._force_close
        return False

    async def _exchange(self, message: RawRequestMessage, payload: StreamReader) -> WireResponse | None:
        """Have a request handled and answered. None: there is nobody to talk to any more."""
        target, (major, minor) = message.path.encode("utf-8", "surrogateescape"), message.version
        headers, keep_alive = message.raw_headers, not message.should_close
        request = self._make(self, message.method, target, (major, minor), headers, ParsedBody(payload), keep_alive)
        self._request_in_progress, self._payload = True, payload
        try:
            response = await self._answer(request)
            await response.prepare(request)
        except ConnectionError:
            return None
        except Exception as error:  # whatever it is, the client is answered
            return await self._answer_failure(request, error)
        finally:
            self._request_in_progress, self._payload = False, None
            if self._handler_waiter is not None and not self._handler_waiter.done():
                self._handler_waiter.set_result(None)
        return response

    async def _answer_failure(self, request: Request, error: Exception) -> WireResponse | None:
        response = self._failure(error)
        if self._tunnel is not None:  # no place for an answer
            return None
        try:
            await response.prepare(request)
        except ConnectionError:
            return None
        return response

    def _failure(self, error: Exception) -> WireResponse:
        """A failure of our own. The connection is closed after it."""
        _log.error("Error handling request", exc_info=error)
        status, headers, body = self._refusals.failure()
        return WireResponse(status, reason_of(status), headers, body, close=True)

    def _ends_with(self, response: WireResponse, message: RawRequestMessage, payload: StreamReader) -> bool:
        """After an answer: whether it was the last. If so, the connection is being closed, or is about to be told why."""
        if self._tunnel is not None:
            self._tunnel.close()
            return True
        if self._force_close or self.refusal is not None:
            return True
        if response.keep_alive and not self._close:
            return False
        if payload.is_eof() and not self._rest and (self.half_closed or message.should_close):
            self._shut()  # the client sends no more, and all it has sent was read
        else:
            sending = not payload.is_eof() or bool(self._rest)
            self._part(LINGER if sending else FAREWELL, sending=sending)
        return True

    # ---- the end

    def close(self) -> None:
        """Answer what is at hand, then close."""
        self._close = True
        self._wake()

    def retire(self, quiet: float) -> None:
        """For a drain, again and again: answer what is at hand, then close. One that is idle is closed when nothing came for `quiet`
        seconds and nothing is in its socket: a client whose last answer is younger may be about to ask again, and a request that came is
        answered.
        """
        wire, waiter = self._wire, self._waiter
        if wire is None or self._leaving:
            return
        if self._busy:
            self._close = True
        elif not self._head and waiter is not None and not waiter.done() and self._loop.time() >= self._since + quiet and not _unread(wire):
            self._farewell = True  # what crosses our end on the wire is read, and meets no reset
            self.close()

    def force_close(self) -> None:
        """Close now. What was written still leaves, if the client takes it in time."""
        self._force_close = True
        self._wake()
        if self._payload is not None:
            self._payload.set_exception(ConnectionResetError("the connection was closed"))
        self._shut()

    async def shutdown(self, timeout: float | None = 15.0) -> None:
        if self._tunnel is not None:
            self._tunnel.close()
        await super().shutdown(timeout)

    # ---- events

    def _ring(self) -> None:
        """A time is up. While a request is being handled none runs: what it left set is ignored, and its end sets the next."""
        wire = self._wire
        if wire is None:
            return
        if self._leaving:
            self._press(wire)
        elif self._skipped is not None:
            self._skipped.set_exception(TimeoutError())
        elif self._waiter is None or self._waiter.done():
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
        if self._request_count:  # the first head's time runs since the connection began
            self._alarm.set(self._loop.time() + self._header_timeout)

    def _body_broken(self, body: StreamReader) -> None:
        """The handler is to find nobody there, and the client is told what is wrong; but not in the middle of an answer."""
        if any(streaming for _, streaming in self._lost):
            self.force_close()
        elif self._skipped is None:
            self.transport = None

    def _tell_lost(self) -> None:
        while self._lost:
            callback, _ = self._lost.pop()
            callback()

    def _call_off(self, entry: tuple[Callable[[], object], bool]) -> None:
        if entry in self._lost:
            self._lost.remove(entry)


def _unread(wire: asyncio.Transport) -> bool:
    """Whether something came in, or the end, that the loop has not read yet."""
    poll = select.poll()
    poll.register(wire.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))
