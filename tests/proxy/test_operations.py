"""What selects the operation besides path and body, on the wire: the host, fields, conditions, parameters of the media type."""

import pytest

from tests.proxy.house import House, fresh, refusal, replayed
from tests.support.client import Answer, ask

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = """
  - {id: pay, path: /pay, upstream: payments, methods: [POST], idempotency: {}}
  - {id: anywhere, path: /anywhere, upstream: payments, methods: [POST], idempotency: {fingerprint: {ignore_headers: [Host, If-Match]}}}
  - id: signed
    path: /signed
    upstream: payments
    methods: [POST]
    idempotency: {fingerprint: {ignore_query: [X-Amz-Signature, X-Amz-Date], ignore_form: [signature, "sent at"]}}
"""

XML = b"Content-Type: text/xml"
FORM = b"Content-Type: application/x-www-form-urlencoded"


async def send(
    house: House, key: bytes, target: bytes, *lines: bytes, host: bytes | None = b"shop-a.test", body: bytes = b"<x/>"
) -> Answer:
    """POST with exactly these fields; without a host in HTTP/1.0."""
    start = b"POST %b HTTP/1.%d" % (target, 0 if host is None else 1)
    named = [] if host is None else [b"Host: " + host]
    head = [start, *named, b"X-Account: a", b"Idempotency-Key: " + key, *lines, b"Content-Length: %d" % len(body), b"", b""]
    return await ask(house.gateway.port, b"\r\n".join(head) + body)


async def assert_one(house: House, first: Answer, again: Answer) -> None:
    assert first.status == 201
    assert replayed(again), again.body
    assert len(house.seen) == 1


async def assert_two(house: House, first: Answer, again: Answer) -> None:
    assert first.status == 201
    assert refusal(again) == (422, "key-reused")
    assert len(house.seen) == 1


@pytest.mark.parametrize("other", [b"shop-b.test", b"shop-a.test.evil.test", b"shop-a.test:8443", b"shop-a.test:443", b"", None])
async def test_another_host_is_another_operation(house: House, other: bytes | None) -> None:
    """Host goes on to the upstream, which tells shops apart by it: shop B never gets shop A's answer."""
    key = fresh()
    await assert_two(house, await send(house, key, b"/pay", XML), await send(house, key, b"/pay", XML, host=other))


@pytest.mark.parametrize("spelling", [b"SHOP-A.test", b"shop-a.test.", b"shop-a.test:80", b"shop-a.test.:080", b"shop-a.test:"])
async def test_a_host_has_many_spellings(house: House, spelling: bytes) -> None:
    """Letter case, the scheme's default port and one final dot name no other host."""
    key = fresh()
    await assert_one(house, await send(house, key, b"/pay", XML), await send(house, key, b"/pay", XML, host=spelling))


async def test_an_absolute_target_names_the_host(house: House) -> None:
    """RFC 9112 3.2.2: the target's host counts, whatever Host says."""
    key = fresh()
    first = await send(house, key, b"/pay", XML)
    again = await send(house, key, b"http://shop-b.test/pay", XML)
    await assert_two(house, first, again)
    assert replayed(await send(house, key, b"http://Shop-A.test:80/pay", XML, host=b"shop-b.test"))


async def test_what_an_untrusted_client_says_of_its_host_is_not_heard(house: House) -> None:
    """It goes to no upstream, and so counts for nothing."""
    key = fresh()
    first = await send(house, key, b"/pay", XML, b"X-Forwarded-Host: a.test")
    await assert_one(house, first, await send(house, key, b"/pay", XML, b"X-Forwarded-Host: b.test", b"Forwarded: host=c.test"))
    assert house.last.value("x-forwarded-host") == b"shop-a.test"


@pytest.mark.parametrize("target", [b"http://:80/pay", b"http://sh<op/pay", b"http://user@/pay"])
async def test_an_absolute_target_without_a_host_is_refused(house: House, target: bytes) -> None:
    """RFC 9110 4.2.1: what names no host is no target."""
    answer = await send(house, fresh(), target, XML)
    assert (answer.status, answer.problem) == (400, "bad-request")
    assert house.seen == []


