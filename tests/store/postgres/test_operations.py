"""What operators see and change, against every Postgres: lists, pages, one record, and the fenced changes with their audit lines."""

import asyncio
import datetime as dt
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TypeAlias
from uuid import UUID

import asyncpg
import pytest

from gateway.core.model import Lease, RecordKey, Status
from gateway.ports import Answered, Doubted, Retention, StoreUnavailable, Transition
from gateway.ports.reconciliation import Audit, Entry, Evidence, Fence, Listed, Selection, Shown, deleted_key
from gateway.store.postgres import PostgresStore
from gateway.store.postgres.cursors import Position, write_cursor
from tests.store.contract.harness import KEPT, LEASE, MAX_EXECUTION, PostgresHarness, intent, packed_response, reserved, response
from tests.store.postgres.watch import until_waiting

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

AUDIT = Audit("ada", "release", "the provider said so", {"ticket": "OPS-1", "amount": 5, "sure": True})
NONE = UUID(int=0)


@pytest.fixture
async def harness(every_database: str) -> AsyncIterator[PostgresHarness]:
    store = PostgresStore(every_database, pool_size=4, timeout=30)
    yield PostgresHarness(every_database, store)
    await store.close()


@pytest.fixture
async def look(every_database: str) -> AsyncIterator[Connection]:
    """A connection of the test's own."""
    connection = await asyncpg.connect(every_database)
    yield connection
    await connection.close()


def key(name: str, scope: str = "payments:none") -> RecordKey:
    return RecordKey(scope, name)


async def make(harness: PostgresHarness, record: RecordKey, state: str, **settings: object) -> Lease:
    """A record in that state; its lease. `lapsed` is in progress, past its lease."""
    wanted = intent(record, reconcilable=state != "dead_letter", **settings)  # type: ignore[arg-type]  # settings of a test's choice
    lease = await reserved(harness.store, wanted)
    match state:
        case "completed":
            await harness.store.complete(lease, response(), KEPT)
        case "failed_retryable":
            await harness.store.release(lease, "connection_refused", KEPT)
        case "unknown" | "dead_letter":
            await harness.store.doubt(lease, "upstream_timeout")
        case _:
            assert state == "in_progress"
    return lease


async def shown(harness: PostgresHarness, record: RecordKey) -> Shown:
    found = await harness.store.operations.show(record)
    assert found is not None
    return found


async def fence(harness: PostgresHarness, record: RecordKey) -> Fence:
    now = (await shown(harness, record)).listed
    return Fence(now.key, now.record_id, now.version)


async def walk(harness: PostgresHarness, selection: Selection, limit: int = 2) -> list[str]:
    """The keys of all pages, in order."""
    keys: list[str] = []
    cursor: str | None = None
    while True:
        page = await harness.store.operations.select(selection, cursor, limit)
        assert len(page.records) <= limit
        keys += [listed.key.key for listed in page.records]
        cursor = page.cursor
        if cursor is None:
            return keys


# ---- lists


STATES = ("in_progress", "completed", "failed_retryable", "unknown", "dead_letter")


async def test_each_state_is_listed_page_by_page(harness: PostgresHarness) -> None:
    """Every record once, under its state, a dead letter under `unknown`, too; and all of them in the order of scope and key."""
    for n in range(5):
        for state in STATES:
            await make(harness, key(f"{state}-{n}"), state)
    for state in STATES:
        wanted = {f"{state}-{n}" for n in range(5)} | ({f"dead_letter-{n}" for n in range(5)} if state == "unknown" else set())
        for limit in (1, 2, 5, 1000):
            keys = await walk(harness, Selection(state=state), limit)
            assert len(keys) == len(wanted)
            assert set(keys) == wanted
    assert await walk(harness, Selection()) == sorted(f"{state}-{n}" for state in STATES for n in range(5))


async def test_lists_are_in_the_order_of_the_states_instant(harness: PostgresHarness) -> None:
    """Those in doubt the longest come first."""
    for name in ("c", "a", "b"):
        await make(harness, key(name), "dead_letter")
    assert await walk(harness, Selection(state="dead_letter"), 1) == ["c", "a", "b"]
    assert await walk(harness, Selection(state="unknown"), 1) == ["c", "a", "b"]


