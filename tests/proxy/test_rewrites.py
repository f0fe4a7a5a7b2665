"""Routes whose upstream has other paths, on the wire."""

import pytest

from tests.proxy.house import House, Plan, fresh, refusal, replayed
from tests.support.client import Answer, ask
from tests.support.upstream import CountingUpstream, Exchange

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = """
  - {id: pay, path: /v1/pay, upstream: payments, methods: [POST], rewrite: {from: /v1, to: /internal}, idempotency: {}}
  - {id: plain, path: /open/**, upstream: payments, rewrite: {from: /open, to: /}}
  - {id: kept, path: /kept, upstream: deep, methods: [POST], idempotency: {}}
  - id: fields
    path: /fields
    upstream: payments
    idempotency: {}
    request_headers: &sent {set: {X-Edge: eu}, remove: [X-Debug]}
  - {id: free, path: /free, upstream: payments, request_headers: *sent}
  - id: changed
    path: /changed
    upstream: payments
    idempotency: {key: {required: false}}
    answer_headers: &answers {set: {X-Edge: eu, Retry-After: "7"}, remove: [server]}
  - {id: changed-free, path: /changed-free, upstream: payments, answer_headers: *answers}
  - {id: moved, path: /moved/**, upstream: deep, rewrite: {from: /moved, to: /}}
  - {id: below, path: /**, upstream: deep}
"""


@pytest.fixture(scope="module")
def plan(house_upstream: CountingUpstream) -> Plan:
    return Plan(ROUTES, upstreams=f'  deep: {{url: "http://127.0.0.1:{house_upstream.port}/api/v3/"}}')


async def raw(house: House, line: bytes, key: bytes | None = None) -> Answer:
    """A request with this line, without a body."""
    lines = [line, b"Host: a.test", b"X-Account: a", b"Content-Length: 0"]
    lines += [] if key is None else [b"Idempotency-Key: " + key]
    return await ask(house.gateway.port, b"\r\n".join(lines) + b"\r\n\r\n")


async def test_a_guarded_request_arrives_rewritten_and_counts_as_it_was_sent(house: House) -> None:
    """The upstream gets the other path; the fingerprint and the record know the client's, also after the map has changed."""
    key = fresh()
    first = await house.ask(b"/v1/pay?a=%2F..//", key)
    assert (first.status, house.last.target) == (201, b"/internal/pay?a=%2F..//")
    assert [record["request_target"].partition(b"?")[0] for record in await house.records(key)] == [b"/v1/pay"]
    assert refusal(await house.ask(b"/v1/pay?a=1", key)) == (422, "key-reused")
    assert replayed(await house.ask(b"/v1/pay?a=%2F..//", key))
    await house.reload(ROUTES.replace("to: /internal", "to: /v2"))
    assert replayed(await house.ask(b"/v1/pay?a=%2F..//", key))
    await house.ask(b"/v1/pay", fresh())
    assert house.last.target == b"/v2/pay"
    await house.reload(ROUTES)


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        (b"/open", b"/"),
        (b"/open?x=..//", b"/?x=..//"),
        (b"/open/a%20b/c;d", b"/a%20b/c;d"),
        (b"http://a.test/open/x", b"/x"),
        (b"http://a.test/open?y", b"/?y"),
    ],
)
async def test_the_rest_of_the_target_is_untouched(house: House, sent: bytes, got: bytes) -> None:
    """Also of an absolute one, and of a query alone."""
    assert (await raw(house, b"POST %b HTTP/1.1" % sent)).status == 201
    assert house.last.target == got


@pytest.mark.parametrize(
    "target",
    [
        b"/open/../internal/pay",
        b"/open//internal/pay",
        b"/open/%2e%2e/x",
        b"/open/a%2f..%2fx",
        b"/open/..;/x",
        b"/open/.%ff./x",
        b"/open\\..\\x",
    ],
)
async def test_nothing_climbs_out(house: House, target: bytes) -> None:
    """What some upstream may read as another path is refused, and not sent."""
    assert refusal(await raw(house, b"POST %b HTTP/1.1" % target)) == (400, "target-refused")
    assert not house.seen


async def test_the_prefix_of_the_upstream_stands_in_front(house: House) -> None:
    """Of every path, rewritten or not; and what could leave it is refused."""
    assert (await raw(house, b"POST /below/x?y HTTP/1.1")).status == 201
    assert house.last.target == b"/api/v3/below/x?y"
    assert (await raw(house, b"POST /moved/x HTTP/1.1")).status == 201
    assert house.last.target == b"/api/v3/x"
    key = fresh()
    assert (await raw(house, b"POST /kept HTTP/1.1", key)).status == 201
    assert house.last.target == b"/api/v3/kept"
    assert refusal(await raw(house, b"POST /below/../../x HTTP/1.1")) == (400, "target-refused")


@pytest.mark.parametrize("path", [b"/fields", b"/free"])
async def test_fields_are_set_and_removed(house: House, path: bytes) -> None:
    """In every spelling; a retry is told apart by what the client sent."""
    key = fresh()
    answer = await house.ask(path, key, more=(b"x_edge: mine", b"X-Edge: mine", b"X-Debug: 1", b"x_debug: 2", b"X-Other: 3"))
    assert answer.status == 201
    names = {b"x-edge", b"x_edge", b"x-debug", b"x_debug", b"x-other"}
    assert [field for field in house.last.fields if field[0].lower() in names] == [(b"X-Other", b"3"), (b"X-Edge", b"eu")]
    assert replayed(await house.ask(path, key)) == (path == b"/fields")


@pytest.mark.parametrize(("path", "keyed"), [(b"/changed", True), (b"/changed", False), (b"/changed-free", False)])
async def test_an_answer_is_changed_before_it_is_stored(house: House, path: bytes, *, keyed: bool) -> None:
    """A replay equals the first answer, whatever the map says by then; what is of one exchange is not stored."""

    async def answer(exchange: Exchange) -> None:
        await exchange.answer(fields=(b"Server: apache", b"x-edge: inner", b"X-Kept: 1"))

    house.upstream.behave = answer
    key = fresh() if keyed else None
    first = await house.ask(path, key)
    told = [(name.lower(), value) for name, value in first.fields]
    assert [value for name, value in told if name == b"x-edge"] == [b"eu"]
    assert (b"x-kept", b"1") in told
    assert (b"retry-after", b"7") in told
    assert b"server" not in dict(told)
    if key is not None:
        await house.reload(ROUTES.replace("X-Edge: eu, Retry", "X-Edge: us, Retry"))
        again = await house.ask(path, key)
        assert replayed(again)
        assert (again.field("x-edge"), again.field("server"), again.field("retry-after")) == (b"eu", None, None)
        assert (await house.ask(path, fresh())).field("x-edge") == b"us"
        await house.reload(ROUTES)
