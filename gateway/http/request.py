"""A client's request as the connection hands it over: one object, from the socket to the log line."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

from gateway.core.headers import Fields
from gateway.core.model import Headers
from gateway.http.request_shapes import RequestShape
from gateway.ports import Tunnel


class BodyLost(ConnectionError):
    """The body will never be whole: the client left, or broke its own framing."""


class RequestBody(Protocol):
    """The body of a request, as it comes in.

    Who takes pieces lets the client send more; what nobody takes holds it back. A body that came along with its head is `complete` at once,
    and `take` then gives all of it.
    """

    @property
    def exists(self) -> bool:
        """Whether the head announces a body. An announced length of 0 announces none."""
        ...

    @property
    def received(self) -> int:
        """Bytes of content that have come in, taken or not."""
        ...

    @property
    def complete(self) -> bool:
        """Whether all of it has come in."""
        ...

    @property
    def at_end(self) -> bool:
        """Whether all of it was taken."""
        ...

    def take(self) -> bytes:
        """What has come in and was not taken; empty if there is nothing. Raises `BodyLost`."""
        ...

    async def read(self) -> bytes:
        """As `take`, but waits until there is something: empty only at the end. One reader at a time. Raises `BodyLost`."""
        ...


class Connection(Protocol):
    """A client's connection, for those who answer its requests."""

    @property
    def address(self) -> str | None:
        """The peer's address, an IPv4-mapped one as IPv4; None on a unix socket."""
        ...

    @property
    def secure(self) -> bool:
        """Whether it is under TLS."""
        ...

    @property
    def half_closed(self) -> bool:
        """Whether the client has ended its sending. It may still be reading."""
        ...

    @property
    def upgradable(self) -> bool:
        """Whether the request at hand asked for another protocol in a way that lets `take_over` be called once it was agreed to."""
        ...

    @property
    def certificate_subject(self) -> bytes | None:
        """The subject of the client's certificate; None without one."""
        ...

    @property
    def transport(self) -> asyncio.Transport | None:
        """Where answers are written, behind all that was written before; None once nothing may be written any more."""
        ...

    def write(self, data: bytes) -> None:
        """Write now. Raises ConnectionError when the client is gone."""
        ...

    def write_whole(self, data: bytes) -> None:
        """Write all of an answer, now or at the end of this turn of the event loop (`Cork`). Raises as `write`."""
        ...

    @property
    def writing_paused(self) -> bool:
        """Whether so much is unsent that the next one who writes has to `drain` first."""
        ...

    async def drain(self) -> None:
        """Wait until writing is not paused. Raises ConnectionError when the client is gone."""
        ...

    def on_lost(self, callback: Callable[[], object], *, streaming: bool = False) -> Callable[[], None]:
        """Have `callback` called once, when the connection is lost (soon, if it is already). Returns what calls that off.

        With `streaming`, an answer is under way that may never end: then the client's ending of its side counts as well.
        """
        ...

    def take_over(self) -> Tunnel:
        """The connection's bytes, after a 101 answer was written. Only while the request is being handled, and only if `upgradable`."""
        ...


class Request:
    """One request. `target` is the request target and `fields` the field lines, both as received, values without surrounding whitespace.

    `keep_alive`: the client lets the connection be used again. The connection makes it by a factory of its handler's choice, which may be a
    subclass with further slots. `shape` is what its head has in common with others, where that is known.
    """

    __slots__ = ("body", "connection", "fields", "keep_alive", "method", "shape", "target", "version")

    def __init__(  # noqa: PLR0917 - positional, since it is called for every request
        self,
        connection: Connection,
        method: str,
        target: bytes,
        version: tuple[int, int],
        fields: Fields,
        body: RequestBody,
        keep_alive: bool,  # noqa: FBT001 - as above
        shape: RequestShape | None = None,
    ) -> None:
        self.connection = connection
        self.method = method
        self.target = target
        self.version = version
        self.fields = fields
        self.body = body
        self.keep_alive = keep_alive
        self.shape = shape

    @property
    def headers(self) -> Headers:
        """The field lines."""
        return self.fields.lines


R = TypeVar("R", bound=Request)

RequestFactory: TypeAlias = Callable[[Connection, str, bytes, tuple[int, int], Fields, RequestBody, bool, RequestShape | None], R]
"""Makes a request out of what `Request` takes."""