async def test_lists_narrow_by_route_and_scope(harness: PostgresHarness) -> None:
    """A scope is a name, not a beginning of one; both together, and with any state."""
    for scope in ("payments:none", "payments:header.x", "payments-eu:none", "payment:none", "paymentsx:none"):
        for route in ("charge", "refund"):
            for state in ("completed", "unknown", "dead_letter"):
                await make(harness, key(f"{scope} {route} {state}", scope), state, route_id=route)
    ours = {f"payments:{who} {route} {state}" for who in ("none", "header.x") for route in ("charge", "refund") for state in STATES[1::2]}
    dead = {name.replace("unknown", "dead_letter") for name in ours if name.endswith("unknown")}
    assert set(await walk(harness, Selection(scope="payments"))) == ours | dead
    assert set(await walk(harness, Selection(scope="payments", state="unknown"))) == {n for n in ours if n.endswith("unknown")} | dead
    refunds = await walk(harness, Selection(scope="payments", state="dead_letter", route="refund"))
    assert sorted(refunds) == ["payments:header.x refund dead_letter", "payments:none refund dead_letter"]
    assert len(await walk(harness, Selection(route="charge"))) == 15
    assert await walk(harness, Selection(route="nothing")) == []
    assert await walk(harness, Selection(scope="nothing", state="unknown")) == []


async def test_a_key_is_found_in_every_scope(harness: PostgresHarness) -> None:
    """Exactly the key, under whichever principal, in one scope or in all, with the other filters."""
    for n in range(30):
        await make(harness, key("order-1" if n % 3 == 0 else "order-10", f"payments:header.{n}"), "unknown" if n % 2 else "completed")
    await make(harness, key("order-1", "refunds:none"), "dead_letter")
    assert await walk(harness, Selection(key="order-1")) == ["order-1"] * 11
    assert await walk(harness, Selection(key="order-1", scope="payments"), 3) == ["order-1"] * 10
    assert len(await walk(harness, Selection(key="order-1", state="unknown"))) == 6
    assert len(await walk(harness, Selection(key="order-1", state="dead_letter"))) == 1
    assert await walk(harness, Selection(key="order-1", route="nothing")) == []
    assert await walk(harness, Selection(key="order")) == []
    assert await walk(harness, Selection(key="")) == []


async def test_a_record_is_found_by_the_trace_in_which_its_request_id_was_made(harness: PostgresHarness) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    for n, request_id in enumerate((f"{trace}-00f067aa0ba902b7", trace, f"x{trace}-1", trace[:-1] + "7-00f067aa0ba902b7")):
        await make(harness, key(f"k{n}"), "completed", request_id=request_id)
    assert await walk(harness, Selection(trace_id=trace)) == ["k0"]


async def test_a_record_is_found_by_what_a_log_line_has(harness: PostgresHarness) -> None:
    """One caller's records, exactly; the request id of the last attempt; when it was made; and the first bits of its digest."""
    for n in range(3):
        for scope in ("payments:header.a", "payments:header.ab", "payments:none"):
            await make(harness, key(f"k{n}", scope), STATES[n], request_id=f"request-{scope}-{n}")
    ours = RecordKey("payments:header.a", "k1")
    assert await walk(harness, Selection(scope_id="payments:header.a")) == ["k0", "k1", "k2"]
    assert await walk(harness, Selection(scope_id="payments:header.a", key="k1")) == ["k1"]
    assert await walk(harness, Selection(scope_id="payments:header.a", scope="payments")) == ["k0", "k1", "k2"]
    assert await walk(harness, Selection(scope_id="payments:header.a", scope="refunds")) == []
    assert await walk(harness, Selection(scope_id="payments:header.a", state="completed")) == ["k1"]
    assert await walk(harness, Selection(request_id="request-payments:header.a-1")) == ["k1"]
    assert await walk(harness, Selection(request_id="request-payments:header.a-1", state="unknown")) == []
    made = (await shown(harness, ours)).listed.created_at
    assert await walk(harness, Selection(scope_id=ours.scope_id, since=made)) == ["k1", "k2"]
    assert await walk(harness, Selection(scope_id=ours.scope_id, until=made)) == ["k0"]
    assert await walk(harness, Selection(since=made + dt.timedelta(hours=1))) == []
    digest = ours.lookup_digest()[:7]
    (found,) = (await harness.store.operations.select(Selection(digests=(digest, digest)), None, 5)).records
    assert found.key == ours
    assert len(await walk(harness, Selection(digests=(b"\0" * 7, b"\xff" * 7)))) == 9


