"""Shared looks: one at a time for each key, and none that began before its asker came."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.core.model import Record, RecordKey
from gateway.ports import StoreUnavailable
from gateway.store.looks import Looks
from tests.store.redis.support import eventually
from tests.store.redis.tiers import key


class Told:
    """An authority that tells how many looks it had begun when this one began; each waits for its turn."""

    def __init__(self) -> None:
        self.begun = 0
        self.turns = asyncio.Semaphore(0)
        self.away = False

    async def find(self, key: RecordKey) -> Record | None:
        self.begun += 1
        await self.turns.acquire()
        if self.away:
            raise StoreUnavailable("memory", "refused", may_have_landed=False)
        return None


@asynccontextmanager
async def looking() -> AsyncIterator[tuple[Told, Looks]]:
    told = Told()
    looks = Looks(told.find)
    yield told, looks
    await looks.close()


async def test_a_crowd_shares_two_looks() -> None:
    """Those who ask before the look begins share it; all who come while it runs share the next, however many they are."""
    async with looking() as (told, looks):
        record = key()
        first = [asyncio.ensure_future(looks.find(record)) for _ in range(100)]
        await eventually(lambda: told.begun == 1)
        second = [asyncio.ensure_future(looks.find(record)) for _ in range(100)]
        await asyncio.sleep(0)
        told.turns.release()
        await asyncio.gather(*first)
        assert not any(look.done() for look in second)
        await eventually(lambda: told.begun == 2)
        told.turns.release()
        await asyncio.gather(*second)
        assert told.begun == 2


async def test_keys_do_not_wait_for_each_other() -> None:
    async with looking() as (told, looks):
        asked = [asyncio.ensure_future(looks.find(key())) for _ in range(3)]
        await eventually(lambda: told.begun == 3)
        for _ in asked:
            told.turns.release()
        await asyncio.gather(*asked)


async def test_an_error_is_told_to_all_and_ends_with_its_look() -> None:
    async with looking() as (told, looks):
        record = key()
        told.away = True
        asked = [asyncio.ensure_future(looks.find(record)) for _ in range(3)]
        await eventually(lambda: told.begun == 1)
        late = asyncio.ensure_future(looks.find(record))
        await asyncio.sleep(0)
        told.turns.release()
        for one in asked:
            with pytest.raises(StoreUnavailable):
                await one
        told.away = False
        told.turns.release()
        assert await late is None


async def test_one_who_leaves_takes_nobody_along() -> None:
    """Nor a look whose askers have all left: what it would have told concerns nobody."""
    async with looking() as (told, looks):
        record = key()
        leaving, staying = asyncio.ensure_future(looks.find(record)), asyncio.ensure_future(looks.find(record))
        await eventually(lambda: told.begun == 1)
        leaving.cancel()
        told.turns.release()
        assert await staying is None
        with pytest.raises(asyncio.CancelledError):
            await leaving
