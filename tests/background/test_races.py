"""Verdicts against everybody else: whoever commits first wins, none is lost, none is applied twice, and no truth is let go."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import urlsplit

import asyncpg
import pytest

from gateway.background.reconciler import MARGIN, Reconciler
from gateway.core.model import Lease, Record, RecordKey, Status
from gateway.core.policy import OnUnknown
from gateway.core.reconcile.policy import Manual
from gateway.ports import Transition, UpstreamRequest
from gateway.ports.reconciliation import Entry, Evidence, Fence
from gateway.store.postgres import PostgresStore
from tests.background.house import ANSWER, KEPT, LOOKUP, MAX_EXECUTION, PACE, House, route, until
from tests.store.contract.harness import response
from tests.support.faults import FaultProxy, fault_proxy

HOLD = PACE.timeout + MARGIN
ONE_LOOK = replace(PACE, looks=1)


async def kill(reconciler: Reconciler) -> None:
    """What it was at is cut, as if its process had been killed."""
    tasks = list(reconciler._looks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def gated(house: House, reconciler: Reconciler, key: RecordKey, *, executed: bool = True) -> asyncio.Event:
    """Let a look begin whose answer waits at the bank."""
    if executed:
        house.bank.execute(key.key)
    gate = house.bank.gate = asyncio.Event()
    await reconciler.round()
    await until(lambda: house.bank.looking == 1)
    return gate


async def finish(gate: asyncio.Event, reconciler: Reconciler) -> None:
    gate.set()
    await until(lambda: reconciler.looking == 0)


def fence_of(record: Record) -> Fence:
    return Fence(record.key, record.record_id, record.version)


async def executed_lines(house: House) -> Counter[str]:
    rows = await house.rows("SELECT idempotency_key, count(*) AS n FROM gateway_history WHERE what = 'executed' GROUP BY 1")
    return Counter({row["idempotency_key"]: row["n"] for row in rows})


@pytest.fixture
async def proxy(database: str) -> AsyncIterator[FaultProxy]:
    at = urlsplit(database)
    assert at.hostname is not None
    assert at.port is not None
    async with fault_proxy(at.hostname, at.port) as proxy:
        yield proxy


@pytest.fixture
async def far(database: str, proxy: FaultProxy) -> AsyncIterator[PostgresStore]:
    """A store over the same database, behind the fault proxy."""
    at = urlsplit(database)
    store = PostgresStore(database.replace(f"{at.hostname}:{at.port}", f"127.0.0.1:{proxy.port}"), pool_size=2, timeout=5.0)
    yield store
    await store.close()


# ---- whoever dies


async def test_killed_between_the_probe_and_the_verdict(house: House) -> None:
    """The hold ends, and somebody else looks again: one verdict, written once."""
    lease = await house.due()
    first = house.reconciler()
    gate = await gated(house, first, lease.key)
    connection = await asyncpg.connect(house.dsn)
    try:
        async with connection.transaction():
            await connection.execute("SELECT FROM gateway_records FOR UPDATE")
            gate.set()
            await until(lambda: house.bank.looking == 0)
            await waits_for_a_lock(connection)
            await kill(first)
    finally:
        await connection.close()
    await house.pass_time(HOLD + 1)
    await house.round(house.reconciler())
    assert (await house.record(lease.key)).status is Status.COMPLETED
    assert (await executed_lines(house)) == {lease.key.key: 1}


async def waits_for_a_lock(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    async with asyncio.timeout(20):
        while not await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            await asyncio.sleep(0.01)


async def test_killed_right_after_the_verdict(house: House, far: PostgresStore, proxy: FaultProxy) -> None:
    """It was committed, and nobody looks again."""
    lease = await house.due()
    first = house.reconciler(store=far)
    gate = await gated(house, first, lease.key)
    held = proxy.hold_reply_to(lease.key.key.encode())
    gate.set()
    await held.reached.wait()
    await kill(first)
    await house.pass_time(HOLD + 1)
    asked = len(house.bank.lookups)
    await house.round(house.reconciler())
    assert len(house.bank.lookups) == asked
    assert (await house.record(lease.key)).status is Status.COMPLETED
    assert (await executed_lines(house)) == {lease.key.key: 1}


async def test_a_lost_reply_is_not_taken_for_another_verdict(house: House, far: PostgresStore, proxy: FaultProxy) -> None:
    """The statement is repeated; the version tells that it had landed."""
    lease = await house.due()
    reconciler = house.reconciler(store=far)
    gate = await gated(house, reconciler, lease.key)
    proxy.drop_reply_to(lease.key.key.encode())
    await finish(gate, reconciler)
    assert (await house.record(lease.key)).status is Status.COMPLETED
    assert (await executed_lines(house)) == {lease.key.key: 1}
    assert house.observer.steps == ["scheduled", "resolved"]


async def test_a_verdict_outlives_a_blip_of_the_store(house: House, far: PostgresStore, proxy: FaultProxy) -> None:
    """What the probe learned is written as soon as the store is back."""
    lease = await house.due()
    reconciler = house.reconciler(store=far)
    gate = await gated(house, reconciler, lease.key)
    await proxy.refuse()
    gate.set()
    await until(lambda: house.bank.looking == 0)
    await asyncio.sleep(0.3)
    assert reconciler.looking == 1
    await proxy.heal()
    await until(lambda: reconciler.looking == 0)
    assert (await house.record(lease.key)).status is Status.COMPLETED
    assert len(house.bank.lookups) == 1


async def test_a_verdict_is_dropped_when_its_hold_is_over(house: House, far: PostgresStore, proxy: FaultProxy) -> None:
    """Somebody else looks again then; nothing is half done."""
    lease = await house.due()
    reconciler = house.reconciler(store=far)
    gate = await gated(house, reconciler, lease.key)
    await proxy.refuse()
    house.clock.ahead += HOLD
    await finish(gate, reconciler)
    assert (await house.record(lease.key)).status is Status.UNKNOWN
    await house.pass_time(HOLD + 1)
    await house.round(house.reconciler())
    assert (await house.record(lease.key)).status is Status.COMPLETED


async def test_a_look_that_was_held_up_sends_nothing(house: House) -> None:
    """A process that was stopped after it took a record must not act on it: the record may be another attempt's by then."""
    lease = await house.due()
    narrow = house.client(connections=1)
    gate = house.bank.gate = asyncio.Event()
    occupant = asyncio.create_task(narrow.send(UpstreamRequest(b"GET", b"/v1/charges", ((b"Host", b"b"),), b""), lambda: True))
    await until(lambda: house.bank.looking == 1)
    reconciler = house.reconciler(upstreams={"bank": narrow})
    await reconciler.round()
    house.clock.ahead += PACE.timeout + 1
    gate.set()
    (await occupant).close()
    await until(lambda: reconciler.looking == 0)
    ((_, what, detail),) = await house.history(lease.key)
    assert (what, detail["error"]) == ("not_yet_known", "lease_lapsed")
    assert len(house.bank.lookups) == 1