async def test_a_digest_is_that_of_the_gateway_whatever_the_key_holds(harness: PostgresHarness) -> None:
    """Postgres computes the very digest that names a record elsewhere, of texts that are no ASCII, too."""
    for n, name in enumerate(("k", "ké", "\N{KEY}" * 9, "'\\x00:1")):
        record = key(name, f"p{n}é:none")
        await make(harness, record, "unknown")
        exact = record.lookup_digest()
        assert await walk(harness, Selection(state="unknown", digests=(exact, exact))) == [name]


async def test_a_walk_survives_changes(harness: PostgresHarness) -> None:
    """Records that stay as they are appear exactly once, whatever becomes of those around them and of the one that the page ended with."""
    leases = [await make(harness, key(f"k{n:02}"), "unknown") for n in range(20)]
    page = await harness.store.operations.select(Selection(state="unknown"), None, 5)
    for n in (0, 3, 4, 5, 9, 19):
        await harness.store.complete(leases[n], response(), KEPT)
    for n in range(20, 25):
        await make(harness, key(f"k{n:02}"), "unknown")
    keys = [listed.key.key for listed in page.records]
    while page.cursor is not None:
        page = await harness.store.operations.select(Selection(state="unknown"), page.cursor, 5)
        keys += [listed.key.key for listed in page.records]
    assert keys == [f"k{n:02}" for n in range(25) if n < 5 or n not in {5, 9, 19}]


@pytest.mark.parametrize("cursor", ["", "x", "%", "W10", "bnVsbA", "é", "A" * 5000, "[" * 3])
async def test_what_is_no_cursor_is_refused(harness: PostgresHarness, cursor: str) -> None:
    """Whatever a stranger sends, the answer is a sentence; no statement is sent."""
    with pytest.raises(ValueError, match="no cursor of this selection"):
        await harness.store.operations.select(Selection(), cursor, 5)


@pytest.mark.parametrize("position", [Position("a\0", "b"), Position("a", "b\0")])
async def test_a_made_up_cursor_is_no_error_of_the_store(harness: PostgresHarness, position: Position) -> None:
    """Anybody can make one, since no secret is in it; what Postgres keeps in no text ends no page."""
    with pytest.raises(ValueError, match="no cursor of this selection"):
        await harness.store.operations.select(Selection(), write_cursor(Selection(), position), 5)


async def test_a_cursor_is_good_for_its_selection_alone(harness: PostgresHarness) -> None:
    """With other filters it would skip records in silence; a damaged one is known, too."""
    cursor = write_cursor(Selection(state="unknown"), Position("payments:none", "k\u00e9", dt.datetime.now(dt.UTC)))  # noqa: TID251 (any instant)
    assert (await harness.store.operations.select(Selection(state="unknown"), cursor, 5)).cursor is None
    for selection, text in (
        (Selection(state="dead_letter"), cursor),
        (Selection(state="unknown", route="x"), cursor),
        (Selection(state="unknown"), cursor[:-2]),
        (Selection(state="unknown"), cursor + "A"),
        (Selection(state="unknown"), cursor + "="),
    ):
        with pytest.raises(ValueError, match="no cursor of this selection"):
            await harness.store.operations.select(selection, text, 5)


# ---- one record


