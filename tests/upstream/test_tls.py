"""The same client over TLS. Certificates are made by the `openssl` command."""

import asyncio
import os
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.ports import DoubtReason, InDoubt, NotSent, NotSentReason, UpstreamRequest, UpstreamResponse
from gateway.upstream import Exchange, HttpUpstream, UpstreamSettings
from tests.upstream.stub import HOST, OK, Peer, Script, Stub, allow, answer_all, call, raw, request, until, whole


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for `localhost`, its key in the same file."""
    if shutil.which("openssl") is None:
        if os.environ.get("CI"):
            pytest.fail("openssl is missing")
        pytest.skip("openssl is missing")
    folder = tmp_path_factory.mktemp("tls")
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", *subject, *files]
    subprocess.run(command, check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_bytes((folder / "key.pem").read_bytes() + (folder / "cert.pem").read_bytes())
    return both


@pytest.fixture
def trusting(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


@pytest.fixture
async def tls_stub(certificate: Path) -> AsyncIterator[Stub]:
    """A stub behind TLS, reached as `https://localhost:port`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    async with Stub(tls=context) as server:
        yield server


def secure(stub: Stub, context: ssl.SSLContext | None, **limits: float) -> HttpUpstream:
    return HttpUpstream(UpstreamSettings(f"https://localhost:{stub.port}", **limits), ssl_context=context)  # type: ignore[arg-type]  # float keywords


async def test_calls_go_over_one_tls_connection(tls_stub: Stub, trusting: ssl.SSLContext) -> None:
    """Requests and responses are the same bytes, and the connection is reused."""
    client = secure(tls_stub, trusting)
    for _ in range(3):
        assert await call(client) == (200, b"ok")
    assert (tls_stub.connections, len(tls_stub.requests)) == (1, 3)
    assert tls_stub.requests[0] == b"POST / HTTP/1.1\r\nHost: stub\r\nContent-Length: 2\r\n\r\n{}"
    await client.close()
    assert client.open == 0


async def test_a_connection_whose_end_came_with_its_answer_takes_no_request(tls_stub: Stub, trusting: ssl.SSLContext) -> None:
    """Who is told of the answer asks at once for the next one: TLS has read the end, and has not told it yet."""
    client, begun = secure(tls_stub, trusting), list[Exchange | None]()

    class Next:
        def answered(self, response: UpstreamResponse) -> None:
            begun.append(client.begin(request(), allow, self))

        def failed(self, failure: InDoubt | NotSent) -> None:
            raise failure

        def not_begun(self) -> None:
            raise AssertionError("it was alone in its turn")

    async def once_more(peer: Peer) -> None:
        await peer.request()
        await peer.answer(OK)
        await raw(OK, close=True)(peer)

    tls_stub.script = once_more
    assert await call(client) == (200, b"ok")
    assert client.begin(request(), allow, Next()) is not None
    await until(lambda: bool(begun))
    assert (begun, client.open, len(tls_stub.requests)) == ([None], 0, 2)
    await client.close()


async def test_large_bodies_pass_both_ways(tls_stub: Stub, trusting: ssl.SSLContext) -> None:
    """With backpressure on both sides."""
    body = bytes(range(256)) * 32768

    async def echo(peer: Peer) -> None:
        got = (await peer.request()).split(b"\r\n\r\n", 1)[1]
        await peer.answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(got) + got)

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 100_000):
            yield body[start : start + 100_000]

    tls_stub.script = echo
    client = secure(tls_stub, trusting)
    response = await client.send(request(body=pieces(), length=len(body)), allow)
    await asyncio.sleep(0.05)
    assert await whole(response) == body
    await client.close()


async def test_an_untrusted_certificate_is_not_sent(tls_stub: Stub) -> None:
    """The system's authorities do not know it."""
    client = secure(tls_stub, None)
    with pytest.raises(NotSent) as caught:
        await client.send(request(), allow)
    assert caught.value.reason is NotSentReason.TLS
    assert (client.open, tls_stub.requests) == (0, [])
    await client.close()


async def test_a_certificate_for_another_name_is_not_sent(tls_stub: Stub, trusting: ssl.SSLContext) -> None:
    """127.0.0.1 is not what it was issued for."""
    client = HttpUpstream(UpstreamSettings(f"https://127.0.0.1:{tls_stub.port}"), ssl_context=trusting)
    with pytest.raises(NotSent) as caught:
        await client.send(request(), allow)
    assert caught.value.reason is NotSentReason.TLS
    assert client.open == 0
    await client.close()


