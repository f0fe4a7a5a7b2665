"""Logging in at an OpenID Connect provider, over real sockets: a provider that speaks the standard, and what one may do wrong."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import jwt
import pytest

from gateway.config import Admin, OidcSettings, User
from gateway.core.oidc import LEEWAY
from gateway.core.roles import Role
from gateway.core.user_token import digest_of
from gateway.operate.admin.guard import LOGIN
from gateway.operate.admin.oidc import provider_logout
from gateway.operate.admin.throttle import IN_ALL, PER_ADDRESS, PER_ADDRESS_SECONDS
from gateway.ports import StoreUnavailable
from tests.operate.admin.provider import CLIENT, SECRET, Provider, providing
from tests.operate.admin.test_users import Browser, Instants, Porch, listening

START, CALLBACK = "/console/oidc/start", "/console/oidc/callback"
ROLES = (("ops", Role.OPERATOR), ("leads", Role.APPROVER))


@dataclass
class SharedEnds:
    """What gateways of one database tell one another."""

    names: dict[bytes, int] = field(default_factory=dict)
    away: bool = False

    async def end_session(self, digest: bytes, at: int, seconds: float) -> None:
        if self.away:
            raise StoreUnavailable("postgres", "away", may_have_landed=False)
        self.names[digest] = at

    async def ended_sessions(self) -> dict[bytes, int]:
        if self.away:
            raise StoreUnavailable("postgres", "away", may_have_landed=False)
        return self.names


@dataclass
class Stage:
    porch: Porch
    provider: Provider
    browser: Browser
    http: aiohttp.ClientSession

    async def start(self, target: str = "/console/") -> str:
        """Where the browser is sent."""
        status, location = await self.browser.ask("GET", f"{START}?next={target}")
        assert status == 303, location
        return location

    async def back(self, location: str) -> str:
        """Log in at the provider: the path and query with which the browser comes back."""
        async with self.http.get(location, allow_redirects=False) as response:
            url = urlsplit(response.headers["Location"])
            return f"{url.path}?{url.query}"

    async def login(self, target: str = "/console/") -> tuple[int, str]:
        return await self.browser.ask("GET", await self.back(await self.start(target)))

    async def who(self) -> str:
        status, text = await self.browser.ask("GET", "/console/")
        return text if status == 200 else ""


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    clock = Instants()
    async with providing(clock.now) as provider:
        oidc = OidcSettings(issuer=provider.issuer, client_id=CLIENT, client_secret=SECRET, roles=ROLES)
        porch = Porch(clock=clock, admin=Admin(url="http://localhost", oidc=oidc))
        async with listening(porch) as address, aiohttp.ClientSession() as http:
            jar = aiohttp.DummyCookieJar()
            async with aiohttp.ClientSession(address, cookie_jar=jar) as session:
                yield Stage(porch, provider, Browser(session), http)
        provider_of = porch.entrance.provider
        assert provider_of is not None
        await provider_of.close()


async def test_a_user_of_the_provider_logs_in(stage: Stage) -> None:
    """Code flow with PKCE, state and nonce; the page that comes back is ours, so that the strict cookie counts from the next request on."""
    location = await stage.start("/console/records")
    asked = parse_qs(urlsplit(location).query)
    assert (asked["scope"], asked["code_challenge_method"], asked["redirect_uri"]) == (
        ["openid profile groups"],
        ["S256"],
        [f"http://localhost{CALLBACK}"],
    )
    assert any("oidc=" in line and "SameSite=Lax" in line and "HttpOnly" in line for line in stage.browser.set)
    assert await stage.browser.ask("GET", await stage.back(location)) == (200, "0; url=/console/records")
    assert '"name": "oidc:ana", "role": "operator"' in await stage.who()
    assert not any("oidc" in name for name in stage.browser.cookies)
    stage.provider.claims["groups"] = ["leads", "ops"]
    await stage.login()
    assert '"role": "approver"' in await stage.who()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"nonce": "another"}, "failed"),
    ({"iss": "https://evil.example"}, "failed"),
    ({"aud": "another"}, "failed"),
    ({"aud": [CLIENT, "another"]}, "failed"),
    ({"azp": "another"}, "failed"),
    ({"azp": [CLIENT]}, "failed"),
    ({"exp": 1}, "failed"),
    ({"iat": 1}, "failed"),
    ({"sub": None}, "failed"),
    ({"preferred_username": None}, "failed"),
    ({"preferred_username": "ana\x1b[2J"}, "failed"),
    ({"preferred_username": "ana\u3164"}, "failed"),
    ({"groups": ["staff"]}, "no-role"),
    ({"groups": None}, "no-role"),
    ({"groups": {"ops": True}}, "no-role"),
    ({"groups": [["ops"]]}, "no-role"),
]


async def test_a_token_that_is_not_for_this_login_lets_nobody_in(stage: Stage) -> None:
    """Whatever is wrong with its claims; who is in no group with a role may not come in either."""
    for wrong, word in WRONG:
        stage.provider.wrong = wrong
        stage.porch.clock.now += 7  # the throttle
        stage.provider.now = stage.porch.clock.now
        assert await stage.login() == (303, f"{LOGIN}?error={word}"), wrong
        assert not await stage.who()


async def test_only_keys_of_the_provider_sign(stage: Stage) -> None:
    """No unsigned token, and none that is signed with what everybody knows."""
    forged: list[Any] = [("none", None), ("HS256", b"gateway's own secret of 32 bytes and more")]
    honest = stage.provider.sign
    for algorithm, key in forged:

        def forge(claims: dict[str, Any], *_: Any, algorithm: str = algorithm, key: Any = key, **headers: Any) -> str:
            return str(jwt.encode(claims, key, algorithm, headers={"kid": "first", **headers}))

        stage.provider.sign = forge  # type: ignore[method-assign]  # a provider that does wrong
        assert await stage.login() == (303, f"{LOGIN}?error=failed")
    stage.provider.sign = honest  # type: ignore[method-assign]  # as above
    assert (await stage.login())[0] == 200


async def test_keys_rotate(stage: Stage) -> None:
    """A key that is not known is asked for; tokens under the one before are believed no more."""
    assert (await stage.login())[0] == 200
    stage.provider.rotate("second")
    assert (await stage.login())[0] == 200
    assert stage.provider.asked.count("keys") == 2
    assert stage.provider.asked.count("metadata") == 1


async def test_an_answer_belongs_to_the_browser_that_asked(stage: Stage) -> None:
    """Nobody is logged in by a link: state and cookie are of one login, which ends; a code counts once."""
    answer = await stage.back(await stage.start())
    cookies = dict(stage.browser.cookies)
    stage.browser.cookies.clear()
    assert await stage.browser.ask("GET", answer) == (303, f"{LOGIN}?error=expired")
    await stage.start()
    assert await stage.browser.ask("GET", answer) == (303, f"{LOGIN}?error=failed")  # of another login
    stage.browser.cookies = dict(cookies)
    assert (await stage.browser.ask("GET", answer))[0] == 200
    stage.browser.cookies = dict(cookies)
    assert (await stage.browser.ask("GET", answer))[1] == f"{LOGIN}?error=failed"  # the code is used up: 400
    stage.browser.cookies = dict(cookies)
    assert (await stage.browser.ask("GET", answer.replace("iss=", "iss=https%3A%2F%2Fevil.example&x=")))[1] == f"{LOGIN}?error=failed"
    stage.porch.clock.now += 601
    stage.browser.cookies = dict(cookies)
    assert await stage.browser.ask("GET", answer) == (303, f"{LOGIN}?error=expired")


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://evil.example/token"},
        {"jwks_uri": "file:///etc/passwd"},
        {"code_challenge_methods_supported": ["plain"]},
    ],
)
async def test_a_provider_that_is_not_what_it_should_be_is_away(stage: Stage, metadata: dict[str, Any]) -> None:
    """No browser is sent there, and no code."""
    stage.provider.metadata = metadata
    assert await stage.browser.ask("GET", START) == (303, f"{LOGIN}?error=away")


async def test_a_provider_that_is_away_is_not_asked_by_each_stranger(stage: Stage) -> None:
    """Each question may take ten seconds, and the next one waits for it: those who waited have its answer, too."""
    stage.provider.metadata = {"issuer": "https://evil.example"}
    for _ in range(3):
        assert await stage.browser.ask("GET", START) == (303, f"{LOGIN}?error=away")
    assert stage.provider.asked == ["metadata"]


async def test_codes_that_nobody_was_given_are_throttled(stage: Stage) -> None:
    """Each costs the provider a question in the gateway's name."""
    codes = []
    for _ in range(PER_ADDRESS + 1):
        answer = await stage.back(await stage.start())
        codes.append((await stage.browser.ask("GET", answer.replace("code=", "code=x")))[1])
    assert codes == [*[f"{LOGIN}?error=failed"] * PER_ADDRESS, f"{LOGIN}?error=throttled"]
    stage.porch.clock.now += PER_ADDRESS_SECONDS + 0.1
    stage.provider.now = stage.porch.clock.now
    assert (await stage.login())[0] == 200


