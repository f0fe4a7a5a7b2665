"""Quotas in Redis: counted as the core counts, in the step that takes the lease, for all processes alike, and healed by themselves."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.core.model import Intent, RecordKey, Status
from gateway.core.quota import Limit, NewKeys, Quota, give_back, take
from gateway.core.units import Rate
from gateway.ports import StoreUnavailable
from gateway.ports.quotas import OverQuota
from gateway.store.quotas import QuotaCounter
from gateway.store.redis.codec import entry_key, quota_keys
from gateway.store.redis.hotpath import Acquired, HotPath, Refused, Share
from gateway.store.redis.scripts import ADMIT, ADMITTED
from tests.store.redis.authority import ShiftedClock
from tests.store.redis.support import digest, eventually, linked, token
from tests.store.redis.tiers import KEPT, Tiers, intent, key, lease_of, record_of, response, tiers
from tests.support.redis_topologies import SLOTS, Node, server_of_the_path, until

CLOCK = b"redis.call('TIME')"
TTL = b"math.ceil((tat - now) / 1000)"
NOW = 1_790_000_000_000_000
SLOW = Rate(1, 86_400)


@pytest.fixture
async def bench(redis_db: str) -> AsyncIterator[Tiers]:
    async with tiers(redis_db) as bench:
        yield bench


def limited(wanted: Intent, quota: Quota) -> Intent:
    return replace(wanted, terms=replace(wanted.terms, quota=quota))


def of(scope: str, quota: Quota, lease: float = 30.0) -> Intent:
    """A new key of this caller."""
    return limited(intent(RecordKey(scope, token().hex()), lease=lease), quota)


def again(wanted: Intent) -> Intent:
    """A retry, or a duplicate."""
    return replace(wanted, owner=token())


def at(script: bytes, now: int) -> bytes:
    """The script, with this instant as Redis' own; what it writes lasts, since real time does not count."""
    assert script.count(CLOCK) == script.count(TTL) == 1
    return script.replace(CLOCK, b"{%d, %d}" % divmod(now, 1_000_000)).replace(TTL, b"600000")


PAUSES = st.one_of(st.just(0), st.integers(0, 3_000_000), st.just(599_999_999))
STEPS = st.lists(
    st.tuples(st.sampled_from(["take", "take", "take", "undo", "leave"]), PAUSES),
    min_size=1,
    max_size=40,
)
RATES = st.builds(NewKeys, st.builds(Rate, st.integers(1, 5000), st.sampled_from([1, 60, 3600])), st.integers(1, 12))


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(keys=RATES, places=st.integers(0, 4), steps=STEPS)
async def test_redis_and_the_core_count_alike(every_redis_db: str, keys: NewKeys, places: int, steps: list[tuple[str, int]]) -> None:
    """On any trace: the same answers, the same wait to the microsecond, the same instant to the last bit."""
    scope, tat, now, running = token().hex(), 0.0, NOW, dict[bytes, int]()
    named = quota_keys(scope)
    async with linked(every_redis_db) as link:
        for step, pause in steps:
            now += pause
            running = {owner: ends for owner, ends in running.items() if ends > now}
            if step == "take":
                owner = token()
                limits = (b"%.17g" % keys.interval, keys.at_once, places, owner, 600_000)
                answer = await link.execute(b"EVAL", at(ADMIT.text, now), b"2", *named, *limits)
                wait = 0
                if places and len(running) >= places:
                    assert answer == [0]
                    continue
                tat, wait = take(tat, float(now), keys.interval, keys.at_once)
                assert answer == ([wait] if wait else None)
                running |= {owner: now + 600_000_000} if places and not wait else {}
            elif running:
                owner, _ = running.popitem()
                tat = give_back(tat, float(now), keys.interval) if step == "undo" else tat
                arguments = (step.encode(), owner, b"%.17g" % keys.interval)
                assert await link.execute(b"EVAL", at(ADMITTED.text, now), b"2", *named, *arguments) == 1
            kept = await link.execute(b"GET", named[0])
            assert isinstance(kept, bytes | None)
            assert kept is None or float(kept) == tat
            assert kept is not None or tat <= now
            assert await link.execute(b"ZCARD", named[1]) >= len(running)  # type: ignore[operator]  # a whole number
        for name in named:
            assert await link.execute(b"PTTL", name) != -1


