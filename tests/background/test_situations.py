"""What becomes of an unknown outcome, as the truth demands: completed, retryable or a dead letter; executions per key at most 1."""

import asyncio
import hashlib
import json
from dataclasses import replace

import pytest

from gateway.background.reconciler import GRACE, ORPHANED, ORPHANS_FIRST
from gateway.core.hints import Hint, HintedOutcome
from gateway.core.key_policy import ForwardKey
from gateway.core.model import Lease, Status
from gateway.core.policy import Limits, OnUnknown, Route
from gateway.core.reconcile.policy import OWN_PRINCIPAL, AnswerPlan, Condition, Lookup, RequestTemplate, Rule, Verdict
from gateway.core.reconcile.policy import Test as Is
from gateway.devtools.embedded.ports import free_port
from gateway.ports import InDoubt, StoreUnavailable, Transition, UpstreamRequest
from gateway.ports.reconciliation import Audit, Fence
from gateway.runtime.sealing import pack_request
from tests.background.house import (
    ANSWER,
    CANCEL,
    KEPT,
    LOOKUP,
    MAX_EXECUTION,
    PACE,
    RESEND,
    ROUTE,
    SEALER,
    House,
    route,
    until,
)
from tests.store.contract.harness import fresh_key
from tests.support.upstream import Exchange


async def attempt(house: House) -> Lease:
    """A first attempt as the gateway makes it, in doubt at its end."""
    lease = await house.store.reserve(house.intent())
    assert isinstance(lease, Lease)
    request = UpstreamRequest(b"POST", b"/v1/charges", house.fields(lease.key), b'{"order":"o/1"}')
    with pytest.raises(InDoubt):
        await house.client().send(request, lambda: True)
    await house.store.doubt(lease, "upstream_disconnected")
    return lease


async def test_executed_and_then_dropped(house: House) -> None:
    """The lookup's answer becomes the operation's: what rules say of it, byte for byte."""
    house.bank.answers = False
    lease = await attempt(house)
    assert house.bank.executions == {lease.key.key: 1}
    await house.pass_time(30 + MAX_EXECUTION)
    record = await house.look_until(house.reconciler(), lease.key)
    assert record.status is Status.COMPLETED
    assert record.response is not None
    assert record.response.status == 201
    assert record.response.reason == b"Created"
    assert record.response.body == json.dumps(house.bank.charges[lease.key.key], separators=(",", ":")).encode()
    assert record.response.body_digest == hashlib.sha256(record.response.body).digest()
    assert dict(record.response.headers) == {b"X-Source": b"lookup", b"Content-Type": b"application/json"}
    assert house.bank.executions == {lease.key.key: 1}
    assert house.observer.steps == ["scheduled", "resolved"]
    assert [told[:3] for told in house.looked] == [(ROUTE, record.request_id, "executed")]


async def test_dropped_before_executing(house: House) -> None:
    """*Not executed* takes two looks that agree, apart in time; then the next attempt executes, once."""
    house.bank.down = True
    lease = await attempt(house)
    house.bank.down = False
    reconciler = house.reconciler()
    await house.pass_time(30 + MAX_EXECUTION)
    await house.round(reconciler)
    assert (await house.record(lease.key)).status is Status.UNKNOWN
    await house.pass_time(PACE.apart - 5)
    await house.round(reconciler)
    assert len(house.bank.lookups) == 1, "too soon after the first"
    record = await house.look_until(reconciler, lease.key)
    assert record.status is Status.FAILED_RETRYABLE
    assert record.last_error_code == "verdict_not_executed"
    assert [what for _, what, _ in await house.history(lease.key)] == ["not_executed", "not_executed"]
    assert len(house.bank.lookups) == 2
    claimed = await house.store.claim(record, house.intent(lease.key))
    assert claimed is not None
    assert claimed.attempt == 2


async def test_the_late_executor(house: House) -> None:
    """An upstream that executes long after its client is gone is not asked before it has surely finished."""
    house.bank.down = True
    lease = await attempt(house)
    house.bank.down = False
    reconciler = house.reconciler()
    await house.pass_time(MAX_EXECUTION - 1)
    await house.round(reconciler)
    assert house.bank.lookups == []
    house.bank.execute(lease.key.key)
    await house.pass_time(32)
    record = await house.look_until(reconciler, lease.key)
    assert record.status is Status.COMPLETED
    assert house.bank.executions == {lease.key.key: 1}


