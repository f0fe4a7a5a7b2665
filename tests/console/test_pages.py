"""The pages over a real Postgres, without a browser: what every answer carries, and a page for whatever goes wrong."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest

from gateway.config import Admin, Config, OidcSettings, PostgresSettings, TcpListener
from gateway.console import Console, Meter, mount
from gateway.core.policy import Route
from gateway.core.roles import Role
from gateway.operate.admin import Entrance, Settings, make_admin, start_admin
from gateway.operate.operations import Operator
from gateway.ports import StoreUnavailable
from gateway.store.postgres import PostgresStore
from tests.operate.admin.house import House, silent_ports
from tests.operate.admin.provider import CLIENT, providing


@pytest.fixture
async def house(database: str) -> AsyncIterator[House]:
    store = PostgresStore(database)
    yield House(database, store)
    await store.close()


@asynccontextmanager
async def browsing(
    house: House, operator: Operator | None, token: str | None = None, admin: Admin | None = None
) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of a console of its own. It keeps cookies, and goes nowhere by itself."""
    routes = tuple(Route(name, f"/{name}", "api", frozenset({"POST"}), policy) for name, policy in house.policies.items())
    config = Config(postgres=PostgresSettings(house.dsn), upstreams={}, routes=routes, name="house")
    ports, entrance = silent_ports(operator), Entrance.fixed(token) if admin is None else Entrance(lambda: Settings.of(admin))
    app = make_admin(ports, entrance=entrance)
    mount(app, Console(lambda: config, entrance, operator, ports.readiness, ports.metrics, Meter(lambda: 0.0)))
    runner = await start_admin(TcpListener("127.0.0.1", 0), app)
    host, port = runner.addresses[0][:2]
    try:
        async with aiohttp.ClientSession(f"http://{host}:{port}", cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            yield session
    finally:
        await runner.cleanup()


async def page(session: aiohttp.ClientSession, path: str, expected: int = 200, **form: str) -> str:
    """The text of a page, which has the security fields; posted, if there is a form."""
    method = "POST" if form else "GET"
    async with session.request(method, f"/console/{path}", data=form or None, allow_redirects=False) as response:
        assert response.status == expected, await response.text()
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["Cache-Control"] == "no-store"
        for name, value in {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin"}.items():
            assert response.headers[name] == value
        assert response.headers["Cross-Origin-Opener-Policy"] == "same-origin"
        return response.headers.get("Location") or await response.text()


def csrf(text: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', text)
    assert found is not None
    return found[1]


async def test_every_answer_carries_the_security_fields(house: House) -> None:
    """Pages, refusals, redirects, and files, which alone may be kept."""
    record = await house.unknown("k1", "create-refund")
    async with browsing(house, house.operator) as session:
        text = await page(session, "now")
        for path in ("records", "dead-letters", "routes", "audit", f"records/{record}", f"records/{record}/completed"):
            await page(session, path)
        assert await page(session, "login", 303) == "/console/now"
        for path in ("nowhere", "records/rec_none", "records/rec_none/release"):
            assert "There is no such page" in await page(session, path, 404)
        assert "not of your session" in await page(session, f"records/{record}/release", 403, reason="x")
        address = re.search(r'src="(/console/static/[^"]+)"', text)
        assert address is not None
        async with session.get(address[1]) as file:
            assert (file.status, file.content_type) == (200, "text/javascript")
            assert "immutable" in file.headers["Cache-Control"]
        async with session.get("/console/static/old/console.js") as file:
            assert file.status == 404


async def test_with_users_there_is_a_login_first(house: House) -> None:
    """It leads to where its visitor wanted to go, and nowhere else."""
    async with browsing(house, house.operator, "s3cret") as session:
        assert await page(session, "records?q=k1", 303) == "/console/login?next=/console/records%3Fq%3Dk1"
        text = await page(session, "login?next=https://evil.example")
        assert "No user has this token" in await page(session, "login", 401, csrf=csrf(text), token="wrong", next="")
        assert await page(session, "login", 303, csrf=csrf(text), token="s3cret", next="//evil.example") == "/console/now"
        assert "<strong>admin</strong>" in await page(session, "now")
        assert await page(session, "logout", 303, csrf=csrf(await page(session, "now"))) == "/console/login"
        assert await page(session, "now", 303) == "/console/login?next=/console/now"


async def test_signing_out_leads_to_the_provider_by_a_page_of_ours(house: House) -> None:
    """Under `form-action 'self'` a browser takes no form, nor the redirect that answers it, to another origin."""
    async with providing(0.0) as provider:
        oidc = OidcSettings(issuer=provider.issuer, client_id=CLIENT, roles=(("ops", Role.VIEWER),))
        admin = Admin(token="s3cret", url="http://localhost", oidc=oidc)
        async with browsing(house, house.operator, admin=admin) as session:
            await page(session, "login", 303, csrf=csrf(await page(session, "login")), token="s3cret", next="")
            form = {"csrf": csrf(await page(session, "now"))}
            async with session.post("/console/logout", data=form, allow_redirects=False) as response:
                assert (response.status, response.headers.get("Location")) == (200, None)
                assert response.headers["Refresh"].startswith(f"0; url={provider.issuer}/logout?client_id={CLIENT}&")
            assert await page(session, "now", 303) == "/console/login?next=/console/now"


async def test_a_store_that_is_away_is_a_page(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says whether a change may have been made; so does a listener without a way to records."""
    record = await house.unknown("k1", "create-refund")
    async with browsing(house, house.operator) as session:
        text = await page(session, f"records/{record}/completed")

        async def away(*_: object, **__: object) -> None:
            raise StoreUnavailable("postgres", "timeout", may_have_landed=True)

        monkeypatch.setattr(type(house.store.operations), "show", away)
        assert "Nothing was changed" in await page(session, f"records/{record}", 503)
        posted = await page(session, f"records/{record}/release", 503, csrf=csrf(text), reason="x", actor="ada", version="2")
        assert "The change may have been made" in posted
    async with browsing(house, None) as session:
        assert "no way to the records" in await page(session, "records", 503)


async def test_a_form_says_what_is_missing(house: House) -> None:
    """At its field; what was typed stays. Without users it asks for a name."""
    record = await house.unknown("k1", "create-refund")
    await house.age()
    async with browsing(house, house.operator) as session:
        token = csrf(await page(session, f"records/{record}/release"))
        text = await page(session, f"records/{record}/release", 400, csrf=token, reason="INC-7", actor="", version="2")
        assert "INC-7" in text
        assert 'id="mistake-actor"' in text
        assert await page(session, f"records/{record}/release", 400, csrf=token, reason="x", actor="ada", version="x")
        done = await page(session, f"records/{record}/release", 303, csrf=token, reason="INC-7", actor="ada", version="2")
        assert done == f"/console/records/{record}?done=release"
        assert "ada" in await page(session, "audit")


async def test_a_search_by_trace_says_when_only_the_log_can_tell(house: House) -> None:
    async with browsing(house, house.operator) as session:
        assert "the log has the request ids of each trace" in await page(session, f"records?by=trace_id&q={'a' * 32}")
        assert 'id="mistake-q"' in await page(session, "records?by=trace_id&q=nonsense", 400)


async def test_nothing_unseen_misleads(house: House) -> None:
    """Marks of direction, spaces without width and controls stand escaped wherever a page says something; a form keeps what was typed."""
    deceit = "paid\u202e\u200b\x85\u3164"
    record = await house.unknown(deceit, "create-refund")
    await house.age()
    async with browsing(house, house.operator) as session:
        for path in ("records", "dead-letters", f"records/{record}", f"records/{record}/release", f"records/{record}/completed"):
            text = await page(session, path)
            assert r"paid\u202e\u200b\x85\u3164" in text
            assert not {"\u202e", "\u200b", "\x85", "\u3164"} & set(text)
        token = csrf(await page(session, f"records/{record}/completed"))
        form = {"csrf": token, "status": "200", "headers": "", "body": deceit, "preview": "1", "version": "2"}
        text = await page(session, f"records/{record}/completed", 200, **form)
        assert f"\n{deceit}</textarea>" in text
        assert r"paid\u202e\u200b\x85\u3164</code>" in text


async def test_several_are_queued_as_they_were_seen(house: House) -> None:
    """Those that have changed meanwhile stay; a wrong choice is told."""
    records = [await house.unknown(key, "create-refund") for key in ("a", "b")]
    house.policies["create-refund"] = replace(house.policies["create-charge"], scope="create-refund")
    async with browsing(house, house.operator) as session:
        token = csrf(await page(session, "dead-letters"))
        wanted = {"csrf": token, "reason": "INC-7", "actor": "ada", "route": ""}
        assert "Choose at least one" in await page(session, "dead-letters", 400, **wanted)
        assert "Is none of this list" in await page(session, "dead-letters", 400, **wanted, record="rec_x~1")
        assert await page(session, "dead-letters", 303, **wanted, record=f"{records[0]}~2") == "/console/dead-letters?requeued=1&refused=0"
        assert await page(session, "dead-letters", 303, **wanted, record=f"{records[1]}~1") == "/console/dead-letters?requeued=0&refused=1"


async def test_a_stored_body_is_shown_for_a_reason(house: House) -> None:
    """And the audit table keeps both."""
    record = await house.completed("k1", body=b'{"id": "ch_1", "token": "sekret"}')
    async with browsing(house, house.operator) as session:
        text = await page(session, f"records/{record}")
        assert "ch_1" not in text
        assert "mistake-reason" in await page(session, f"records/{record}/body", 400, csrf=csrf(text), reason="", actor="ada")
        shown = await page(session, f"records/{record}/body", csrf=csrf(text), reason="INC-7", actor="ada")
        assert "ch_1" in shown
        assert "sekret" not in shown
        assert "show body" in await page(session, "audit")
