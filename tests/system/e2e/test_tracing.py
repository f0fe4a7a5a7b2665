"""Spans of a whole gateway, as a collector gets them over OTLP."""

import importlib.util
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.core.trace_context import anchor
from tests.support.client import Answer, ask
from tests.support.collector import SOON, attributes, collecting
from tests.support.gateway import Setup, running
from tests.support.upstream import CountingUpstream

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("opentelemetry") is None and "CI" not in os.environ, reason="no OpenTelemetry here: pip install '.[otel]'"
)

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{CALLER}-01"


def traced(setup: Setup, endpoint: str, **changes: Any) -> Setup:
    return replace(setup, more=f"tracing: {{endpoint: '{endpoint}'}}", **changes)


async def post(port: int, key: str, **fields: str) -> Answer:
    """One payment; `fields` are more field lines, with `_` for `-`."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    head = f"POST /v1/pay HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\nIdempotency-Key: {key}\r\n{lines}Content-Length: 2\r\n\r\n"
    return await ask(port, head.encode() + b"{}")


async def test_a_payment_and_its_replay_are_one_story(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """The client's trace goes through to the upstream; the steps are children of the request; a replay links to the attempt; log lines have
    the trace.
    """
    async with collecting() as collector, running(traced(setup, collector.endpoint), tmp_path, env=SOON) as gateway:
        first = await post(gateway.port, "k-1", traceparent=PARENT)
        again = await post(gateway.port, "k-1")
        ids = [(answer.field("x-request-id") or b"").decode() for answer in (first, again)]
        paid, replayed = await collector.named("POST /v1/pay", 2)
        if attributes(paid)["idempotency.request_id"] != ids[0]:
            paid, replayed = replayed, paid
        assert (paid.trace_id.hex(), paid.parent_span_id.hex()) == (TRACE, CALLER)
        assert attributes(paid)["idempotency.decision"] == "execute"
        assert attributes(paid)["http.response.status_code"] == 201
        steps = {span.name: span for span in collector.spans if span.parent_span_id == paid.span_id}
        assert set(steps) == {"reserve", "forward", "settle"}
        assert all(span.trace_id.hex() == TRACE for span in steps.values())
        assert paid.start_time_unix_nano <= steps["reserve"].start_time_unix_nano
        assert steps["reserve"].end_time_unix_nano <= steps["forward"].start_time_unix_nano
        assert steps["forward"].end_time_unix_nano <= steps["settle"].start_time_unix_nano <= paid.end_time_unix_nano
        told = upstream.requests[0].value("traceparent")
        assert told == f"00-{TRACE}-{steps['forward'].span_id.hex()}-01".encode()

        attempt = anchor(ids[0])
        (stands_for,) = await collector.named("attempt")
        assert (stands_for.trace_id.hex(), stands_for.span_id.hex()) == (attempt.trace_id, attempt.span_id)
        assert [link.span_id for link in stands_for.links] == [paid.span_id]
        assert attributes(replayed)["idempotency.decision"] == "replay"
        assert [(link.trace_id.hex(), link.span_id.hex()) for link in replayed.links] == [(attempt.trace_id, attempt.span_id)]
        assert replayed.trace_id.hex() == anchor(ids[1]).trace_id
        lines = await gateway.logged(lambda line: line["msg"] == "request", 2)
        assert {line["trace_id"] for line in lines} == {TRACE, anchor(ids[1]).trace_id}


async def test_an_unguarded_request_has_spans_too(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Its own and that of the exchange, to whose trace the upstream is told that it belongs."""
    async with collecting() as collector, running(traced(setup, collector.endpoint), tmp_path, env=SOON) as gateway:
        await ask(gateway.port, f"GET /else HTTP/1.1\r\nHost: x\r\ntraceparent: {PARENT}\r\n\r\n".encode())
        (request,) = await collector.named("GET /**")
        (forward,) = await collector.named("forward")
        assert forward.parent_span_id == request.span_id
        assert upstream.requests[0].value("traceparent") == f"00-{TRACE}-{forward.span_id.hex()}-01".encode()
        assert [span.name for span in collector.spans if span.name in {"reserve", "settle", "attempt"}] == []


async def test_what_a_client_does_not_sample_is_not_exported(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Its decision goes on to the upstream."""
    async with collecting() as collector, running(traced(setup, collector.endpoint), tmp_path, env=SOON) as gateway:
        await post(gateway.port, "k-1", traceparent=f"{PARENT[:-1]}0")
        await post(gateway.port, "k-2", traceparent=PARENT)
        await collector.named("POST /v1/pay")
        assert len([span for span in collector.spans if span.name == "POST /v1/pay"]) == 1
        assert (upstream.requests[0].value("traceparent") or b"").endswith(b"-00")


async def test_a_collector_that_is_away_costs_no_request(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Nothing waits for it, and the process ends all the same."""
    async with running(traced(setup, "http://127.0.0.1:9/v1/traces"), tmp_path) as gateway:
        answers = [await post(gateway.port, f"k-{n}") for n in range(5)]
        assert [answer.status for answer in answers] == [201] * 5


async def test_without_the_setting_a_trace_passes_as_it_came(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """The upstream gets the client's own field, and the log line has its trace."""
    async with running(setup, tmp_path) as gateway:
        await post(gateway.port, "k-1", traceparent=PARENT)
        assert upstream.requests[0].value("traceparent") == PARENT.encode()
        (line,) = await gateway.logged(lambda line: line["msg"] == "request")
        assert line["trace_id"] == TRACE
