"""Sources together: all of them, or the first that is there; and what a scope is claimed to mean."""

import asyncio
import itertools

import pytest

from gateway.core.policy import Policy
from gateway.core.principal_source import (
    BasicPrincipal,
    CertificatePrincipal,
    Combine,
    ForwardAuthPrincipal,
    HeaderPrincipal,
    JwksFile,
    JwksUrl,
    JwtPrincipal,
    JwtSecret,
    PrincipalSource,
    needs_waiting,
)
from gateway.core.scope import scope_of
from gateway.principal import Facts, Identifier, Part, Unidentified, claim_text
from gateway.runtime.system import SystemClock
from gateway.upstream import HttpUpstream, UpstreamSettings
from tests.principal.servers import Answering, response
from tests.principal.tokens import ISSUER, SECRET, Signer, facts, key_set

TENANT = HeaderPrincipal("X-Tenant")
ACCOUNT = HeaderPrincipal("X-Account")
BASIC = BasicPrincipal()
TOKEN = JwtPrincipal(("sub",), JwtSecret(SECRET), ("HS256",))
OWN = CertificatePrincipal()
AUTH = ForwardAuthPrincipal("auth", "/check", "X-Caller")
AT_HAND: list[PrincipalSource] = [TENANT, BASIC, OWN, TOKEN]
PAIRS = list(itertools.permutations(AT_HAND, 2))

BASIC_LINE = (b"Authorization", b"Basic dTpw")
TOKEN_LINE = (b"Authorization", b"Bearer " + Signer("HS256").token())
EXPIRED_LINE = (b"Authorization", b"Bearer " + Signer("HS256").token(exp=1))
TENANT_LINE = (b"X-Tenant", b"a")


def kinds(request: Facts, *sources: PrincipalSource, combine: Combine = Combine.ALL) -> list[bytes] | Unidentified:
    """The kinds of the parts that a request has."""
    policy = Policy("pay", sources, combine=combine)
    found = Identifier([policy], {}, SystemClock()).identify_now(request, policy)
    return found if isinstance(found, Unidentified) else [name.partition(b":")[0] for name, _ in found]


def test_all_must_be_there() -> None:
    """Under `all` the parts are in the policy's order, and whatever is missing or fails is the answer."""
    assert kinds(facts(TENANT_LINE, TOKEN_LINE), TOKEN, TENANT) == [b"jwt", b"header"]
    for lines, detail in (((TENANT_LINE,), "token"), ((TOKEN_LINE,), "X-Tenant"), ((TENANT_LINE, EXPIRED_LINE), "expired"), ((), "token")):
        found = kinds(facts(*lines), TOKEN, TENANT)
        assert isinstance(found, Unidentified)
        assert detail in found.detail
    assert kinds(facts()) == []


def test_the_first_that_is_there() -> None:
    """Under `first` absent sources are passed over, in order."""
    sources = (OWN, TOKEN, BASIC, TENANT)
    for request, kind in (
        (facts(TENANT_LINE, TOKEN_LINE, subject=b"dn"), b"certificate"),
        (facts(TENANT_LINE, TOKEN_LINE), b"jwt"),
        (facts(TENANT_LINE, BASIC_LINE), b"basic"),
        (facts(TENANT_LINE), b"header"),
        (facts(TENANT_LINE, (b"Authorization", b"")), b"header"),
    ):
        assert kinds(request, *sources, combine=Combine.FIRST) == [kind]


@pytest.mark.parametrize(
    "line", [EXPIRED_LINE, (b"Authorization", b"Bearer x.y.z"), (b"Authorization", b"Basic !"), (b"X-Tenant", b"b")], ids=str
)
def test_a_source_that_fails_is_not_passed_over(line: tuple[bytes, bytes]) -> None:
    """Under `first` a caller whose credentials fail is nobody, not somebody else: its retry would run in another scope."""
    found = kinds(facts(line, TENANT_LINE, (b"X-Account", b"c")), TOKEN, BASIC, TENANT, ACCOUNT, combine=Combine.FIRST)
    assert isinstance(found, Unidentified)
    assert not found.absent


def test_nothing_is_there() -> None:
    """A caller that shows nothing is told all that would do, with the challenges of all."""
    found = kinds(facts(), TOKEN, BASIC, TENANT, combine=Combine.FIRST)
    assert isinstance(found, Unidentified)
    assert found.detail.count(" Or: ") == 2
    assert found.challenges == (b'Bearer realm="api"', b'Basic realm="api"')


