"""What makes two requests the same operation, on the wire: forms, parts, and selected members."""

import pytest

from tests.proxy.house import House, fresh, refusal, replayed

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = """
  - {id: auto, path: /auto, upstream: payments, methods: [POST], idempotency: {limits: {request_body: 4MiB}}}
  - id: only
    path: /only
    upstream: payments
    methods: [POST]
    idempotency: {fingerprint: {only: [/amount, "/items/*/sku"]}}
  - id: ignore
    path: /ignore
    upstream: payments
    methods: [POST]
    idempotency: {fingerprint: {ignore: [/sent_at, "/items/*/note", "/tags/*"]}}
  - {id: bytes, path: /bytes, upstream: payments, methods: [POST], idempotency: {fingerprint: {body: bytes}}}
  - {id: none, path: /none, upstream: payments, methods: [POST], idempotency: {fingerprint: {body: none, headers: [X-Branch]}}}
"""

JSON = b"application/json"
FORM = b"application/x-www-form-urlencoded"
SAME, OTHER = True, False


def parts(boundary: bytes, *contents: bytes, filename: bytes = b"a.pdf", media_type: bytes = b"application/pdf") -> bytes:
    """A form with an amount and files."""
    lines = [b"--" + boundary, b'Content-Disposition: form-data; name="amount"', b"", b"100"]
    for content in contents:
        disposition = b'Content-Disposition: form-data; name="file"; filename="%b"' % filename
        lines += [b"--" + boundary, disposition, b"Content-Type: " + media_type, b"", content]
    return b"\r\n".join([*lines, b"--" + boundary + b"--", b""])


def boundary_of(one: bytes) -> bytes:
    return b"multipart/form-data; boundary=" + one


async def assert_alike(house: House, path: bytes, one: tuple[bytes, bytes], two: tuple[bytes, bytes], *, alike: bool) -> None:
    """Whether the second (media type, body) replays the first, or is refused."""
    key = fresh()
    first = await house.ask(path, key, one[1], media_type=one[0])
    again = await house.ask(path, key, two[1], media_type=two[0])
    assert first.status == 201
    if alike:
        assert replayed(again), again.body
        assert again.body == first.body
    else:
        assert refusal(again) == (422, "key-reused")
    assert [seen.body for seen in house.seen] == [one[1]]


@pytest.mark.parametrize(
    ("one", "two", "alike"),
    [
        (b"amount=100&currency=EUR", b"currency=EUR&amount=100", SAME),
        (b"note=a+b&x=%41", b"x=A&note=a%20b", SAME),
        (b"item=1&item=2&a=b", b"a=b&item=1&item=2", SAME),
        (b"item=1&item=2&a=b", b"item=2&item=1&a=b", OTHER),
        (b"amount=100", b"amount=100&amount=100", OTHER),
        (b"amount=100", b"amount=0100", OTHER),
        (b"a=1&b=2", b"a=2&b=1", OTHER),
        (b"items[][sku]=a&items[][n]=1&items[][sku]=b", b"items[][sku]=a&items[][sku]=b&items[][n]=1", OTHER),
        (b"a=%zz&b=1", b"b=1&a=%zz", OTHER),
    ],
)
async def test_forms(house: House, one: bytes, two: bytes, alike: bool) -> None:
    """Pairs count, their order among different names and their escapes do not; what is no strict form counts by its bytes."""
    await assert_alike(house, b"/auto", (FORM, one), (FORM, two), alike=alike)


async def test_a_form_is_no_json(house: House) -> None:
    """Another media type is another operation; its parameters are not."""
    await assert_alike(house, b"/auto", (FORM, b"a=1"), (b"text/plain", b"a=1"), alike=False)
    house.seen.clear()
    await assert_alike(house, b"/auto", (FORM, b"a=1"), (FORM + b"; charset=utf-8", b"a=1"), alike=True)


@pytest.mark.parametrize(
    ("one", "two", "alike"),
    [
        ((b"xxx", parts(b"xxx", b"1234")), (b"yyyyy", parts(b"yyyyy", b"1234")), SAME),
        ((b"xxx", parts(b"xxx", b"1234")), (b"xxx", parts(b"xxx", b"1235")), OTHER),
        ((b"xxx", parts(b"xxx", b"1234")), (b"xxx", parts(b"xxx", b"1234", filename=b"b.pdf")), OTHER),
        ((b"xxx", parts(b"xxx", b"1234")), (b"xxx", parts(b"xxx", b"1234", media_type=b"text/plain")), OTHER),
        ((b"xxx", parts(b"xxx", b"1", b"2")), (b"xxx", parts(b"xxx", b"2", b"1")), OTHER),
        ((b"xxx", parts(b"xxx", b"1")), (b"xxx", parts(b"xxx", b"1", b"1")), OTHER),
        ((b"xxx", b"no parts"), (b"yyy", b"no parts"), SAME),
        ((b"xxx", parts(b"xxx", b"1")), (b"yyy", parts(b"xxx", b"1")), OTHER),
    ],
)
async def test_parts(house: House, one: tuple[bytes, bytes], two: tuple[bytes, bytes], alike: bool) -> None:
    """Name, file name, type and bytes of each part count, the boundary does not."""
    await assert_alike(house, b"/auto", (boundary_of(one[0]), one[1]), (boundary_of(two[0]), two[1]), alike=alike)