async def test_two_reconcilers_killed_at_random(house: House, database: str) -> None:
    """No verdict is lost and none applied twice; each record ends as the truth demands."""
    chance = random.Random(5)
    leases = [await house.doubted() for _ in range(40)]
    await house.pass_time(30 + MAX_EXECUTION + 1)
    for lease in leases[::2]:
        house.bank.execute(lease.key.key)
    other = PostgresStore(database, pool_size=2, timeout=30.0)
    both = [house.reconciler(route(pace=ONE_LOOK)), house.reconciler(route(pace=ONE_LOOK), store=other)]
    open_ = set(range(len(leases)))
    async with asyncio.timeout(90):
        while open_:
            await asyncio.gather(*(reconciler.round() for reconciler in both))
            await asyncio.sleep(chance.random() * 0.03)
            if chance.random() < 0.5:
                await kill(chance.choice(both))
            await until(lambda: not any(reconciler.looking for reconciler in both))
            await house.pass_time(10)
            open_ = {n for n in open_ if (await house.record(leases[n].key)).status is Status.UNKNOWN}
    await other.close()
    for n, lease in enumerate(leases):
        wanted = Status.COMPLETED if n % 2 == 0 else Status.FAILED_RETRYABLE
        assert (await house.record(lease.key)).status is wanted
    assert (await executed_lines(house)) == {lease.key.key: 1 for lease in leases[::2]}
    assert house.observer.stale == []
    assert house.observer.failures == []