async def test_a_lookup_that_lies_at_first(house: House) -> None:
    """One look that says *not executed* concludes nothing, and the next knows better."""
    house.bank.answers = False
    lease = await attempt(house)
    house.bank.lies = 1
    await house.pass_time(30 + MAX_EXECUTION)
    record = await house.look_until(house.reconciler(), lease.key)
    assert record.status is Status.COMPLETED
    assert [what for _, what, _ in await house.history(lease.key)] == ["not_executed", "executed"]
    assert house.observer.steps == ["scheduled", "scheduled", "resolved"]


async def test_an_upstream_that_is_down_for_a_while(house: House) -> None:
    """Looks that fail are repeated; an agreement does not outlast one of them."""
    lease = await house.due()
    reconciler = house.reconciler()
    await house.round(reconciler)
    house.bank.down = True
    for _ in range(2):
        await house.pass_time(70)
        await house.round(reconciler)
    house.bank.down = False
    record = await house.look_until(reconciler, lease.key)
    assert record.status is Status.FAILED_RETRYABLE
    told = await house.history(lease.key)
    assert [what for _, what, _ in told] == ["not_executed", "not_yet_known", "not_yet_known", "not_executed", "not_executed"]
    assert told[1][2]["error"] == "upstream_disconnected"
    assert house.observer.steps.count("failed") == 2


async def test_an_upstream_that_stays_down(house: House) -> None:
    """After the configured number of looks it is a person's turn, who sees each of them; and nobody looks any more."""
    lease = await house.due()
    house.bank.down = True
    reconciler = house.reconciler()
    record = await house.look_until(reconciler, lease.key)
    assert record.status is Status.UNKNOWN
    assert record.dead_lettered
    told = await house.history(lease.key)
    assert [what for _, what, _ in told] == ["not_yet_known"] * (PACE.attempts - 1) + ["dead_lettered"]
    assert told[-1][2]["after"] == "attempts"
    assert [detail["look"] for _, _, detail in told] == list(range(1, PACE.attempts + 1))
    await house.pass_time(3600)
    await house.round(reconciler)
    assert len(await house.history(lease.key)) == PACE.attempts
    assert house.observer.steps[-1] == "dead_lettered"


async def test_a_declined_payment_is_executed(house: House) -> None:
    """It completes with its failure as its answer."""
    house.bank.answers, house.bank.status = False, "failed"
    lease = await attempt(house)
    await house.pass_time(30 + MAX_EXECUTION)
    record = await house.look_until(house.reconciler(), lease.key)
    assert record.response is not None
    assert json.loads(record.response.body or b"")["status"] == "failed"


async def test_what_is_asked_and_what_is_told_of_it(house: House) -> None:
    """The request is the template's and nothing of the client's; history holds a digest for the key, and no credential or body."""
    house.bank.answers = False
    lease = await attempt(house)
    await house.pass_time(30 + MAX_EXECUTION)
    await house.look_until(house.reconciler(), lease.key)
    asked = house.server.requests[-1]
    assert asked.target == f"/v1/charges?idempotency_key={lease.key.key}&order=o%2F1".encode()
    assert dict(asked.fields) == {b"Host": b"bank.test", b"Authorization": b"Bearer of-the-gateway"}
    ((source, what, detail),) = await house.history(lease.key)
    assert (source, what) == ("lookup", "executed")
    assert detail["request"] == f"GET /v1/charges?idempotency_key={lease.key.lookup_digest().hex()[:32]}&order=o%2F1"
    assert detail["status"] == 200
    assert len(detail["sha256"]) == 64
    assert lease.key.key not in json.dumps(detail)
    assert "Bearer" not in json.dumps(detail)


