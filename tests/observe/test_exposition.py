"""What `/metrics` shows, byte for byte: names, labels, help, buckets and order are what dashboards and alerts are built on.

The files beside this test were written by prometheus-client's own counters for the same events.
"""

import re
from pathlib import Path

import pytest

from gateway.core.decision import Label
from gateway.core.model import RecordKey
from gateway.core.policy import Policy, Route
from gateway.observe import MetricsObserver
from gateway.ports import Counts, RouteDoubt, RoutePending, StoreUnavailable, Swept, WebhookExchange
from tests.observe.support import GUARDED, OPEN, exchange

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
EXPECTED = {"": "exposition.txt", OPENMETRICS: "exposition.openmetrics.txt"}
QUOTED = Route('a "quoted\\ route"\n', "/q", "payments")


def happen(observer: MetricsObserver) -> None:
    """One of each event, and enough of the usual ones to fill buckets."""
    for number in range(40):
        for decision, seconds in ((Label.EXECUTE, 0.0003 * 1.37**number), (Label.REPLAY, 0.001), (Label.IN_PROGRESS, 61.5)):
            observer.request_started("create-charge")
            observer.request_ended(exchange(decision=decision, total_seconds=seconds))
    observer.request_started("rest")
    observer.request_started("nowhere")
    observer.request_ended(exchange("rest", "off", Label.BYPASS))
    observer.request_ended(exchange("nowhere", "invented", Label.REFUSED_TARGET))
    observer.request_ended(exchange(QUOTED.id, "off", Label.BYPASS, total_seconds=0.0025))
    for settlement, reason in (("complete", "responded"), ("doubt", "status_503"), ("release", "status_418"), ("x", "y")):
        observer.settled("create-charge", settlement, reason)
    for status in (201, 204, 302, 404, 500, 101, None):
        observer.upstream_answered("create-charge", status, 0.0421239)
    for operation, seconds in (("reserve", 0.00049), ("reserve", 0.0005), ("complete", 0.3), ("reserve", 11.0), ("invented", 0.1)):
        observer.store_operation("postgres", operation, seconds)
        observer.store_operation("redis", operation, seconds)
    for size in (1, 2, 3, 16, 256, 257):
        observer.store_batch("reserve", size)
        observer.store_batch("redis", size)
    observer.store_error("postgres", "reserve", "timeout")
    observer.store_error("redis", "acquire", "replica")
    observer.stale_write("complete")
    observer.redis_breaker(is_open=True)
    observer.clock_stepped(-3.0)
    observer.clock_suspended({"expiry": True})
    observer.key_noticed("create-charge", "short", "00ff")
    observer.duplicate_seen("create-charge", "00ff")
    observer.swept([Swept(RecordKey("charges:none", "key"), route, "request-1", 1) for route in ("create-charge", "left")])
    observer.reconciled("create-charge", "scheduled")
    observer.webhook_event(WebhookExchange("create-charge", "applied", "POST", 200, 0.1, 10, None))
    observer.conflicting_execution("create-charge", "request-9")
    observer.record_lost("create-charge", "request-9")
    observer.work_began("create-charge", 0.02)
    observer.abandoned("create-charge")
    observer.reaped(7)
    observer.reaped(0)
    observer.counted(
        Counts(
            1,
            2,
            3,
            4,
            5,
            6.5,
            [RouteDoubt("create-charge", 3, 1, 70.25), RouteDoubt("left", 2, 2, 90.0)],
            7,
            [RoutePending("create-charge", 7, 8.5)],
        )
    )
    observer.memory_held(123456789012)
    observer.scopes_differ(2)
    observer.malformed_request()
    for reason in ("header_timeout", "overloaded", "request_line_too_long"):
        observer.refused_client(reason)
    observer.update_targets({"payments": ["a:1", "b:2"], "other": ["c:3"]})
    observer.target_changed("payments", "a:1", healthy=False)
    observer.update_targets({"payments": ["b:2", "d:4"]})
    observer.update_certificates({"tls.cert_file": 1.0, "upstreams.payments.tls.ca_file": 2.0})
    observer.update_certificates({"tls.cert_file": 1893456000.0, "admin.tls.cert_file": 1.5})
    observer.background_failed("sweep", StoreUnavailable("postgres", "timeout", may_have_landed=True))
    observer.background_failed("invented", ValueError("x"))
    observer.reloaded(successful=False)
    observer.update_routes(
        [GUARDED, Route("refunds", "/v1/refunds", "payments", frozenset(), Policy("refunds", (), doubt_on=frozenset({599})))]
    )


def lasting(text: str) -> str:
    """Without what the process itself uses, versions, and instants: those differ from run to run."""
    lines = (line for line in text.splitlines(keepends=True) if not re.match(r"(# (HELP|TYPE|UNIT) )?process_", line))
    text = "".join(lines)
    text = re.sub(r"(idempotency_build_info)\{[^}]*\}", r"\1{}", text)
    return re.sub(r"(?m)^(idempotency_\w+_timestamp_seconds(?:\{[^}]*\})?) .*$", r"\1 0", text)


@pytest.mark.parametrize("accept", EXPECTED)
def test_the_exposition_is_the_same_byte_for_byte(accept: str) -> None:
    """Every family, in both formats, after one of each event."""
    observer = MetricsObserver((GUARDED, OPEN, QUOTED), access_log_fd=None)
    happen(observer)
    expected = Path(__file__).with_name(EXPECTED[accept]).read_text()
    assert lasting(observer.exposition(accept)[0].decode()) == expected
