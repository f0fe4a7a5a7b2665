"""Users, their roles, and browsers' sessions at the admin listener, over real sockets."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from ipaddress import ip_network

import aiohttp
import pytest
from aiohttp import web

from gateway.config import Admin, TcpListener, User
from gateway.core.client_address import Network
from gateway.core.roles import Role
from gateway.core.user_token import digest_of, make_token
from gateway.operate.admin import Entrance, Settings, make_admin, start_admin
from gateway.operate.admin.cookies import Throttled, begin_session, end_session, form_token, log_in
from gateway.operate.admin.guard import BEFORE_LOGIN, LOGIN, caller_of
from gateway.operate.admin.throttle import ADDRESSES, IN_ALL, PER_ADDRESS, LoginThrottle
from gateway.ports.approvals import EndedSessions
from tests.operate.admin.house import House, silent_ports

TOKENS = {role: make_token(role.value.encode().ljust(32)) for role in Role}
USERS = tuple(User(name=f"my-{role}", role=role, token_digest=digest_of(TOKENS[role])) for role in Role)
_NO_FIELDS: Mapping[str, str] = {}
ORIGIN = "https://console.example"


def bearer(role: Role) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[role]}"}


@dataclass
class Instants:
    """A clock that the test sets."""

    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Porch:
    """A listener with users, and pages that do what the console's do."""

    clock: Instants = field(default_factory=Instants)
    admin: Admin = field(default_factory=lambda: Admin(token="s3cret", users=USERS))
    shared: EndedSessions | None = None
    proxies: tuple[Network, ...] = ()
    entrance: Entrance = field(init=False)

    def __post_init__(self) -> None:
        def settings() -> Settings:
            return replace(Settings.of(self.admin), proxies=self.proxies)

        self.entrance = Entrance(settings, now=self.clock, clock=self.clock, ended=self.shared)

    def pages(self) -> list[web.RouteDef]:
        async def form(request: web.Request) -> web.Response:
            return web.Response(text=f'<input name="csrf" value="{form_token(self.entrance, request)}">', content_type="text/html")

        async def login(request: web.Request) -> web.Response:
            session = log_in(self.entrance, request, str((await request.post())["token"]))
            if isinstance(session, Throttled):
                return web.Response(status=429)
            if session is None:
                return web.Response(status=403, text="nobody")
            response = web.Response(status=303, headers={"Location": "/console/"})
            begin_session(self.entrance, request, response, session)
            return response

        async def logout(request: web.Request) -> web.Response:
            response = web.Response(status=303, headers={"Location": LOGIN})
            await end_session(self.entrance, request, response)
            return response

        async def who(request: web.Request) -> web.Response:
            caller = caller_of(request)
            return web.json_response({"name": caller.name, "role": caller.role, "csrf": form_token(self.entrance, request)})

        async def change(_: web.Request) -> web.Response:
            return web.Response(text="changed")

        return [
            web.get(LOGIN, form),
            web.post(LOGIN, login),
            web.post("/console/logout", logout),
            web.get("/console/", who),
            web.post("/console/change", change),
        ]


@asynccontextmanager
async def listening(porch: Porch, house: House | None = None) -> AsyncIterator[str]:
    ports = silent_ports(None if house is None else house.operator)
    runner = await start_admin(TcpListener("127.0.0.1", 0), make_admin(ports, entrance=porch.entrance, pages=porch.pages()))
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@dataclass
class Browser:
    """What a browser does with cookies and redirects, without one's care for `Secure` at an address of this machine."""

    session: aiohttp.ClientSession
    cookies: dict[str, str] = field(default_factory=dict)
    set: list[str] = field(default_factory=list)

    async def ask(
        self, method: str, path: str, data: dict[str, str] | None = None, fields: Mapping[str, str] = _NO_FIELDS
    ) -> tuple[int, str]:
        sent = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()), **fields}
        async with self.session.request(method, path, data=data, headers=sent, allow_redirects=False) as response:
            for line in response.headers.getall("Set-Cookie", []):
                self.set.append(line)
                name, value = line.partition(";")[0].split("=", 1)
                self.cookies[name] = value.strip('"')
                if "Max-Age=0" in line or "1970" in line:
                    del self.cookies[name]
            return response.status, response.headers.get("Location") or response.headers.get("Refresh") or await response.text()

    async def csrf(self, path: str) -> str:
        _, text = await self.ask("GET", path)
        found = re.search(r'csrf"[^"]*"([A-Za-z0-9_-]{43})"', text)
        assert found is not None, text
        return found[1]

    async def login(self, token: str) -> int:
        csrf = await self.csrf(LOGIN)
        return (await self.ask("POST", LOGIN, {"token": token, "csrf": csrf}))[0]


