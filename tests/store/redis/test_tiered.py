"""Redis in front of an authority: what is answered from where, what enters Redis, and what happens while either is away."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gateway.core.model import Status, Tombstone
from gateway.core.packing import ZLIB
from gateway.ports import Retention, StoreUnavailable, Transition
from gateway.store.completed import CompletedEntry
from gateway.store.redis.codec import LeaseEntry, entry_key
from tests.store.redis.support import eventually, fingerprint, token
from tests.store.redis.tiers import KEPT, RETENTION, Heard, Tiers, intent, key, lease_of, record_of, response, tiers, with_terms


@pytest.fixture
async def bench(redis_db: str) -> AsyncIterator[Tiers]:
    async with tiers(redis_db) as bench:
        yield bench


# ---- what Redis may answer


async def test_a_duplicate_of_an_attempt_here_asks_nobody(bench: Tiers) -> None:
    """A duplicate of an attempt of this very process is told from the lease in Redis, without the authority."""
    first = intent(key())
    lease_of(await bench.store.reserve(first))
    asked = bench.authority.asked
    found = record_of(await bench.store.reserve(intent(first.key)))
    assert (found.status, found.lease_live, found.expired) == (Status.IN_PROGRESS, True, False)
    assert (found.fingerprint, found.owner, found.key) == (first.fingerprint, first.owner, first.key)
    assert bench.authority.asked == asked


async def test_a_replay_is_known_to_redis(bench: Tiers) -> None:
    """A completed record is answered from Redis as the authority would answer it, in another process too."""
    record = key()
    lease = lease_of(await bench.store.reserve(intent(record)))
    settled = await bench.store.complete(lease, response(), KEPT)
    assert isinstance(await bench.entry(record), CompletedEntry)
    asked = bench.authority.asked
    for store in (bench.store, bench.other):
        found = record_of(await store.reserve(intent(record)))
        assert (found.status, found.response, found.request_id) == (Status.COMPLETED, response(), "request-1")
        assert (found.record_id, found.attempt, found.owner) == (lease.record_id, 1, lease.owner)
        assert found.expires_at_us == settled.expires_at_us
        assert found.expires_in is not None
        assert RETENTION - 60 < found.expires_in <= RETENTION
        assert not found.expired
    assert bench.authority.asked == asked


async def test_another_fingerprint_is_the_authoritys_business(bench: Tiers) -> None:
    """A mismatch is never told from Redis, neither on a lease nor on a completed record."""
    record = key()
    lease = lease_of(await bench.store.reserve(intent(record)))
    found = record_of(await bench.other.reserve(intent(record, fingerprint("pay 6"))))
    assert (found.fingerprint, found.record_id) == (fingerprint(), lease.record_id)
    await bench.store.complete(lease, response(), KEPT)
    assert isinstance(await bench.entry(record), CompletedEntry)
    asked = bench.authority.asked
    found = record_of(await bench.other.reserve(intent(record, fingerprint("pay 6"))))
    assert (found.fingerprint, found.status) == (fingerprint(), Status.COMPLETED)
    assert bench.authority.asked == asked + 1


async def test_a_lease_that_the_authority_refuses_does_not_stand_in_the_way(bench: Tiers) -> None:
    """While a request that will come to nothing has its lease in Redis, the one that the authority lets in runs without an entry."""
    record = key()
    bench.authority.gate.clear()
    idle = asyncio.ensure_future(bench.other.reserve(intent(record, fingerprint("pay 6"))))
    await eventually(lambda: bench.authority.asked == 1)
    winner = asyncio.ensure_future(bench.store.reserve(intent(record)))
    await eventually(lambda: bench.authority.asked == 2)
    idle.cancel()
    with pytest.raises(asyncio.CancelledError):
        await idle
    bench.authority.gate.set()
    lease = lease_of(await winner)
    await bench.store.complete(lease, response(), KEPT)
    assert await bench.entry(record) is None


async def test_a_value_of_another_release_is_not_read(bench: Tiers) -> None:
    """A value of an unknown format leads to the authority and stays as it is."""
    record = key()
    name = entry_key(record.lookup_digest())
    await bench.redis.execute(b"SET", name, b"\x09future", b"PX", 60_000)
    lease = lease_of(await bench.store.reserve(intent(record)))
    assert await bench.store.find(record) is not None
    await bench.store.complete(lease, response(), KEPT)
    assert await bench.store.drain(10)
    assert await bench.redis.execute(b"GET", name) == b"\x09future"


async def test_an_altered_entry_is_not_served(bench: Tiers) -> None:
    """A byte of the body, or of a header, was changed in Redis: the authority is asked, and tells the answer as it was."""
    for altered in (b"paid", b"Set"):
        record = key()
        await bench.store.complete(lease_of(await bench.store.reserve(intent(record))), response(), KEPT)
        assert isinstance(await bench.entry(record), CompletedEntry)
        name = entry_key(record.lookup_digest())
        value = await bench.redis.execute(b"GET", name)
        assert isinstance(value, bytes)
        await bench.redis.execute(b"SET", name, value.replace(altered, altered[::-1]), b"KEEPTTL")
        asked = bench.authority.asked
        assert record_of(await bench.other.reserve(intent(record))).response == response()
        assert bench.authority.asked == asked + 1


async def test_an_expired_record_is_not_served(bench: Tiers) -> None:
    """An entry outlives its record's expiry in Redis, and still is no answer from that instant on."""
    record = key()
    lease = lease_of(await bench.store.reserve(intent(record)))
    await bench.store.complete(lease, response(), Retention(60.0))
    assert isinstance(await bench.entry(record), CompletedEntry)
    bench.clock.ahead += 60.0
    asked = bench.authority.asked
    assert record_of(await bench.store.reserve(intent(record))).expired
    assert bench.authority.asked == asked + 1