@pytest.mark.parametrize("spread", [False, True], ids=["one-server", "as-in-a-cluster"])
async def test_a_refusal_leaves_nothing_behind(bench: Tiers, *, spread: bool) -> None:
    """Neither a lease in Redis nor a record; the next caller is not concerned; both processes count together."""
    for store in (bench.store, bench.other):
        store._hot.link.spread = spread
    quota = Quota(new_keys=NewKeys(SLOW, 2))
    for store in (bench.store, bench.other):
        lease_of(await store.reserve(of("alice", quota)))
    asked = bench.authority.asked
    refused = of("alice", quota)
    for store in (bench.store, bench.other):
        with pytest.raises(OverQuota) as over:
            await store.reserve(again(refused))
        assert await store.drain(10)
        assert over.value.exceeded.limit is Limit.NEW_KEYS
        assert 0 < over.value.exceeded.wait <= 86_400_000_000
    assert await bench.entry(refused.key) is None
    assert bench.authority.asked == asked
    assert await bench.authority.find(refused.key) is None
    lease_of(await bench.store.reserve(of("bob", quota)))


async def test_what_is_known_takes_nothing(bench: Tiers) -> None:
    """A duplicate and a replay, be they known to Redis or, where it is cold, to the authority alone."""
    quota = Quota(3, NewKeys(SLOW, 3))
    first = of("alice", quota)
    lease = lease_of(await bench.store.reserve(first))
    for _ in range(5):
        assert record_of(await bench.other.reserve(again(first))).status is Status.IN_PROGRESS
    await bench.store.complete(lease, response(), KEPT)
    bench.store.quotas.leave(lease.owner)
    assert await bench.entry(first.key) is not None
    for _ in range(5):
        assert record_of(await bench.other.reserve(again(first))).status is Status.COMPLETED
    for _ in range(5):
        await bench.forget(first.key)
        assert record_of(await bench.store.reserve(again(first))).status is Status.COMPLETED
        assert await bench.store.drain(10)
    for _ in range(2):
        lease_of(await bench.store.reserve(of("alice", quota)))
    with pytest.raises(OverQuota):
        await bench.store.reserve(of("alice", quota))


async def test_a_reserve_that_fails_gives_back_what_it_took(bench: Tiers) -> None:
    quota = Quota(1, NewKeys(SLOW, 1))
    bench.authority.away = True
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await bench.store.reserve(of("alice", quota))
        assert await bench.store.drain(10)
    bench.authority.away = False
    lease_of(await bench.store.reserve(of("alice", quota)))


async def test_a_claim_takes_a_place_and_no_new_key(bench: Tiers) -> None:
    """An operation that is known not to have run is no new one."""
    quota = Quota(1, NewKeys(SLOW, 1))
    first = of("alice", quota)
    lease = lease_of(await bench.store.reserve(first))
    await bench.store.release(lease, "no_slot", KEPT)
    bench.store.quotas.leave(lease.owner)
    assert await bench.store.drain(10)
    found = await bench.store.find(first.key)
    claimed = await bench.store.claim(record_of(found), again(first))
    assert claimed is not None
    with pytest.raises(OverQuota) as over:
        await bench.other.claim(record_of(found), again(first))
    assert over.value.exceeded.limit is Limit.IN_FLIGHT


async def test_places_are_given_back_and_end_by_themselves(bench: Tiers) -> None:
    """When the attempt leaves; and when its process is no more, with its lease. While it lives, they are held, also anew."""
    quota = Quota(2)
    left, held = [lease_of(await bench.store.reserve(of("alice", quota, lease=0.6))) for _ in range(2)]
    with pytest.raises(OverQuota) as over:
        await bench.other.reserve(of("alice", quota))
    assert over.value.exceeded.retry_after == 1
    bench.store.quotas.leave(left.owner)
    bench.store.quotas.leave(left.owner)
    assert await bench.store.drain(10)
    killed = lease_of(await bench.other.reserve(of("alice", quota, lease=0.3)))
    assert killed.owner != held.owner
    bench.clock.ahead += 0.3
    await bench.redis.execute(b"DEL", *quota_keys("alice"))
    await bench.store.quotas.tick()
    assert await bench.redis.execute(b"ZRANGE", quota_keys("alice")[1], 0, -1) == [held.owner]
    lease_of(await bench.other.reserve(of("alice", quota, lease=0.3)))
    with pytest.raises(OverQuota):
        await bench.other.reserve(of("alice", quota))
    await asyncio.sleep(0.35)
    lease_of(await bench.other.reserve(of("alice", quota)))


