"""Clients that defeat their keys, and keys that look wrong: counted, told of by digest, never refused."""

import asyncio

import pytest

from tests.proxy.house import BODY, TENANT_B, House, fresh, replayed, saying

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = """
  - {id: marked, path: /marked, upstream: payments, methods: [POST], idempotency: {duplicates: 1m, mark_duplicates: true}}
  - {id: counted, path: /counted, upstream: payments, methods: [POST], idempotency: {duplicates: 1m}}
  - {id: brief, path: /brief, upstream: payments, methods: [POST], idempotency: {duplicates: 100ms, mark_duplicates: true}}
  - {id: off, path: /off, upstream: payments, methods: [POST], idempotency: {mark_duplicates: true}}
  - id: queried
    path: /queried
    upstream: payments
    methods: [POST]
    idempotency: {key: {query: id}, duplicates: 1m, mark_duplicates: true}
  - id: embodied
    path: /embodied
    upstream: payments
    methods: [POST]
    idempotency: {key: {json_pointer: /id}, duplicates: 1m, mark_duplicates: true}
  - {id: noticed, path: /noticed, upstream: payments, methods: [POST], idempotency: {}}
  - {id: unnoticed, path: /unnoticed, upstream: payments, methods: [POST], idempotency: {key: {notice: false}}}
"""

MARK = "idempotency-duplicate"


def body() -> bytes:
    """A payment unlike all others."""
    return b'{"amount":100,"reference":"%b"}' % fresh()


async def test_equal_requests_under_different_keys(house: House) -> None:
    """Both are executed; the second is counted, told of by digest, and marked; its replay is no duplicate."""
    before = await house.gateway.metric("idempotency_duplicates_total", route="marked")
    keys, payment = (fresh(), fresh()), body()
    first, second = [await house.ask(b"/marked", key, payment) for key in keys]
    again = await house.ask(b"/marked", keys[1], payment)
    assert (first.status, first.field(MARK)) == (201, None)
    assert (second.status, second.field(MARK)) == (201, b"true")
    assert first.body != second.body
    assert (replayed(again), again.body, again.field(MARK)) == (True, second.body, None)
    assert len(house.seen) == 2
    await house.gateway.counted(before + 1, "idempotency_duplicates_total", route="marked")
    (told,) = await house.told(b"equal request under another key", b'"marked"')
    assert told["key"] == (await house.line(second))["key"]
    log = house.gateway.log.read_text()
    assert not any(key.decode() in log for key in keys)


async def test_what_is_no_duplicate(house: House) -> None:
    """Another caller's request, another body, a retry under the same key, also after a release."""
    payment = body()
    assert (await house.ask(b"/marked", fresh(), payment)).field(MARK) is None
    assert (await house.ask(b"/marked", fresh(), payment, account=TENANT_B)).field(MARK) is None
    assert (await house.ask(b"/marked", fresh(), body())).field(MARK) is None
    key, released = fresh(), body()
    house.upstream.behave = saying(429)
    assert (await house.ask(b"/marked", key, released)).field(MARK) is None
    house.upstream.behave = saying(201)
    answer = await house.ask(b"/marked", key, released)
    assert (answer.status, answer.field(MARK)) == (201, None)


async def test_another_spelling_of_one_request(house: House) -> None:
    """What counts is what the requests mean."""
    reference = fresh()
    await house.ask(b"/marked", fresh(), b'{"a":1,"r":"%b"}' % reference)
    assert (await house.ask(b"/marked", fresh(), b'{"r":"%b", "a":1.0}' % reference)).field(MARK) == b"true"


async def test_a_route_that_only_counts(house: House) -> None:
    """The client is not told; an upstream's field of that name is its own."""
    payment = body()
    answers = [await house.ask(b"/counted", fresh(), payment) for _ in range(3)]
    assert [answer.field(MARK) for answer in answers] == [None] * 3
    await house.gateway.counted(2, "idempotency_duplicates_total", route="counted")


