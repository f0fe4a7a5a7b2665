"""Limits on clients and memory: who is too slow, too large or too many is told so, or cut, and nobody else notices."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.http.wire.conftest import ROUTES, Wire
from tests.http.wire.peer import SlowClient, ask, ask_or_cut, connect, guarded, request, rest, slug, until
from tests.http.wire.stub import CREATED, Stub, Turn, reply
from tests.support.client import Client
from tests.support.gateway import Setup, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLIENT = """client: {header_timeout: 700ms, body_timeout: 700ms, send_timeout: 1s, idle_timeout: 1s, min_rate: 4B,
  half_close_timeout: 300ms, max_connections: 40, max_connections_per_address: 8, max_header_size: 16KiB, max_headers: 40}
memory: {total: 16MiB}
trusted_proxies: [127.0.0.2/32]"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(module_database: str, module_redis: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Wire]:
    """A gateway with small limits."""
    async with Stub() as stub:
        timeouts = "{connect: 1s, first_byte: 20s, read_idle: 20s, total: 40s}"
        setup = Setup(module_database, stub.port, module_redis, routes=ROUTES, timeouts=timeouts, more=CLIENT, health="{failures: 0}")
        folder = tmp_path_factory.mktemp("edges")
        async with running(setup, folder) as process, Wire(process, stub, module_database) as wire:
            yield wire
        assert stub.faults == []


# ---- heads


HEADS = {
    "6585-5 one long line": ((b"X-Long: " + b"x" * 20_000,), 431),
    "6585-5 many lines": (tuple(b"X-%d: 1" % number for number in range(60)), 431),
    "6585-5 many long lines": (tuple(b"X-%d: %b" % (number, b"x" * 1000) for number in range(20)), 431),
    "6585-5 a long name": ((b"X" * 20_000 + b": 1",), 431),
    "6585-5 just below": (tuple(b"X-%d: %b" % (number, b"x" * 400) for number in range(30)), 201),
}


@pytest.mark.parametrize(("lines", "status"), HEADS.values(), ids=HEADS.keys())
@pytest.mark.parametrize("target", [b"/plain", b"/v1/pay"])
async def test_heads_beyond_the_limits_are_431(wire: Wire, target: bytes, lines: tuple[bytes, ...], status: int) -> None:
    """RFC 6585 5: the whole head counts, in bytes and in lines; told so in our format, and the connection ends."""
    case = slug(f"{lines[0]!r} {len(lines)} {target!r}")
    async with await connect(wire.port) as client:
        answer = await ask(client, guarded(case, *lines, target=target))
        assert answer.status == status
        if status == 431:
            assert answer.problem == "header-too-large"
            assert await rest(client) == b""
            assert wire.stub.of(case) == []


async def test_a_target_beyond_the_limit_is_refused(wire: Wire) -> None:
    """RFC 9110 15.5.15: 414 or 431, whether or not the line ever ends."""
    for raw in (request(b"target", b"/" + b"x" * 20_000), b"GET /" + b"x" * 40_000):
        async with await connect(wire.port) as client:
            answer = await ask(client, raw)
            assert answer.status in {414, 431}
            assert await rest(client) == b""
    assert wire.stub.of(b"target") == []


async def test_a_head_without_end_is_not_taken_in(wire: Wire) -> None:
    """RFC 6585 5: the limit counts before the head has ended, however small the pieces."""
    async with await connect(wire.port) as client:
        await client.send(b"GET /plain HTTP/1.1\r\nHost: a\r\n")
        try:
            for number in range(200):
                await client.send(b"X-%d: %b\r\n" % (number, b"x" * 500))
        except ConnectionError:
            return
        assert (await client.receive()).status == 431


# ---- slow clients


async def test_a_slow_head_is_408(wire: Wire) -> None:
    """RFC 9110 15.5.9: a head that does not become whole in time, sent byte by byte or not at all, is told so and cut."""

    async def drip(client: Client) -> None:
        for byte in b"GET /plain HTTP/1.1\r\nHost: gateway.test\r\nX-Slow: " + b"x" * 1000:
            await client.send(bytes((byte,)))
            await asyncio.sleep(0.05)

    async with await connect(wire.port) as client:
        dripping = asyncio.get_running_loop().create_task(drip(client))
        answer = await asyncio.wait_for(client.receive(), 6)
        assert (answer.status, answer.problem, answer.field("connection")) == (408, "request-timeout", b"close")
        assert await rest(client) == b""
        with pytest.raises(ConnectionError):
            await dripping


