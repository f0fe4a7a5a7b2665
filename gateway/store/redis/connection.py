"""One connection to Redis: an asyncio protocol with hiredis' parser. A batch of commands is one write, and its replies come in order.

Theory of operation. At most one batch is out at a time, so before each write nothing is outstanding: bytes that come then are out of
step, and end the connection; and no more than one batch is ever buffered, however slowly the server reads. One alarm stands for the
oldest command. Whatever goes wrong (a reply that does not come in time, an end of file, bytes that cannot be parsed, an exception of ours)
ends the connection for good: what is still on its way can no longer be told apart.

redis-py reads the URL and makes the TLS context. What it would do beyond that is done here, or off: it has no part in any exchange.
"""

import asyncio
import re
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, cast

import hiredis
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from gateway.runtime.alarm import Alarm
from gateway.store.redis.server import (
    MEMBER_REFUSALS,
    REFUSALS,
    Answer,
    Probe,
    Refusal,
    Server,
    Unfit,
    is_sentinel,
    judge,
    probe_key,
    questions,
)

STORE = "redis"

Opener = Callable[[], AbstractConnection]

_IN_SCRIPT = re.compile(r"@user_script: ?\d+: -?([A-Z]+) ")
"""How Redis 6 tells the error of a command within a script."""


class ErrorReply(Exception):
    """Redis answered one command with an error; the connection is in step. `code` is the error's first word, as `OOM`."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class OutOfStep(ConnectionError):
    """Redis sent a reply that no command waits for."""


class Command(ABC):
    """One packed command about `key`. `deadline` is on the event loop's clock; the link sets it.

    `future` is what its caller awaits, if it awaits anything: once that is done, the command need not be sent any more. `redirects`
    counts the nodes of a cluster that have said that the key is another's.
    """

    __slots__ = ("deadline", "future", "key", "packed", "redirects")

    def __init__(self, packed: bytes, future: "asyncio.Future[Any] | None" = None, key: bytes = b"") -> None:
        self.packed = packed
        self.future = future
        self.key = key
        self.deadline = 0.0
        self.redirects = 0

    @abstractmethod
    def take(self, reply: object) -> None:
        """The reply; an `ErrorReply` if Redis refused this command, a `StoreUnavailable` if no reply came.

        Called from the event loop, once. Should it raise, it is called once more with a `StoreUnavailable`, like all that waits behind it.
        """


class Asked(Command):
    """A command whose reply is a future's result."""

    __slots__ = ("reply",)

    def __init__(self, packed: bytes, reply: "asyncio.Future[object]") -> None:
        super().__init__(packed, reply)
        self.reply = reply

    def take(self, reply: object) -> None:
        # A caller that was cancelled has only dropped its own waiting.
        if self.reply.done():
            return
        if isinstance(reply, Exception):
            self.reply.set_exception(reply)
        else:
            self.reply.set_result(reply)


def pack_acquire(key: bytes, value: bytes, ttl_ms: int) -> bytes:
    """`SET key value NX GET PX ttl_ms` as it is sent, in a third of the time of `pack`."""
    ttl = b"%d" % ttl_ms
    return b"*7\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$2\r\nNX\r\n$3\r\nGET\r\n$2\r\nPX\r\n$%d\r\n%b\r\n" % (
        len(key),
        key,
        len(value),
        value,
        len(ttl),
        ttl,
    )


def pack(*command: bytes | int) -> bytes:
    """One command as it is sent."""
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]  # it declares a tuple of one element but takes any number
    return packed


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
    except (TypeError, RedisError) as error:
        raise ValueError(f"unusable option in the Redis URL: {error}") from None
    return make


def address_of(url: str) -> str:
    """Where a Redis URL leads, without its secrets: host:port, or a socket's path. ValueError if the URL cannot be used."""
    options = parse_url(url)
    return options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"


