"""The listeners that requests come in at: of clients, and of webhooks where these have one of their own. Opened and drained together."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence

from gateway.config import Config, Listener, UnixListener
from gateway.observe.observer import MetricsObserver
from gateway.ports import Memory
from gateway.problem import ProblemWriter
from gateway.proxy.handshake import SecureServer
from gateway.proxy.limits import ClientLimits
from gateway.proxy.listener import Handler, ProxyServer
from gateway.server.sockets import listen

BACKLOG = 2048


class Listeners:
    """Open listeners, each with its connections."""

    def __init__(self, open_ones: Sequence[tuple[asyncio.Server | SecureServer, ProxyServer]]) -> None:
        self._open = open_ones

    def reconfigure(self, limits: ClientLimits, trusts: Callable[[str], bool]) -> None:
        """Use other limits for new connections."""
        for _, connections in self._open:
            connections.reconfigure(limits, trusts)

    def close(self) -> None:
        """Accept no more."""
        for server, _ in self._open:
            server.close()

    def pre_shutdown(self) -> None:
        """Close the connections that wait for a request."""
        for _, connections in self._open:
            connections.pre_shutdown()

    @property
    def connections(self) -> int:
        """How many are open."""
        return sum(len(connections.connections) for _, connections in self._open)

    async def shutdown(self, timeout: float) -> None:
        """Cut what is left after `timeout` seconds."""
        for server, _ in self._open:
            if isinstance(server, SecureServer):
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
    opened: list[tuple[asyncio.Server | SecureServer, ProxyServer]] = []
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
) -> asyncio.Server | SecureServer:
    if context is not None:
        server = SecureServer(sock, context, connections, handshake)
        server.start()
        return server
    loop = asyncio.get_running_loop()
    create = loop.create_unix_server if isinstance(address, UnixListener) else loop.create_server
    return await create(connections, sock=sock, backlog=BACKLOG)
