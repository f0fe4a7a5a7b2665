"""WebSockets (RFC 6455) through unguarded routes: a handshake, then bytes both ways."""

import asyncio

import pytest

from tests.http.wire.conftest import Wire
from tests.http.wire.peer import ask, connect, request, rest, until
from tests.http.wire.stub import FIN, Turn, reply

pytestmark = pytest.mark.asyncio(loop_scope="module")

UPGRADE = (
    b"Connection: keep-alive, Upgrade",
    b"Upgrade: WebSocket",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
SWITCHED = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: chat\r\n\r\n"
)
FRAME = b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"
"""A masked text frame that says Hello (RFC 6455 section 5.7)."""


async def echo(turn: Turn) -> None:
    """Accept, greet in the same segment, then send back what comes."""
    turn.execute()
    turn.over = True
    await turn.say(SWITCHED + b"\x81\x02hi")
    while piece := await turn.reader.read(2**16):
        await turn.say(piece)


async def test_a_websocket_is_a_pipe(wire: Wire) -> None:
    """RFC 9110 7.8, RFC 6455 4: handshake relayed, frames both ways as bytes, those that came with the handshake first."""
    wire.stub.scripts[b"socket"] = echo
    async with await connect(wire.port) as client:
        await client.send(request(b"socket", b"/chat", *UPGRADE, b"Sec-WebSocket-Protocol: chat"))
        head = await until(client, b"\r\n\r\n")
        line, *lines = head[:-4].split(b"\r\n")
        assert line.startswith(b"HTTP/1.1 101 ")
        assert [line for line in lines if line.lower().startswith(b"sec-websocket")] == SWITCHED.split(b"\r\n")[3:5]
        fields = {line.partition(b":")[0].lower(): line.partition(b": ")[2].lower() for line in lines}
        assert (fields[b"connection"], fields[b"upgrade"]) == (b"upgrade", b"websocket")
        assert b"content-length" not in fields
        assert b"transfer-encoding" not in fields
        assert await client.reader.readexactly(4) == b"\x81\x02hi"
        for payload in (FRAME, b"\x82\xfe\xff\xff" + b"\x00" * 65_539, b"\x89\x80\x00\x00\x00\x00"):
            await client.send(payload)
            async with asyncio.timeout(6):
                assert await client.reader.readexactly(len(payload)) == payload
    seen = wire.stub.one(b"socket")
    assert [value.lower() for value in seen.values(b"Upgrade")] == [b"websocket"]
    assert [value.lower() for value in seen.values(b"Connection")] == [b"upgrade"]
    assert seen.values(b"Sec-WebSocket-Key") == [b"dGhlIHNhbXBsZSBub25jZQ=="]
    assert len(seen.values(b"Via")) == 1
    await wire.stub.until(lambda: seen.connection not in wire.stub.open)


async def test_frames_behind_the_handshake_are_the_first(wire: Wire) -> None:
    """RFC 9110 7.8: what a client sends before it has the 101 goes on, after the switch, and is never taken for a request."""
    wire.stub.scripts[b"socket-early"] = echo
    async with await connect(wire.port) as client:
        await client.send(request(b"socket-early", b"/chat", *UPGRADE) + FRAME)
        await until(client, b"\r\n\r\n")
        async with asyncio.timeout(6):
            assert await client.reader.readexactly(4 + len(FRAME)) == b"\x81\x02hi" + FRAME


async def test_a_tunnel_outlives_the_limits_of_an_exchange(brief: Wire) -> None:
    """Silence of 700 ms and a life of over 1.4 s are nothing to a tunnel, where `read_idle` is 500 ms and `total` 1 s."""
    brief.stub.scripts[b"socket-long"] = echo
    async with await connect(brief.port) as client:
        await client.send(request(b"socket-long", b"/chat", *UPGRADE))
        await until(client, b"\r\n\r\n\x81\x02hi")
        for _ in range(2):
            await asyncio.sleep(0.7)
            await client.send(FRAME)
            async with asyncio.timeout(6):
                assert await client.reader.readexactly(len(FRAME)) == FRAME


async def test_either_end_ends_a_tunnel(wire: Wire) -> None:
    """RFC 6455 7.1.1: when the upstream closes, so does the client's connection, after the last bytes; and the other way round."""

    async def farewell(turn: Turn) -> None:
        turn.execute()
        await turn.say(SWITCHED + b"\x88\x02\x03\xe8")
        turn.finish(FIN)

    wire.stub.scripts[b"socket-end"] = farewell
    async with await connect(wire.port) as client:
        await client.send(request(b"socket-end", b"/chat", *UPGRADE))
        await until(client, b"\r\n\r\n")
        assert await rest(client, within=6) == b"\x88\x02\x03\xe8"


async def test_a_refused_upgrade_is_a_plain_answer(wire: Wire) -> None:
    """RFC 9110 7.8: the upstream may go on in HTTP: its answer is relayed and the connection serves the next request."""
    wire.stub.scripts[b"socket-no"] = reply(b"HTTP/1.1 403 No Sockets\r\nContent-Length: 2\r\n\r\nno")
    async with await connect(wire.port) as client:
        answer = await ask(client, request(b"socket-no", b"/chat", *UPGRADE))
        assert (answer.status, answer.reason, answer.body) == (403, b"No Sockets", b"no")
        assert (await ask(client, request(b"socket-no-next"))).status == 201


NO_UPGRADE = {
    "9110-7.8 not nominated": (b"Upgrade: websocket",),
    "9110-7.8 another protocol": (b"Connection: upgrade", b"Upgrade: h2c"),
    "9110-7.8 several protocols": (b"Connection: upgrade", b"Upgrade: h2c, IRC/6.9"),
}


@pytest.mark.parametrize("lines", NO_UPGRADE.values(), ids=NO_UPGRADE.keys())
async def test_other_upgrades_are_dropped(wire: Wire, lines: tuple[bytes, ...]) -> None:
    """RFC 9110 7.8: what is not a WebSocket handshake stays HTTP, and nothing of the wish goes on."""
    case = b"no-upgrade-%d" % list(NO_UPGRADE.values()).index(lines)
    async with await connect(wire.port) as client:
        assert (await ask(client, request(case, b"/chat", *lines))).status == 201
        assert (await ask(client, request(case + b"-next"))).status == 201
    assert wire.stub.one(case).values(b"Upgrade") == []


async def test_a_websocket_for_http10_is_no_websocket(wire: Wire) -> None:
    """RFC 9110 7.8: Upgrade in an HTTP/1.0 request is ignored."""
    raw = request(b"socket-10", b"/chat", *UPGRADE).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    assert (await ask(wire.port, raw)).status == 201
    assert wire.stub.one(b"socket-10").values(b"Upgrade") == []
