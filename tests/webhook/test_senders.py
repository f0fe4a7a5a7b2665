"""Who is heard and who is not: signatures, sizes, framing, and events that are about nothing of ours."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from dataclasses import replace

import pytest

from gateway.core.model import Lease, Status
from gateway.core.policy import Route
from gateway.core.reconcile.policy import OWN_PRINCIPAL, Condition, PlainSignature, StandardSignature
from gateway.core.reconcile.policy import Test as Is
from gateway.webhook import reading
from tests.http.connections.house import answers, until
from tests.support.client import Answer, Client
from tests.webhook.conftest import OpenHall
from tests.webhook.house import PATH, POLICY, ROUTE, RULES, SECRET, TERMS, WEBHOOK, Hall, event, route_signed, route_with, stripe


def told(answer: Answer) -> tuple[int, str]:
    assert answer.field("content-type") == b"application/json"
    return answer.status, json.loads(answer.body)["result"]


async def untouched(hall: Hall) -> None:
    """Nothing was done to any record, and no event is remembered."""
    assert {row["status"] for row in await hall.rows("SELECT status FROM gateway_records")} <= {Status.UNKNOWN}
    assert await hall.rows("SELECT FROM gateway_webhook_events") == []
    assert await hall.rows("SELECT FROM gateway_history") == []


async def test_a_forged_event_is_refused(hall: Hall) -> None:
    """Whatever is wrong with a signature, the answer is the same, and nothing is done."""
    lease = await hall.doubt()
    body = event("charge.succeeded", lease.key.key)
    other = event("charge.succeeded", "another")
    good = stripe(body)
    forgeries: list[tuple[str, ...]] = [
        (),
        (stripe(body, b"another secret"),),
        (stripe(other),),
        (good, good),
        (good.replace("v1=", "v0="),),
        ("Stripe-Signature: ",),
        (good[:-1],),
    ]
    for lines in forgeries:
        answer = await hall.post(body, *lines)
        assert told(answer) == (401, "bad_signature")
        assert answer.field("www-authenticate") is not None
    assert hall.observer.results == {"bad_signature": len(forgeries)}
    await untouched(hall)


@pytest.mark.parametrize("off", [-301, 301])
async def test_a_replay_out_of_tolerance_is_refused(hall: Hall, off: float) -> None:
    """An event that was signed too long ago, or too far in the future, is not heard."""
    lease = await hall.doubt()
    body = event("charge.succeeded", lease.key.key)
    now = time.time()  # noqa: TID251 - signatures hold instants of the wall clock
    assert told(await hall.post(body, stripe(body, at=now + off + (1 if off > 0 else -1)))) == (400, "out_of_tolerance")
    await untouched(hall)


async def test_an_event_over_the_limit_is_refused_before_it_is_read(open_hall: OpenHall) -> None:
    """What is announced as too large is not asked for; what turns out to be too large is cut off."""
    hall = await open_hall(route_with(replace(POLICY, webhook=replace(WEBHOOK, limit=1000))))
    async with await Client.connect(hall.house.port) as client:
        await client.send(f"POST {PATH} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n".encode())
        answer = await client.receive()
    assert told(answer) == (413, "too_large")
    async with await Client.connect(hall.house.port) as client:
        await client.send(f"POST {PATH} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n".encode() + b"x" * 1001)
        assert told(await client.receive()) == (413, "too_large")
    lease = await hall.doubt()
    fits = event("charge.succeeded", lease.key.key, padding="")
    fits = event("charge.succeeded", lease.key.key, padding="x" * (1000 - len(fits)))
    assert len(fits) <= 1000
    assert await hall.send(fits) == (200, "applied")
    assert hall.observer.results == {"too_large": 2, "applied": 1}


async def test_an_event_that_waits_to_be_asked_for_is_asked_for(hall: Hall) -> None:
    """`Expect: 100-continue` is answered, and the event is taken."""
    lease = await hall.doubt()
    body = event("charge.succeeded", lease.key.key)
    async with hall.house.peer() as peer:
        head = f"POST {PATH}?source=x HTTP/1.1\r\nHost: a\r\n{stripe(body)}\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
        await peer.send(head.encode())
        await peer.until(b"100 Continue\r\n\r\n")
        await peer.send(body)
        (answer,) = await answers(await peer.until(b"}\n"))
    assert told(answer) == (200, "applied")


async def test_only_posts_are_taken(hall: Hall) -> None:
    """Any other method is told so."""
    for method in ("GET", "PUT", "DELETE"):
        answer = await hall.post(b"", method=method)
        assert (*told(answer), answer.field("allow")) == (405, "malformed", b"POST")


async def test_other_paths_are_no_endpoints(hall: Hall) -> None:
    """The listener has nothing but the endpoints, to the byte."""
    for path in ("/", PATH + "/", PATH.upper(), "/hooks/../hooks/payments"):
        answer = await hall.post(b"", path=path)
        assert answer.status == 404
    assert hall.observer.results == {}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"data": {"key": "k"}}',
        b'{"id": null, "data": {"key": "k"}}',
        b'{"id": "", "data": {"key": "k"}}',
        b'{"id": "evt_1", "id": "evt_2", "data": {"key": "k"}}',
        b'{"id": "evt_\\u0000", "data": {"key": "k"}}',
        b'{"id": "' + b"x" * 256 + b'"}',
        b'{"id": "evt_1", "data": ' + b"[" * 100_000,
        "{}".encode("utf-16"),
    ],
)
async def test_what_is_no_event_is_refused(hall: Hall, body: bytes) -> None:
    """A text that is signed but no JSON with one meaning, or without an id, is malformed."""
    assert told(await hall.post(body, stripe(body))) == (400, "malformed")
    await untouched(hall)


@pytest.mark.parametrize("body", [b'{"id": "evt_1"}', b'{"id": 1, "data": {"key": ["k"]}}', b'{"id": "evt_1", "data": {"key": null}}'])
async def test_an_event_about_something_else_is_taken_and_dropped(hall: Hall, body: bytes) -> None:
    """Senders send many kinds to one endpoint: what names no record is none of ours, each time."""
    for _ in range(2):
        assert told(await hall.post(body, stripe(body))) == (200, "unmatched")
    await untouched(hall)


async def test_an_unknown_key_is_taken_and_not_remembered(hall: Hall) -> None:
    """The record may yet come to be: then the repetition counts."""
    told_early = event("charge.succeeded", "k-1")
    assert await hall.send(told_early) == (200, "unmatched")
    lease = await hall.doubt("k-1")
    assert await hall.send(told_early) == (200, "applied")
    assert (await hall.find(lease)).status is Status.COMPLETED


async def test_two_tenants_with_one_key_are_not_guessed_between(hall: Hall) -> None:
    """An event that fits two records changes neither."""
    first, second = await hall.doubt("k-1", "tenant-a"), await hall.doubt("k-1", "tenant-b")
    body = event("charge.succeeded", "k-1")
    for _ in range(2):
        assert await hall.send(body) == (200, "ambiguous")
    assert {(await hall.find(lease)).status for lease in (first, second)} == {Status.UNKNOWN}
    await untouched(hall)


async def test_an_event_is_of_the_caller_whom_it_names(open_hall: OpenHall) -> None:
    """Two tenants name one order; the event is about one tenant's. The other gets nothing of it, also when its record is the only one."""
    mine = Condition("/account", Is.SAME_AS, ("principal",))
    rules = tuple(replace(rule, when=(*rule.when, mine)) for rule in RULES)
    hall = await open_hall(route_with(replace(POLICY, webhook=replace(WEBHOOK, rules=rules, by="order"))))

    async def doubted(tenant: str) -> Lease:
        captured = {"key": f"key-{tenant}", "order": "o-1", OWN_PRINCIPAL: tenant}
        lease = await hall.reserve(f"key-{tenant}", tenant, captured=captured, correlation="o-1")
        await hall.store.doubt(lease, "upstream_timeout")
        return lease

    thief = await doubted("tenant-b")
    assert await hall.send(event("charge.succeeded", "o-1", account="tenant-a")) == (200, "no_verdict")
    owner = await doubted("tenant-a")
    assert await hall.send(event("charge.succeeded", "o-1", account="tenant-a")) == (200, "applied")
    assert (await hall.find(owner)).status is Status.COMPLETED
    assert (await hall.find(thief)).status is Status.UNKNOWN


