"""Requests that an upstream could take for a guarded operation, though their request line says another one."""

import pytest

from tests.proxy.house import BODY, House, Plan, fresh, refusal, replayed
from tests.support.client import Answer, Client, ask
from tests.support.upstream import CountingUpstream, Exchange, execute_and_answer

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = """
  - {id: pay, path: /v1/pay, upstream: payments, methods: [POST], idempotency: {}}
  - id: change
    path: /v1/orders/{id}
    upstream: payments
    methods: [PATCH]
    idempotency: {key: {required: false}, status_fields: true}
  - {id: legacy, path: /legacy/pay, upstream: payments, methods: [GET], idempotency: {}}
  - {id: notes, path: /v1/notes/, upstream: payments, methods: [POST], idempotency: {}}
  - {id: twins, path: /twin/**, upstream: twin}
  - {id: prefixed, path: /v1/refunds, upstream: api, methods: [POST], idempotency: {}}
  - {id: files, path: /files/**, upstream: payments, methods: [GET, PUT, HEAD, DELETE], rewrite: {from: /files, to: /v1}}
  - {id: posts, path: /posts/**, upstream: twin, methods: [POST], rewrite: {from: /posts, to: /v1/orders}}
  - {id: rest, path: /**, upstream: payments}
"""
FORM = b"Content-Type: application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def plan(house_upstream: CountingUpstream) -> Plan:
    """`twin` and `api` are further names of one server."""
    url = f"http://127.0.0.1:{house_upstream.port}"
    return Plan(ROUTES, upstreams=f'  twin: {{url: "{url}"}}\n  api: {{url: "{url}/v2"}}')


async def send(house: House, method: bytes, target: bytes, *lines: bytes, body: bytes = BODY) -> Answer:
    head = (b"%b %b HTTP/1.1" % (method, target), b"Host: gateway.test", *lines, b"Content-Length: %d" % len(body))
    return await ask(house.gateway.port, b"\r\n".join(head) + b"\r\n\r\n" + body)


@pytest.mark.parametrize("line", [b"SCRIPT_NAME: /x", b"Script-Name: /x", b"X-Original-URL: /v1/pay", b"X_Rewrite_URL: /v1/pay"])
async def test_another_path_in_a_field_goes_no_further(house: House, line: bytes) -> None:
    """gunicorn would take `/x/v1/pay` under `SCRIPT_NAME: /x` for `/v1/pay`, IIS and PHP what `X-Original-URL` says."""
    answer = await send(house, b"POST", b"/x/v1/pay", line, b"X-Other: kept")
    assert answer.status == 201
    assert house.last.value(line.decode().partition(":")[0]) is None
    assert house.last.value("X-Other") == b"kept"


@pytest.mark.parametrize("line", [b"SCRIPT_NAME: /x", b"X-Original-URL: /v1/pay", b"X.Account: tenant-b", b"Idempotency_Key: k"])
async def test_another_name_of_the_server_is_no_way_around(house: House, line: bytes) -> None:
    """What counts is which server is reached, and not what the configuration calls it."""
    answer = await send(house, b"POST", b"/twin/pay", line, b"X-Other: kept")
    assert answer.status == 201
    assert line.partition(b":")[0] not in house.last.raw
    assert house.last.value("X-Other") == b"kept"


OVERRIDE, PATCH = b"X-HTTP-Method-Override: POST", b"X-HTTP-Method-Override: PATCH"


@pytest.mark.parametrize(
    ("method", "target", "lines", "body"),
    [
        (b"PUT", b"/files/pay", (OVERRIDE,), BODY),
        (b"PUT", b"/files/p%61y/", (OVERRIDE,), BODY),
        (b"PUT", b"/files/pay.json", (OVERRIDE,), BODY),
        (b"GET", b"/files/pay?_method=POST", (), b""),
        (b"DELETE", b"/files/orders/7", (PATCH,), b""),
        (b"POST", b"/posts/7", (PATCH,), BODY),
        (b"POST", b"/posts/7", (FORM,), b"_method=patch"),
        (b"PUT", b"/v2/v1/refunds", (OVERRIDE,), BODY),
        (b"PUT", b"/v2//v1/refunds", (OVERRIDE,), BODY),
    ],
)
async def test_no_path_becomes_a_guarded_one_by_another_method(
    house: House, method: bytes, target: bytes, lines: tuple[bytes, ...], body: bytes
) -> None:
    """The guard is asked about the path that the upstream gets, too: behind a rewrite, and behind a prefix of its URL."""
    assert refusal(await send(house, method, target, *lines, body=body)) == (400, "target-refused")
    assert house.seen == []


@pytest.mark.parametrize(
    ("method", "target", "lines", "body"),
    [
        (b"PUT", b"/files/pay", (), BODY),
        (b"PUT", b"/files/other", (OVERRIDE,), BODY),
        (b"PUT", b"/files/pay", (b"X-HTTP-Method-Override: PUT",), BODY),
        (b"PUT", b"/files/pay", (b"X-HTTP-Method-Override: DELETE",), BODY),
        (b"POST", b"/posts/7/lines", (FORM,), b"_method=patch"),
        (b"PUT", b"/v2/v1/other", (OVERRIDE,), BODY),
    ],
)
async def test_other_paths_of_a_rewrite_take_overrides(
    house: House, method: bytes, target: bytes, lines: tuple[bytes, ...], body: bytes
) -> None:
    """And so do guarded ones, for methods that no guard has."""
    answer = await send(house, method, target, *lines, body=body)
    assert (answer.status, house.last.body) == (201, body)