async def test_a_place_that_is_held_again_is_known_to_redis(bench: Tiers) -> None:
    """Also where others have taken the last one meanwhile; without a limit there is none to hold."""
    confirmed = of("carol", Quota(1))
    lease_of(await bench.other.reserve(of("carol", Quota(1))))
    bench.store.quotas.regain(confirmed)
    bench.store.quotas.regain(of("carol", Quota(new_keys=NewKeys(SLOW, 1))))
    assert bench.store.quotas.running == {"carol": 1}
    await bench.store.quotas.tick()
    held = await bench.redis.execute(b"ZRANGE", quota_keys("carol")[1], 0, -1)
    assert isinstance(held, list)
    assert confirmed.owner in held
    bench.store.quotas.leave(confirmed.owner)
    assert await bench.store.drain(10)
    assert await bench.redis.execute(b"ZSCORE", quota_keys("carol")[1], confirmed.owner) is None
    assert not bench.store.quotas.running


async def test_without_redis_each_process_counts_for_itself(bench: Tiers) -> None:
    """And gives back what was no new key, to itself."""
    quota = Quota(2, NewKeys(SLOW, 2))
    first = lease_of(await bench.store.reserve(of("bob", quota)))
    await bench.lose_redis()
    known = of("alice", quota)
    lease_of(await bench.store.reserve(known))
    for _ in range(3):
        record_of(await bench.store.reserve(again(known)))
    second = lease_of(await bench.store.reserve(of("alice", quota)))
    for limit in (Limit.IN_FLIGHT, Limit.NEW_KEYS):
        with pytest.raises(OverQuota) as over:
            await bench.store.reserve(of("alice", quota))
        assert over.value.exceeded.limit is limit
        bench.store.quotas.leave(second.owner)
    bench.clock.ahead += 2 * 86_400
    await bench.store.quotas.tick()
    assert bench.store.quotas.taken == {}
    bench.store.quotas.leave(first.owner)
    lease_of(await bench.store.reserve(of("alice", quota)))


async def test_what_redis_never_knew_it_is_not_told_the_end_of(bench: Tiers) -> None:
    """Else each attempt of an outage would leave a write behind, for as long as a lease lasts: no room for those that follow a settle."""
    await bench.lose_redis()
    for _ in range(3):
        bench.store.quotas.leave(lease_of(await bench.store.reserve(of("alice", Quota(1)))).owner)
    assert await bench.store.drain(0)


async def test_a_lost_reply_of_redis_is_counted_here(redis_db: str) -> None:
    """The lease that may have been set is taken back, whether the caller is let in or not."""
    async with tiers(redis_db, timeout=1.0) as bench:
        quota = Quota(new_keys=NewKeys(SLOW, 1))
        lease_of(await bench.other.reserve(of("bob", quota)))  # Redis knows the script
        bench.relay.swallow = True
        lost = of("alice", quota)
        lease_of(await bench.store.reserve(lost))
        bench.relay.swallow = False
        await eventually(lambda: not bench.hot.open)
        with pytest.raises(OverQuota):
            await bench.store.reserve(of("alice", quota))
        assert await bench.store.drain(10)
        assert await bench.redis.execute(b"EXISTS", entry_key(lost.key.lookup_digest())) == 0


async def test_keys_of_one_caller_are_in_one_slot_and_tell_no_name(redis_db: str) -> None:
    one, other = quota_keys("scope:alice")
    assert one.partition(b"}")[0] == other.partition(b"}")[0]
    assert b"alice" not in one + other
    async with linked(redis_db) as link:
        share = Share("scope:alice", token(), 1e9, 5, 5, 60_000)
        await HotPath(link).admit(share)
        assert {await link.execute(b"TYPE", name) for name in (one, other)} == {b"string", b"zset"}


async def test_another_key_is_not_concerned(bench: Tiers) -> None:
    """A route without a quota takes nothing of that of a route that shares its scope."""
    quota = Quota(1, NewKeys(SLOW, 1))
    scope = key().scope_id
    for _ in range(3):
        lease_of(await bench.store.reserve(intent(RecordKey(scope, token().hex()))))
    lease_of(await bench.store.reserve(of(scope, quota)))