def test_what_waits() -> None:
    """Only what others must be asked for needs waiting; all else is known at once."""
    remote = JwtPrincipal(("sub",), JwksUrl("https://issuer.test/keys"), ("ES256",))
    for sources in PAIRS:
        assert not needs_waiting(sources)
    assert not needs_waiting(())
    for source in (remote, AUTH):
        assert needs_waiting((TENANT, source))


async def test_at_once_and_after_waiting_are_the_same() -> None:
    """A policy that needs no waiting identifies the same caller either way."""
    for combine, sources in itertools.product(Combine, PAIRS):
        policy = Policy("pay", sources, combine=combine)
        identifier = Identifier([policy], {}, SystemClock())
        for request in (facts(TENANT_LINE), facts(TOKEN_LINE, TENANT_LINE), facts(BASIC_LINE, subject=b"dn"), facts()):
            assert await identifier.identify(request, policy) == identifier.identify_now(request, policy)


async def test_asking_comes_in_its_turn() -> None:
    """Nobody is asked after a source has failed, nor, under `first`, after one was there; and no answer is not passed over."""
    async with Answering(response(b"", b"200 OK", b"X-Caller: a")) as service:
        upstream = HttpUpstream(UpstreamSettings(service.url))
        both, either = Policy("pay", (TENANT, AUTH)), Policy("pay", (TENANT, AUTH, ACCOUNT), combine=Combine.FIRST)
        identifier = Identifier([both, either], {"auth": upstream}, SystemClock())
        assert isinstance(await identifier.identify(facts(TOKEN_LINE), both), Unidentified)
        assert not isinstance(await identifier.identify(facts(TENANT_LINE, TOKEN_LINE), either), Unidentified)
        assert service.asked == 0
        found = await identifier.identify(facts(TENANT_LINE, TOKEN_LINE), both)
        assert not isinstance(found, Unidentified)
        assert [value for _, value in found] == [b"a", b"a"]
        service.answer = response(b"", b"500 Internal Server Error")
        lost = await identifier.identify(facts(BASIC_LINE, (b"X-Account", b"c")), either)
        assert isinstance(lost, Unidentified)
        assert lost.unavailable
        await identifier.close()
        await identifier.close()
        await upstream.close()


SPELLINGS: tuple[tuple[tuple[PrincipalSource, ...], Combine, str], ...] = (
    ((), Combine.ALL, "none"),
    ((TENANT,), Combine.ALL, "header x-tenant"),
    ((TENANT,), Combine.FIRST, "header x-tenant"),
    ((HeaderPrincipal("A"), TENANT), Combine.ALL, "header a, x-tenant"),
    ((HeaderPrincipal("A"), TENANT), Combine.FIRST, "header a or else header x-tenant"),
    ((BASIC, TENANT), Combine.ALL, "basic user and header x-tenant"),
    ((OWN,), Combine.ALL, "certificate"),
    ((CertificatePrincipal("X-DN"),), Combine.ALL, "certificate in x-dn"),
    ((TOKEN,), Combine.ALL, 'jwt ["sub"]'),
    ((JwtPrincipal(("org", "id"), JwksFile("a", "b"), ("ES256",), issuer=ISSUER),), Combine.ALL, f'jwt ["org", "id"] of "{ISSUER}"'),
    ((AUTH,), Combine.ALL, 'forward_auth x-caller of auth "/check"'),
)


@pytest.mark.parametrize(("sources", "combine", "text"), SPELLINGS)
def test_what_a_scope_is_claimed_to_mean(sources: tuple[PrincipalSource, ...], combine: Combine, text: str) -> None:
    """The registry's text names what decides who a caller is, and nothing that may change without that."""
    assert claim_text(Policy("pay", sources, combine=combine)) == text


def test_claims_leave_out_what_may_change() -> None:
    """Other keys, algorithms, fields, leeways and caches of the same source are the same claim."""
    one = JwtPrincipal(("sub",), JwtSecret(SECRET), ("HS256",), issuer=ISSUER)
    two = JwtPrincipal(("sub",), JwksUrl("https://x.test"), ("ES256",), "X-Token", ISSUER, ("aud",), 5.0)
    assert claim_text(Policy("a", (one,))) == claim_text(Policy("b", (two,)))
    other = ForwardAuthPrincipal("auth", "/check", "x-caller", ("X-Key",), 60.0)
    assert claim_text(Policy("a", (AUTH,))) == claim_text(Policy("b", (other,)))


