"""What `/metrics` shows for what the gateway tells the observer."""

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics import parser as openmetrics

from gateway.core.decision import Label
from gateway.core.model import RecordKey
from gateway.core.policy import Policy, Route
from gateway.observe import MetricsObserver, sets
from gateway.ports import Counts, RouteDoubt, StoreUnavailable, Swept, WebhookExchange
from tests.observe.support import GUARDED, OPEN, Series, exchange, parse, value

LOW = ("0.001", "0.0025", "0.005")


def make(*routes: Route) -> MetricsObserver:
    return MetricsObserver(routes or (GUARDED, OPEN), access_log_fd=None)


def shown(observer: MetricsObserver) -> Series:
    return parse(observer.exposition()[0])


def test_what_is_usual_is_at_zero_from_the_start() -> None:
    """Before any request the usual decisions of every route are there, at 0, and so is what has no labels."""
    series = shown(make())
    for label in ("execute", "replay", "in_progress", "key_misuse", "unknown", "store_unavailable"):
        assert value(series, "requests_total", route="create-charge", mode="enforce", decision=label) == 0
    for route in ("rest", "unmatched"):
        assert value(series, "requests_total", route=route, mode="off", decision="bypass") == 0
        assert value(series, "in_flight", route=route) == 0
    assert value(series, "settlements_total", route="create-charge", settlement="complete", reason="responded") == 0
    assert value(series, "zombies_total", route="other") == 0
    for status in ("in_progress", "completed", "failed_retryable", "unknown"):
        assert value(series, "records", status=status) == 0
    for name in (
        "reaped_total",
        "lost_records_total",
        "dead_letters",
        "unknown_oldest_age_seconds",
        "redis_breaker_open",
        "malformed_requests_total",
    ):
        assert value(series, name) == 0
    assert value(series, "config_last_reload_successful") == 1
    assert any(name == "process_cpu_seconds_total" for name, _ in series)
    assert [one for (name, _), one in series.items() if name == "idempotency_build_info"] == [1]


def ours(series: Series) -> Series:
    """Without what the process itself uses, which goes on while one looks."""
    return {name: one for name, one in series.items() if name[0].startswith("idempotency_")}


def of_a_route(series: Series, route: str) -> int:
    return sum(("route", route) in labels for _, labels in series)


def test_a_route_has_few_series_until_something_happens() -> None:
    """What is rare appears when it first happens: a guarded route begins with at most 25 series, one that guards nothing with two."""
    series = shown(make())
    assert of_a_route(series, "create-charge") <= 25
    assert of_a_route(series, "rest") == 2


def test_a_busy_route_has_a_bounded_number_of_series() -> None:
    """One that has met every decision, answer and doubt there is; usual traffic (executed, replayed, in progress) is a fifth of it."""
    observer = make()
    for label in (Label.EXECUTE, Label.REPLAY, Label.IN_PROGRESS):
        observer.request_ended(exchange(decision=label))
    observer.upstream_answered("create-charge", 201, 0.1)
    observer.settled("create-charge", "complete", "responded")
    assert of_a_route(shown(observer), "create-charge") <= 100
    for label in Label:
        observer.request_ended(exchange(decision=label))
    for status in (None, 100, 200, 300, 400, 500):
        observer.upstream_answered("create-charge", status, 0.1)
    for settlement, reasons in sets.SETTLEMENTS.items():
        for reason in reasons:
            observer.settled("create-charge", settlement, reason)
    assert of_a_route(shown(observer), "create-charge") <= 620


def test_the_format_is_the_one_that_the_scraper_asks_for() -> None:
    """Prometheus asks for OpenMetrics, and older scrapers, or none, for the text format."""
    observer = make()
    accept = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    body, content_type = observer.exposition(accept)
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")
    read = openmetrics.text_string_to_metric_families(body.decode())  # type: ignore[no-untyped-call]  # the library leaves it untyped
    families = {family.name: family for family in read}
    assert families["idempotency_requests"].type == "counter"
    body, content_type = observer.exposition("text/plain;version=0.0.4;q=0.5")
    assert content_type.startswith("text/plain; version=0.0.4")
    assert ours(parse(body)) == ours(shown(observer))


def test_short_durations_are_told_apart() -> None:
    """A replay takes a millisecond or two: there are bounds below five."""
    observer = make()
    observer.request_ended(exchange(decision=Label.REPLAY, total_seconds=0.0009))
    observer.request_ended(exchange(decision=Label.REPLAY, total_seconds=0.002))
    buckets = [value(shown(observer), "request_duration_seconds_bucket", route="create-charge", decision="replay", le=le) for le in LOW]
    assert buckets == [1, 2, 2]


