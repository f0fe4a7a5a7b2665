"""Unguarded requests that take their time: event streams, uploads, downloads, and clients that leave."""

import asyncio

import pytest

from tests.http.wire.conftest import Wire
from tests.http.wire.paced import Paced, event, next_chunk
from tests.http.wire.peer import SlowClient, ask, connect, request, reset, slug, until
from tests.http.wire.stub import DATE, Turn, reply
from tests.support.client import Client

pytestmark = pytest.mark.asyncio(loop_scope="module")

TIMEOUTS = "{connect: 2s, first_byte: 20s, read_idle: 20s, total: 40s}"
"""Longer than any wait here: whatever ends sooner was not ended by a limit."""
MIB = 2**20


async def test_events_arrive_one_by_one(wire: Wire) -> None:
    """RFC 9112 7.1: each event is with the client before the next one is sent; the end arrives as the end."""
    paced = Paced()
    wire.stub.scripts[b"events"] = paced.script
    async with await connect(wire.port) as client:
        await client.send(request(b"events"))
        head = await until(client, b"\r\n\r\n")
        assert b"\r\nContent-Type: text/event-stream\r\n" in head
        for number in range(5):
            paced.tell(number)
            assert await next_chunk(client) == event(number)
        paced.end()
        assert await next_chunk(client) == b""
        assert (await ask(client, request(b"events-next"))).status == 201


async def test_a_long_stream_outlives_the_limits_of_an_exchange(brief: Wire) -> None:
    """`total` (1 s here) bounds the wait for an answer, not a stream that goes on; `read_idle` (500 ms) is none for an event stream."""
    paced = Paced()
    brief.stub.scripts[b"long"] = paced.script
    async with await connect(brief.port) as client:
        await client.send(request(b"long"))
        await until(client, b"\r\n\r\n")
        for number in range(3):
            paced.tell(number)
            assert await next_chunk(client) == event(number)
            await asyncio.sleep(0.6)
        paced.end()
        assert await next_chunk(client) == b""


async def test_a_long_download_outlives_the_limit_of_an_exchange(brief: Wire) -> None:
    """A body that keeps coming may take longer than `total` (1 s here), under a length too."""

    async def drip(turn: Turn) -> None:
        await turn.body()
        await turn.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (8 * MIB))
        for _ in range(8):
            await asyncio.sleep(0.2)
            await turn.say(b"x" * MIB)

    brief.stub.scripts[b"drip"] = drip
    answer = await ask(brief.port, request(b"drip"), within=20)
    assert (answer.status, len(answer.body)) == (200, 8 * MIB)


async def test_a_client_that_leaves_ends_the_stream(wire: Wire) -> None:
    """RFC 9112 9.5: the upstream's connection is closed soon after the client's, though the upstream says nothing."""
    for number, leave in enumerate((Client.close, reset)):
        paced = Paced()
        case = b"leaves-%d" % number
        wire.stub.scripts[case] = paced.script
        async with await connect(wire.port) as client:
            await client.send(request(case))
            await until(client, b"\r\n\r\n")
            paced.tell(1)
            assert await next_chunk(client) == event(1)
            leave(client)
            await asyncio.wait_for(paced.gone.wait(), 8)


async def test_a_client_that_leaves_before_the_answer_ends_the_exchange(wire: Wire) -> None:
    """RFC 9112 9.5: nobody waits for this answer any more: the upstream's connection is closed, not kept until a timeout."""
    gone = asyncio.Event()

    async def silent(turn: Turn) -> None:
        await turn.body()
        turn.execute()
        await turn.left()
        gone.set()

    wire.stub.scripts[b"leaves-early"] = silent
    async with await connect(wire.port) as client:
        await client.send(request(b"leaves-early", method=b"POST", body=b"{}"))
        await wire.stub.until(lambda: wire.stub.runs[b"leaves-early"] == 1)
        reset(client)
        await asyncio.wait_for(gone.wait(), 8)