@pytest.fixture
async def porch() -> Porch:
    return Porch()


@pytest.fixture
async def address(porch: Porch) -> AsyncIterator[str]:
    async with listening(porch) as told:
        yield told


@pytest.fixture
async def browser(address: str) -> AsyncIterator[Browser]:
    async with aiohttp.ClientSession(address, cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield Browser(session)


# ---- roles


CALLS = [
    (Role.VIEWER, "GET", "records", None),
    (Role.VIEWER, "GET", "dead-letters", None),
    (Role.VIEWER, "GET", "records/{done}", None),
    (Role.VIEWER, "GET", "audit", None),
    (Role.VIEWER, "GET", "config", None),
    (Role.OPERATOR, "GET", "records/{done}?body=true&reason=r", None),
    (Role.OPERATOR, "GET", "export?reason=r", None),
    (Role.OPERATOR, "POST", "records/{first}/resolve", {"verdict": "executed", "status": 201, "reason": "r"}),
    (Role.OPERATOR, "POST", "records/{second}/resolve", {"verdict": "not_executed", "reason": "r"}),
    (Role.OPERATOR, "POST", "records/{third}/release", {"reason": "r"}),
    (Role.OPERATOR, "POST", "dead-letters/{dead}/requeue", {"reason": "r"}),
    (Role.ADMIN, "GET", "export?bodies=true&reason=r", None),
    (Role.ADMIN, "DELETE", "records/{done}?reason=r", None),
    (Role.ADMIN, "POST", "reload", None),
]


async def test_each_role_may_do_what_it_may_and_the_audit_names_the_user(house: House, porch: Porch) -> None:
    """Every call of the API by every role: 403 names the role that is needed, and nothing has happened; else it is done in the user's name,
    whatever a client claims.
    """
    ids = {name: await house.unknown(name, "create-refund") for name in ("first", "second", "third", "dead")}
    ids["done"] = await house.completed("done")
    await house.age()
    async with listening(porch, house) as told, aiohttp.ClientSession(told) as client:
        for needed, method, path, document in CALLS:
            for role in Role:
                url = f"/admin/v1/{path.format(**ids)}"
                async with client.request(method, url, json=document, headers=bearer(role)) as response:
                    text = await response.text()
                    if list(Role).index(role) < list(Role).index(needed):
                        assert (response.status, (await response.json(content_type=None))["role"]) == (403, needed), (role, path, text)
                        assert f"needs the role {needed}; my-{role} has the role {role}" in text
                    else:
                        assert response.status in {200, 409}, (role, path, text)  # 409: a lower role has done it already
        lines = await house.operator.records.audit()
    assert {line.audit.actor for line in lines} == {"my-operator", "my-approver", "my-admin"}
    assert next(line.audit.actor for line in lines if line.audit.action == "resolve") == "my-operator"
    assert [line.audit.actor for line in lines if line.audit.action == "delete"] == ["my-admin"]


async def test_what_is_encrypted_is_for_those_who_may_see_bodies(house: House, porch: Porch) -> None:
    """Whichever way a viewer takes: the API with a token or a session, or the commands."""
    done, dead = await house.completed("done"), await house.unknown("dead", "create-refund")
    house.seals = True
    async with listening(porch, house) as told, aiohttp.ClientSession(told) as client:

        async def get(role: Role, path: str) -> tuple[int, str]:
            async with client.get(f"/admin/v1/{path}", headers=bearer(role)) as response:
                return response.status, await response.text()

        secrets = ("/v1/charges", "order ", "application/json")
        for path in (f"records/{done}", f"records/{dead}", "records", "dead-letters"):
            status, text = await get(Role.VIEWER, path)
            assert (status, [secret for secret in secrets if secret in text]) == (200, []), path
        assert (await get(Role.VIEWER, "dead-letters/by-amount?capture=order"))[0] == 403
        _, text = await get(Role.OPERATOR, f"records/{done}")
        assert all(secret in text for secret in secrets)
        assert (await get(Role.OPERATOR, "dead-letters/by-amount?capture=order"))[0] == 200


async def test_a_claimed_actor_is_for_whom(house: House, porch: Porch) -> None:
    """The line names the user, and keeps the claim as what it is; without users it is as ever."""
    first, second = await house.unknown("first", "create-refund"), await house.unknown("second", "create-refund")
    body = {"verdict": "executed", "status": 200, "reason": "r", "actor": "the boss"}
    async with listening(porch, house) as told, aiohttp.ClientSession(told) as client:
        for headers in (bearer(Role.OPERATOR), {"Authorization": "Bearer s3cret"}):
            async with client.post(f"/admin/v1/records/{first}/resolve", json=body, headers=headers) as response:
                assert response.status in {200, 409}
        async with client.post(f"/admin/v1/records/{second}/resolve", json=body, headers={"Authorization": "Bearer s3cret"}) as response:
            assert response.status == 200
    lines = [line.audit for line in await house.operator.records.audit()]
    assert [(line.actor, line.detail["on_behalf_of"]) for line in lines] == [("my-operator", "the boss"), ("admin", "the boss")]


@pytest.mark.parametrize("token", ["", "hunter2", TOKENS[Role.ADMIN][:-1], TOKENS[Role.ADMIN].lower(), digest_of("x").hex()])
async def test_no_other_token_opens_the_api(browser: Browser, token: str) -> None:
    """Whoever has read the configuration has no token: a digest opens nothing."""
    assert (await browser.ask("GET", "/admin/v1/config", fields={"Authorization": f"Bearer {token}"}))[0] == 401


async def test_a_weak_token_opens_nothing_though_its_digest_is_configured(porch: Porch, browser: Browser) -> None:
    """Nobody chooses a token of a named user."""
    porch.admin = replace(porch.admin, users=(User(name="eve", role=Role.ADMIN, token_digest=digest_of("hunter2")),))
    assert (await browser.ask("GET", "/admin/v1/config", fields={"Authorization": "Bearer hunter2"}))[0] == 401


async def test_a_reload_takes_a_user_away(porch: Porch, browser: Browser) -> None:
    """Token and sessions, from the next request on; another role counts as soon."""
    assert await browser.login(TOKENS[Role.ADMIN]) == 303
    porch.admin = replace(porch.admin, users=tuple(replace(user, role=Role.VIEWER) for user in USERS))
    assert '"role": "viewer"' in (await browser.ask("GET", "/console/"))[1]
    porch.admin = replace(porch.admin, users=())
    assert (await browser.ask("GET", "/console/"))[0] == 303
    assert (await browser.ask("GET", "/admin/v1/config", fields=bearer(Role.ADMIN)))[0] == 401


# ---- sessions


async def test_a_login_begins_a_session(browser: Browser) -> None:
    """Its cookie is for this host and its own pages alone."""
    assert (await browser.ask("GET", "/console/"))[1] == f"{LOGIN}?next=/console/"
    assert await browser.login(TOKENS[Role.OPERATOR]) == 303
    status, text = await browser.ask("GET", "/console/")
    assert (status, '"name": "my-operator"' in text) == (200, True)
    assert all("HttpOnly" in line and "SameSite=Strict" in line and "Path=/" in line and "Domain" not in line for line in browser.set)


async def test_under_tls_cookies_are_secure_and_of_this_host(porch: Porch, browser: Browser) -> None:
    """Also where a proxy speaks TLS, and the configuration says so."""
    porch.admin = replace(porch.admin, url=ORIGIN)
    assert await browser.login(TOKENS[Role.VIEWER]) == 303
    assert all(line.startswith("__Host-") and "Secure" in line for line in browser.set)
    assert (await browser.ask("GET", "/console/"))[0] == 200


async def test_a_session_is_as_good_as_its_user(browser: Browser) -> None:
    """The API takes it from the console's own scripts: reads as they are, changes with the CSRF token, and of no other page's."""
    await browser.login(TOKENS[Role.ADMIN])
    csrf = await browser.csrf("/console/")
    assert (await browser.ask("GET", "/admin/v1/config"))[0] == 200
    assert (await browser.ask("GET", "/admin/v1/config", fields={"Sec-Fetch-Site": "same-site"}))[0] == 403
    assert (await browser.ask("POST", "/admin/v1/reload"))[0] == 403
    assert (await browser.ask("POST", "/admin/v1/reload", fields={"X-CSRF-Token": csrf[:-1]}))[0] == 403
    assert (await browser.ask("POST", "/admin/v1/reload", fields={"X-CSRF-Token": csrf, "Sec-Fetch-Site": "same-site"}))[0] == 403
    for site in ("cross-site", "same-site"):
        assert (await browser.ask("POST", "/console/logout", fields={"X-CSRF-Token": csrf, "Sec-Fetch-Site": site}))[0] == 403
    assert (await browser.ask("POST", "/admin/v1/reload", fields={"X-CSRF-Token": csrf}))[0] == 200


async def test_each_form_carries_its_sessions_token(browser: Browser, address: str) -> None:
    """No page of another origin knows it, and another session's does not count."""
    await browser.login(TOKENS[Role.OPERATOR])
    csrf = await browser.csrf("/console/")
    assert (await browser.ask("POST", "/console/change", {"csrf": csrf}))[0] == 200
    assert (await browser.ask("POST", "/console/change", {}))[0] == 403
    async with aiohttp.ClientSession(address, cookie_jar=aiohttp.DummyCookieJar()) as session:
        other = Browser(session)
        await other.login(TOKENS[Role.OPERATOR])
        assert (await browser.ask("POST", "/console/change", {"csrf": await other.csrf("/console/")}))[0] == 403
        assert (await other.ask("POST", LOGIN, {"csrf": "", "token": TOKENS[Role.VIEWER]}))[0] == 403


async def test_no_other_page_logs_a_browser_in(browser: Browser) -> None:
    """As the attacker's user, say: without the cookie of the login page its form is nobody's."""
    csrf = await browser.csrf(LOGIN)
    browser.cookies.clear()
    assert (await browser.ask("POST", LOGIN, {"token": TOKENS[Role.ADMIN], "csrf": csrf}))[0] == 403
    assert (await browser.ask("POST", LOGIN, {"token": TOKENS[Role.ADMIN]}))[0] == 403


async def test_a_stranger_has_little_read(browser: Browser, address: str) -> None:
    """Before a login: small forms, whole, in UTF-8. Of other charsets some take time that grows with the square of the length."""
    before = f"idempotency-gateway-login={'0' * 32}"
    form = "application/x-www-form-urlencoded"

    async def post(data: bytes, content_type: str = form) -> int:
        sent = {"Cookie": before, "Content-Type": content_type}
        async with browser.session.post(f"{address}{LOGIN}", data=data, headers=sent, allow_redirects=False) as response:
            return response.status

    async def pieces() -> AsyncIterator[bytes]:
        yield b"csrf=x"

    assert await post(b"csrf=x") == 403
    assert await post(b"csrf=x", f"{form}; charset=UTF-8") == 403
    assert await post(b"csrf=x", f"{form}; charset=punycode") == 415
    assert await post(b'--x\r\nContent-Disposition: form-data; name="csrf"\r\n\r\nx\r\n--x--\r\n', "multipart/form-data; boundary=x") == 415
    assert await post(b"csrf=\xff") == 415
    assert await post(b"csrf=" + b"x" * BEFORE_LOGIN) == 413
    async with browser.session.post(f"{address}{LOGIN}", data=pieces(), headers={"Cookie": before, "Content-Type": form}) as response:
        assert response.status == 411
    await browser.login(TOKENS[Role.OPERATOR])
    csrf = await browser.csrf("/console/")
    assert (await browser.ask("POST", "/console/change", {"csrf": csrf, "body": "x" * BEFORE_LOGIN}))[0] == 200
    assert (await browser.ask("POST", "/console/change", {"csrf": csrf}, {"Content-Type": f"{form}; charset=punycode"}))[0] == 415


async def test_logged_out_is_logged_out(browser: Browser) -> None:
    """The cookie that was copied before is good for nothing."""
    await browser.login(TOKENS[Role.OPERATOR])
    copied = dict(browser.cookies)
    csrf = await browser.csrf("/console/")
    assert (await browser.ask("POST", "/console/logout", {"csrf": csrf}))[1] == LOGIN
    assert not any("session" in name for name in browser.cookies)
    browser.cookies = copied
    assert (await browser.ask("GET", "/console/"))[0] == 303
    assert (await browser.ask("GET", "/admin/v1/config"))[0] == 401


async def test_a_session_ends_when_nobody_uses_it(porch: Porch, browser: Browser) -> None:
    """Each request keeps it, until its age ends it."""
    await browser.login(TOKENS[Role.VIEWER])
    for _ in range(50):
        porch.clock.now += 850
        assert (await browser.ask("GET", "/console/"))[0] == 200
    porch.clock.now += 850
    assert (await browser.ask("GET", "/console/"))[0] == 303  # 12 h
    await browser.login(TOKENS[Role.VIEWER])
    porch.clock.now += 901
    assert (await browser.ask("GET", "/console/"))[0] == 303
    assert (await browser.ask("POST", "/console/change", {}))[0] == 401


async def test_what_a_page_asks_for_by_itself_keeps_no_session(porch: Porch, browser: Browser) -> None:
    """A console that stands open on a desk asks for figures every few seconds."""
    await browser.login(TOKENS[Role.VIEWER])
    for _ in range(10):
        porch.clock.now += 85
        assert (await browser.ask("GET", "/console/", fields={"Sec-Fetch-Dest": "empty"}))[0] == 200
    porch.clock.now += 85
    assert (await browser.ask("GET", "/console/"))[0] == 303


async def test_gateways_that_share_a_secret_share_sessions(porch: Porch, browser: Browser) -> None:
    """Those that do not know the secret take no cookie of theirs."""
    secret = b"0123456789abcdef" * 2
    porch.admin = replace(porch.admin, sessions=replace(porch.admin.sessions, secret=secret))
    await browser.login(TOKENS[Role.VIEWER])
    cookie = next(value for name, value in browser.cookies.items() if "session" in name)
    sibling = Entrance(lambda: Settings.of(porch.admin), now=porch.clock)
    assert sibling.read(cookie) is not None
    for other in (secret[::-1], None):
        admin = replace(porch.admin, sessions=replace(porch.admin.sessions, secret=other))
        assert Entrance(lambda admin=admin: Settings.of(admin), now=porch.clock).read(cookie) is None  # type: ignore[misc]  # bound at once


async def test_a_link_from_another_site_finds_the_session(browser: Browser) -> None:
    """A browser leaves a strict cookie out then: it is told to ask again, from a page of ours. A link leads to no other host."""
    fetch = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert await browser.ask("GET", "/console/records/rec_x?a=b", fields=fetch) == (200, "0; url=/console/records/rec_x?a=b")
    assert (await browser.ask("GET", "/console/records/rec_x", fields={**fetch, "Sec-Fetch-Site": "same-origin"}))[0] == 303


# ---- throttling


async def test_logins_are_throttled(porch: Porch, browser: Browser) -> None:
    """After ten failures no guess from this address is judged for a while; the API goes on, and so does who has a token that cannot be
    guessed: a stranger's failures lock nobody out.
    """
    for _ in range(PER_ADDRESS):
        assert await browser.login("guess") == 403
    assert await browser.login("s3cret") == 429
    assert await browser.login(TOKENS[Role.ADMIN]) == 303
    browser.cookies.clear()
    assert (await browser.ask("GET", "/admin/v1/config", fields=bearer(Role.VIEWER)))[0] == 200
    porch.clock.now += 6.1
    assert await browser.login("s3cret") == 303


async def test_behind_a_trusted_proxy_each_client_counts_for_itself(porch: Porch, browser: Browser) -> None:
    """By the word of that proxy, from the right; of any other peer nothing is believed."""
    csrf = await browser.csrf(LOGIN)
    before = dict(browser.cookies)

    async def login(token: str, *forwarded: str) -> int:
        browser.cookies = dict(before)
        fields = {"X-Forwarded-For": ", ".join(forwarded)}
        return (await browser.ask("POST", LOGIN, {"token": token, "csrf": csrf}, fields))[0]

    porch.proxies = (ip_network("127.0.0.0/8"), ip_network("10.0.0.0/8"))
    for number in range(PER_ADDRESS):
        assert await login("guess", f"198.51.100.{number}", "192.0.2.1", "10.0.0.1") == 403
    assert await login("s3cret", "192.0.2.1") == 429
    assert await login("s3cret", "192.0.2.2") == 303
    porch.proxies = ()
    for _ in range(PER_ADDRESS):
        await login("guess", "192.0.2.3")
    assert await login("s3cret", "192.0.2.4") == 429


def test_failures_of_all_addresses_count_together() -> None:
    """And take bounded memory."""
    clock = Instants()
    throttle = LoginThrottle(clock)
    for number in range(IN_ALL):
        assert throttle.wait(f"address {number}") == 0.0
        throttle.failed(f"address {number}")
    assert throttle.wait("another") > 0.0
    for number in range(ADDRESSES + 100):
        throttle.failed(f"address {number}")
    assert len(throttle) == ADDRESSES


# ---- without users


@pytest.fixture
def nobody() -> Porch:
    return Porch(admin=Admin())


async def test_without_users_a_browser_of_this_machine_needs_a_forms_token_alone(nobody: Porch) -> None:
    """Pages of other origins do not know it, and other hosts' names are refused."""
    async with listening(nobody) as told, aiohttp.ClientSession(told, cookie_jar=aiohttp.DummyCookieJar()) as session:
        browser = Browser(session)
        csrf = await browser.csrf("/console/")
        assert (await browser.ask("POST", "/console/change", {"csrf": csrf}))[0] == 200
        assert (await browser.ask("POST", "/console/change", {}))[0] == 403
        assert (await browser.ask("POST", "/console/change", {"csrf": csrf}, fields={"Origin": "http://evil.example"}))[0] == 403
        assert (await browser.ask("GET", "/console/", fields={"Host": "evil.example"}))[0] == 421


async def test_a_listener_that_others_reach_needs_users_or_a_token() -> None:
    """Users alone will do."""
    with pytest.raises(PermissionError):
        await start_admin(TcpListener("0.0.0.0", 0), make_admin(silent_ports(None)))
    porch = Porch(admin=Admin(users=USERS))
    runner = await start_admin(TcpListener("0.0.0.0", 0), make_admin(silent_ports(None), entrance=porch.entrance))
    await asyncio.shield(runner.cleanup())
