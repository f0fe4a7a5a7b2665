"""Spans for OpenTelemetry, made of what a request has told when it ends, and exported by a thread of their own.

Nothing of OpenTelemetry runs in a request: its instants are kept anyway. A collector that is away, or slow, costs spans and nothing else.
"""

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gateway import __version__
from gateway.core.decision import Label
from gateway.core.trace_context import Anchor, Trace, anchor, told_to_upstream
from gateway.observe.logs import describe
from gateway.ports import FinishedAttempt, FinishedRequest, WebhookExchange

NEEDS_EXTRA = "`tracing` needs the `otel` extra: pip install 'idempotency-gateway[otel]'"
_EXPORT_SECONDS = 2.0
"""How long an export may take; so long may the end of a process be delayed by a collector that is away."""
_NANO = 1_000_000_000
_SERVER_ERROR = 500

_log = logging.getLogger(__name__)


class MissingTracing(Exception):
    """The packages of OpenTelemetry are not installed; the message names the extra."""


class Tracer:
    """Tells a collector at `endpoint` (OTLP over HTTP) of requests, accepted work, looks, events and verdicts. Belongs to the event loop's
    thread.

    Raises `MissingTracing`.
    """

    def __init__(self, endpoint: str, service: str) -> None:
        try:
            from opentelemetry import trace as api  # noqa: PLC0415 - an extra that most installations do without
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - as above
            from opentelemetry.sdk import trace as sdk  # noqa: PLC0415 - as above
            from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - as above
            from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above
        except ImportError:
            raise MissingTracing(NEEDS_EXTRA) from None
        self._api: Any = api
        self._sdk: Any = sdk
        instance = f"{socket.gethostname()}-{os.getpid()}"
        self._resource: Any = Resource({"service.name": service, "service.version": __version__, "service.instance.id": instance})
        self._scope: Any = sdk.InstrumentationScope("idempotency-gateway", __version__)
        self._processor: Any = BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_SECONDS))

    def request(self, request: FinishedRequest, trace: Trace, pattern: str | None) -> None:
        """The spans of a request that has ended: its own, the reserve, the exchange, the settle, and what stands for its attempt."""
        end = time.time_ns()
        method = _method(request)
        name = f"{method} {pattern}" if pattern else method
        server, own = self._context(trace.trace_id, trace.span_id), anchor(request.request_id)
        executed, sent = request.attempt is not None, request.upstream_started
        promised = executed and request.decision is Label.ACCEPTED

        def instant(boottime: float) -> int:
            return end - int((request.started + request.total_seconds - boottime) * _NANO)

        links = [own] if executed else []
        if request.original is not None and request.original != request.request_id:
            links.append(anchor(request.original))
        caller = None if trace.parent is None else self._context(trace.trace_id, trace.parent, remote=True)
        kind = self._api.SpanKind
        about = _about(request)
        error = request.status >= _SERVER_ERROR
        self._emit(name, kind.SERVER, server, caller, instant(request.started), end, about, links=links, error=error)
        decided = end if sent is None else instant(sent)
        if request.store_seconds:
            self._emit("reserve", kind.INTERNAL, self._fresh(trace.trace_id), server, decided - int(request.store_seconds * _NANO), decided)
        exchange = self._context(trace.trace_id, trace.exchange)
        attempt = self._context(own.trace_id, own.span_id)
        inside = server if own.trace_id == trace.trace_id else None
        own_links = [Anchor(trace.trace_id, trace.span_id)]
        if promised:
            self._emit("accepted", kind.PRODUCER, exchange, server, decided, end, about)
            self._emit("attempt", kind.INTERNAL, attempt, inside, decided, end, about, links=own_links)
        if sent is None:
            return
        came = decided + int((request.upstream_seconds or 0.0) * _NANO)
        answered = {} if request.upstream_status is None else {"http.response.status_code": request.upstream_status}
        self._emit("forward", kind.CLIENT, exchange, server, decided, came, answered, error=request.upstream_status is None)
        if executed:
            self._emit("settle", kind.INTERNAL, self._fresh(trace.trace_id), server, came, end)
            self._emit("attempt", kind.INTERNAL, attempt, inside, decided, end, about, links=own_links)

    def attempt(self, attempt: FinishedAttempt, pattern: str | None) -> None:
        """The spans of accepted work that ran after its 202: below `accepted`, in the trace of the request that was accepted."""
        parent = told_to_upstream(attempt.traceparent)
        if parent is None:
            return
        end, kind = time.time_ns(), self._api.SpanKind
        method = attempt.method if attempt.method.isascii() else "_OTHER"

        def instant(boottime: float) -> int:
            return end - int((attempt.started + attempt.total_seconds - boottime) * _NANO)

        run = self._fresh(parent.trace_id)
        accepted = self._context(parent.trace_id, parent.span_id, remote=True)
        links = [anchor(attempt.request_id)]
        self._emit(
            f"run {method} {pattern or attempt.route}",
            kind.CONSUMER,
            run,
            accepted,
            instant(attempt.started),
            end,
            _about_attempt(attempt, method),
            links=links,
            error=attempt.settlement == "doubt",
        )
        sent = attempt.upstream_started
        if sent is None:
            return
        came = instant(sent + (attempt.upstream_seconds or 0.0))
        answered = {} if attempt.upstream_status is None else {"http.response.status_code": attempt.upstream_status}
        forward = self._fresh(parent.trace_id)
        self._emit("forward", kind.CLIENT, forward, run, instant(sent), came, answered, error=attempt.upstream_status is None)
        self._emit("settle", kind.INTERNAL, self._fresh(parent.trace_id), run, came, end)

    def look(self, route: str, request_id: str, verdict: str, seconds: float) -> None:
        """A look at what an attempt in doubt did, beside that attempt."""
        self._beside(f"look {route}", request_id, seconds, {"idempotency.route": route, "idempotency.verdict": verdict})

    def webhook(self, event: WebhookExchange) -> None:
        """An event about an attempt, beside it. One that fits none has no span."""
        if event.request_id is not None:
            about = {"idempotency.route": event.route, "idempotency.result": event.result, "http.response.status_code": event.status}
            self._beside(f"webhook {event.route}", event.request_id, event.total_seconds, about)

    def verdict(self, route: str, request_id: str, change: str, seconds: float) -> None:
        """A person's verdict about an attempt, beside it. Who it was stands in the audit table."""
        self._beside(f"verdict {route}", request_id, seconds, {"idempotency.route": route, "idempotency.verdict": change})

    def close(self) -> None:
        """Export what is left, for a few seconds at most."""
        self._processor.shutdown()

    def _beside(self, name: str, request_id: str, seconds: float, about: Mapping[str, Any]) -> None:
        end, first = time.time_ns(), anchor(request_id)
        attempt = self._context(first.trace_id, first.span_id, remote=True)
        begin, attributes = end - int(seconds * _NANO), {**about, "idempotency.request_id": request_id}
        self._emit(name, self._api.SpanKind.INTERNAL, self._fresh(first.trace_id), attempt, begin, end, attributes, links=[first])

    def _context(self, trace_id: str, span_id: str, *, remote: bool = False) -> Any:
        flags = self._api.TraceFlags(self._api.TraceFlags.SAMPLED)
        return self._api.SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=remote, trace_flags=flags)

    def _fresh(self, trace_id: str) -> Any:
        return self._context(trace_id, os.urandom(8).hex())

    def _emit(  # noqa: PLR0917 - a span has these parts, and each call names few of them
        self,
        name: str,
        kind: Any,
        context: Any,
        parent: Any,
        start: int,
        end: int,
        attributes: Mapping[str, Any] | None = None,
        *,
        links: Sequence[Anchor] = (),
        error: bool = False,
    ) -> None:
        linked = [self._api.Link(self._context(one.trace_id, one.span_id, remote=True)) for one in links]
        status = self._api.Status(self._api.StatusCode.ERROR) if error else self._api.Status()
        span = self._sdk.ReadableSpan(
            name,
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=attributes or {},
            links=linked,
            kind=kind,
            status=status,
            start_time=start,
            end_time=max(start, end),
            instrumentation_scope=self._scope,
        )
        self._processor.on_end(span)