async def test_a_record_of_another_scope_or_route_is_not_found(hall: Hall) -> None:
    """The endpoint is its route's: neither a scope whose name begins alike nor another route of the scope is meant."""
    for route in ("refund", ROUTE):
        lease = await hall.reserve("k-1", "b" if route == ROUTE else "a", terms=replace(TERMS, route_id=route))
        await hall.store.doubt(lease, "upstream_timeout")
    await hall.execute("UPDATE gateway_records SET scope_id = 'payments-eu:b' WHERE scope_id = 'payments:b'")
    assert await hall.send(event("charge.succeeded", "k-1")) == (200, "unmatched")


async def test_an_observed_record_is_not_found(hall: Hall) -> None:
    """What is only watched is nobody's to settle."""
    lease = await hall.reserve("k-1", terms=replace(TERMS, observed=True))
    await hall.store.doubt(lease, "upstream_timeout")
    assert await hall.send(event("charge.succeeded", "k-1")) == (200, "unmatched")


def standard(body: bytes, identity: str, at: int, secret: bytes) -> tuple[str, ...]:
    """The fields of Standard Webhooks, by the specification's own description."""
    digest = hmac.new(secret, f"{identity}.{at}.".encode() + body, hashlib.sha256).digest()
    return (f"webhook-id: {identity}", f"webhook-timestamp: {at}", f"webhook-signature: v1,{base64.b64encode(digest).decode()}")


