"""Where a key may be, and which keys are good: fields, queries and bodies."""

import json

import pytest

from tests.proxy.house import House, fresh, refusal, replayed

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = """
  - {id: header, path: /header, upstream: payments, methods: [POST], idempotency: {key: {header: X-Request-Token}}}
  - {id: query, path: /query, upstream: payments, methods: [POST], idempotency: {key: {query: request id}}}
  - {id: body, path: /body, upstream: payments, methods: [POST], idempotency: {key: {json_pointer: /meta/request_id}}}
  - {id: optional, path: /optional, upstream: payments, methods: [POST], idempotency: {key: {json_pointer: /id, required: false}}}
  - {id: form, path: /form, upstream: payments, methods: [POST], idempotency: {key: {form: request_id}}}
  - {id: several, path: /several, upstream: payments, methods: [POST], idempotency: {key: {header: [Idempotency-Key, X-Old-Key]}}}
  - {id: pattern, path: /pattern, upstream: payments, methods: [POST], idempotency: {key: {pattern: "[a-z]{4}-[0-9]{4}"}}}
  - {id: lengths, path: /lengths, upstream: payments, methods: [POST], idempotency: {key: {min_length: 8, max_length: 12}}}
  - {id: folded, path: /folded, upstream: payments, methods: [POST], idempotency: {key: {fold_case: true}}}
  - {id: folded-query, path: /folded-query, upstream: payments, methods: [POST], idempotency: {key: {query: id, fold_case: true}}}
  - {id: folded-body, path: /folded-body, upstream: payments, methods: [POST], idempotency: {key: {json_pointer: /id, fold_case: true}}}
"""


FORM = b"application/x-www-form-urlencoded"


def with_id(key: bytes | None, amount: int = 100) -> bytes:
    """A body with a key two levels deep."""
    return json.dumps({"amount": amount, "meta": {"request_id": None if key is None else key.decode()}}).encode()


async def test_a_header_of_another_name(house: House) -> None:
    """The route's own field holds the key; the usual one means nothing there."""
    line = b"x-request-token: " + fresh()
    first, again = [await house.ask(b"/header", fresh(), more=(line,)) for _ in range(2)]
    assert first.body == again.body
    assert replayed(again)
    assert refusal(await house.ask(b"/header", fresh())) == (400, "key-missing")
    assert len(house.seen) == 1


async def test_a_query_parameter(house: House) -> None:
    """The key is the parameter, its escapes resolved, and what the upstream gets is the target as it came."""
    target = b"/query?a=%2f&request+id=" + fresh() + b"&b"
    first, again = [await house.ask(target) for _ in range(2)]
    assert first.body == again.body
    assert replayed(again)
    assert [seen.target for seen in house.seen] == [target]


async def test_a_member_of_the_body(house: House) -> None:
    """The key is the string at the pointer; the body goes on byte for byte."""
    key = fresh()
    body = b' {"meta": {"request_id" : "%b"}, "amount": 1.50 }\n' % key
    first, again = [await house.ask(b"/body", None, body) for _ in range(2)]
    other = await house.ask(b"/body", None, with_id(key, 999))
    assert first.body == again.body
    assert replayed(again)
    assert refusal(other) == (422, "key-reused")
    assert [seen.body for seen in house.seen] == [body]
    assert len(await house.records(key)) == 1


@pytest.mark.parametrize(
    ("target", "body", "problem"),
    [
        (b"/query", b"{}", "key-missing"),
        (b"/query?request+id=", b"{}", "key-invalid"),
        (b"/query?request+id=a&request%20id=a", b"{}", "key-invalid"),
        (b"/query?request+id=50%", b"{}", "key-invalid"),
        (b"/query?request+id=caf%C3%A9", b"{}", "key-invalid"),
        (b"/body", b"", "key-missing"),
        (b"/body", b"{}", "key-missing"),
        (b"/body", with_id(None), "key-missing"),
        (b"/body", with_id(b""), "key-invalid"),
        (b"/body", with_id(b"x" * 256), "key-invalid"),
        (b"/body", b'{"meta":{"request_id":1.7}}', "key-invalid"),
        (b"/body", b'{"meta":{"request_id":["a"]}}', "key-invalid"),
        (b"/body", b'{"meta":{"request_id":"a","request_id":"b"}}', "key-invalid"),
        (b"/body", b'{"meta":{"request_id":"caf\xc3\xa9"}}', "key-invalid"),
        (b"/body", b'{"meta":{"request_id":"a"}', "key-invalid"),
        (b"/body", b"amount=100", "key-invalid"),
    ],
)
async def test_a_bad_key_in_query_or_body(house: House, target: bytes, body: bytes, problem: str) -> None:
    """It is refused with 400, nothing is recorded, and the upstream sees nothing."""
    (before,) = await house.query("SELECT count(*) FROM gateway_records")
    assert refusal(await house.ask(target, fresh(), body)) == (400, problem)
    assert await house.query("SELECT count(*) FROM gateway_records") == [before]
    assert not house.seen