def test_a_request_is_counted_once_it_has_ended() -> None:
    """A started request is in flight; an ended one is counted under its route, mode and decision, with its duration."""
    observer = make()
    observer.request_started("create-charge")
    observer.request_started("create-charge")
    observer.request_ended(exchange(decision=Label.REPLAY, total_seconds=0.3))
    series = shown(observer)
    assert value(series, "in_flight", route="create-charge") == 1
    assert value(series, "requests_total", route="create-charge", mode="enforce", decision="replay") == 1
    assert value(series, "request_duration_seconds_sum", route="create-charge", decision="replay") == pytest.approx(0.3)
    assert value(series, "request_duration_seconds_bucket", route="create-charge", decision="replay", le="0.25") == 0
    assert value(series, "request_duration_seconds_bucket", route="create-charge", decision="replay", le="0.5") == 1


def test_settlements_are_counted_by_reason() -> None:
    """A status of the route's lists has its own series; others share one, as does a reason nobody knows."""
    observer = make()
    observer.settled("create-charge", "complete", "responded")
    observer.settled("create-charge", "doubt", "status_503")
    observer.settled("create-charge", "doubt", "status_599")
    observer.settled("create-charge", "release", "reserve_reply_lost")
    observer.settled("gone-route", "complete", "responded")
    series = shown(observer)
    assert value(series, "settlements_total", route="create-charge", settlement="complete", reason="responded") == 1
    assert value(series, "settlements_total", route="create-charge", settlement="doubt", reason="status_503") == 1
    assert value(series, "settlements_total", route="create-charge", settlement="doubt", reason="status_other") == 1
    assert value(series, "settlements_total", route="create-charge", settlement="release", reason="other") == 1
    assert value(series, "settlements_total", route="other", settlement="complete", reason="responded") == 1


@pytest.mark.parametrize(
    ("status", "name"), [(200, "2xx"), (302, "3xx"), (404, "4xx"), (599, "5xx"), (None, "none"), (700, "other"), (101, "other")]
)
def test_upstream_answers_are_timed_by_class(status: int | None, name: str) -> None:
    """An upstream exchange counts under the class of its status, or `none` without a response."""
    observer = make()
    observer.upstream_answered("rest", status, 0.2)
    assert value(shown(observer), "upstream_duration_seconds_count", route="rest", code_class=name) == 1


def test_store_events_are_counted_under_closed_sets() -> None:
    """Operations, errors, batches and stale writes of stores are counted; names nobody knows share `other`."""
    observer = make()
    observer.store_operation("postgres", "reserve", 0.0007)
    observer.store_operation("postgres", "invented", 0.1)
    observer.store_operation("invented", "reserve", 0.1)
    observer.store_error("redis", "acquire", "timeout")
    observer.store_error("redis", "acquire", "invented")
    observer.store_batch("reserve", 17)
    observer.stale_write("complete")
    observer.stale_write("invented")
    observer.redis_breaker(is_open=True)
    series = shown(observer)
    assert value(series, "store_duration_seconds_bucket", store="postgres", operation="reserve", le="0.001") == 1
    assert value(series, "store_duration_seconds_count", store="postgres", operation="other") == 1
    assert value(series, "store_duration_seconds_count", store="other", operation="other") == 1
    assert value(series, "store_errors_total", store="redis", operation="acquire", reason="timeout") == 1
    assert value(series, "store_errors_total", store="redis", operation="acquire", reason="other") == 1
    assert value(series, "store_batch_size_sum", operation="reserve") == 17
    assert value(series, "stale_writes_total", operation="complete") == 1
    assert value(series, "stale_writes_total", operation="other") == 1
    assert value(series, "redis_breaker_open") == 1


def test_background_work_shows(caplog: pytest.LogCaptureFixture) -> None:
    """Sweeps, reaps and counts show in the metrics; each zombie is a warning without its key; a route that left counts as `other`."""
    observer = make()
    lapsed = [Swept(RecordKey("charges:none", "SECRET-KEY"), route, "request-1", 1) for route in ("create-charge", "left", "left")]
    observer.swept(lapsed)
    observer.reaped(7)
    observer.counted(Counts(1, 2, 3, 4, 5, 6.5))
    observer.malformed_request()
    series = shown(observer)
    assert value(series, "zombies_total", route="create-charge") == 1
    assert value(series, "zombies_total", route="other") == 2
    assert value(series, "reaped_total") == 7
    assert [value(series, "records", status=one) for one in ("in_progress", "completed", "failed_retryable", "unknown")] == [1, 2, 3, 4]
    assert value(series, "dead_letters") == 5
    assert value(series, "unknown_oldest_age_seconds") == 6.5
    assert value(series, "malformed_requests_total") == 1
    zombies = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [vars(record)["request_id"] for record in zombies] == ["request-1"] * 3
    assert "SECRET-KEY" not in repr([vars(record) for record in zombies])