async def test_uploads_arrive_as_they_are_sent(wire: Wire) -> None:
    """RFC 9112 7.1: each piece of a chunked upload is with the upstream before the next one is sent, in chunks of our own."""
    got: asyncio.Queue[bytes] = asyncio.Queue()

    async def taking(turn: Turn) -> None:
        async for piece in turn.pieces():
            got.put_nowait(piece)
        await turn.say(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    wire.stub.scripts[b"upload"] = taking
    head = b"POST /plain HTTP/1.1\r\nHost: gateway.test\r\nX-Case: upload\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with await connect(wire.port) as client:
        await client.send(head)
        for number in range(5):
            await client.send(b"7;x=y\r\npiece-%d\r\n" % number)
            assert await asyncio.wait_for(got.get(), 6) == b"piece-%d" % number
        await client.send(b"0\r\nX-Trailer: 1\r\n\r\n")
        assert (await client.receive()).status == 200
    assert b"X-Trailer" not in wire.stub.one(b"upload").wire


BROKEN_OFF = {
    "9112-8 chunked": (b"Transfer-Encoding: chunked", b"5\r\nhello\r\n"),
    "9112-8 length": (b"Content-Length: 100000", b"hello"),
}


@pytest.mark.parametrize(("framing", "piece"), BROKEN_OFF.values(), ids=BROKEN_OFF.keys())
async def test_an_upload_that_breaks_off_is_no_request(wire: Wire, framing: bytes, piece: bytes) -> None:
    """RFC 9112 8: what the client did not finish never looks whole to the upstream."""
    case, stub = slug(f"breaks off {framing!r}"), wire.stub
    async with await connect(wire.port) as client:
        await client.send(b"POST /plain HTTP/1.1\r\nHost: gateway.test\r\nX-Case: %b\r\n%b\r\n\r\n%b" % (case, framing, piece))
        await stub.until(lambda: len(stub.of(case)) == 1)
        reset(client)
    await stub.until(lambda: stub.one(case).connection not in stub.open)
    assert not stub.one(case).whole
    assert stub.runs[case] == 0


async def test_a_slow_client_holds_an_unguarded_download_back(wire: Wire) -> None:
    """Bounded memory: what nobody takes is not read either; then all of it arrives."""
    size, piece = 48 * MIB, b"x" * MIB
    taken = 0

    async def pour(turn: Turn) -> None:
        nonlocal taken
        await turn.body()
        await turn.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while taken < size:
            await turn.say(piece)
            taken += MIB

    wire.stub.scripts[b"backpressure"] = pour
    with SlowClient() as slow:
        await slow.send(wire.port, request(b"backpressure", b"/plain", b"Connection: close"))
        before = -1
        while taken != before:
            before = taken
            await asyncio.sleep(0.2)
        assert taken < size // 2
        data = await asyncio.wait_for(slow.all(size + 2**16), 30)
    assert len(data.partition(b"\r\n\r\n")[2]) == size


async def test_preflight_needs_no_key(wire: Wire) -> None:
    """Fetch standard, CORS: OPTIONS on a guarded path passes, its fields as they are."""
    lines = [b"Access-Control-Allow-Origin: https://shop.test", b"Access-Control-Allow-Headers: idempotency-key", b"Vary: Origin"]
    wire.stub.scripts[b"preflight"] = reply(b"\r\n".join([b"HTTP/1.1 204 No Content", DATE, *lines, b"", b""]))
    asked = (b"Origin: https://shop.test", b"Access-Control-Request-Method: POST", b"Access-Control-Request-Headers: idempotency-key")
    answer = await ask(wire.port, request(b"preflight", b"/v1/pay", *asked, method=b"OPTIONS"))
    assert answer.status == 204
    assert [line for line in answer.head.split(b"\r\n") if line in lines] == lines
    assert [line for line in wire.stub.one(b"preflight").lines if line in asked] == list(asked)
