"""The operator's service over real Postgres and Redis: what people change, and are told when it cannot be."""

import asyncio
import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import asyncpg
import pytest

from gateway.core.model import Lease, Record, Status
from gateway.core.packing import ZLIB
from gateway.core.policy import Expired, OnExpired, OnUnknown, Policy
from gateway.operate.operations import Conflict, Done, NotFound, Operator, TooEarly, Wrong
from gateway.ports import StoreUnavailable, Transition
from gateway.ports.reconciliation import Entry, Evidence, Fence, Listed, Selection, Shown
from gateway.runtime.system import SystemClock
from gateway.store.completed import CompletedEntry
from gateway.store.postgres import PostgresStore
from gateway.store.redis.codec import Seal, decode
from gateway.store.redis.hotpath import HotPath
from gateway.store.tiered import TieredStore
from tests.operate.operations.bench import BY, KEPT, OVER, POLICY, Bench, key
from tests.store.contract.harness import LEASE, MAX_EXECUTION, age_records, intent, response
from tests.store.redis.support import linked


def done(changed: object) -> Listed:
    assert isinstance(changed, Done), changed
    assert changed.now is not None
    return changed.now


# ---- verdicts


@pytest.mark.parametrize("state", ["unknown", "dead_letter", "failed_retryable"])
async def test_a_person_resolves_a_record_as_executed(bench: Bench, state: str) -> None:
    """The next retry gets that answer, whatever the gateway had in mind; who said so, and why, is in history and audit."""
    await bench.make("k", state)
    headers = ((b"Content-Type", b"application/json"), (b"Set-Cookie", b"x=1"), (b"Connection", b"X-Hop"), (b"X-Hop", b"1"))
    changed = await bench.operator.resolve_completed(key("k"), BY, status=402, headers=headers, body=b'{"declined": true}')
    now = done(changed)
    assert (now.status, now.response_status, now.response_length) == (Status.COMPLETED, 402, 18)
    found = await bench.retry("k")
    assert isinstance(found, Record)
    assert found.response is not None
    assert (found.response.status, found.response.reason, found.response.body) == (402, b"Payment Required", b'{"declined": true}')
    assert found.response.headers == headers[:1]
    assert found.expires_in == pytest.approx(POLICY.retention, abs=60)
    shown = await bench.operator.records.show(key("k"))
    assert isinstance(shown, Shown)
    (line,) = shown.history
    assert (line.entry.source, line.entry.what, line.entry.actor, line.entry.reason) == ("operator", "executed", BY.actor, BY.reason)
    (audit,) = await bench.audited()
    assert (audit.actor, audit.action, audit.reason, audit.detail["verdict"]) == (BY.actor, "resolve", BY.reason, "executed")
    assert (audit.detail["was"], audit.detail["response_length"]) == (state.replace("dead_letter", "unknown"), 18)


async def test_a_long_answer_is_packed_as_others_are(bench: Bench) -> None:
    """And unpacked when it is shown; the gateway reads it like any other."""
    await bench.make("k", "dead_letter")
    body = b'{"n": 1}' * 20_000
    done(await bench.operator.resolve_completed(key("k"), BY, status=200, body=body))
    found = await bench.authority.find(key("k"))
    assert found is not None
    assert found.response is not None
    assert found.response.encoding == ZLIB
    shown = await bench.operator.records.show_body(key("k"), BY)
    assert isinstance(shown, Shown)
    assert shown.response is not None
    assert shown.response.body == body


async def test_retention_is_the_routes_unless_it_is_said(bench: Bench) -> None:
    """Of a route that has left the map it is a day; what else becomes of records under the route counts, too."""
    bench.policies["gone"] = replace(POLICY, on_expired=OnExpired.GONE, tombstone=50.0, expired=Expired.KEEP, keep_for=70.0)
    cases = {"create-charge": (None, 1000.0), "gone": (77.0, 77.0), "nowhere": (None, 86400.0)}
    for route, (said, wanted) in cases.items():
        await bench.make(route, "unknown", route_id=route)
        now = done(await bench.operator.resolve_completed(key(route), BY, status=200, retention=said))
        assert now.completed_at is not None
        assert now.expires_at == now.completed_at + dt.timedelta(seconds=wanted)
    connection = await asyncpg.connect(bench.dsn)
    kept = await connection.fetch("SELECT idempotency_key, gone_for, keep_for FROM gateway_records ORDER BY 1")
    await connection.close()
    day = dt.timedelta
    assert [tuple(row) for row in kept] == [
        ("create-charge", None, None),
        ("gone", day(seconds=50), day(seconds=70)),
        ("nowhere", None, None),
    ]


