"""One connection to Redis: redis-py connects, authenticates and parses; a batch of commands is one write and its replies in order.

Retries, health checks, push messages and client names are off. Whoever gets an exception from here must close the connection: what is
still on its way can no longer be told apart.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from gateway.store.redis.server import REFUSALS, Answer, Refusal, Server, Unfit, judge, questions

Opener = Callable[[], AbstractConnection]

_IN_SCRIPT = re.compile(r"@user_script: ?\d+: -?([A-Z]+) ")
"""How Redis 6 tells the error of a command within a script."""


class ErrorReply(Exception):
    """Redis answered one command with an error; the connection is in step. `code` is the error's first word, as `OOM`."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
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


def address_of(url: str) -> str:
    """Where a Redis URL leads, without its secrets: host:port, or a socket's path. ValueError if the URL cannot be used."""
    options = parse_url(url)
    return options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"


class Wire:
    """A connected, authenticated connection to a server that can serve: `server`."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self.server = Server()

    @classmethod
    async def open(cls, make: Opener, deadline: float) -> "Wire":
        """Connect, and make one round trip to find out whether the server can serve. Raises Unfit, RedisError, ErrorReply, OSError, or
        TimeoutError at `deadline`.
        """
        wire = cls(make())
        try:
            async with asyncio.timeout_at(deadline):
                await wire._connect()
                wire.server = judge(await wire._ask(questions()))
        except BaseException:
            await wire.close()
            raise
        return wire

    async def in_step(self) -> bool:
        """Whether nothing is there to be read, as it must be before a batch is sent: no end of file, no reply that nobody waits for."""
        return not await self._connection.can_read()

    async def exchange(self, batch: Sequence[Command]) -> ErrorReply | None:
        """Send all of `batch` in one write, and give each command its own reply. TimeoutError at the first one's deadline.

        Returns the first reply that is about the server: it cannot serve any more.
        """
        unfit: ErrorReply | None = None
        async with asyncio.timeout_at(batch[0].deadline):
            await self._connection.send_packed_command([command.packed for command in batch], check_health=False)
            for command in batch:
                try:
                    reply = await self._connection.read_response(disconnect_on_error=False)
                except RedisError as error:
                    refusal = _as_reply(error)
                    if refusal.code in REFUSALS:
                        unfit = unfit or refusal
                    if not command.reply.done():
                        command.reply.set_exception(refusal)
                else:
                    # A caller that was cancelled has only dropped its own waiting.
                    if not command.reply.done():
                        command.reply.set_result(reply)
        return unfit

    async def close(self) -> None:
        await self._connection.disconnect(nowait=True)

    async def _connect(self) -> None:
        try:
            await self._connection.connect()  # type: ignore[no-untyped-call]  # redis-py leaves it unannotated
        except RedisError as error:
            refusal = _as_reply(error)
            if refusal.code not in REFUSALS:
                raise refusal from error
            raise Unfit(REFUSALS[refusal.code], str(refusal)) from error

    async def _ask(self, commands: Sequence[tuple[bytes | int, ...]]) -> list[Answer]:
        # hiredis declares a tuple of one element but takes any number
        packed = [hiredis.pack_command(command) for command in commands]  # type: ignore[arg-type]
        await self._connection.send_packed_command(packed, check_health=False)
        answers: list[Answer] = []
        for _ in commands:
            try:
                answers.append(await self._connection.read_response(disconnect_on_error=False))
            except RedisError as error:
                refusal = _as_reply(error)
                answers.append(Refusal(refusal.code, str(refusal)))
        return answers


def _as_reply(error: RedisError) -> ErrorReply:
    """What Redis answered. Raises `error` itself if that was no answer.

    redis-py makes connection errors out of some replies (LOADING, NOAUTH); the status code tells that it was a reply.
    """
    if isinstance(error, ResponseError) or error.status_code is not None:
        text = str(error)
        code = error.status_code or text.partition(" ")[0]
        if code == "ERR" and (inner := _IN_SCRIPT.search(text)):
            code, text = inner[1], text[inner.start(1) :]
        return ErrorReply(code, (text if text.startswith(code) else f"{code} {text}").rstrip("."))
    raise error
