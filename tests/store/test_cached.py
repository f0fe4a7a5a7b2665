"""A cache of completed answers in front of a store: what it learns from, who asks whom, and what operators' deletions do."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

import asyncpg
import pytest

from gateway.core.model import Intent, Lease, Record, RecordKey, Status, Tombstone
from gateway.core.packing import pack, unpacked
from gateway.operate.operations import By, Done, Operator
from gateway.ports import Retention, StoreUnavailable
from gateway.runtime.system import SystemClock
from gateway.store.deletions import Deletions
from gateway.store.null_observer import NullObserver
from gateway.store.postgres import PostgresStore
from gateway.store.redis.hotpath import HotPath
from gateway.store.replay_cache import ReplayCache
from gateway.store.tiered import TieredStore
from tests.store.asked import AskedStore
from tests.store.redis.authority import Authority, ShiftedClock
from tests.store.redis.relay import Relay
from tests.store.redis.support import eventually, fingerprint, linked
from tests.store.redis.tiers import KEPT, intent, key, lease_of, record_of, response, with_terms

SECONDS = 3.0


@dataclass(slots=True)
class Heard(NullObserver):
    """What an observer was told."""

    operations: list[tuple[str, str]] = field(default_factory=list)

    def store_operation(self, store: str, operation: str, seconds: float) -> None:
        self.operations.append((store, operation))


class SlowToReply(Authority):
    """`replies` holds the answers to reserves that were carried out."""

    def __init__(self, now: Callable[[], float], boottime: Callable[[], float]) -> None:
        super().__init__(now, boottime)
        self.replies = asyncio.Event()
        self.replies.set()

    async def reserve(self, intent: Intent) -> Lease | Record | Tombstone:
        found = await super().reserve(intent)
        await self.replies.wait()
        return found


class Process:
    """One process's cache over a shared authority."""

    def __init__(self, authority: Authority, clock: ShiftedClock) -> None:
        self.heard = Heard()
        self.cache = ReplayCache(1 << 20, SECONDS, clock.boottime)
        self.store = AskedStore(authority, self.cache, clock, self.heard)


class Bench:
    def __init__(self) -> None:
        self.clock = ShiftedClock()
        self.authority = SlowToReply(self.clock.boottime, self.clock.boottime)
        self.one, self.two = Process(self.authority, self.clock), Process(self.authority, self.clock)

    async def completed(self) -> RecordKey:
        """A record that the first process has completed."""
        record = key()
        await self.one.store.complete(lease_of(await self.one.store.reserve(intent(record))), response(), KEPT)
        return record


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_an_attempts_own_completion_is_told_without_asking(bench: Bench) -> None:
    record = key()
    lease = lease_of(await bench.one.store.reserve(intent(record)))
    settled = await bench.one.store.complete(lease, response(), KEPT)
    asked = bench.authority.asked
    found = record_of(await bench.one.store.reserve(intent(record)))
    assert (found.status, found.response, found.request_id) == (Status.COMPLETED, response(), "request-1")
    assert (found.record_id, found.owner, found.attempt, found.expires_at_us) == (lease.record_id, lease.owner, 1, settled.expires_at_us)
    assert bench.authority.asked == asked
    assert bench.one.heard.operations == [("local", "replay")]


async def test_a_claimed_attempts_completion_is_told_without_asking(bench: Bench) -> None:
    record = key()
    await bench.one.store.release(lease_of(await bench.one.store.reserve(intent(record))), "connection_refused", KEPT)
    lease = await bench.one.store.claim(record_of(await bench.one.store.reserve(intent(record))), intent(record))
    assert lease is not None
    await bench.one.store.complete(lease, response(), KEPT)
    asked = bench.authority.asked
    assert record_of(await bench.one.store.reserve(intent(record))).attempt == 2
    assert bench.authority.asked == asked


async def test_a_replay_is_told_again_without_asking_for_some_seconds(bench: Bench) -> None:
    """By the process that has replayed it; and hits do not prolong that."""
    record = await bench.completed()
    asked = bench.authority.asked
    for _ in range(5):
        assert record_of(await bench.two.store.reserve(intent(record))).response == response()
        bench.clock.ahead += 0.5
    assert bench.authority.asked == asked + 1
    bench.clock.ahead += 0.5
    assert record_of(await bench.two.store.reserve(intent(record))).response == response()
    assert bench.authority.asked == asked + 2


async def test_another_meaning_is_the_stores_business(bench: Bench) -> None:
    record = await bench.completed()
    asked = bench.authority.asked
    assert record_of(await bench.one.store.reserve(intent(record, fingerprint("pay 6")))).fingerprint == fingerprint()
    assert bench.authority.asked == asked + 1


