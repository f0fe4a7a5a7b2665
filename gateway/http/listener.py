"""The clients' connections of one listener: made, counted, and ended together."""

import asyncio
from collections.abc import Callable, Collection

from gateway.core.field_names import VARY
from gateway.http.connection import TURNED_AWAY, ClientConnection
from gateway.http.limits import ClientLimits, Crowd
from gateway.http.problem import ProblemWriter
from gateway.http.refusals import Refusals
from gateway.http.request_cycle import Handler
from gateway.http.request_shapes import RequestShapes
from gateway.ports import Memory
from gateway.runtime.cork import Cork


class ProxyServer:
    """The factory of client connections, which `connections` are open.

    `refused(reason)` is called for every connection or request that never came to be handled: `malformed`, `header_too_large`,
    `header_timeout`, `too_many_connections`, `overloaded`. `trusts(address)` says whose connections are not counted by address. `varying`
    are the lower-case fields whose values differ from request to request here, besides those of which that is known.
    """

    def __init__(
        self,
        handler: Handler,
        problems: ProblemWriter,
        limits: ClientLimits,
        refused: Callable[[str], None],
        trusts: Callable[[str], bool],
        *,
        memory: Memory,
        varying: Collection[bytes] = (),
    ) -> None:
        self._handler = handler
        self._limits = limits
        self._memory = memory
        self._refusals = Refusals(problems, refused)
        self._crowd = Crowd(limits, trusts)
        self._cork = Cork()
        self._shapes = RequestShapes(VARY.union(varying))
        self.connections: set[ClientConnection] = set()

    def reconfigure(self, limits: ClientLimits, trusts: Callable[[str], bool], varying: Collection[bytes] = ()) -> None:
        """Use other limits for new connections; those that are open keep theirs. What was known of heads is forgotten."""
        self._shapes.vary(VARY.union(varying))
        self._limits = limits
        self._crowd.reconfigure(limits, trusts)

    @property
    def size(self) -> int:
        """How many connections are open, handshakes and those that are being turned away included."""
        return self._crowd.size + self._crowd.outside

    def __call__(self) -> ClientConnection:
        return self.connection(entered=None)

    def retire(self, quiet: float) -> None:
        """See `ClientConnection.retire`."""
        for connection in list(self.connections):
            connection.retire(quiet)

    def pre_shutdown(self) -> None:
        """Have all connections end after the request at hand."""
        for connection in list(self.connections):
            connection.close()

    async def shutdown(self, timeout: float) -> None:
        """End all connections: tunnels at once, others after the request at hand, or cut when it lasts longer than `timeout` seconds."""
        for connection in list(self.connections):
            connection.end_tunnel()
        if handled := self._handled():
            await asyncio.wait(handled, timeout=timeout)
        for connection in list(self.connections):
            connection.give_up()
        if late := self._handled():  # those that began meanwhile are among them
            await asyncio.wait(late, timeout=timeout)
        for connection in list(self.connections):
            connection.force_close()

    def _handled(self) -> list[asyncio.Future[None]]:
        return [handled for connection in self.connections if (handled := connection.handled()) is not None]

    # ---- for connections

    def connection_made(self, connection: ClientConnection) -> None:
        """It is open."""
        self.connections.add(connection)

    def connection_lost(self, connection: ClientConnection) -> None:
        """It is gone."""
        self.connections.discard(connection)

    # ---- for a `SecureServer`

    def arrive(self, address: str | None) -> bool | None:
        """See `Admission`."""
        entered = self._crowd.enter(address)
        if not entered and self._crowd.outside > TURNED_AWAY:
            self._crowd.leave(address, entered=False)
            self._refusals.cut()
            return None
        return entered

    def depart(self, address: str | None, *, entered: bool) -> None:
        """See `Admission`."""
        self._crowd.leave(address, entered=entered)

    def connection(self, *, entered: bool | None) -> ClientConnection:
        """See `Admission`."""
        return ClientConnection(
            *(self, self._handler, self._limits, self._memory, self._crowd, self._refusals),
            cork=self._cork,
            shapes=self._shapes,
            entered=entered,
        )