async def test_two_reconcilers_share_no_record(house: House, database: str) -> None:
    """Each record is looked at once, by one of them."""
    leases = [await house.doubted() for _ in range(30)]
    await house.pass_time(30 + MAX_EXECUTION + 1)
    for lease in leases:
        house.bank.execute(lease.key.key)
    other = PostgresStore(database, pool_size=2, timeout=30.0)
    both = [house.reconciler(), house.reconciler(store=other)]
    while len(house.bank.lookups) < len(leases):
        await asyncio.gather(*(house.round(reconciler) for reconciler in both))
    await other.close()
    assert sorted(house.bank.lookups) == sorted(lease.key.key for lease in leases)
    assert (await executed_lines(house)) == {lease.key.key: 1 for lease in leases}


# ---- against others' words


async def test_a_late_answer_that_is_first_wins(house: House) -> None:
    """The first attempt's own answer stays; the verdict is stale, which is counted, and no conflict."""
    lease = await house.due()
    reconciler = house.reconciler()
    gate = await gated(house, reconciler, lease.key)
    assert (await house.store.complete(lease, ANSWER, KEPT)).transition is Transition.DONE
    await finish(gate, reconciler)
    record = await house.record(lease.key)
    assert record.response is not None
    assert record.response.body == ANSWER.body
    assert house.observer.stale == ["verdict"]
    assert house.observer.conflicts == []
    assert house.observer.steps == ["scheduled"]


async def test_a_verdict_that_is_first_wins(house: House) -> None:
    """Then it is the late answer that is stale."""
    lease = await house.due()
    house.bank.execute(lease.key.key)
    await house.round(house.reconciler())
    assert (await house.store.complete(lease, ANSWER, KEPT)).transition is Transition.STALE
    record = await house.record(lease.key)
    assert record.response is not None
    assert record.response.body != ANSWER.body


async def test_not_executed_gives_way(house: House) -> None:
    """Of a look that agrees while somebody else says something, nothing remains."""
    lease = await house.due()
    reconciler = house.reconciler(route(pace=ONE_LOOK))
    gate = await gated(house, reconciler, lease.key, executed=False)
    assert (await house.store.complete(lease, ANSWER, KEPT)).transition is Transition.DONE
    await finish(gate, reconciler)
    assert (await house.record(lease.key)).status is Status.COMPLETED
    assert await house.history(lease.key) == []
    assert house.observer.stale == ["verdict"]


async def test_executed_is_brought_again_to_a_record_that_could_run_once_more(house: House) -> None:
    """A person released it meanwhile, by mistake: before anybody can claim it, what the look found completes it."""
    lease = await house.due()
    reconciler = house.reconciler()
    gate = await gated(house, reconciler, lease.key)
    fence = fence_of(await house.record(lease.key))
    entry = Entry("operator", "not_executed")
    assert await house.store.reconciliation.conclude_not_executed(fence, "operator_released", KEPT, entry) is Transition.DONE
    await finish(gate, reconciler)
    assert (await house.record(lease.key)).status is Status.COMPLETED
    assert house.observer.conflicts == []


