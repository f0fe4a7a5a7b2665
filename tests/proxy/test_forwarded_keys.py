"""Which key the upstream sees, and where: in a field, a query or a body."""

import re

import pytest

from tests.proxy.house import TENANT_B, House, fresh, refusal, replayed, saying
from tests.support.client import ask

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = """
  - {id: plain, path: /plain, upstream: payments, methods: [POST], idempotency: {}}
  - {id: derived, path: /derived, upstream: payments, methods: [POST], idempotency: {forward_key: derived}}
  - {id: none, path: /none, upstream: payments, methods: [POST], idempotency: {forward_key: none}}
  - id: moved
    path: /moved
    upstream: payments
    methods: [POST]
    idempotency: {forward_key: as_received, forward_key_in: {header: X-Provider-Key}}
  - id: moved-derived
    path: /moved-derived
    upstream: payments
    methods: [POST]
    idempotency: {key: {query: id}, forward_key: derived, forward_key_in: {header: X-Provider-Key}}
  - id: optional-derived
    path: /optional-derived
    upstream: payments
    methods: [POST]
    idempotency: {key: {required: false}, forward_key: derived, forward_key_in: {header: X-Provider-Key}}
  - id: optional-in-place
    path: /optional-in-place
    upstream: payments
    methods: [POST]
    idempotency: {key: {required: false}, forward_key: derived}
  - id: none-query
    path: /none-query
    upstream: payments
    methods: [POST]
    idempotency: {key: {query: id}, forward_key: none}
  - id: to-query
    path: /to-query
    upstream: payments
    methods: [POST]
    idempotency: {forward_key_in: {query: request_id}}
  - id: to-body
    path: /to-body
    upstream: payments
    methods: [POST]
    idempotency: {forward_key_in: {json_pointer: /meta/request_id}, limits: {request_body: 4MiB}}
  - id: derived-body
    path: /derived-body
    upstream: payments
    methods: [POST]
    idempotency: {forward_key: derived, forward_key_in: {json_pointer: /id}}
  - id: body-derived
    path: /body-derived
    upstream: payments
    methods: [POST]
    idempotency: {key: {json_pointer: /id}, forward_key: derived}
  - id: form-derived
    path: /form-derived
    upstream: payments
    methods: [POST]
    idempotency: {key: {form: id}, forward_key: derived}
  - id: several-derived
    path: /several-derived
    upstream: payments
    methods: [POST]
    idempotency: {key: {header: [Idempotency-Key, X-Old-Key]}, forward_key: derived}
"""

DERIVED = re.compile(rb"idg_[0-9a-f]{48}")


async def test_nobody_writes_a_derived_key_but_the_gateway(house: House) -> None:
    """Neither without a key of its own, nor in a spelling that a CGI upstream would take for it."""
    await house.ask(b"/optional-derived", None, more=(b"X-Provider-Key: idg_spoof",))
    assert house.last.value("x-provider-key") is None
    await house.ask(b"/optional-derived", fresh(), more=(b"X_Provider_Key: idg_spoof",))
    assert house.last.value("x_provider_key") is None
    assert DERIVED.fullmatch(house.last.value("x-provider-key") or b"")


async def test_an_underscore_writes_no_key_either(house: House) -> None:
    """CGI and WSGI read `X_Key` as `X-Key`: such a line goes wherever the field itself would."""
    await house.ask(b"/optional-derived", None, more=(b"X_Provider_Key: idg_b", b"X-Provider-Key: idg_a"))
    assert [house.last.value(name) for name in ("x-provider-key", "x_provider_key")] == [None, None]
    await house.ask(b"/optional-in-place", None, more=(b"Idempotency_Key: idg_c",))
    assert house.last.value("idempotency_key") is None
    await house.ask(b"/none", fresh(), more=(b"Idempotency_Key: idg_d",))
    assert [house.last.value(name) for name in ("idempotency-key", "idempotency_key")] == [None, None]
    await house.ask(b"/moved", fresh(), more=(b"Idempotency_Key: idg_e",))
    assert house.last.value("idempotency_key") is None