@pytest.mark.parametrize(
    ("target", "lines", "body"),
    [
        (b"/v1/orders/7", (b"X-HTTP-Method-Override: PATCH",), BODY),
        (b"/v1/orders/7?_method=patch", (), BODY),
        (b"/v1/orders/7", (FORM,), b"a=1&_method=patch"),
        (b"/v1/orders/7", (b"Content-Type: application/json",), b'{"_method":"PATCH"}'),
    ],
)
async def test_another_method_that_is_guarded_is_refused(house: House, target: bytes, lines: tuple[bytes, ...], body: bytes) -> None:
    """Sinatra, Symfony, Rails and Laravel would run the guarded PATCH, key or no key."""
    answer = await send(house, b"POST", target, *lines, body=body)
    assert refusal(answer) == (400, "target-refused")
    assert house.seen == []


async def test_head_is_no_way_around_a_guarded_get(house: House) -> None:
    """Frameworks answer HEAD by running what GET runs; where no GET is guarded it passes."""
    found: list[int] = []
    for target in (b"/legacy/pay", b"/v1/pay"):
        async with await Client.connect(house.gateway.port) as client:
            await client.send(b"HEAD %b HTTP/1.1\r\nHost: gateway.test\r\n\r\n" % target)
            found.append((await client.receive(head_only=True)).status)
    assert found == [400, 201]
    assert [seen.target for seen in house.seen] == [b"/v1/pay"]


@pytest.mark.parametrize("lines", [(b"X-HTTP-Method-Override: DELETE",), (FORM,), (b"Content-Type: application/json",)])
async def test_other_overrides_pass(house: House, lines: tuple[bytes, ...]) -> None:
    """What asks for an unguarded operation goes its way, its body too."""
    answer = await send(house, b"POST", b"/v1/orders/7", *lines, body=b"_method=delete")
    assert answer.status == 201
    assert house.last.body == b"_method=delete"


async def test_a_body_that_is_too_large_to_be_judged_is_refused(house: House) -> None:
    """Only where the path is guarded under another method; any other path streams."""
    body = b"a=" + b"x" * (1024 * 1024)
    assert (await send(house, b"POST", b"/v1/orders/7", FORM, body=body)).status == 413
    assert (await send(house, b"POST", b"/v1/other", FORM, body=body)).status == 201


async def test_a_double_of_the_principal_reaches_nobody(house: House) -> None:
    """CGI makes one variable of both: the caller is who the gateway says."""
    answer = await house.ask(b"/v1/pay", fresh(), more=(b"X_Account: tenant-b",))
    assert answer.status == 201
    assert house.last.value("X_Account") is None
    assert house.last.value("X-Account") == b"tenant-a"


@pytest.mark.parametrize("beside", [None, b"k1"])
async def test_a_misspelt_key_is_refused(house: House, beside: bytes | None) -> None:
    """Also where no key is required: its client counts on it."""
    lines = [b"X-Account: tenant-a", b"Idempotency_Key: k1", *([] if beside is None else [b"Idempotency-Key: " + beside])]
    answer = await send(house, b"PATCH", b"/v1/orders/7", *lines)
    assert refusal(answer) == (400, "key-invalid")
    assert house.seen == []


async def test_a_key_with_an_unlisted_method_is_told_of(house: House) -> None:
    """It passes, since nobody guards that method; the client, the metrics and the log are told that nothing protects it."""
    before = await house.gateway.metric("idempotency_requests_total", route="rest", decision="unprotected")
    answer = await send(house, b"PUT", b"/v1/orders/7", b"X-Account: tenant-a", b"Idempotency-Key: " + fresh())
    assert answer.status == 201
    assert answer.field("idempotency-status") == b"unprotected"
    assert (await house.line(answer))["decision"] == "unprotected"
    assert await house.gateway.metric("idempotency_requests_total", route="rest", decision="unprotected") == before + 1
    plain = await send(house, b"PUT", b"/v1/orders/7", b"X-Account: tenant-a")
    assert (plain.status, plain.field("idempotency-status")) == (201, None)
    assert (await house.line(plain))["decision"] == "bypass"
    elsewhere = await send(house, b"PUT", b"/v1/other", b"Idempotency-Key: " + fresh())
    assert (await house.line(elsewhere))["decision"] == "bypass"


async def to_the_other_spelling(exchange: Exchange) -> None:
    await exchange.answer(307, b"", fields=(b"Location: /v1/notes",))


async def test_a_redirect_to_the_other_spelling_is_followed_under_one_key(house: House) -> None:
    """Starlette sends `/v1/notes/` to `/v1/notes` with 307: the operation runs there, once, and both spellings replay it."""
    key = fresh()
    house.upstream.behave = to_the_other_spelling
    first = await house.ask(b"/v1/notes/", key)
    assert (first.status, first.field("location")) == (307, b"/v1/notes")
    house.upstream.behave = execute_and_answer
    followed = await house.ask(b"/v1/notes", key)
    assert (followed.status, replayed(followed)) == (201, False)
    for target in (b"/v1/notes/", b"/v1/notes"):
        again = await house.ask(target, key)
        assert (again.status, again.body, replayed(again)) == (201, followed.body, True)
    assert len(house.seen) == 2
