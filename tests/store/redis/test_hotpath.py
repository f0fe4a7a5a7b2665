"""The atomic steps on one entry, on every Redis and in both forms of `acquire`."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.devtools.embedded import RedisServer, start_redis
from gateway.ports import StoreUnavailable
from gateway.store.null_observer import NullObserver
from gateway.store.redis.codec import entry_key, lease_prefix
from gateway.store.redis.hotpath import TOGETHER, Acquired, Found, HotPath
from tests.store.redis.relay import Relay
from tests.store.redis.support import Changing, complete, delete, digest, eventually, hotpath, linked, token
from tests.support.services import REDIS_VARIANTS, SYSTEM, missing, system_redis

SCRIPT = (6, 2)
"""A version whose `acquire` is the Lua script; every server knows that form."""

TTL = 60_000


class Batches(NullObserver):
    """Hears which commands were answered."""

    def __init__(self) -> None:
        self.operations: list[str] = []

    def store_operation(self, store: str, operation: str, seconds: float) -> None:
        self.operations.append(operation)


def lease(owner: bytes) -> bytes:
    return lease_prefix(owner) + b" rest"


@pytest.fixture
async def hot(every_redis_db: str) -> AsyncIterator[HotPath]:
    async with hotpath(every_redis_db) as hot:
        yield hot


@pytest.fixture(params=REDIS_VARIANTS, ids=lambda variant: f"redis-{variant}")
def own_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer]:
    """A server whose settings a test may change."""
    binary = system_redis() if request.param == SYSTEM else None
    if request.param == SYSTEM and binary is None:
        missing("redis-server 7 or newer on the PATH")
    server = start_redis(tmp_path / "redis", binary=binary)
    yield server
    server.stop()


async def ttl(url: str, lookup: bytes) -> int:
    """Milliseconds that an entry has left; -1 without a TTL, -2 without an entry."""
    async with linked(url) as link:
        left = await link.execute(b"PTTL", entry_key(lookup))
    assert isinstance(left, int)
    return left


async def test_a_free_key_is_taken(hot: HotPath) -> None:
    """The first acquire gets the key, all others learn what is there."""
    lookup, owners = digest(), [token() for _ in range(30)]
    answers = await asyncio.gather(*(hot.acquire(lookup, lease(owner), TTL) for owner in owners))
    assert answers[0] == Acquired()
    assert set(answers[1:]) == {Found(lease(owners[0]))}
    assert await hot.get(lookup) == lease(owners[0])


@pytest.mark.parametrize("version", [None, SCRIPT])
async def test_a_losing_acquire_changes_nothing(every_redis_db: str, version: tuple[int, int] | None) -> None:
    """A loser prolongs neither the winner's lease nor a completed record, and leaves their values alone."""
    lookup, owner = digest(), token()
    async with hotpath(every_redis_db, version=version) as hot:
        await hot.acquire(lookup, lease(owner), 20_000)
        assert await hot.acquire(lookup, lease(token()), TTL) == Found(lease(owner))
        assert 0 < await ttl(every_redis_db, lookup) <= 20_000
        await complete(hot, lookup, owner, b"completed", 30_000)
        assert await hot.acquire(lookup, lease(token()), TTL) == Found(b"completed")
        assert 0 < await ttl(every_redis_db, lookup) <= 30_000


async def test_an_owner_extends_completes_and_deletes(hot: HotPath, every_redis_db: str) -> None:
    """Each step works for the owner of the lease and sets the TTL that it names."""
    lookup, owner = digest(), token()
    await hot.acquire(lookup, lease(owner), 1_000)
    assert await hot.extend(lookup, owner, TTL)
    assert 1_000 < await ttl(every_redis_db, lookup) <= TTL
    assert await complete(hot, lookup, owner, b"completed", 2 * TTL)
    assert TTL < await ttl(every_redis_db, lookup) <= 2 * TTL
    other, owner = digest(), token()
    await hot.acquire(other, lease(owner), TTL)
    assert await delete(hot, other, owner)
    assert await hot.get(other) is None


async def test_another_owner_changes_nothing(hot: HotPath, every_redis_db: str) -> None:
    """No step of a foreign owner touches a lease, its value or its TTL."""
    lookup, owner, other = digest(), token(), token()
    await hot.acquire(lookup, lease(owner), 20_000)
    assert not await hot.extend(lookup, other, TTL)
    assert not await complete(hot, lookup, other, b"theirs", TTL)
    assert not await delete(hot, lookup, other)
    assert await hot.get(lookup) == lease(owner)
    assert 0 < await ttl(every_redis_db, lookup) <= 20_000


async def test_a_completed_record_never_changes(hot: HotPath) -> None:
    """Once completed, the entry is out of the reach even of the owner whose lease it was."""
    lookup, owner = digest(), token()
    completed = b"\x01\x02" + owner + b" rest"
    await hot.acquire(lookup, lease(owner), TTL)
    assert await complete(hot, lookup, owner, completed, TTL)
    assert not await complete(hot, lookup, owner, b"again", TTL)
    assert not await hot.extend(lookup, owner, 1)
    assert not await delete(hot, lookup, owner)
    assert await hot.get(lookup) == completed


