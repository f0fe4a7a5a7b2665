"""What went wrong is in the log and in the metrics, with its cause, and nothing that happened is missing there."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

from gateway.devtools.embedded.ports import free_port
from tests.support.client import Client, ask, payment
from tests.support.gateway import Gateway, Setup, running
from tests.support.upstream import CountingUpstream, Exchange

ROUTES = """
  - id: pay
    methods: [POST]
    path: /v1/pay
    upstream: payments
    idempotency: {principal: [{header: Authorization}], stream: true, limits: {request_body: 4MiB}}
  - {id: rest, path: /**, upstream: payments}
"""


async def test_why_an_upstream_cannot_be_reached(setup: Setup, tmp_path: Path) -> None:
    """The access line has the reason on guarded and unguarded routes alike, and a message has the system's own words."""
    async with running(replace(setup, upstream_port=free_port()), tmp_path) as gateway:
        assert (await ask(gateway.port, payment(b"k1"))).status == 502
        assert (await ask(gateway.port, payment(None, target=b"/other"))).status == 502
        lines = await gateway.logged(lambda line: line["msg"] == "request", 2)
        assert [line["reason"] for line in lines] == ["connection_refused", "connection_refused"]
        told = await gateway.logged(lambda line: line["msg"].startswith("An upstream could not be reached"))
        assert told[0]["upstream"] == "payments"
        assert "Connect" in told[0]["cause"]


async def test_what_became_of_a_stream(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Its line tells how it was settled, though it was under way before anybody knew; a break is the upstream's, not the client's."""

    async def stream(exchange: Exchange) -> None:
        exchange.execute()
        await exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")

    async def broken(exchange: Exchange) -> None:
        exchange.execute()
        await exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        exchange.hang_up()

    async with running(replace(setup, routes=ROUTES), tmp_path) as gateway:
        upstream.behave = stream
        assert (await ask(gateway.port, payment(b"k1"))).body == b"onetwo"
        upstream.behave = broken
        try:
            await ask(gateway.port, payment(b"k2"))
        except asyncio.IncompleteReadError:
            pass
        else:
            raise AssertionError("a broken stream must not look whole")
        whole, cut = await gateway.logged(lambda line: line["msg"] == "request", 2)
        assert (whole["settlement"], whole["reason"], whole["client_gone"]) == ("complete", "responded", False)
        assert (cut["settlement"], cut["client_gone"]) == ("doubt", False)


async def test_a_drain_says_what_it_cut(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """A stream that outlasts the drain is cut, counted, and has its line in the log."""

    async def endless(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await asyncio.sleep(60)

    upstream.behave = endless
    timeouts = "{connect: 1s, first_byte: 1s, read_idle: 1s, total: 1s}"
    async with (
        running(replace(setup, drain="{delay: 0s, timeout: 3s}", timeouts=timeouts), tmp_path) as gateway,
        await Client.connect(gateway.port) as client,
    ):
        await client.send(payment(None, b"", method=b"GET", target=b"/events"))
        await client.reader.readuntil(b"one\r\n")
        gateway.terminate()
        await asyncio.wait_for(gateway.process.wait(), 30)
        assert gateway.process.returncode == 0
        assert any("1 connections were cut" in line["msg"] for line in gateway.log_lines())
        assert [line["route"] for line in gateway.log_lines() if line["msg"] == "request"] == ["rest"]


async def test_a_disk_that_cannot_be_used_is_told_and_costs_nothing_else(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """The body stays in memory, the operation runs, a counter and one message tell of it, and no traceback is printed."""
    folder = tmp_path / "spill"
    folder.mkdir()
    async with running(replace(setup, routes=ROUTES, more=f"memory: {{spill_directory: {folder}}}"), tmp_path) as gateway:
        shutil.rmtree(folder)
        answer = await ask(gateway.port, payment(b"k1", b"x" * 3_000_000))
        assert answer.status == 201
        assert len(upstream.requests[0].body) == 3_000_000
        await gateway.counted(2, "idempotency_background_failures_total", task="spill")  # the request's body, and its echo
        assert "Exception ignored" not in gateway.log.read_text()


async def test_a_204_has_no_length(gateway: Gateway, upstream: CountingUpstream) -> None:
    """RFC 9110 section 8.6: not on the first answer, and not on a replay, whatever the upstream says."""

    async def nothing(exchange: Exchange) -> None:
        exchange.execute()
        await exchange.send(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n")

    upstream.behave = nothing
    for _ in range(2):
        assert (await ask(gateway.port, payment(b"k1"))).field("content-length") is None
    assert len(upstream.requests) == 1
