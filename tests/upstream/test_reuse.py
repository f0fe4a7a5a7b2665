"""Which connections are used again."""

import asyncio
import os
import socket
import time
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.core.model import Headers
from gateway.upstream import HttpUpstream, UpstreamSettings
from tests.upstream.stub import HOST, OK, Peer, Stub, allow, answer_all, call, raw, request, until, whole


async def test_one_connection_serves_one_call_after_the_other(stub: Stub, upstream: HttpUpstream) -> None:
    """It is given back as soon as the response is in, even before the body is consumed."""
    for _ in range(5):
        response = await upstream.send(request(), allow)
        assert upstream.idle == 1
        assert await whole(response) == b"ok"
    assert (stub.connections, len(stub.requests)) == (1, 5)


async def test_an_idle_connection_keeps_nothing_of_the_caller_before(stub: Stub, upstream: HttpUpstream) -> None:
    """Whom interim responses were told goes with the exchange: a client, with all that its request held."""

    class Caller:
        def told(self, status: int, reason: bytes, headers: Headers) -> None:
            raise AssertionError(status)

    caller = Caller()
    kept = weakref.ref(caller)
    assert await whole(await upstream.send(replace(request(), informational=caller.told), allow)) == b"ok"
    del caller
    assert upstream.idle == 1
    assert kept() is None