async def test_no_host_is_one_of_its_own(house: House) -> None:
    """HTTP/1.0 without a Host is for the empty host, as the upstream is told."""
    key = fresh()
    await assert_one(house, await send(house, key, b"/pay", XML, host=None), await send(house, key, b"/pay", XML, host=b""))
    assert house.last.value("host") == b""


SELECTING = {
    "SOAP": (b'SOAPAction: "urn:Pay"', b'SOAPAction: "urn:Refund"'),
    "AWS": (b"X-Amz-Target: Ledger.Credit", b"X-Amz-Target: Ledger.Debit"),
    "override": (b"X-HTTP-Method-Override: PUT", b"X-HTTP-Method-Override: PATCH"),
    "range": (b"Content-Range: bytes 0-3/8", b"Content-Range: bytes 4-7/8"),
    "tus": (b"Upload-Offset: 0", b"Upload-Offset: 4"),
    "WebDAV": (b"Destination: /b", b"Destination: /c"),
    "WebDAV overwrite": (b"Overwrite: T", b"Overwrite: F"),
    "condition": (b'If-Match: "1"', b'If-Match: "2"'),
    "no condition": (b'If-None-Match: "1"', b"X-None: 1"),
    "CGI's spelling": (b'If_Match: "1"', b'If_Match: "2"'),
    "media type": (b"Accept: a", b"Content-Type: text/xml; action=refund"),
}


@pytest.mark.parametrize(("one", "two"), SELECTING.values(), ids=SELECTING.keys())
async def test_fields_select_the_operation(house: House, one: bytes, two: bytes) -> None:
    """Another value of such a field, or none, is another operation."""
    key = fresh()
    more = () if two.startswith(b"Content-Type") else (XML,)
    await assert_two(house, await send(house, key, b"/pay", XML, one), await send(house, key, b"/pay", *more, two))


async def test_what_may_change_between_attempts(house: House) -> None:
    """Charset and boundary, preferences, dates and traces are none of the operation."""
    key = fresh()
    first = await send(house, key, b"/pay", b'Content-Type: text/xml; Action="pay"; charset=utf-8', b"Prefer: wait=1", b"Date: now")
    again = await send(house, key, b"/pay", b"Content-Type: text/xml;action=pay;boundary=x", b"Prefer: wait=2", b"User-Agent: b")
    await assert_one(house, first, again)


async def test_a_selecting_field_is_never_nominated_away(house: House) -> None:
    """What counts goes on, also if `Connection` names it (RFC 9110 7.6.1 would drop it): the upstream sees what was compared."""
    await send(house, fresh(), b"/pay", XML, b"Connection: If-Match", b'If-Match: "1"')
    assert house.last.value("if-match") == b'"1"'


async def test_a_route_may_leave_out_what_counts_by_itself(house: House) -> None:
    """`ignore_headers`: one API under several names; other fields still count."""
    key = fresh()
    first = await send(house, key, b"/anywhere", XML, b"If-Match: 1")
    await assert_one(house, first, await send(house, key, b"/anywhere", XML, b"If-Match: 2", host=b"other.test"))
    assert refusal(await send(house, key, b"/anywhere", XML, b"Range: bytes=0-1")) == (422, "key-reused")


async def test_a_signed_query(house: House) -> None:
    """`ignore_query`: what is signed anew is the same operation, its names decoded; all of it goes on to the upstream."""
    key = fresh()
    first = await send(house, key, b"/signed?to=a&X-Amz-Signature=1&X-Amz-Date=2", XML)
    await assert_one(house, first, await send(house, key, b"/signed?X%2DAmz-Date=3&to=a&X-Amz-Signature=4", XML))
    assert house.last.target == b"/signed?to=a&X-Amz-Signature=1&X-Amz-Date=2"
    assert refusal(await send(house, key, b"/signed?to=b&X-Amz-Signature=1", XML)) == (422, "key-reused")


async def test_a_signed_form(house: House) -> None:
    """`ignore_form`: likewise of a form's fields."""
    key = fresh()
    first = await send(house, key, b"/signed", FORM, body=b"amount=1&signature=a&sent+at=1")
    await assert_one(house, first, await send(house, key, b"/signed", FORM, body=b"sent%20at=2&amount=1"))
    assert house.last.body == b"amount=1&signature=a&sent+at=1"
    assert refusal(await send(house, key, b"/signed", FORM, body=b"amount=2&signature=a")) == (422, "key-reused")
