"""The same client over TLS. Certificates are made by the `openssl` command."""

import asyncio
import os
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.ports import DoubtReason, InDoubt, NotSent, NotSentReason
from gateway.upstream import HttpUpstream, UpstreamSettings
from tests.upstream.stub import OK, Peer, Script, Stub, allow, answer_all, call, raw, request, until, whole


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


async def plain_answer(peer: Peer) -> None:
    await peer.reader.read(1)
    await peer.answer(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def hang_up(peer: Peer) -> None:
    await peer.reader.read(1)


async def reset(peer: Peer) -> None:
    await peer.reader.read(1)
    peer.reset()


@pytest.mark.parametrize("script", [plain_answer, hang_up, reset])
async def test_a_failed_handshake_is_not_sent(stub: Stub, trusting: ssl.SSLContext, script: Script) -> None:
    """An upstream that speaks no TLS, hangs up or resets."""
    stub.script = script
    client = secure(stub, trusting)
    with pytest.raises(NotSent) as caught:
        await client.send(request(), allow)
    assert caught.value.reason is NotSentReason.TLS
    assert client.open == 0
    await client.close()


async def test_a_handshake_without_answer_times_out(stub: Stub, trusting: ssl.SSLContext) -> None:
    """`connect` covers TLS."""

    async def silent(peer: Peer) -> None:
        await peer.closed_by_client()

    stub.script = silent
    client = secure(stub, trusting, connect=0.2)
    with pytest.raises(NotSent) as caught:
        await client.send(request(), allow)
    assert caught.value.reason is NotSentReason.CONNECT_TIMEOUT
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
