"""The proxy's listener: aiohttp's server, with client connections of our own kind."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiohttp import web
from aiohttp.web_request import BaseRequest

from gateway.http.connection import TURNED_AWAY, ClientConnection
from gateway.http.limits import ClientLimits, Crowd
from gateway.http.problem import ProblemWriter
from gateway.http.refusals import Refusals
from gateway.http.request import RequestFactory
from gateway.http.response import WireResponse
from gateway.ports import Memory


class Handler(Protocol):
    """Who answers requests."""

    @property
    def make_request(self) -> RequestFactory[Any]:
        """What makes of a head that has come in the request that `handle` takes."""
        ...

    @property
    def handle(self) -> Callable[[Any], Awaitable[WireResponse]]:
        """Answers one. What it has not written itself is written for it."""
        ...


class ProxyServer(web.Server):
    """The factory of client connections.

    `refused(reason)` is called for every connection or request that never came to be handled: `malformed`, `header_too_large`,
    `header_timeout`, `too_many_connections`, `overloaded`. `trusts(address)` says whose connections are not counted by address.
    """

    def __init__(
        self,
        proxy: Handler,
        problems: ProblemWriter,
        limits: ClientLimits,
        refused: Callable[[str], None],
        trusts: Callable[[str], bool],
        *,
        memory: Memory,
    ) -> None:
        super().__init__(_unused)
        self._handler = proxy
        self._limits = limits
        self._memory = memory
        self._refusals = Refusals(problems, refused)
        self._crowd = Crowd(limits, trusts)

    def reconfigure(self, limits: ClientLimits, trusts: Callable[[str], bool]) -> None:
        """Use other limits for new connections; those that are open keep theirs."""
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
            assert isinstance(connection, ClientConnection)
            connection.retire(quiet)

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
        make, answer = self._handler.make_request, self._handler.handle
        return ClientConnection(self, self._limits, self._memory, self._crowd, self._refusals, make=make, answer=answer, entered=entered)


async def _unused(_: BaseRequest) -> web.StreamResponse:
    """What aiohttp's server would call, had it connections of its own kind."""
    raise NotImplementedError