@pytest.mark.parametrize("end", ["running", "released", "doubted", "refused", "lost"])
async def test_only_what_is_completed_for_certain_is_learned(bench: Bench, end: str) -> None:
    """Each further request asks."""
    record = key()
    lease = lease_of(await bench.one.store.reserve(intent(record)))
    match end:
        case "released":
            await bench.one.store.release(lease, "connection_refused", KEPT)
        case "doubted":
            await bench.one.store.doubt(lease, "upstream_timeout")
        case "refused":
            await bench.one.store.complete(replace(lease, owner=b"x" * 16), response(), KEPT)
        case "lost":
            bench.authority.lost = True
            with pytest.raises(StoreUnavailable):
                await bench.one.store.complete(lease, response(), KEPT)
            bench.authority.lost = False
        case _:
            pass
    for number in range(2):
        asked = bench.authority.asked
        found = record_of(await bench.one.store.reserve(intent(record)))
        assert (found.status is Status.COMPLETED) == (end == "lost")
        assert bench.authority.asked == asked + (0 if end == "lost" and number else 1)


async def test_an_expired_record_is_not_told(bench: Bench) -> None:
    record = key()
    await bench.one.store.complete(lease_of(await bench.one.store.reserve(intent(record))), response(), Retention(1.0))
    bench.clock.ahead += 0.5
    assert not record_of(await bench.one.store.reserve(intent(record))).expired
    bench.clock.ahead += 0.6
    assert record_of(await bench.one.store.reserve(intent(record))).expired


async def test_without_the_authoritys_clock_nothing_is_told(bench: Bench) -> None:
    record = await bench.completed()
    bench.authority.silent = True
    asked = bench.authority.asked
    assert record_of(await bench.one.store.reserve(intent(record))).response == response()
    assert bench.authority.asked == asked + 1


async def test_while_the_authority_is_away_it_is_told(bench: Bench) -> None:
    record = await bench.completed()
    bench.authority.away = True
    assert record_of(await bench.one.store.reserve(intent(record))).response == response()
    bench.clock.ahead += SECONDS
    with pytest.raises(StoreUnavailable):
        await bench.one.store.reserve(intent(record))


async def test_observing_requests_neither_ask_nor_teach(bench: Bench) -> None:
    watched = with_terms(intent(key()), observed=True)
    await bench.one.store.complete(lease_of(await bench.one.store.reserve(watched)), response(), KEPT)
    asked = bench.authority.asked
    for number in range(1, 3):
        assert record_of(await bench.one.store.reserve(with_terms(intent(watched.key), observed=True))).response == response()
        assert bench.authority.asked == asked + number


async def test_a_deletion_is_known_here_at_once_and_elsewhere_within_the_seconds(bench: Bench) -> None:
    record = await bench.completed()
    assert record_of(await bench.two.store.reserve(intent(record))).response == response()
    bench.clock.ahead += SECONDS - 1
    bench.authority.delete(record)
    bench.one.cache.forget(record)
    assert record_of(await bench.two.store.reserve(intent(record))).response == response()
    assert isinstance(await bench.one.store.reserve(intent(record)), Lease)
    bench.clock.ahead += 1
    assert record_of(await bench.two.store.reserve(intent(record))).status is Status.IN_PROGRESS


async def test_a_read_under_way_does_not_bring_a_deleted_answer_back(bench: Bench) -> None:
    """It was read before the deletion, and its reply comes after it."""
    record = await bench.completed()
    bench.authority.replies.clear()
    asked = bench.authority.asked
    reading = asyncio.ensure_future(bench.two.store.reserve(intent(record)))
    await eventually(lambda: bench.authority.asked == asked + 1)
    bench.authority.delete(record)
    bench.two.cache.forget(record)
    bench.authority.replies.set()
    assert record_of(await reading).response == response()
    assert isinstance(await bench.two.store.reserve(intent(record)), Lease)


# ---- with real stores


@dataclass(slots=True)
class House:
    """All that production runs; `statements` and `commands` lead to the servers, and count what is sent."""

    store: AskedStore
    cache: ReplayCache
    tiered: TieredStore
    deletions: Deletions
    operator: Operator
    elsewhere: Operator
    statements: Relay
    commands: Relay

    async def completed(self, more: int = 0) -> RecordKey:
        record = RecordKey("payments:none", key().key)
        plain = response(b"paid" + bytes(more))
        encoding, body = pack(plain.body or b"", ())
        lease = lease_of(await self.store.reserve(intent(record)))
        await self.store.complete(lease, replace(plain, encoding=encoding, body=body), KEPT)
        assert await self.tiered.drain(10)
        return record

    @property
    def sent(self) -> tuple[int, int]:
        return self.statements.chunks, self.commands.chunks


