"""Failures that prove that nothing of the request was written."""

import asyncio
import select
import socket
from collections.abc import Iterator

import pytest

from gateway.ports import NotSent, NotSentReason
from gateway.upstream import HttpUpstream, UpstreamSettings
from tests.upstream import ports
from tests.upstream.ports import free_port
from tests.upstream.stub import OK, Fence, Peer, Stub, allow, call, request, until


async def refusal(client: HttpUpstream) -> NotSentReason:
    try:
        with pytest.raises(NotSent) as caught:
            await client.send(request(), allow)
    finally:
        await client.close()
    assert client.open == 0
    return caught.value.reason


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port on which connecting hangs."""
    with ports.silent_port() as port:
        yield port


async def test_a_closed_port_is_a_refused_connection() -> None:
    """ECONNREFUSED."""
    assert await refusal(HttpUpstream(UpstreamSettings(f"http://127.0.0.1:{free_port()}"))) is NotSentReason.CONNECT_REFUSED


async def test_a_name_with_several_refusing_addresses_is_a_refused_connection() -> None:
    """Both loops try every address of a name; whatever they make of several errors, it means the same."""
    assert await refusal(HttpUpstream(UpstreamSettings(f"http://localhost:{free_port()}"))) is NotSentReason.CONNECT_REFUSED


async def test_a_missing_unix_socket_is_a_refused_connection() -> None:
    """ENOENT."""
    assert await refusal(HttpUpstream(UpstreamSettings("unix:/nonexistent/x.sock"))) is NotSentReason.CONNECT_REFUSED


@pytest.mark.parametrize("host", ["nonexistent.invalid", "a" * 70 + ".invalid"])
async def test_an_unknown_name_is_a_dns_error(host: str) -> None:
    """Unknown to the resolver, or not even a possible name (a label over 63 characters)."""
    assert await refusal(HttpUpstream(UpstreamSettings(f"http://{host}:80", connect=10))) is NotSentReason.DNS


async def test_a_connection_that_is_never_accepted_times_out(silent_port: int) -> None:
    """`connect` bounds the handshake."""
    client = HttpUpstream(UpstreamSettings(f"http://127.0.0.1:{silent_port}", connect=0.1))
    assert await refusal(client) is NotSentReason.CONNECT_TIMEOUT


async def test_total_bounds_connecting_too(silent_port: int) -> None:
    """A total limit shorter than the connect limit ends the attempt, still as one that sent nothing."""
    client = HttpUpstream(UpstreamSettings(f"http://127.0.0.1:{silent_port}", connect=60, total=0.1))
    assert await refusal(client) is NotSentReason.CONNECT_TIMEOUT


async def test_a_lapsed_lease_sends_nothing_and_keeps_the_connection(stub: Stub, upstream: HttpUpstream) -> None:
    """The fence says no: not a byte reaches the upstream, and the connection serves the next call, whose bytes are the first."""
    with pytest.raises(NotSent) as caught:
        await upstream.send(request(), lambda: False)
    assert caught.value.reason is NotSentReason.LEASE_LAPSED
    assert (upstream.open, upstream.idle) == (1, 1)
    assert await call(upstream) == (200, b"ok")
    assert (stub.connections, len(stub.requests)) == (1, 1)


async def test_a_fence_that_raises_sends_nothing_and_keeps_the_connection(stub: Stub, upstream: HttpUpstream) -> None:
    """The error is the caller's, the connection is not lost over it."""

    def broken() -> bool:
        raise LookupError

    with pytest.raises(LookupError):
        await upstream.send(request(), broken)
    assert (upstream.open, upstream.idle) == (1, 1)
    assert await call(upstream) == (200, b"ok")
    assert (stub.connections, len(stub.requests)) == (1, 1)


async def test_after_the_fence_the_bytes_are_in_the_kernel_at_once() -> None:
    """Before anything else runs, be it a callback of the same turn of the event loop."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        client = HttpUpstream(UpstreamSettings(f"http://127.0.0.1:{listener.getsockname()[1]}"))
        first = asyncio.ensure_future(call(client))
        server, _ = await loop.sock_accept(listener)
        with server:
            await loop.sock_recv(server, 1000)
            await loop.sock_sendall(server, OK)
            await first
            second = asyncio.ensure_future(call(client))  # runs next, up to the write, since a connection is idle
            arrived: asyncio.Future[bool] = loop.create_future()
            loop.call_soon(lambda: arrived.set_result(bool(select.select([server], [], [], 1)[0])))
            assert await arrived
            assert await loop.sock_recv(server, 1000) == b"POST / HTTP/1.1\r\nHost: stub\r\nContent-Length: 2\r\n\r\n{}"
            await loop.sock_sendall(server, OK)
            assert await second == (200, b"ok")
            await client.close()


async def test_without_a_slot_in_time_nothing_is_sent(stub: Stub) -> None:
    """`slot_wait` is over while all connections are busy."""
    held = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await held.wait()
        await peer.answer(b"HTTP/1.1 204 No Content\r\n\r\n")

    stub.script = script
    client = HttpUpstream(UpstreamSettings(stub.url, max_connections=1, slot_wait=0.05))
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(call(client))
        await until(lambda: len(stub.requests) == 1)
        with pytest.raises(NotSent) as caught:
            await client.send(request(), allow)
        held.set()
    assert caught.value.reason is NotSentReason.NO_SLOT
    assert first.result() == (204, b"")
    assert len(stub.requests) == 1
    await client.close()


async def test_a_connection_cut_before_the_write_is_not_sent(stub: Stub) -> None:
    """The upstream accepts and resets at once, over and over: either the client saw it before writing, and says so, or it is in doubt
    only about bytes that it wrote: the upstream never gets a request twice.
    """

    async def script(peer: Peer) -> None:
        peer.reset()

    stub.script = script
    client = HttpUpstream(UpstreamSettings(stub.url))
    fence = Fence()
    with pytest.raises(Exception, match=r"connection_refused|upstream_disconnected") as caught:
        await client.send(request(), fence)
    assert fence.asked == (0 if isinstance(caught.value, NotSent) else 1)
    assert stub.requests == []
    await client.close()
    assert client.open == 0


async def test_a_closed_client_refuses_calls(stub: Stub) -> None:
    """Also those that wait for a slot or a connection; exchanges under way go on, and their connection is cut at their end."""
    held = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await held.wait()
        await peer.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    stub.script = script
    client = HttpUpstream(UpstreamSettings(stub.url, max_connections=1, slot_wait=30))
    running = asyncio.ensure_future(call(client))
    await until(lambda: len(stub.requests) == 1)
    waiting = asyncio.ensure_future(call(client))
    await asyncio.sleep(0)
    await client.close()
    for refused in (waiting, call(client)):
        with pytest.raises(NotSent) as caught:
            await refused
        assert caught.value.reason is NotSentReason.SHUTTING_DOWN
    held.set()
    assert await running == (200, b"ok")
    assert client.open == 0
    await client.close()


async def test_a_client_closed_while_connecting_sends_nothing(silent_port: int) -> None:
    """The slot is given back as well."""
    client = HttpUpstream(UpstreamSettings(f"http://127.0.0.1:{silent_port}", connect=0.2))
    connecting = asyncio.ensure_future(client.send(request(), allow))
    await until(lambda: client.open == 1)
    await client.close()
    with pytest.raises(NotSent):
        await connecting
    assert client.open == 0
