"""What an upstream says of its own execution, and of how long its answer is kept: believed where the route says so."""

import pytest

from tests.proxy.house import BODY, House, fresh, refusal, replayed, saying

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = """
  - {id: deaf, path: /deaf, upstream: payments, methods: [POST], idempotency: {}}
  - {id: told, path: /told, upstream: payments, methods: [POST], idempotency: {hints: [{header: Idempotency-Outcome}]}}
  - id: removed
    path: /removed
    upstream: payments
    methods: [POST]
    idempotency: {hints: [{header: Idempotency-Outcome, remove: true}]}
  - id: retry
    path: /retry
    upstream: payments
    methods: [POST]
    idempotency:
      hints:
        - {header: Stripe-Should-Retry, value: "true", outcome: not-executed}
        - {header: Stripe-Should-Retry, value: "false", outcome: completed, remove: true}
        - {header: Retry-After, statuses: [503], outcome: not-executed}
        - {header: transient-error, value: "true", outcome: unknown}
  - id: bodied
    path: /bodied
    upstream: payments
    methods: [POST]
    idempotency: {hints: [{statuses: [200], when: [{pointer: /error, equals: THROTTLED}], outcome: not-executed}]}
  - id: streamed
    path: /streamed
    upstream: payments
    methods: [POST]
    idempotency: {stream: true, hints: [{header: Idempotency-Outcome, remove: true}]}
  - {id: trusted, path: /trusted, upstream: payments, methods: [POST], idempotency: {retention: 1h, trust_retention: true}}
  - {id: untrusted, path: /untrusted, upstream: payments, methods: [POST], idempotency: {retention: 1h}}
"""

COMPLETED, RELEASED, UNKNOWN = "completed", "failed_retryable", "unknown"


async def settled_as(house: House, path: bytes, status: int, *fields: bytes) -> str:
    """How an answer settles: what the record says, once what a retry gets has been seen to agree with it."""
    key = fresh()
    house.upstream.behave = saying(status, *fields)
    first = await house.ask(path, key)
    assert first.status == status
    (record,) = await house.records(key)
    state = str(record["status"])
    again = await house.ask(path, key)
    match state:
        case "completed":
            assert (again.status, again.body, replayed(again)) == (status, first.body, True)
            assert len(house.seen) == 1
        case "failed_retryable":
            assert not replayed(again)
            assert len(house.seen) == 2
        case _:
            assert refusal(again) == (409, "outcome-unknown")
            assert len(house.seen) == 1
    return state


@pytest.mark.parametrize("path", [b"/told", b"/removed", b"/streamed"])
@pytest.mark.parametrize(
    ("status", "said", "state"),
    [
        (500, (b"not-executed",), RELEASED),
        (201, (b"Not-Executed",), RELEASED),
        (503, (b"completed",), COMPLETED),
        (429, (b"completed",), COMPLETED),
        (201, (b"unknown",), UNKNOWN),
        (401, (b"unknown",), UNKNOWN),
        (201, (b"perhaps",), UNKNOWN),
        (201, (b"",), UNKNOWN),
        (201, (b"completed", b"not-executed"), UNKNOWN),
        (201, (b"not-executed", b"not-executed"), RELEASED),
        (201, (), COMPLETED),
        (429, (), RELEASED),
        (503, (), UNKNOWN),
    ],
)
async def test_a_field_that_names_the_outcome(house: House, path: bytes, status: int, said: tuple[bytes, ...], state: str) -> None:
    """It overrules the status, whichever way; what cannot be read, or contradicts itself, is a doubt."""
    assert await settled_as(house, path, status, *(b"Idempotency-Outcome: " + one for one in said)) == state


@pytest.mark.parametrize(
    ("status", "fields", "state"),
    [
        (500, (b"Stripe-Should-Retry: true",), RELEASED),
        (500, (b"stripe-should-retry: TRUE",), RELEASED),
        (503, (b"Stripe-Should-Retry: false",), COMPLETED),
        (503, (b"Stripe-Should-Retry: maybe",), UNKNOWN),
        (503, (b"Retry-After: 5",), RELEASED),
        (500, (b"Retry-After: 5",), COMPLETED),
        (503, (b"Stripe-Should-Retry: false", b"Retry-After: 5"), COMPLETED),
        (422, (b"transient-error: true",), UNKNOWN),
        (422, (b"transient-error: false",), COMPLETED),
    ],
)
async def test_providers_own_signals(house: House, status: int, fields: tuple[bytes, ...], state: str) -> None:
    """By value and by status, the first that applies; where none does, the route's lists."""
    assert await settled_as(house, b"/retry", status, *fields) == state


async def test_an_error_inside_a_200(house: House) -> None:
    """It is read as it came: the upstream is asked for no content coding, whatever the client takes."""
    key = fresh()
    house.upstream.behave = saying(200, body=b'{"error": "THROTTLED"}')
    for _ in range(2):
        answer = await house.ask(b"/bodied", key, more=(b"Accept-Encoding: gzip, br",))
        assert (answer.status, replayed(answer)) == (200, False)
        assert house.last.value("accept-encoding") == b"identity"
    house.upstream.behave = saying(200, body=b'{"data": 1}')
    assert not replayed(await house.ask(b"/bodied", key))
    assert replayed(await house.ask(b"/bodied", key))


