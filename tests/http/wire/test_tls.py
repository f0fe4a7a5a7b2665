"""TLS on both listeners and toward the upstream, and unix sockets on both sides, through the same gateway process."""

import asyncio
import os
import signal
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.http.wire.certificates import Authority
from tests.http.wire.conftest import ROUTES, Wire
from tests.http.wire.peer import ask, connect, guarded, request, until
from tests.http.wire.stub import CREATED, FIN, Stub, Turn, reply
from tests.support.client import Client
from tests.support.gateway import Setup, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATIENT = "{connect: 2s, first_byte: 5s, read_idle: 5s, total: 20s}"


@dataclass(frozen=True, slots=True)
class Secure:
    """A gateway that speaks TLS everywhere, and who signed what."""

    wire: Wire
    ours: Authority
    client: Path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def secure(module_database: str, module_redis: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Secure]:
    """Listeners with one authority's certificates, an upstream that demands one and is asked for by another name."""
    folder = tmp_path_factory.mktemp("tls")
    ours = Authority(folder, "ours")
    server, admin, client = ours.issue("listener"), ours.issue("admin"), ours.issue("gateway-as-client")
    stub_tls = ours.serving(ours.issue("payments.internal", "payments.internal"), asking=True)
    async with Stub(tls=stub_tls) as stub:
        upstream = (
            f'url: "https://127.0.0.1:{stub.port}", '
            f'tls: {{ca_file: "{ours.ca}", cert_file: "{client}", server_name: payments.internal}}, health: {{failures: 0}}'
        )
        setup = Setup(
            module_database,
            0,
            module_redis,
            routes=ROUTES,
            timeouts=PATIENT,
            upstream=upstream,
            admin_tls=f'{{cert_file: "{admin}"}}',
            admin_ca=ours.ca,
            more=f'tls: {{cert_file: "{server}", min_version: "1.2"}}',
        )
        async with running(setup, folder) as process, Wire(process, stub, module_database) as wire:
            yield Secure(wire, ours, client)
        assert stub.faults == []


async def over(secure: Secure, context: ssl.SSLContext | None = None) -> Client:
    return await connect(secure.wire.port, tls=context or secure.ours.trusting(), name="localhost")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
async def test_all_hops_speak_tls(secure: Secure, version: ssl.TLSVersion) -> None:
    """First answer and replay over TLS; the upstream sees our certificate, the name asked for (RFC 6066 3), and how the client came."""
    context = secure.ours.trusting()
    context.minimum_version = context.maximum_version = version
    case = b"tls-" + version.name.encode()
    async with await over(secure, context) as client:
        assert client.writer.get_extra_info("ssl_object").version() == version.name.replace("_", ".")
        first, again = [await ask(client, guarded(case, b"X-Forwarded-Proto: http")) for _ in range(2)]
    assert (first.status, first.body, again.body, again.field("idempotent-replayed")) == (201, b"created", b"created", b"true")
    stub = secure.wire.stub
    assert stub.one(case).values(b"X-Forwarded-Proto") == [b"https"]
    assert stub.handshakes[-1] == "payments.internal"
    assert "gateway-as-client" in str(stub.clients[-1])


async def test_old_tls_and_plain_http_are_refused(secure: Secure) -> None:
    """RFC 8996: nothing below 1.2; who speaks no TLS at all gets no answer that looks like one of the API."""
    context = secure.ours.trusting()
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await over(secure, context)
    async with await connect(secure.wire.port) as client:
        await client.send(request(b"plain-to-tls"))
        assert b"created" not in await client.reader.read()
    assert secure.wire.stub.of(b"plain-to-tls") == []


async def test_a_slow_handshake_holds_nobody_up(secure: Secure) -> None:
    """A client that connects and says nothing leaves the others alone."""
    async with await connect(secure.wire.port), await over(secure) as client:
        assert (await ask(client, request(b"beside"))).status == 201


