"""Values and connections that the tests of the Redis side share."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count

from gateway.core.model import Fingerprint
from gateway.ports import StoreUnavailable
from gateway.store.redis.breaker import Breaker
from gateway.store.redis.hotpath import HotPath, Outcome
from gateway.store.redis.link import Link

_numbers = count(1)


def token() -> bytes:
    """An owner token that no other call returned."""
    return next(_numbers).to_bytes(16, "big")


def digest() -> bytes:
    """A lookup digest that no other call returned."""
    return hashlib.sha256(token()).digest()


def fingerprint(text: str = "pay 5") -> Fingerprint:
    return Fingerprint(1, hashlib.sha256(b"policy").digest(), hashlib.sha256(text.encode()).digest())


def breaker(first: float = 0.02, limit: float = 0.1) -> Breaker:
    """A quick one, without jitter."""
    return Breaker(lambda: 0.5, first=first, limit=limit)


@asynccontextmanager
async def linked(url: str, *, timeout: float = 5.0) -> AsyncIterator[Link]:
    """A started link whose timeouts no slow machine reaches, unless the test asks for short ones."""
    link = Link(url, breaker(), timeout=timeout, connect_timeout=5.0)
    await link.start()
    try:
        yield link
    finally:
        await link.close()


@asynccontextmanager
async def hotpath(url: str, *, timeout: float = 5.0, version: tuple[int, int] | None = None) -> AsyncIterator[HotPath]:
    async with linked(url, timeout=timeout) as link:
        if version is not None:
            link.server = replace(link.server, version=version)
        yield HotPath(link)


class Changing:
    """One change of an entry, and what has become of it."""

    def __init__(self, lookup: bytes, owner: bytes, value: bytes | None = None, ttl_ms: int = 0, *, operation: str = "") -> None:
        self.operation = operation or ("delete" if value is None else "complete")
        self.lookup = lookup
        self.owner = owner
        self.value = value
        self.ttl_ms = ttl_ms
        self.outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def told(self, outcome: Outcome) -> None:
        if isinstance(outcome, StoreUnavailable):
            self.outcome.set_exception(outcome)
        else:
            self.outcome.set_result(outcome)


async def complete(hot: HotPath, lookup: bytes, owner: bytes, value: bytes, ttl_ms: int) -> bool:
    """Put `value` in the place of the lease of `owner`. Raises `StoreUnavailable`."""
    change = Changing(lookup, owner, value, ttl_ms)
    hot.settle((change,))
    return await change.outcome


async def delete(hot: HotPath, lookup: bytes, owner: bytes) -> bool:
    """Delete the lease of `owner`. Raises `StoreUnavailable`."""
    change = Changing(lookup, owner)
    hot.settle((change,))
    return await change.outcome


async def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until `condition` holds; fail after `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)