class Wire(asyncio.Protocol):
    """A connected, authenticated connection to a server that can serve: `server`.

    `flying` are the commands that were sent and have no reply yet. `in_step` is False once the connection has ended.
    """

    def __init__(self) -> None:
        self.server = Server()
        self.flying: deque[Command] = deque()
        self.in_step = True
        self._replied: Callable[[], None] = _nothing
        self._ended: Callable[[str, Exception], None] = self._fail_opening
        self._serving = False
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader(replyError=_error_reply)
        self._alarm = Alarm(asyncio.get_running_loop(), self._late)
        self._refusals = REFUSALS
        self._unfit: ErrorReply | None = None

    @classmethod
    async def open(cls, make: Opener, deadline: float, probe: Probe | None = None) -> "Wire":
        """Connect, log in, and make one round trip to find out whether the server can serve. `probe`: it is a node of a cluster. Raises
        Unfit, ErrorReply, OSError, or TimeoutError at `deadline`.
        """
        member = probe is not None
        wire = await cls.connect(make, deadline, member=member)
        try:
            wire.server = judge(await wire.ask(questions(probe or probe_key), deadline), member=member)
        except BaseException:
            wire.close()
            raise
        if member:
            wire._refusals = MEMBER_REFUSALS
        return wire

    @classmethod
    async def connect(cls, make: Opener, deadline: float, *, member: bool = False) -> "Wire":
        """Connect and log in, to whatever answers there, for questions alone. Raises as `open`."""
        target = make()
        wire = cls()
        try:
            async with asyncio.timeout_at(deadline):
                await _connect(target, wire)
                for answer in await wire.ask(_login(target), deadline):
                    if isinstance(answer, Refusal):
                        raise await wire._not_let_in(answer, deadline, member=member)
        except BaseException:
            wire.close()
            raise
        return wire

    def serve(self, replied: Callable[[], None], ended: Callable[[str, Exception], None]) -> None:
        """From now on call `replied` when a batch has all its replies, and `ended` with the reason's word and its cause, once, when the
        connection has ended by itself: `flying` is for the owner to fail then.
        """
        self._replied, self._ended, self._serving = replied, ended, True

    def send(self) -> None:
        """Send all of `flying`, which was empty and has been filled by the owner, in one write."""
        transport, flying = self._transport, self.flying
        assert transport is not None
        self._alarm.set(flying[0].deadline)
        transport.write(flying[0].packed if len(flying) == 1 else b"".join([command.packed for command in flying]))

    def end(self, reason: str, cause: Exception) -> None:
        """Something went wrong: cut the connection, and tell the owner."""
        if self.in_step:
            self.close()
            self._ended(reason, cause)

    def close(self) -> None:
        """Cut the connection. Nobody is told."""
        self.in_step = False
        self._alarm.stop()
        if self._transport is not None:
            self._transport.abort()

    # ---- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one without being derived from it

    def data_received(self, data: bytes) -> None:
        if not self.in_step:
            return
        reader, flying = self._reader, self.flying
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not False:
                if not flying:
                    raise OutOfStep("it sent a reply that no command waits for")
                if type(reply) is ErrorReply and self._serving and reply.code in self._refusals:
                    self._unfit = self._unfit or reply
                flying[0].take(reply)
                flying.popleft()
            if not flying:
                self._over()
        except (hiredis.ProtocolError, OutOfStep) as error:
            self.end("disconnected", error)
        except Exception as error:
            self.end("error", error)

    def connection_lost(self, error: Exception | None) -> None:
        self.end("disconnected", error or ConnectionResetError("it closed the connection"))

    # ---- what comes of it

    def _over(self) -> None:
        """All replies of a batch are there."""
        if self._reader.has_data():
            raise OutOfStep("it sent more than the replies that commands wait for")
        self._alarm.set(None)
        if self._unfit is None:
            self._replied()
        else:
            member = self._refusals is MEMBER_REFUSALS
            unfit = Unfit(self._refusals[self._unfit.code], str(self._unfit), member=member)
            self.end(unfit.reason, unfit)

    def _late(self) -> None:
        self.end("timeout", TimeoutError())

    # ---- before it serves

    def _fail_opening(self, reason: str, cause: Exception) -> None:
        """What `ask` waits for is an error; what was wrong is raised by it."""
        for command in self.flying:
            assert isinstance(command, Asked)
            if not command.reply.done():
                command.reply.set_exception(cause if isinstance(cause, OSError) else ConnectionError(str(cause)))

    async def ask(self, commands: Iterable[tuple[bytes | int, ...]], deadline: float) -> list[Answer]:
        """The replies to `commands`, in order, on a connection that does not serve and has no other question under way. Raises OSError. A
        caller that is cancelled must close the connection.
        """
        loop = asyncio.get_running_loop()
        asked = [Asked(pack(*command), loop.create_future()) for command in commands]
        if not asked:
            return []
        if not self.in_step:
            raise ConnectionResetError("it closed the connection")
        for command in asked:
            command.deadline = deadline
        self.flying.extend(asked)
        self.send()
        answers = await asyncio.gather(*(command.reply for command in asked), return_exceptions=True)
        return [_answer(answer) for answer in answers]

    async def _not_let_in(self, refusal: Refusal, deadline: float, *, member: bool) -> Exception:
        """What the refusal of a login means: a Sentinel that has no password refuses that of another server."""
        if refusal.code in REFUSALS:
            return Unfit(REFUSALS[refusal.code], refusal.text, member=member)
        if is_sentinel((await self.ask([(b"INFO", b"server")], deadline))[0]):
            return Unfit("sentinel", refusal.text)
        return ErrorReply(refusal.code, refusal.text)


async def _connect(target: AbstractConnection, wire: Wire) -> None:
    loop = asyncio.get_running_loop()
    if isinstance(target, UnixDomainSocketConnection):
        await loop.create_unix_connection(lambda: wire, target.path)
        return
    assert isinstance(target, Connection)
    tls = target.ssl_context.get() if isinstance(target, SSLConnection) else None
    transport, _ = await loop.create_connection(lambda: wire, target.host, target.port, ssl=tls)
    own: socket.socket = transport.get_extra_info("socket")
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if target.socket_keepalive:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in cast("dict[int, int]", target.socket_keepalive_options).items():
            own.setsockopt(socket.IPPROTO_TCP, option, value)


def _login(target: AbstractConnection) -> list[tuple[bytes | int, ...]]:
    """What the URL asks for before anything else: who we are, and the database."""
    commands: list[tuple[bytes | int, ...]] = []
    user, password = target.username or "", target.password or ""
    if user:
        commands.append((b"AUTH", user.encode(), password.encode()))
    elif password:
        commands.append((b"AUTH", password.encode()))
    if target.client_name:
        commands.append((b"CLIENT", b"SETNAME", target.client_name.encode()))
    if target.db:
        commands.append((b"SELECT", int(target.db)))
    return commands


def _answer(reply: object) -> Answer:
    match reply:
        case ErrorReply():
            return Refusal(reply.code, str(reply))
        case BaseException():
            raise reply
        case _:
            return reply


def _error_reply(text: str) -> ErrorReply:
    code = text.partition(" ")[0]
    if code == "ERR" and (inner := _IN_SCRIPT.search(text)):
        code, text = inner[1], text[inner.start(1) :]
    return ErrorReply(code, text.rstrip("."))


def _nothing() -> None:
    pass
