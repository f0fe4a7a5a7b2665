"""A browser's page of another origin: what it may read of first answers, replays, refusals, and what its preflights get."""

import pytest

from tests.proxy.house import House, Plan, fresh, refusal, replayed, saying
from tests.support.client import Answer, ask

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHOP, EVIL = b"https://shop.example", b"https://evil.example"
ALLOW, EXPOSE = "access-control-allow-origin", "access-control-expose-headers"
ROUTES = """
  - {id: told, path: /told, upstream: payments, methods: [POST], idempotency: {}, cors: {credentials: true, preflight: answer}}
  - {id: passed, path: /passed, upstream: payments, methods: [POST], idempotency: {}}
  - {id: untold, path: /untold, upstream: payments, methods: [POST], idempotency: {}, cors: {origins: []}}
  - {id: rest, path: /passed, upstream: payments}
"""


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan(ROUTES, more="cors: {origins: ['https://shop.example']}")


async def from_page(house: House, path: bytes, key: bytes | None, origin: bytes) -> Answer:
    return await house.ask(path, key, more=(b"Origin: " + origin,))


async def test_every_answer_can_be_read_by_the_page_that_asked(house: House) -> None:
    """First answer, replay, mismatch, missing key: each with the fields that its script needs; another page gets none."""
    key = fresh()
    for origin, allowed in ((SHOP, SHOP), (EVIL, None), (SHOP, SHOP)):
        answer = await from_page(house, b"/told", key, origin)
        assert (answer.status, answer.field(ALLOW), answer.field("vary")) == (201, allowed, b"Origin")
        assert answer.field("access-control-allow-credentials") == (b"true" if allowed else None)
    again = await from_page(house, b"/told", key, SHOP)
    assert replayed(again)
    assert b"Idempotent-Replayed" in (again.field(EXPOSE) or b"")
    refused = await from_page(house, b"/told", None, SHOP)
    assert (refusal(refused), refused.field(ALLOW)) == ((400, "key-missing"), SHOP)
    nowhere = await from_page(house, b"/nowhere", key, SHOP)
    assert (refusal(nowhere), nowhere.field(ALLOW)) == ((404, "no-route"), SHOP)


async def test_a_replay_carries_no_other_pages_origin(house: House) -> None:
    """The upstream allowed the page that asked first. Without `cors` another page's retry gets nothing of that, and its own all of it."""
    key = fresh()
    house.upstream.behave = saying(201, b"Access-Control-Allow-Origin: " + SHOP, b"Vary: Origin")
    assert (await from_page(house, b"/untold", key, SHOP)).field(ALLOW) == SHOP
    assert [(await from_page(house, b"/untold", key, origin)).field(ALLOW) for origin in (EVIL, SHOP)] == [None, SHOP]
    assert (await house.ask(b"/untold", key)).field(ALLOW) == SHOP
    assert len(house.seen) == 1


async def test_the_upstreams_word_stands_at_the_first_answer(house: House) -> None:
    """`cors` fills in what it leaves out."""
    house.upstream.behave = saying(201, b"Access-Control-Allow-Origin: *")
    assert (await from_page(house, b"/told", fresh(), SHOP)).field(ALLOW) == b"*"


def preflight(path: bytes, origin: bytes, method: bytes = b"POST") -> bytes:
    lines = [b"OPTIONS %b HTTP/1.1" % path, b"Host: gateway.test", b"Origin: " + origin, b"Access-Control-Request-Method: " + method]
    return b"\r\n".join([*lines, b"Access-Control-Request-Headers: idempotency-key, x-account", b"", b""])


async def test_a_preflight_that_the_gateway_answers(house: House) -> None:
    """204, with what was asked for; nothing goes upstream, no key is needed, and nothing is unguarded by it."""
    answer = await ask(house.gateway.port, preflight(b"/told", SHOP))
    assert (answer.status, answer.field(ALLOW), answer.body) == (204, SHOP, b"")
    assert answer.field("access-control-allow-headers") == b"idempotency-key, x-account"
    assert answer.field("access-control-allow-methods") == b"POST"
    assert (await ask(house.gateway.port, preflight(b"/told", EVIL))).field(ALLOW) is None
    assert (await ask(house.gateway.port, preflight(b"/told", SHOP, b"DELETE"))).status == 404
    assert house.seen == []
    assert (await house.line(answer))["decision"] == "bypass"


async def test_a_preflight_that_the_upstream_answers(house: House) -> None:
    """By default it goes to whatever route takes OPTIONS."""
    house.upstream.behave = saying(200, b"Access-Control-Allow-Origin: " + SHOP)
    answer = await ask(house.gateway.port, preflight(b"/passed", SHOP))
    assert (answer.status, answer.field(ALLOW), house.last.method) == (200, SHOP, b"OPTIONS")
