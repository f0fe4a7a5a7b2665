"""Requests whose heads are alike but for a few values: what is remembered of the first ones changes nothing for those that follow."""

import re

import pytest

from tests.proxy.house import TENANT_A, TENANT_B, House, fresh, post, refusal, replayed
from tests.support.client import Answer, Client
from tests.support.upstream import Exchange

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = """
  - {id: pay, path: /pay, upstream: payments, methods: [POST], idempotency: {}}
  - {id: dated, path: /dated, upstream: payments, idempotency: {fingerprint: {headers: [Date]}}}
  - {id: whose, path: /whose, upstream: payments, idempotency: {principal: [{header: X-Correlation-Id}]}}
  - {id: bearer, path: /bearer, upstream: payments, idempotency: {principal: [{header: Authorization}]}}
  - {id: named, path: /named, upstream: payments, idempotency: {key: {header: X-Order, max_length: 20}}}
  - {id: optional, path: /optional, upstream: payments, idempotency: {key: {required: false}, status_fields: true}}
  - {id: derived, path: /derived, upstream: payments, idempotency: {forward_key: derived}}
  - {id: free, path: /free, upstream: payments}
  - {id: sent, path: /sent, upstream: payments, request_headers: {set: {X-Edge: eu}, remove: [X-Debug]}}
  - {id: order, path: "/orders/{id}", upstream: payments}
  - {id: order-pay, path: "/orders/{id}/pay", upstream: payments, methods: [POST, PUT], idempotency: {}}
  - {id: read, path: /pay, upstream: payments, methods: [GET, PUT]}
"""
TIMES = 5
"""A shape is learnt from the first two, the plan is found for the third, and the others go by what is known."""


async def often(house: House, path: bytes, *lines: bytes, keyed: bool = True, method: bytes = b"POST") -> list[tuple[Answer, bytes]]:
    """Requests of one shape, one after the other on one connection: their answers, and what the upstream got, if it got anything."""
    found = []
    async with await Client.connect(house.gateway.port) as client:
        for number in range(TIMES):
            before = len(house.seen)
            more = (*lines, b"traceparent: 00-%032x-b7ad6b7169203331-01" % (number + 1))
            answer = await client.request(post(path, fresh() if keyed else None, more=more).replace(b"POST", method, 1))
            found.append((answer, house.last.raw if len(house.seen) > before else b""))
    return found


def same(raw: bytes) -> bytes:
    """Without what differs between any two requests."""
    return re.sub(rb"(?im)^((?:idempotency-key|x-order|x-request-id|traceparent): ).*$", rb"\1*", raw)


@pytest.mark.parametrize("path", [b"/pay", b"/optional", b"/derived", b"/free", b"/sent", b"/dated"])
@pytest.mark.parametrize(
    "line",
    [
        b"Accept: */*",
        b"X-Percent: 100%b %% %(a)s \\0 \\g<1>",
        b"X-Forwarded-For: 10.0.0.1",
        b"Forwarded: for=10.0.0.1",
        b"Connection: X-Gone, traceparent\r\nX-Gone: 1",
        b"Via: 1.1 other",
        b"Cookie: a=1\r\nCookie: b=2",
        b"Expect: 100-continue",
        b"X-Debug: 1\r\nX-Request-Id: mine",
        b"TE: trailers\r\nKeep-Alive: 5",
        b"SCRIPT_NAME: /x",
        b"X-HTTP-Method-Override: PUT",
        b'Date: Sun, 29 Nov 2026 12:00:00 GMT\r\nETag:\t "a b" ',
    ],
)
async def test_requests_of_one_shape_go_the_same_way(house: House, path: bytes, line: bytes) -> None:
    """The first as the last: the same answer, and the same request at the upstream."""
    found = await often(house, path, line, keyed=path != b"/free")
    assert len({(answer.status, answer.problem, same(raw)) for answer, raw in found}) == 1
    assert len({tuple(name for name, _ in answer.fields) for answer, _ in found}) == 1


