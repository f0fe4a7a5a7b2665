"""What befalls one entry of a command, or all of it, while many settles share it."""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from gateway.core.model import Lease
from gateway.ports import StoreUnavailable
from gateway.store.completed import CompletedEntry
from gateway.store.null_observer import NullObserver
from gateway.store.redis.codec import entry_key
from gateway.store.redis.hotpath import HotPath
from gateway.store.redis.writeback import Following
from tests.store.redis.sharding import Sharding
from tests.store.redis.support import Changing, digest, eventually, linked, token
from tests.store.redis.tiers import KEPT, Heard, Tiers, intent, key, lease_of, response, tiers

NUMBER = 20


async def leases(bench: Tiers) -> list[Lease]:
    return [lease_of(await bench.store.reserve(intent(key()))) for _ in range(NUMBER)]


async def test_a_foreign_value_costs_its_own_entry_alone(redis_db: str) -> None:
    async with tiers(redis_db) as bench:
        held = await leases(bench)
        foreign = entry_key(held[7].key.lookup_digest())
        await bench.redis.execute(b"DEL", foreign)
        await bench.redis.execute(b"LPUSH", foreign, b"x")
        for lease in held:
            await bench.store.complete(lease, response(), KEPT)
        del held[7]
        await eventually(lambda: bench.store._writes._number == 1)
        assert await bench.redis.execute(b"DEL", foreign) == 1
        for lease in held:
            assert isinstance(await bench.entry(lease.key), CompletedEntry)


async def test_an_answer_that_cannot_be_encoded_costs_its_own_entry_alone(redis_db: str) -> None:
    """A defect of ours: the lease goes, and the authority is asked from then on."""
    async with tiers(redis_db) as bench:
        held = await leases(bench)
        broken = replace(response(), headers=((b"Set", None),))  # type: ignore[arg-type]  # what no parser of ours makes
        for number, lease in enumerate(held):
            await bench.store.complete(lease, broken if number == 7 else response(), KEPT)
        assert await bench.store.drain(10)
        for number, lease in enumerate(held):
            assert isinstance(await bench.entry(lease.key), CompletedEntry if number != 7 else type(None))
        assert bench.heard.errors == []


async def test_behind_a_proxy_that_spreads_keys_each_entry_is_settled(redis_db: str) -> None:
    """It brings a command to the server of its first key, where the script does not find the others."""
    parts = urlsplit(redis_db)
    other = parts._replace(path="/1").geturl()
    async with linked(redis_db) as first, linked(other) as second, Sharding(first, second) as url, tiers(url) as bench:
        held = await leases(bench)
        for lease in held[1::2]:
            await bench.store.complete(lease, response(), KEPT)
        for lease in held[::2]:
            await bench.store.release(lease, "upstream_refused", KEPT)
        assert await bench.store.drain(10)
        there = [await bench.hot.get(lease.key.lookup_digest()) for lease in held]
        assert [value is not None and value[1] == 2 for value in there] == [bool(number % 2) for number in range(NUMBER)]
        assert bench.heard.stale == []


@pytest.mark.parametrize("reply", [[1], [1, 1, 1], [], [1, 2], [b"1", b"1"], [[1], [1]], [None, 1], None, 1, b"OK"])
async def test_a_reply_that_means_nothing_is_told_to_all(redis_db: str, reply: object) -> None:
    """Whatever the store says. It may have done what it was asked."""
    async with linked(redis_db) as shard, Sharding(shard, instead=reply) as url, linked(url) as link:
        heard = Heard()
        changes = [Changing(digest(), token()) for _ in range(2)]
        HotPath(link, heard).settle(changes)
        for change in changes:
            with pytest.raises(StoreUnavailable) as caught:
                await change.outcome
            assert caught.value.may_have_landed
        assert heard.errors == [("delete", "error")]
        assert not link.open


class Raising(NullObserver):
    """Breaks its contract."""

    def store_error(self, store: str, operation: str, reason: str) -> None:
        raise RuntimeError("a defect of ours")


async def test_whatever_counting_meets_each_change_is_told() -> None:
    async with linked("redis://127.0.0.1:1") as nowhere:
        hot = HotPath(nowhere, Raising())
        changes = [Changing(digest(), token()) for _ in range(3)]
        with pytest.raises(RuntimeError):
            hot.settle(changes)
        for change in changes:
            with pytest.raises(StoreUnavailable):
                await change.outcome


@contextmanager
def garbage() -> Iterator[list[object]]:
    """What only the garbage collector would free of what was made within."""
    gc.collect()
    gc.disable()
    found: list[object] = []
    try:
        yield found
    finally:
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(0)
        found += gc.garbage
        gc.garbage.clear()
        gc.enable()


async def test_writes_that_wait_for_redis_hold_no_value_and_leave_no_garbage(redis_db: str) -> None:
    """A thousand may be repeated for as long as Redis is away."""
    async with tiers(redis_db, lease_ttl=60.0) as bench:
        held = await leases(bench)
        await bench.lose_redis()
        with garbage() as found:
            for lease in held:
                await bench.store.complete(lease, response(), KEPT)
            await eventually(lambda: len(bench.heard.errors) > 3 * NUMBER)
            waiting = [one for one in gc.get_objects() if isinstance(one, Following)]
            assert len(waiting) == NUMBER
            assert {change.value for change in waiting} == {None}
            del waiting
            await bench.relay.listen()
            assert await bench.store.drain(10)
            await asyncio.sleep(0)
        assert [one for one in found if isinstance(one, Following | StoreUnavailable)] == []