async def test_a_late_write_finds_its_token_gone(hot: HotPath) -> None:
    """After a lease has ended and somebody else has taken the key, whatever its old owner still sends changes nothing."""
    lookup, owner, successor = digest(), token(), token()
    await hot.acquire(lookup, lease(owner), TTL)
    await hot.forget(lookup)
    assert not await complete(hot, lookup, owner, b"late", TTL)
    assert await hot.get(lookup) is None
    await hot.acquire(lookup, lease(successor), TTL)
    assert not await complete(hot, lookup, owner, b"late", TTL)
    assert not await delete(hot, lookup, owner)
    assert await hot.get(lookup) == lease(successor)


async def test_an_operators_deletion_outlives_late_writes(hot: HotPath) -> None:
    """What an operator deleted does not come back by a repeated or late completion."""
    lookup, owner = digest(), token()
    await hot.acquire(lookup, lease(owner), TTL)
    await complete(hot, lookup, owner, b"completed", TTL)
    assert await hot.forget(lookup)
    assert not await complete(hot, lookup, owner, b"completed", TTL)
    assert await hot.get(lookup) is None
    assert not await hot.forget(lookup)


async def test_a_completion_that_lands_after_its_timeout(redis_db: str) -> None:
    """A write that was given up may land later; over somebody else's lease it does nothing."""
    lookup, owner, successor = digest(), token(), token()
    async with Relay(redis_db) as relay, hotpath(redis_db) as direct:
        async with hotpath(relay.url, timeout=0.5) as hot:
            await hot.acquire(lookup, lease(owner), TTL)
            # Loads the script: what is late must be the write itself.
            assert await hot.extend(lookup, owner, TTL)
            relay.requests.clear()
            with pytest.raises(StoreUnavailable, match="timeout"):
                await complete(hot, lookup, owner, b"late", TTL)
        await direct.forget(lookup)
        await direct.acquire(lookup, lease(successor), TTL)
        relay.requests.set()
        await eventually(lambda: relay.idle)
        assert await direct.get(lookup) == lease(successor)


async def test_a_flush_in_flight(hot: HotPath, every_redis_db: str) -> None:
    """After a flush, which also forgets the scripts, a settle does nothing and the next acquire begins anew."""
    lookup, owner = digest(), token()
    await hot.acquire(lookup, lease(owner), TTL)
    async with linked(every_redis_db) as link:
        await link.execute(b"FLUSHALL")
        await link.execute(b"SCRIPT", b"FLUSH")
    assert not await complete(hot, lookup, owner, b"completed", TTL)
    assert await hot.get(lookup) is None
    assert await hot.acquire(lookup, lease(token()), TTL) == Acquired()


async def test_scripts_are_loaded_again(every_redis_db: str) -> None:
    """A server that has forgotten the scripts gets them again, also when many steps notice at once."""
    async with hotpath(every_redis_db, version=SCRIPT) as hot, linked(every_redis_db) as link:
        await link.execute(b"SCRIPT", b"FLUSH")
        names = [(digest(), token()) for _ in range(20)]
        assert set(await asyncio.gather(*(hot.acquire(lookup, lease(owner), TTL) for lookup, owner in names))) == {Acquired()}
        await link.execute(b"SCRIPT", b"FLUSH")
        assert all(await asyncio.gather(*(delete(hot, lookup, owner) for lookup, owner in names)))


async def test_a_full_server(own_server: RedisServer) -> None:
    """A Redis that is out of memory, and evicts nothing, counts as away until it has room: not even what it holds can be asked for."""
    lookup, owner = digest(), token()
    async with hotpath(own_server.url) as hot, linked(own_server.url) as link:
        await hot.acquire(lookup, lease(owner), TTL)
        await link.execute(b"CONFIG", b"SET", b"maxmemory-policy", b"noeviction")
        await link.execute(b"CONFIG", b"SET", b"maxmemory", b"1")
        with pytest.raises(StoreUnavailable, match="writes_refused") as caught:
            await hot.acquire(lookup, lease(token()), TTL)
        assert not caught.value.may_have_landed
        await eventually(lambda: hot.open)
        await link.execute(b"CONFIG", b"SET", b"maxmemory", b"0")
        await eventually(lambda: not hot.open)
        assert await hot.get(lookup) == lease(owner)
        assert await delete(hot, lookup, owner)


async def test_a_key_of_another_type(hot: HotPath, every_redis_db: str) -> None:
    """Somebody else's data under our key is an error of that step, and stays as it is."""
    lookup = digest()
    async with linked(every_redis_db) as link:
        await link.execute(b"LPUSH", entry_key(lookup), b"x")
    for step in (hot.acquire(lookup, lease(token()), TTL), hot.get(lookup), delete(hot, lookup, token())):
        with pytest.raises(StoreUnavailable, match="error"):
            await step
    assert not hot.open