async def test_outside_the_window_and_without_one(house: House) -> None:
    """Requests that are further apart are none of each other's; without a window nothing is counted."""
    payment = body()
    await house.ask(b"/brief", fresh(), payment)
    await asyncio.sleep(0.2)  # the window is in the gateway's memory, and shorter than this
    assert (await house.ask(b"/brief", fresh(), payment)).field(MARK) is None
    assert [(await house.ask(b"/off", fresh(), payment)).field(MARK) for _ in range(2)] == [None, None]
    assert await house.gateway.metric("idempotency_duplicates_total", route="off") == 0


async def test_an_upstreams_own_mark(house: House) -> None:
    """Only the gateway says it where the route marks."""
    house.upstream.behave = saying(201, b"Idempotency-Duplicate: true")
    assert (await house.ask(b"/marked", fresh(), body())).field(MARK) is None


@pytest.mark.parametrize("where", ["query", "body"])
async def test_equal_requests_whose_key_is_in_query_or_body(house: House, where: str) -> None:
    """What differs is the key alone, wherever it is."""
    payment = body()
    answers = []
    for key in (fresh(), fresh()):
        path, sent = (b"/queried?id=" + key, payment) if where == "query" else (b"/embodied", payment[:-1] + b',"id":"%b"}' % key)
        answers.append(await house.ask(path, None, sent))
    assert [answer.status for answer in answers] == [201, 201]
    assert answers[1].field(MARK) == b"true"


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("email", b"jane.doe@example.org-2026"),
        ("card", b"pay-4242424242424242"),
        ("phone", b"call +49 170 1234567"),
        ("counter", b"order-100117"),
        ("counter", b"20261127"),
        ("repetitive", b"00000000-0000-0000-0000-000000000000"),
        ("short", b"abc7x"),
    ],
)
async def test_a_key_that_looks_wrong(house: House, kind: str, key: bytes) -> None:
    """It is counted under its kind and told of by digest; it works as any other key, and shows up nowhere."""
    before = await house.gateway.metric("idempotency_key_notices_total", route="noticed", kind=kind)
    quoted = b'"' + key + b'"'
    first = await house.ask(b"/noticed", quoted)
    again = await house.ask(b"/noticed", quoted)
    assert first.status == 201
    assert replayed(again)
    await house.gateway.counted(before + 2, "idempotency_key_notices_total", route="noticed", kind=kind)
    told = await house.told(b'"A key looks guessable or personal"', b'"kind":"%b"' % kind.encode(), b'"noticed"')
    keys = {line["key"] for line in await house.told(b'"msg":"request"', b'"noticed"')}
    assert {line["key"] for line in told} <= keys
    _, metrics = await house.gateway.get("/metrics")
    for text in (house.gateway.log.read_text(), metrics.decode()):
        assert key.decode() not in text
        assert "jane" not in text
        assert "4242424242424242" not in text


async def test_keys_that_look_right_and_routes_that_do_not_look(house: House) -> None:
    """Neither is counted."""
    before = await house.gateway.metric("idempotency_key_notices_total")
    for key in (fresh(), b"01ARZ3NDEKTSV4RRFFQ69G5FAV", b"dGhpcyBpcyBhIHRlc3Q4Nzg3Njg"):
        assert (await house.ask(b"/noticed", key)).status == 201
    assert (await house.ask(b"/unnoticed", b'"jane@example.org"')).status == 201
    assert await house.gateway.metric("idempotency_key_notices_total") == before


async def test_nothing_personal_in_logs_and_metrics(house: House) -> None:
    """No key, no credential, no body; a refused request's neither."""
    secrets = (b"very-secret-account", b"very-secret-key-" + fresh(), b'{"card":"5555444433332222"}')
    await house.ask(b"/marked", secrets[1], secrets[2], account=secrets[0])
    await house.ask(b"/marked", secrets[1], BODY, account=secrets[0])
    await house.ask(b"/marked", fresh(), secrets[2], account=secrets[0])
    answer = await house.ask(b"/marked", secrets[1] + b" x", secrets[2], account=secrets[0])
    assert answer.status == 400
    assert secrets[1] not in answer.body
    await house.line(answer)
    _, metrics = await house.gateway.get("/metrics")
    for text in (house.gateway.log.read_text(), metrics.decode()):
        assert not [secret for secret in (*secrets, b"5555444433332222") if secret.decode() in text]