async def test_the_server_name_is_what_is_sent_and_verified(certificate: Path, trusting: ssl.SSLContext) -> None:
    """Whatever address the connection goes to; without one it is the address's host, and a wrong one is not sent to."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    names: list[str | None] = []
    context.sni_callback = lambda _object, name, _context: names.append(name)
    async with Stub(tls=context) as stub:
        url = f"https://127.0.0.1:{stub.port}"
        client = HttpUpstream(UpstreamSettings(url), ssl_context=trusting, server_name="localhost")
        assert await call(client) == (200, b"ok")
        await client.close()
        for wrong in ("payments.internal", "127.0.0.1", "", "x" * 300, "a..b"):
            client = HttpUpstream(UpstreamSettings(url), ssl_context=trusting, server_name=wrong)
            with pytest.raises(NotSent) as caught:
                await client.send(request(), allow)
            assert caught.value.reason is NotSentReason.TLS
            assert client.open == 0
        assert len(stub.requests) == 1
    assert names[:2] == ["localhost", "payments.internal"]


@pytest.fixture(scope="session")
def client_certificate(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Path:
    """A self-signed certificate of a client, its key in the same file."""
    folder = tmp_path_factory.mktemp("client")
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    subprocess.run(
        ["openssl", "req", "-x509", *curve, "-nodes", "-days", "2", "-subj", "/CN=gateway", *files], check=True, capture_output=True
    )
    both = folder / "both.pem"
    both.write_bytes((folder / "key.pem").read_bytes() + (folder / "cert.pem").read_bytes())
    return both


@pytest.fixture
async def demanding(certificate: Path, client_certificate: Path) -> AsyncIterator[Stub]:
    """A stub that demands a client certificate, `client_certificate` and no other."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(client_certificate))
    context.load_cert_chain(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    async with Stub(tls=context) as server:
        yield server


async def test_a_client_certificate_is_shown(demanding: Stub, trusting: ssl.SSLContext, client_certificate: Path) -> None:
    """From the context's chain."""
    trusting.load_cert_chain(client_certificate)
    client = secure(demanding, trusting)
    assert await call(client) == (200, b"ok")
    await client.close()


@pytest.mark.parametrize("wrong", [True, False], ids=["another", "none"])
async def test_a_refused_client_certificate_is_doubt_under_tls_1_3(
    demanding: Stub, trusting: ssl.SSLContext, certificate: Path, wrong: bool
) -> None:
    """RFC 8446 section 4.4.2.4: the handshake is over for us when the server judges; its alert is all that answers the request."""
    trusting.minimum_version = ssl.TLSVersion.TLSv1_3
    if wrong:
        trusting.load_cert_chain(certificate)
    client = secure(demanding, trusting)
    with pytest.raises(InDoubt) as caught:
        await client.send(request(), allow)
    assert caught.value.reason is DoubtReason.DISCONNECTED
    assert (client.open, demanding.requests) == (0, [])
    await client.close()


async def test_a_refused_client_certificate_is_not_sent_under_tls_1_2(demanding: Stub, trusting: ssl.SSLContext) -> None:
    """There the server judges within the handshake."""
    trusting.maximum_version = ssl.TLSVersion.TLSv1_2
    client = secure(demanding, trusting)
    with pytest.raises(NotSent) as caught:
        await client.send(request(), allow)
    assert caught.value.reason is NotSentReason.TLS
    assert (client.open, demanding.requests) == (0, [])
    await client.close()


async def test_versions_that_do_not_meet_are_not_sent(tls_stub: Stub, trusting: ssl.SSLContext, certificate: Path) -> None:
    """A server of TLS 1.2 at most, a client of 1.3 at least."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    trusting.minimum_version = ssl.TLSVersion.TLSv1_3
    async with Stub(tls=context) as stub:
        client = secure(stub, trusting)
        with pytest.raises(NotSent) as caught:
            await client.send(request(), allow)
        assert caught.value.reason is NotSentReason.TLS
        await client.close()


async def test_bytes_below_tls_count_as_unsent(tls_stub: Stub, trusting: ssl.SSLContext) -> None:
    """An answer that comes while they wait is an early one: the connection is not used again."""

    async def early(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.answer(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno")
        await tls_stub.seen.wait()

    tls_stub.script = early
    client = secure(tls_stub, trusting)
    response = await client.send(request(body=b"x" * (32 * 1024 * 1024)), allow)
    assert (response.status, await whole(response)) == (413, b"no")
    assert client.open == 0
    tls_stub.seen.set()
    await client.close()


async def test_a_tls_upstream_that_takes_no_more_is_silent(tls_stub: Stub, trusting: ssl.SSLContext) -> None:
    """`first_byte` sees through TLS's own buffers."""

    async def deaf(peer: Peer) -> None:
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]  # the transports of both loops have it
        await tls_stub.seen.wait()

    tls_stub.script = deaf
    client = secure(tls_stub, trusting, first_byte=0.3)
    with pytest.raises(InDoubt) as caught:
        await client.send(request(body=b"x" * (32 * 1024 * 1024)), allow)
    assert caught.value.reason is DoubtReason.FIRST_BYTE_TIMEOUT
    assert client.open == 0
    tls_stub.seen.set()
    await client.close()


SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"


async def test_a_tunnel_over_tls_says_its_last_words(tls_stub: Stub, trusting: ssl.SSLContext) -> None:
    """What was written before `close` arrives, and TLS is closed in order."""
    ends: list[bytes] = []

    async def listen(peer: Peer) -> None:
        await peer.request()
        await peer.answer(SWITCH + b"hello")
        ends.append(await peer.reader.read())

    tls_stub.script = listen
    client = secure(tls_stub, trusting)
    response = await client.send(UpstreamRequest(b"GET", b"/", HOST, b"", upgrade=b"websocket"), allow)
    tunnel = response.tunnel()
    assert await tunnel.read() == b"hello"
    tunnel.write(b"x" * 3_000_000)
    tunnel.close()
    assert client.open == 0
    await until(lambda: ends == [b"x" * 3_000_000])
    await client.close()


async def plain_answer(peer: Peer) -> None:
    await peer.reader.read(1)
    await peer.answer(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def hang_up(peer: Peer) -> None:
    await peer.reader.read(1)


async def reset(peer: Peer) -> None:
    await peer.reader.read(1)
    peer.reset()


async def banner(peer: Peer) -> None:
    await peer.answer(b"220 mail.example ESMTP\r\n")
    await peer.closed_by_client()


async def gone(peer: Peer) -> None:
    peer.reset()


@pytest.mark.parametrize("script", [plain_answer, hang_up, reset, banner, gone])
async def test_a_failed_handshake_is_not_sent(stub: Stub, trusting: ssl.SSLContext, script: Script) -> None:
    """An upstream that speaks no TLS, or speaks first, hangs up or resets, before or after our first bytes."""
    stub.script = script
    client = secure(stub, trusting)
    with pytest.raises(NotSent) as caught:
        await client.send(request(), allow)
    assert caught.value.reason is NotSentReason.TLS
    assert client.open == 0
    await client.close()


async def test_a_handshake_without_answer_times_out(stub: Stub, trusting: ssl.SSLContext) -> None:
    """`connect` covers TLS; once TCP is connected, TLS is what failed."""

    async def silent(peer: Peer) -> None:
        await peer.closed_by_client()

    stub.script = silent
    client = secure(stub, trusting, connect=0.2)
    with pytest.raises(NotSent) as caught:
        await client.send(request(), allow)
    assert caught.value.reason is NotSentReason.TLS
    assert client.open == 0
    await client.close()


async def test_a_cancelled_handshake_frees_the_slot(stub: Stub, trusting: ssl.SSLContext) -> None:
    """And the upstream sees the end of the connection."""
    ends: list[bytes] = []

    async def silent(peer: Peer) -> None:
        await peer.reader.read(1)
        await peer.closed_by_client()
        ends.append(b"end")

    stub.script = silent
    client = secure(stub, trusting, connect=30)
    calling = asyncio.ensure_future(client.send(request(), allow))
    await until(lambda: stub.connections == 1)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert client.open == 0
    await until(lambda: ends == [b"end"])
    await client.close()


OPEN_END = b"HTTP/1.1 200 OK\r\n\r\nabc"


async def test_close_notify_ends_a_body_without_framing(tls_stub: Stub, trusting: ssl.SSLContext) -> None:
    """RFC 9112 section 9.8: a complete closure."""
    tls_stub.script = raw(OPEN_END, close=True)
    client = secure(tls_stub, trusting)
    assert await call(client) == (200, b"abc")
    assert client.open == 0
    await client.close()


async def test_an_end_of_stream_below_tls_ends_nothing(tls_stub: Stub, trusting: ssl.SSLContext) -> None:
    """RFC 9112 section 9.8: without close_notify anybody on the way can cut the body short, so it is incomplete."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(OPEN_END)
        await tls_stub.seen.wait()
        peer.writer.transport.abort()

    tls_stub.script = script
    client = secure(tls_stub, trusting)
    response = await client.send(request(), allow)
    tls_stub.seen.set()
    with pytest.raises(InDoubt) as caught:
        await whole(response)
    assert caught.value.reason in {DoubtReason.DISCONNECTED, DoubtReason.TRUNCATED_RESPONSE}
    assert client.open == 0
    await client.close()


async def test_a_stale_tls_connection_is_replaced(tls_stub: Stub, trusting: ssl.SSLContext) -> None:
    """Closed by the upstream while idle."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(OK)
        await tls_stub.seen.wait()

    tls_stub.script = script
    client = secure(tls_stub, trusting)
    await call(client)
    tls_stub.seen.set()
    await until(lambda: client.open == 0)
    tls_stub.script = answer_all
    assert await call(client) == (200, b"ok")
    await client.close()