async def test_not_executed_is_refused_while_the_upstream_may_be_at_it(bench: Bench) -> None:
    """The instant is told; after it the next retry runs."""
    lease = await bench.make("k", "unknown")
    shown = await bench.operator.records.show(key("k"))
    assert isinstance(shown, Shown)
    for early in (
        await bench.operator.resolve_not_executed(key("k"), BY),
        await bench.operator.release(key("k"), BY),
    ):
        assert early == TooEarly(cast("dt.datetime", shown.listed.doubtful_until), shown.listed)
    assert await bench.audited() == []
    await age_records(bench.dsn, OVER)
    now = done(await bench.operator.resolve_not_executed(key("k"), BY))
    assert (now.status, now.reason) == (Status.FAILED_RETRYABLE, "verdict_not_executed")
    found = await bench.retry("k")
    assert isinstance(found, Record)
    claimed = await bench.store.claim(found, intent(key("k")))
    assert claimed is not None
    assert (claimed.record_id, claimed.attempt) == (lease.record_id, 2)


async def test_a_lapsed_lease_is_released(bench: Bench) -> None:
    """*Not executed* waits for the sweep, a release does not; Redis forgets the lease."""
    await bench.make("k", "in_progress")
    running = await bench.operator.release(key("k"), BY)
    assert isinstance(running, Conflict)
    assert "under way" in running.why
    await age_records(bench.dsn, LEASE + 1)
    assert isinstance(await bench.operator.release(key("k"), BY), TooEarly)
    await age_records(bench.dsn, MAX_EXECUTION)
    assert isinstance(await bench.operator.resolve_not_executed(key("k"), BY), Conflict)
    changed = await bench.operator.release(key("k"), BY)
    assert done(changed).reason == "operator_released"
    assert isinstance(changed, Done)
    assert changed.redis_wait == 0.0
    assert await bench.hot.get(key("k").lookup_digest()) is None


async def test_evidence_stands_against_not_executed(bench: Bench) -> None:
    """A webhook has told that the operation was executed: no person says otherwise by mistake."""
    lease = await bench.make("k", "in_progress")
    shown = await bench.operator.records.show(key("k"))
    assert isinstance(shown, Shown)
    at = Fence(key("k"), lease.record_id, shown.listed.version)
    await bench.authority.reconciliation.attach(at, Evidence(response(), Entry("webhook", "executed")), None)
    await bench.store.doubt(lease, "upstream_timeout")
    await age_records(bench.dsn, OVER)
    for refused in (await bench.operator.resolve_not_executed(key("k"), BY), await bench.operator.release(key("k"), BY)):
        assert isinstance(refused, Conflict)
        assert "webhook" in refused.why
    done(await bench.operator.resolve_completed(key("k"), BY, status=201))


# ---- deletion


async def test_a_deleted_record_is_gone_everywhere(bench: Bench) -> None:
    """Postgres first, then Redis, which acknowledges; the next request runs."""
    await bench.make("k", "completed")
    assert isinstance(decode(key("k").lookup_digest(), await bench.hot.get(key("k").lookup_digest()) or b"", Seal(b"")), CompletedEntry)
    assert await bench.operator.delete(key("k"), BY) == Done(None, 0.0)
    assert await bench.operator.records.show(key("k")) == NotFound()
    assert await bench.operator.delete(key("k"), BY) == NotFound()
    assert isinstance(await bench.retry("k"), Lease)
    (audit,) = await bench.audited()
    assert (audit.action, audit.detail["was"], audit.detail["request_id"]) == ("delete", "completed", "request-1")


async def test_without_redis_nothing_is_said_of_it(bench: Bench) -> None:
    """A gateway of Postgres alone has nobody to wait for."""
    await bench.make("k", "completed")
    operator = Operator(bench.authority.operations, bench.authority.reconciliation, dict)
    assert await operator.delete(key("k"), BY) == Done(None, None)


async def test_a_redis_that_is_away_is_named_with_the_time_to_wait(bench: Bench) -> None:
    """It is deleted in Postgres all the same: what Redis holds ends by itself."""
    await bench.make("k", "completed")
    async with linked("redis://127.0.0.1:1/0") as nowhere:
        lost = TieredStore(bench.authority, HotPath(nowhere), SystemClock(), lease_ttl=4.0, replay_ttl=600.0)
        operator = Operator(bench.authority.operations, bench.authority.reconciliation, dict, lost.forget)
        assert await operator.delete(key("k"), BY) == Done(None, 604.0)


# ---- dead letters