async def test_a_silent_client_is_cut(wire: Wire) -> None:
    """RFC 9112 9.5: a connection on which nothing comes is closed, before the first request and between two."""
    async with await connect(wire.port) as client:
        await rest(client, within=6)
    async with await connect(wire.port) as client:
        assert (await ask(client, request(b"idle"))).status == 201
        assert await rest(client, within=6) == b""


@pytest.mark.parametrize("target", [b"/plain", b"/v1/pay"])
async def test_a_slow_body_is_no_request(wire: Wire, target: bytes) -> None:
    """RFC 9110 15.5.9: a body that falls silent is 408, or the end of the connection; nothing is run and no key is used."""
    case = slug(f"slow body {target!r}")
    head = guarded(case, target=target).replace(b"Content-Length: 2\r\n\r\n{}", b"Content-Length: 100\r\n\r\n{")
    async with await connect(wire.port) as client:
        await client.send(head)
        left = await rest(client, within=6)
        assert left == b"" or left.startswith(b"HTTP/1.1 408 ")
    assert wire.stub.runs[case] == 0
    assert await wire.record(case) is None
    await wire.stub.until(lambda: not any(seen.connection in wire.stub.open for seen in wire.stub.of(case)))


async def test_a_body_that_keeps_coming_is_waited_for(wire: Wire) -> None:
    """The limit is one of silence, not of the whole: a body in pieces may take longer."""
    head = guarded(b"steady").replace(b"Content-Length: 2\r\n\r\n{}", b"Content-Length: 6\r\n\r\n")
    async with await connect(wire.port) as client:
        await client.send(head)
        for byte in b'{"a":1':
            await asyncio.sleep(0.2)
            await client.send(bytes((byte,)))
        assert (await client.receive()).status == 201


@pytest.mark.parametrize("target", [b"/plain", b"/v1/pay"])
async def test_a_body_below_the_least_rate_is_no_request(wire: Wire, target: bytes) -> None:
    """Something comes each time before the silence is too long, and yet on the whole too little: nobody holds a slot with that."""
    case = slug(f"trickle {target!r}")
    size = b"%d" % (90_000 if target == b"/plain" else 100)
    head = guarded(case, target=target).replace(b"Content-Length: 2\r\n\r\n{}", b"Content-Length: " + size + b"\r\n\r\n{")
    async with await connect(wire.port) as client:
        await client.send(head)
        answer = asyncio.ensure_future(rest(client, within=30))
        while not answer.done():
            with contextlib.suppress(ConnectionError):
                await client.send(b" ")
            await asyncio.wait({answer}, timeout=0.4)
        assert (await answer)[:13] in {b"", b"HTTP/1.1 408 "}
    assert wire.stub.runs[case] == 0
    assert await wire.record(case) is None
    await wire.stub.until(lambda: not any(seen.connection in wire.stub.open for seen in wire.stub.of(case)))