async def test_the_trace_that_arrives_is_the_one_that_was_sent(house: House) -> None:
    """And so is the key; the request id is the one that the answer has."""
    for path in (b"/pay", b"/free"):
        for number, (answer, raw) in enumerate(await often(house, path)):
            assert b"traceparent: 00-%032x-b7ad6b7169203331-01\r\n" % (number + 1) in raw
            request_id = answer.field("x-request-id")
            assert request_id is not None
            assert b"X-Request-Id: %b\r\n" % request_id in raw
    keys = [fresh() for _ in range(TIMES)]
    for key in keys:
        await house.ask(b"/pay", key)
    assert [seen.value("Idempotency-Key") for seen in house.seen[-TIMES:]] == keys


async def test_one_callers_head_is_never_taken_for_anothers(house: House) -> None:
    """Both use one connection, and the same keys: an answer is replayed to the caller whose it is."""
    answers: dict[tuple[bytes, bytes], Answer] = {}
    async with await Client.connect(house.gateway.port) as client:
        for key in (fresh() for _ in range(TIMES)):
            for account in (TENANT_A, TENANT_B):
                answers[key, account] = await client.request(post(b"/pay", key, account=account))
                assert not replayed(answers[key, account])
        for (key, account), answer in answers.items():
            again = await client.request(post(b"/pay", key, account=account))
            assert replayed(again)
            assert again.body == answer.body
    assert len({answer.body for answer in answers.values()}) == 2 * TIMES


async def test_a_caller_whose_field_varies_is_found_anew_each_time(house: House) -> None:
    """`X-Correlation-Id` is among the fields that vary: here it tells the caller."""
    key, callers = fresh(), [b"caller-%d" % number for number in range(TIMES)]
    async with await Client.connect(house.gateway.port) as client:
        for again in (False, True):
            for caller in callers:
                answer = await client.request(post(b"/whose", key, more=(b"X-Correlation-Id: " + caller,)))
                assert (answer.status, replayed(answer)) == (201, again)
    assert len(house.seen) == TIMES


async def test_callers_with_tokens_of_their_own_are_told_apart(house: House) -> None:
    """`Authorization` varies from caller to caller, so that their heads have one shape. Each has the answers to its own keys, more callers
    than positions of values are remembered for."""
    key, tokens = fresh(), [b"Bearer " + b"t" * number for number in range(1, 40)]
    for again in (False, True):
        async with await Client.connect(house.gateway.port) as client:
            for token in tokens:
                answer = await client.request(post(b"/bearer", key, more=(b"Authorization: " + token,)))
                assert (answer.status, replayed(answer)) == (201, again)
                assert house.seen[tokens.index(token)].value("Authorization") == token
    assert len(house.seen) == len(tokens)
    for line in (), (b"Authorization:",), (b"Authorization: Bearer t", b"Authorization: Bearer tt"):
        assert refusal(await house.ask(b"/bearer", key, more=line))[1] == "principal-missing", line


@pytest.mark.parametrize("path", [b"/bearer", b"/free"])
async def test_a_scheme_that_binds_its_connection_does_so_behind_others(house: House, path: bytes) -> None:
    """NTLM takes all that comes on one connection for the same caller's: what it came on is used for no other request."""
    peers: list[object] = []

    async def noted(exchange: Exchange) -> None:
        peers.append(exchange.writer.get_extra_info("peername"))
        await exchange.answer()

    house.upstream.behave = noted
    schemes = [*[b"Bearer %d" % number for number in range(TIMES)], b"NTLM TlRMTVNTUAAD", b"Bearer after"]
    async with await Client.connect(house.gateway.port) as client:
        for scheme in schemes:
            assert (await client.request(post(path, fresh(), more=(b"Authorization: " + scheme,)))).status == 201
    assert len(set(peers[:-1])) == 1
    assert peers[-1] != peers[-2]