async def test_a_word_about_an_earlier_attempt_is_told_of(house: House) -> None:
    """The one that owns the record is in doubt, too: it is completed with the answer that is known, and somebody is woken."""
    lease = await house.due()
    reconciler = house.reconciler()
    gate = await gated(house, reconciler, lease.key)
    fence = fence_of(await house.record(lease.key))
    await house.store.reconciliation.conclude_not_executed(fence, "operator_released", KEPT, Entry("operator", "not_executed"))
    claimed = await house.store.claim(await house.record(lease.key), house.intent(lease.key))
    assert claimed is not None
    await house.store.doubt(claimed, "upstream_timeout")
    await finish(gate, reconciler)
    assert (await house.record(lease.key)).status is Status.COMPLETED
    assert house.observer.conflicts == ["request-1"]


@pytest.mark.parametrize("deduplicates", [False, True])
async def test_evidence_of_two_executions_is_told(house: House, deduplicates: bool) -> None:
    """A newer attempt runs under the key: kept with the record, counted, alerted. Where the upstream deduplicates the two are one."""
    lease = await house.due()
    reconciler = house.reconciler(route(on_unknown=OnUnknown.REEXECUTE if deduplicates else OnUnknown.RECONCILE))
    gate = await gated(house, reconciler, lease.key)
    fence = fence_of(await house.record(lease.key))
    await house.store.reconciliation.conclude_not_executed(fence, "operator_released", KEPT, Entry("operator", "not_executed"))
    claimed = await house.store.claim(await house.record(lease.key), house.intent(lease.key))
    assert claimed is not None
    await finish(gate, reconciler)
    assert (await house.record(lease.key)).owner == claimed.owner
    assert house.observer.conflicts == ([] if deduplicates else ["request-1"])
    told = [(what, detail.get("attempt")) for _, what, detail in await house.history(lease.key)]
    assert told == [("not_executed", None), ("executed", None)] + ([] if deduplicates else [("conflict", 1)])
    assert (await house.store.release(claimed, "connection_refused", KEPT)).transition is Transition.STALE, "nobody executes after that one"
    assert (await house.look_until(reconciler, lease.key)).status is Status.COMPLETED


async def test_a_record_that_is_gone_needs_no_verdict(house: House) -> None:
    """Nor does one that began a new life under its key."""
    lease = await house.due()
    reconciler = house.reconciler()
    gate = await gated(house, reconciler, lease.key)
    await house.rows("DELETE FROM gateway_records")
    assert isinstance(await house.store.reserve(house.intent(lease.key)), Lease)
    await finish(gate, reconciler)
    assert (await house.record(lease.key)).status is Status.IN_PROGRESS
    assert house.observer.conflicts == []
    assert house.observer.failures == []


async def test_evidence_concludes_without_a_question(house: House) -> None:
    """What a webhook said while the attempt still ran is used as soon as the record is in doubt, whatever the route's probe."""
    for probe in (LOOKUP, Manual()):
        lease = await house.store.reserve(house.intent())
        assert isinstance(lease, Lease)
        evidence = Evidence(response(b'{"id": "from-the-event"}'), Entry("webhook", "executed", {"event": "d1"}))
        fence = fence_of(await house.record(lease.key))
        assert await house.store.reconciliation.attach(fence, evidence, None) is Transition.DONE
        await house.store.doubt(lease, "upstream_timeout")
        await house.round(house.reconciler(route(probe)))
        record = await house.record(lease.key)
        assert record.response is not None
        assert record.response.body == b'{"id": "from-the-event"}'
        source, what, detail = (await house.history(lease.key))[-1]
        assert (source, what, detail["event"]) == ("webhook", "executed", "d1")
    assert house.server.requests == []


async def test_manual_waits_for_a_word_and_then_for_a_person(house: House) -> None:
    """One line of history for the first taking, one at the end; nobody is asked."""
    lease = await house.due()
    reconciler = house.reconciler(route(Manual()))
    record = await house.look_until(reconciler, lease.key, step=PACE.max_age + 1)
    assert record.dead_lettered
    assert [what for _, what, _ in await house.history(lease.key)] == ["not_yet_known", "dead_lettered"]
    assert house.observer.steps == ["scheduled", "scheduled", "dead_lettered"]
