"""One connection to Redis: redis-py connects, authenticates and parses; a batch of commands is one write and its replies in order.

Retries, health checks, push messages and client names are off. Whoever gets an exception from here must close the connection: what is
still on its way can no longer be told apart.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

Opener = Callable[[], AbstractConnection]


class ErrorReply(Exception):
    """Redis answered one command with an error; the connection is in step. `code` is the error's first word, as `OOM`."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(slots=True, eq=False)
class Command:
    """One packed command and who waits for it. `deadline` is on the event loop's clock."""

    packed: bytes
    deadline: float
    reply: asyncio.Future[object]


def opener(url: str) -> Opener:
    """A maker of unconnected connections for `redis://`, `rediss://` or `unix://`. ValueError if the URL cannot be used."""
    options: dict[str, Any] = dict(parse_url(url))
    connection_class: type[AbstractConnection] = options.pop("connection_class", Connection)
    # Ours win over what the URL's query may say: a driver that retries or times out by itself would hide lost replies.
    options |= {
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
        "health_check_interval": 0,
        "socket_timeout": None,
        "socket_connect_timeout": None,
        "decode_responses": False,
        "driver_info": None,
    }

    def make() -> AbstractConnection:
        return connection_class(**options)

    try:
        make()
    except TypeError as error:
        raise ValueError(f"unusable option in the Redis URL: {error}") from None
    return make


class Wire:
    """A connected, authenticated connection. `version` is the server's (major, minor), (0, 0) when it would not tell."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self.version = (0, 0)

    @classmethod
    async def open(cls, make: Opener, deadline: float) -> "Wire":
        """Connect and make one round trip. Raises RedisError, ErrorReply, OSError, or TimeoutError at `deadline`."""
        wire = cls(make())
        try:
            async with asyncio.timeout_at(deadline):
                await wire._connection.connect()  # type: ignore[no-untyped-call]  # redis-py leaves it unannotated
                wire.version = await wire._ask_version()
        except BaseException:
            await wire.close()
            raise
        return wire

    async def in_step(self) -> bool:
        """Whether nothing is there to be read, as it must be before a batch is sent: no end of file, no reply that nobody waits for."""
        return not await self._connection.can_read()

    async def exchange(self, batch: Sequence[Command]) -> None:
        """Send all of `batch` in one write, and give each command its own reply. TimeoutError at the first one's deadline."""
        async with asyncio.timeout_at(batch[0].deadline):
            await self._connection.send_packed_command([command.packed for command in batch], check_health=False)
            for command in batch:
                try:
                    reply = await self._connection.read_response(disconnect_on_error=False)
                except RedisError as error:
                    refusal = _as_reply(error)
                    if not command.reply.done():
                        command.reply.set_exception(refusal)
                else:
                    # A caller that was cancelled has only dropped its own waiting.
                    if not command.reply.done():
                        command.reply.set_result(reply)

    async def close(self) -> None:
        await self._connection.disconnect(nowait=True)

    async def _ask_version(self) -> tuple[int, int]:
        await self._connection.send_command("INFO", "server", check_health=False)
        try:
            reply = await self._connection.read_response(disconnect_on_error=False)
        except RedisError as error:
            refusal = _as_reply(error)
            if refusal.code != "NOPERM":
                raise refusal from None
            return (0, 0)
        for line in reply.splitlines() if isinstance(reply, bytes) else ():
            name, _, value = line.partition(b":")
            if name == b"redis_version":
                major, _, rest = value.partition(b".")
                minor = rest.partition(b".")[0]
                return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)
        return (0, 0)


def _as_reply(error: RedisError) -> ErrorReply:
    """What Redis answered. Raises `error` itself if that was no answer.

    redis-py makes connection errors out of some replies (LOADING, NOAUTH); the status code tells that it was a reply.
    """
    if isinstance(error, ResponseError) or error.status_code is not None:
        return ErrorReply(error.status_code or str(error).partition(" ")[0])
    raise error
