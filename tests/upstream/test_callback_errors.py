"""A mistake of ours in a callback of a connection: its exchange ends in doubt, nobody hangs, and the connection is not
used again.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from gateway.ports import DoubtReason, InDoubt, NotSent
from gateway.upstream import Balancer, Exchange, Health, HttpUpstream, UpstreamSettings
from gateway.upstream.connection import Connection
from gateway.upstream.parser import ResponseParser
from gateway.upstream.pool import Pool
from gateway.upstream.tunnel import UpstreamTunnel
from tests.upstream.stub import HOST, OK, Peer, Script, Stub, allow, call, raw, request, until, whole

MIB = 1024 * 1024
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n"


class Mistake(Exception):
    """What is injected."""


def raises(*_: object, **__: object) -> None:
    raise Mistake


async def reset(peer: Peer) -> None:
    await peer.request()
    peer.reset()


async def keep_silent(peer: Peer) -> None:
    await peer.request()
    await peer.closed_by_client()


async def read_late(peer: Peer) -> None:
    """Begin to take the body after a while, never answer."""
    await peer.reader.readuntil(b"\r\n\r\n")
    await asyncio.sleep(0.2)
    await peer.closed_by_client()


CASES: dict[str, tuple[type, str, Script, bytes]] = {
    "bytes": (Exchange, "received", raw(OK), b"{}"),
    "bytes, in the parser": (ResponseParser, "on_header", raw(OK), b"{}"),
    "bytes, at the end of the head": (ResponseParser, "on_headers_complete", raw(OK), b"{}"),
    "bytes, at the end of the response": (ResponseParser, "on_message_complete", raw(OK), b"{}"),
    "a body": (ResponseParser, "on_body", raw(OK), b"{}"),
    "the end of the stream": (Exchange, "ended", raw(b"", close=True), b"{}"),
    "a reset": (Exchange, "lost", reset, b"{}"),
    "the alarm": (Exchange, "expired", keep_silent, b"{}"),
    "bytes that have left": (Exchange, "drained", read_late, b"x" * 16 * MIB),
}


async def doubt(client: HttpUpstream | Balancer, body: bytes = b"{}", fence: Callable[[], bool] = allow) -> InDoubt:
    with pytest.raises(InDoubt) as caught:
        async with asyncio.timeout(10):
            await client.send(request(body=body), fence)
    return caught.value


def logged(caplog: pytest.LogCaptureFixture) -> list[object]:
    """The exceptions that the log tells of."""
    return [record.exc_info[0] for record in caplog.records if record.levelno == logging.ERROR and record.exc_info]


@pytest.mark.parametrize(("where", "name", "script", "body"), CASES.values(), ids=CASES)
async def test_a_mistake_in_a_callback_ends_in_doubt(
    stub: Stub,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: type,
    name: str,
    script: Script,
    body: bytes,
) -> None:
    """Whichever it is: what was sent may have been executed. The log has the exception, and the next call works."""
    client = HttpUpstream(UpstreamSettings(stub.url, first_byte=0.5))
    stub.script = script
    with monkeypatch.context() as patched:
        patched.setattr(where, name, raises)
        assert (await doubt(client, body)).reason is DoubtReason.GATEWAY_ERROR
        assert client.open == 0
        assert Mistake in logged(caplog)
    stub.script = raw(OK)
    assert await call(client) == (200, b"ok")
    await client.close()


async def test_a_mistake_after_the_head_ends_the_body(stub: Stub, upstream: HttpUpstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """The status is evidence, as ever."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(OK[:-2])
        await stub.seen.wait()
        await peer.answer(b"ok")

    stub.script = script
    response = await upstream.send(request(), allow)
    monkeypatch.setattr(Exchange, "received", raises)
    stub.seen.set()
    with pytest.raises(InDoubt) as caught:
        await whole(response)
    assert (caught.value.reason, caught.value.status, upstream.open) == (DoubtReason.GATEWAY_ERROR, 200, 0)


async def test_a_mistake_of_the_callers_ends_in_doubt(stub: Stub, upstream: HttpUpstream) -> None:
    """In the function that hands on interim responses; in the fence, asked again while bytes wait; in what is called at
    a failure.
    """
    stub.script = raw(HINTS + OK)
    hinted = replace(request(), informational=raises)
    with pytest.raises(InDoubt) as caught:
        await upstream.send(hinted, allow)
    assert caught.value.reason is DoubtReason.GATEWAY_ERROR

    asked = 0

    def fence() -> bool:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise Mistake
        return True

    stub.script = read_late
    assert (await doubt(upstream, b"x" * 16 * MIB, fence)).reason is DoubtReason.GATEWAY_ERROR

    stub.script = reset
    balancer = Balancer([("one", upstream, Health(1, 60.0))], raises)
    assert (await doubt(balancer)).reason is DoubtReason.GATEWAY_ERROR
    assert upstream.open == 0


async def test_a_fence_that_raises_at_first_lets_nothing_out(stub: Stub, upstream: HttpUpstream) -> None:
    """Nothing was written: the connection stays, and what it raised is the caller's."""
    await call(upstream)
    with pytest.raises(Mistake):
        await upstream.send(request(), raises)  # type: ignore[arg-type]  # returns never
    assert (upstream.idle, len(stub.requests)) == (1, 1)
    await call(upstream)
    assert stub.connections == 1


class Unwritable:
    """A transport whose write fails, in the place of a good one."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.write = raises

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)


async def test_a_write_that_fails_is_a_doubt(stub: Stub, upstream: HttpUpstream) -> None:
    """Some of it may have left. The connection never goes back to the others."""
    await call(upstream)
    (connection,) = upstream._pool._connections
    assert connection._transport is not None
    connection._transport = Unwritable(connection._transport)  # type: ignore[assignment]  # as far as it is used
    assert (await doubt(upstream)).reason is DoubtReason.GATEWAY_ERROR
    assert upstream.open == 0


async def test_a_connection_that_cannot_be_set_up_sent_nothing(
    stub: Stub, upstream: HttpUpstream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without its check no connection may be used."""
    with monkeypatch.context() as patched:
        patched.setattr("select.POLLIN", "no mask")
        with pytest.raises(NotSent):
            await upstream.send(request(), allow)
    assert (upstream.open, stub.requests) == (0, [])
    assert TypeError in logged(caplog)


@pytest.mark.parametrize(("where", "name"), [(Pool, "release"), (Connection, "finish")])
async def test_a_whole_answer_is_given_whatever_becomes_of_its_connection(
    stub: Stub, upstream: HttpUpstream, monkeypatch: pytest.MonkeyPatch, where: type, name: str
) -> None:
    """It is no doubt: all of it is there."""
    with monkeypatch.context() as patched:
        patched.setattr(where, name, raises)
        assert await call(upstream) == (200, b"ok")
    assert upstream.open == 0
    assert await call(upstream) == (200, b"ok")


async def test_a_mistake_in_a_tunnel_ends_it(stub: Stub, upstream: HttpUpstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reader sees the end, and the slot is free."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(SWITCH)
        await stub.seen.wait()
        await peer.answer(b"x")
        await peer.closed_by_client()

    stub.script = script
    asking = replace(request(b"GET", body=b""), headers=HOST, upgrade=b"echo")
    tunnel = (await upstream.send(asking, allow)).tunnel()
    monkeypatch.setattr(UpstreamTunnel, "received", raises)
    stub.seen.set()
    assert await tunnel.read() == b""
    await until(lambda: upstream.open == 0)
