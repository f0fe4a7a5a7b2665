"""A Redis that is rolled back to an older copy of its data: what operators have deleted since does not come back."""

import asyncio
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from gateway.core.model import Lease, RecordKey, Status
from gateway.devtools.embedded import RedisServer, start_redis
from gateway.operate.operations import By, Done, Operator
from gateway.ports import StoreUnavailable
from gateway.runtime.system import SystemClock
from gateway.store.deletions import Deletions
from gateway.store.postgres import PostgresStore
from gateway.store.redis.codec import entry_key
from gateway.store.redis.hotpath import HotPath
from gateway.store.redis.link import Link
from gateway.store.tiered import TieredStore
from tests.store.redis.support import linked
from tests.store.redis.tiers import KEPT, intent, lease_of, record_of, response

BY = By("alice", "GDPR")


@dataclass(slots=True)
class House:
    folder: Path
    server: RedisServer
    link: Link
    authority: PostgresStore
    deletions: Deletions
    store: TieredStore
    operator: Operator

    async def completed(self) -> RecordKey:
        """A completed record, in Redis too."""
        key = RecordKey("payments:none", secrets.token_hex(8))
        await self.store.complete(lease_of(await self.store.reserve(intent(key))), response(), KEPT)
        assert await self.store.drain(10)
        return key

    async def copy(self) -> None:
        await self.link.execute(b"SAVE")
        shutil.copy(self.folder / "dump.rdb", self.folder / "copy.rdb")

    async def roll_back(self) -> None:
        """The server starts again from the copy; returns when the link is on it."""
        before = self.link.server.instance
        self.server.stop()
        shutil.copy(self.folder / "copy.rdb", self.folder / "dump.rdb")
        self.server = start_redis(self.folder, port=self.server.port)
        async with asyncio.timeout(10):
            while self.link.open or self.link.server.instance == before:
                with suppress(StoreUnavailable):
                    await self.link.execute(b"PING")
                await asyncio.sleep(0)

    async def from_redis(self, key: RecordKey) -> bool:
        """Whether a retry is replayed, and from Redis: an entry does not know its record's version."""
        return record_of(await self.store.reserve(intent(key))).version == 0


@pytest.fixture
async def house(tmp_path: Path, database: str) -> AsyncIterator[House]:
    server = start_redis(tmp_path / "redis")
    async with AsyncExitStack() as stack:
        link = await stack.enter_async_context(linked(server.url))
        authority = PostgresStore(database, pool_size=2, timeout=30)
        stack.push_async_callback(authority.close)
        clock = SystemClock()
        deletions = Deletions(authority.deletions, lambda: link.eras.last, authority.now_us, clock)
        store = TieredStore(authority, HotPath(link), clock, deletions=deletions)
        operator = Operator(authority.operations, authority.reconciliation, dict, store.forget)
        house = House(tmp_path / "redis", server, link, authority, deletions, store, operator)
        yield house
        await store.close(0)
        house.server.stop()


async def test_a_deleted_answer_does_not_come_back_with_an_older_copy(house: House) -> None:
    """Redis had acknowledged the deletion, and is then started from a copy of before: the next request runs. What was not deleted is
    replayed from there as ever, once the deletions were read for this run of the server.
    """
    await house.deletions.refresh()
    deleted, kept = await house.completed(), await house.completed()
    assert await house.from_redis(deleted)
    await house.copy()
    done = await house.operator.delete(deleted, BY)
    assert isinstance(done, Done)
    assert done.redis_wait == 0.0
    await house.roll_back()
    assert not await house.from_redis(kept)
    await house.deletions.refresh()
    assert await house.from_redis(kept)
    lease = lease_of(await house.store.reserve(intent(deleted)))
    await house.store.complete(lease, response(b"anew"), KEPT)
    found = record_of(await house.store.reserve(intent(deleted)))
    assert (found.status, found.response) == (Status.COMPLETED, response(b"anew"))


async def test_an_older_copy_is_not_believed_before_the_deletions_were_read(house: House) -> None:
    """Also a gateway that has not heard of the deletion yet runs the next request."""
    await house.deletions.refresh()
    key = await house.completed()
    await house.copy()
    await house.operator.delete(key, BY)
    await house.roll_back()
    assert isinstance(await house.store.reserve(intent(key)), Lease)


async def test_what_comes_back_in_the_same_run_is_known_after_the_next_reading(house: House) -> None:
    """As where a proxy leads to a promoted replica without cutting the connection: the deletion was read meanwhile."""
    key = await house.completed()
    value = await house.link.execute(b"DUMP", name := entry_key(key.lookup_digest()))
    assert isinstance(value, bytes)
    await house.operator.delete(key, BY)
    await house.deletions.refresh()
    await house.link.execute(b"RESTORE", name, 60_000, value)
    assert isinstance(await house.store.reserve(intent(key)), Lease)


async def test_nothing_is_replayed_from_redis_before_the_first_reading(house: House) -> None:
    """A process that has just started knows no deletions yet: Postgres answers."""
    key = await house.completed()
    assert not await house.from_redis(key)
    await house.deletions.refresh()
    assert await house.from_redis(key)


class Authority:
    """What a list of deletions is read from."""

    def __init__(self) -> None:
        self.lives: dict[int, tuple[UUID, int]] = {}
        self.asked: list[int] = []
        self.away = False

    async def read(self, after: int) -> tuple[int, dict[UUID, int]]:
        self.asked.append(after)
        if self.away:
            raise StoreUnavailable("memory", "refused", may_have_landed=False)
        return max(self.lives, default=0), dict(life for number, life in self.lives.items() if number > after)


async def test_only_what_is_new_is_read_and_what_has_expired_is_forgotten() -> None:
    """After an outage, and from an authority that is behind (restored from a backup), everything is read anew."""
    authority, now = Authority(), 100
    lives = [UUID(int=number) for number in range(4)]
    deletions = Deletions(authority.read, lambda: 1, lambda: now, SystemClock())
    authority.lives = {1: (lives[1], 150), 2: (lives[2], 250)}
    await deletions.refresh()
    assert [deletions.believes(life, 1) for life in lives] == [True, False, False, True]
    now = 200
    authority.lives = {3: (lives[3], 300)}
    await deletions.refresh()
    assert [deletions.believes(life, 1) for life in lives] == [True, True, False, False]
    authority.away = True
    with pytest.raises(StoreUnavailable):
        await deletions.refresh()
    assert not deletions.believes(lives[2], 1)
    authority.away = False
    await deletions.refresh()
    assert authority.asked == [0, 2, 3, 0]
    authority.lives = {1: (lives[0], 300)}
    await deletions.refresh()
    assert authority.asked[-2:] == [3, 0]
    assert not deletions.believes(lives[0], 1)
