"""The atomic steps on one Redis entry, one round trip each.

An entry begins as a lease, set only if the key is free, and changes afterwards only through `settle.lua`, which compares the owner token.
Redis is never asked what is new, only what is known: the authority decides.
"""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from time import perf_counter
from typing import TypeVar

from gateway.ports import StoreObserver, StoreUnavailable
from gateway.store.quiet import Quiet
from gateway.store.redis.codec import entry_key, lease_prefix
from gateway.store.redis.connection import ErrorReply
from gateway.store.redis.link import STORE, Link

T = TypeVar("T")

_SET_NX_GET = (7, 0)
"""The version from which `SET` takes NX and GET together; 6.2 answers a syntax error."""


@dataclass(frozen=True, slots=True)
class Acquired:
    """The key was free and holds our value now."""


@dataclass(frozen=True, slots=True)
class Found:
    """The key was taken; nothing was changed."""

    value: bytes


@dataclass(frozen=True, slots=True)
class _Script:
    text: bytes
    sha: bytes

    @classmethod
    def load(cls, name: str) -> "_Script":
        text = files("gateway.store").joinpath("lua", name).read_bytes()
        return cls(text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


_ACQUIRED = Acquired()
_ACQUIRE = _Script.load("acquire.lua")
_SETTLE = _Script.load("settle.lua")


class HotPath:
    """Steps on entries named by a record's lookup digest (32 bytes). All raise `StoreUnavailable` and no other error.

    Needs the Redis permissions `~idem:* +get +set +del +pexpire +eval +evalsha`, and `+info` for the faster form of `acquire`.
    """

    def __init__(self, link: Link, observer: StoreObserver | None = None) -> None:
        self._link = link
        self._observer = observer or Quiet()

    @property
    def open(self) -> bool:
        """Whether Redis is away, so that every step fails at once."""
        return self._link.open

    async def acquire(self, lookup: bytes, value: bytes, ttl_ms: int) -> Acquired | Found:
        """Set `value` for `ttl_ms` if the key is free, else report what is there. A loser changes neither the value nor its TTL."""
        key = entry_key(lookup)
        if self._link.version >= _SET_NX_GET:
            reply = await self._step("acquire", partial(self._link.enqueue, b"SET", key, value, b"NX", b"GET", b"PX", ttl_ms))
        else:
            reply = await self._step("acquire", partial(self._script, _ACQUIRE, key, value, ttl_ms))
        if reply is None:
            return _ACQUIRED
        if isinstance(reply, bytes):
            return Found(reply)
        raise StoreUnavailable(STORE, "error", may_have_landed=True)

    async def get(self, lookup: bytes) -> bytes | None:
        """What is there. Changes nothing."""
        return await self._step("get", partial(self._get, entry_key(lookup)))

    async def extend(self, lookup: bytes, owner: bytes, ttl_ms: int) -> bool:
        """Let the lease of `owner` end `ttl_ms` from now. False: it is gone."""
        return await self._step("extend", partial(self._settle, lookup, owner, b"extend", ttl_ms))

    async def complete(self, lookup: bytes, owner: bytes, value: bytes, ttl_ms: int) -> bool:
        """Put `value` for `ttl_ms` in the place of the lease of `owner`. False: it is gone; a completed entry never changes."""
        return await self._step("complete", partial(self._settle, lookup, owner, b"complete", ttl_ms, value))

    async def fill(self, lookup: bytes, owner: bytes, value: bytes, ttl_ms: int) -> bool:
        """As `complete`, for a record that `owner` found completed at the authority."""
        return await self._step("fill", partial(self._settle, lookup, owner, b"complete", ttl_ms, value))

    async def delete(self, lookup: bytes, owner: bytes) -> bool:
        """Delete the lease of `owner`. False: it is gone."""
        return await self._step("delete", partial(self._settle, lookup, owner, b"delete"))

    async def forget(self, lookup: bytes) -> bool:
        """Delete whatever is there: for operators, after the authority's record is gone. False: nothing was there."""
        return await self._step("forget", partial(self._forget, entry_key(lookup)))

    async def _step(self, operation: str, begin: Callable[[], Awaitable[T]]) -> T:
        started = perf_counter()
        try:
            result = await begin()
        except StoreUnavailable as error:
            self._observer.store_error(STORE, operation, error.reason)
            raise
        except ErrorReply:
            self._observer.store_error(STORE, operation, "error")
            # Redis itself says that it did nothing.
            raise StoreUnavailable(STORE, "error", may_have_landed=False) from None
        self._observer.store_operation(STORE, operation, perf_counter() - started)
        return result

    async def _get(self, key: bytes) -> bytes | None:
        match await self._link.execute(b"GET", key):
            case bytes() | None as value:
                return value
            case _:
                raise StoreUnavailable(STORE, "error", may_have_landed=False)

    async def _settle(self, lookup: bytes, owner: bytes, step: bytes, *arguments: bytes | int) -> bool:
        return _as_bool(await self._script(_SETTLE, entry_key(lookup), lease_prefix(owner), step, *arguments))

    async def _forget(self, key: bytes) -> bool:
        return _as_bool(await self._link.execute(b"DEL", key))

    async def _script(self, script: _Script, key: bytes, *arguments: bytes | int) -> object:
        try:
            return await self._link.execute(b"EVALSHA", script.sha, b"1", key, *arguments)
        except ErrorReply as error:
            if error.code != "NOSCRIPT":
                raise
        # EVAL also loads it, and needs no permission for SCRIPT LOAD.
        return await self._link.execute(b"EVAL", script.text, b"1", key, *arguments)


def _as_bool(reply: object) -> bool:
    match reply:
        case 1:
            return True
        case 0:
            return False
        case _:
            raise StoreUnavailable(STORE, "error", may_have_landed=True)