async def test_cancel_makes_sure_that_it_never_happens(house: House) -> None:
    """A look that acts takes a new owner first: the first attempt's late answer changes nothing any more."""
    lease = await house.due()
    reconciler = house.reconciler(route(CANCEL, replace(PACE, looks=1)))
    record = await house.look_until(reconciler, lease.key)
    assert record.status is Status.FAILED_RETRYABLE
    assert house.bank.cancelled == {lease.key.key}
    assert record.owner != lease.owner
    assert (await house.store.complete(lease, ANSWER, KEPT)).transition is Transition.STALE


async def test_a_cancel_without_an_answer_needs_its_time(house: House) -> None:
    """It may arrive late, and would cancel what the next attempt does: the key is free only when that cannot be any more."""
    lease = await house.due()
    house.bank.down = True
    reconciler = house.reconciler(route(CANCEL, replace(PACE, looks=1)))
    await house.round(reconciler)
    house.bank.down = False
    await house.pass_time(MAX_EXECUTION)
    await house.round(reconciler)
    assert house.bank.cancelled == set(), "nothing that it says could count yet"
    await house.pass_time(PACE.timeout + 30)
    assert (await house.look_until(reconciler, lease.key, rounds=1)).status is Status.FAILED_RETRYABLE
    assert house.bank.cancelled == {lease.key.key}


async def test_a_cancel_that_a_proxy_answered_needs_its_time(house: House) -> None:
    """A 504 is no word of the upstream's: what it stands before may be at it."""
    lease = await house.due()
    house.bank.refuses = 504
    reconciler = house.reconciler(route(CANCEL, replace(PACE, looks=1)))
    await house.round(reconciler)
    house.bank.refuses = None
    await house.pass_time(20)
    await house.round(reconciler)
    assert (await house.record(lease.key)).status is Status.UNKNOWN
    await house.pass_time(MAX_EXECUTION + PACE.timeout + 30)
    assert (await house.look_until(reconciler, lease.key, rounds=1)).status is Status.FAILED_RETRYABLE


async def test_a_cancel_that_was_not_sent_costs_no_time(house: House) -> None:
    """Nothing of it can be under way."""
    lease = await house.due()
    reconciler = house.reconciler(route(CANCEL, replace(PACE, looks=1)), upstreams={"bank": house.client(free_port())})
    await house.round(reconciler)
    ((_, _, detail),) = await house.history(lease.key)
    assert detail["error"] == "connection_refused"
    await house.pass_time(PACE.first + 1)
    assert (await house.look_until(house.reconciler(route(CANCEL, replace(PACE, looks=1))), lease.key, rounds=1)).status is (
        Status.FAILED_RETRYABLE
    )


async def test_cancels_that_are_answered_follow_each_other(house: House) -> None:
    """Two that agree free the key, with no more than `apart` between them."""
    lease = await house.due()
    reconciler = house.reconciler(route(CANCEL))
    await house.round(reconciler)
    await house.pass_time(PACE.apart + 1)
    await house.round(reconciler)
    assert (await house.record(lease.key)).status is Status.FAILED_RETRYABLE


async def test_cancel_finds_that_it_has_happened(house: House) -> None:
    """Then it is completed with what was found."""
    lease = await house.due()
    house.bank.execute(lease.key.key)
    record = await house.look_until(house.reconciler(route(CANCEL)), lease.key)
    assert record.response is not None
    assert record.response.status == 201
    assert house.bank.cancelled == set()


async def test_resend_keeps_the_answer_byte_for_byte(house: House) -> None:
    """The stored request goes out as it was, and its answer is kept as the first attempt would have kept it."""
    house.bank.answers, house.bank.deduplicates = False, True
    lease = await attempt(house)
    house.bank.answers = True
    await house.pass_time(30 + MAX_EXECUTION)
    record = await house.look_until(house.reconciler(route(RESEND)), lease.key)
    first, again = house.server.requests
    assert (again.method, again.target, again.fields, again.body) == (first.method, first.target, first.fields, first.body)
    assert record.response is not None
    assert record.response.body == json.dumps(house.bank.charges[lease.key.key]).encode()
    names = [name for name, _ in record.response.headers]
    assert b"X-Bank" in names
    assert b"Date" in names
    assert b"Set-Cookie" not in names
    assert house.bank.executions == {lease.key.key: 1}


