"""A tier with everything that a test may want to turn: two processes' stores over one authority and one Redis, behind a relay."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

from gateway.core.model import Fingerprint, Intent, Lease, Record, RecordKey, StoredResponse, Terms, Tombstone
from gateway.ports import Retention, StoreUnavailable
from gateway.store.completed import CompletedEntry
from gateway.store.null_observer import NullObserver
from gateway.store.redis.codec import LeaseEntry, Seal, decode, entry_key
from gateway.store.redis.hotpath import HotPath
from gateway.store.redis.link import Link
from gateway.store.tiered import TieredStore
from tests.store.redis.authority import Authority, ShiftedClock
from tests.store.redis.relay import Relay
from tests.store.redis.support import digest, fingerprint, linked, token

RETENTION = 3600.0
KEPT = Retention(RETENTION)
SEAL = Seal(b"")


@dataclass(slots=True)
class Heard(NullObserver):
    """What an observer was told."""

    stale: list[str] = field(default_factory=list)
    errors: list[tuple[str, str]] = field(default_factory=list)

    def stale_write(self, operation: str) -> None:
        self.stale.append(operation)

    def store_error(self, store: str, operation: str, reason: str) -> None:
        assert store == "redis"
        self.errors.append((operation, reason))


@dataclass(slots=True)
class Tiers:
    """`store` talks to Redis through `relay`; `other` is another process's store and talks to it directly, as `redis` does."""

    store: TieredStore
    other: TieredStore
    authority: Authority
    clock: ShiftedClock
    relay: Relay
    redis: Link
    hot: HotPath
    heard: Heard

    async def entry(self, key: RecordKey) -> LeaseEntry | CompletedEntry | None:
        """What Redis holds, once it has followed."""
        assert await self.store.drain(10)
        assert await self.other.drain(10)
        lookup = key.lookup_digest()
        value = await self.redis.execute(b"GET", entry_key(lookup))
        if value is None:
            return None
        assert isinstance(value, bytes)
        entry = decode(lookup, value, SEAL)
        assert entry is not None
        return entry

    async def ttl(self, key: RecordKey) -> int:
        """Milliseconds that the entry has left."""
        left = await self.redis.execute(b"PTTL", entry_key(key.lookup_digest()))
        assert isinstance(left, int)
        return left

    async def age(self, key: RecordKey, milliseconds: int) -> None:
        """Let the entry have only so many milliseconds left."""
        assert await self.redis.execute(b"PEXPIRE", entry_key(key.lookup_digest()), milliseconds) == 1

    async def forget(self, key: RecordKey) -> None:
        """Let Redis lose the entry."""
        assert await self.redis.execute(b"DEL", entry_key(key.lookup_digest())) == 1

    async def lose_redis(self) -> None:
        """Let the relay refuse, and the store's process notice."""
        self.relay.refuse()
        while not self.hot.open:
            with suppress(StoreUnavailable):
                await self.hot.get(digest())
        self.heard.errors.clear()


@asynccontextmanager
async def tiers(url: str, *, timeout: float = 5.0, lease_ttl: float = 5.0, replay_ttl: float = 900.0) -> AsyncIterator[Tiers]:
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(Relay(url))
        far = await stack.enter_async_context(linked(relay.url, timeout=timeout))
        near = await stack.enter_async_context(linked(url))
        clock = ShiftedClock()
        authority = Authority(clock.boottime, clock.boottime)
        heard = Heard()
        hot = HotPath(far, heard)
        store = TieredStore(authority, hot, clock, lease_ttl=lease_ttl, replay_ttl=replay_ttl, max_value=4096, observer=heard)
        other = TieredStore(authority, HotPath(near), clock, lease_ttl=lease_ttl, replay_ttl=replay_ttl, max_value=4096)
        try:
            yield Tiers(store, other, authority, clock, relay, near, hot, heard)
        finally:
            await store.close(0)
            await other.close(0)


def key() -> RecordKey:
    return RecordKey("scope", token().hex())


def intent(record: RecordKey, meaning: Fingerprint | None = None, lease: float = 30.0) -> Intent:
    return Intent(record, meaning or fingerprint(), token(), Terms("route", lease, 60.0), "request-1", "POST", b"/pay")


def with_terms(wanted: Intent, *, gone_for: float | None = None, observed: bool = False) -> Intent:
    """The intent, as one of a route that answers `gone`, or that only observes."""
    return replace(wanted, terms=replace(wanted.terms, gone_for=gone_for, observed=observed))


def response(body: bytes | None = b"paid") -> StoredResponse:
    length = 0 if body is None else len(body)
    return StoredResponse(201, b"Created", ((b"Set", b"1"), (b"set", b"2")), body, length, b"d" * 32)


def lease_of(found: Lease | Record | Tombstone) -> Lease:
    assert isinstance(found, Lease)
    return found


def record_of(found: Lease | Record | Tombstone | None) -> Record:
    assert isinstance(found, Record)
    return found