async def test_standard_webhooks_are_heard(open_hall: OpenHall) -> None:
    """The event's id may be a header field."""
    policy = replace(POLICY, webhook=replace(WEBHOOK, signature=StandardSignature((SECRET,)), event_id="header:webhook-id"))
    hall = await open_hall(route_with(policy))
    lease = await hall.doubt()
    body, now = event("charge.succeeded", lease.key.key), int(time.time())  # noqa: TID251 - signatures hold instants of the wall clock
    assert told(await hall.post(body, *standard(body, "msg_1", now, b"another"))) == (401, "bad_signature")
    assert told(await hall.post(body, *standard(body, "msg_1", now - 400, SECRET))) == (400, "out_of_tolerance")
    assert told(await hall.post(body, *standard(body, "msg_1", now, SECRET))) == (200, "applied")
    assert told(await hall.post(body, *standard(body, "msg_1", now + 1, SECRET))) == (200, "duplicate")


async def test_plain_signatures_are_heard(open_hall: OpenHall) -> None:
    """HMAC-SHA256 of the body in a field of the sender's own."""
    hall = await open_hall(route_signed(PlainSignature("X-Hub-Signature-256", (b"old", SECRET), prefix="sha256=")))
    lease = await hall.doubt()
    body = event("charge.succeeded", lease.key.key)
    digest = hmac.new(SECRET, body, hashlib.sha256).hexdigest()
    assert told(await hall.post(body, f"X-Hub-Signature-256: {digest}")) == (401, "bad_signature")
    assert told(await hall.post(body, f"X-Hub-Signature-256: sha256={digest}")) == (200, "applied")


async def test_an_event_is_sent_again_when_the_store_is_away(hall: Hall) -> None:
    """503 until it can be taken: then it is."""
    lease = await hall.doubt()
    body = event("charge.succeeded", lease.key.key)
    await hall.execute("ALTER TABLE gateway_webhook_events RENAME TO away")
    answer = await hall.post(body, stripe(body))
    assert (*told(answer), answer.field("retry-after")) == (503, "store_unavailable", b"5")
    await hall.execute("ALTER TABLE away RENAME TO gateway_webhook_events")
    assert await hall.send(body) == (200, "applied")
    assert hall.observer.results == {"store_unavailable": 1, "applied": 1}


async def test_a_process_that_is_full_takes_nothing(open_hall: OpenHall) -> None:
    """Bodies count as memory: at the limit the sender is asked to come again."""
    hall = await open_hall(memory=0)
    body = event("charge.succeeded", "k-1")
    assert told(await hall.post(body, stripe(body))) == (503, "store_unavailable")


async def test_a_sender_that_hangs_up_has_said_nothing(hall: Hall) -> None:
    """Half an event is none; it is counted, and its memory is given back."""
    body = event("charge.succeeded", "k-1")
    async with await Client.connect(hall.house.port) as client:
        await client.send(f"POST {PATH} HTTP/1.1\r\nHost: a\r\n{stripe(body)}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body[:-1])
        await until(lambda: hall.memory.held > 0)
    await until(lambda: hall.observer.results == {"malformed": 1})
    assert hall.memory.held == 0


async def test_a_sender_that_is_slow_is_cut_off(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that does not come is not waited for."""
    monkeypatch.setattr(reading, "PATIENCE", 0.05)
    async with await Client.connect(hall.house.port) as client:
        await client.send(f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n".encode())
        assert told(await client.receive()) == (408, "malformed")


async def test_bad_framing_is_refused(hall: Hall) -> None:
    """An expectation that cannot be met, say: nothing of the body is waited for."""
    async with await Client.connect(hall.house.port) as client:
        await client.send(f"POST {PATH} HTTP/1.1\r\nHost: a\r\nExpect: a-miracle\r\nContent-Length: 10\r\n\r\n".encode())
        assert told(await client.receive()) == (417, "malformed")


async def test_a_new_route_map_is_used_at_once(hall: Hall) -> None:
    """After a reload the new endpoints count, and the old ones are gone."""
    webhook = replace(WEBHOOK, path="/hooks/other")
    hall.receiver.reconfigure([route_with(replace(POLICY, webhook=webhook)), Route("open", "/x", "api")])
    lease = await hall.doubt()
    body = event("charge.succeeded", lease.key.key)
    assert (await hall.post(body, stripe(body))).status == 404
    assert told(await hall.post(body, stripe(body), path="/hooks/other")) == (200, "applied")


async def test_many_events_at_once_are_all_taken(hall: Hall) -> None:
    """Each of many records gets its own answer, over connections that are used again."""
    leases = [await hall.doubt() for _ in range(20)]
    outcomes = await asyncio.gather(*(hall.send(event("charge.succeeded", lease.key.key)) for lease in leases))
    assert outcomes == [(200, "applied")] * len(leases)
    assert {(await hall.find(lease)).status for lease in leases} == {Status.COMPLETED}
    assert hall.memory.held == 0


async def test_a_receiver_that_is_drained_keeps_no_connection(hall: Hall) -> None:
    """Every answer has a date, and from the drain on each is the last of its connection."""
    body = event("charge.succeeded", "k-1")
    answer = await hall.post(body, stripe(body))
    assert answer.field("date") is not None
    assert answer.field("connection") is None
    hall.receiver.close_connections()
    assert (await hall.post(body, stripe(body))).field("connection") == b"close"
