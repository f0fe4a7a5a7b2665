"""`mode: observe`: everything is decided, counted and logged; nothing is refused or replayed."""

import asyncio

import pytest

from tests.proxy.house import BODY, House, fresh, holding, post, refusal, saying
from tests.support.client import Answer, Client, ask
from tests.support.upstream import Exchange, execute_and_answer

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = """
  - id: tried
    path: /tried
    upstream: payments
    methods: [POST]
    idempotency: {mode: observe, status_fields: true, limits: {request_body: 1KiB}}
  - {id: optional, path: /optional, upstream: payments, methods: [POST], idempotency: {mode: observe, key: {required: false}}}
  - {id: embodied, path: /embodied, upstream: payments, methods: [POST], idempotency: {mode: observe, key: {json_pointer: /id}}}
  - id: carried
    path: /carried
    upstream: payments
    methods: [POST]
    idempotency: {mode: observe, forward_key: derived, forward_key_in: {json_pointer: /id}}
  - {id: brief, path: /brief, upstream: payments, methods: [POST], idempotency: {mode: observe, retention: 1s, on_expired: gone}}
"""

MARKS = ("idempotent-replayed", "original-request", "idempotency-status", "idempotency-expires")


async def decided(house: House, answer: Answer, decision: str) -> None:
    """The answer is the upstream's own, without a mark, and its decision is in the log."""
    assert answer.problem is None
    assert [answer.field(mark) for mark in MARKS] == [None] * 4
    line = await house.line(answer)
    assert (line["mode"], line["decision"]) == ("observe", decision)


async def counts(house: House, route: str, *decisions: str) -> list[float]:
    return [await house.gateway.metric("idempotency_requests_total", route=route, mode="observe", decision=one) for one in decisions]


async def test_duplicates_and_mismatches(house: House) -> None:
    """Each request runs and gets its own answer; the metric says what enforcing would have done."""
    key, names = fresh(), ("execute", "replay", "key_misuse")
    before = await counts(house, "tried", *names)
    first = await house.settled(b"/tried", key)
    duplicate, mismatch = [await house.ask(b"/tried", key, body) for body in (BODY, b"{}")]
    for answer, decision in ((first, "execute"), (duplicate, "replay"), (mismatch, "key_misuse")):
        assert answer.status == 201
        await decided(house, answer, decision)
    assert len({answer.body for answer in (first, duplicate, mismatch)}) == 3
    assert [seen.body for seen in house.seen] == [BODY, BODY, b"{}"]
    assert all(seen.value("idempotency-key") == key for seen in house.seen)
    for name, count in zip(names, before, strict=True):
        await house.gateway.counted(count + 1, "idempotency_requests_total", route="tried", mode="observe", decision=name)


async def test_duplicates_close_together(house: House) -> None:
    """A client that repeats its request as soon as it has its answer is a duplicate, not a race."""
    lines = []
    for key in [fresh() for _ in range(20)]:
        async with await Client.connect(house.gateway.port) as client:
            await client.request(post(b"/tried", key))
            lines.append(await house.line(await client.request(post(b"/tried", key))))
    decisions = [line["decision"] for line in lines]
    assert set(decisions) <= {"replay", "in_progress"}
    assert decisions.count("replay") >= 10, "on a busy machine a record may take longer than an observed answer waits"


async def test_races(house: House) -> None:
    """Two at once both run; the one is found to be in the other's way."""
    key, released = fresh(), asyncio.Event()
    house.upstream.behave = holding(released)
    first = asyncio.create_task(house.ask(b"/tried", key))
    await house.upstream.executed.wait()
    house.upstream.behave = execute_and_answer
    second, other = await house.ask(b"/tried", key), await house.ask(b"/tried", key, b"{}")
    released.set()
    await decided(house, second, "in_progress")
    await decided(house, other, "key_misuse")
    await decided(house, await first, "execute")
    assert len(house.seen) == 3


async def test_doubts_and_releases(house: House) -> None:
    """Enforcing would have held the first key, and run the second again."""
    doubted, released = fresh(), fresh()
    house.upstream.behave = saying(503)
    await decided(house, await house.settled(b"/tried", doubted), "execute")
    house.upstream.behave = saying(429)
    await decided(house, await house.settled(b"/tried", released), "execute")
    house.upstream.behave = execute_and_answer
    answer = await house.ask(b"/tried", doubted)
    assert answer.status == 201
    await decided(house, answer, "unknown")
    await decided(house, await house.settled(b"/tried", released), "execute_retry")
    await decided(house, await house.ask(b"/tried", released), "replay")
    assert len(house.seen) == 5


