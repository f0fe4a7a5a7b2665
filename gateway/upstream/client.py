"""The way to one upstream API over HTTP/1.1: the port's only implementation for production."""

import asyncio
import ssl
from collections.abc import Callable

from gateway.ports import NotSent, NotSentReason, Receiver, UpstreamRequest
from gateway.runtime.cork import Cork
from gateway.upstream.connection import Connection
from gateway.upstream.exchange import Exchange
from gateway.upstream.framing import encode
from gateway.upstream.pool import Pool
from gateway.upstream.protocol_violations import ProtocolViolations
from gateway.upstream.settings import UpstreamSettings, parse_endpoint
from gateway.upstream.upload import send_body


class HttpUpstream:
    """Implements `gateway.ports.Upstream`: one write attempt, ever, and "nothing was sent" is an outcome of its own.

    Everything up to the fence raises NotSent: then nothing was written to any connection. From the write on it is
    InDoubt, whatever went wrong; so is a client certificate that the server refuses under TLS 1.3, since that refusal
    comes after the handshake, in the place of an answer, and nothing in it proves that nothing was processed.
    `ssl_context` replaces the system's default for an `https://` address, `server_name` the address's host in SNI and
    in the certificate's verification. Raises ValueError for a bad address, and `send` for a request that would break
    its own framing (see `gateway.upstream.framing`), with nothing written.
    """

    def __init__(self, settings: UpstreamSettings, *, ssl_context: ssl.SSLContext | None = None, server_name: str | None = None) -> None:
        endpoint = parse_endpoint(settings.url)
        tls = (ssl_context or ssl.create_default_context()) if endpoint.tls else None
        self.settings = settings
        self._prefix = endpoint.prefix
        self._violations = ProtocolViolations(settings.url)
        self._pool = Pool(settings, endpoint, tls, server_name)
        self._cork = Cork()

    @property
    def open(self) -> int:
        """Connections in use or idle, and attempts to connect."""
        return self._pool.open

    @property
    def idle(self) -> int:
        """Connections that wait for their next exchange."""
        return self._pool.idle

    @property
    def full(self) -> bool:
        """Whether the next call would have to wait for a slot."""
        return self._pool.full

    def begin(
        self,
        request: UpstreamRequest,
        fence: Callable[[], bool],
        receiver: Receiver | None = None,
        *,
        started: float | None = None,
        failed: Callable[[], None] | None = None,
        answered: Callable[[Exchange], None] | None = None,
    ) -> Exchange | None:
        """The short way of `send`, see the port: write the request to an idle connection, at once or, if another was
        written in this turn of the event loop, at its end. A caller without a `receiver` then waits for the exchange's
        `head`; his is written at once. The rest is as for `send`.

        None: no connection is idle, or the body is streamed. Then nothing was done, and `send` is the way. Raises as
        `send`.
        """
        body = request.body
        if not isinstance(body, bytes):
            return None
        held = receiver is not None and self._cork.turn and self._cork.takes(len(body))
        connection = self._pool.take(later=held)
        if connection is None:
            return None
        started = connection.loop.time() if started is None else started
        return self._begin(connection, request, fence, started, failed, answered, receiver, held=held)

    async def send(
        self,
        request: UpstreamRequest,
        fence: Callable[[], bool],
        *,
        started: float | None = None,
        patient: bool = True,
        failed: Callable[[], None] | None = None,
        answered: Callable[[Exchange], None] | None = None,
    ) -> Exchange:
        """See the port. What a streamed body's iterator raises is raised as it is, and the connection is cut.

        The rest is for a caller that has several upstreams: `started` (loop time) is when `total` began to count,
        without `patient` a call that finds no slot does not wait for one, and `failed` and `answered` are called with
        what comes of the exchange, see there.
        """
        exchange = self.begin(request, fence, started=started, failed=failed, answered=answered)
        if exchange is None:
            return await self._send(request, fence, started, patient, failed, answered)
        await exchange.head()
        return exchange

    async def close(self) -> None:
        """Close the idle connections and refuse new calls; exchanges that are under way go on to their end."""
        await self._pool.close()

    async def _send(
        self,
        request: UpstreamRequest,
        fence: Callable[[], bool],
        started: float | None,
        patient: bool,  # noqa: FBT001 - as `send`
        failed: Callable[[], None] | None,
        answered: Callable[[Exchange], None] | None,
    ) -> Exchange:
        """The long way: connect, or wait for a slot; stream the body."""
        loop, total = asyncio.get_running_loop(), self.settings.total
        started = loop.time() if started is None else started
        connection = await self._pool.acquire(None if total is None else started + total, patient=patient)
        exchange = self._begin(connection, request, fence, started, failed, answered, None)
        body = request.body
        if isinstance(body, bytes):
            await exchange.head()
        else:
            if request.lasting:
                exchange.forget_deadline()  # an upload may last as long as its client keeps sending
            exchange.lift_limit()
            await send_body(loop, exchange, body, request.body_length)
        return exchange

    def _begin(  # noqa: PLR0917 - as `Exchange`
        self,
        connection: Connection,
        request: UpstreamRequest,
        fence: Callable[[], bool],
        started: float,
        failed: Callable[[], None] | None,
        answered: Callable[[Exchange], None] | None,
        receiver: Receiver | None,
        *,
        held: bool = False,
    ) -> Exchange:
        """Ask the fence, and write the request's first bytes, or hold them back. Otherwise, whatever is raised, the pool
        gets the connection back.
        """
        begun = False
        try:
            data, bound = encode(request, self.settings.host, self._prefix)
            exchange = Exchange(connection, self.settings, request, fence, started, bound, failed, answered, self._violations, receiver)
            if held:
                exchange.hold(self._cork, data)
                begun = True
            else:
                if receiver is not None:
                    self._cork.begin()
                begun = exchange.begin(data)
        finally:
            if not begun:
                self._pool.put_back(connection)
        if not begun:
            raise NotSent(NotSentReason.LEASE_LAPSED)
        return exchange