async def events(turn: Turn) -> None:
    """An event stream that has nothing to tell, to a client that has ended its sending meanwhile."""
    await turn.body()
    await asyncio.sleep(0.3)
    await turn.say(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: hello\n\n")
    await turn.left()


async def test_a_silent_stream_is_not_held_open_for_a_client_that_may_be_gone(wire: Wire) -> None:
    """Its end of sending came before the answer began: after `half_close_timeout` of silence the upstream's slot comes free."""
    wire.stub.scripts[b"gone-before"] = events
    async with await connect(wire.port) as client:
        await client.send(request(b"gone-before"))
        client.writer.write_eof()
        assert b": hello" in await rest(client, within=10)
        used = wire.stub.one(b"gone-before").connection
        await wire.stub.until(lambda: used not in wire.stub.open)


async def test_a_client_that_takes_nothing_is_cut(wire: Wire) -> None:
    """A client that reads nothing for `send_timeout` loses its connection, and the upstream's is not held for it."""
    size = 32 * 2**20

    async def pour(turn: Turn) -> None:
        await turn.body()
        await turn.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(32):
            await turn.say(b"x" * 2**20)

    wire.stub.scripts[b"takes-nothing"] = pour
    with SlowClient() as slow:
        await slow.send(wire.port, request(b"takes-nothing"))
        await wire.stub.until(lambda: len(wire.stub.of(b"takes-nothing")) == 1)
        used = wire.stub.one(b"takes-nothing").connection
        await wire.stub.until(lambda: used not in wire.stub.open)
        assert len(await asyncio.wait_for(slow.all(size), 10)) < size


@pytest.mark.parametrize("target", [b"/plain", b"/v1/pay", b"/v1/stream"])
async def test_a_client_that_ends_its_side_gets_its_answer(wire: Wire, target: bytes) -> None:
    """RFC 9112 9.6: half a close is no good-bye: the request was whole, so its answer comes, and then the end."""
    case = slug(f"half close {target!r}")

    async def later(turn: Turn) -> None:
        await turn.body()
        await asyncio.sleep(0.3)
        turn.execute()
        await turn.say(CREATED)

    wire.stub.scripts[case] = later
    async with await connect(wire.port) as client:
        await client.send(guarded(case, target=target))
        client.writer.write_eof()
        answer = await asyncio.wait_for(client.receive(), 6)
        assert (answer.status, answer.body) == (201, b"created")
        assert await rest(client) == b""
    assert wire.stub.runs[case] == 1


# ---- many clients


async def hold(port: int, count: int, local: str) -> list[Client]:
    """Connections from one address, each in the middle of a head."""
    clients = [await connect(port, local=local) for _ in range(count)]
    for client in clients:
        await client.send(request(b"held"))
        await client.receive()
    return clients


async def test_too_many_connections_of_one_client_are_503(wire: Wire) -> None:
    """Those of one address are counted apart: the next one is told so, other addresses are served, and a freed place is free."""
    clients = await hold(wire.port, 8, "127.0.0.8")
    try:
        async with await connect(wire.port, local="127.0.0.8") as ninth:
            answer = await ask(ninth, request(b"ninth"))
            assert (answer.status, answer.problem) == (503, "too-many-connections")
            assert await rest(ninth) == b""
        assert wire.stub.of(b"ninth") == []
        assert (await ask(wire.port, request(b"other"))).status == 201
    finally:
        for client in clients:
            client.close()
    await _served_again(wire, "127.0.0.8")


async def test_too_many_connections_in_all_are_503(wire: Wire) -> None:
    """One process takes so many and no more; the next one is told so instead of being left to wait."""
    clients: list[Client] = []
    try:
        for number in range(5):
            clients += await hold(wire.port, 8, f"127.0.1.{number + 1}")
        async with await connect(wire.port, local="127.0.2.1") as late:
            answer = await ask(late, request(b"late"))
            assert (answer.status, answer.problem) == (503, "too-many-connections")
    finally:
        for client in clients:
            client.close()
    await _served_again(wire, "127.0.2.1")


async def _served_again(wire: Wire, local: str) -> None:
    async with asyncio.timeout(10):
        while True:
            async with await connect(wire.port, local=local) as client:
                if (await ask(client, request(b"again"))).status == 201:
                    return


async def test_beyond_the_total_memory_new_work_is_503_and_leaves_its_key_free(wire: Wire) -> None:
    """Bodies of 16 MiB in all are held at once: what comes then is refused as a whole, and runs once there is room again."""
    release = asyncio.Event()

    async def held(turn: Turn) -> None:
        await turn.body()
        turn.execute()
        await release.wait()
        await turn.say(CREATED)

    body = b"x" * 1_000_000
    cases = [b"memory-%d" % number for number in range(24)]
    addresses = [f"127.0.3.{number // 8 + 1}" for number in range(24)]

    async def one(case: bytes, local: str) -> int:
        async with await connect(wire.port, local=local) as client:
            answer = await ask(client, guarded(case, body=body), within=20)
            assert answer.status == 201 or (answer.status, answer.problem) == (503, "overloaded")
            return answer.status

    for case in cases:
        wire.stub.scripts[case] = held
    tasks = [asyncio.get_running_loop().create_task(one(*pair)) for pair in zip(cases, addresses, strict=True)]
    try:
        await wire.stub.until(lambda: any(task.done() for task in tasks))
    finally:
        release.set()
    statuses = await asyncio.gather(*tasks)
    assert set(statuses) == {201, 503}
    again = [await one(case, "127.0.3.9") for case, status in zip(cases, statuses, strict=True) if status == 503]
    assert set(again) == {201}
    assert {wire.stub.runs[case] for case in cases} == {1}


# ---- request ids

IDS = {
    "kept": (b"abc-DEF_123.4", True),
    "128 characters": (b"x" * 128, True),
    "129 characters": (b"x" * 129, False),
    "blank inside": (b"a b", False),
    "Latin-1": (b"caf\xe9", False),
    "empty": (b"", False),
    "quotes": (b'"><script>', False),
}


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("target", [b"/plain", b"/v1/pay"])
async def test_request_ids_are_kept_or_replaced(wire: Wire, target: bytes, name: str) -> None:
    """One id on the answer, toward the upstream and in the log: the client's if it is well-formed, else a new one."""
    given, kept = IDS[name]
    case = slug(f"id {name} {target!r}")
    answer = await ask(wire.port, guarded(case, b"X-Request-Id: " + given, target=target))
    seen = wire.stub.one(case).values(b"X-Request-Id")
    assert [answer.field("x-request-id")] == seen
    assert (seen == [given]) is kept
    assert seen[0]


TRACE = b"4bf92f3577b34da6a3ce929d0e0e4736"
PARENTS = {
    "of a trace": (b"00-" + TRACE + b"-00f067aa0ba902b7-01", True),
    "not sampled": (b"00-" + TRACE + b"-00f067aa0ba902b7-00", True),
    "a later version": (b"cc-" + TRACE + b"-00f067aa0ba902b7-01-more", True),
    "capital letters": (b"00-" + TRACE.upper() + b"-00f067aa0ba902b7-01", False),
    "no trace": (b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01", False),
    "short": (b"00-" + TRACE[1:] + b"-00f067aa0ba902b7-01", False),
    "nothing": (b"", False),
}


@pytest.mark.parametrize("name", PARENTS)
async def test_a_new_request_id_begins_with_the_trace(wire: Wire, name: str) -> None:
    """So that a record, which keeps it, is found by the trace. What is no trace leaves no mark, and a client's own id stays."""
    parent, told = PARENTS[name]
    case = slug(f"trace {name}")
    await ask(wire.port, guarded(case, b"traceparent: " + parent))
    (seen,) = wire.stub.one(case).values(b"X-Request-Id")
    assert re.fullmatch(TRACE + rb"-[0-9a-f]{16}" if told else rb"[0-9a-f]{32}", seen)
    own = slug(f"own id, trace {name}")
    await ask(wire.port, guarded(own, b"traceparent: " + parent, b"X-Request-Id: mine"))
    assert wire.stub.one(own).values(b"X-Request-Id") == [b"mine"]


async def test_two_request_ids_are_one(wire: Wire) -> None:
    """Two lines are no id that anybody could look for: the upstream gets one."""
    await ask(wire.port, request(b"two-ids", b"/plain", b"X-Request-Id: a", b"X-Request-Id: b"))
    assert len(wire.stub.one(b"two-ids").values(b"X-Request-Id")) == 1


async def test_proxy_status_is_not_told_unless_wanted(wire: Wire) -> None:
    """RFC 9209: it names what stands behind us, so it is off by default; an upstream's own members pass."""
    wire.stub.scripts[b"no-status"] = reply(CREATED.replace(b"Content-Length", b"Proxy-Status: cdn; error=x\r\nContent-Length"))
    answer = await ask(wire.port, request(b"no-status"))
    assert [value for name, value in answer.fields if name.lower() == b"proxy-status"] == [b"cdn; error=x"]
    assert (await ask(wire.port, request(b"no-status-2", b"/v1/pay", method=b"POST", body=b"{}"))).field("proxy-status") is None


# ---- drain


async def test_clients_that_left_do_not_hold_up_the_end(wire: Wire, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A process that is told to stop waits for what runs, not for the rest of a body whose client has gone."""

    async def early(turn: Turn) -> None:
        await turn.say(b"HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno")
        await turn.left()

    wire.stub.scripts[b"left-early"] = early
    setup = Setup(wire.database, wire.stub.port, routes=ROUTES)
    async with running(setup, tmp_path_factory.mktemp("drain")) as process:
        head = b"POST /plain HTTP/1.1\r\nHost: a\r\nX-Case: left-early\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
        refusal = guarded(b"left-refused", b"Idempotency-Key: two").replace(b"Content-Length: 2\r\n\r\n{}", b"Content-Length: 100\r\n\r\n{")
        for raw in (head, refusal):
            async with await connect(process.port) as client:
                assert (await ask(client, raw)).status in {400, 413}
        began = time.monotonic()
        process.terminate()
        await asyncio.wait_for(process.process.wait(), 30)
        assert time.monotonic() - began < 5


async def test_a_reload_changes_the_limits_of_new_connections(wire: Wire) -> None:
    """`client` limits are part of a reload: connections that come then have the new ones."""
    text = wire.gateway.config.read_text()
    try:
        wire.gateway.config.write_text(text.replace("max_headers: 40", "max_headers: 20"))
        status, answer = await wire.gateway.post("/admin/v1/reload")
        assert status == 200, answer
        lines = tuple(b"X-%d: 1" % number for number in range(30))
        assert (await ask_or_cut(wire.port, request(b"reloaded", b"/plain", *lines))).status == 431  # type: ignore[union-attr]  # an answer is due
    finally:
        wire.gateway.config.write_text(text)
        assert (await wire.gateway.post("/admin/v1/reload"))[0] == 200
    assert await until_ok(wire)


async def until_ok(wire: Wire) -> bool:
    async with await connect(wire.port) as client:
        await client.send(request(b"reloaded-back", b"/plain", *(b"X-%d: 1" % number for number in range(30))))
        return (await until(client, b"\r\n")).startswith(b"HTTP/1.1 201 ")