async def test_a_retry_is_not_refused_for_the_share_of_its_own_reserve(bench: Tiers) -> None:
    """The reserve took a share, since Redis knew nothing; the claim that follows at once does not meet it."""
    quota = Quota(1, NewKeys(SLOW, 1))
    first = of("alice", quota)
    lease = lease_of(await bench.store.reserve(first))
    await bench.store.release(lease, "no_slot", KEPT)
    bench.store.quotas.leave(lease.owner)
    assert await bench.store.drain(10)
    await bench.redis.execute(b"DEL", *quota_keys("alice"))
    found = record_of(await bench.store.reserve(again(first)))
    assert await bench.store.claim(found, again(first)) is not None


async def test_who_has_an_answer_may_ask_again_at_once(bench: Tiers) -> None:
    """One operation after the other is one at a time. (To a server that has lost the script the first one leaves again, by its text, behind
    what has been asked meanwhile: it gets the script first here.)
    """
    known = bench.store.quotas.place(of("bob", Quota(1)))
    await known.take()
    known.undo()
    assert await bench.store.drain(10)
    for _ in range(3):
        lease = lease_of(await bench.store.reserve(of("alice", Quota(1))))
        await bench.store.complete(lease, response(), KEPT)
        bench.store.quotas.leave(lease.owner)


@pytest.mark.parametrize("pending", [False, True], ids=["another's-entry", "about-to-change"])
async def test_an_attempt_past_redis_takes_its_share(bench: Tiers, *, pending: bool) -> None:
    """Redis holds an entry that is no answer, or is not asked: the authority alone gives the lease."""
    quota = Quota(1, NewKeys(SLOW, 2))
    first = of("alice", quota)
    lookup = first.key.lookup_digest()
    if pending:
        bench.store._writes.write("leave", lookup, lambda told: None, bench.clock.boottime() + 60)
    else:
        await bench.redis.execute(b"SET", entry_key(lookup), b"another's")
    lease_of(await bench.store.reserve(first))
    with pytest.raises(OverQuota) as over:
        await bench.other.reserve(of("alice", quota))
    assert over.value.exceeded.limit is Limit.IN_FLIGHT


async def test_a_new_key_that_was_none_is_given_back_once(redis_db: str) -> None:
    """Also where Redis' reply to it was lost, and it is told again."""
    async with tiers(redis_db, timeout=0.5) as bench:
        quota = Quota(2, NewKeys(SLOW, 2))
        known = bench.other.quotas.place(of("bob", quota))
        await known.take()
        known.undo()  # so that Redis knows the script: a lost reply that says it does not would be taken for one that it does
        assert await bench.other.drain(10)
        lease_of(await bench.other.reserve(of("alice", quota)))
        place = bench.store.quotas.place(of("alice", quota))
        await place.take()
        bench.relay.swallow = True
        place.undo()
        await eventually(lambda: bench.hot.open)
        bench.relay.swallow = False
        assert await bench.store.drain(10)
        lease = lease_of(await bench.other.reserve(of("alice", quota)))
        bench.other.quotas.leave(lease.owner)
        with pytest.raises(OverQuota) as over:
            await bench.other.reserve(of("alice", quota))
        assert over.value.exceeded.limit is Limit.NEW_KEYS


async def test_a_cluster_of_one_node_counts(tmp_path: Path) -> None:
    """It takes keys of one slot only, as every cluster does, and is asked like one server: from the first refusal on in two steps."""
    node = Node(tmp_path / "redis", "word", {"cluster-enabled": "yes"}, server_of_the_path())
    node.start()
    try:
        node.ask("CLUSTER ADDSLOTS", *range(SLOTS))
        until(lambda: bool(node.ask("CLUSTER INFO")["cluster_state"] == "ok"))
        async with linked(node.url) as link:
            hot, share = HotPath(link), Share("alice", token(), 1e9, 5, 1, 60_000)
            with pytest.raises(StoreUnavailable):
                await hot.admit(share, (digest(), b"lease", 5000))
            assert link.spread
            assert await hot.admit(share) == Acquired()
            assert await hot.admit(share) == Refused(0)
    finally:
        node.stop()


async def test_a_process_that_counts_alone_lets_in_a_whole_burst() -> None:
    """At any instant, also between two microseconds."""
    clock = ShiftedClock()
    for step in range(200):
        clock.ahead = step / 7
        QuotaCounter(clock).place(of("alice", Quota(new_keys=NewKeys(SLOW, 1)))).take_here()
