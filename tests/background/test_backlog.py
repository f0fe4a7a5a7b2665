"""Many unknown records: memory stays flat, places are counted for each upstream, and one that is away is left in peace."""

import asyncio
import tracemalloc
from dataclasses import replace

import pytest

from gateway.background.reconciler import BUSY
from gateway.core.model import Status
from gateway.core.reconcile.policy import AnswerPlan, Lookup, Rule, Verdict
from tests.background.house import LOOKUP, MAX_EXECUTION, PACE, House, Skewed, route, until

BACKLOG = 100_000
FLAT = 4 * 1024 * 1024

FILL = """
INSERT INTO gateway_records (
    scope_id, idempotency_key, record_id, version, route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy,
    status, owner, attempt, request_method, request_target, max_execution, reconcilable, unknown_since, reconcile_after, doubtful_until,
    captured, last_error_code
)
SELECT 'payments:none', 'backlog-' || n, gen_random_uuid(), 2, $1, 'r-' || n, sha256(n::text::bytea), 1, sha256('p'),
    'unknown', decode(md5(n::text), 'hex'), 1, 'POST', '\\x2f'::bytea, interval '60 s', true, now() - interval '1 hour',
    now() - interval '30 min' - make_interval(secs => n / 1000.0), now() - interval '30 min',
    '{"key": "k", "order": "o"}'::jsonb, 'upstream_timeout'
FROM generate_series(1, $2::int) AS n
"""


async def test_a_hundred_thousand_unknown_records(house: House) -> None:
    """However many are due, no more are taken than there are places for looks; the longest due come first."""
    await house.rows(FILL, "create-charge", BACKLOG)
    await house.rows("ANALYZE gateway_records")
    reconciler = house.reconciler()
    await house.round(reconciler)
    tracemalloc.start()
    try:
        for _ in range(40):
            assert await reconciler.round()
            assert reconciler.looking <= PACE.concurrency
            await until(lambda: reconciler.looking == 0)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < FLAT
    assert len(house.bank.lookups) == 41 * PACE.concurrency
    rows = await house.rows("SELECT idempotency_key FROM gateway_records WHERE looked_at IS NOT NULL")
    numbers = sorted(int(row["idempotency_key"].removeprefix("backlog-")) for row in rows)
    assert numbers == list(range(BACKLOG - len(numbers) + 1, BACKLOG + 1))


class Waits(Skewed):
    """Who sleeps goes on when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float] = []
        self.go = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        await self.go.wait()


async def test_looks_that_are_taken_together_begin_one_after_the_other(house: House) -> None:
    """Spread over the time until the next are taken: all at once they would stand in the way of the requests of that moment."""
    house.clock = clock = Waits()
    await house.rows(FILL, "create-charge", 10)
    reconciler = house.reconciler()
    await reconciler.round()
    await until(lambda: reconciler.looking == PACE.concurrency - 1)
    assert len(house.bank.lookups) == 1
    assert sorted(clock.asked) == pytest.approx([BUSY * n / PACE.concurrency for n in range(1, PACE.concurrency)])
    clock.go.set()
    await until(lambda: reconciler.looking == 0)
    assert len(house.bank.lookups) == PACE.concurrency


async def test_a_look_that_has_not_begun_is_left_to_others_at_the_end(house: House) -> None:
    """A process that ends asks no more; what it held is due again when its hold is over."""
    house.clock = clock = Waits()
    await house.rows(FILL, "create-charge", 10)
    reconciler = house.reconciler()
    await reconciler.round()
    await until(lambda: reconciler.looking == PACE.concurrency - 1)
    closing = asyncio.ensure_future(reconciler.close())
    await asyncio.sleep(0)
    clock.go.set()
    await closing
    assert len(house.bank.lookups) == 1
    held = """
        SELECT count(*) FROM gateway_records r
        WHERE looked_at IS NOT NULL AND NOT EXISTS (SELECT FROM gateway_history h WHERE h.record_id = r.record_id)
    """
    ((count,),) = await house.rows(held)
    assert count == PACE.concurrency - 1


async def test_looks_under_way_are_bounded_for_each_upstream(house: House) -> None:
    """Routes share their upstream's places, in turn; an upstream that hangs holds up no other."""
    for name in ("first", "second", "elsewhere"):
        for _ in range(6):
            await house.doubted(name)
    await house.pass_time(30 + MAX_EXECUTION + 1)
    gate = house.bank.gate = asyncio.Event()
    hanging = await asyncio.start_server(hang, "127.0.0.1", 0)
    reconciler = house.reconciler(
        route(name="first"),
        route(name="second"),
        route(name="elsewhere", upstream="hanging"),
        upstreams={"bank": house.client(), "hanging": house.client(hanging.sockets[0].getsockname()[1])},
    )
    await reconciler.round()
    await until(lambda: house.bank.looking == PACE.concurrency)
    await reconciler.round()
    assert reconciler.looking == 2 * PACE.concurrency
    gate.set()
    await until(lambda: reconciler.looking == PACE.concurrency)
    for _ in range(2):
        await reconciler.round()
        await until(lambda: reconciler.looking == PACE.concurrency)
    assert house.bank.most == PACE.concurrency
    assert len(house.bank.lookups) == 3 * PACE.concurrency
    rows = await house.rows("SELECT DISTINCT route_id FROM gateway_records WHERE looked_at IS NOT NULL")
    assert {row["route_id"] for row in rows} == {"first", "second", "elsewhere"}
    hanging.close()


async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes a request and never answers."""
    try:
        await asyncio.sleep(3600)
    finally:
        writer.close()


async def test_an_upstream_that_is_away_is_asked_by_one_look_at_a_time(house: House) -> None:
    """About once a second, so that its backlog is not burned; with its first answer it has all its places again."""
    for _ in range(12):
        await house.doubted()
    await house.pass_time(30 + MAX_EXECUTION + 1)
    house.bank.down = True
    reconciler = house.reconciler()
    await house.round(reconciler)
    assert len(house.server.requests) == PACE.concurrency
    await house.round(reconciler)
    await house.round(reconciler)
    assert len(house.server.requests) == PACE.concurrency + 1
    house.bank.down = False
    await house.pass_time(1.1)
    await house.round(reconciler)
    assert len(house.bank.lookups) == 1
    await house.round(reconciler)
    assert len(house.bank.lookups) == 1 + PACE.concurrency


async def test_a_look_that_takes_too_long_is_given_up(house: House) -> None:
    """Its record stays in doubt, and is looked at again later."""
    house.bank.gate = asyncio.Event()
    lease = await house.due()
    await house.round(house.reconciler(route(pace=replace(PACE, timeout=0.2))))
    ((_, what, detail),) = await house.history(lease.key)
    assert (what, detail["error"]) == ("not_yet_known", "timeout")


async def test_a_defect_in_one_look_is_not_the_others(house: House) -> None:
    """It is reported, its record stays held, and the others are resolved."""
    leases = [await house.doubted(), await house.doubted("other")]
    await house.pass_time(30 + MAX_EXECUTION + 1)
    for lease in leases:
        house.bank.execute(lease.key.key)
    broken = Lookup(replace(LOOKUP.request, method="\ud800"), (Rule(Verdict.EXECUTED, answer=AnswerPlan()),))
    reconciler = house.reconciler(route(broken), route(name="other"))
    await house.round(reconciler)
    statuses = [(await house.record(lease.key)).status for lease in leases]
    assert statuses == [Status.UNKNOWN, Status.COMPLETED]
    assert [task for task, _ in house.observer.failures] == ["reconcile"]
