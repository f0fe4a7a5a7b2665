"""Gateways that are killed, frozen and told to stop, as real processes."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from gateway.devtools.embedded.ports import free_port
from tests.support.client import Client, ask, payment
from tests.support.faults import fault_proxy
from tests.support.gateway import ROUTES, Gateway, Setup, running
from tests.support.upstream import CountingUpstream, Exchange


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 20.0) -> None:
    """Wait for a condition that only polling can tell."""
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.1)


def held_until(release: asyncio.Event) -> Callable[[Exchange], Awaitable[None]]:
    """An upstream that executes at once, and answers when it is released."""

    async def hold(exchange: Exchange) -> None:
        exchange.execute()
        await release.wait()
        await exchange.answer()

    return hold


async def test_killed_while_the_upstream_holds_the_request(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """After the lease the key is `unknown`, counted as a zombie by the survivor, and the upstream ran once."""

    async def hold(exchange: Exchange) -> None:
        exchange.execute()
        await asyncio.sleep(60)

    usual, upstream.behave = upstream.behave, hold
    async with running(setup, tmp_path, "survivor") as survivor:
        async with running(setup, tmp_path, "victim") as victim:
            request = asyncio.create_task(ask(victim.port, payment(b"k1")))
            await upstream.executed.wait()
            victim.kill()
            await asyncio.gather(request, return_exceptions=True)
        upstream.behave = usual
        busy = await ask(survivor.port, payment(b"k1"))
        assert (busy.status, busy.problem) == (409, "request-in-progress")

        async def swept() -> bool:
            return await survivor.metric("idempotency_zombies_total", route="pay") == 1

        await until(swept)
        answer = await ask(survivor.port, payment(b"k1"))
        zombies = await survivor.logged(lambda line: line["level"] == "warning" and "lease" in str(line["msg"]).lower())
    assert (answer.status, answer.problem) == (409, "outcome-unknown")
    assert upstream.runs_of(b"k1") == 1
    assert zombies


async def test_a_short_lease_beside_a_long_one_does_not_lapse(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """A route of long operations does not have the leases of another route's lapse."""
    release = asyncio.Event()
    upstream.behave = held_until(release)
    export = ROUTES.replace("id: pay", "id: export").replace("/v1/pay", "/v1/export").replace("{principal", "{lease: 2m, principal")
    timeouts = "{connect: 1s, first_byte: 20s, read_idle: 1s, total: 20s}"
    routes = export[: export.index("  - {id: rest")] + ROUTES.lstrip("\n")
    async with running(replace(setup, routes=routes, timeouts=timeouts, max_execution="20s"), tmp_path) as gateway:
        long = asyncio.create_task(ask(gateway.port, payment(b"k1", target=b"/v1/export")))
        await asyncio.sleep(1.5)
        short = asyncio.create_task(ask(gateway.port, payment(b"k2")))
        for _ in range(7):
            await asyncio.sleep(0.5)
            assert (await ask(gateway.port, payment(b"k2"))).problem == "request-in-progress"
        release.set()
        assert [(await asked).status for asked in (long, short)] == [201, 201]