def scopes_of_one_text(text: str) -> list[str]:
    """The scopes of callers whom every kind of source calls by the same text."""
    value = text.encode()
    token = Signer("HS256").token(text, iss=text, tenant=text)
    cases: list[tuple[PrincipalSource, Facts]] = [
        (TENANT, facts((b"X-Tenant", value))),
        (ACCOUNT, facts((b"X-Account", value))),
        (HeaderPrincipal("Authorization"), facts((b"Authorization", value))),
        (BASIC, facts((b"Authorization", b"Basic YTph"))),
        (OWN, facts(subject=value)),
        (CertificatePrincipal("X-Tenant"), facts((b"X-Tenant", value), trusted=True)),
        (TOKEN, facts((b"Authorization", b"Bearer " + token))),
        (JwtPrincipal(("tenant",), JwtSecret(SECRET), ("HS256",)), facts((b"Authorization", b"Bearer " + token))),
    ]
    found = []
    for source, request in cases:
        policy = Policy("pay", (source,))
        parts = Identifier([policy], {}, SystemClock()).identify_now(request, policy)
        assert not isinstance(parts, Unidentified)
        found.append(scope_of("pay", parts, b"").id)
    return found


def test_sources_never_meet() -> None:
    """Callers whom two sources call by the same text are in two scopes."""
    found = scopes_of_one_text("a")
    assert len(set(found)) == len(found)


def outcome(found: list[Part] | Unidentified) -> object:
    return found if isinstance(found, Unidentified) else scope_of("pay", found, b"secret").id


async def test_two_tenants() -> None:
    """For every source: two callers have two scopes, each caller always has the same one, and one who fails learns nothing but that,
    whatever else is known of the other.
    """
    one, two = Signer(), Signer(key_id="two", number=1)

    async def name(peer: object, request: bytes) -> None:
        tenant = b"a" if b"Bearer a" in request else b"b" if b"Bearer b" in request else None
        answer = response(b"", b"401 Unauthorized") if tenant is None else response(b"", b"200 OK", b"X-Caller: " + tenant)
        await peer.answer(answer)  # type: ignore[attr-defined]  # a Peer

    async with Answering(response(key_set(one.jwk(), two.jwk()))) as issuer, Answering(behave=name) as service:
        upstream = HttpUpstream(UpstreamSettings(service.url))
        remote = JwtPrincipal(("sub",), JwksUrl(f"{issuer.url}/keys"), ("ES256",))
        cases: list[tuple[PrincipalSource, Facts, Facts, Facts]] = [
            (TENANT, facts((b"X-Tenant", b"a")), facts((b"X-Tenant", b"b")), facts()),
            (
                BASIC,
                facts((b"Authorization", b"Basic YTpw")),
                facts((b"Authorization", b"Basic Yjpw")),
                facts((b"Authorization", b"Basic Yjp")),
            ),
            (OWN, facts(subject=b"a"), facts(subject=b"b"), facts()),
            (remote, token(one.token("a")), token(two.token("b")), token(Signer(number=2).token("a"))),
            (AUTH, token(b"a"), token(b"b"), token(b"c")),
        ]
        policies = [Policy("pay", (source,)) for source, *_ in cases]
        identifier = Identifier(policies, {"auth": upstream}, SystemClock())
        for policy, (_, a, b, neither) in zip(policies, cases, strict=True):
            alone = [outcome(await ask(identifier, request, policy)) for request in (neither, a, b)]
            assert isinstance(alone[0], Unidentified)
            assert len(set(alone)) == 3
            again = await asyncio.gather(*[ask(identifier, request, policy) for request in (neither, a, b) * 10])
            assert [outcome(found) for found in again] == alone * 10
        await identifier.close()
        await upstream.close()


def token(text: bytes) -> Facts:
    return facts((b"Authorization", b"Bearer " + text))


async def ask(identifier: Identifier, request: Facts, policy: Policy) -> list[Part] | Unidentified:
    found = await identifier.identify(request, policy)
    return found if isinstance(found, Unidentified) else list(found)