async def test_large_parts(house: House) -> None:
    """So it is for bodies that are too large for memory: they are hashed as they come."""
    content = bytes(range(256)) * 8000
    one, two = (boundary_of(b"xxx"), parts(b"xxx", content)), (boundary_of(b"yyyyyy"), parts(b"yyyyyy", content))
    await assert_alike(house, b"/auto", one, two, alike=True)


async def test_large_parts_that_differ(house: House) -> None:
    """One byte in two million is another operation."""
    content = bytes(range(256)) * 8000
    one, two = (boundary_of(b"xxx"), parts(b"xxx", content)), (boundary_of(b"xxx"), parts(b"xxx", content[:-1] + b"x"))
    await assert_alike(house, b"/auto", one, two, alike=False)


@pytest.mark.parametrize(
    ("path", "one", "two", "alike"),
    [
        (b"/only", b'{"amount":1,"items":[{"sku":"a","n":1}],"x":1}', b'{"items":[{"n":2,"sku":"a"}],"amount":1.0}', SAME),
        (b"/only", b'{"amount":1,"items":[{"sku":"a"}]}', b'{"amount":1,"items":[{"sku":"b"}]}', OTHER),
        (b"/only", b'{"amount":1,"items":[{"sku":"a"},{"sku":"b"}]}', b'{"amount":1,"items":[{"sku":"b"},{"sku":"a"}]}', OTHER),
        (b"/only", b'{"amount":1,"items":[{"sku":"a"}]}', b'{"amount":1,"items":[{"sku":"a"},{"sku":"a"}]}', OTHER),
        (b"/only", b'{"amount":1}', b'{"amount":null}', OTHER),
        (b"/only", b'{"amount":1}', b'{"amount":"1"}', OTHER),
        (b"/ignore", b'{"a":1,"sent_at":1,"items":[{"n":1,"note":"x"}]}', b'{"a":1,"items":[{"n":1}],"sent_at":2}', SAME),
        (b"/ignore", b'{"items":[{"n":1,"note":"x"},{"n":2}]}', b'{"items":[{"n":1},{"n":2,"note":[1]}]}', SAME),
        (b"/ignore", b'{"items":[{"n":1}]}', b'{"items":[{"n":2}]}', OTHER),
        (b"/ignore", b'{"tags":{"a":1}}', b'{"tags":{"b":2,"c":3}}', SAME),
        (b"/ignore", b'{"a":1,"sent_at":1}', b'{"a":1,"sent_at":2', OTHER),
        (b"/bytes", b'{"a":1}', b'{"a": 1}', OTHER),
        (b"/none", b'{"a":1}', b'{"a":2}', SAME),
        (b"/auto", b'{"a":9007199254740993}', b'{"a":9007199254740992}', OTHER),
        (b"/auto", b'{"a":1e2,"b":100.10}', b'{"b":100.1,"a":100}', SAME),
        (b"/auto", b'{"a":1,"a":2}', b'{"a":2}', OTHER),
        (b"/auto", b'{"a":"1"}', b'{"a":1}', OTHER),
    ],
)
async def test_members(house: House, path: bytes, one: bytes, two: bytes, alike: bool) -> None:
    """What a route selects or leaves out of a JSON body, in arrays and objects too."""
    await assert_alike(house, path, (JSON, one), (JSON, two), alike=alike)


async def test_fields_that_count(house: House) -> None:
    """A configured header field is part of what a request means, and others are not."""
    key = fresh()
    assert (await house.ask(b"/none", key, more=(b"X-Branch: 1", b"User-Agent: a"))).status == 201
    assert replayed(await house.ask(b"/none", key, more=(b"User-Agent: b", b"x-branch:1")))
    assert refusal(await house.ask(b"/none", key, more=(b"X-Branch: 2",))) == (422, "key-reused")
    assert refusal(await house.ask(b"/none", key)) == (422, "key-reused")


async def test_a_coding_counts_and_is_not_undone(house: House) -> None:
    """The same bytes under a content coding are another operation."""
    key = fresh()
    assert (await house.ask(b"/auto", key, b"{}")).status == 201
    assert refusal(await house.ask(b"/auto", key, b"{}", more=(b"Content-Encoding: gzip",))) == (422, "key-reused")
