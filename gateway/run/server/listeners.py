"""The listeners for clients, and for webhooks where these have one of their own. They open and drain together."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Sequence

from gateway.config import Config, Listener, UnixListener
from gateway.http.connection import Handler
from gateway.http.handshake import SecureServer
from gateway.http.limits import ClientLimits
from gateway.http.listener import ProxyServer
from gateway.http.problem import ProblemWriter
from gateway.observe.observer import MetricsObserver
from gateway.ports import Memory
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


class Listeners:
    """Open listeners, each with its connections."""

    def __init__(self, open_ones: Sequence[tuple[PlainServer | SecureServer, ProxyServer]]) -> None:
        self._open = open_ones

    def reconfigure(self, limits: ClientLimits, trusts: Callable[[str], bool]) -> None:
        """Use other limits for new connections."""
        for _, connections in self._open:
            connections.reconfigure(limits, trusts)

    def close(self) -> None:
        """Accept no more."""
        for server, _ in self._open:
            server.close()

    def retire(self, quiet: float) -> None:
        """Have connections end: those with a request after its answer, idle ones when nothing came for `quiet` seconds.
        To be repeated.
        """
        for _, connections in self._open:
            connections.retire(quiet)

    @property
    def connections(self) -> int:
        """How many are open, or about to be."""
        return sum(len(connections.connections) + server.arriving for server, connections in self._open)

    async def shutdown(self, timeout: float) -> None:
        """Cut what is left after `timeout` seconds."""
        for server, _ in self._open:
            server.abort()
        await asyncio.gather(*(connections.shutdown(timeout) for _, connections in self._open))


async def open_listeners(
    config: Config,
    handlers: Sequence[tuple[Listener, Handler, ssl.SSLContext | None]],
    limits: ClientLimits,
    observer: MetricsObserver,
    trusts: Callable[[str], bool],
    *,
    memory: Memory,
    shared: bool,
) -> Listeners:
    """Listen at each address. `shared`: other processes listen there, too. Raises `ListenError`; then none is open."""
    opened: list[tuple[PlainServer | SecureServer, ProxyServer]] = []
    try:
        for address, handler, context in handlers:
            connections = ProxyServer(handler, ProblemWriter(config.problem_base), limits, observer.refused_client, trusts, memory=memory)
            sock = listen(address, shared=shared)
            opened.append((await _serve(sock, address, connections, context, config.client.header_timeout), connections))
    except BaseException:
        Listeners(opened).close()
        raise
    return Listeners(opened)


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