async def test_strangers_lock_nobody_out_who_comes_from_the_provider(stage: Stage) -> None:
    """No code can be guessed: failures of others, with tokens or with codes, are nothing to who brings a good one."""
    for number in range(IN_ALL + 1):
        stage.porch.entrance.throttle.failed(f"address {number}")
        stage.porch.entrance.codes.failed(f"address {number}")
    assert (await stage.login())[0] == 200


async def test_logging_out_here_and_there(stage: Stage) -> None:
    """The session here ends for good, and the browser goes on to the provider, which sends it back to the login."""
    await stage.login()
    copied = dict(stage.browser.cookies)
    csrf = await stage.browser.csrf("/console/")
    assert (await stage.browser.ask("POST", "/console/logout", {"csrf": csrf}))[0] == 303
    stage.browser.cookies = copied
    assert not await stage.who()
    url = urlsplit(str(await provider_logout(stage.porch.entrance)))
    assert (f"{url.scheme}://{url.netloc}{url.path}", parse_qs(url.query)) == (
        f"{stage.provider.issuer}/logout",
        {"client_id": [CLIENT], "post_logout_redirect_uri": [f"http://localhost{LOGIN}"]},
    )


async def test_the_provider_ends_sessions(stage: Stage) -> None:
    """That of its session, or all of its user; a token that is none of its, or is an id token, ends nothing."""
    for named in ({"sid": "s-1"}, {"sub": "u-1"}):
        await stage.login()
        assert await stage.who()
        ended = "/console/oidc/logout"
        cookies, stage.browser.cookies = stage.browser.cookies, {}
        assert (await stage.browser.ask("POST", ended, {"logout_token": stage.provider.id_token("nonce")}))[0] == 400
        assert (await stage.browser.ask("POST", ended, {"logout_token": stage.provider.logout_token(aud="another", **named)}))[0] == 400
        stage.browser.cookies = cookies
        assert await stage.who()
        stage.browser.cookies = {}
        assert (await stage.browser.ask("POST", ended, {"logout_token": stage.provider.logout_token(**named)}))[0] == 200
        stage.browser.cookies = cookies
        assert not await stage.who()
        stage.porch.clock.now += 1  # what begins later has not ended
        stage.provider.now = stage.porch.clock.now


