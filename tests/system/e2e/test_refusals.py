"""Bad input on the wire: each refusal in its format, and none of them leaves a record or consumes a key."""

import asyncpg
import pytest

from tests.support.client import Client, ask, payment
from tests.support.gateway import Gateway, Setup
from tests.support.upstream import CountingUpstream

LARGE = b"x" * (1024 * 1024 + 1)
UUID = b"8e03978e-40d5-43dd-bc93-6894a57f9324"

REFUSALS = {
    "no key": (payment(None), 400, "key-missing"),
    "two lines": (payment(b"k1", more=(b"Idempotency-Key: k1",)), 400, "key-invalid"),
    "two different lines": (payment(b"k1", more=(b"idempotency-key: k2",)), 400, "key-invalid"),
    "a comma list": (payment(b"k1, k1"), 400, "key-invalid"),
    "an empty key": (payment(b""), 400, "key-invalid"),
    "an empty string": (payment(b'""'), 400, "key-invalid"),
    "an open string": (payment(b'"abc'), 400, "key-invalid"),
    "a single-quoted string": (payment(b"'abc'"), 400, "key-invalid"),
    "an inner space": (payment(b"a b"), 400, "key-invalid"),
    "an inner tab": (payment(b"a\tb"), 400, "key-invalid"),
    "a boolean": (payment(b"?1"), 400, "key-invalid"),
    "a byte sequence": (payment(b":YWJj:"), 400, "key-invalid"),
    "a Latin-1 byte": (payment(b"cl\xe9"), 400, "key-invalid"),
    "UTF-8": (payment("clé".encode()), 400, "key-invalid"),
    "256 characters": (payment(b"k" * 256), 400, "key-invalid"),
    "5,300 characters": (payment(b"k" * 5300), 400, "key-invalid"),
    "no principal": (payment(b"k1", principal=None), 401, "principal-missing"),
    "an empty principal": (payment(b"k1", principal=b""), 401, "principal-missing"),
    "two principals": (payment(b"k1", more=(b"Authorization: Bearer tenant-b",)), 401, "principal-missing"),
    "a format": (payment(b"k1", target=b"/v1/pay.json"), 400, "target-refused"),
    "a doubled slash": (payment(b"k1", target=b"//v1/pay"), 400, "target-refused"),
    "a dot segment": (payment(b"k1", target=b"/v1/x/../pay"), 400, "target-refused"),
    "an encoded letter": (payment(b"k1", target=b"/v1/%70ay"), 400, "target-refused"),
    "a doubly encoded letter": (payment(b"k1", target=b"/v1/%2570ay"), 400, "target-refused"),
    "an encoded slash": (payment(b"k1", target=b"/v1%2Fpay"), 400, "target-refused"),
    "a path parameter": (payment(b"k1", target=b"/v1/pay;x=1"), 400, "target-refused"),
    "no key and an odd spelling": (payment(None, target=b"/v1//pay"), 400, "target-refused"),
    "a large body by its announcement": (payment(b"k1", LARGE), 413, "body-too-large"),
    "a tunnel": (b"CONNECT gateway.test:443 HTTP/1.1\r\nHost: gateway.test:443\r\n\r\n", 405, "method-refused"),
}


async def records(setup: Setup) -> int:
    """How many records the database holds."""
    connection = await asyncpg.connect(setup.postgres)
    try:
        count: int = await connection.fetchval("SELECT count(*) FROM gateway_records")
        return count
    finally:
        await connection.close()


async def test_each_refusal_has_its_status_and_type(gateway: Gateway, setup: Setup, upstream: CountingUpstream) -> None:
    """Every refusal is a problem document of its own type; none reaches the upstream, leaves a record or uses the key up."""
    for name, (raw, status, problem) in REFUSALS.items():
        answer = await ask(gateway.port, raw)
        assert (answer.status, answer.problem) == (status, problem), name
        assert answer.field("x-request-id"), name
        assert b"kkkk" not in answer.body, name
    assert not upstream.requests
    assert await records(setup) == 0
    assert (await ask(gateway.port, payment(b"k1"))).status == 201


async def test_a_body_over_the_limit_by_count_is_413(gateway: Gateway, setup: Setup, upstream: CountingUpstream) -> None:
    """A chunked body says nothing of its length: it is refused once it has grown too long, with nothing reserved."""
    head = payment(b"k1").partition(b"Content-Length")[0] + b"Transfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    async with await Client.connect(gateway.port) as client:
        answer = await client.request(head + chunk * 17 + b"0\r\n\r\n")
    assert (answer.status, answer.problem) == (413, "body-too-large")
    assert not upstream.requests
    assert await records(setup) == 0


