"""Spans of what happens beside requests, and of requests that fail."""

import asyncio
import importlib.util
import os
import sys

import pytest

from gateway.core.decision import Label
from gateway.core.trace_context import Sampling, anchor
from gateway.observe import MetricsObserver
from gateway.observe.tracing import NEEDS_EXTRA, MissingTracing, Tracer
from gateway.ports import WebhookExchange
from tests.observe.support import GUARDED, exchange, parse, value
from tests.support.collector import attributes, collecting

needs_otel = pytest.mark.skipif(
    importlib.util.find_spec("opentelemetry") is None and "CI" not in os.environ, reason="no OpenTelemetry here: pip install '.[otel]'"
)


@needs_otel
async def test_looks_and_events_stand_beside_their_attempt() -> None:
    """In its trace, below it and linked to it; an event that fits no record has no span."""
    async with collecting() as collector:
        tracer = Tracer(collector.endpoint, "gateway-of-tests")
        tracer.look("pay", "request-1", "executed", 0.25)
        tracer.webhook(WebhookExchange("pay", "applied", "POST", 200, 0.5, 10, None, request_id="request-1"))
        tracer.webhook(WebhookExchange("pay", "unmatched", "POST", 200, 0.5, 10, None))
        await asyncio.to_thread(tracer.close)
    first = anchor("request-1")
    assert sorted(span.name for span in collector.spans) == ["look pay", "webhook pay"]
    for span in collector.spans:
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (first.trace_id, first.span_id)
        assert [link.span_id.hex() for link in span.links] == [first.span_id]
        assert attributes(span)["idempotency.request_id"] == "request-1"
    look = next(span for span in collector.spans if span.name == "look pay")
    assert attributes(look)["idempotency.verdict"] == "executed"
    assert abs((look.end_time_unix_nano - look.start_time_unix_nano) / 1e9 - 0.25) < 0.001


@needs_otel
async def test_a_retry_links_to_the_attempt_before() -> None:
    """To its own attempt, and to that of the request that had the record; a server error is an error."""
    trace = Sampling(1.0).begin(None, "request-2", bytes(range(16)))
    retried = exchange(
        decision=Label.EXECUTE_RETRY, request_id="request-2", original="request-1", attempt=2, status=504, upstream_status=None,
        settlement="doubt", reason="upstream_timeout", started=100.0, upstream_started=100.01, total_seconds=0.05, trace=trace,
    )  # fmt: skip
    async with collecting() as collector:
        tracer = Tracer(collector.endpoint, "gateway-of-tests")
        tracer.request(retried, trace, None)
        await asyncio.to_thread(tracer.close)
    spans = {span.name: span for span in collector.spans}
    assert set(spans) == {"POST", "reserve", "forward", "settle", "attempt"}
    assert [link.span_id.hex() for link in spans["POST"].links] == [anchor("request-2").span_id, anchor("request-1").span_id]
    assert (spans["POST"].status.code, spans["forward"].status.code, spans["settle"].status.code) == (2, 2, 0)
    assert spans["attempt"].parent_span_id == spans["POST"].span_id, "they are in one trace, as no client has begun one"
    assert attributes(spans["POST"])["idempotency.reason"] == "upstream_timeout"


@needs_otel
async def test_a_span_that_cannot_be_made_costs_its_request_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails in a tracer is counted, and the request has been counted and logged before."""
    tracer = Tracer("http://127.0.0.1:9/v1/traces", "gateway-of-tests")

    def fail(*_: object, **__: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(tracer, "_emit", fail)
    observer = MetricsObserver([GUARDED], access_log_fd=None, tracer=tracer)
    trace = Sampling(1.0).begin(None, "request-2", bytes(range(16)))
    observer.request_started(GUARDED.id)
    observer.request_ended(exchange(trace=trace))
    observer.looked(GUARDED.id, "request-1", "executed", 0.1)
    observer.webhook_event(WebhookExchange(GUARDED.id, "applied", "POST", 200, 0.5, 10, None, request_id="request-1"))
    series = parse(observer.exposition()[0])
    assert value(series, "background_failures_total", task="trace") == 3
    assert value(series, "requests_total", route=GUARDED.id, mode="enforce", decision="execute") == 1
    await asyncio.to_thread(tracer.close)


@needs_otel
async def test_a_method_that_no_encoder_takes_spoils_no_batch() -> None:
    """A client's odd method must not cost the spans of others."""
    trace = Sampling(1.0).begin(None, "request-2", bytes(range(16)))
    async with collecting() as collector:
        tracer = Tracer(collector.endpoint, "gateway-of-tests")
        tracer.request(exchange(method="PAY\udce9", trace=trace), trace, "/v1/charges")
        tracer.request(exchange(trace=trace), trace, "/v1/charges")
        await asyncio.to_thread(tracer.close)
    assert {span.name for span in collector.spans if span.kind == 2} == {"_OTHER /v1/charges", "POST /v1/charges"}


def test_without_the_extra_it_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence with the command that installs it."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingTracing, match="pip install 'idempotency-gateway"):
        Tracer("http://127.0.0.1:9/v1/traces", "x")
    assert "otel" in NEEDS_EXTRA