async def test_without_the_authoritys_clock_nothing_is_replayed(bench: Tiers) -> None:
    """A process that has not heard from the authority yet cannot know what has expired, and asks."""
    record = key()
    await bench.store.complete(lease_of(await bench.store.reserve(intent(record))), response(), KEPT)
    assert isinstance(await bench.entry(record), CompletedEntry)
    bench.authority.silent = True
    asked = bench.authority.asked
    assert record_of(await bench.other.reserve(intent(record))).status is Status.COMPLETED
    assert bench.authority.asked == asked + 1


async def test_a_process_knows_its_own_settles_before_redis_does(bench: Tiers) -> None:
    """Between the commit and the end of the Redis write, the process that settled asks the authority instead of its own old lease."""
    record = key()
    lease = lease_of(await bench.store.reserve(intent(record)))
    bench.relay.requests.clear()
    await bench.store.complete(lease, response(), KEPT)
    assert record_of(await bench.store.reserve(intent(record))).status is Status.COMPLETED
    bench.relay.requests.set()
    assert isinstance(await bench.entry(record), CompletedEntry)


# ---- what enters Redis


async def test_a_lease_enters_with_a_short_life(bench: Tiers) -> None:
    """A Redis lease lasts 5 s, or half of a shorter lease at the authority, so that it never outlives the latter."""
    for lease, longest in ((30.0, 5_000), (2.0, 1_000)):
        first = intent(key(), lease=lease)
        lease_of(await bench.store.reserve(first))
        assert await bench.entry(first.key) == LeaseEntry(first.fingerprint, first.owner)
        assert 0 < await bench.ttl(first.key) <= longest


async def test_a_completed_record_lives_as_long_as_its_record_or_the_replay_time(bench: Tiers) -> None:
    """Its TTL is what is left of the record, at most 15 minutes."""
    for retention, longest in ((RETENTION, 900_000), (20.0, 20_000)):
        record = key()
        await bench.store.complete(lease_of(await bench.store.reserve(intent(record))), response(), Retention(retention))
        assert isinstance(await bench.entry(record), CompletedEntry)
        assert longest - 15_000 < await bench.ttl(record) <= longest