async def test_a_listed_record_tells_its_facts(harness: PostgresHarness) -> None:
    """Those of its state are there, the others are None; instants are aware."""
    record = key("k")
    lease = await make(harness, record, "in_progress")
    running = (await shown(harness, record)).listed
    assert (running.status, running.attempt, running.version, running.route_id) == (Status.IN_PROGRESS, 1, 1, "create-charge")
    assert running.locked_until is not None
    assert running.doubtful_until == running.locked_until + dt.timedelta(seconds=MAX_EXECUTION)
    await harness.store.doubt(lease, "upstream_timeout")
    doubtful = (await shown(harness, record)).listed
    assert (doubtful.status, doubtful.reason, doubtful.locked_until) == (Status.UNKNOWN, "upstream_timeout", None)
    assert doubtful.doubtful_until == running.doubtful_until
    assert doubtful.dead_lettered_at is None
    await harness.store.complete(lease, response(), KEPT)
    done = await shown(harness, record)
    assert (done.listed.status, done.listed.response_status, done.listed.response_length) == (
        Status.COMPLETED,
        201,
        len(response().body or b""),
    )
    assert done.listed.doubtful_until is None
    assert done.listed.expires_at is not None
    assert done.listed.expires_at - done.at < dt.timedelta(seconds=KEPT.seconds)
    (listed,) = (await harness.store.operations.select(Selection(), None, 5)).records
    assert listed == done.listed
    assert await harness.store.operations.show(key("other")) is None


async def test_a_record_is_shown_whole(harness: PostgresHarness) -> None:
    """Target, captured values, fingerprint, and the history of this life, oldest first."""
    record = key("k")
    lease = await make(harness, record, "unknown", captured={"order": "A-1", "note": "é\u2028"}, target=b"/v1/pay?\xff")
    first, second = Entry("lookup", "not_executed", {"status": 404, "sha256": None}), Entry("operator", "released", {}, "ada", "why")
    await harness.store.reconciliation.note(record, lease.record_id, first)
    await harness.store.reconciliation.note(record, lease.record_id, second)
    await harness.store.reconciliation.note(record, NONE, first)
    found = await shown(harness, record)
    assert (found.target, found.captured, found.response) == (b"/v1/pay?\xff", {"order": "A-1", "note": "é\u2028"}, None)
    assert (found.fingerprint_version, found.fingerprint) == (1, intent().fingerprint.digest)
    assert [line.entry for line in found.history] == [first, second]
    assert found.history[0].at <= found.history[1].at <= found.at
    assert not found.evidence


async def test_a_body_is_shown_only_if_asked_for_and_that_is_written_down(harness: PostgresHarness) -> None:
    """Status, headers, length and digest are always there; an audit line is written for records that are there alone."""
    record = key("k")
    lease = await make(harness, record, "in_progress")
    answer = replace(packed_response(), headers=((b"X", b"1"), (b"x", b"2")))
    await harness.store.complete(lease, answer, KEPT)
    assert (await shown(harness, record)).response == answer.without_body()
    assert await harness.store.operations.audited(0, 10) == []
    found = await harness.store.operations.show(record, body=True, audit=AUDIT)
    assert found is not None
    assert found.response == answer
    assert await harness.store.operations.show(key("other"), body=True, audit=AUDIT) is None
    (line,) = await harness.store.operations.audited(0, 10)
    assert (line.audit, line.key, line.record_id, line.at) == (AUDIT, record, lease.record_id, found.at)


async def test_evidence_is_told(harness: PostgresHarness) -> None:
    """What a webhook said while the attempt ran is a fact that operators must see."""
    record = key("k")
    lease = await make(harness, record, "in_progress")
    evidence = Evidence(response(), Entry("webhook", "executed"))
    assert await harness.store.reconciliation.attach(await fence(harness, record), evidence, None) is Transition.DONE
    assert (await shown(harness, record)).evidence
    await harness.store.doubt(lease, "upstream_timeout")
    assert (await shown(harness, record)).evidence


async def test_the_audit_is_read_in_order(harness: PostgresHarness) -> None:
    """From any line on, so many at a time."""
    for n in range(5):
        await harness.store.operations.write_audit(key(f"k{n}"), NONE, replace(AUDIT, action="export"))
    lines = await harness.store.operations.audited(0, 3)
    assert [line.key.key for line in lines] == ["k0", "k1", "k2"]
    assert [line.key.key for line in await harness.store.operations.audited(lines[-1].id, 3)] == ["k3", "k4"]


# ---- changes