async def test_a_logout_that_is_sent_again_ends_nothing_newer(stage: Stage) -> None:
    """A token that a stranger has kept is good for the sessions that it ended, and for no later one."""
    ended = "/console/oidc/logout"
    token = stage.provider.logout_token(sub="u-1")
    stage.porch.clock.now += LEEWAY + 1
    stage.provider.now = stage.porch.clock.now
    await stage.login()
    cookies, stage.browser.cookies = stage.browser.cookies, {}
    assert (await stage.browser.ask("POST", ended, {"logout_token": token}))[0] == 200
    stage.browser.cookies = cookies
    assert await stage.who()


async def test_a_person_with_a_token_and_an_account_is_one_to_second_approvals(stage: Stage) -> None:
    """As the configuration says; without that, two."""
    await stage.login()
    entrance = stage.porch.entrance

    def identity() -> str:
        session = next(filter(None, map(entrance.read, stage.browser.cookies.values())))
        caller = entrance.of_session(session)
        assert caller is not None
        return caller.identity

    assert identity() == "oidc:u-1"
    user = User(name="ana", role=Role.OPERATOR, token_digest=digest_of("x"), subject="u-1")
    stage.porch.admin = replace(stage.porch.admin, users=(user,))
    assert identity() == "user:ana"


async def test_another_role_for_a_group_ends_sessions(stage: Stage) -> None:
    """The cookie has the role of the login; a reload that gives the group another one has the user log in anew."""
    await stage.login()
    assert stage.porch.admin.oidc is not None
    stage.porch.admin = replace(stage.porch.admin, oidc=replace(stage.porch.admin.oidc, roles=(("ops", Role.VIEWER),)))
    assert not await stage.who()


# ---- sessions that ended elsewhere


async def test_a_session_that_ended_at_one_gateway_has_ended_at_all() -> None:
    """Within seconds; while the database is away each goes by what it knew, and tells it afterwards."""
    shared, clock = SharedEnds(), Instants()
    admin = Admin(token="s3cret", sessions=replace(Admin().sessions, secret=b"x" * 32))
    here, there = (Porch(clock=clock, admin=admin, shared=shared) for _ in range(2))
    session = here.entrance.login("s3cret")
    assert session is not None
    cookie = here.entrance.write(session)
    assert there.entrance.read(cookie) is not None
    shared.away = True
    await here.entrance.end(session)
    clock.now += 6
    await there.entrance.keep_up()
    assert (here.entrance.read(cookie), there.entrance.read(cookie) is not None) == (None, True)
    shared.away = False
    clock.now += 6
    await here.entrance.keep_up()
    await there.entrance.keep_up()
    assert there.entrance.read(cookie) is None