async def test_history_tells_no_secret_of_a_query(house: House) -> None:
    """Neither one of the client's, which the kept request has whole, nor one of the gateway's own."""
    house.bank.down = True
    key = fresh_key()
    packed = pack_request(b"POST", b"/v1/charges?api_key=of-the-client&n=1", house.fields(key), b'{"order":"o/1"}')
    await house.due(wanted=replace(house.intent(key), sealed=SEALER.seal(packed, key.lookup_digest())))
    await house.round(house.reconciler(route(RESEND)))
    ((_, _, resent),) = await house.history(key)
    assert house.server.requests[-1].target == b"/v1/charges?api_key=of-the-client&n=1"
    assert resent["request"] == "POST /v1/charges?api_key=***&n=1"
    template = replace(LOOKUP.request, target="/v1/charges?access_token=of-the-gateway&order={captured.order}")
    await house.pass_time(3600)
    await house.round(house.reconciler(route(replace(LOOKUP, request=template))))
    _, (_, _, asked) = await house.history(key)
    assert house.server.requests[-1].target == b"/v1/charges?access_token=of-the-gateway&order=o%2F1"
    assert asked["request"] == "GET /v1/charges?access_token=***&order=o%2F1"


async def test_a_resend_that_executes_executes_once(house: House) -> None:
    """Nothing had arrived: the look itself is the execution."""
    house.bank.deduplicates = True
    lease = await house.due()
    record = await house.look_until(house.reconciler(route(RESEND)), lease.key)
    assert record.status is Status.COMPLETED
    assert house.bank.executions == {lease.key.key: 1}
    (sealed,) = await house.rows("SELECT request_sealed FROM gateway_records")
    assert sealed["request_sealed"] is None


async def test_what_leaves_a_resend_in_doubt(house: House) -> None:
    """The upstream's own 409 is no answer of the operation, and a lost connection says nothing; its end counts anew from each look."""
    house.bank.busy, house.bank.deduplicates = 1, True
    lease = await house.due()
    reconciler = house.reconciler(route(RESEND))
    await house.round(reconciler)
    assert (await house.record(lease.key)).status is Status.UNKNOWN
    house.bank.answers = False
    await house.pass_time(70)
    await house.round(reconciler)
    told = await house.history(lease.key)
    assert [(what, detail.get("why"), detail.get("error")) for _, what, detail in told] == [
        ("not_yet_known", "status_409", None),
        ("not_yet_known", None, "upstream_disconnected"),
    ]
    (row,) = await house.rows("SELECT doubtful_until > now() + interval '60 s' AS later FROM gateway_records")
    assert row["later"]
    house.bank.answers = True
    assert (await house.look_until(reconciler, lease.key)).status is Status.COMPLETED
    assert house.bank.executions == {lease.key.key: 1}


async def test_what_is_found_of_another_caller_is_not_given_away(house: House) -> None:
    """Tenant B names A's order in its own body, and brings its own request into doubt: the lookup finds A's order, and B never gets it."""
    mine = Condition("/account", Is.SAME_AS, ("principal",))
    rules = (Rule(Verdict.EXECUTED, statuses=frozenset({200}), when=(mine,)),)
    probe = Lookup(RequestTemplate("GET", "/orders?account={principal}&number={captured.order}"), rules)
    asked: list[bytes] = []

    async def show(exchange: Exchange) -> None:
        asked.append(exchange.seen.target)
        await exchange.answer(200, b'{"account": "tenant-a", "secret": 1}')

    house.server.behave = show
    records = []
    for tenant in ("tenant-b", "tenant-a"):
        wanted = replace(house.intent(), captured={"key": "k", "order": "o-1", OWN_PRINCIPAL: tenant})
        lease = await house.store.reserve(wanted)
        assert isinstance(lease, Lease)
        await house.store.doubt(lease, "upstream_timeout")
        records.append(lease)
    await house.pass_time(30 + MAX_EXECUTION)
    thief, owner = records
    record = await house.look_until(house.reconciler(route(probe)), owner.key)
    assert record.status is Status.COMPLETED
    assert (await house.record(thief.key)).status is Status.UNKNOWN
    assert set(asked) == {b"/orders?account=tenant-b&number=o-1", b"/orders?account=tenant-a&number=o-1"}