@pytest.fixture
async def house(database: str, redis_db: str) -> AsyncIterator[House]:
    async with AsyncExitStack() as stack:
        statements = await stack.enter_async_context(Relay(database))
        commands = await stack.enter_async_context(Relay(redis_db))
        link = await stack.enter_async_context(linked(commands.url))
        authority = PostgresStore(database.replace(f":{urlsplit(database).port}", f":{statements.port}"), pool_size=2, timeout=30)
        stack.push_async_callback(authority.close)
        clock = SystemClock()
        deletions = Deletions(authority.deletions, lambda: link.eras.last, authority.now_us, clock)
        tiered = TieredStore(authority, HotPath(link), clock, deletions=deletions)
        stack.push_async_callback(tiered.close, 0)
        cache = ReplayCache(1 << 24, 60.0, clock.boottime, deleted=tiered.deleted, ready=lambda _key, _id, kept: unpacked(kept))
        operator = Operator(authority.operations, authority.reconciliation, dict, tiered.forget, cache)
        other = ReplayCache(1 << 24, 60.0, clock.boottime)
        elsewhere = Operator(authority.operations, authority.reconciliation, dict, tiered.forget, other)
        store = AskedStore(tiered, cache, clock)
        yield House(store, cache, tiered, deletions, operator, elsewhere, statements, commands)


@pytest.mark.parametrize("more", [0, 20_000])
async def test_a_replay_from_memory_costs_no_command_and_no_statement(house: House, redis_db: str, more: int) -> None:
    """Counted at the servers: what is sent to either, and Redis' own count of commands."""
    record = await house.completed(more)

    async def commands() -> bytes:
        async with linked(redis_db) as link:
            await link.execute(b"CONFIG", b"RESETSTAT")
            for _ in range(20):
                assert record_of(await house.store.reserve(intent(record))).response == response(b"paid" + bytes(more))
            counted = await link.execute(b"INFO", b"commandstats")
            assert isinstance(counted, bytes)
            return counted

    before = house.sent
    counted = await commands()
    assert house.sent == before
    assert b"cmdstat_set" not in counted
    assert b"cmdstat_get" not in counted
    house.cache.clear()
    assert record_of(await house.store.reserve(intent(record))).response is not None
    assert house.sent != before


async def test_a_body_that_postgres_refused_is_replayed_by_nobody(house: House, database: str, redis_db: str) -> None:
    """What is stored counts, and neither the memory of the process nor Redis knows more."""
    connection = await asyncpg.connect(database)
    await connection.execute("ALTER TABLE gateway_records ADD CHECK (response_body IS NULL)")
    record = await house.completed()
    there = await connection.fetchrow("SELECT status, response_body FROM gateway_records WHERE idempotency_key = $1", record.key)
    await connection.close()
    assert there is not None
    assert (there["status"], there["response_body"]) == ("completed", None)
    for _ in range(2):  # the second is told from what the first has learned
        kept = record_of(await house.store.reserve(intent(record))).response
        assert kept is not None
        assert (kept.status, kept.body) == (201, None)


async def test_an_operators_deletion_is_told_with_the_seconds(house: House) -> None:
    """In the process that is told it is gone at once; another one hears of it from the list of deletions."""
    by = By("alice", "GDPR")
    for operator in (house.operator, house.elsewhere):
        record = await house.completed()
        assert record_of(await house.store.reserve(intent(record))).response == response()
        done = await operator.delete(record, by)
        assert isinstance(done, Done)
        assert (done.redis_wait, done.memory_wait) == (0.0, 60.0)
        if operator is house.elsewhere:
            assert record_of(await house.store.reserve(intent(record))).response == response()
            await house.deletions.refresh()
        assert isinstance(await house.store.reserve(intent(record)), Lease)


async def test_without_redis_acknowledging_both_waits_are_told(house: House) -> None:
    """A gateway may read it from Redis at the last moment, and tell it from its memory from then on."""
    record = await house.completed()
    house.commands.refuse()
    done = await house.operator.delete(record, By("alice", "GDPR"))
    assert isinstance(done, Done)
    assert (done.redis_wait, done.memory_wait) == (965.0, 60.0)


async def test_a_release_has_nothing_to_wait_for(house: House) -> None:
    """What it frees was never completed."""
    record = RecordKey("payments:none", key().key)
    await house.store.doubt(lease_of(await house.store.reserve(replace(intent(record, lease=0.01)))), "upstream_timeout")
    done = await house.operator.release(record, By("alice", "it did not run"))
    assert not isinstance(done, Done) or done.memory_wait is None