def tracer_of(endpoint: str, service: str) -> Tracer | None:
    """For processes that serve no requests: one without the packages does without spans."""
    try:
        return Tracer(endpoint, service)
    except MissingTracing:
        return None


def harmless(tell: Callable[[str, str, str, float], None]) -> Callable[[str, str, str, float], None]:
    """A span that cannot be made costs what it is about nothing."""

    def told(route: str, request_id: str, word: str, seconds: float) -> None:
        try:
            tell(route, request_id, word, seconds)
        except Exception as error:
            _log.warning("A span could not be made", extra={"error": describe(error)})

    return told


def _method(request: FinishedRequest) -> str:
    """One that is no ASCII has no name in OpenTelemetry: its encoder would drop a whole batch for it."""
    return request.method if request.method.isascii() else "_OTHER"


def _about(request: FinishedRequest) -> Mapping[str, Any]:
    """What a span says of a request: what its log line says."""
    told = {
        "http.request.method": _method(request),
        "http.response.status_code": request.status,
        "idempotency.request_id": request.request_id,
        "idempotency.route": request.route,
        "idempotency.mode": request.mode,
        "idempotency.decision": request.decision.value,
        "idempotency.key_digest": request.key_digest,
        "idempotency.scope_id": None if request.scope is None else request.scope.id,
        "idempotency.attempt": request.attempt,
        "idempotency.settlement": request.settlement,
        "idempotency.reason": request.reason,
    }
    return {name: value for name, value in told.items() if value is not None}


def _about_attempt(attempt: FinishedAttempt, method: str) -> Mapping[str, Any]:
    told = {
        "http.request.method": method,
        "idempotency.request_id": attempt.request_id,
        "idempotency.route": attempt.route,
        "idempotency.decision": attempt.decision.value,
        "idempotency.key_digest": attempt.key_digest,
        "idempotency.scope_id": attempt.scope_id,
        "idempotency.record_id": str(attempt.record_id),
        "idempotency.attempt": attempt.attempt,
        "idempotency.settlement": attempt.settlement,
        "idempotency.reason": attempt.reason,
        "idempotency.waited_seconds": attempt.waited,
    }
    return {name: value for name, value in told.items() if value is not None}