async def test_a_dead_letter_is_requeued_from_the_beginning(harness: PostgresHarness, look: Connection) -> None:
    """It is due now, its looks and their age begin anew. Since when it is unknown stays, and from when on *not executed* may count. That is
    remembered twice.
    """
    record = key("k")
    lease = await make(harness, record, "dead_letter")
    await look.execute("UPDATE gateway_records SET reconcile_attempts = 7, reconcile_agreed = 1, agreed_at = now()")
    await harness.advance(10)
    before = (await shown(harness, record)).listed
    assert await harness.store.operations.requeue(await fence(harness, record), AUDIT) is Transition.DONE
    after = await shown(harness, record)
    now = after.listed
    assert (now.status, now.dead_lettered_at, now.looks, now.version) == (Status.UNKNOWN, None, 0, before.version + 1)
    assert now.doubtful_until == before.doubtful_until
    assert now.unknown_since == before.unknown_since
    (line,) = after.history
    assert (line.entry.source, line.entry.what, line.entry.actor, line.entry.reason) == ("operator", "requeued", "ada", AUDIT.reason)
    (written,) = await harness.store.operations.audited(0, 10)
    assert (written.audit, written.key, written.record_id) == (AUDIT, record, lease.record_id)
    (taken,) = await harness.store.reconciliation.take_due("create-charge", 5, 30.0)
    assert (taken.look, taken.agreed, taken.over) == (1, 0, False)
    assert taken.age < 9 < taken.born_ago


async def test_a_requeued_doubt_of_the_release_before_is_no_younger(harness: PostgresHarness, look: Connection) -> None:
    """Where only `unknown_since` says when the upstream has finished, moving it must not move that instant."""
    record = key("k")
    await make(harness, record, "dead_letter")
    await look.execute("UPDATE gateway_records SET doubtful_until = NULL")
    before = (await shown(harness, record)).listed
    assert before.unknown_since is not None
    assert before.doubtful_until == before.unknown_since + dt.timedelta(seconds=MAX_EXECUTION)
    assert await harness.store.operations.requeue(await fence(harness, record), AUDIT) is Transition.DONE
    assert (await shown(harness, record)).listed.doubtful_until == before.doubtful_until


@pytest.mark.parametrize("state", ["unknown", "dead_letter"])
async def test_a_doubtful_record_is_released_once_the_upstream_has_finished(harness: PostgresHarness, state: str) -> None:
    """Not before; then the next claim may take it, and the former owner's late answer still counts until then."""
    record = key("k")
    lease = await make(harness, record, state)
    operations = harness.store.operations
    assert await operations.release(await fence(harness, record), KEPT, AUDIT) is Transition.STALE
    await harness.advance(LEASE + MAX_EXECUTION - 5)
    assert await operations.release(await fence(harness, record), KEPT, AUDIT) is Transition.STALE
    await harness.advance(6)
    assert await operations.release(await fence(harness, record), Retention(100, 5, 7), AUDIT) is Transition.DONE
    after = await shown(harness, record)
    assert (after.listed.status, after.listed.reason, after.listed.dead_lettered_at) == (Status.FAILED_RETRYABLE, "operator_released", None)
    assert after.listed.expires_at == after.history[0].at + dt.timedelta(seconds=100)
    assert len(await operations.audited(0, 10)) == 1
    free = await harness.store.find(record)
    assert free is not None
    assert free.judged, "a person may be wrong: a refusal of the next attempt is no answer"
    assert (await harness.store.complete(lease, response(), KEPT)).transition is Transition.DONE


async def test_a_lapsed_lease_is_released_after_the_same_time(harness: PostgresHarness) -> None:
    """Also where no sweep has come by; a live one never."""
    record = key("k")
    await make(harness, record, "in_progress")
    for passed in (0.0, LEASE + 1, MAX_EXECUTION - 5):
        await harness.advance(passed)
        assert await harness.store.operations.release(await fence(harness, record), KEPT, AUDIT) is Transition.STALE
    await harness.advance(5)
    assert await harness.store.operations.release(await fence(harness, record), KEPT, AUDIT) is Transition.DONE
    assert (await shown(harness, record)).listed.locked_until is None


async def test_evidence_of_execution_keeps_a_record_from_being_released(harness: PostgresHarness) -> None:
    """Nobody's word lets an operation run again that a webhook has told as executed."""
    record = key("k")
    lease = await make(harness, record, "in_progress")
    evidence = Evidence(response(), Entry("webhook", "executed"))
    await harness.store.reconciliation.attach(await fence(harness, record), evidence, None)
    await harness.store.doubt(lease, "upstream_timeout")
    await harness.advance(LEASE + MAX_EXECUTION + 1)
    assert await harness.store.operations.release(await fence(harness, record), KEPT, AUDIT) is Transition.STALE


