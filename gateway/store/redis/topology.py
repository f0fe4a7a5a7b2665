"""What the steps on entries need of the servers of a Redis URL, be it one server, a primary among Sentinels or a cluster."""

from typing import Protocol

from gateway.store.redis.connection import Command, ErrorReply
from gateway.store.redis.server import Server


class Eras:
    """Numbers the eras of the servers of one URL. Within one era of an entry's place nothing that Redis has acknowledged was taken back,
    as far as can be told: a server that starts anew, a replica that is promoted, and a slot that moves begin another one.
    """

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0

    def begin(self) -> int:
        self.last += 1
        return self.last


class Topology(Protocol):
    """`server` is the one that answers at present, or did last; of several, `version` is that of the oldest. `spread`: keys are on several
    servers, so that no step may have keys of two slots.
    """

    spread: bool
    server: Server
    eras: Eras

    @property
    def open(self) -> bool:
        """Whether Redis is away: calls then fail at once."""
        ...

    async def start(self) -> None:
        """Begin, and return when the first attempts to connect have ended, well or not."""
        ...

    async def close(self) -> None:
        """Fail what waits and cut the connections. May be called repeatedly."""
        ...

    def send(self, command: Command) -> None:
        """Queue one command for the next write. Raises `StoreUnavailable` when it cannot be queued; then `command` hears of nothing."""
        ...

    def redirect(self, command: Command, error: ErrorReply) -> None:
        """A node has refused `command` with one of `REDIRECTS`: queue it for the node that it names. Raises `error`, or as `send`."""
        ...

    def era(self, lookup: bytes) -> int:
        """That of the entry of a record (32 bytes) at present."""
        ...