async def test_calls_at_the_same_time_use_connections_of_their_own(stub: Stub, upstream: HttpUpstream) -> None:
    """No pipelining: as many connections as calls, all kept afterwards."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await stub.seen.wait()
        await peer.answer(OK)

    stub.script = script
    calls = [asyncio.ensure_future(call(upstream)) for _ in range(3)]
    await until(lambda: len(stub.requests) == 3)
    stub.seen.set()
    assert await asyncio.gather(*calls) == [(200, b"ok")] * 3
    assert stub.connections == 3


async def test_the_connection_used_last_is_used_next(stub: Stub, upstream: HttpUpstream) -> None:
    """Last in, first out: surplus connections grow old and are closed."""
    order: list[int] = []

    async def script(peer: Peer) -> None:
        number = stub.connections
        while True:
            order.append(number)
            await peer.request()
            await gates[number].wait()
            await peer.answer(OK)

    gates = {1: asyncio.Event(), 2: asyncio.Event()}
    stub.script = script
    first = asyncio.ensure_future(call(upstream))
    await until(lambda: len(stub.requests) == 1)
    second = asyncio.ensure_future(call(upstream))
    await until(lambda: len(stub.requests) == 2)
    gates[2].set()
    await second
    gates[1].set()
    await first
    await call(upstream)
    assert order == [1, 2, 2, 1, 1]


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + b"X",
        OK + b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother",
        b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n0\r\n\r\n",
    ],
)
async def test_some_responses_end_their_connection(stub: Stub, upstream: HttpUpstream, response: bytes) -> None:
    """When the upstream says so, or sent more than the response: the answer is good, the connection is not."""
    stub.script = raw(response)
    status, body = await call(upstream)
    assert (status, body) in {(200, b"ok"), (204, b""), (200, b"")}
    assert upstream.open == 0
    await call(upstream)
    assert (stub.connections, len(stub.requests)) == (2, 2)


async def test_http_1_0_with_keep_alive_is_reused(stub: Stub, upstream: HttpUpstream) -> None:
    """RFC 9112 section 9.3."""
    stub.script = raw(b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nok")
    await call(upstream)
    await call(upstream)
    assert stub.connections == 1


@pytest.mark.parametrize("how", ["close", "reset", "bytes"])
async def test_a_stale_connection_is_replaced_without_doubt(stub: Stub, upstream: HttpUpstream, how: str) -> None:
    """The upstream closed, reset or wrote to the idle connection: as soon as the client sees that, its slot is free."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(OK)
        await stub.seen.wait()
        match how:
            case "close":
                peer.close()
            case "reset":
                peer.reset()
            case _:
                await peer.answer(b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                await peer.closed_by_client()

    stub.script = script
    await call(upstream)
    assert upstream.idle == 1
    stub.seen.set()
    await until(lambda: upstream.open == 0)
    stub.script = answer_all
    assert await call(upstream) == (200, b"ok")
    assert (stub.connections, len(stub.requests)) == (2, 2)


@pytest.mark.parametrize("how", ["close", "bytes"])
async def test_a_connection_gone_stale_in_this_very_turn_is_replaced_too(stub: Stub, upstream: HttpUpstream, how: str) -> None:
    """The end of the stream is in the kernel, but the event loop has not read it yet: nothing is written to such a connection."""
    writers: list[asyncio.StreamWriter] = []

    async def script(peer: Peer) -> None:
        writers.append(peer.writer)
        await answer_all(peer)

    stub.script = script
    await call(upstream)
    with socket.socket(fileno=os.dup(writers[0].get_extra_info("socket").fileno())) as behind_the_loop:
        if how == "close":
            behind_the_loop.shutdown(socket.SHUT_WR)
        else:
            behind_the_loop.send(b"X")
    assert await call(upstream) == (200, b"ok")
    assert (stub.connections, len(stub.requests)) == (2, 2)


async def test_an_idle_connection_is_closed_after_keepalive(stub: Stub) -> None:
    """By the client itself, with no call coming."""
    closed: list[bytes] = []

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(OK)
        closed.append(await peer.closed_by_client())

    stub.script = script
    client = HttpUpstream(UpstreamSettings(stub.url, keepalive=0.1))
    await call(client)
    assert client.idle == 1
    await until(lambda: closed == [b""])
    assert client.open == 0
    await client.close()


async def test_an_idle_connection_is_too_old_even_if_its_timer_could_not_run(stub: Stub) -> None:
    """After a stall of the process, the age counts before the event loop has caught up."""
    client = HttpUpstream(UpstreamSettings(stub.url, keepalive=0.05))
    await call(client)
    time.sleep(0.1)  # noqa: ASYNC251 - the stall itself
    await call(client)
    assert stub.connections == 2
    await client.close()


@pytest.mark.parametrize("said", [b"timeout=0", b"timeout=1, max=100", b"max=3,Timeout = 1", b'timeout="1"'])
async def test_a_connection_is_not_used_when_the_upstream_says_that_it_closes_it(stub: Stub, upstream: HttpUpstream, said: bytes) -> None:
    """The next request would meet the close halfway, and nobody would know what became of it. A second is kept as a margin."""
    stub.script = raw(OK.replace(b"Content-Length", b"Keep-Alive: " + said + b"\r\nContent-Length"))
    for _ in range(2):
        assert await call(upstream) == (200, b"ok")
    assert (stub.connections, upstream.idle) == (2, 0)


async def test_an_idle_connection_is_closed_a_second_before_the_upstream_does(stub: Stub, upstream: HttpUpstream) -> None:
    """`keepalive` is 60 s here. The last word counts, and a connection that is busy until then is as good as any."""
    first, then = b"Keep-Alive: timeout=65, max=9\r\n", b"Keep-Alive: timeout=2\r\n"
    closed: list[bytes] = []

    async def script(peer: Peer) -> None:
        for line in (first, then):
            await peer.request()
            await peer.answer(OK.replace(b"Content-Length", line + b"Content-Length"))
        closed.append(await peer.closed_by_client())

    stub.script = script
    for _ in range(2):
        await call(upstream)
    assert (stub.connections, upstream.idle) == (1, 1)
    await until(lambda: closed == [b""])
    assert upstream.open == 0


@pytest.mark.parametrize("said", [b"max=1", b"xtimeout=1", b"timeout", b"timeout=", b"-1", b"timeout=soon"])
async def test_a_keep_alive_that_names_no_time_changes_nothing(stub: Stub, upstream: HttpUpstream, said: bytes) -> None:
    stub.script = raw(OK.replace(b"Content-Length", b"Keep-Alive: " + said + b"\r\nContent-Length"))
    for _ in range(2):
        assert await call(upstream) == (200, b"ok")
    assert stub.connections == 1


@pytest.mark.parametrize("scheme", [b"NTLM TlRMTVNTUAAD", b"negotiate YII=", b"Negotiate", b" Kerberos YII="])
async def test_a_connection_that_knows_its_caller_serves_nobody_else(stub: Stub, upstream: HttpUpstream, scheme: bytes) -> None:
    """IIS and others authenticate the connection: whoever came next on it would be the caller before."""
    callers: list[int] = []

    async def script(peer: Peer) -> None:
        known = stub.connections
        while True:
            await peer.request()
            callers.append(known)
            await peer.answer(OK)

    stub.script = script
    for headers in ((), ((b"Authorization", scheme),), (), ((b"Authorization", b"Bearer ntlm"),), ()):
        response = await upstream.send(replace(request(), headers=(*HOST, *headers)), allow)
        assert await whole(response) == b"ok"
    assert callers == [1, 1, 2, 2, 2]


async def test_keepalive_0_uses_each_connection_once(stub: Stub) -> None:
    """A fresh connection for each call cannot be stale."""
    client = HttpUpstream(UpstreamSettings(stub.url, keepalive=0))
    for _ in range(2):
        assert await call(client) == (200, b"ok")
        assert client.open == 0
    assert stub.connections == 2
    await client.close()


async def test_a_connection_in_use_outlives_keepalive(stub: Stub) -> None:
    """Only idleness counts, and it counts anew after each exchange."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await asyncio.sleep(0.7)
            await peer.answer(OK)

    stub.script = script
    client = HttpUpstream(UpstreamSettings(stub.url, keepalive=0.5))
    for _ in range(2):
        assert await call(client) == (200, b"ok")
    assert stub.connections == 1
    await client.close()


async def test_a_unix_socket_works_like_a_port(tmp_path: Path) -> None:
    """`unix:/path`."""
    async with Stub(path=str(tmp_path / "stub.sock")) as stub:
        client = HttpUpstream(UpstreamSettings(stub.url))
        assert await call(client) == (200, b"ok")
        assert await call(client) == (200, b"ok")
        assert stub.connections == 1
        await client.close()


async def test_closing_the_client_closes_idle_connections(stub: Stub) -> None:
    """The upstream sees the end of the stream before `close` is long over."""
    closed: list[bytes] = []

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(OK)
        closed.append(await peer.closed_by_client())

    stub.script = script
    client = HttpUpstream(UpstreamSettings(stub.url))
    await call(client)
    await client.close()
    assert (client.open, client.idle) == (0, 0)
    await until(lambda: closed == [b""])