async def test_a_response_without_its_body_is_replayed_without_it(bench: Tiers) -> None:
    """That the body was not kept is known to Redis as well."""
    record = key()
    await bench.store.complete(lease_of(await bench.store.reserve(intent(record))), response(None), KEPT)
    assert isinstance(await bench.entry(record), CompletedEntry)
    assert record_of(await bench.other.reserve(intent(record))).response == response(None)


async def test_a_packed_response_is_replayed_as_it_was_packed(bench: Tiers) -> None:
    """Its size in Redis is that of the packed body, however long the plain one; and a record that Redis lost enters packed again."""
    record = key()
    packed = replace(response(b"packed"), body_length=1_000_000, encoding=ZLIB)
    await bench.store.complete(lease_of(await bench.store.reserve(intent(record))), packed, KEPT)
    for _ in range(2):
        assert isinstance(await bench.entry(record), CompletedEntry)
        asked = bench.authority.asked
        assert record_of(await bench.other.reserve(intent(record))).response == packed
        assert bench.authority.asked == asked
        await bench.forget(record)
        assert record_of(await bench.store.reserve(intent(record))).response == packed
        assert bench.authority.asked == asked + 1


async def test_a_large_response_stays_out(bench: Tiers) -> None:
    """A record above the size bound has no entry: its lease goes, and replays come from the authority."""
    record = key()
    await bench.store.complete(lease_of(await bench.store.reserve(intent(record))), response(bytes(5000)), KEPT)
    assert await bench.entry(record) is None
    assert record_of(await bench.store.reserve(intent(record))).response == response(bytes(5000))
    assert await bench.entry(record) is None


async def test_a_record_that_redis_lost_enters_again(bench: Tiers) -> None:
    """A completed record read from the authority replaces the lease that was set to ask for it, also for one who meant something else."""
    for meaning in (fingerprint(), fingerprint("pay 6")):
        record = key()
        lease = lease_of(await bench.store.reserve(intent(record)))
        await bench.store.complete(lease, response(), KEPT)
        assert await bench.store.drain(10)
        await bench.forget(record)
        found = record_of(await bench.other.reserve(intent(record, meaning)))
        entry = await bench.entry(record)
        assert isinstance(entry, CompletedEntry)
        assert (entry.owner, entry.fingerprint, entry.version) == (lease.owner, fingerprint(), found.version)
        assert await bench.ttl(record) > 5_000


@pytest.mark.parametrize("state", ["in_progress", "unknown", "failed_retryable", "expired"])
async def test_what_is_not_final_does_not_enter(bench: Tiers, state: str) -> None:
    """A lease set to ask for a record that is not completed is taken back."""
    record = key()
    lease = lease_of(await bench.store.reserve(intent(record)))
    match state:
        case "unknown":
            await bench.store.doubt(lease, "upstream_timeout")
        case "failed_retryable":
            await bench.store.release(lease, "connection_refused", KEPT)
        case "expired":
            await bench.store.complete(lease, response(), Retention(10.0))
            bench.clock.ahead += 11.0
        case _:
            pass
    if await bench.entry(record) is not None:
        await bench.forget(record)
    found = record_of(await bench.other.reserve(intent(record)))
    assert found.expired if state == "expired" else found.status == state
    assert await bench.entry(record) is None


async def test_a_claimed_attempt_has_no_entry(bench: Tiers) -> None:
    """An attempt that was claimed runs and completes without Redis; the next reserve brings its record in."""
    record = key()
    await bench.store.release(lease_of(await bench.store.reserve(intent(record))), "connection_refused", KEPT)
    found = record_of(await bench.store.reserve(intent(record)))
    lease = await bench.store.claim(found, intent(record))
    assert lease is not None
    assert await bench.entry(record) is None
    await bench.store.complete(lease, response(), KEPT)
    assert await bench.entry(record) is None
    assert record_of(await bench.store.reserve(intent(record))).status is Status.COMPLETED
    entry = await bench.entry(record)
    assert isinstance(entry, CompletedEntry)
    assert entry.attempt == 2