async def test_a_refusal_of_a_resend_is_no_answer(house: House) -> None:
    """The charge was made, and its reply lost: what the bank says against a second one is not kept, unless the route knows it."""
    house.bank.answers, house.bank.refuses = False, None
    lease = await attempt(house)
    house.bank.refuses = 422
    await house.pass_time(30 + MAX_EXECUTION)
    await house.round(house.reconciler(route(RESEND)))
    assert (await house.record(lease.key)).status is Status.UNKNOWN
    assert [(what, detail["why"]) for _, what, detail in await house.history(lease.key)] == [("not_yet_known", "status_422")]
    when = (Condition("/error", values=("refused",)),)
    made = AnswerPlan(201, (("Content-Type", "text/plain"),), "made")
    there = Hint(None, outcome=HintedOutcome.EXISTS, when=when, answer=made)
    record = await house.look_until(house.reconciler(route(RESEND, hints=(there,))), lease.key)
    assert record.response is not None
    assert (record.response.status, record.response.body) == (201, b"made")
    assert house.bank.executions == {lease.key.key: 1}


async def test_a_resend_is_never_later_than_the_upstream_remembers(house: House) -> None:
    """Gateways were stopped for longer than `max_age`: nothing is sent any more, since it could execute again."""
    house.bank.deduplicates = True
    lease = await house.doubted()
    house.bank.execute(lease.key.key)
    house.bank.charges.clear()
    await house.pass_time(2 * 86400.0)
    record = await house.look_until(house.reconciler(route(RESEND)), lease.key)
    assert record.dead_lettered
    assert house.bank.executions == {lease.key.key: 1}
    ((_, what, detail),) = await house.history(lease.key)
    assert (what, detail["after"]) == ("dead_lettered", "hopeless")
    assert house.server.requests == []


async def test_requeuing_makes_no_doubt_younger(house: House) -> None:
    """Its looks begin anew; what the upstream may have forgotten is not sent all the same."""
    house.bank.deduplicates = True
    lease = await house.doubted()
    await house.pass_time(PACE.max_age + 1)
    reconciler = house.reconciler(route(RESEND))
    record = await house.look_until(reconciler, lease.key)
    audit = Audit("ada", "requeue", "the bank is back")
    assert await house.store.operations.requeue(Fence(lease.key, record.record_id, record.version), audit) is Transition.DONE
    await house.pass_time(60)
    assert (await house.look_until(reconciler, lease.key, rounds=1)).dead_lettered
    assert house.server.requests == []


async def test_a_requeued_lookup_has_all_its_looks_again(house: House) -> None:
    """Age and count are counted from the requeue."""
    lease = await house.doubted()
    await house.pass_time(PACE.max_age + 1)
    house.bank.down = True
    reconciler = house.reconciler()
    record = await house.look_until(reconciler, lease.key)
    audit = Audit("ada", "requeue", "the bank is back")
    assert await house.store.operations.requeue(Fence(lease.key, record.record_id, record.version), audit) is Transition.DONE
    await house.round(reconciler)
    assert not (await house.record(lease.key)).dead_lettered
    house.bank.down = False
    house.bank.execute(lease.key.key)
    await house.pass_time(70)
    assert (await house.look_until(reconciler, lease.key)).status is Status.COMPLETED


async def test_a_request_that_was_not_kept_cannot_be_sent_again(house: House) -> None:
    """No later look could find more: a person's turn at once."""
    lease = await house.due(wanted=replace(house.intent(), sealed=None))
    record = await house.look_until(house.reconciler(route(RESEND)), lease.key)
    assert record.dead_lettered
    ((_, what, detail),) = await house.history(lease.key)
    assert (what, detail["after"]) == ("dead_lettered", "hopeless")
    assert house.server.requests == []


