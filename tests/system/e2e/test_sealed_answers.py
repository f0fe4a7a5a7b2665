"""Encrypted answers: dumps hold nothing of requests and answers, keys rotate, and a lost key runs nothing twice."""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest
from redis.asyncio import Redis

from tests.support.client import ask, payment
from tests.support.gateway import Gateway, Setup, running
from tests.support.upstream import CountingUpstream, Exchange

FIRST, SECOND = "first-key-of-the-tests-0123456789abc", "second-key-of-the-tests-0123456789ab"
SEALED = "encryption: {answers: true}\nencryption_key: " + FIRST
ROTATED = f"encryption: {{answers: true}}\nencryption_key: {SECOND}\nformer_encryption_keys: [{FIRST}]"
LOST = "encryption: {answers: true}\nencryption_key: " + SECOND
OFF = "encryption_key: " + FIRST
ROUTES = """
  - id: pay
    methods: [POST]
    path: /v1/pay/{order}
    upstream: payments
    idempotency:
      principal: [{header: Authorization}]
      reconcile:
        probe: lookup
        caller_bound: upstream
        request: {path: "/orders?id={captured.order}"}
        rules: [{when: [{pointer: /done, equals: [true]}], verdict: executed, answer: {status: 201, pointer: /done}}]
        capture: {order: /marker_captured}
  - {id: rest, path: /**, upstream: payments}
"""
WORDS = (b"_body", b"_captured", b"_value", b"_target", b"_query", b"-field", b"_field", b"_answer", b"_line")
MARKERS = [b"marker" + word for word in WORDS]
LARGE = b"marker_answer " * 20000


def order(key: bytes) -> bytes:
    body = b'{"marker_captured": "marker_value", "marker_body": 1}'
    return payment(key, body, target=b"/v1/pay/marker_target?marker_query=1", more=(b"X-Marker-Field: marker_field",))