@pytest.mark.parametrize("settle", ["release", "doubt"])
async def test_release_and_doubt_delete_the_lease(bench: Tiers, settle: str) -> None:
    """An attempt that did not complete leaves nothing in Redis."""
    record = key()
    lease = lease_of(await bench.store.reserve(intent(record)))
    if settle == "release":
        await bench.store.release(lease, "connection_refused", KEPT)
    else:
        await bench.store.doubt(lease, "upstream_timeout")
    assert await bench.entry(record) is None
    assert bench.heard.stale == []


async def test_a_refused_completion_enters_nothing(bench: Tiers) -> None:
    """What the authority refuses to complete does not become an answer; the lease goes."""
    record = key()
    lease = lease_of(await bench.store.reserve(intent(record)))
    bench.authority.delete(record)
    assert (await bench.store.complete(lease, response(), KEPT)).transition is Transition.MISSING
    assert await bench.entry(record) is None


async def test_a_completion_over_a_lost_lease_is_told(bench: Tiers) -> None:
    """A completion whose lease Redis has lost changes nothing, also when somebody else's lease is there by now, and is counted."""
    record = key()
    lease = lease_of(await bench.store.reserve(intent(record)))
    await bench.forget(record)
    bench.authority.gate.clear()
    asking = intent(record)
    asked = asyncio.ensure_future(bench.other.reserve(asking))
    await eventually(lambda: bench.authority.asked == 2)
    await bench.store.complete(lease, response(), KEPT)
    assert await bench.store.drain(10)
    assert bench.heard.stale == ["redis_complete"]
    assert await bench.entry(record) == LeaseEntry(asking.fingerprint, asking.owner)
    bench.authority.gate.set()
    assert record_of(await asked).status is Status.COMPLETED


async def test_an_operators_deletion_stays(bench: Tiers) -> None:
    """A reader that was about to bring a completed record into Redis finds its lease gone after an operator has deleted the record."""
    record = key()
    await bench.store.complete(lease_of(await bench.store.reserve(intent(record))), response(), KEPT)
    assert isinstance(await bench.entry(record), CompletedEntry)
    await bench.forget(record)
    bench.authority.gate.clear()
    reading = asyncio.ensure_future(bench.store.reserve(intent(record)))
    await eventually(lambda: bench.authority.asked == 3)
    bench.relay.requests.clear()
    bench.authority.gate.set()
    assert record_of(await reading).status is Status.COMPLETED
    bench.authority.delete(record)
    await bench.forget(record)
    bench.relay.requests.set()
    assert await bench.entry(record) is None
    assert bench.heard.stale == ["redis_fill"]
    lease_of(await bench.other.reserve(intent(record)))


# ---- Redis away, authority away, replies lost


async def test_without_redis_the_authority_does_it_all(bench: Tiers) -> None:
    """With Redis refusing connections everything works, slower; nothing is waited for at close."""
    await bench.lose_redis()
    record = key()
    lease = lease_of(await bench.store.reserve(intent(record)))
    assert record_of(await bench.store.reserve(intent(record))).record_id == lease.record_id
    assert (await bench.store.complete(lease, response(), KEPT)).transition is Transition.DONE
    assert record_of(await bench.store.reserve(intent(record))).response == response()
    assert record_of(await bench.store.find(record)).response == response()
    await bench.store.tick()
    assert await bench.store.drain(0)
    assert {reason for _, reason in bench.heard.errors} == {"not_ready"}


async def test_without_the_authority_redis_still_answers_what_it_knows(bench: Tiers) -> None:
    """Replays go out while the authority is away; a new key is refused and its lease taken back."""
    record = key()
    await bench.store.complete(lease_of(await bench.store.reserve(intent(record))), response(), KEPT)
    assert isinstance(await bench.entry(record), CompletedEntry)
    bench.authority.away = True
    assert record_of(await bench.store.reserve(intent(record))).response == response()
    new = key()
    with pytest.raises(StoreUnavailable, match="memory: refused") as caught:
        await bench.store.reserve(intent(new))
    assert not caught.value.may_have_landed
    assert await bench.entry(new) is None