async def test_as_received(house: House) -> None:
    """The key goes on as the client spelled it."""
    key = b'"' + fresh() + b'"'
    await house.ask(b"/plain", key)
    assert house.last.value("idempotency-key") == key


async def test_a_derived_key(house: House) -> None:
    """It is the same for a retry of one caller's key, another one for another caller, and never shows the client's key."""

    keys, key = [], fresh()
    house.upstream.behave = saying(429)
    for account in (b"tenant-a", b"tenant-a", TENANT_B):
        await house.ask(b"/derived", key, account=account)
        keys.append(house.last.value("idempotency-key"))
        assert key not in house.last.raw
    assert len(house.seen) == 3
    assert keys[0] == keys[1] != keys[2]
    assert all(DERIVED.fullmatch(one or b"") for one in keys)


async def test_no_key(house: House) -> None:
    """The upstream sees none, neither in a field nor in a query, and the rest of the query stays as it was."""
    key = fresh()
    await house.ask(b"/none", key)
    assert house.last.value("idempotency-key") is None
    await house.ask(b"/none-query?a=%2f&id=" + key + b"&b")
    assert house.last.target == b"/none-query?a=%2f&b"
    await house.ask(b"/none-query?id=" + fresh())
    assert house.last.target == b"/none-query"
    assert all(key not in seen.raw for seen in house.seen)


async def test_a_field_of_choice(house: House) -> None:
    """The key moves there; what a client wrote into that field itself does not reach the upstream."""
    key = fresh()
    await house.ask(b"/moved", key, more=(b"X-Provider-Key: mine",))
    assert house.last.value("idempotency-key") is None
    assert [value for name, value in house.last.fields if name.lower() == b"x-provider-key"] == [key]
    await house.ask(b"/moved-derived?id=" + fresh() + b"&a=1")
    assert house.last.target == b"/moved-derived?a=1"
    assert DERIVED.fullmatch(house.last.value("x-provider-key") or b"")


async def test_a_parameter_of_the_query(house: House) -> None:
    """The key is appended, escaped, and replaces what stood there."""
    await house.ask(b"/to-query?a=%2f", b'"a b&c"')
    assert house.last.target == b"/to-query?a=%2f&request_id=a%20b%26c"
    key = fresh()
    await house.ask(b"/to-query?request_id=mine&a=1", key)
    assert house.last.target == b"/to-query?request_id=" + key + b"&a=1"
    assert house.last.value("idempotency-key") is None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"meta":{}}', b'{"meta":{"request_id":"KEY"}}'),
        (
            b' { "amount" : 1.50, "meta" : { "a" : "\\u00e9" } , "z":1e2}\r\n',
            b' { "amount" : 1.50, "meta" : { "a" : "\\u00e9","request_id":"KEY" } , "z":1e2}\r\n',
        ),
        (
            b'{"meta":{"request_id":"mine","b":[1, 2]},"n":12345678901234567890}',
            b'{"meta":{"request_id":"KEY","b":[1, 2]},"n":12345678901234567890}',
        ),
        (b'{"meta":{"request\\u005fid":null}}', b'{"meta":{"request\\u005fid":"KEY"}}'),
        ('{"x":"\U0001f4b6","meta":{"request_id":7}}'.encode(), '{"x":"\U0001f4b6","meta":{"request_id":"KEY"}}'.encode()),
    ],
)
async def test_a_member_of_the_body(house: House, body: bytes, expected: bytes) -> None:
    """Only the splice changes, the length is that of the new body, and a retry replays."""
    key = fresh()
    first = await house.ask(b"/to-body", key, body)
    again = await house.ask(b"/to-body", key, body)
    assert first.status == 201
    assert again.body == first.body
    assert replayed(again)
    (seen,) = house.seen
    assert seen.body == expected.replace(b"KEY", key)
    assert seen.value("content-length") == b"%d" % len(seen.body)
    assert [name for name, _ in seen.fields if name.lower() == b"content-length"] == [b"Content-Length"]
    assert seen.value("idempotency-key") is None


async def test_digests_of_a_changed_body(house: House) -> None:
    """A digest over the client's bytes does not go on with other bytes."""
    await house.ask(b"/to-body", fresh(), b'{"meta":{}}', more=(b"Content-Digest: sha-256=:AAAA:", b"Content-MD5: AAAA"))
    assert house.last.value("content-digest") is None
    assert house.last.value("content-md5") is None


