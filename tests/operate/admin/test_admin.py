"""The admin listener over real sockets."""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gateway.config import TcpListener, UnixListener
from gateway.operate.admin import AdminPorts, make_admin, start_admin


class Ports:
    """What the admin listener is given, with answers that a test sets."""

    def __init__(self) -> None:
        self.checks: dict[str, str | None] = {"postgres": None, "schema": None, "draining": None}
        self.asked = 0
        self.mistakes: list[str] = []
        self.release = asyncio.Event()
        self.release.set()
        self.reloading = asyncio.Event()
        self.fail = False
        self.accepted = ""

    async def readiness(self) -> Mapping[str, str | None]:
        self.asked += 1
        return self.checks

    def metrics(self, accept: str) -> tuple[bytes, str]:
        self.accepted = accept
        return b"up 1\n", "text/plain; version=0.0.4; charset=utf-8"

    async def config(self) -> object:
        if self.fail:
            raise RuntimeError("secret")
        return {"listen": "0.0.0.0:8080", "digest_secret": "***"}

    async def reload(self) -> Sequence[str]:
        self.reloading.set()
        await self.release.wait()
        return self.mistakes


@pytest.fixture
async def ports() -> Ports:
    return Ports()


async def serve(ports: Ports, token: str | None) -> AsyncIterator[aiohttp.ClientSession]:
    app = make_admin(AdminPorts(ports.readiness, ports.metrics, ports.config, ports.reload), token)
    runner = await start_admin(TcpListener("127.0.0.1", 0), app)
    host, port = runner.addresses[0][:2]
    async with aiohttp.ClientSession(f"http://{host}:{port}") as session:
        yield session
    await runner.cleanup()


@pytest.fixture
async def client(ports: Ports) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of a listener without a token."""
    async for session in serve(ports, None):
        yield session


@pytest.fixture
async def guarded(ports: Ports) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of a listener whose token is `s3cret`."""
    async for session in serve(ports, "s3cret"):
        yield session


async def test_livez_asks_nothing(client: aiohttp.ClientSession, ports: Ports) -> None:
    """The process is alive even when every check fails, and no check is made."""
    ports.checks = {"postgres": "timeout"}
    async with client.get("/livez") as response:
        assert (response.status, await response.text()) == (200, "ok\n")
    assert ports.asked == 0


async def test_readyz_shows_each_check(client: aiohttp.ClientSession, ports: Ports) -> None:
    """Ready is 200; one failing check makes it 503, and the answer says which and why."""
    async with client.get("/readyz") as response:
        assert response.status == 200
        assert await response.json() == {"status": "ready", "checks": {"postgres": "ok", "schema": "ok", "draining": "ok"}}
    ports.checks["postgres"] = "timeout"
    async with client.get("/readyz") as response:
        assert response.status == 503
        assert await response.json() == {"status": "not ready", "checks": {"postgres": "timeout", "schema": "ok", "draining": "ok"}}