async def test_a_dead_letter_is_requeued(bench: Bench) -> None:
    """Where something can look for it; it is due at once."""
    await bench.make("k", "dead_letter")
    now = done(await bench.operator.requeue(key("k"), BY))
    assert (now.status, now.dead_lettered_at, now.looks) == (Status.UNKNOWN, None, 0)
    assert [taken.fence.key for taken in await bench.authority.reconciliation.take_due("create-charge", 5, 30.0)] == [key("k")]


@pytest.mark.parametrize("policies", [{}, {"create-charge": replace(POLICY, on_unknown=OnUnknown.RECONCILE)}])
async def test_a_dead_letter_that_nobody_would_look_for_stays_one(bench: Bench, policies: Mapping[str, Policy]) -> None:
    """Hidden from those who watch dead letters it would be forgotten."""
    await bench.make("k", "dead_letter")
    bench.policies.clear()
    bench.policies.update(policies)
    refused = await bench.operator.requeue(key("k"), BY)
    assert isinstance(refused, Conflict)
    assert "nothing would look for it" in refused.why
    assert refused.now.dead_lettered_at is not None


# ---- conflicts


async def test_what_a_record_does_not_allow_is_told_with_the_record(bench: Bench) -> None:
    """Nothing is written down then."""
    await bench.make("k", "completed")
    for refused in (
        await bench.operator.resolve_completed(key("k"), BY, status=200),
        await bench.operator.resolve_not_executed(key("k"), BY),
        await bench.operator.release(key("k"), BY),
        await bench.operator.requeue(key("k"), BY),
    ):
        assert isinstance(refused, Conflict)
        assert refused.now.status is Status.COMPLETED
    await bench.make("u", "unknown")
    assert isinstance(await bench.operator.delete(key("u"), BY), Conflict)
    assert await bench.audited() == []


async def test_the_version_that_a_person_saw_can_be_asked_for(bench: Bench) -> None:
    """A record that has changed since is not changed."""
    await bench.make("k", "unknown")
    refused = await bench.operator.resolve_completed(key("k"), BY, status=200, version=1)
    assert isinstance(refused, Conflict)
    assert "version is 2, not 1" in refused.why
    done(await bench.operator.resolve_completed(key("k"), BY, status=200, version=2))


async def test_a_change_that_comes_second_is_told_what_the_record_is_now(bench: Bench) -> None:
    """Two people at once, or a person and the original answer: one is done, the other sees it. One truth, one audit line."""
    for n in range(10):
        lease = await bench.make(f"k{n}", "unknown")
        await age_records(bench.dsn, OVER)
        outcomes = await asyncio.gather(
            bench.operator.resolve_completed(key(f"k{n}"), BY, status=200, body=b"mine"),
            bench.operator.resolve_not_executed(key(f"k{n}"), BY),
            bench.store.complete(lease, response(), KEPT),
        )
        first, second, settled = outcomes
        shown = await bench.operator.records.show_body(key(f"k{n}"), BY)
        assert isinstance(shown, Shown)
        assert shown.listed.status is Status.COMPLETED
        assert shown.response is not None
        assert (shown.response.body == b"mine") == (settled.transition is Transition.STALE)
        for outcome in (first, second):
            assert isinstance(outcome, Done | Conflict)
        verdicts = [line for line in shown.history if line.entry.source == "operator"]
        assert len(verdicts) == sum(isinstance(outcome, Done) for outcome in (first, second))


async def test_a_late_answer_after_a_verdict_is_stale(bench: Bench) -> None:
    """Both clients see one truth: the verdict's."""
    lease = await bench.make("k", "unknown")
    done(await bench.operator.resolve_completed(key("k"), BY, status=200, body=b"mine"))
    assert (await bench.store.complete(lease, response(), KEPT)).transition is Transition.STALE


@pytest.mark.parametrize("retention", [0.0, -1.0, 1e12, float("nan")])
async def test_a_retention_must_be_a_time(bench: Bench, retention: float) -> None:
    """Neither none nor for ever."""
    await bench.make("k", "unknown")
    with pytest.raises(Wrong) as caught:
        await bench.operator.resolve_completed(key("k"), BY, status=200, retention=retention)
    assert caught.value.field == "retention"


async def test_without_a_database_it_is_said(bench: Bench) -> None:
    """The store's error comes through, for the listener's 503 or a command's exit code."""
    away = PostgresStore("postgresql://nobody@127.0.0.1:1/none", pool_size=1, timeout=5)
    operator = Operator(away.operations, away.reconciliation, dict)
    for call in (operator.records.show(key("k")), operator.release(key("k"), BY), operator.records.select(Selection())):
        with pytest.raises(StoreUnavailable):
            await call
    await away.close()
