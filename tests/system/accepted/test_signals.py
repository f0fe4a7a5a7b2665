"""Accepted work and people's verdicts, as logs and traces tell of them."""

import asyncio
import importlib.util
import json
import os
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.core.trace_context import anchor
from tests.support.client import ask, payment
from tests.support.collector import SOON, Collector, attributes, collecting
from tests.support.gateway import Gateway, Setup, running
from tests.support.upstream import CountingUpstream, Exchange
from tests.system.accepted.asking import location, to_its_end

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("opentelemetry") is None and "CI" not in os.environ, reason="no OpenTelemetry here: pip install '.[otel]'"
)

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = b"traceparent: 00-%b-%b-01" % (TRACE.encode(), CALLER.encode())
GROUNDS = {"actor": "dana", "reason": "it stands in the books"}


def linked(span: Any) -> list[tuple[str, str]]:
    return [(link.trace_id.hex(), link.span_id.hex()) for link in span.links]


async def the_story(collector: Collector, gateway: Gateway, key: str, request_id: str) -> dict[str, Any]:
    """Of one accepted operation: its spans, by name, and its line; that they belong together."""
    async with asyncio.timeout(20):
        while not (runs := [one for one in collector.spans if one.name.startswith("run ") and attributes(one)[key] == request_id]):
            await asyncio.sleep(0.05)
    (run,) = runs
    (line,) = await gateway.logged(lambda line: line["msg"] == "attempt" and line["request_id"] == request_id)
    own = anchor(request_id)
    assert linked(run) == [(own.trace_id, own.span_id)]
    accepted = next(one for one in await collector.named("accepted", 1) if attributes(one)[key] == request_id)
    assert (run.trace_id, run.parent_span_id) == (accepted.trace_id, accepted.span_id)
    steps = {one.name for one in collector.spans if one.parent_span_id == run.span_id}
    assert steps == {"forward", "settle"}
    assert line["trace_id"] == run.trace_id.hex()
    assert line["record_id"] == attributes(run)["idempotency.record_id"]
    return {"run": run, "accepted": accepted, "line": line}


async def test_accepted_work_belongs_to_the_trace_of_its_request(accepting: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Begun at once or taken from what waits: a span below that of the acceptance, which the upstream was told, and a line of its own with
    the ids of the record. A request that meets it adds neither.
    """
    opened = asyncio.Event()

    async def behave(exchange: Exchange) -> None:
        await opened.wait()
        exchange.execute()
        await exchange.answer()

    upstream.behave = behave
    async with collecting() as collector:
        setup = replace(accepting, more=f"{accepting.more}\ntracing: {{endpoint: '{collector.endpoint}'}}")
        async with running(setup, tmp_path, env=SOON) as gateway:
            first = await ask(gateway.port, payment(b"k1", target=b"/v1/slow", more=(PARENT,)))
            waits = await ask(gateway.port, payment(b"k2", target=b"/v1/slow"))
            again = await ask(gateway.port, payment(b"k2", target=b"/v1/slow"))
            assert location(again) == location(waits)
            opened.set()
            await to_its_end(gateway.port, location(waits))
            ids = [(one.field("x-request-id") or b"").decode() for one in (first, waits, again)]
            told = [await the_story(collector, gateway, "idempotency.request_id", one) for one in ids[:2]]
            assert told[0]["run"].trace_id.hex() == TRACE
            parents = {request.value("traceparent") for request in upstream.requests}
            assert parents == {
                b"00-%b-%b-01" % (one["run"].trace_id.hex().encode(), one["accepted"].span_id.hex().encode()) for one in told
            }
            lines = await gateway.logged(lambda line: line["msg"] == "request" and line["decision"] == "accepted", 3)
            by_id = {line["request_id"]: line for line in lines}
            assert [by_id[one]["attempt"] for one in ids] == [1, 1, None]
            for one, story in zip(ids, told, strict=False):
                line = story["line"]
                assert [line[name] for name in ("key", "scope_id", "path_pattern")] == [
                    by_id[one][name] for name in ("key", "scope_id", "path_pattern")
                ]
                assert (line["settlement"], line["reason"], line["upstream_status"], line["attempt"]) == ("complete", "responded", 201, 1)
            assert told[1]["line"]["waited_ms"] > 0 == told[0]["line"]["waited_ms"]
            assert len([one for one in collector.spans if one.name == "accepted"]) == 2


async def by_command(*words: str) -> tuple[int | None, str]:
    """Its status, and what it said on stderr."""
    pipe = asyncio.subprocess.PIPE
    command = await asyncio.create_subprocess_exec(sys.executable, "-m", "gateway", *words, stdout=pipe, stderr=pipe)
    _, said = await command.communicate()
    return command.returncode, said.decode()


async def test_verdicts_of_people_stand_beside_the_attempt(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Of the admin API and of the command line, linked to the attempt that they are about."""

    async def behave(exchange: Exchange) -> None:
        exchange.execute()
        exchange.hang_up()

    upstream.behave = behave
    async with (
        collecting() as collector,
        running(replace(setup, more=f"tracing: {{endpoint: '{collector.endpoint}'}}"), tmp_path, env=SOON) as gateway,
    ):
        ids = [((await ask(gateway.port, payment(key))).field("x-request-id") or b"").decode() for key in (b"k1", b"k2", b"k3")]
        records = json.loads((await gateway.get("/admin/v1/records?state=unknown"))[1])["records"]
        names = {one["request_id"]: one["id"] for one in records}

        def by_the_api() -> None:
            body = json.dumps({**GROUNDS, "verdict": "executed", "status": 201, "body": "{}"}).encode()
            url = f"http://127.0.0.1:{gateway.admin}/admin/v1/records/{names[ids[0]]}/resolve"
            request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
            urllib.request.urlopen(request, timeout=10).close()

        await asyncio.to_thread(by_the_api)
        command = ["records", "resolve", names[ids[1]], "--completed", "--status", "201", "--no-body", "--yes", "--reason", "as above"]
        assert await by_command(*command, "--config", str(gateway.config)) == (0, "OK\n")
        verdicts = await collector.named("verdict pay", 2)
        about = {str(attributes(one)["idempotency.request_id"]): one for one in verdicts}
        for request_id in ids[:2]:
            own, span = anchor(request_id), about[request_id]
            assert (span.trace_id.hex(), span.parent_span_id.hex()) == (own.trace_id, own.span_id)
            assert linked(span) == [(own.trace_id, own.span_id)]
            assert attributes(span)["idempotency.verdict"] == "executed"
            assert "dana" not in attributes(span).values()
        away = tmp_path / "away.yaml"
        away.write_text(gateway.config.read_text().replace(collector.endpoint, "http://127.0.0.1:9/v1/traces"))
        command[2] = names[ids[2]]
        assert await by_command(*command, "--config", str(away)) == (0, "OK\n"), "a collector that is away costs a verdict nothing"