async def test_a_body_without_a_key_where_none_is_required(house: House) -> None:
    """It passes, guarded by nothing, byte for byte; a bad key is refused all the same."""
    body = b'{ "amount": 1.50 }'
    for _ in range(2):
        answer = await house.ask(b"/optional", None, body)
        assert answer.status == 201
        assert not replayed(answer)
    assert [seen.body for seen in house.seen] == [body, body]
    assert refusal(await house.ask(b"/optional", None, b'{"id": [5]}')) == (400, "key-invalid")
    assert refusal(await house.ask(b"/optional", None, b"{")) == (400, "key-invalid")
    assert len(house.seen) == 2


async def test_a_pattern_of_its_own(house: House) -> None:
    """A key that does not match it, whole, is refused."""
    assert (await house.ask(b"/pattern", b"abcd-0001")).status == 201
    assert replayed(await house.ask(b"/pattern", b'"abcd-0001"'))
    for key in (b"abcd-00011", b"xabcd-0001", b"ABCD-0001", fresh()):
        assert refusal(await house.ask(b"/pattern", key)) == (400, "key-invalid")
    assert len(house.seen) == 1


async def test_lengths_of_its_own(house: House) -> None:
    """Quotes do not count; a key that is too short or too long is refused."""
    for key in (b"12345678", b'"123456789012"'):
        assert (await house.ask(b"/lengths", key)).status == 201
    for key in (b"1234567", b"1234567890123", b'"1234567"'):
        assert refusal(await house.ask(b"/lengths", key)) == (400, "key-invalid")


async def test_letter_case_that_means_nothing(house: House) -> None:
    """Keys that differ in case alone are one where the route says so, and two where it does not."""
    key = b"Order-" + fresh()
    first = await house.ask(b"/folded", key)
    again = await house.ask(b"/folded", key.upper())
    assert again.body == first.body
    assert replayed(again)
    assert house.last.value("idempotency-key") == key
    token = b"X-Request-Token: Order-" + fresh()
    assert not replayed(await house.ask(b"/header", more=(token,)))
    assert not replayed(await house.ask(b"/header", more=(token.replace(b"Order", b"ORDER"),)))


async def test_letter_case_that_means_nothing_in_a_query(house: House) -> None:
    """Another spelling of the key is not another operation, though the target differs by it."""
    key = b"order-" + fresh()
    first = await house.ask(b"/folded-query?a=1&id=" + key)
    again = await house.ask(b"/folded-query?a=1&id=" + key.upper())
    assert (again.status, again.body) == (first.status, first.body)
    assert refusal(await house.ask(b"/folded-query?a=2&id=" + key)) == (422, "key-reused")


async def test_letter_case_that_means_nothing_in_a_body(house: House) -> None:
    """Another spelling of the key is not another operation, though the body differs by it."""
    key = fresh()
    first = await house.ask(b"/folded-body", None, b'{"id":"%b","amount":1}' % key)
    again = await house.ask(b"/folded-body", None, b'{"id":"%b","amount":1}' % key.upper())
    assert (again.status, again.body) == (first.status, first.body)
    assert refusal(await house.ask(b"/folded-body", None, b'{"id":"%b","amount":2}' % key)) == (422, "key-reused")


async def test_a_field_of_a_form(house: House) -> None:
    """The key is the field's value; the body goes on byte for byte, and what stands beside the key is the operation."""
    key = fresh()
    first = await house.ask(b"/form", None, b"amount=1&request%%5Fid=%b" % key, media_type=FORM)
    again = await house.ask(b"/form", None, b"request_id=%b&amount=1" % key, media_type=FORM)
    assert first.body == again.body
    assert replayed(again)
    assert refusal(await house.ask(b"/form", None, b"amount=2&request_id=%b" % key, media_type=FORM)) == (422, "key-reused")
    assert [seen.body for seen in house.seen] == [b"amount=1&request%%5Fid=%b" % key]
    assert refusal(await house.ask(b"/form", None, b"amount=1", media_type=FORM)) == (400, "key-missing")
    assert refusal(await house.ask(b"/form", None, b"request_id=a&request.id=b", media_type=FORM)) == (400, "key-invalid")
    assert refusal(await house.ask(b"/form", None, b'{"request_id":"a"}')) == (400, "key-invalid")


async def test_a_whole_number_is_a_key(house: House) -> None:
    """By its text, which is the same key as a string; other numbers are none."""
    number = b"7%b" % b"".join(b"%d" % (octet % 10) for octet in fresh())
    first = await house.ask(b"/body", None, b'{"meta": {"request_id": %b}}' % number)
    again = await house.ask(b"/body", None, b'{"meta": {"request_id": "%b"}}' % number)
    assert first.body == again.body
    assert replayed(again)
    assert len(await house.records(number)) == 1
    assert refusal(await house.ask(b"/body", None, b'{"meta": {"request_id": 1.5}}')) == (400, "key-invalid")


async def test_one_of_several_fields(house: House) -> None:
    """A key under an older name is the same key; two that differ are refused. All go on as they came."""
    key = fresh()
    first = await house.ask(b"/several", key)
    again = await house.ask(b"/several", None, more=(b"x-old-key: " + key,))
    both = await house.ask(b"/several", key, more=(b'X-Old-Key: "%b"' % key,))
    assert first.body == again.body == both.body
    assert replayed(again)
    assert replayed(both)
    assert refusal(await house.ask(b"/several", key, more=(b"X-Old-Key: " + fresh(),))) == (400, "key-invalid")
    assert refusal(await house.ask(b"/several", None)) == (400, "key-missing")
    assert len(house.seen) == 1