async def test_refusals_by_the_head_come_before_100_continue(gateway: Gateway, upstream: CountingUpstream) -> None:
    """A client that asks first is told no before it sends its body, on a connection that ends there, and is told to go on otherwise."""
    async with await Client.connect(gateway.port) as client:
        head = payment(None, more=(b"Expect: 100-continue",)).partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
        await client.send(head)
        answer = await client.receive()
        assert (answer.status, answer.field("connection")) == (400, b"close")
        assert await client.reader.read() == b""
    async with await Client.connect(gateway.port) as client:
        head, _, body = payment(b"k1", more=(b"Expect: 100-continue",)).partition(b"\r\n\r\n")
        await client.send(head + b"\r\n\r\n")
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        answer = await client.request(body)
    assert answer.status == 201
    assert upstream.requests[0].value("expect") is None


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE", b"PATCH"])
async def test_methods_that_no_route_names_pass_without_a_record(
    gateway: Gateway, setup: Setup, upstream: CountingUpstream, method: bytes
) -> None:
    """On a guarded path the other methods need no key, run each time, and leave no record, with or without a key."""
    for key in (None, b"k1", b"k1"):
        async with await Client.connect(gateway.port) as client:
            answer = await client.request(payment(key, b"", method=method), head_only=method == b"HEAD")
        assert answer.status == 201
    assert len(upstream.requests) == 3
    assert await records(setup) == 0


async def test_no_key_where_none_is_required_passes_through(setup: Setup, upstream: CountingUpstream, gateway: Gateway) -> None:
    """`required: false` lets keyless requests through unguarded; a bad key is an error all the same."""
    text = gateway.config.read_text()
    gateway.config.write_text(text.replace("idempotency: {principal", "idempotency: {key: {required: false}, principal"))
    status, body = await gateway.post("/admin/v1/reload")
    assert status == 200, body
    assert (await ask(gateway.port, payment(None))).status == 201
    assert (await ask(gateway.port, payment(None))).status == 201
    assert (await ask(gateway.port, payment(b'"bad'))).status == 400
    assert len(upstream.requests) == 2
    assert await records(setup) == 0


async def test_no_route_is_404(setup: Setup, gateway: Gateway) -> None:
    """A route map without a catch-all refuses what it does not name."""
    text = gateway.config.read_text()
    gateway.config.write_text("\n".join(line for line in text.splitlines() if "id: rest" not in line))
    status, body = await gateway.post("/admin/v1/reload")
    assert status == 200, body
    answer = await ask(gateway.port, payment(b"k1", target=b"/elsewhere"))
    assert (answer.status, answer.problem) == (404, "no-route")


async def test_malformed_requests_are_400_in_our_format(gateway: Gateway, upstream: CountingUpstream) -> None:
    """What is not well-formed HTTP is refused, counted, and the connection closed."""
    cases = [
        b"POST /v1/pay HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
        b"POST /v1/pay HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST /v1/pay HTTP/1.1\r\nHost : a\r\n\r\n",
        b"nonsense\r\n\r\n",
    ]
    for raw in cases:
        async with await Client.connect(gateway.port) as client:
            answer = await client.request(raw)
            assert (answer.status, answer.problem) == (400, "bad-request"), raw
            assert answer.field("x-request-id")
            assert answer.field("date")
            assert await client.reader.read() == b""
    assert not upstream.requests
    await gateway.counted(len(cases), "idempotency_malformed_requests_total")


@pytest.mark.parametrize(
    "lines", [(b"X-Long: " + b"x" * 70_000,), tuple(b"X-%d: 1" % number for number in range(300))], ids=["long line", "many fields"]
)
async def test_a_head_beyond_the_limits_is_431(gateway: Gateway, upstream: CountingUpstream, lines: tuple[bytes, ...]) -> None:
    """A head of too long lines or too many fields is told so, in our format, with the limits (RFC 6585 section 5)."""
    async with await Client.connect(gateway.port) as client:
        answer = await client.request(payment(b"k1", more=lines))
    assert (answer.status, answer.problem) == (431, "header-too-large")
    assert not upstream.requests


async def test_logs_and_metrics_hold_no_key_and_no_credential(gateway: Gateway, upstream: CountingUpstream) -> None:
    """A key appears in the access log as a digest alone; a credential and a body not at all."""
    await ask(gateway.port, payment(UUID, b'{"card":"4242424242424242"}', principal=b"Bearer very-secret"))
    await ask(gateway.port, payment(UUID, b'{"card":"4000000000000000"}', principal=b"Bearer very-secret"))
    requests = await gateway.logged(lambda line: line["msg"] == "request", 2)
    log = gateway.log.read_text()
    _, metrics = await gateway.get("/metrics")
    for text in (log, metrics.decode()):
        assert UUID.decode() not in text
        assert "very-secret" not in text
        assert "4242" not in text
    assert requests[0]["key"] == requests[1]["key"]
    assert [line["decision"] for line in requests] == ["execute", "key_misuse"]
