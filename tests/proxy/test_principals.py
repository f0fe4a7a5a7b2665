"""Who asks, on the wire: tokens, Basic users, a proxy's word; and what a caller learns that is nobody."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.devtools.embedded.ports import free_port
from tests.principal.servers import Answering, response
from tests.principal.tokens import ISSUER, SECRET, Signer, key_set
from tests.proxy.house import BODY, House, Plan, as_nobody, basic, bearer, fresh, holding, plain, refusal, replayed

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHARED = Signer("HS256", None)
FILED = Signer("RS256", "filed")
OLD, NEW = Signer("ES256", "old", 1), Signer("ES256", "new", 2)
STRANGER = Signer("ES256", "old", 9)

ROUTES = """
  - id: secret
    path: /secret
    upstream: payments
    methods: [POST]
    idempotency: {{principal: [{{jwt: {{claim: sub, secret: "{secret}", algorithms: [HS256], leeway: 0s}}}}]}}
  - id: file
    path: /file
    upstream: payments
    methods: [POST]
    idempotency:
      principal: [{{jwt: {{claim: [org, id], jwks_file: "{file}", algorithms: [RS256], issuer: "{issuer}", audience: [pay]}}}}]
  - id: url
    path: /url
    upstream: payments
    methods: [POST]
    idempotency: {{principal: [{{jwt: {{claim: sub, jwks_url: "{url}", algorithms: [ES256]}}}}]}}
  - id: url-away
    path: /url-away
    upstream: payments
    methods: [POST]
    idempotency: {{principal: [{{jwt: {{claim: sub, jwks_url: "http://127.0.0.1:{nobody}/keys", algorithms: [ES256]}}}}]}}
  - id: basic
    path: /basic
    upstream: payments
    methods: [POST]
    idempotency: {{principal: [{{basic: true}}]}}
  - id: proxied
    path: /proxied
    upstream: payments
    methods: [POST]
    idempotency: {{principal: [{{client_certificate: {{header: X-Client-Subject}}}}]}}
  - id: all
    path: /all
    upstream: payments
    methods: [POST]
    idempotency: {{principal: [{{basic: true}}, {{header: X-Account}}]}}
  - id: first
    path: /first
    upstream: payments
    methods: [POST]
    idempotency:
      principal: [{{jwt: {{claim: sub, secret: "{secret}", algorithms: [HS256], leeway: 0s}}}}, {{basic: true}}, {{header: X-Account}}]
      principal_combine: first
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def issuer() -> AsyncIterator[Answering]:
    """Who is asked for keys."""
    async with Answering(response(key_set(OLD.jwk()))) as issuer:
        yield issuer