async def test_metrics_come_with_their_content_type(client: aiohttp.ClientSession) -> None:
    """Prometheus gets the body and the content type of the exposition, unchanged."""
    async with client.get("/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert await response.read() == b"up 1\n"


@pytest.mark.parametrize(
    ("coding", "packed"), [("gzip", True), ("deflate, gzip;q=0.5", True), ("gzip;q=0", False), ("identity", False), ("*", False)]
)
async def test_metrics_are_packed_for_scrapers_that_take_it(client: aiohttp.ClientSession, ports: Ports, coding: str, packed: bool) -> None:
    """The exposition hears what the scraper accepts; gzip shrinks it to a tenth."""
    headers = {"Accept": "application/openmetrics-text", "Accept-Encoding": coding}
    async with client.get("/metrics", headers=headers) as response:
        assert response.headers.get("Content-Encoding") == ("gzip" if packed else None)
        assert await response.read() == b"up 1\n"
    assert ports.accepted == "application/openmetrics-text"


async def test_config_is_shown(client: aiohttp.ClientSession) -> None:
    """The configuration in use comes as JSON."""
    async with client.get("/admin/v1/config") as response:
        assert response.status == 200
        assert await response.json() == {"listen": "0.0.0.0:8080", "digest_secret": "***"}


async def test_reload_reports_mistakes(client: aiohttp.ClientSession, ports: Ports) -> None:
    """A good reload is 200; one with mistakes is a 422 problem that lists them."""
    async with client.post("/admin/v1/reload") as response:
        assert (response.status, await response.json()) == (200, {"status": "reloaded"})
    ports.mistakes = ["gateway.yaml:3:1: routes: is required"]
    async with client.post("/admin/v1/reload") as response:
        assert (response.status, response.content_type) == (422, "application/problem+json")
        document = await response.json()
        assert (document["status"], document["errors"]) == (422, ports.mistakes)


async def test_one_reload_at_a_time(client: aiohttp.ClientSession, ports: Ports) -> None:
    """A reload that is asked for while one is under way is a 409."""
    ports.release.clear()
    first = asyncio.ensure_future(client.post("/admin/v1/reload"))
    await ports.reloading.wait()
    async with client.post("/admin/v1/reload") as response:
        assert response.status == 409
    ports.release.set()
    async with await first as response:
        assert response.status == 200


@pytest.mark.parametrize(
    "authorization", [None, "Bearer", "Bearer wrong", "Bearer s3cre", "Bearer s3crets", "Basic s3cret", "s3cret", "Bearer caf\xe9"]
)
@pytest.mark.parametrize(("method", "path"), [("GET", "/admin/v1/config"), ("POST", "/admin/v1/reload"), ("GET", "/admin/v1/nothing")])
async def test_the_api_needs_the_token(guarded: aiohttp.ClientSession, authorization: str | None, method: str, path: str) -> None:
    """Without the very token every path of the API is a 401, also one that does not exist."""
    headers = {} if authorization is None else {"Authorization": authorization}
    async with guarded.request(method, path, headers=headers) as response:
        assert (response.status, response.content_type) == (401, "application/problem+json")
        assert response.headers["WWW-Authenticate"] == 'Bearer realm="admin"'


async def test_the_token_opens_the_api(guarded: aiohttp.ClientSession) -> None:
    """With the token the API answers; the scheme's case does not matter (RFC 9110 section 11.1)."""
    for scheme in ("Bearer", "bearer", "BEARER"):
        async with guarded.get("/admin/v1/config", headers={"Authorization": f"{scheme} s3cret"}) as response:
            assert response.status == 200


@pytest.mark.parametrize("path", ["/", "/livez", "/readyz", "/metrics"])
async def test_health_and_metrics_stay_open(guarded: aiohttp.ClientSession, path: str) -> None:
    """Probes and scrapes need no token."""
    async with guarded.get(path) as response:
        assert response.status == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/nothing", 404, None),
        ("GET", "/admin/v1/reload", 405, "POST"),
        ("POST", "/metrics", 405, "GET,HEAD"),
        ("GET", "/livez/", 404, None),
    ],
)
async def test_refusals_are_problems(client: aiohttp.ClientSession, method: str, path: str, status: int, allow: str | None) -> None:
    """Unknown paths and wrong methods are problem documents whose status equals the real one."""
    async with client.request(method, path) as response:
        assert (response.status, response.content_type) == (status, "application/problem+json")
        assert (await response.json())["status"] == status
        assert response.headers.get("Allow") == allow


async def test_a_failure_shows_nothing(client: aiohttp.ClientSession, ports: Ports) -> None:
    """An unexpected error is a 500 problem without the error's text."""
    ports.fail = True
    async with client.get("/admin/v1/config") as response:
        assert (response.status, response.content_type) == (500, "application/problem+json")
        assert "secret" not in await response.text()


LOOPBACK = ["localhost", "LocalHost:9464", "127.0.0.1", "127.0.0.1:9464", "127.8.8.8", "[::1]", "[::1]:9464"]
FOREIGN = [
    "evil.example",
    "evil.example:9464",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "10.0.0.1",
    "[::2]",
    "[::1",
    "",
    "127.1",
]


@pytest.mark.parametrize("host", LOOPBACK)
async def test_without_a_token_the_api_answers_to_loopback_names(client: aiohttp.ClientSession, host: str) -> None:
    """With any port, or none: it may be forwarded from another."""
    async with client.get("/admin/v1/config", headers={"Host": host}) as response:
        assert response.status == 200


@pytest.mark.parametrize("host", FOREIGN)
@pytest.mark.parametrize(("method", "path"), [("GET", "/admin/v1/config"), ("POST", "/admin/v1/reload"), ("GET", "/admin/v1/nothing")])
async def test_without_a_token_the_api_answers_to_no_other_name(client: aiohttp.ClientSession, method: str, path: str, host: str) -> None:
    """A name that somebody lets resolve to loopback (DNS rebinding) is told apart by Host, and the refusal says what to do."""
    async with client.request(method, path, headers={"Host": host}) as response:
        assert (response.status, response.content_type) == (421, "application/problem+json")
        document = await response.json()
        assert (document["status"], document["title"]) == (421, "Misdirected Request")
        assert document["detail"].endswith("use localhost or 127.0.0.1, or set admin.token.")


@pytest.mark.parametrize("path", ["/", "/livez", "/readyz", "/metrics"])
async def test_health_and_metrics_are_open_to_any_host(client: aiohttp.ClientSession, path: str) -> None:
    """Probes and scrapes come under any name."""
    async with client.get(path, headers={"Host": "gateway.internal"}) as response:
        assert response.status == 200