async def test_a_deleted_record_is_not_put_back(harness: PostgresHarness) -> None:
    """By an attempt whose commit was acknowledged to nobody: it repeats its settle, and finds nothing any more."""
    wanted = intent()
    lease = await reserved(harness.store, wanted)
    await harness.store.complete(lease, response(), KEPT)
    assert await harness.store.operations.delete(await fence(harness, wanted.key), AUDIT) is Transition.DONE
    assert (await harness.store.complete(lease, response(), KEPT)).transition is Transition.MISSING
    for end in (Answered(response(), KEPT), Doubted("x")):
        assert (await harness.store.restore(lease, wanted, end)).transition is Transition.MISSING
    assert await harness.store.find(wanted.key) is None


@pytest.mark.parametrize("state", ["completed", "failed_retryable"])
async def test_an_ended_record_is_deleted(harness: PostgresHarness, look: Connection, state: str) -> None:
    """Its key is free, also of an earlier life's tombstone; the audit line stays."""
    record = key("k")
    lease = await make(harness, record, state)
    await look.execute(
        "INSERT INTO gateway_tombstones VALUES ($1, 'r', now() + '1 day'), ($2, 'r', now())", record.lookup_digest(), b"x" * 32
    )
    assert await harness.store.operations.delete(await fence(harness, record), AUDIT) is Transition.DONE
    assert await harness.store.operations.show(record) is None
    (line,) = await harness.store.operations.audited(0, 10)
    assert (line.audit, line.key, line.record_id) == (AUDIT, deleted_key(record), lease.record_id)
    assert isinstance(await harness.store.reserve(intent(record, gone_for=1000.0)), Lease)
    assert await look.fetchval("SELECT count(*) FROM gateway_tombstones") == 1


async def test_a_deletion_leaves_nothing_of_a_key_but_its_digest(harness: PostgresHarness, look: Connection) -> None:
    """Neither of this life nor of those in the archive, in no table. What was done about it, when and by whom, is still told."""
    record, operations = key("anna@example.com-order-7"), harness.store.operations
    kept = Retention(10.0, keep_for=1e6)
    first = await reserved(harness.store, intent(record))
    await harness.store.complete(first, response(), kept)
    await harness.advance(11)
    again = await harness.store.find(record)
    assert again is not None
    second = await harness.store.claim(again, intent(record))
    assert second is not None
    await harness.store.complete(second, response(), kept)
    assert len(await harness.archived(record)) == 1
    told = Entry("lookup", "not_executed", {"request": "GET /orders/anna"}, "ada", "looked")
    await harness.store.reconciliation.note(record, second.record_id, told)
    await operations.show(record, body=True, audit=replace(AUDIT, action="show_body"))
    other = await make(harness, key("other"), "completed")
    await operations.show(other.key, body=True, audit=AUDIT)

    assert await operations.delete(await fence(harness, record), replace(AUDIT, action="delete")) is Transition.DONE

    for (table,) in await look.fetch("SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'gateway_%'"):
        rows = await look.fetch(f"SELECT to_jsonb(t)::text FROM {table} t")
        assert not [row for (row,) in rows if "anna" in row], table
    (line,) = await look.fetch("SELECT idempotency_key, source, what, actor, reason, detail FROM gateway_history")
    assert tuple(line) == (deleted_key(record).key, "lookup", "not_executed", "ada", "looked", "{}")
    lines = [(line.audit.action, line.key) for line in await operations.audited(0, 10)]
    assert lines == [("show_body", deleted_key(record)), (AUDIT.action, other.key), ("delete", deleted_key(record))]