STEPS = st.lists(
    st.tuples(st.sampled_from(("acquire", "get", "extend", "complete", "delete", "forget")), st.integers(0, 2)), min_size=1, max_size=25
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
async def test_both_forms_of_acquire_mean_the_same(every_redis_db: str, steps: list[tuple[str, int]]) -> None:
    """Whatever the steps, both forms give the same answers and values, and every entry has a TTL at all times."""
    owners = [token() for _ in range(3)]
    lookups = digest(), digest()
    async with hotpath(every_redis_db) as native, hotpath(every_redis_db, version=SCRIPT) as script, linked(every_redis_db) as link:
        for step, number in steps:
            answers = [await perform(hot, step, lookup, owners[number]) for hot, lookup in zip((native, script), lookups, strict=True)]
            assert answers[0] == answers[1]
            states = [(await link.execute(b"GET", key), await link.execute(b"PTTL", key)) for key in map(entry_key, lookups)]
            assert states[0][0] == states[1][0]
            for value, left in states:
                assert isinstance(left, int)
                assert (value is None) == (left == -2)
                assert left != -1


async def perform(hot: HotPath, step: str, lookup: bytes, owner: bytes) -> object:
    match step:
        case "acquire":
            return await hot.acquire(lookup, lease(owner), TTL)
        case "get":
            return await hot.get(lookup)
        case "extend":
            return await hot.extend(lookup, owner, TTL)
        case "complete":
            return await complete(hot, lookup, owner, b"completed by " + owner, TTL)
        case "delete":
            return await delete(hot, lookup, owner)
        case _:
            return await hot.forget(lookup)


async def test_changes_that_share_a_command_end_each_by_itself(hot: HotPath, every_redis_db: str) -> None:
    """More than one command takes: completed, deleted, another's, and none's, in any order."""
    number = 3 * TOGETHER + 1
    lookups, owners = [digest() for _ in range(number)], [token() for _ in range(number)]
    await asyncio.gather(*(hot.acquire(lookup, lease(owner), TTL) for lookup, owner in zip(lookups, owners, strict=True)))
    changes = [
        Changing(lookup, owner if place % 5 else token(), None if place % 3 else b"completed %d" % place, 2 * TTL, operation="complete")
        for place, (lookup, owner) in enumerate(zip(lookups, owners, strict=True))
    ]
    changes.insert(7, Changing(digest(), token(), b"of nothing", TTL))
    hot.settle(changes)
    assert await not_there(changes.pop(7))
    for place, (change, owner) in enumerate(zip(changes, owners, strict=True)):
        if place % 5:
            assert await change.outcome
            there = None if place % 3 else b"completed %d" % place
            assert await hot.get(change.lookup) == there
            if there is not None:
                assert TTL < await ttl(every_redis_db, change.lookup) <= 2 * TTL
        else:
            assert await not_there(change)
            assert await hot.get(change.lookup) == lease(owner)


async def not_there(change: Changing) -> bool:
    """Whether a command of many has not found the lease; that is no last word, since the key may be on another server."""
    try:
        await change.outcome
    except StoreUnavailable as error:
        return not error.may_have_landed
    return False


async def test_changes_leave_in_few_commands(every_redis_db: str) -> None:
    """Sixty-four entries, or so many bytes that the next would wait long, are one; keys on several servers are one each."""
    heard = Batches()
    async with linked(every_redis_db) as link:
        hot = HotPath(link, heard)
        for spread, size, commands in ((False, 10, 3), (False, 40_000, 65), (True, 10, 130)):
            link.spread = spread
            changes = [Changing(digest(), token(), bytes(size), TTL) for _ in range(130)]
            heard.operations.clear()
            hot.settle(changes)
            for change in changes:
                assert not await change.outcome if spread else await not_there(change)
            assert heard.operations == ["complete"] * commands


async def test_a_command_is_of_one_operation(every_redis_db: str) -> None:
    heard = Batches()
    async with linked(every_redis_db) as link:
        words = ("complete", "complete", "fill", "delete", "delete", "complete")
        changes = [Changing(digest(), token(), b"", TTL, operation=word) for word in words]
        HotPath(link, heard).settle(changes)
        await asyncio.gather(*(change.outcome for change in changes), return_exceptions=True)
    assert heard.operations == ["complete", "fill", "delete", "complete"]


async def test_a_change_that_fails_is_told_to_all_that_share_its_command(hot: HotPath, every_redis_db: str) -> None:
    """Those before it may have been made, and none is told that it was not."""
    names = [(digest(), token()) for _ in range(3)]
    await hot.acquire(names[0][0], lease(names[0][1]), TTL)
    async with linked(every_redis_db) as link:
        await link.execute(b"LPUSH", entry_key(names[1][0]), b"x")
    changes = [Changing(lookup, owner, b"completed", TTL) for lookup, owner in names]
    hot.settle(changes)
    for change in changes:
        with pytest.raises(StoreUnavailable, match="error") as caught:
            await change.outcome
        assert caught.value.may_have_landed
    assert await hot.get(names[0][0]) == b"completed"
    assert not hot.open