async def test_a_route_that_believes_nothing(house: House) -> None:
    """Without hints the field is an ordinary one."""
    assert await settled_as(house, b"/deaf", 201, b"Idempotency-Outcome: not-executed") == COMPLETED


@pytest.mark.parametrize(("path", "visible"), [(b"/deaf", True), (b"/told", True), (b"/removed", False), (b"/streamed", False)])
async def test_whether_the_client_sees_the_field(house: House, path: bytes, visible: bool) -> None:
    """As configured, at the first answer and in its replays."""
    key = fresh()
    house.upstream.behave = saying(201, b"Idempotency-Outcome: completed", b"X-Other: 1")
    for answer in [await house.ask(path, key) for _ in range(2)]:
        assert answer.field("idempotency-outcome") == (b"completed" if visible else None)
        assert answer.field("x-other") == b"1"
    assert len(house.seen) == 1


async def test_a_field_that_one_hint_of_several_removes(house: House) -> None:
    """It goes from every answer of the route."""
    for value in (b"true", b"false", b"maybe"):
        house.upstream.behave = saying(201, b"Stripe-Should-Retry: " + value)
        assert (await house.ask(b"/retry", fresh())).field("stripe-should-retry") is None


async def kept_for(house: House, path: bytes, *said: bytes) -> float:
    """For how many seconds an answer is kept."""
    key = fresh()
    house.upstream.behave = saying(201, *(b"Idempotency-Retention: " + one for one in said))
    await house.ask(path, key)
    sql = "SELECT extract(epoch FROM expires_at - completed_at)::float8 AS kept FROM gateway_records WHERE idempotency_key = $1"
    (row,) = await house.query(sql, key.decode())
    return float(row["kept"])


@pytest.mark.parametrize(
    ("path", "said", "seconds"),
    [
        (b"/trusted", (), 3600),
        (b"/trusted", (b"7200",), 7200),
        (b"/trusted", (b"60",), 60),
        (b"/trusted", (b"60", b"30"), 30),
        (b"/trusted", (b"a while",), 3600),
        (b"/trusted", (b"-1",), 3600),
        (b"/trusted", (b"no-store",), 3600),
        (b"/trusted", (b"99999999999999999999",), 3650 * 86400),
        (b"/untrusted", (b"60",), 3600),
        (b"/untrusted", (b"no-store",), 3600),
    ],
)
async def test_how_long_an_answer_is_kept(house: House, path: bytes, said: tuple[bytes, ...], seconds: float) -> None:
    """As long as the upstream says, where the route trusts it and it can be read; else as long as the route says."""
    assert await kept_for(house, path, *said) == pytest.approx(seconds, abs=0.5)


async def test_a_short_retention_ends(house: House) -> None:
    """After it the key is free again, wherever the answer was kept."""
    key = fresh()
    house.upstream.behave = saying(201, b"Idempotency-Retention: 1")
    first = await house.ask(b"/trusted", key)
    assert first.field("idempotency-retention") is None
    assert replayed(await house.ask(b"/trusted", key))
    await house.expired(key)
    again = await house.ask(b"/trusted", key)
    assert not replayed(again)
    assert again.body != first.body


async def test_an_answer_that_is_kept_nowhere(house: House) -> None:
    """`no-store`: its bytes are in no store, the operation still never runs twice, and a retry is told so."""
    key = fresh()
    house.upstream.behave = saying(201, b"Idempotency-Retention: no-store", b"X-Card: 4242424242424242", body=b'{"secret":"hunter2"}')
    first = await house.ask(b"/trusted", key)
    assert first.body == b'{"secret":"hunter2"}'
    assert first.field("idempotency-retention") is None
    again = await house.ask(b"/trusted", key)
    assert refusal(again) == (409, "response-not-stored")
    assert refusal(await house.ask(b"/trusted", key, BODY + b" ")) == (409, "response-not-stored")
    assert refusal(await house.ask(b"/trusted", key, b"{}")) == (422, "key-reused")
    assert len(house.seen) == 1
    (row,) = await house.records(key)
    assert row["response_body"] is None


async def test_fields_of_an_answer_that_is_kept_nowhere(house: House) -> None:
    """Its header fields are of the answer, too."""
    key = fresh()
    house.upstream.behave = saying(201, b"Idempotency-Retention: no-store", b"X-Card: 4242424242424242")
    await house.ask(b"/trusted", key)
    (row,) = await house.records(key)
    assert b"4242424242424242" not in (row["response_headers"] or b"")


async def test_a_word_that_is_not_trusted_is_passed_on(house: House) -> None:
    """To a route that does not trust it the field is an ordinary one."""
    key = fresh()
    house.upstream.behave = saying(201, b"Idempotency-Retention: no-store")
    for answer in [await house.ask(b"/untrusted", key) for _ in range(2)]:
        assert (answer.status, answer.field("idempotency-retention")) == (201, b"no-store")