async def test_an_audit_line_is_never_changed_but_for_its_key_to_its_digest(harness: PostgresHarness, look: Connection) -> None:
    """No other digest, and nothing beside it; nor is a line ever taken away."""
    record = key("k")
    await make(harness, record, "completed")
    await harness.store.operations.show(record, body=True, audit=AUDIT)
    right, wrong = deleted_key(record).key, deleted_key(key("other")).key
    refused = [f"SET idempotency_key = '{wrong}'", "SET idempotency_key = 'x'", f"SET idempotency_key = '{right}', actor = 'eve'"]
    refused += ["SET reason = ''", "SET detail = '{}'", "SET record_id = gen_random_uuid()", "SET actor = actor"]
    for change in (*(f"UPDATE gateway_audit {change}" for change in refused), "DELETE FROM gateway_audit", "TRUNCATE gateway_audit"):
        with pytest.raises(asyncpg.RaiseError, match="append-only"):
            await look.execute(change)
    await look.execute(f"UPDATE gateway_audit SET idempotency_key = '{right}'")


async def test_what_a_change_is_not_for_is_left_alone(harness: PostgresHarness, look: Connection) -> None:
    """Every other state, another version, another life, and no record: nothing is changed, and nothing is written down."""
    operations = harness.store.operations
    for state in STATES:
        await make(harness, key(state), state)
    await harness.advance(LEASE + MAX_EXECUTION + 1)
    before = await look.fetch("SELECT * FROM gateway_records ORDER BY idempotency_key")
    for state in STATES:
        at = await fence(harness, key(state))
        others = (replace(at, version=at.version + 1), replace(at, version=at.version - 1), replace(at, record_id=NONE))
        for wrong in (*others, *([] if state == "dead_letter" else [at])):
            assert await operations.requeue(wrong, AUDIT) is Transition.STALE
        for wrong in (*others, *([] if state in {"unknown", "dead_letter", "in_progress"} else [at])):
            assert await operations.release(wrong, KEPT, AUDIT) is Transition.STALE
        for wrong in (*others, *([] if state in {"completed", "failed_retryable"} else [at])):
            assert await operations.delete(wrong, AUDIT) is Transition.STALE
    nothing = Fence(key("other"), NONE, 1)
    assert await operations.requeue(nothing, AUDIT) is Transition.MISSING
    assert await operations.release(nothing, KEPT, AUDIT) is Transition.MISSING
    assert await operations.delete(nothing, AUDIT) is Transition.MISSING
    assert await look.fetch("SELECT * FROM gateway_records ORDER BY idempotency_key") == before
    assert await look.fetchval("SELECT count(*) FROM gateway_history") == 0
    assert await operations.audited(0, 10) == []


async def test_observed_records_are_never_released(harness: PostgresHarness) -> None:
    """They guard nothing, and end by themselves; an ended one can be deleted."""
    for state in ("in_progress", "unknown", "completed"):
        await make(harness, key(state), state, observed=True)
    await harness.advance(LEASE + MAX_EXECUTION + 1)
    for state in ("in_progress", "unknown"):
        assert await harness.store.operations.release(await fence(harness, key(state)), KEPT, AUDIT) is Transition.STALE
    assert await harness.store.operations.delete(await fence(harness, key("completed")), AUDIT) is Transition.DONE


# ---- races


async def test_of_two_operators_one_changes_the_record(harness: PostgresHarness, every_database: str) -> None:
    """Both saw the same version: one DONE, the other STALE, one audit line."""
    record = key("k")
    await make(harness, record, "dead_letter")
    await harness.advance(LEASE + MAX_EXECUTION + 1)
    at = await fence(harness, record)
    other = PostgresStore(every_database, pool_size=2, timeout=30)
    try:
        answers = await asyncio.gather(harness.store.operations.release(at, KEPT, AUDIT), other.operations.requeue(at, AUDIT))
    finally:
        await other.close()
    assert sorted(answer.value for answer in answers) == ["done", "stale"]
    assert len(await harness.store.operations.audited(0, 10)) == 1


async def test_a_late_answer_and_a_release_agree(harness: PostgresHarness) -> None:
    """Whoever commits first: a released record may still be completed by its owner, a completed one is not released."""
    for n in range(20):
        record = key(f"k{n}")
        lease = await make(harness, record, "unknown")
        await harness.advance(LEASE + MAX_EXECUTION + 1)
        at = await fence(harness, record)
        released, settled = await asyncio.gather(
            harness.store.operations.release(at, KEPT, AUDIT), harness.store.complete(lease, response(), KEPT)
        )
        assert settled.transition is Transition.DONE
        assert released in {Transition.DONE, Transition.STALE}
        assert (await shown(harness, record)).listed.status is Status.COMPLETED