@pytest.mark.parametrize(
    ("path", "key", "body", "account", "decision"),
    [
        (b"/tried", None, BODY, b"a", "key_missing"),
        (b"/tried", b"a,b", BODY, b"a", "key_invalid"),
        (b"/tried", b"k" * 256, BODY, b"a", "key_invalid"),
        (b"/tried", b"k", BODY, None, "principal_missing"),
        (b"/tried", b"k", b'"' + b"x" * 5000 + b'"', b"a", "body_too_large"),
        (b"/tried", None, b'"' + b"x" * 3_000_000 + b'"', b"a", "key_missing"),
        (b"/optional", None, BODY, b"a", "bypass"),
        (b"/embodied", None, BODY, b"a", "key_missing"),
        (b"/embodied", None, b'{"id":5.5}', b"a", "key_invalid"),
        (b"/embodied", None, b'{"id":"a"', b"a", "key_invalid"),
        (b"/embodied", None, b'{"id":"a"}', None, "principal_missing"),
        (b"/embodied", None, b'{"id":"' + b"x" * 2_000_000 + b'"}', b"a", "body_too_large"),
        (b"/carried", b"k", b"[]", b"a", "key_invalid"),
    ],
)
async def test_whom_enforcing_would_have_refused(
    house: House, path: bytes, key: bytes | None, body: bytes, account: bytes | None, decision: str
) -> None:
    """They go through byte for byte, and are counted for what they lack."""
    route = path[1:].decode()
    (before,) = await counts(house, route, decision)
    answer = await house.ask(path, key, body, account=account)
    assert answer.status == 201
    await decided(house, answer, decision)
    (seen,) = house.seen
    assert seen.body == body
    assert seen.value("idempotency-key") == key
    await house.gateway.counted(before + 1, "idempotency_requests_total", route=route, mode="observe", decision=decision)


async def test_a_body_that_is_too_large_and_not_announced(house: House) -> None:
    """What comes in chunks goes through as well."""
    head = b"POST /tried HTTP/1.1\r\nHost: a\r\nX-Account: a\r\nTransfer-Encoding: chunked\r\nIdempotency-Key: " + fresh()
    answer = await ask(house.gateway.port, head + b"\r\n\r\n1000\r\n" + b"x" * 4096 + b"\r\n0\r\n\r\n")
    assert answer.status == 201
    assert house.last.body == b"x" * 4096


async def test_early_data(house: House) -> None:
    """Nobody is refused for it; enforcing would have."""
    answer = await house.ask(b"/optional", None, more=(b"Early-Data: 1",))
    assert answer.status == 201
    await decided(house, answer, "key_missing")


async def test_an_expired_key(house: House) -> None:
    """Enforcing would have said that it is gone."""
    key = fresh()
    await house.settled(b"/brief", key)
    await house.expired(key)
    answer = await house.ask(b"/brief", key)
    assert answer.status == 201
    await decided(house, answer, "gone")
    assert len(house.seen) == 2


async def test_the_key_goes_on_as_under_enforce(house: House) -> None:
    """Duplicates carry it to the same place, so that the trial shows what the upstream will see."""
    key = fresh()
    for _ in range(2):
        assert (await house.ask(b"/carried", key, b"{}")).status == 201
    one, two = house.seen
    assert one.body == two.body != b"{}"
    assert one.value("idempotency-key") is None


async def test_an_upstream_that_breaks_off(house: House) -> None:
    """The gateway says that it failed, not that a key's outcome is unknown."""

    async def broken(exchange: Exchange) -> None:
        exchange.execute()
        exchange.reset()

    house.upstream.behave = broken
    key = fresh()
    answers = [await house.settled(b"/tried", key), await house.ask(b"/tried", key)]
    assert [refusal(answer) for answer in answers] == [(502, "upstream-failed")] * 2
    assert [(await house.line(answer))["decision"] for answer in answers] == ["execute", "unknown"]
    assert len(house.seen) == 2