async def test_a_body_that_came_in_chunks(house: House) -> None:
    """It gets its key, and one framing."""
    head = b"POST /to-body HTTP/1.1\r\nHost: a\r\nX-Account: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    key = fresh()
    answer = await ask(house.gateway.port, head + b"Idempotency-Key: " + key + b'\r\n\r\nb\r\n{"meta":{}}\r\n0\r\n\r\n')
    assert answer.status == 201
    assert house.last.body == b'{"meta":{"request_id":"%b"}}' % key
    assert house.last.value("transfer-encoding") is None
    assert house.last.value("content-length") == b"%d" % len(house.last.body)


async def test_a_derived_key_in_the_body(house: House) -> None:
    """Tenants that chose the same key do not meet at the upstream, whether it came in a field or in the body."""
    key, seen = fresh(), set()
    for account in (b"tenant-a", TENANT_B):
        await house.ask(b"/derived-body", key, b"{}", account=account)
        found = re.fullmatch(rb'\{"id":"(idg_[0-9a-f]{48})"\}', house.last.body)
        assert found
        seen.add(found[1])
        assert key not in house.last.raw
        await house.ask(b"/body-derived", None, b'{"a":1, "id": "%b"}' % key, account=account)
        found = re.fullmatch(rb'\{"a":1, "id": "(idg_[0-9a-f]{48})"\}', house.last.body)
        assert found
        seen.add(found[1])
    assert len(seen) == 4


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"amount=1",
        b"[1]",
        b'{"meta":1}',
        b"{}",
        b'{"meta":{}',
        b'{"meta":{},"meta":{}}',
        b"\xff",
        b'{"meta":{},"x":"' + b"x" * 2_000_000 + b'"',
    ],
)
async def test_a_body_that_cannot_take_the_key(house: House, body: bytes) -> None:
    """It is refused before anything is reserved: no record, no word to the upstream, and the key is free."""
    key = fresh()
    assert refusal(await house.ask(b"/to-body", key, body)) == (400, "key-invalid")
    assert not await house.records(key)
    assert not house.seen
    assert (await house.ask(b"/to-body", key, b'{"meta":{}}')).status == 201


async def test_a_body_that_is_too_large_to_take_the_key(house: House) -> None:
    """Keys are written only into bodies of up to 1 MiB; a larger one is refused for that, whatever the route's limit."""
    key = fresh()
    answer = await house.ask(b"/to-body", key, b'{"meta":{},"x":"' + b"x" * 2_000_000 + b'"}')
    assert refusal(answer) in {(400, "key-invalid"), (413, "body-too-large")}
    assert not await house.records(key)
    assert b"is no JSON object" not in answer.body


async def test_a_derived_key_goes_into_a_form(house: House) -> None:
    """In the place of the client's, framed anew; a retry is the same operation."""
    key = fresh()
    for body in (b"a=%%2f&id=%b&b=1" % key, b"b=1&id=%b&a=%%2f" % key):
        await house.ask(b"/form-derived", None, body, media_type=b"application/x-www-form-urlencoded")
    assert len(house.seen) == 1
    assert re.fullmatch(rb"a=%2f&id=idg_[0-9a-f]{48}&b=1", house.last.body)
    assert house.last.value("content-length") == b"%d" % len(house.last.body)


async def test_a_derived_key_replaces_each_of_several(house: House) -> None:
    """Whichever name the client used, the upstream sees the derived key there and the client's nowhere."""
    key = fresh()
    for spoof in (b"X_Old_Key: spoof", b"Idempotency_Key: spoof"):
        assert refusal(await house.ask(b"/several-derived", None, more=(b"X-Old-Key: " + key, spoof))) == (400, "key-invalid")
    await house.ask(b"/several-derived", None, more=(b"X-Old-Key: " + key, b"Idempotency-Key: " + key))
    values = [value for name, value in house.last.fields if b"key" in name.lower()]
    assert len(values) == 1
    assert DERIVED.fullmatch(values[0])
    assert key not in house.last.raw
