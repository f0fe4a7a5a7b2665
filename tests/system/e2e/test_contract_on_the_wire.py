"""The decisions of the design's table, as bytes on a client's connection."""

import asyncio
import hashlib
import json
from pathlib import Path

import pytest

from tests.support.client import Client, ask, payment
from tests.support.gateway import Gateway, Setup, running
from tests.support.upstream import CountingUpstream, Exchange


async def test_first_request_executes_and_its_retry_replays_the_same_bytes(gateway: Gateway, upstream: CountingUpstream) -> None:
    """A retry gets status, headers and body of the first answer, plus the marker, and runs nothing."""
    first = await ask(gateway.port, payment(b"k1"))
    again = await ask(gateway.port, payment(b"k1"))
    assert first.status == again.status == 201
    assert first.body == again.body
    assert upstream.runs_of(b"k1") == 1
    assert first.field("idempotent-replayed") is None
    assert again.field("idempotent-replayed") == b"true"
    assert again.field("original-request") == first.field("x-request-id") != again.field("x-request-id")
    ours = {b"x-request-id", b"idempotent-replayed", b"original-request"}
    kept = [field for field in first.fields if field[0].lower() not in ours]
    assert kept == [field for field in again.fields if field[0].lower() not in ours]


async def test_replay_survives_the_loss_of_redis_contents(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Another process without Redis replays from Postgres what the first one stored."""
    async with running(setup, tmp_path) as one:
        first = await ask(one.port, payment(b"k1"))
    bare = Setup(setup.postgres, setup.upstream_port)
    async with running(bare, tmp_path, "bare") as two:
        again = await ask(two.port, payment(b"k1"))
    assert (again.status, again.body) == (first.status, first.body)
    assert upstream.runs_of(b"k1") == 1


async def test_every_header_oddity_survives_the_replay(gateway: Gateway, upstream: CountingUpstream) -> None:
    """Case, order, count, empty values and bytes that are no UTF-8 are the upstream's, first time and replayed."""

    async def odd(exchange: Exchange) -> None:
        exchange.execute()
        await exchange.send(
            b"HTTP/1.1 201 Very Created\r\nX-A: 1\r\nSet-Cookie: a=1; Expires=Mon, 21 Oct 2030 07:28:00 GMT\r\nx-CaSe: y\r\n"
            b"Date: Fri, 27 Nov 2026 12:00:00 GMT\r\nSet-Cookie: b=2\r\nLink: </x>; rel=a\r\nLink: </y>; rel=b\r\n"
            b"X-Name: caf\xe9\r\nX-Empty:\r\n"
            b"Location: /v1/pay/9\r\nIdempotent-Replayed: lie\r\nContent-Length: 3\r\n\r\n\x00\xff\n"
        )

    upstream.behave = odd
    first, again = await ask(gateway.port, payment(b"odd")), await ask(gateway.port, payment(b"odd"))
    expected = [
        (b"X-A", b"1"),
        (b"x-CaSe", b"y"),
        (b"Date", b"Fri, 27 Nov 2026 12:00:00 GMT"),
        (b"Link", b"</x>; rel=a"),
        (b"Link", b"</y>; rel=b"),
        (b"X-Name", b"caf\xe9"),
        (b"X-Empty", b""),
        (b"Location", b"/v1/pay/9"),
    ]
    assert [field for field in first.fields if field[0] not in {b"Set-Cookie", b"X-Request-Id", b"Content-Length"}] == expected
    assert [value for name, value in first.fields if name == b"Set-Cookie"] == [b"a=1; Expires=Mon, 21 Oct 2030 07:28:00 GMT", b"b=2"]
    assert list(again.fields[: len(expected)]) == expected
    assert again.field("set-cookie") is None
    assert first.reason == again.reason == b"Very Created"
    assert first.body == again.body == b"\x00\xff\n"


async def test_another_body_under_the_key_is_misuse(gateway: Gateway, upstream: CountingUpstream) -> None:
    """A different operation under a used key is refused, and its key keeps its first answer."""
    first = await ask(gateway.port, payment(b"k1"))
    other = await ask(gateway.port, payment(b"k1", b'{"amount":999,"currency":"EUR"}'))
    again = await ask(gateway.port, payment(b"k1"))
    assert (other.status, other.problem) == (422, "key-reused")
    assert again.body == first.body
    assert upstream.runs_of(b"k1") == 1


async def test_the_same_json_in_another_spelling_replays(gateway: Gateway, upstream: CountingUpstream) -> None:
    """White space, member order and number spelling do not make another operation."""
    first = await ask(gateway.port, payment(b"k1", b'{"amount":100,"currency":"EUR"}'))
    again = await ask(gateway.port, payment(b"k1", b'{ "currency" : "EUR", "amount" : 1e2 }'))
    assert again.body == first.body
    assert upstream.runs_of(b"k1") == 1


async def test_a_duplicate_of_a_running_request_conflicts(gateway: Gateway, upstream: CountingUpstream) -> None:
    """While the first request runs, its duplicate gets 409 with Retry-After, and a 422 if it is another operation."""
    release = asyncio.Event()

    async def held(exchange: Exchange) -> None:
        exchange.execute()
        await release.wait()
        await exchange.answer()

    upstream.behave = held
    running_request = asyncio.create_task(ask(gateway.port, payment(b"k1")))
    await upstream.executed.wait()
    duplicate = await ask(gateway.port, payment(b"k1"))
    other = await ask(gateway.port, payment(b"k1", b"{}"))
    release.set()
    first = await running_request
    assert (duplicate.status, duplicate.problem, duplicate.field("retry-after")) == (409, "request-in-progress", b"1")
    assert (other.status, other.problem) == (422, "key-reused")
    assert (await ask(gateway.port, payment(b"k1"))).body == first.body
    assert upstream.runs_of(b"k1") == 1


async def test_a_waiting_duplicate_replays_when_the_first_settles(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """With `in_flight: wait` duplicates in this process and in another one get the first answer instead of a conflict."""
    release = asyncio.Event()

    async def held(exchange: Exchange) -> None:
        exchange.execute()
        await release.wait()
        await exchange.answer()

    upstream.behave = held
    waiting = Setup(
        setup.postgres, setup.upstream_port, setup.redis, defaults="{lease: 2s, in_flight: wait, wait: 8s}", timeouts="{first_byte: 10s}"
    )
    async with running(waiting, tmp_path) as one, running(waiting, tmp_path, "two") as two:
        requests = [asyncio.create_task(ask(one.port, payment(b"k1")))]
        await upstream.executed.wait()
        requests += [asyncio.create_task(ask(port, payment(b"k1"))) for port in (one.port, two.port)]
        await asyncio.sleep(0.3)
        release.set()
        first, *others = await asyncio.gather(*requests)
    assert [answer.body for answer in others] == [first.body, first.body]
    assert all(answer.field("idempotent-replayed") == b"true" for answer in others)
    assert upstream.runs_of(b"k1") == 1


async def test_a_waiting_duplicate_gives_up_at_its_cap(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """A waiter that reaches its cap gets the conflict answer; it never executes."""

    async def held(exchange: Exchange) -> None:
        exchange.execute()
        await asyncio.sleep(3)
        await exchange.answer()

    upstream.behave = held
    waiting = Setup(
        setup.postgres, setup.upstream_port, setup.redis, defaults="{lease: 2s, in_flight: wait, wait: 500ms}", timeouts="{first_byte: 10s}"
    )
    async with running(waiting, tmp_path) as gateway:
        first = asyncio.create_task(ask(gateway.port, payment(b"k1")))
        await upstream.executed.wait()
        duplicate = await ask(gateway.port, payment(b"k1"))
        assert (duplicate.status, duplicate.problem) == (409, "request-in-progress")
        assert (await first).status == 201
    assert upstream.runs_of(b"k1") == 1


async def test_tenants_do_not_see_each_other(gateway: Gateway, upstream: CountingUpstream) -> None:
    """One key under two principals is two operations; no answer, no conflict and no mismatch crosses over."""
    mine = await ask(gateway.port, payment(b"shared"))
    theirs = await ask(gateway.port, payment(b"shared", b'{"amount":7}', principal=b"Bearer tenant-b"))
    assert (mine.status, theirs.status) == (201, 201)
    assert mine.body != theirs.body
    assert theirs.field("idempotent-replayed") is None
    assert upstream.runs_of(b"shared") == upstream.runs_of(b"shared", b"Bearer tenant-b") == 1


async def test_quoted_and_bare_spellings_are_one_key(gateway: Gateway, upstream: CountingUpstream) -> None:
    """A client may start to quote its keys between two attempts."""
    first = await ask(gateway.port, payment(b"k13"))
    quoted = await ask(gateway.port, payment(b'"k13"; p=1'))
    nominated = await ask(gateway.port, payment(b"k13", more=(b"Connection: Idempotency-Key",)))
    assert first.body == quoted.body == nominated.body
    assert len(upstream.requests) == 1


async def test_a_released_answer_is_passed_on_and_the_retry_runs(gateway: Gateway, upstream: CountingUpstream) -> None:
    """429 is asserted to come before execution: it goes to the client, and the key stays usable for the same request only."""

    async def refuse(exchange: Exchange) -> None:
        await exchange.answer(429, b"slow down")

    usual, upstream.behave = upstream.behave, refuse
    refused = await ask(gateway.port, payment(b"k1"))
    other = await ask(gateway.port, payment(b"k1", b"{}"))
    upstream.behave = usual
    retried = await ask(gateway.port, payment(b"k1"))
    assert (refused.status, refused.body) == (429, b"slow down")
    assert (other.status, other.problem) == (422, "key-reused")
    assert retried.status == 201
    assert upstream.runs_of(b"k1") == 1
    await gateway.counted(1, "idempotency_requests_total", route="pay", decision="execute_retry")


@pytest.mark.parametrize("status", [400, 402, 404, 409, 422, 500])
async def test_any_other_answer_is_the_result(gateway: Gateway, upstream: CountingUpstream, status: int) -> None:
    """A complete answer with an error status is the operation's result: stored and replayed, never run again."""

    async def fail(exchange: Exchange) -> None:
        exchange.execute()
        await exchange.answer(status, b'{"error":"declined"}')

    upstream.behave = fail
    first, again = await ask(gateway.port, payment(b"k1")), await ask(gateway.port, payment(b"k1"))
    assert (first.status, first.body) == (again.status, again.body) == (status, b'{"error":"declined"}')
    assert again.field("idempotent-replayed") == b"true"
    assert upstream.runs_of(b"k1") == 1


@pytest.mark.parametrize("status", [408, 502, 503, 504, 524])
async def test_a_doubtful_answer_is_passed_on_and_never_run_again(gateway: Gateway, upstream: CountingUpstream, status: int) -> None:
    """A 503 may come from a hop behind us after the operation ran: the client sees it, the record is unknown."""

    async def fail(exchange: Exchange) -> None:
        exchange.execute()
        await exchange.answer(status, b"oops")

    upstream.behave = fail
    first, again = await ask(gateway.port, payment(b"k1")), await ask(gateway.port, payment(b"k1"))
    assert (first.status, first.body) == (status, b"oops")
    assert (again.status, again.problem, again.field("retry-after")) == (409, "outcome-unknown", None)
    assert upstream.runs_of(b"k1") == 1


async def _hang(exchange: Exchange) -> None:
    exchange.execute()
    await asyncio.sleep(30)


async def _close(exchange: Exchange) -> None:
    exchange.execute()
    exchange.hang_up()


async def _reset(exchange: Exchange) -> None:
    exchange.execute()
    exchange.reset()


async def _garbage(exchange: Exchange) -> None:
    exchange.execute()
    await exchange.send(b"garbage\r\n\r\n")
    exchange.hang_up()


async def _truncated(exchange: Exchange) -> None:
    exchange.execute()
    await exchange.send(b"HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\nhalf")
    exchange.hang_up()


async def _two_framings(exchange: Exchange) -> None:
    exchange.execute()
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("behave", "status"), [(_hang, 504), (_close, 502), (_reset, 502), (_garbage, 502), (_truncated, 502), (_two_framings, 502)]
)
async def test_an_ambiguous_outcome_is_unknown_and_never_run_again(
    gateway: Gateway, upstream: CountingUpstream, behave: object, status: int
) -> None:
    """Whatever goes wrong after the first byte was sent, the operation may have run: nobody runs it again."""
    usual, upstream.behave = upstream.behave, behave  # type: ignore[assignment]  # parametrised behaviours
    first = await ask(gateway.port, payment(b"k1"))
    upstream.behave = usual
    again = await ask(gateway.port, payment(b"k1"))
    assert (first.status, first.problem) == (status, "outcome-unknown")
    assert (again.status, again.problem) == (409, "outcome-unknown")
    assert upstream.runs_of(b"k1") == 1


async def test_an_unreachable_upstream_releases_the_key(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Nothing was sent, which is proved: the client is told that a retry is safe, and it is."""
    async with running(setup, tmp_path) as gateway:
        await upstream.stop()
        refused = await ask(gateway.port, payment(b"k1"))
        revived = CountingUpstream()
        server = await asyncio.start_server(revived._serve, "127.0.0.1", upstream.port)
        async with server:
            retried = await ask(gateway.port, payment(b"k1"))
    assert (refused.status, refused.problem, refused.field("retry-after")) == (502, "upstream-unreachable", b"1")
    assert json.loads(refused.body)["reason"] == "connection_refused"
    assert retried.status == 201
    assert revived.runs_of(b"k1") == 1
    await upstream.start()


async def test_an_answer_over_the_cap_is_relayed_and_its_retry_told_so(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Too big to keep still means done: the client gets all of it, the retry gets the original status, length and digest."""
    big = b"z" * 300_000

    async def answer_big(exchange: Exchange) -> None:
        exchange.execute()
        await exchange.answer(201, big)

    upstream.behave = answer_big
    small = Setup(setup.postgres, setup.upstream_port, setup.redis, defaults="{lease: 2s, limits: {response_body: 64KiB}}")
    async with running(small, tmp_path) as gateway:
        first, again = await ask(gateway.port, payment(b"k1")), await ask(gateway.port, payment(b"k1"))
    assert (first.status, first.body) == (201, big)
    assert (again.status, again.problem) == (409, "response-not-stored")
    document = json.loads(again.body)
    assert (document["original_status"], document["body_length"]) == (201, len(big))
    assert document["body_sha256"] == hashlib.sha256(big).hexdigest()
    assert upstream.runs_of(b"k1") == 1


async def test_a_streamed_answer_is_relayed_as_it_comes_and_replayed_whole(
    setup: Setup, upstream: CountingUpstream, tmp_path: Path
) -> None:
    """`stream: true` relays early pieces at once and holds only the last one for the commit."""
    go_on = asyncio.Event()

    async def stream(exchange: Exchange) -> None:
        exchange.execute()
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        await exchange.send(b"3\r\none\r\n")
        await asyncio.sleep(0.05)
        await exchange.send(b"3\r\ntwo\r\n")
        await go_on.wait()
        await exchange.send(b"5\r\nthree\r\n0\r\n\r\n")

    upstream.behave = stream
    streaming = Setup(setup.postgres, setup.upstream_port, setup.redis, defaults="{lease: 2s, stream: true}", timeouts="{read_idle: 10s}")
    async with running(streaming, tmp_path) as gateway:
        async with asyncio.timeout(20), await Client.connect(gateway.port) as client:
            await client.send(payment(b"k1"))
            await client.reader.readuntil(b"one")
            go_on.set()
            rest = await client.reader.readuntil(b"0\r\n\r\n")
        again = await ask(gateway.port, payment(b"k1"))
    assert rest.index(b"two") < rest.index(b"three")
    assert (again.status, again.body) == (200, b"onetwothree")
    assert upstream.runs_of(b"k1") == 1