def test_doubts_show_by_route() -> None:
    """Each route has its own figures, also once nothing is in doubt any more; records of routes that left are told as `other`."""
    observer = make()
    doubts = [RouteDoubt("create-charge", 3, 1, 70.0), RouteDoubt("left", 2, 2, 90.0), RouteDoubt("gone", 1, 0, 95.0)]
    observer.counted(Counts(0, 0, 0, 6, 3, 95.0, doubts))
    series = shown(observer)
    names = ("route_unknown", "route_dead_letters", "route_unknown_oldest_age_seconds")
    assert [value(series, name, route="create-charge") for name in names] == [3, 1, 70.0]
    assert [value(series, name, route="other") for name in names] == [3, 2, 95.0]
    observer.counted(Counts(0, 0, 0, 0, 0, 0.0))
    assert [value(shown(observer), name, route="create-charge") for name in names] == [0, 0, 0]


def test_finding_out_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Steps of the reconciler and events of webhooks count by their closed sets; a second execution is an error in the log, too."""
    observer = make()
    observer.reconciled("create-charge", "scheduled")
    observer.reconciled("create-charge", "invented")
    observer.webhook_event(WebhookExchange("create-charge", "applied", "POST", 200, 0.1, 10, None))
    observer.conflicting_execution("create-charge", "request-9")
    series = shown(observer)
    assert [value(series, "reconcile_total", route="create-charge", result=one) for one in ("scheduled", "other")] == [1, 1]
    assert value(series, "webhook_events_total", route="create-charge", result="applied") == 1
    assert value(series, "conflicting_executions_total", route="create-charge") == 1
    assert [vars(record)["request_id"] for record in caplog.records if record.levelno == logging.ERROR] == ["request-9"]


def test_background_failures_are_counted_and_logged_sparingly(caplog: pytest.LogCaptureFixture) -> None:
    """Every failure counts; of many in a row the log shows the first, without the error's own text."""
    observer = make()
    for _ in range(50):
        observer.background_failed("sweep", ValueError("value of a row"))
    observer.background_failed("invented", StoreUnavailable("postgres", "timeout", may_have_landed=True))
    series = shown(observer)
    assert value(series, "background_failures_total", task="sweep") == 50
    assert value(series, "background_failures_total", task="other") == 1
    assert [vars(record)["error"] for record in caplog.records] == ["ValueError", "StoreUnavailable: postgres: timeout"]


def test_reload_shows_in_the_gauges() -> None:
    """A failed reload turns the gauge to 0 and leaves the time of the last good one alone."""
    observer = make()
    before = value(shown(observer), "config_last_reload_success_timestamp_seconds")
    observer.reloaded(successful=False)
    failed = shown(observer)
    assert value(failed, "config_last_reload_successful") == 0
    assert value(failed, "config_last_reload_success_timestamp_seconds") == before > 1e9
    observer.reloaded(successful=True)
    assert value(shown(observer), "config_last_reload_successful") == 1


def test_new_routes_appear_at_zero_and_old_ones_stay() -> None:
    """After a reload the new route's usual series are there at 0, and those of a route that left keep their values."""
    observer = make(GUARDED)
    observer.request_started("create-charge")
    observer.request_ended(exchange())
    observer.update_routes([Route("refunds", "/v1/refunds", "payments", frozenset(), Policy("refunds", (), doubt_on=frozenset({599})))])
    observer.settled("refunds", "doubt", "status_599")
    series = shown(observer)
    assert value(series, "requests_total", route="create-charge", mode="enforce", decision="execute") == 1
    assert value(series, "requests_total", route="refunds", mode="enforce", decision="execute") == 0
    assert value(series, "settlements_total", route="refunds", settlement="doubt", reason="status_599") == 1


_words = st.text(max_size=12) | st.sampled_from(
    ["postgres", "redis", "reserve", "complete", "release", "doubt", "status_503", "enforce", "timeout"]
)


@settings(max_examples=40)
@given(words=st.lists(st.tuples(_words, _words, _words), max_size=20), status=st.none() | st.integers(-5, 9999))
def test_no_input_grows_the_series_without_bound(words: list[tuple[str, str, str]], status: int | None) -> None:
    """Whatever words come in, labels stay within the route map and the closed sets."""
    observer = make(GUARDED)
    for one, two, three in words:
        observer.request_started(one)
        observer.request_ended(exchange(one, two))
        observer.settled(one, two, three)
        observer.upstream_answered(one, status, 0.1)
        observer.store_operation(one, two, 0.1)
        observer.store_error(one, two, three)
        observer.store_batch(one, 3)
        observer.stale_write(one)
    routes = {"create-charge", sets.UNMATCHED, sets.OTHER}
    for _, labels in shown(observer):
        for name, text in labels:
            match name:
                case "route":
                    assert text in routes
                case "mode":
                    assert text in sets.MODES | {sets.OTHER}
                case "store":
                    assert text in {*sets.STORE_OPERATIONS, sets.OTHER}
                case "settlement":
                    assert text in {*sets.SETTLEMENTS, sets.OTHER}
                case "operation":
                    known = {
                        *sets.STORE_OPERATIONS["postgres"],
                        *sets.STORE_OPERATIONS["redis"],
                        *sets.STORE_OPERATIONS["local"],
                        *sets.BATCHED,
                        *sets.FENCED,
                        sets.OTHER,
                    }
                    assert text in known
                case _:
                    assert len(text) < 40