async def test_a_deletion_and_a_new_life_agree(harness: PostgresHarness) -> None:
    """Either the deletion finds the expired record as it was, or the new life stays."""
    for n in range(20):
        record = key(f"k{n}")
        await make(harness, record, "completed")
        await harness.advance(KEPT.seconds + 1)
        at = await fence(harness, record)
        found = await harness.store.find(record)
        assert found is not None
        deleted, claimed = await asyncio.gather(harness.store.operations.delete(at, AUDIT), harness.store.claim(found, intent(record)))
        assert (deleted is Transition.DONE) == (claimed is None)
        assert (await harness.store.operations.show(record) is None) == (claimed is None)


# ---- out of traffic's way


async def test_operators_use_one_connection_at_a_time(harness: PostgresHarness, look: Connection) -> None:
    """However many of them ask, and whoever stops waiting: the lanes that are left are traffic's."""
    record = key("k")
    await make(harness, record, "completed")
    at = await fence(harness, record)
    async with look.transaction():
        await look.execute("SELECT FROM gateway_records FOR UPDATE")
        first = asyncio.ensure_future(harness.store.operations.delete(at, AUDIT))
        rest = [asyncio.ensure_future(harness.store.operations.select(Selection(), None, 5)) for _ in range(8)]
        await until_waiting(look)
        first.cancel()
        rest[0].cancel()
        assert await harness.store.find(record) is not None
        assert isinstance(await harness.store.reserve(intent(key("new"))), Lease)
        assert not any(task.done() for task in rest[1:])
    pages = await asyncio.gather(*rest[1:])
    assert all([listed.key.key for listed in page.records] == ["new"] for page in pages)


async def test_operators_work_behind_a_pooler(harness: PostgresHarness, every_database: str) -> None:
    """Nothing needs a prepared statement or a session."""
    store = PostgresStore(every_database, pool_size=2, timeout=30, prepared_statements=False)
    try:
        for name in ("a", "b", "c"):
            await make(harness, key(name), "dead_letter")
        assert await walk(PostgresHarness(harness.database, store), Selection(state="dead_letter"), 1) == ["a", "b", "c"]
        assert await store.operations.requeue(await fence(harness, key("a")), AUDIT) is Transition.DONE
        found = await store.operations.show(key("a"), body=True, audit=AUDIT)
        assert found is not None
        assert [line.entry.what for line in found.history] == ["requeued"]
        assert len(await store.operations.audited(0, 10)) == 2
    finally:
        await store.close()


async def test_without_a_database_operators_are_told_so(make_away: PostgresStore) -> None:
    """`StoreUnavailable`, and nothing that may have landed."""
    with pytest.raises(StoreUnavailable) as caught:
        await make_away.operations.select(Selection(), None, 5)
    assert not caught.value.may_have_landed


@pytest.fixture
async def make_away() -> AsyncIterator[PostgresStore]:
    store = PostgresStore("postgresql://nobody@127.0.0.1:1/none", pool_size=1, timeout=5)
    yield store
    await store.close()


async def test_what_postgres_cannot_hold_is_an_error_of_the_store(harness: PostgresHarness) -> None:
    """No other exception comes out, whatever is in the text."""
    await make(harness, key("k"), "completed")
    with pytest.raises(StoreUnavailable):
        await harness.store.operations.delete(await fence(harness, key("k")), replace(AUDIT, reason="\0"))
    with pytest.raises(StoreUnavailable):
        await harness.store.operations.select(Selection(key="\0"), None, 5)
    assert (await shown(harness, key("k"))).listed.status is Status.COMPLETED


def test_digests_of_tombstones_are_those_of_the_reaper() -> None:
    """The deletion finds a tombstone by the digest that names the record in Redis."""
    assert key("k").lookup_digest() == hashlib.sha256(b"idempotency-gateway/lookup/1\x0013:payments:nonek").digest()


def test_listed_holds_no_secret() -> None:
    """No owner token is in what operators are shown: it would let them settle in an executor's name."""
    assert not {name for name in (*Listed.__dataclass_fields__, *Shown.__dataclass_fields__) if "owner" in name or "sealed" in name}