@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize(
    ("host", "headers"),
    [
        ("localhost:9464", {"Origin": "http://evil.example"}),
        ("localhost:9464", {"Origin": "http://localhost:3000"}),
        ("localhost:9464", {"Origin": "https://localhost:9464"}),
        ("localhost:9464", {"Origin": "http://127.0.0.1:9464"}),
        ("localhost", {"Origin": "http://localhost:9464"}),
        ("localhost", {"Origin": "null"}),
        ("localhost", {"Origin": ""}),
        ("localhost", {"Sec-Fetch-Site": "cross-site"}),
    ],
)
async def test_without_a_token_no_page_of_another_origin_changes_anything(
    client: aiohttp.ClientSession, ports: Ports, method: str, host: str, headers: dict[str, str]
) -> None:
    """A browser sends a plain POST anywhere unasked, and says for whom."""
    path = "/admin/v1/reload" if method == "POST" else "/admin/v1/records/rec_x"
    sent = {"Host": host, "Content-Type": "text/plain", **headers}
    async with client.request(method, path, headers=sent) as response:
        assert (response.status, response.content_type) == (403, "application/problem+json")
        assert (await response.json())["title"] == "Forbidden"
    assert not ports.reloading.is_set()


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_without_a_token_no_page_of_another_origin_asks_for_anything(client: aiohttp.ClientSession, site: str) -> None:
    """It could not read the answer, but would write a line of the audit in somebody's name. All ports of a host are one site."""
    headers = {"Host": "localhost", "Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
    async with client.get("/admin/v1/records/rec_x?body=true&actor=a&reason=b", headers=headers) as response:
        assert response.status == 403


@pytest.mark.parametrize(
    ("host", "headers"),
    [
        ("localhost:9464", {"Origin": "http://localhost:9464", "Sec-Fetch-Site": "same-origin"}),
        ("localhost:80", {"Origin": "http://localhost"}),
        ("localhost", {}),
    ],
)
async def test_without_a_token_programs_and_own_pages_change_things(
    client: aiohttp.ClientSession, host: str, headers: dict[str, str]
) -> None:
    """What is of the listener's own origin, or of none, is no page of another."""
    async with client.post("/admin/v1/reload", headers={"Host": host, **headers}) as response:
        assert response.status == 200


async def test_a_page_of_another_origin_may_ask(client: aiohttp.ClientSession) -> None:
    """A browser shows the page nothing of the answer: no field allows it."""
    async with client.get("/admin/v1/config", headers={"Origin": "http://evil.example"}) as response:
        assert response.status == 200
        assert not any(name.lower().startswith("access-control-") for name in response.headers)


async def test_with_a_token_host_and_origin_do_not_matter(guarded: aiohttp.ClientSession) -> None:
    """No page knows the token."""
    headers = {"Authorization": "Bearer s3cret", "Host": "gateway.internal", "Origin": "https://operators.internal"}
    async with guarded.post("/admin/v1/reload", headers=headers) as response:
        assert response.status == 200


async def test_on_a_unix_socket_any_host_will_do(ports: Ports, tmp_path: Path) -> None:
    """No page reaches it; what a page had sent through somebody's proxy changes nothing there either."""
    path = str(tmp_path / "admin.sock")
    runner = await start_admin(UnixListener(path), make_admin(AdminPorts(ports.readiness, ports.metrics, ports.config, ports.reload)))
    async with aiohttp.ClientSession("http://admin", connector=aiohttp.UnixConnector(path)) as session:
        async with session.get("/admin/v1/config") as response:
            assert response.status == 200
        async with session.post("/admin/v1/reload", headers={"Origin": "http://evil.example"}) as response:
            assert response.status == 403
        async with session.post("/admin/v1/reload") as response:
            assert response.status == 200
    await runner.cleanup()


async def test_it_listens_on_a_unix_socket(ports: Ports, tmp_path: Path) -> None:
    """A Unix socket serves the same, also where a killed process left its own behind."""
    path = str(tmp_path / "admin.sock")
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(path)
    runner = await start_admin(UnixListener(path), make_admin(AdminPorts(ports.readiness, ports.metrics, ports.config, ports.reload)))
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(path)) as session, session.get("http://admin/livez") as response:
        assert response.status == 200
    await runner.cleanup()


async def test_an_address_in_use_is_an_oserror(ports: Ports) -> None:
    """Listening where somebody else does raises OSError and leaves nothing behind."""
    app = make_admin(AdminPorts(ports.readiness, ports.metrics, ports.config, ports.reload))
    runner = await start_admin(TcpListener("127.0.0.1", 0), app)
    port = runner.addresses[0][1]
    with pytest.raises(OSError, match="address already in use"):
        await start_admin(TcpListener("127.0.0.1", port), web.Application())
    await runner.cleanup()


async def test_a_unix_socket_is_the_gateways_alone(tmp_path: Path) -> None:
    """Whatever the umask: without a token nothing else guards it. One that was left behind is replaced."""
    path = tmp_path / "admin.sock"
    before = os.umask(0)
    try:
        for _ in range(2):
            runner = await start_admin(UnixListener(str(path)), make_admin(AdminPorts(*[None] * 4)))  # type: ignore[arg-type]  # nobody asks
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            await runner.cleanup()
    finally:
        os.umask(before)