async def test_a_reserve_whose_reply_was_lost_at_the_authority(bench: Tiers) -> None:
    """Its lease in Redis is taken back; if it is found to be ours after all, the attempt completes without an entry."""
    first = intent(key())
    bench.authority.lost = True
    with pytest.raises(StoreUnavailable) as caught:
        await bench.store.reserve(first)
    assert caught.value.may_have_landed
    found = record_of(await bench.store.find(first.key))
    assert (found.owner, found.status) == (first.owner, Status.IN_PROGRESS)
    assert await bench.entry(first.key) is None


async def test_a_cancelled_reserve_takes_its_lease_back(bench: Tiers) -> None:
    """Cancelled while it asks the authority or while it asks Redis, a reserve leaves no lease in Redis."""
    record = key()
    bench.authority.gate.clear()
    asking = asyncio.ensure_future(bench.store.reserve(intent(record)))
    await eventually(lambda: bench.authority.asked == 1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await bench.entry(record) is None

    bench.relay.replies.clear()
    chunks = bench.relay.chunks
    asking = asyncio.ensure_future(bench.store.reserve(intent(record)))
    await eventually(lambda: bench.relay.chunks > chunks)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    bench.relay.replies.set()
    assert await bench.entry(record) is None


async def test_a_lease_whose_acknowledgement_was_lost(redis_db: str) -> None:
    """A lease that may have been set is taken back, and its attempt brings nothing into Redis: only an acknowledged one is replaced."""
    async with tiers(redis_db, timeout=0.5) as bench:
        await bench.store.reserve(intent(key()))  # so that Redis knows the script: the lost reply shall not say that it does not
        record = key()
        bench.relay.swallow = True
        lease = lease_of(await bench.store.reserve(intent(record)))
        assert bench.heard.errors[0] == ("acquire", "timeout")
        assert await bench.redis.execute(b"EXISTS", entry_key(record.lookup_digest())) == 1
        await bench.store.complete(lease, response(), KEPT)
        bench.relay.swallow = False
        assert await bench.entry(record) is None


async def test_a_fault_of_ours_at_a_reply_leads_to_the_authority(bench: Tiers) -> None:
    """An exception where a lease is acknowledged, or a completion: nobody waits for ever, and what the authority has said stands."""
    told: list[str] = []

    class Raising(Heard):
        def store_operation(self, store: str, operation: str, seconds: float) -> None:
            told.append(operation)
            raise RuntimeError("a fault of ours")

    record = key()
    bench.hot.observer = Raising()
    lease = lease_of(await bench.store.reserve(intent(record)))
    assert told == ["acquire"]
    bench.hot.observer = bench.heard
    await eventually(lambda: not bench.hot.open)
    other = lease_of(await bench.store.reserve(intent(key())))
    bench.hot.observer = Raising()
    assert (await bench.store.complete(other, response(), KEPT)).transition is Transition.DONE
    await eventually(lambda: "complete" in told)
    bench.hot.observer = bench.heard
    assert await bench.store.drain(10)
    assert (await bench.store.complete(lease, response(), KEPT)).transition is Transition.DONE
    assert record_of(await bench.store.reserve(intent(record))).response == response()


@pytest.mark.parametrize("fault", ["refuse", "swallow"])
async def test_a_completion_is_repeated_until_acknowledged(redis_db: str, fault: str) -> None:
    """A completion that did not reach Redis, or whose reply was lost, is in Redis as soon as Redis is back, and is no stale write."""
    async with tiers(redis_db, timeout=0.5, lease_ttl=15.0) as bench:
        record = key()
        lease = lease_of(await bench.store.reserve(intent(record)))
        if fault == "refuse":
            bench.relay.refuse()
        else:
            bench.relay.swallow = True
        await bench.store.complete(lease, response(), KEPT)
        await eventually(lambda: any(operation == "complete" for operation, _ in bench.heard.errors))
        bench.relay.swallow = False
        if fault == "refuse":
            await bench.relay.listen()
        assert isinstance(await bench.entry(record), CompletedEntry)
        assert bench.heard.stale == []


async def test_a_write_ends_with_its_entry(bench: Tiers) -> None:
    """A write that Redis never acknowledges is given up when its entry must have ended."""
    record = key()
    lease = lease_of(await bench.store.reserve(intent(record)))
    await bench.lose_redis()
    await bench.store.complete(lease, response(), KEPT)
    assert not await bench.store.drain(0)
    bench.clock.ahead += 5.0
    assert await bench.store.drain(10)
    assert not bench.heard.stale


async def test_close_drops_what_is_left(bench: Tiers) -> None:
    """Close waits only so long; afterwards nothing runs, and later settles go to the authority alone."""
    record = key()
    lease = lease_of(await bench.store.reserve(intent(record)))
    bench.relay.requests.clear()
    await bench.store.complete(lease, response(), KEPT)
    await bench.store.close(0.05)
    assert await bench.store.drain(0)
    other = lease_of(await bench.other.reserve(intent(key())))
    assert (await bench.store.doubt(other, "upstream_timeout")).transition is Transition.DONE
    assert await bench.store.drain(0)
    bench.relay.requests.set()


# ---- long attempts


async def test_a_long_attempt_keeps_its_lease(bench: Tiers) -> None:
    """A tick extends a lease that has used up half of its time, and leaves younger ones alone."""
    old = intent(key())
    await bench.store.reserve(old)
    await bench.age(old.key, 2_000)
    bench.clock.ahead += 3.0
    young = intent(key())
    await bench.store.reserve(young)
    await bench.age(young.key, 2_000)
    await bench.store.tick()
    assert 2_000 < await bench.ttl(old.key) <= 5_000
    assert await bench.ttl(young.key) <= 2_000
    assert await bench.entry(old.key) == LeaseEntry(old.fingerprint, old.owner)


async def test_many_long_attempts_at_once(bench: Tiers) -> None:
    """One tick extends them all, however many there are."""
    records = [key() for _ in range(300)]
    await asyncio.gather(*(bench.store.reserve(intent(record)) for record in records))
    for record in records:
        await bench.age(record, 2_000)
    bench.clock.ahead += 3.0
    await bench.store.tick()
    assert min([await bench.ttl(record) for record in records]) > 2_000


async def test_a_lease_is_extended_only_while_it_is_trusted(bench: Tiers) -> None:
    """Without renewals at the authority a lease in Redis ends before the one there does; each renewal prolongs the trust."""
    first = intent(key(), lease=12.0)
    lease = lease_of(await bench.store.reserve(first))
    bench.clock.ahead += 10.0
    await bench.store.tick()
    assert await bench.ttl(first.key) <= 2_000
    assert await bench.store.renew([lease]) == {lease.owner}
    bench.clock.ahead += 3.0
    await bench.store.tick()
    assert 2_000 < await bench.ttl(first.key) <= 5_000
    bench.clock.ahead += 9.0
    await bench.age(first.key, 2_000)
    await bench.store.tick()
    assert await bench.ttl(first.key) <= 2_000


async def test_an_attempt_whose_lease_redis_lost_writes_nothing_more(bench: Tiers) -> None:
    """A tick that finds the lease gone lets the entry go for good: what comes there later is somebody else's."""
    record = key()
    lease = lease_of(await bench.store.reserve(intent(record)))
    await bench.forget(record)
    bench.clock.ahead += 3.0
    await bench.store.tick()
    assert bench.heard.stale == ["redis_extend"]
    await bench.store.complete(lease, response(), KEPT)
    assert await bench.entry(record) is None
    assert bench.heard.stale == ["redis_extend"]


async def test_an_attempt_that_outlived_its_trust_still_completes(bench: Tiers) -> None:
    """Past its lease an attempt completes at the authority and writes nothing more to Redis, whatever is there."""
    first = intent(key())
    lease = lease_of(await bench.store.reserve(first))
    bench.clock.ahead += 31.0
    await bench.store.tick()
    assert (await bench.store.complete(lease, response(), KEPT)).transition is Transition.DONE
    assert await bench.entry(first.key) == LeaseEntry(first.fingerprint, first.owner)


async def test_a_tick_survives_redis(bench: Tiers) -> None:
    """A tick while Redis is away raises nothing, and the next one goes on."""
    record = key()
    await bench.store.reserve(intent(record))
    bench.clock.ahead += 3.0
    await bench.lose_redis()
    await bench.store.tick()
    await bench.relay.listen()
    await eventually(lambda: not bench.hot.open)
    await bench.age(record, 2_000)
    await bench.store.tick()
    assert await bench.ttl(record) > 2_000


# ---- what stays out of Redis


async def test_a_tombstone_stays_out_of_redis(bench: Tiers) -> None:
    """Only the authority knows of tombstones: each late retry asks it, and leaves no entry behind that could outlive what it says."""
    record = key()
    wanted = with_terms(intent(record), gone_for=600.0)
    lease = lease_of(await bench.store.reserve(wanted))
    await bench.store.complete(lease, response(), Retention(RETENTION, gone_for=600.0))
    await bench.forget(record)
    bench.clock.ahead += RETENTION + 1
    assert await bench.authority.reap(10) == 1
    for store in (bench.store, bench.other):
        asked = bench.authority.asked
        assert isinstance(await store.reserve(replace(wanted, owner=token())), Tombstone)
        assert bench.authority.asked == asked + 1
        assert await bench.entry(record) is None
    bench.clock.ahead += 600.0
    lease_of(await bench.store.reserve(replace(wanted, owner=token())))


async def test_observed_attempts_stay_out_of_redis(bench: Tiers) -> None:
    """Neither their leases nor their answers enter it: nothing there refuses an enforcing request, which takes over and enters itself."""
    record = key()
    watching = with_terms(intent(record), observed=True)
    lease = lease_of(await bench.store.reserve(watching))
    assert await bench.entry(record) is None
    for store in (bench.store, bench.other):
        assert record_of(await store.reserve(replace(watching, owner=token()))).owner == lease.owner
    guarded = lease_of(await bench.other.reserve(intent(record)))
    assert guarded.record_id != lease.record_id
    assert isinstance(await bench.entry(record), LeaseEntry)
    assert (await bench.store.complete(lease, response(), KEPT)).transition is Transition.STALE
    assert (await bench.other.complete(guarded, response(), KEPT)).transition is Transition.DONE
    assert isinstance(await bench.entry(record), CompletedEntry)


async def test_a_completed_observed_record_enters_redis_when_it_is_asked_for(bench: Tiers) -> None:
    """It counts, so an enforcing retry that reads it at the authority puts it there for the next one."""
    record = key()
    lease = lease_of(await bench.store.reserve(with_terms(intent(record), observed=True)))
    await bench.store.complete(lease, response(), KEPT)
    assert await bench.entry(record) is None
    assert record_of(await bench.store.reserve(intent(record))).response == response()
    assert isinstance(await bench.entry(record), CompletedEntry)
    asked = bench.authority.asked
    assert record_of(await bench.other.reserve(intent(record))).response == response()
    assert bench.authority.asked == asked


# ---- all together


async def test_one_winner_for_each_key(bench: Tiers) -> None:
    """Two processes race for many keys, with Redis losing everything in between: each key has exactly one winner."""
    records = [key() for _ in range(20)]
    races = [asyncio.ensure_future(store.reserve(intent(record))) for record in records for store in (bench.store, bench.other) * 5]
    for _ in range(5):
        await bench.redis.execute(b"FLUSHALL")
    leases = [found for found in await asyncio.gather(*races) if not hasattr(found, "status")]
    assert sorted(found.key.key for found in leases) == sorted(record.key for record in records)
