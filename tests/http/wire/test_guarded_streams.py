"""Guarded answers that are relayed as they come: `stream: true`, and all above `response_body`."""

import asyncio
import hashlib

import asyncpg
import pytest

from tests.http.wire.conftest import Wire
from tests.http.wire.paced import Paced, chunk, event, next_chunk
from tests.http.wire.peer import SlowClient, ask, connect, guarded, reset, slug, until
from tests.http.wire.stub import CREATED, FIN, Turn, reply

pytestmark = pytest.mark.asyncio(loop_scope="module")

TIMEOUTS = "{connect: 2s, first_byte: 20s, read_idle: 20s, total: 40s}"
"""Longer than any wait here: whatever ends sooner was not ended by a limit."""
MIB = 2**20


async def test_a_guarded_stream_arrives_as_it_comes_and_its_retry_gets_it_whole(wire: Wire) -> None:
    """What is not the end is with the client while the upstream still sends; a retry gets every event."""
    paced = Paced()
    wire.stub.scripts[b"model"] = paced.script
    sent, got = 0, b""
    async with await connect(wire.port) as client:
        await client.send(guarded(b"model", target=b"/v1/stream"))
        await until(client, b"\r\n\r\n")
        reading = asyncio.get_running_loop().create_task(next_chunk(client))
        for wanted in (0, 2, 5):
            while event(wanted) not in got:
                paced.tell(sent)
                sent += 1
                assert sent < 200
                await asyncio.wait({reading}, timeout=0.05)
                if reading.done():
                    got += reading.result()
                    reading = asyncio.get_running_loop().create_task(next_chunk(client))
        paced.end()
        while piece := await reading:
            got += piece
            reading = asyncio.get_running_loop().create_task(next_chunk(client))
    whole = b"".join(event(number) for number in range(sent))
    assert got == whole
    again = await ask(wire.port, guarded(b"model", target=b"/v1/stream"))
    assert (again.status, again.body, again.field("idempotent-replayed")) == (200, whole, b"true")
    assert again.field("content-type") == b"text/event-stream"
    assert wire.stub.runs[b"model"] == 1


async def test_the_last_piece_waits_for_the_commit(wire: Wire) -> None:
    """While the record cannot be written the transfer does not end; once it ends, the record is completed."""
    paced = Paced()
    wire.stub.scripts[b"commit"] = paced.script
    connection = await asyncpg.connect(wire.database)
    try:
        async with await connect(wire.port) as client:
            await client.send(guarded(b"commit", target=b"/v1/stream"))
            await until(client, b"\r\n\r\n")
            async with connection.transaction():
                await connection.execute("SELECT 1 FROM gateway_records WHERE idempotency_key = 'commit' FOR UPDATE")
                paced.tell(0, 1, 2)
                paced.end()
                got = b""
                reading = asyncio.get_running_loop().create_task(next_chunk(client))
                while (await asyncio.wait({reading}, timeout=0.5))[0]:
                    got += reading.result()
                    reading = asyncio.get_running_loop().create_task(next_chunk(client))
                assert event(2) not in got
            while piece := await reading:
                got += piece
                reading = asyncio.get_running_loop().create_task(next_chunk(client))
            assert got == event(0) + event(1) + event(2)
        status = await connection.fetchval("SELECT status::text FROM gateway_records WHERE idempotency_key = 'commit'")
        assert status == "completed"
    finally:
        await connection.close()


EMPTY = {
    "9110-15.3.5 204": b"HTTP/1.1 204 No Content\r\n\r\n",
    "9110-15.4.5 304": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
    "9112-6.3 length 0": b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n",
    "9112-7.1 no chunk": b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "one piece": CREATED,
}


@pytest.mark.parametrize("name", EMPTY)
async def test_an_answer_without_a_body_waits_whole_for_the_commit(wire: Wire, name: str) -> None:
    """On a streaming route too an answer that ends with its head, or with its first piece, is not whole before its record is."""
    case = slug(f"commit {name}")
    go = asyncio.Event()

    async def gated(turn: Turn) -> None:
        await turn.body()
        turn.execute()
        await go.wait()
        await turn.say(EMPTY[name])

    wire.stub.scripts[case] = gated
    connection = await asyncpg.connect(wire.database)
    try:
        async with await connect(wire.port) as client:
            await client.send(guarded(case, target=b"/v1/stream"))
            await wire.stub.until(lambda: wire.stub.runs[case] == 1)
            receiving = asyncio.get_running_loop().create_task(client.receive())
            async with connection.transaction():
                await connection.execute("SELECT 1 FROM gateway_records WHERE idempotency_key = $1 FOR UPDATE", case.decode())
                go.set()
                done, _ = await asyncio.wait({receiving}, timeout=0.5)
                assert not done
            assert (await asyncio.wait_for(receiving, 6)).status < 400
        again = await ask(wire.port, guarded(case, target=b"/v1/stream"))
        assert again.field("idempotent-replayed") == b"true"
    finally:
        await connection.close()


