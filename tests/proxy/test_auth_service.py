"""Callers whom an auth service tells apart, on the wire."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gateway.devtools.embedded.ports import free_port
from tests.principal.servers import Answering, response
from tests.proxy.house import House, Plan, as_nobody, bearer, fresh, plain, refusal, replayed

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = """
  - id: asked
    path: /asked
    upstream: payments
    methods: [POST]
    idempotency: {principal: [{forward_auth: {upstream: auth, path: /who, answer_header: X-User, cache: 0s}}]}
  - id: asked-away
    path: /asked-away
    upstream: payments
    methods: [POST]
    idempotency: {principal: [{forward_auth: {upstream: nobody, path: /who, answer_header: X-User}}]}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service() -> AsyncIterator[Answering]:
    async with Answering() as service:
        yield service


@pytest.fixture(scope="module")
def plan(service: Answering) -> Plan:
    upstreams = f'  auth: {{url: "{service.url}"}}\n  nobody: {{url: "http://127.0.0.1:{free_port()}"}}'
    return Plan(ROUTES, upstreams, defaults="{lease: 2s}")


async def test_an_auth_service(house: House, service: Answering) -> None:
    """Its answer's field is the caller, whatever the credentials; it is told what is being asked for."""
    auth, key = service, fresh()
    auth.answer = response(b"", b"200 OK", b"X-User: a")
    first = await as_nobody(house, b"/asked", key, bearer(b"one"))
    asked = auth.requests[-1]
    assert asked.startswith(b"GET /who HTTP/1.1\r\n")
    assert {b"Authorization: Bearer one", b"X-Forwarded-Method: POST", b"X-Forwarded-Uri: /asked"} <= set(auth.fields())
    assert key not in asked
    auth.answer = response(b"yes", b"204 No Content", b"X-User: a")
    assert replayed(await as_nobody(house, b"/asked", key, bearer(b"two")))
    auth.answer = response(b"", b"200 OK", b"X-User: b")
    assert not replayed(await as_nobody(house, b"/asked", key, bearer(b"two")))
    assert first.field("x-user") is None
    assert len(house.seen) == 2


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        (response(b"", b"401 Unauthorized", b'WWW-Authenticate: Bearer realm="auth"'), (401, "principal-missing")),
        (response(b"", b"403 Forbidden"), (401, "principal-missing")),
        (response(b"", b"500 Oops"), (503, "principal-unavailable")),
        (response(b"", b"302 Found", b"Location: /login", b"X-User: a"), (503, "principal-unavailable")),
        (response(b"", b"200 OK"), (503, "principal-unavailable")),
        (response(b"", b"200 OK", b"X-User: a", b"X-User: b"), (503, "principal-unavailable")),
        (b"no http at all\r\n\r\n", (503, "principal-unavailable")),
    ],
)
async def test_an_auth_service_that_does_not_say_yes(house: House, service: Answering, answer: bytes, refused: tuple[int, str]) -> None:
    """Never a replay, nothing recorded, and the same answer for a key that is used and for one that is not."""
    auth, used, unused = service, fresh(), fresh()
    auth.answer = response(b"", b"200 OK", b"X-User: a")
    assert (await as_nobody(house, b"/asked", used, bearer(b"one"))).status == 201
    auth.answer = answer
    answers = [await as_nobody(house, b"/asked", key, bearer(b"one")) for key in (used, unused)]
    assert [refusal(one) for one in answers] == [refused, refused]
    assert plain(answers[0]) == plain(answers[1])
    challenge = {401: b'Bearer realm="auth"' if b"WWW-Authenticate" in answer else b'Bearer realm="api"'}.get(refused[0])
    assert answers[0].field("www-authenticate") == challenge  # RFC 9110 section 15.5.2: a 401 has one
    assert not await house.records(unused)
    assert len(house.seen) == 1


async def test_an_auth_service_that_is_away(house: House) -> None:
    """503, and the upstream sees nothing; without any credentials it is the caller's fault: 401."""
    assert refusal(await as_nobody(house, b"/asked-away", fresh(), bearer(b"one"))) == (503, "principal-unavailable")
    assert refusal(await as_nobody(house, b"/asked-away", fresh())) == (401, "principal-missing")
    assert not house.seen