async def test_a_key_that_the_upstream_never_saw_is_not_looked_up(house: House) -> None:
    """A record from before its route captured anything, on a route that forwards derived keys: a lookup by the client's key would find
    nothing, and free what had executed. It is a person's turn.
    """
    by_key = replace(LOOKUP, request=RequestTemplate("GET", "/v1/charges?idempotency_key={key}"))
    before = replace(house.intent(), captured=None)
    lease = await house.due(wanted=before)
    house.bank.execute("idg_derived")
    await house.look_until(house.reconciler(route(by_key, forward_key=ForwardKey.DERIVED)), lease.key)
    record = await house.record(lease.key)
    assert (record.status, record.dead_lettered) == (Status.UNKNOWN, True)
    assert house.bank.lookups == []
    known = await house.due(wanted=replace(house.intent(), captured=None))
    await house.round(house.reconciler(route(by_key)))
    assert house.bank.lookups == [known.key.key]


async def test_a_sealed_request_opens_under_its_own_record_alone(house: House) -> None:
    """One that was moved to another record, or whose key is not configured, is not sent."""
    stranger = house.intent()
    lease = await house.due(wanted=replace(house.intent(), sealed=stranger.sealed))
    await house.round(house.reconciler(route(RESEND)))
    await house.pass_time(70)
    await house.round(house.reconciler(route(RESEND), sealed=False))
    assert [detail["error"].partition(":")[0] for _, _, detail in await house.history(lease.key)] == [
        "the original request cannot be read"
    ] * 2
    assert house.server.requests == []


async def test_what_the_upstream_says_of_its_own_execution(house: House) -> None:
    """Where the route trusts it, that counts for a resend too: no answer of the operation, if it says so."""
    house.bank.deduplicates = True
    lease = await house.due()
    hints = (Hint("X-Bank", outcome=HintedOutcome.NOT_EXECUTED, remove=True),)
    reconciler = house.reconciler(route(RESEND, hints=hints))
    await house.round(reconciler)
    assert (await house.record(lease.key)).status is Status.UNKNOWN
    hinted = house.reconciler(route(RESEND, hints=(replace(hints[0], outcome=HintedOutcome.COMPLETED),)))
    record = await house.look_until(hinted, lease.key)
    assert record.response is not None
    assert b"X-Bank" not in dict(record.response.headers)


async def test_an_answer_over_the_cap_is_known_by_its_digest(house: House) -> None:
    """A resend completes without the body, as a first attempt would; a lookup of that size is none."""
    house.bank.deduplicates = True
    lease = await house.due()
    record = await house.look_until(house.reconciler(route(RESEND, limits=Limits(response_body=10))), lease.key)
    whole = json.dumps(house.bank.charges[lease.key.key]).encode()
    assert record.response is not None
    assert record.response.body is None
    assert (record.response.body_length, record.response.body_digest) == (len(whole), hashlib.sha256(whole).digest())
    house.bank.charges["padding"] = {}
    other = await house.due()
    house.bank.charges[other.key.key] = {"status": "succeeded", "padding": "x" * (1024 * 1024)}
    await house.round(house.reconciler())
    ((_, what, detail),) = await house.history(other.key)
    assert what == "not_yet_known"
    assert detail["why"] == "an answer of more than 1048576 bytes"


async def test_a_template_that_cannot_be_filled(house: House) -> None:
    """What was never captured will never be: a person's turn at once, and no request."""
    lease = await house.due(wanted=replace(house.intent(), captured={"key": "k"}))
    record = await house.look_until(house.reconciler(), lease.key)
    assert record.dead_lettered
    assert house.server.requests == []


async def test_a_lookup_may_ask_another_upstream(house: House) -> None:
    """And its answer may be built whole by the template."""
    plan = AnswerPlan(202, (("Content-Type", "application/json"),), body='{"key": "{key}"}')
    rules = (Rule(Verdict.EXECUTED, frozenset({200}), (Condition("/charges", Is.EXISTS),), plan),)
    lease = await house.due()
    probe = Lookup(RequestTemplate("GET", "/v1/charges?idempotency_key={key}"), rules, "ledger")
    reconciler = house.reconciler(route(probe), upstreams={"ledger": house.client(), "bank": house.client(port=1)})
    record = await house.look_until(reconciler, lease.key)
    assert record.response is not None
    assert (record.response.status, record.response.body) == (202, f'{{"key": "{lease.key.key}"}}'.encode())


