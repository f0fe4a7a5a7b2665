"""Accepted work as its clients see it: 202, the status resource, its answer, cancelling, and every refusal."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import asyncpg

from gateway.core.accepted import operation_id
from gateway.core.model import RecordKey
from gateway.proxy.operations import MOST_HELD
from tests.support.client import PAYMENT, ask, payment
from tests.support.gateway import Setup, running
from tests.support.upstream import CountingUpstream, Exchange
from tests.system.accepted.asking import location, look, status_request, to_its_end, told

ROUNDS = int(os.environ.get("ACCEPTED_ROUNDS", "4"))
"""Of simultaneous first requests."""


class Gate:
    """An upstream that executes what arrives once it is opened."""

    def __init__(self, upstream: CountingUpstream) -> None:
        self.opened = asyncio.Event()
        upstream.behave = self._behave

    async def _behave(self, exchange: Exchange) -> None:
        await self.opened.wait()
        exchange.execute()
        await exchange.answer()


async def test_an_operation_is_accepted_run_and_answered(accepting: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """202 with where to look; duplicates get the same; in the end the answer, byte for byte as a retry gets it."""
    gate = Gate(upstream)
    async with running(accepting, tmp_path) as gateway:
        first = await ask(gateway.port, payment(b"k1"))
        at = location(first)
        assert first.field("link") == b'<%b>; rel="monitor"' % at
        assert first.field("retry-after") == b"1"
        async with asyncio.timeout(10):
            await upstream.arrived.wait()
        again = await ask(gateway.port, payment(b"k1"))
        assert location(again) == at
        other = await ask(gateway.port, payment(b"k1", b'{"amount":1}'))
        assert (other.status, other.problem) == (422, "key-reused")
        running_now = told(await look(gateway.port, at))
        assert (running_now["status"], running_now["attempt"], running_now["operation"]) == ("in_progress", 1, at.decode())
        early = await look(gateway.port, at + b"/response")
        assert (early.status, early.problem) == (404, "not-completed")
        waiting = asyncio.create_task(look(gateway.port, at + b"?wait=30"))
        await asyncio.sleep(0.2)
        gate.opened.set()
        assert told(await waiting)["status"] == "completed"
        answer, retry = await look(gateway.port, at + b"/response"), await ask(gateway.port, payment(b"k1"))
        assert answer.status == retry.status == 201
        assert answer.body == retry.body
        own = {b"x-request-id"}
        assert [field for field in answer.fields if field[0].lower() not in own] == [
            field for field in retry.fields if field[0].lower() not in own
        ]
        assert retry.field("idempotent-replayed") == b"true"
        assert upstream.runs_of(b"k1") == 1
        await gateway.counted(2, "idempotency_requests_total", route="pay", decision="accepted")


async def test_prefer_says_what_a_request_wants(accepting: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Without the preference it is synchronous; with it 202; with `wait` the answer, if it is there in time."""
    async with running(accepting, tmp_path) as gateway:
        plain = await ask(gateway.port, payment(b"p1", target=b"/v1/charge"))
        assert plain.status == 201
        quick = await ask(gateway.port, payment(b"p2", target=b"/v1/charge", more=(b"Prefer: respond-async, wait=10",)))
        assert quick.status == 201
        gate = Gate(upstream)
        slow = await ask(gateway.port, payment(b"p3", target=b"/v1/charge", more=(b"Prefer: respond-async; x=1, wait=1",)))
        assert slow.field("preference-applied") == b"respond-async"
        duplicate = await ask(gateway.port, payment(b"p3", target=b"/v1/charge"))
        assert location(duplicate) == location(slow)
        gate.opened.set()
        assert (await to_its_end(gateway.port, location(slow))).status == 201
        assert upstream.runs_of(b"p3") == 1