@pytest.fixture(scope="module")
def plan(issuer: Answering, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    file: Path = tmp_path_factory.mktemp("keys") / "keys.json"
    file.write_bytes(key_set(FILED.jwk()))
    routes = ROUTES.format(secret=SECRET.decode(), file=file, issuer=ISSUER, url=issuer.url + "/keys", nobody=free_port())
    return Plan(routes, more="trusted_proxies: [127.0.0.1/32]", defaults="{lease: 2s}")


async def test_a_token_by_a_shared_secret(house: House) -> None:
    """The claim is the caller: another token of the same subject replays, one of another subject runs."""
    key = fresh()
    first = await as_nobody(house, b"/secret", key, bearer(SHARED.token("a", jti="1")))
    rotated = await as_nobody(house, b"/secret", key, bearer(SHARED.token("a", jti="2", scope="pay")))
    other = await as_nobody(house, b"/secret", key, bearer(SHARED.token("b")))
    assert rotated.body == first.body
    assert replayed(rotated)
    assert not replayed(other)
    assert len(house.seen) == 2
    assert house.last.value("authorization") is not None


async def test_a_nested_claim_by_a_file_of_keys(house: House) -> None:
    """Issuer and audience are checked; a number and a text are two callers."""
    key = fresh()
    first = await as_nobody(house, b"/file", key, bearer(FILED.token(org={"id": 7}, aud="pay")))
    again = await as_nobody(house, b"/file", key, bearer(FILED.token(org={"id": 7}, aud=["x", "pay"], sub="else")))
    assert again.body == first.body
    assert not replayed(await as_nobody(house, b"/file", key, bearer(FILED.token(org={"id": "7"}, aud="pay"))))
    for claims in ({"aud": "pay"}, {"org": {"id": 7}}, {"org": {"id": 7}, "aud": "else"}, {"org": {"id": 7}, "aud": "pay", "iss": "x"}):
        assert refusal(await as_nobody(house, b"/file", key, bearer(FILED.token(**claims)))) == (401, "principal-missing")
    assert len(house.seen) == 2


async def test_keys_that_are_rotated_at_their_address(house: House, issuer: Answering) -> None:
    """A token under a new key of the issuer is taken at once, and its subject's keys replay; a stranger's is not."""
    key = fresh()
    first = await as_nobody(house, b"/url", key, bearer(OLD.token("a")))
    assert first.status == 201
    issuer.answer = response(key_set(NEW.jwk()))
    again = await as_nobody(house, b"/url", key, bearer(NEW.token("a")))
    assert again.body == first.body
    assert replayed(again)
    assert refusal(await as_nobody(house, b"/url", key, bearer(OLD.token("a")))) == (401, "principal-missing")
    assert refusal(await as_nobody(house, b"/url", key, bearer(STRANGER.token("a")))) == (401, "principal-missing")
    assert len(house.seen) == 1
    assert all(request.startswith(b"GET /keys HTTP/1.1\r\n") for request in issuer.requests)
    assert all(b"Bearer" not in request for request in issuer.requests)


async def test_an_address_of_keys_where_nobody_answers(house: House) -> None:
    """Nobody can tell who asks: 503, and nothing is recorded."""
    key = fresh()
    answer = await as_nobody(house, b"/url-away", key, bearer(OLD.token("a")))
    assert refusal(answer) == (503, "principal-unavailable")
    assert (await house.line(answer))["decision"] == "principal_unavailable", "an outage of the identity provider's is none of Postgres'"
    assert answer.field("retry-after") is not None
    assert not await house.records(key)
    assert not house.seen


async def test_a_basic_user(house: House) -> None:
    """User and password are the caller: who does not know the password gets no replay, but whatever the upstream says."""
    key = fresh()
    first = await as_nobody(house, b"/basic", key, basic(b"anna", b"one"))
    assert house.last.value("authorization") == basic(b"anna", b"one").partition(b": ")[2]
    again = await as_nobody(house, b"/basic", key, basic(b"anna", b"one"))
    assert (replayed(again), again.body) == (True, first.body)
    for wrong in (basic(b"anna", b"guess"), basic(b"anna", b""), basic(b"Anna", b"one"), basic(b"annao", b"ne")):
        assert not replayed(await as_nobody(house, b"/basic", key, wrong))
    assert len(house.seen) == 5
    for nobody in (bearer(b"x"), b"Authorization: Basic !", basic(b""), b"X-Nothing: 1"):
        answer = await as_nobody(house, b"/basic", key, nobody)
        assert refusal(answer) == (401, "principal-missing")
        assert (answer.field("www-authenticate") or b"").startswith(b"Basic ")


async def test_a_certificate_by_a_trusted_proxys_word(house: House) -> None:
    """The subject that the proxy names is the caller."""
    key = fresh()
    first = await as_nobody(house, b"/proxied", key, b"X-Client-Subject: CN=a,O=shop")
    again = await as_nobody(house, b"/proxied", key, b"X-Client-Subject: CN=a,O=shop")
    assert again.body == first.body
    assert not replayed(await as_nobody(house, b"/proxied", key, b"X-Client-Subject: CN=b,O=shop"))
    for lines in ((), (b"X-Client-Subject:",), (b"X-Client-Subject: CN=a,O=shop", b"X-Client-Subject: CN=a,O=shop")):
        assert refusal(await as_nobody(house, b"/proxied", key, *lines)) == (401, "principal-missing")


async def test_all_sources_together(house: House) -> None:
    """Each must be there, and each makes another caller."""
    key = fresh()
    first = await as_nobody(house, b"/all", key, basic(b"anna"), b"X-Account: 1")
    assert replayed(await as_nobody(house, b"/all", key, basic(b"anna"), b"X-Account: 1"))
    assert not replayed(await as_nobody(house, b"/all", key, basic(b"anna"), b"X-Account: 2"))
    assert not replayed(await as_nobody(house, b"/all", key, basic(b"ben"), b"X-Account: 1"))
    assert first.status == 201
    for lines in ((basic(b"anna"),), (b"X-Account: 1",), ()):
        assert refusal(await as_nobody(house, b"/all", key, *lines)) == (401, "principal-missing")
    assert len(house.seen) == 3


async def test_the_first_source_that_is_there(house: House) -> None:
    """It counts alone; one that is there and fails is not passed over for the next; callers of different sources never meet."""
    key = fresh()
    token = SHARED.token("anna")
    for lines in ((bearer(token),), (basic(b"anna"),), (b"X-Account: anna",)):
        answer = await as_nobody(house, b"/first", key, *lines)
        assert (answer.status, replayed(answer)) == (201, False)
        assert replayed(await as_nobody(house, b"/first", key, *lines))
    assert replayed(await as_nobody(house, b"/first", key, bearer(SHARED.token("anna", jti="2")), b"X-Account: else"))
    expired = SHARED.token("anna", exp=1)
    assert refusal(await as_nobody(house, b"/first", key, bearer(expired), b"X-Account: anna")) == (401, "principal-missing")
    assert refusal(await as_nobody(house, b"/first", key)) == (401, "principal-missing")
    assert len(house.seen) == 3


FAILING: dict[bytes, list[tuple[bytes, ...]]] = {
    b"/secret": [
        (),
        (bearer(b"x.y.z"),),
        (bearer(SHARED.token("a", exp=1)),),
        (bearer(SHARED.token("a")[:-2] + b"AA"),),
        (bearer(SHARED.token(None)),),
        (bearer(SHARED.token("a")), bearer(SHARED.token("a"))),
        (bearer(b"x" * 20_000),),
    ],
    b"/basic": [(), (b"Authorization: Basic !",), (bearer(b"anna"),)],
    b"/proxied": [(), (b"X-Client-Subject:",)],
    b"/all": [(basic(b"a"),), (b"X-Account: a",)],
    b"/first": [(), (bearer(b"x.y.z"), b"X-Account: a")],
}
GOOD: dict[bytes, tuple[bytes, ...]] = {
    b"/secret": (bearer(SHARED.token("a")),),
    b"/basic": (basic(b"a"),),
    b"/proxied": (b"X-Client-Subject: a",),
    b"/all": (basic(b"a"), b"X-Account: a"),
    b"/first": (b"X-Account: a",),
}


@pytest.mark.parametrize(("path", "number"), [(path, number) for path, cases in FAILING.items() for number in range(len(cases))])
async def test_a_caller_that_is_nobody_learns_nothing_of_keys(house: House, path: bytes, number: int) -> None:
    """Its answers are the same bytes for a completed key, for one in progress and for one that nobody has used."""
    used, running, unused = fresh(), fresh(), fresh()
    assert (await as_nobody(house, path, used, *GOOD[path])).status == 201
    held = asyncio.Event()
    house.upstream.behave = holding(held)
    house.upstream.executed.clear()
    good = asyncio.create_task(as_nobody(house, path, running, *GOOD[path]))
    await house.upstream.executed.wait()
    failing = FAILING[path][number]
    answers = [await house.ask(path, key, body, account=None, more=failing) for key in (used, running, unused) for body in (BODY, b"[]")]
    held.set()
    assert (await good).status == 201
    assert {refusal(answer) for answer in answers} == {(401, "principal-missing")}
    assert len({str(plain(answer)) for answer in answers}) == 1
    assert not await house.records(unused)
    assert len(house.seen) == 2