async def answer_marked(exchange: Exchange) -> None:
    if exchange.seen.method == b"GET":
        assert exchange.seen.target == b"/orders?id=marker_value"
        await exchange.answer(200, b'{"done": false}')
        return
    exchange.execute()
    if exchange.seen.value("idempotency-key") == b"lost":
        exchange.hang_up()
        return
    body = LARGE if exchange.seen.value("idempotency-key") == b"large" else b'{"marker_answer": 1}'
    fields = (b"X-Marker-Field: marker_field",)
    await exchange.send(b"HTTP/1.1 299 marker_line\r\n" + b"\r\n".join(fields) + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


async def dump_postgres(dsn: str) -> bytes:
    """All that the tables hold, bytes as bytes."""
    connection = await asyncpg.connect(dsn)
    try:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        found = [row for (table,) in tables for row in await connection.fetch(f'SELECT * FROM "{table}"')]
        return b"\n".join(value if isinstance(value, bytes) else str(value).encode() for row in found for value in row.values())
    finally:
        await connection.close()


async def dump_redis(url: str) -> bytes:
    client = Redis.from_url(url)
    try:
        names = [name async for name in client.scan_iter()]
        values = [await client.get(name) for name in names if await client.type(name) == b"string"]
        return b"\n".join(part for part in (*names, *values) if isinstance(part, bytes))
    finally:
        await client.aclose()


async def entries(url: str, wanted: int) -> bytes:
    """The dump of Redis once it holds so many entries: it is written behind the answer."""
    async with asyncio.timeout(10):
        while (dump := await dump_redis(url)).count(b"idem:{") < wanted:
            await asyncio.sleep(0.02)
    return dump


async def test_dumps_hold_no_byte_of_request_or_answer(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Neither in Postgres nor in Redis; the answer is replayed as it came. Without encryption the markers are there."""
    upstream.behave = answer_marked
    sealed = replace(setup, routes=ROUTES, max_execution="30s", more=SEALED)
    async with running(sealed, tmp_path) as gateway:
        for key in (b"small", b"large"):
            first, again = await ask(gateway.port, order(key)), await ask(gateway.port, order(key))
            assert (first.status, again.status, again.reason, again.body) == (299, 299, first.reason, first.body)
            assert again.field("x-marker-field") == b"marker_field"
        assert (await ask(gateway.port, order(b"lost"))).status == 502
        assert (await command(gateway, "records look-now", "--key", "lost", "--reason", "r", "--actor", "a", "--yes"))[0] == 0
        dump = b""
        async with asyncio.timeout(30):
            while b"GET /orders?id=hidden" not in dump:  # the look that history has
                dump = await dump_postgres(setup.postgres) + await entries(setup.redis, 2)
                await asyncio.sleep(0.1)
    assert [marker for marker in MARKERS if marker in dump.lower()] == []
    async with running(replace(setup, routes=ROUTES, max_execution="30s"), tmp_path, "clear") as gateway:
        await ask(gateway.port, order(b"clear"))
        shown = (await dump_postgres(setup.postgres) + await entries(setup.redis, 3)).lower()
    assert [marker for marker in MARKERS if marker not in shown] == [
        b"marker_body",
        b"marker_captured",
    ]  # a request's body is stored nowhere


async def test_turned_off_and_on_and_rotated(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Each of them reads what the others wrote, from Redis and from Postgres; nothing runs again."""
    keys: list[bytes] = []
    for name, more in (("clear", OFF), ("sealed", SEALED), ("rotated", ROTATED)):
        async with running(replace(setup, more=more), tmp_path, name) as gateway:
            keys.append(name.encode())
            await ask(gateway.port, payment(keys[-1]))
            assert [(await ask(gateway.port, payment(key))).status for key in keys] == [201] * len(keys)
            await asyncio.sleep(0.1)
    async with running(replace(setup, more=ROTATED, redis=""), tmp_path, "postgres") as gateway:
        assert [(await ask(gateway.port, payment(key))).status for key in keys] == [201] * len(keys)
    assert set(upstream.runs.values()) == {1}


async def test_a_lost_key_is_no_second_run(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """503 `store-unavailable`, with another key, and with none; with the key again the answer is there."""
    async with running(replace(setup, more=SEALED), tmp_path, "sealed") as gateway:
        first = await ask(gateway.port, payment(b"k1"))
    for name, more, redis in (("lost", LOST, setup.redis), ("none", "", ""), ("none-redis", "", setup.redis)):
        async with running(replace(setup, more=more, redis=redis), tmp_path, name) as gateway:
            answer = await ask(gateway.port, payment(b"k1"))
            assert (answer.status, answer.problem) == (503, "store-unavailable"), name
    async with running(replace(setup, more=SEALED), tmp_path, "again") as gateway:
        assert (await ask(gateway.port, payment(b"k1"))).body == first.body
    assert set(upstream.runs.values()) == {1}


async def test_operators_see_it_opened(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """`records show` has the status, the target and what was captured; its body is for who gives a reason."""
    upstream.behave = answer_marked
    async with running(replace(setup, routes=ROUTES, max_execution="30s", more=SEALED), tmp_path) as gateway:
        await ask(gateway.port, order(b"k1"))
        command = ("-m", "gateway", "records", "show", "--config", str(gateway.config), "--key", "k1", "--json")
        process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
    assert b'"status":299' in output.replace(b" ", b"")
    assert b"marker_target" in output
    assert b"marker_value" in output
    assert b"body_base64" not in output


async def command(gateway: Gateway, *arguments: str) -> tuple[int | None, bytes]:
    """A command over the gateway's configuration: its exit code and what it says."""
    name, *options = arguments
    words = ("-m", "gateway", *name.split(), "--config", str(gateway.config), *options)
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    output, _ = await process.communicate()
    return process.returncode, output


async def test_a_rotation_under_load_loses_no_replay(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """While `reencrypt` goes on, every retry has its answer; then the former key may go, and all is there under the present one."""
    marked = replace(setup, routes=ROUTES, max_execution="30s", redis="")
    upstream.behave = answer_marked
    keys = [b"k%d" % number for number in range(40)] + [b"large"]
    async with running(replace(marked, more=SEALED), tmp_path, "before") as gateway:
        first = {key: await ask(gateway.port, order(key)) for key in keys}
    async with running(replace(marked, more=ROTATED), tmp_path, "rotated") as gateway:
        moving = asyncio.create_task(command(gateway, "reencrypt", "--rate", "50"))
        rounds = 0
        while not moving.done() or not rounds:
            assert [(await ask(gateway.port, order(key))).body for key in keys] == [first[key].body for key in keys]
            rounds += 1
        code, said = await moving
        assert (code, b"%d moved; the former keys may go" % len(keys) in said) == (0, True), said
    async with running(replace(marked, more=LOST), tmp_path, "after") as gateway:
        again = {key: await ask(gateway.port, order(key)) for key in keys}
        code, said = await command(gateway, "reencrypt")
        assert (code, b"OK: 0 moved" in said) == (0, True), said
    assert {key: (answer.status, answer.body) for key, answer in again.items()} == {key: (a.status, a.body) for key, a in first.items()}
    assert set(upstream.runs.values()) == {1}


async def test_reencrypt_says_what_it_cannot_open(setup: Setup, tmp_path: Path) -> None:
    """And fails, so that nobody throws a key away that is needed."""
    async with running(replace(setup, more=SEALED), tmp_path, "before") as gateway:
        await ask(gateway.port, payment(b"k1"))
    async with running(replace(setup, more=LOST), tmp_path, "lost") as gateway:
        code, said = await command(gateway, "reencrypt")
    assert code == 1
    assert b"1 are under a key that is not configured" in said


@pytest.mark.parametrize("more", [SEALED, ""], ids=["encrypted", "in clear"])
async def test_an_erased_principal_runs_nothing_again(setup: Setup, upstream: CountingUpstream, tmp_path: Path, more: str) -> None:
    """Nothing of what was stored is left but keys and digests, in Postgres and Redis; retries are refused; another caller keeps all."""
    upstream.behave = answer_marked
    other = b"Bearer tenant-b"
    async with running(replace(setup, routes=ROUTES, max_execution="30s", more=more), tmp_path) as gateway:
        await ask(gateway.port, order(b"k1"))
        theirs = await ask(gateway.port, payment(b"k1", target=b"/v1/pay/x", principal=other))
        await entries(setup.redis, 2)
        code, said = await command(gateway, "records erase", "--principal", "Bearer tenant-a", "--reason", "GDPR-12")
        assert (code, said) == (0, b"OK: 1 erased\n")
        await asyncio.sleep(4)  # longer than any process remembers, and than the list of deletions takes to be read
        refused = await ask(gateway.port, order(b"k1"))
        assert (refused.status // 100, refused.problem) == (4, "response-not-stored")
        again = await ask(gateway.port, payment(b"k1", target=b"/v1/pay/x", principal=other))
        assert (again.status, again.body) == (theirs.status, theirs.body)
        dump = (await dump_postgres(setup.postgres) + await dump_redis(setup.redis)).lower()
    assert [marker for marker in (b"marker_value", b"marker_target", b"marker_query") if marker in dump] == []
    assert b"gdpr-12" in dump
    assert set(upstream.runs.values()) == {1}