async def test_the_admin_listener_speaks_tls(secure: Secure) -> None:
    """Readiness and metrics are there over TLS, and not without."""
    assert (await secure.wire.gateway.get("/readyz"))[0] == 200
    async with await connect(secure.wire.gateway.admin) as client:
        await client.send(b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b" 200 " not in await client.reader.read()


async def test_streams_and_tunnels_pass_through_tls(secure: Secure) -> None:
    """Large bodies both ways, and a WebSocket, over two encrypted hops."""
    body = os.urandom(3 * 2**20)
    secure.wire.stub.scripts[b"tls-large"] = reply(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    async with await over(secure) as client:
        answer = await ask(client, request(b"tls-large", method=b"POST", body=body), within=20)
        assert answer.body == body
    assert secure.wire.stub.one(b"tls-large").body == body

    async def echo(turn: Turn) -> None:
        turn.over = True
        await turn.say(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhi")
        while piece := await turn.reader.read(2**16):
            await turn.say(piece)

    secure.wire.stub.scripts[b"tls-socket"] = echo
    async with await over(secure) as client:
        await client.send(request(b"tls-socket", b"/chat", b"Connection: Upgrade", b"Upgrade: websocket"))
        await until(client, b"\r\n\r\nhi")
        await client.send(b"\x89\x80\x00\x00\x00\x00")
        async with asyncio.timeout(6):
            assert await client.reader.readexactly(6) == b"\x89\x80\x00\x00\x00\x00"


async def test_an_end_without_close_notify_completes_nothing(secure: Secure) -> None:
    """RFC 9112 9.8: an answer until close that ends with TCP alone may be anybody's cut: never stored as whole."""

    async def cut(turn: Turn) -> None:
        await turn.body()
        turn.execute()
        await turn.say(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        turn.writer.transport.abort()
        turn.over = True

    secure.wire.stub.scripts[b"no-notify"] = cut
    secure.wire.stub.scripts[b"notify"] = reply(b"HTTP/1.1 200 OK\r\n\r\nwhole", FIN)
    async with await over(secure) as client:
        answer = await ask(client, guarded(b"no-notify"))
        assert (answer.status, answer.problem) == (502, "outcome-unknown")
    async with await over(secure) as client:
        answer = await ask(client, guarded(b"notify"))
        assert (answer.status, answer.body) == (200, b"whole")


async def test_a_reload_shows_the_renewed_certificate(secure: Secure) -> None:
    """SIGHUP: new handshakes get the new certificate, open connections go on, and a broken file changes nothing."""

    async def shown() -> object:
        async with await over(secure) as client:
            return client.writer.get_extra_info("peercert")["serialNumber"]

    async with await over(secure) as kept:
        before = await shown()
        pair = secure.ours.issue("listener")
        os.kill(secure.wire.gateway.pid, signal.SIGHUP)
        async with asyncio.timeout(10):
            while await shown() == before:
                await asyncio.sleep(0.05)
        assert (await ask(kept, request(b"tls-kept"))).status == 201
    renewed = await shown()
    pair.write_bytes(b"no certificate")
    status, _ = await secure.wire.gateway.post("/admin/v1/reload")
    assert status != 200
    assert await shown() == renewed
    secure.ours.issue("listener")
    assert (await secure.wire.gateway.post("/admin/v1/reload"))[0] == 200


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def distrustful(secure: Secure, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Secure]:
    """A gateway that demands client certificates, and trusts another authority than the upstream's."""
    theirs = Authority(tmp_path_factory.mktemp("theirs"), "theirs")
    stub = secure.wire.stub
    tls = f'{{ca_file: "{theirs.ca}", cert_file: "{secure.client}", server_name: payments.internal}}'
    setup = Setup(
        secure.wire.database,
        0,
        routes=ROUTES,
        timeouts=PATIENT,
        upstream=f'url: "https://127.0.0.1:{stub.port}", tls: {tls}, health: {{failures: 0}}',
        more=f'tls: {{cert_file: "{theirs.issue("listener")}", client_ca_file: "{theirs.ca}", min_version: "1.3"}}',
    )
    async with running(setup, theirs.folder) as process, Wire(process, stub, secure.wire.database) as wire:
        yield Secure(wire, theirs, theirs.issue("caller"))


async def test_an_upstream_that_cannot_be_trusted_gets_nothing_and_the_key_stays_free(distrustful: Secure) -> None:
    """RFC 9110 4.3.4: the wrong authority is `upstream-unreachable`, nothing is sent, and the next try with the key may run."""
    stub = distrustful.wire.stub
    for raw in (guarded(b"distrust"), guarded(b"distrust"), request(b"distrust")):
        async with await over(distrustful, distrustful.ours.trusting(distrustful.client)) as client:
            answer = await ask(client, raw)
            assert (answer.status, answer.problem) == (502, "upstream-unreachable")
    assert stub.of(b"distrust") == []
    record = await distrustful.wire.record(b"distrust")
    assert record is not None
    assert record[0] == "failed_retryable"


async def test_clients_without_a_certificate_are_refused(distrustful: Secure, secure: Secure) -> None:
    """RFC 8446 4.4.2.4: with `client_ca_file` nobody gets in without a certificate of that authority; 1.2 is below the minimum here."""
    strangers = [distrustful.ours.trusting(), distrustful.ours.trusting(secure.client)]
    old = distrustful.ours.trusting(distrustful.client)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    for context in (*strangers, old):
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            async with await over(distrustful, context) as client:
                await ask(client, request(b"stranger"))
    assert distrustful.wire.stub.of(b"stranger") == []


async def test_unix_sockets_on_both_sides(secure: Secure, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A listener and an upstream at paths of the file system: first, replayed, and streamed; the peer has no address."""
    folder = tmp_path_factory.mktemp("unix")
    async with Stub(path=str(folder / "up.sock")) as stub:
        setup = Setup(
            secure.wire.database,
            0,
            routes=ROUTES,
            upstream=f'url: "unix:{stub.path}"',
            listen=f"unix:{folder}/in.sock",
            more="trusted_proxies: [127.0.0.0/8]",
        )
        async with running(setup, folder):
            async with await connect(path=f"{folder}/in.sock") as client:
                spoofed = (b"X-Forwarded-For: 6.6.6.6",)
                first, again = [await ask(client, guarded(b"unix", *spoofed)) for _ in range(2)]
                assert (first.status, again.field("idempotent-replayed")) == (201, b"true")
                assert (await ask(client, request(b"unix-plain"))).body == b"created"
            seen = stub.one(b"unix")
            assert seen.values(b"Host") == [b"gateway.test"]
            assert b"6.6.6.6" not in b"".join(seen.values(b"X-Forwarded-For"))
            stub.scripts[b"unix-broken"] = reply(CREATED[:-3], FIN)
            async with await connect(path=f"{folder}/in.sock") as client:
                assert (await ask(client, guarded(b"unix-broken"))).problem == "outcome-unknown"
        assert stub.faults == []