async def test_nothing_is_taken_right_after_a_reconnection(house: House) -> None:
    """Owners who outlived an outage settle first; and nothing is taken while the authority is away."""
    lease = await house.due()
    reconciler = house.reconciler()
    house.since = house.clock.boottime()
    await house.round(reconciler)
    house.since = None
    await house.round(reconciler)
    assert await house.history(lease.key) == []
    house.since = house.clock.boottime() - GRACE
    await house.round(reconciler)
    assert len(await house.history(lease.key)) == 1


async def test_it_runs_by_itself_and_closes(house: House) -> None:
    """Due records are resolved without anybody's doing; a close waits for the looks under way."""
    house.bank.gate = asyncio.Event()
    leases = [await house.doubted() for _ in range(3)]
    await house.pass_time(30 + MAX_EXECUTION + 1)
    for lease in leases:
        house.bank.execute(lease.key.key)
    reconciler = house.reconciler()
    running = asyncio.create_task(reconciler.run())
    await until(lambda: house.bank.looking == 3)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    closing = asyncio.create_task(reconciler.close())
    await asyncio.sleep(0)
    house.bank.gate.set()
    await closing
    assert reconciler.looking == 0
    assert [(await house.record(lease.key)).status for lease in leases] == [Status.COMPLETED] * 3


async def test_a_record_whose_route_is_gone_becomes_a_dead_letter(house: House) -> None:
    """After a day in which nobody looked, also in a fleet that restarts each day: not at once, but soon after a start."""
    lease = await house.due()
    await house.pass_time(ORPHANED + 1)
    reconciler_of_today = house.reconciler(route(name="renamed"))
    await house.round(reconciler_of_today)
    assert not (await house.record(lease.key)).dead_lettered
    await house.pass_time(ORPHANS_FIRST * 1.5)
    await house.round(reconciler_of_today)
    assert (await house.record(lease.key)).dead_lettered
    ((_, what, detail),) = await house.history(lease.key)
    assert (what, detail["after"]) == ("dead_lettered", "no_route")
    assert house.observer.steps == ["dead_lettered"]


async def test_a_record_whose_route_is_unguarded_now_becomes_a_dead_letter(house: House) -> None:
    """The id alone looks after nothing."""
    lease = await house.due()
    reconciler = house.reconciler(Route(ROUTE, "/v1/charges", "bank", frozenset({"POST"}), None))
    await house.pass_time(ORPHANED + 1)
    await house.round(reconciler)
    assert (await house.record(lease.key)).dead_lettered


async def test_a_search_for_orphans_that_fails_holds_up_no_look(house: House) -> None:
    """It is tried again an hour later."""
    lease = await house.due()
    house.bank.execute(lease.key.key)
    reconciler = house.reconciler()
    await house.pass_time(ORPHANED + 1)
    found = house.store.reconciliation.abandon

    async def fails(*arguments: object) -> list[str]:
        raise StoreUnavailable("postgres", "timeout", may_have_landed=True)

    house.store.reconciliation.abandon = fails  # type: ignore[method-assign,assignment]  # a statement that meets its deadline
    await house.round(reconciler)
    house.store.reconciliation.abandon = found  # type: ignore[method-assign]  # as above
    assert (await house.record(lease.key)).status is Status.COMPLETED


async def test_a_look_that_can_find_nothing_does_not_end_re_execution(house: House) -> None:
    """The client's own retry is what finds out there."""
    lease = await house.due(wanted=replace(house.intent(), captured={"key": "k"}))
    await house.round(house.reconciler(route(on_unknown=OnUnknown.REEXECUTE)))
    assert not (await house.record(lease.key)).dead_lettered
    claimed = await house.store.claim(await house.record(lease.key), house.intent(lease.key, reexecute=True))
    assert claimed is not None


async def test_routes_without_a_policy_and_unknown_upstreams_are_passed_over(house: House) -> None:
    """A route map that has just changed harms nobody."""
    lease = await house.due()
    reconciler = house.reconciler(replace(route(), id="bare", policy=None), route(LOOKUP, name=ROUTE, upstream="gone"))
    await house.round(reconciler)
    assert await house.history(lease.key) == []