async def test_frozen_before_it_sends_sends_nothing(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """A gateway that is stopped between reserve and send, for longer than its lease, finds at its thaw that it may not send."""
    host, port = setup.postgres.rpartition("@")[2].partition("/")[0].split(":")
    async with fault_proxy(host, int(port)) as proxy:
        slow = replace(setup, postgres=setup.postgres.replace(f":{port}/", f":{proxy.port}/"), postgres_timeout="30s", redis="")
        async with running(slow, tmp_path) as gateway:
            await ask(gateway.port, payment(b"warm"))
            held = proxy.hold_reply_to(b"frozen-key")
            request = asyncio.create_task(ask(gateway.port, payment(b"frozen-key")))
            await held.reached.wait()
            gateway.freeze()
            held.let_go()
            await asyncio.sleep(2.5)
            gateway.thaw()
            answer = await request
            assert (answer.status, answer.problem) == (503, "upstream-unreachable")
            assert upstream.runs_of(b"frozen-key") == 0
            retried = await ask(gateway.port, payment(b"frozen-key"))
    assert retried.status == 201
    assert upstream.runs_of(b"frozen-key") == 1


async def test_frozen_after_it_sent_completes_late(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Past its lease the record is `unknown` for others; the thawed owner's answer still completes it."""
    release = asyncio.Event()
    upstream.behave = held_until(release)
    patient = replace(setup, timeouts="{first_byte: 20s}")
    async with running(patient, tmp_path, "other") as other, running(patient, tmp_path, "frozen") as frozen:
        request = asyncio.create_task(ask(frozen.port, payment(b"k1")))
        await upstream.executed.wait()
        frozen.freeze()

        async def unknown() -> bool:
            return (await ask(other.port, payment(b"k1"))).problem == "outcome-unknown"

        await until(unknown)
        release.set()
        frozen.thaw()
        first = await request
        again = await ask(other.port, payment(b"k1"))
    assert first.status == again.status == 201
    assert first.body == again.body
    assert upstream.runs_of(b"k1") == 1


async def test_frozen_past_its_time_limit_takes_the_answer_that_came_meanwhile(
    setup: Setup, upstream: CountingUpstream, tmp_path: Path
) -> None:
    """The limit is over when it thaws, and the answer has been in its socket for long: that is no doubt."""
    release, limit = asyncio.Event(), 2.0

    async def hold(exchange: Exchange) -> None:
        exchange.execute()
        await release.wait()
        await exchange.answer()

    upstream.behave = hold
    async with running(replace(setup, timeouts=f"{{first_byte: {limit:.0f}s}}"), tmp_path) as gateway:
        request = asyncio.create_task(ask(gateway.port, payment(b"k1")))
        await upstream.executed.wait()
        gateway.freeze()
        release.set()
        await asyncio.sleep(limit + 0.5)
        gateway.thaw()
        first = await request
        again = await ask(gateway.port, payment(b"k1"))
    assert first.status == again.status == 201
    assert first.body == again.body
    assert upstream.runs_of(b"k1") == 1


async def test_the_client_hangs_up_at_any_point(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Twenty points between the first byte and the answer: the operation runs at most once, and the retry replays it."""

    async def slow(exchange: Exchange) -> None:
        exchange.execute()
        await asyncio.sleep(0.3)
        await exchange.answer()

    upstream.behave = slow
    async with running(setup, tmp_path) as gateway:
        for point in range(20):
            key = b"hang-up-%d" % point
            client = await Client.connect(gateway.port)
            await client.send(payment(key))
            await asyncio.sleep(point * 0.02)
            client.reset()

            async def answered(key: bytes = key) -> bool:
                return (await ask(gateway.port, payment(key))).status == 201

            await until(answered)
            assert upstream.runs_of(key) == 1
        await gateway.counted(20, "idempotency_requests_total", route="pay", decision="execute")


async def test_a_request_that_never_becomes_whole_leaves_nothing(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """A client that hangs up within its body asked for nothing: no record, nothing sent upstream."""
    async with running(setup, tmp_path) as gateway:
        client = await Client.connect(gateway.port)
        await client.send(payment(b"half")[:-5])
        await asyncio.sleep(0.2)
        client.reset()

        async def noticed() -> bool:
            return any(line.get("client_gone") and line["decision"] == "aborted" for line in gateway.log_lines())

        await until(noticed)
        assert not upstream.requests
        whole = await ask(gateway.port, payment(b"half", b'{"another":"body"}'))
    assert whole.status == 201


async def test_drain_finishes_what_runs(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """SIGTERM: not ready at once, serving on for the delay, then what runs is finished and settled; exit 0."""
    release = asyncio.Event()
    upstream.behave = held_until(release)
    draining = replace(setup, drain="{delay: 1s, timeout: 90s}", timeouts="{first_byte: 20s}")
    async with running(draining, tmp_path) as gateway:
        request = asyncio.create_task(ask(gateway.port, payment(b"k1")))
        await upstream.executed.wait()
        gateway.terminate()

        async def not_ready() -> bool:
            return (await gateway.get("/readyz"))[0] == 503

        await until(not_ready)
        assert (await gateway.get("/livez"))[0] == 200
        during = await ask(gateway.port, payment(b"k1"))
        assert during.problem == "request-in-progress"
        await _until_refused(gateway.port)
        release.set()
        first = await request
        assert await asyncio.wait_for(gateway.process.wait(), 20) == 0
    async with running(setup, tmp_path, "next") as successor:
        again = await ask(successor.port, payment(b"k1"))
    assert first.status == 201
    assert first.field("connection") == b"close"
    assert again.body == first.body
    assert upstream.runs_of(b"k1") == 1


async def test_nobody_loses_a_request_in_a_rolling_restart(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Clients that ask again and again, each on one connection for as long as it lasts, while one of two gateways drains: without any
    delay, none is reset, and none is left without an answer. Answers during the drain say that they are the last ones.
    """
    over = asyncio.Event()
    farewells: list[int] = []

    async def ask_on(ports: list[int], name: int) -> int:
        """A client that turns to the next gateway when a connection ends or cannot be had; returns how many answers it got."""
        client, got = await Client.connect(ports[0]), 0
        while not over.is_set():
            await client.send(payment(b"k-%d-%d" % (name, got)))
            answer = await client.receive()
            assert answer.status == 201
            got += 1
            if answer.field("connection") == b"close":
                farewells.append(name)
                client.close()
                client = await Client.connect(ports[1])
        client.close()
        return got

    hasty = replace(setup, drain="{delay: 0s, timeout: 90s}")
    async with running(hasty, tmp_path, "first") as first, running(hasty, tmp_path, "second") as second:
        clients = [asyncio.create_task(ask_on([first.port, second.port], number)) for number in range(20)]
        while len(upstream.requests) < 100:
            await asyncio.sleep(0.01)
        first.terminate()
        assert await asyncio.wait_for(first.process.wait(), 30) == 0
        so_far = len(upstream.requests)
        while len(upstream.requests) < so_far + 100:
            await asyncio.sleep(0.01)
        over.set()
        answered = sum(await asyncio.gather(*clients))
    assert sorted(farewells) == list(range(20))
    assert answered == len(upstream.requests)


async def test_answers_during_the_delay_say_that_they_are_the_last(setup: Setup, tmp_path: Path) -> None:
    """So that clients of a gateway that is not ready any more turn elsewhere while it still serves."""
    async with running(replace(setup, drain="{delay: 1m, timeout: 90s}"), tmp_path) as gateway:
        async with await Client.connect(gateway.port) as client:
            await client.send(payment(b"k1"))
            assert (await client.receive()).field("connection") is None
            gateway.terminate()
            await gateway.logged(lambda line: "Draining" in str(line["msg"]))
            await client.send(payment(b"k2"))
            assert (await client.receive()).field("connection") == b"close"
        gateway.kill()


async def test_an_open_event_stream_does_not_outlast_the_drain(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """It is cut when `drain.timeout` is over, which is told, and the process exits as after any drain."""

    async def stream(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        await asyncio.Event().wait()

    upstream.behave = stream
    hasty = replace(
        setup, drain="{delay: 0s, timeout: 3s}", timeouts="{first_byte: 1s, total: 1s}", defaults="{lease: 2s, settle_timeout: 1s}"
    )
    async with running(hasty, tmp_path) as gateway:
        async with await Client.connect(gateway.port) as client:
            await client.send(b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
            await client.reader.readuntil(b"hello")
            gateway.terminate()
            assert await asyncio.wait_for(gateway.process.wait(), 30) == 0
        await gateway.logged(lambda line: "1 connections were cut after drain.timeout" in str(line["msg"]))


async def _until_refused(port: int) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                return
            writer.close()
            await asyncio.sleep(0.05)


async def test_an_upstream_tells_its_progress_during_a_drain(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """The listener for upstreams takes what an attempt tells after clients are refused already."""
    port, release, told = free_port(), asyncio.Event(), asyncio.get_running_loop().create_future()

    async def hold(exchange: Exchange) -> None:
        exchange.execute()
        await release.wait()
        token = exchange.seen.value("Idempotency-Token") or b""
        head = b"PUT /v1/progress HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer %b\r\n" % token
        told.set_result(await ask(port, head + b'Content-Length: 28\r\n\r\n{"recovery_point": "ridden"}'))
        await exchange.answer()

    upstream.behave = hold
    routes = ROUTES.replace("{principal: [{header: Authorization}]}", "{principal: none, participate: {progress: true}}")
    more = f"progress: {{listen: 127.0.0.1:{port}}}"
    draining = replace(setup, drain="{delay: 0s, timeout: 90s}", timeouts="{first_byte: 20s}", routes=routes, more=more)
    async with running(draining, tmp_path) as gateway:
        request = asyncio.create_task(ask(gateway.port, payment(b"k1")))
        await upstream.executed.wait()
        gateway.terminate()
        await _until_refused(gateway.port)
        release.set()
        assert (await told).status == 204
        assert (await request).status == 201
        assert await asyncio.wait_for(gateway.process.wait(), 20) == 0


async def test_a_second_signal_ends_it_now(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Told twice, the process does not wait for what runs; the operation is not run again."""

    async def hold(exchange: Exchange) -> None:
        exchange.execute()
        await asyncio.sleep(60)

    usual, upstream.behave = upstream.behave, hold
    async with running(replace(setup, timeouts="{first_byte: 20s}"), tmp_path) as gateway:
        request = asyncio.create_task(ask(gateway.port, payment(b"k1")))
        await upstream.executed.wait()
        gateway.terminate()

        async def draining() -> bool:
            return any("Draining" in str(line["msg"]) for line in gateway.log_lines())

        await until(draining)
        started = time.monotonic()
        gateway.terminate()
        assert await asyncio.wait_for(gateway.process.wait(), 10) == 1
        assert time.monotonic() - started < 10
        await asyncio.gather(request, return_exceptions=True)
    upstream.behave = usual
    async with running(setup, tmp_path, "next") as successor:

        async def unknown() -> bool:
            return (await ask(successor.port, payment(b"k1"))).problem == "outcome-unknown"

        await until(unknown)
    assert upstream.runs_of(b"k1") == 1


async def test_a_drain_that_runs_out_of_time_leaves_unknown_at_once(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """What is cut at the drain's end is marked `unknown` by the process itself, not by its lapsed lease."""

    async def hold(exchange: Exchange) -> None:
        exchange.execute()
        await asyncio.sleep(60)

    usual, upstream.behave = upstream.behave, hold
    hasty = replace(
        setup, drain="{delay: 0s, timeout: 3s}", defaults="{lease: 60s, settle_timeout: 1s}", timeouts="{first_byte: 2s, total: 2s}"
    )
    async with running(hasty, tmp_path) as gateway:
        request = asyncio.create_task(ask(gateway.port, payment(b"k1")))
        await upstream.executed.wait()
        gateway.terminate()
        answer = (await asyncio.gather(request, return_exceptions=True))[0]
        assert await asyncio.wait_for(gateway.process.wait(), 20) == 0
    upstream.behave = usual
    async with running(hasty, tmp_path, "next") as successor:
        again = await ask(successor.port, payment(b"k1"))
    assert getattr(answer, "problem", None) == "outcome-unknown"
    assert again.problem == "outcome-unknown"
    assert upstream.runs_of(b"k1") == 1


async def test_reload_swaps_routes_and_a_bad_file_keeps_the_old_ones(gateway: Gateway, upstream: CountingUpstream) -> None:
    """SIGHUP takes over a new route map between two requests; a file with a mistake changes nothing and shows in the metrics."""
    text = gateway.config.read_text()
    gateway.config.write_text(text.replace("path: /v1/pay\n", "path: /v2/pay\n"))
    gateway.process.send_signal(1)

    async def swapped() -> bool:
        return (await ask(gateway.port, payment(None, target=b"/v2/pay"))).problem == "key-missing"

    await until(swapped)
    await gateway.counted(1, "idempotency_config_last_reload_successful")
    gateway.config.write_text(text.replace("upstream: payments\n", "upstream: nowhere\n"))
    gateway.process.send_signal(1)

    async def refused() -> bool:
        return await gateway.metric("idempotency_config_last_reload_successful") == 0

    await until(refused)
    assert (await ask(gateway.port, payment(b"k1", target=b"/v2/pay"))).status == 201
    assert await gateway.logged(lambda line: "nowhere" in str(line["msg"]))


async def test_reload_with_a_route_that_can_never_match_is_refused_and_told(gateway: Gateway) -> None:
    """Guarded routes are judged against each other at a reload, too: the mistake is logged, and the metric does not stay at 1."""
    text = gateway.config.read_text()
    start = text.index("  - id:")
    gateway.config.write_text(text + text[start:].replace("- id: ", "- id: again-"))
    gateway.process.send_signal(1)

    async def refused() -> bool:
        return await gateway.metric("idempotency_config_last_reload_successful") == 0

    await until(refused)
    assert await gateway.logged(lambda line: "this route can never match" in str(line["msg"]))
