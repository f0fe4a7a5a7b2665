"""The listeners for clients, for webhooks where these have one of their own, and for upstreams that take part. They open
together. A drain closes that for upstreams last: attempts that are still under way tell how far they have come.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Sequence

from gateway.config import Config, Listener, UnixListener
from gateway.http.handshake import SecureServer
from gateway.http.limits import ClientLimits
from gateway.http.listener import ProxyServer
from gateway.http.problem import ProblemWriter
from gateway.http.request_cycle import Handler
from gateway.observe.observer import MetricsObserver
from gateway.ports import Memory
from gateway.proxy.routing import varying_fields
from gateway.run.server.sockets import listen

BACKLOG = 2048


class PlainServer:
    """The loop's own server, at a listening socket. Closed by `close`; what that still accepted goes on until
    `abort`.
    """

    def __init__(self, server: asyncio.Server, sock: socket.socket, connections: ProxyServer) -> None:
        self._server = server
        self._sock = sock
        self._connections = connections
        self._late: set[asyncio.Task[object]] = set()

    @property
    def arriving(self) -> int:
        """How many connections were accepted by `close` and are not there yet."""
        return len(self._late)

    def close(self) -> None:
        """Accept what has come, and no more: what waits in a socket that is closed would be reset."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._sock.accept()
                sock.setblocking(False)
                task: asyncio.Task[object] = loop.create_task(loop.connect_accepted_socket(self._connections, sock))
                self._late.add(task)
                task.add_done_callback(self._late.discard)
        self._server.close()

    def abort(self) -> None:
        """Give up what is not there yet."""
        for task in self._late:
            task.cancel()


Open = tuple[PlainServer | SecureServer, ProxyServer]


class Listeners:
    """Open listeners, each with its connections. `last` are those that serve until no attempt is under way."""

    def __init__(self, open_ones: Sequence[Open], last: Sequence[Open] = ()) -> None:
        self._open = open_ones
        self._last = last

    def reconfigure(self, config: Config, limits: ClientLimits, trusts: Callable[[str], bool]) -> None:
        """Use other limits for new connections, and expect the keys of other routes."""
        for _, connections in (*self._open, *self._last):
            connections.reconfigure(limits, trusts, varying_fields(config.routes))

    def close(self) -> None:
        """Accept no more, but at those that serve until the end."""
        for server, _ in self._open:
            server.close()

    def close_last(self) -> None:
        """Accept no more anywhere."""
        for server, _ in self._last:
            server.close()

    def retire(self, quiet: float) -> None:
        """Have connections end: those with a request after its answer, idle ones when nothing came for `quiet` seconds.
        To be repeated.
        """
        for _, connections in self._open:
            connections.retire(quiet)

    @property
    def connections(self) -> int:
        """How many are open, or about to be, apart from those at listeners that serve until the end."""
        return sum(len(connections.connections) + server.arriving for server, connections in self._open)

    async def shutdown(self, timeout: float) -> None:
        """Cut what is left after `timeout` seconds."""
        every = (*self._open, *self._last)
        for server, _ in every:
            server.abort()
        await asyncio.gather(*(connections.shutdown(timeout) for _, connections in every))


async def open_listeners(
    config: Config,
    handlers: Sequence[tuple[Listener, Handler, ssl.SSLContext | None]],
    limits: ClientLimits,
    observer: MetricsObserver,
    trusts: Callable[[str], bool],
    *,
    memory: Memory,
    shared: bool,
    last: Sequence[tuple[Listener, Handler, ssl.SSLContext | None]] = (),
) -> Listeners:
    """Listen at each address; at those of `last` until no attempt is under way. `shared`: other processes listen there,
    too. Raises `ListenError`; then none is open.
    """
    opened: list[Open] = []
    try:
        for address, handler, context in (*handlers, *last):
            problems, varying = ProblemWriter(config.problem_base), varying_fields(config.routes)
            connections = ProxyServer(handler, problems, limits, observer.refused_client, trusts, memory=memory, varying=varying)
            sock = listen(address, shared=shared)
            opened.append((await _serve(sock, address, connections, context, config.client.header_timeout), connections))
    except BaseException:
        Listeners(opened).close()
        raise
    return Listeners(opened[: len(handlers)], opened[len(handlers) :])


async def _serve(
    sock: socket.socket, address: Listener, connections: ProxyServer, context: ssl.SSLContext | None, handshake: float
) -> PlainServer | SecureServer:
    if context is not None:
        server = SecureServer(sock, context, connections, handshake)
        server.start()
        return server
    loop = asyncio.get_running_loop()
    create = loop.create_unix_server if isinstance(address, UnixListener) else loop.create_server
    return PlainServer(await create(connections, sock=sock, backlog=BACKLOG), sock, connections)