async def test_a_duplicate_of_a_synchronous_request_is_told_where_to_look(
    accepting: Setup, upstream: CountingUpstream, tmp_path: Path
) -> None:
    """`in_flight: accepted`: the first request waits for its answer, the second need not."""
    gate = Gate(upstream)
    async with running(accepting, tmp_path) as gateway:
        first = asyncio.create_task(ask(gateway.port, payment(b"s1", target=b"/v1/sync")))
        async with asyncio.timeout(10):
            await upstream.arrived.wait()
        at = location(await ask(gateway.port, payment(b"s1", target=b"/v1/sync")))
        gate.opened.set()
        assert (await first).status == 201
        assert (await to_its_end(gateway.port, at)).body == (await first).body


async def test_what_has_no_slot_waits_and_can_be_cancelled(accepting: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Pending, attempt 0; cancelled it ends with a stored 410, and is never run; what runs cannot be cancelled; too much is refused."""
    gate = Gate(upstream)
    async with running(accepting, tmp_path) as gateway:
        runs = location(await ask(gateway.port, payment(b"w1", target=b"/v1/slow")))
        async with asyncio.timeout(10):
            await upstream.arrived.wait()
        waits = location(await ask(gateway.port, payment(b"w2", target=b"/v1/slow")))
        standing = told(await look(gateway.port, waits))
        assert (standing["status"], standing["attempt"]) == ("pending", 0)
        last = await ask(gateway.port, payment(b"w3", target=b"/v1/slow"))
        assert last.status == 202
        full = await ask(gateway.port, payment(b"w4", target=b"/v1/slow"))
        assert (full.status, full.problem, full.field("retry-after")) == (429, "too-many-pending", b"1")
        other = location(await ask(gateway.port, payment(b"w5", target=b"/v1/slow", principal=b"Bearer tenant-b")))
        full = await ask(gateway.port, payment(b"w6", target=b"/v1/slow", principal=b"Bearer tenant-c"))
        assert (full.status, full.problem) == (429, "too-many-pending")
        cancelled = await look(gateway.port, waits, method=b"DELETE")
        assert (cancelled.status, told(cancelled)["status"]) == (200, "completed")
        retry = await ask(gateway.port, payment(b"w2", target=b"/v1/slow"))
        assert (retry.status, retry.problem, retry.field("idempotent-replayed")) == (410, "cancelled", b"true")
        assert (await look(gateway.port, waits + b"/response")).body == retry.body
        refused = await look(gateway.port, runs, method=b"DELETE")
        assert (refused.status, refused.problem) == (409, "not-pending")
        await asyncio.sleep(0.2)
        gate.opened.set()
        assert (await to_its_end(gateway.port, runs)).status == 201
        assert (await to_its_end(gateway.port, location(last))).status == 201
        assert (await to_its_end(gateway.port, other, b"Bearer tenant-b")).status == 201
        assert upstream.runs_of(b"w2") == 0
        assert set(upstream.runs.values()) == {1}


async def test_what_cannot_be_sent_in_time_ends_with_a_stored_408(accepting: Setup, tmp_path: Path) -> None:
    """The upstream is away: tried again and again while `pending_for` lasts, then given up, proved not to have run."""
    away = Setup(accepting.postgres, 1, accepting.redis, accepting.routes, more=accepting.more)
    async with running(away, tmp_path) as gateway:
        at = location(await ask(gateway.port, payment(b"a1", target=b"/v1/brief")))
        answer = await to_its_end(gateway.port, at)
        assert (answer.status, answer.problem) == (408, "abandoned")
        retry = await ask(gateway.port, payment(b"a1", target=b"/v1/brief"))
        assert (retry.status, retry.body) == (408, answer.body)
        await gateway.counted(1, "idempotency_abandoned_total", route="brief")


async def test_a_refusal_before_execution_is_tried_again(accepting: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """A status of `release_on` returns it to pending, its Retry-After is kept to, and the answer is that of the try that ran."""
    answers = [429, 429, 201]

    async def busy(exchange: Exchange) -> None:
        status = answers.pop(0)
        if status == 201:
            exchange.execute()
        await exchange.answer(status, fields=(b"Retry-After: 1",))

    upstream.behave = busy
    async with running(accepting, tmp_path) as gateway:
        at = location(await ask(gateway.port, payment(b"r1")))
        assert (await to_its_end(gateway.port, at)).status == 201
        assert told(await look(gateway.port, at))["attempt"] == 3
        assert answers == []


async def test_an_operation_is_its_callers_alone(accepting: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Nobody else sees, answers or cancels it; without credentials nobody is told anything."""
    gate = Gate(upstream)
    async with running(accepting, tmp_path) as gateway:
        at = location(await ask(gateway.port, payment(b"o1")))
        for target, method in ((at, b"GET"), (at + b"/response", b"GET"), (at, b"DELETE")):
            stranger = await look(gateway.port, target, b"Bearer tenant-b", method=method)
            assert (stranger.status, stranger.problem) == (404, "no-operation")
            nobody = await look(gateway.port, target, None, method=method)
            assert (nobody.status, nobody.problem) == (401, "principal-missing")
        gate.opened.set()
        assert (await to_its_end(gateway.port, at)).status == 201


async def test_nobody_is_looked_for_who_has_left(accepting: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """A client that asks to be held and leaves holds nothing: else each connection that comes and goes is a look each second."""
    gate = Gate(upstream)
    async with running(accepting, tmp_path) as gateway:
        at = location(await ask(gateway.port, payment(b"l1")))
        for _ in range(3):
            _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(status_request(at + b"?wait=60"))
            await gateway.counted(1, "idempotency_in_flight", route="pay")
            writer.transport.abort()
            await gateway.counted(0, "idempotency_in_flight", route="pay")
        gate.opened.set()
        assert (await to_its_end(gateway.port, at)).status == 201


async def test_no_more_are_held_than_the_authority_can_be_asked_for(accepting: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """One more is told at once how it stands, and asks again when it likes."""
    gate = Gate(upstream)
    async with running(accepting, tmp_path) as gateway:
        at = location(await ask(gateway.port, payment(b"m1")))
        held = [asyncio.create_task(look(gateway.port, at + b"?wait=60")) for _ in range(MOST_HELD)]
        await gateway.counted(MOST_HELD, "idempotency_in_flight", route="pay")
        async with asyncio.timeout(30):
            assert told(await look(gateway.port, at + b"?wait=60"))["status"] == "in_progress"
        assert not any(one.done() for one in held)
        gate.opened.set()
        assert {told(answer)["status"] for answer in await asyncio.gather(*held)} == {"completed"}


async def test_a_drain_lets_those_go_who_are_held(accepting: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """They are told how it stands, and ask another process."""
    Gate(upstream)
    async with running(accepting, tmp_path) as gateway:
        location(await ask(gateway.port, payment(b"d1", target=b"/v1/slow")))
        waits = location(await ask(gateway.port, payment(b"d2", target=b"/v1/slow")))
        held = asyncio.create_task(look(gateway.port, waits + b"?wait=60"))
        await gateway.counted(1, "idempotency_in_flight", route="slow")
        gateway.terminate()
        async with asyncio.timeout(10):
            answer = await held
        assert (told(answer)["status"], answer.field("connection")) == ("pending", b"close")
        gateway.kill()


async def test_a_page_of_another_origin_may_look(accepting: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Where its route lets it read answers: its browser asks first, since it must say who it is."""
    routes = accepting.routes.replace("path: /v1/pay\n", "path: /v1/pay\n    cors: {origins: [https://shop.example]}\n", 1)
    origin = b"Origin: https://shop.example"
    asked = (b"Access-Control-Request-Method: GET", b"Access-Control-Request-Headers: authorization")
    async with running(replace(accepting, routes=routes), tmp_path) as gateway:
        at = location(await ask(gateway.port, payment(b"c1")))
        may = await look(gateway.port, at, None, method=b"OPTIONS", more=(origin, *asked))
        assert (may.status, may.field("access-control-allow-origin")) == (204, b"https://shop.example")
        assert may.field("access-control-allow-headers") == b"authorization"
        other = await look(gateway.port, at, None, method=b"OPTIONS", more=(b"Origin: https://evil.example", *asked))
        assert (other.status, other.field("access-control-allow-origin")) == (204, None)
        plain = await look(gateway.port, at, None, method=b"OPTIONS")
        assert (plain.status, plain.problem) == (405, "method-refused")
        assert (await look(gateway.port, at, more=(origin,))).field("access-control-allow-origin") == b"https://shop.example"


AT = b"/.idempotency/operations/"
ONE = AT + operation_id("pay", "k").encode()

REFUSALS: list[tuple[str, bytes, bytes, int, str]] = [
    ("no name", b"/.idempotency/operations/x", b"GET", 404, "no-operation"),
    ("no base64", b"/.idempotency/operations/!!!!", b"GET", 404, "no-operation"),
    ("endless", AT + b"A" * 3000, b"GET", 404, "no-operation"),
    ("never asked for", AT + operation_id("pay", "never").encode(), b"GET", 404, "no-operation"),
    ("another scope", AT + operation_id("rest", "k").encode(), b"GET", 404, "no-operation"),
    ("no such part", ONE + b"/x", b"GET", 404, "no-operation"),
    ("no key", AT + operation_id("pay", "a\0b").encode(), b"GET", 404, "no-operation"),
    ("wait too long", ONE + b"?wait=61", b"GET", 400, "bad-request"),
    ("wait for x", ONE + b"?wait=x", b"GET", 400, "bad-request"),
    ("another method", ONE, b"POST", 405, "method-refused"),
    ("no answer to cancel", ONE + b"/response", b"DELETE", 405, "method-refused"),
    ("no answer", ONE + b"/response", b"GET", 404, "no-operation"),
    ("nothing to cancel", ONE, b"DELETE", 404, "no-operation"),
]


async def test_every_refusal(accepting: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Status and type of each, and nothing is kept or sent."""
    async with running(accepting, tmp_path) as gateway:
        for what, target, method, status, problem in REFUSALS:
            answer = await look(gateway.port, target, method=method)
            assert (answer.status, answer.problem) == (status, problem), what
            allowed = b"GET, HEAD" if target.endswith(b"/response") else b"GET, HEAD, DELETE"
            assert answer.field("allow") == (allowed if status == 405 else None), what
        large = await ask(gateway.port, payment(b"large", b"x" * (1024 * 1024 + 1)))
        assert (large.status, large.problem) == (413, "body-too-large")
        missing = await ask(gateway.port, payment(None))
        assert (missing.status, missing.problem) == (400, "key-missing")
    connection = await asyncpg.connect(accepting.postgres)
    try:
        assert await connection.fetchval("SELECT count(*) FROM gateway_records") == 0
    finally:
        await connection.close()
    assert not upstream.requests


async def test_what_has_expired_is_gone_where_the_route_remembers_it(accepting: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """410 before and after its record is reaped where the route says `on_expired: gone`; elsewhere 404."""
    routes = accepting.routes.replace("execution: async}", "execution: async, retention: 1s, on_expired: gone}", 1)
    async with running(replace(accepting, routes=routes), tmp_path) as gateway:
        connection = await asyncpg.connect(accepting.postgres)
        try:
            gone = location(await ask(gateway.port, payment(b"g1")))
            async with asyncio.timeout(20):
                while (await look(gateway.port, gone)).status != 410:
                    await asyncio.sleep(0.1)
            row = await connection.fetchrow("DELETE FROM gateway_records RETURNING scope_id, idempotency_key")
            assert row is not None
            key = RecordKey(row["scope_id"], row["idempotency_key"])
            for part in (b"", b"/response"):
                assert (await look(gateway.port, gone + part)).status == 404
            bury = "INSERT INTO gateway_tombstones (digest, route_id, scope, expires_at) VALUES ($1, 'pay', 'pay', now() + interval '1h')"
            await connection.execute(bury, key.lookup_digest())
            for target, method in ((gone, b"GET"), (gone + b"/response", b"GET"), (gone, b"DELETE")):
                answer = await look(gateway.port, target, method=method)
                assert (answer.status, answer.problem) == (410, "key-expired")
            stranger = await look(gateway.port, gone, b"Bearer tenant-b")
            assert (stranger.status, stranger.problem) == (404, "no-operation")
        finally:
            await connection.close()


async def test_the_prefix_is_taken_only_where_a_route_uses_it(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """A route map without accepted work serves the path like any other."""
    async with running(setup, tmp_path) as gateway:
        answer = await look(gateway.port, b"/.idempotency/operations/x")
        assert answer.status == 201
        assert [seen.target for seen in upstream.requests] == [b"/.idempotency/operations/x"]


async def test_no_plain_text_of_a_waiting_request_is_kept(accepting: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Neither its body nor its credentials can be found in any table, nor in Redis while it waits; and it is gone when it ends."""
    gate = Gate(upstream)
    secret = b'{"amount":100,"card":"4000056655665556"}'
    async with running(accepting, tmp_path) as gateway:
        first = location(await ask(gateway.port, payment(b"n1", secret, target=b"/v1/slow")))
        second = location(await ask(gateway.port, payment(b"n2", secret, target=b"/v1/slow")))
        connection = await asyncpg.connect(accepting.postgres)
        try:
            tables = await connection.fetch("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
            for (table,) in tables:
                for row in await connection.fetch(f'SELECT * FROM "{table}"'):
                    for value in row.values():
                        raw = value if isinstance(value, bytes) else str(value).encode()
                        assert b"4000056655665556" not in raw
                        assert b"tenant-a" not in raw
            assert await connection.fetchval("SELECT count(*) FROM gateway_records WHERE request_sealed IS NOT NULL") == 2
            gate.opened.set()
            for at in (first, second):
                assert (await to_its_end(gateway.port, at)).status == 201
            assert await connection.fetchval("SELECT count(*) FROM gateway_records WHERE request_sealed IS NOT NULL") == 0
        finally:
            await connection.close()
    assert [seen.body for seen in upstream.requests] == [secret, secret]
    assert [seen.value("authorization") for seen in upstream.requests] == [b"Bearer tenant-a"] * 2


async def test_of_many_simultaneous_first_requests_one_runs(accepting: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Fifty at once at two processes, some rounds: each is told 202 or 409, and the operation runs once."""
    async with running(accepting, tmp_path, "one") as one, running(accepting, tmp_path, "two") as two:
        for number in range(ROUNDS):
            key = b"m%d" % number
            answers = await asyncio.gather(*(ask((one if n % 2 else two).port, payment(key, PAYMENT)) for n in range(50)))
            assert {answer.status for answer in answers} <= {202, 201, 409}
            at = next(location(answer) for answer in answers if answer.status == 202)
            assert (await to_its_end(one.port, at)).status == 201
            assert upstream.runs_of(key) == 1


async def test_nothing_is_told_of_a_scope_that_means_something_else_by_now(
    accepting: Setup, upstream: CountingUpstream, tmp_path: Path
) -> None:
    """As no request of it is answered: whose keys these are, this process cannot say."""
    async with running(accepting, tmp_path) as gateway:
        at = location(await ask(gateway.port, payment(b"m1")))
        await to_its_end(gateway.port, at)
        connection = await asyncpg.connect(accepting.postgres)
        await connection.execute("UPDATE gateway_scopes SET principal = 'another' WHERE scope = 'pay'")
        await connection.close()
        async with asyncio.timeout(60):
            while (await ask(gateway.port, payment(b"m1"))).status != 503:
                await asyncio.sleep(0.1)
        for path in (at, at + b"/response"):
            answer = await look(gateway.port, path)
            assert (answer.status, answer.problem) == (503, "store-unavailable")
