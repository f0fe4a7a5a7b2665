"""Routes for certain hosts, on the wire."""

import pytest

from tests.proxy.house import House, Plan, fresh, post, refusal, replayed
from tests.support.client import Answer, Client, ask

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = """
  - {id: shop-a, host: a.test, path: /pay, upstream: payments, methods: [POST], idempotency: {}}
  - {id: shops, host: [b.test, "*.b.test"], path: /pay, upstream: payments, methods: [POST], idempotency: {}}
  - {id: rest, path: /**, upstream: payments}
"""


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan(ROUTES, more="trusted_proxies: [127.0.0.1/32]")


async def send(house: House, host: bytes | None, key: bytes | None, target: bytes = b"/pay", *more: bytes) -> Answer:
    """POST for this host; without one in HTTP/1.0."""
    lines = [b"POST %b HTTP/1.%d" % (target, 0 if host is None else 1), b"X-Account: a", b"Content-Length: 0"]
    lines += [] if host is None else [b"Host: " + host]
    lines += [] if key is None else [b"Idempotency-Key: " + key]
    return await ask(house.gateway.port, b"\r\n".join([*lines, *more]) + b"\r\n\r\n")


async def test_each_route_has_keys_of_its_own(house: House) -> None:
    """One key at two shops is two operations; their scopes are their routes'."""
    key = fresh()
    first, other, third = [await send(house, host, key) for host in (b"a.test", b"b.test", b"x.b.test")]
    assert (first.status, other.status, third.status) == (201, 201, 422)
    assert replayed(await send(house, b"A.TEST.:80", key))
    assert {record["route_id"] for record in await house.records(key)} == {"shop-a", "shops"}


@pytest.mark.parametrize("host", [b"A.test", b"a.test.", b"a.test:8080", b"x.y.B.test"])
async def test_no_spelling_of_a_host_passes_unguarded(house: House, host: bytes) -> None:
    """Without a key the guard refuses, however its host is spelt, also in an absolute target beside another Host."""
    for answer in (await send(house, host, None), await send(house, b"other.test", None, b"http://%b/pay" % host)):
        assert (answer.status, answer.problem) == (400, "key-missing")
    assert house.seen == []


@pytest.mark.parametrize("host", [b"a%2etest", b"a.test..", b"a.test,other.test"])
async def test_a_host_that_could_be_read_in_two_ways_is_refused(house: House, host: bytes) -> None:
    answer = await send(house, host, fresh())
    assert (answer.status, answer.problem) == (400, "target-refused")
    assert house.seen == []


async def test_other_hosts_are_other_routes(house: House) -> None:
    """What is guarded for one host is free for another, and without a host only routes for all hosts are there."""
    for host in (b"other.test", b"", None):
        assert (await send(house, host, None)).status == 201
    assert [await house.gateway.metric("idempotency_requests_total", route="rest", decision="bypass")] == [3]


@pytest.mark.parametrize("field", [b"X-Forwarded-Host: %b", b"Forwarded: for=192.0.2.1;host=%b;proto=https"])
async def test_what_a_trusted_proxy_says_counts_and_routes_nothing(house: House, field: bytes) -> None:
    """A front that calls the gateway by one name tells shops apart in these fields, and frameworks believe it; routes go by Host."""
    key = fresh()
    first = await send(house, b"a.test", key, b"/pay", field % b"shop-1.test")
    other = await send(house, b"a.test", key, b"/pay", field % b"shop-2.test")
    again = await send(house, b"a.test", key, b"/pay", field % b"Shop-1.test")
    assert (first.status, refusal(other), replayed(again)) == (201, (422, "key-reused"), True)
    assert len(house.seen) == 1
    assert (await send(house, b"other.test", None, b"/pay", field % b"a.test")).status == 201


@pytest.mark.parametrize("target", [b"/pay", b"/free"])
async def test_each_client_behind_a_balancer_is_told_of_by_its_own_address(house: House, target: bytes) -> None:
    """Addresses differ from request to request, on one connection: each reaches the upstream with its own, and its log line."""
    addresses = [b"203.0.113.%d" % number for number in (7, 8, 77, 78, 9, 177, 178)]
    async with await Client.connect(house.gateway.port) as client:
        for address in (*addresses, b"spoofed, 203.0.113.5", b"2001:db8::1"):
            more = (b"X-Forwarded-For: " + address, b"X-Real-IP: " + address)
            answer = await client.request(post(target, fresh(), more=more))
            assert answer.status == 201
            assert house.last.value("X-Forwarded-For") == address + b", 127.0.0.1"
            assert house.last.value("X-Real-IP") == address
            assert (await house.line(answer))["client"] == address.rpartition(b" ")[2].decode()