TARGETS = (
    *(b"/orders/7", b"/orders/8?a=b", b"/orders/7/pay", b"/orders/8/pay", b"/orders/7/pay/", b"/orders/%37/pay", b"/orders/7%2Fpay"),
    *(b"/orders/7/../8/pay", b"/orders//pay", b"/free", b"/free?_method=put", b"/free?x=1&_method=POST", b"/free?_%6dethod=POST", b"/Free"),
    *(b"/pay", b"/pay?_method=GET", b"/pay;x", b"/pay#f", b"/none", b"http://other.test/pay", b"/.gateway/operations/none"),
)


@pytest.mark.parametrize("method", [b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS"])
async def test_targets_lead_where_they_lead_behind_an_unknown_head(house: House, method: bytes) -> None:
    """The rest of the head is known by then, from targets of every other route."""

    async def sent(client: Client, target: bytes, *more: bytes) -> tuple[object, ...]:
        before = len(house.seen)
        answer = await client.request(post(target, fresh(), more=more).replace(b"POST", method, 1), head_only=method == b"HEAD")
        if answer.field("x-request-id") is None:  # the listener refuses it
            return (answer.status,)
        line = await house.line(answer)
        arrived = [(seen.method, seen.target) for seen in house.seen[before:]]
        return answer.status, answer.field("content-type"), arrived, line["decision"], line["route"], line["mode"], line["path_pattern"]

    async with await Client.connect(house.gateway.port) as client:
        for _ in range(3):
            for target in (b"/orders/1", b"/orders/2/pay", b"/free", b"/pay", b"/dated"):
                await sent(client, target)
        for target in TARGETS:
            async with await Client.connect(house.gateway.port) as other:
                strange = await sent(other, target, b"X-Strange: " + fresh())
            for _ in range(2):
                async with await Client.connect(house.gateway.port) as another:
                    assert await sent(another, target) == strange, target


@pytest.mark.parametrize("rest", [b"\r\nX-B: c\r\n\r\n", b"/x HTTP/1.1\r\nHost: h\r\n\r\n", b" junk\r\nHost: h\r\n\r\n"])
async def test_what_the_parser_refuses_is_refused_behind_whatever_came(house: House, rest: bytes) -> None:
    """A request of HTTP/1.0 in which the same bytes stand behind a field teaches nothing of them."""
    malformed, old = b"POST /free HTTP/1.1" + rest, b"GET /free HTTP/1.0\r\nX-Injected: a HTTP/1.1" + rest
    for raw in (malformed, old, malformed, old, malformed):
        async with await Client.connect(house.gateway.port) as client:
            answer = await client.request(raw)
        assert raw != malformed or answer.status == 400
    assert all(b"POST" not in seen.raw for seen in house.seen)


async def test_a_key_for_one_target_is_none_for_another(house: House) -> None:
    """The operation is another one. Each key is replayed under its own target, behind any number of others."""
    keys = [fresh() for _ in range(TIMES)]
    async with await Client.connect(house.gateway.port) as client:
        for again in (False, True):
            for number, key in enumerate(keys):
                answer = await client.request(post(b"/orders/%d/pay" % number, key))
                assert (answer.status, replayed(answer)) == (201, again)
        for number, key in enumerate(keys):
            assert refusal(await client.request(post(b"/orders/%d/pay" % (number + 1), key))) == (422, "key-reused")
    assert [seen.target for seen in house.seen] == [b"/orders/%d/pay" % number for number in range(TIMES)]


async def test_what_was_known_is_judged_anew_by_another_route_map(house: House) -> None:
    """On a connection that stays open over the reload."""
    async with await Client.connect(house.gateway.port) as client:
        for _ in range(TIMES):
            assert (await client.request(post(b"/free"))).status == 201
        free = "{id: free, path: /free, upstream: payments"
        await house.reload(ROUTES.replace(free, free + ", idempotency: {}"))
        try:
            assert refusal(await client.request(post(b"/free"))) == (400, "key-missing")
        finally:
            await house.reload(ROUTES)
        assert (await client.request(post(b"/free"))).status == 201


async def test_a_field_that_varies_and_counts_is_read_each_time(house: House) -> None:
    """`Date` is part of what a request means on this route."""
    async with await Client.connect(house.gateway.port) as client:
        for number in range(TIMES):
            key = fresh()
            assert (await client.request(post(b"/dated", key, more=(b"Date: %d" % number,)))).status == 201
            assert replayed(await client.request(post(b"/dated", key, more=(b"Date: %d" % number,))))
            assert refusal(await client.request(post(b"/dated", key, more=(b"Date: %d" % (number + 1),)))) == (422, "key-reused")


async def test_a_key_in_a_field_of_the_routes_own_is_judged_each_time(house: House) -> None:
    """The route map says that `X-Order` varies. A key that is too long, or none, is refused behind any number of good ones."""
    async with await Client.connect(house.gateway.port) as client:
        for number in range(TIMES):
            assert (await client.request(post(b"/named", more=(b"X-Order: %b" % fresh()[:20],)))).status == 201, number
        assert refusal(await client.request(post(b"/named", more=(b"X-Order: %b" % fresh(),)))) == (400, "key-invalid")
        assert refusal(await client.request(post(b"/named", more=(b'X-Order: "a',)))) == (400, "key-invalid")
        assert refusal(await client.request(post(b"/named"))) == (400, "key-missing")


async def test_a_request_of_a_known_shape_is_counted_and_logged_as_any_other(house: House) -> None:
    """Under its route, with its decision: also that a key protects nothing under this method."""
    for path, method, decision, route in (
        (b"/pay", b"POST", "execute", "pay"),
        (b"/pay", b"PUT", "unprotected", "read"),
        (b"/free", b"POST", "bypass", "free"),
    ):
        lines = [await house.line(answer) for answer, _ in await often(house, path, method=method)]
        told = {(line["decision"], line["route"], line["mode"], line["path_pattern"], line["request_bytes"]) for line in lines}
        assert len(told) == 1
        assert (lines[-1]["decision"], lines[-1]["route"], lines[-1]["trace_id"]) == (decision, route, f"{TIMES:032x}")


async def test_bodies_of_any_length_belong_to_their_heads(house: House) -> None:
    """Pipelined, in pieces, with none, and with one that is still on its way."""
    bodies = [b"", b"a", b"b" * 9, b"c" * 10, b"d" * 99, b"e" * 100_000, b"f"]
    async with await Client.connect(house.gateway.port) as client:
        for _ in range(2):
            await client.send(b"".join([post(b"/free", body=body) for body in bodies]))
            for _ in bodies:
                assert (await client.receive()).status == 201
            assert [seen.body for seen in house.seen[-len(bodies) :]] == bodies
        raw = post(b"/free", body=b"g" * 1000)
        for cut in (5, len(raw) - 1500 if len(raw) > 1500 else 50, len(raw) - 1):
            await client.send(raw[:cut])
            await client.send(raw[cut:])
            assert (await client.receive()).status == 201
            assert house.last.body == b"g" * 1000


async def test_another_map_of_routes_is_gone_by_at_once(house: House) -> None:
    """On a connection on which the shape is known: a path that is no longer guarded, and one that is guarded now."""
    async with await Client.connect(house.gateway.port) as client:
        key = fresh()
        for again in range(TIMES):
            assert replayed(await client.request(post(b"/pay", key))) == (again > 0)
            assert not replayed(await client.request(post(b"/free", key)))
        changed = ROUTES.replace("id: free, path: /free, upstream: payments", "id: free, path: /free, upstream: payments, idempotency: {}")
        await house.reload(
            changed.replace(
                "id: pay, path: /pay, upstream: payments, methods: [POST], idempotency: {}", "id: pay, path: /paid, upstream: payments"
            )
        )
        try:
            for again in range(TIMES):
                assert replayed(await client.request(post(b"/free", key))) == (again > 0)
                assert (await client.request(post(b"/pay", key))).problem == "no-route"
        finally:
            await house.reload(ROUTES)