async def test_a_client_that_leaves_a_guarded_stream_finds_it_whole(wire: Wire) -> None:
    """The attempt is the process', not the connection's: the upstream is read to its end, and the retry gets all of it."""
    paced = Paced()
    wire.stub.scripts[b"left-model"] = paced.script
    sent = 0
    async with await connect(wire.port) as client:
        await client.send(guarded(b"left-model", target=b"/v1/stream"))
        await until(client, b"\r\n\r\n")
        reading = asyncio.get_running_loop().create_task(next_chunk(client))
        while not reading.done():
            paced.tell(sent)
            sent += 1
            await asyncio.wait({reading}, timeout=0.05)
        reset(client)
        paced.tell(sent)
        paced.end()
    async with asyncio.timeout(10):
        while (again := await ask(wire.port, guarded(b"left-model", target=b"/v1/stream"))).status != 200:
            assert again.problem == "request-in-progress"
            await asyncio.sleep(0.02)
    assert again.body == b"".join(event(number) for number in range(sent + 1))
    assert wire.stub.runs[b"left-model"] == 1


@pytest.mark.parametrize("target", [b"/v1/small", b"/v1/stream"])
@pytest.mark.parametrize("framing", ["length", "chunked", "until close"])
async def test_an_answer_above_the_limit_is_relayed_and_not_kept(wire: Wire, framing: str, target: bytes) -> None:
    """All of it goes out, the record completes without it, and the retry is told so, with no second run."""
    case = b"above-" + framing.replace(" ", "-").encode() + target.replace(b"/", b"-")
    body = b"0123456789abcdef" * 2**17
    lines = {"length": b"Content-Length: %d" % len(body), "chunked": b"Transfer-Encoding: chunked", "until close": b"X-Close: 1"}[framing]
    sent = chunk(body) + b"0\r\n\r\n" if framing == "chunked" else body
    wire.stub.scripts[case] = reply(b"HTTP/1.1 201 Created\r\n%b\r\n\r\n%b" % (lines, sent), FIN if framing == "until close" else "keep")
    first = await ask(wire.port, guarded(case, target=target), within=20)
    assert (first.status, len(first.body)) == (201, len(body))
    assert hashlib.sha256(first.body).digest() == hashlib.sha256(body).digest()
    again = await ask(wire.port, guarded(case, target=target))
    assert (again.status, again.problem) == (409, "response-not-stored")
    assert b'"original_status":201' in again.body
    assert wire.stub.runs[case] == 1


@pytest.mark.parametrize("target", [b"/v1/small", b"/v1/stream"])
async def test_a_slow_client_never_slows_the_reading_of_a_guarded_upstream(wire: Wire, target: bytes) -> None:
    """The last of 32 MiB is taken from the upstream while the client has read nothing; then it gets it whole."""
    case = b"slow" + target.replace(b"/", b"-")
    size, piece = 32 * MIB, bytes(range(256)) * 2**12
    taken = asyncio.Event()

    async def pour(turn: Turn) -> None:
        await turn.body()
        turn.execute()
        await turn.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // MIB):
            await turn.say(piece)
        turn.writer.transport.set_write_buffer_limits(high=0)
        await turn.writer.drain()
        taken.set()

    wire.stub.scripts[case] = pour
    with SlowClient() as slow:
        await slow.send(wire.port, guarded(case, b"Connection: close", target=target))
        await asyncio.wait_for(taken.wait(), 20)
        data = await asyncio.wait_for(slow.all(size + 2**16), 30)
    body = data.partition(b"\r\n\r\n")[2]
    assert len(body) == size
    assert hashlib.sha256(body).digest() == hashlib.sha256(piece * (size // MIB)).digest()
    again = await ask(wire.port, guarded(case, target=target))
    assert (again.status, again.problem) == (409, "response-not-stored")
    assert wire.stub.runs[case] == 1
