"""The atomic steps on one Redis entry, one round trip each.

An entry begins as a lease, set only if the key is free, and changes afterwards only through `settle.lua`, which compares the owner token.
Redis is never asked what is new, only what is known: the authority decides.
"""

import asyncio
from collections.abc import Generator
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

from gateway.ports import StoreObserver, StoreUnavailable
from gateway.store.null_observer import Quiet
from gateway.store.redis.codec import entry_key, lease_prefix
from gateway.store.redis.connection import ErrorReply
from gateway.store.redis.link import STORE, Link
from gateway.store.redis.scripts import ACQUIRE, SETTLE, Script
from gateway.store.redis.server import REFUSALS

_SET_NX_GET = (7, 0)
"""The version from which `SET` takes NX and GET together; 6.2 answers a syntax error."""


@dataclass(frozen=True, slots=True)
class Acquired:
    """The key was free and holds our value now."""


@dataclass(frozen=True, slots=True)
class Found:
    """The key was taken; nothing was changed."""

    value: bytes


_ACQUIRED = Acquired()


class Begun(Protocol):
    """A step that is under way before anybody waits for it. Await it once for what it has done, or cancel it."""

    def __await__(self) -> Generator[Any, None, bool]: ...

    def cancel(self) -> object: ...


class HotPath:
    """Steps on entries named by a record's lookup digest (32 bytes). All raise `StoreUnavailable` and no other error.

    Those that return `Begun` have queued their command when they return, so that many of them share a round trip and one task's time.

    Needs the Redis permissions of `server.RIGHTS`; `+info` is for the faster form of `acquire`.
    """

    def __init__(self, link: Link, observer: StoreObserver | None = None) -> None:
        self._link = link
        self._observer = observer or Quiet()

    @property
    def open(self) -> bool:
        """Whether Redis is away, so that every step fails at once."""
        return self._link.open

    @property
    def instance(self) -> bytes:
        """`Server.instance` of the server that answers at present."""
        return self._link.server.instance

    async def acquire(self, lookup: bytes, value: bytes, ttl_ms: int) -> Acquired | Found:
        """Set `value` for `ttl_ms` if the key is free, else report what is there. A loser changes neither the value nor its TTL."""
        key = entry_key(lookup)
        started = perf_counter()
        try:
            if self._link.server.version >= _SET_NX_GET:
                reply = await self._link.enqueue(b"SET", key, value, b"NX", b"GET", b"PX", ttl_ms)
            else:
                arguments = (b"1", key, value, ttl_ms)
                reply = await self._run(ACQUIRE, arguments, self._link.enqueue(b"EVALSHA", ACQUIRE.sha, *arguments))
        except (StoreUnavailable, ErrorReply) as error:
            raise self._failed("acquire", error) from None
        self._observer.store_operation(STORE, "acquire", perf_counter() - started)
        if reply is None:
            return _ACQUIRED
        if isinstance(reply, bytes):
            return Found(reply)
        raise StoreUnavailable(STORE, "error", may_have_landed=True)

    async def get(self, lookup: bytes) -> bytes | None:
        """What is there. Changes nothing."""
        value = await self._plain("get", b"GET", entry_key(lookup))
        if value is None or isinstance(value, bytes):
            return value
        raise StoreUnavailable(STORE, "error", may_have_landed=False)

    def extend(self, lookup: bytes, owner: bytes, ttl_ms: int) -> Begun:
        """Let the lease of `owner` end `ttl_ms` from now. False: it is gone."""
        return self._settle("extend", lookup, owner, b"extend", ttl_ms)

    def complete(self, lookup: bytes, owner: bytes, value: bytes, ttl_ms: int) -> Begun:
        """Put `value` for `ttl_ms` in the place of the lease of `owner`. False: it is gone; a completed entry never changes."""
        return self._settle("complete", lookup, owner, b"complete", ttl_ms, value)

    def fill(self, lookup: bytes, owner: bytes, value: bytes, ttl_ms: int) -> Begun:
        """As `complete`, for a record that `owner` found completed at the authority."""
        return self._settle("fill", lookup, owner, b"complete", ttl_ms, value)

    def delete(self, lookup: bytes, owner: bytes) -> Begun:
        """Delete the lease of `owner`. False: it is gone."""
        return self._settle("delete", lookup, owner, b"delete")

    async def forget(self, lookup: bytes) -> bool:
        """Delete whatever is there: for operators, after the authority's record is gone. False: nothing was there."""
        return _as_bool(await self._plain("forget", b"DEL", entry_key(lookup)))

    async def _plain(self, operation: str, *command: bytes | int) -> object:
        started = perf_counter()
        try:
            reply = await self._link.enqueue(*command)
        except (StoreUnavailable, ErrorReply) as error:
            raise self._failed(operation, error) from None
        self._observer.store_operation(STORE, operation, perf_counter() - started)
        return reply

    def _settle(self, operation: str, lookup: bytes, owner: bytes, step: bytes, *more: bytes | int) -> Begun:
        arguments = (b"1", entry_key(lookup), lease_prefix(owner), step, *more)
        started = perf_counter()
        try:
            reply = self._link.enqueue(b"EVALSHA", SETTLE.sha, *arguments)
        except StoreUnavailable as error:
            raise self._failed(operation, error) from None
        return _Settling(self, operation, started, arguments, reply)

    async def settled(self, settling: "_Settling") -> bool:
        """The end of what `_settle` began."""
        try:
            done = _as_bool(await self._run(SETTLE, settling.arguments, settling.reply))
        except (StoreUnavailable, ErrorReply) as error:
            raise self._failed(settling.operation, error) from None
        self._observer.store_operation(STORE, settling.operation, perf_counter() - settling.started)
        return done

    async def _run(self, script: Script, arguments: "tuple[bytes | int, ...]", reply: "asyncio.Future[object]") -> object:
        """The reply of a script; of its second try, if the server did not know it."""
        try:
            return await reply
        except ErrorReply as error:
            if error.code != "NOSCRIPT":
                raise
        # EVAL also loads it, and needs no permission for SCRIPT LOAD.
        return await self._link.enqueue(b"EVAL", script.text, *arguments)

    def _failed(self, operation: str, error: StoreUnavailable | ErrorReply) -> StoreUnavailable:
        """The error for the caller, counted."""
        # Redis itself says that it did nothing.
        if isinstance(error, ErrorReply):
            error = StoreUnavailable(STORE, REFUSALS.get(error.code, "error"), may_have_landed=False)
        self._observer.store_error(STORE, operation, error.reason)
        return error


@dataclass(slots=True, eq=False)
class _Settling:
    """A run of `settle.lua` that has begun, as `Begun`."""

    hot: HotPath
    operation: str
    started: float
    arguments: "tuple[bytes | int, ...]"
    reply: "asyncio.Future[object]"

    def __await__(self) -> Generator[Any, None, bool]:
        return self.hot.settled(self).__await__()

    def cancel(self) -> object:
        return self.reply.cancel()


def _as_bool(reply: object) -> bool:
    match reply:
        case 1:
            return True
        case 0:
            return False
        case _:
            raise StoreUnavailable(STORE, "error", may_have_landed=True)
