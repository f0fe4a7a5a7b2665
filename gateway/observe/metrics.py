"""The metric families, by the names under which Prometheus knows them.

Each process counts in its own memory. Of several workers their supervisor makes one (`gateway.observe.snapshot`): so every gauge says how
workers merge.
"""

from functools import partial

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from gateway.observe.tallies import Count, Distribution, Family, FamilyCollector, GaugeMode

PREFIX = "idempotency"
DURATION_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
STORE_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
WAIT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0)
BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Families:
    """Every family, without its series; of one without labels, its only series."""

    def __init__(self) -> None:
        self.collector = FamilyCollector()
        self.requests = self._counter("requests", "Finished requests.", "route", "mode", "decision")
        self.settlements = self._counter("settlements", "Attempts settled, by what they came to.", "route", "settlement", "reason")
        self.request_duration = self._histogram(
            "request_duration_seconds", "From a request's head to the end of its answer.", DURATION_BUCKETS, "route", "decision"
        )
        self.upstream_duration = self._histogram(
            "upstream_duration_seconds",
            "Upstream exchanges, by class of status; none: no response.",
            DURATION_BUCKETS,
            "route",
            "code_class",
        )
        self.store_duration = self._histogram("store_duration_seconds", "Store operations.", STORE_BUCKETS, "store", "operation")
        self.store_errors = self._counter("store_errors", "Store operations that failed.", "store", "operation", "reason")
        self.store_batch_size = self._histogram(
            "store_batch_size", "Rows or commands that shared one round trip.", BATCH_BUCKETS, "operation"
        )
        self.stale_writes = self._counter("stale_writes", "Writes that their fence refused.", "operation")
        self.in_flight = self._gauge("in_flight", "Requests that are being served.", "livesum", "route")
        self.zombies = self._counter("zombies", "Leases that lapsed without their owner: a worker died or was cut off.", "route")
        self.reconcile = self._counter("reconcile", "Steps of finding out what unknown attempts did.", "route", "result")
        self.webhook_events = self._counter("webhook_events", "Webhook requests, by what became of them.", "route", "result")
        self.conflicting_executions = self._counter("conflicting_executions", "Operations with evidence of a second execution.", "route")
        self.differing_answers = self._counter(
            "differing_answers", "Answers of upstreams that are not what these have committed themselves, which counts.", "route"
        )
        self.route_unknown = self._gauge("route_unknown", "Unknown records of a route.", "livemax", "route")
        self.route_dead_letters = self._gauge("route_dead_letters", "Dead letters of a route.", "livemax", "route")
        self.route_oldest_age = self._gauge(
            "route_unknown_oldest_age_seconds",
            "Age of the oldest unknown record of a route whose outcome is still looked for.",
            "livemax",
            "route",
        )
        self.route_pending = self._gauge("route_pending", "Accepted operations of a route that wait to be run.", "livemax", "route")
        self.route_pending_oldest_age = self._gauge(
            "route_pending_oldest_age_seconds", "Age of the oldest accepted operation that waits to be run.", "livemax", "route"
        )
        self.abandoned = self._counter("abandoned", "Accepted operations that were given up before they were run.", "route")
        self.accepted_wait = self._histogram(
            "accepted_wait_seconds", "From the acceptance of an operation to the moment at which it is sent.", WAIT_BUCKETS, "route"
        )
        self.records = self._gauge("records", "Records in the store; completed may be an estimate.", "livemax", "status")
        self.unknown_oldest_age = self._gauge(
            "unknown_oldest_age_seconds", "Age of the oldest unknown record whose outcome is still looked for.", "livemax"
        ).labels()
        self.dead_letters = self._gauge("dead_letters", "Unknown records that wait for a person.", "livemax").labels()
        self.lost_records = self._counter(
            "lost_records", "Records of operations under way that the database had lost; they were put back."
        ).labels()
        self.reaped = self._counter("reaped", "Expired records deleted.").labels()
        self.redis_breaker_open = self._gauge(
            "redis_breaker_open", "1 while Redis counts as away; of a cluster, while any primary does.", "livemax"
        ).labels()
        self.reload_successful = self._gauge("config_last_reload_successful", "1 if the last reload succeeded.", "livemin").labels()
        self.reload_timestamp = self._gauge(
            "config_last_reload_success_timestamp_seconds", "When the configuration in use was loaded.", "livemin"
        ).labels()
        self.build_info = self._gauge("build_info", "1, with the versions that run.", "livemax", "version", "python")
        self.malformed_requests = self._counter("malformed_requests", "Requests that were no well-formed HTTP.").labels()
        self.refused_connections = self._counter(
            "refused_connections", "Connections closed before a request was whole: too slow, too many, or no memory.", "reason"
        )
        self.key_notices = self._counter("key_notices", "Keys that look guessable or personal.", "route", "kind")
        self.duplicates = self._counter("duplicates", "Equal requests of one caller under different keys, close together.", "route")
        self.memory_held = self._gauge("memory_held_bytes", "Bodies held in memory, of those that count.", "livesum").labels()
        self.scopes_differ = self._gauge("scopes_differ", "Scopes that mean something else in the database by now.", "livemax").labels()
        self.target_up = self._gauge(
            "upstream_target_up",
            "0 while a target has done nothing but fail, so that others are asked first.",
            "livemin",
            "upstream",
            "target",
        )
        self.clock_steps = self._counter("clock_steps", "Steps of the database's clock, as this process saw them.", "direction")
        self.clock_suspended = self._gauge(
            "clock_suspended", "1 while this is not judged by what the database's clock shows, since it was set.", "livemax", "judgement"
        )
        self.background_last_round = self._gauge(
            "background_last_round_timestamp_seconds", "When background work last went round, or began.", "livemin", "task"
        )
        self.background_failures = self._counter("background_failures", "Failures of background work.", "task")
        self.log_lines_dropped = self._counter(
            "access_log_dropped_lines", "Access log lines dropped because their reader stalled."
        ).labels()
        self.responses = self._counter("responses", "Answers to clients, by class of status.", "route", "code_class")
        self.certificate_expiry = self._gauge(
            "certificate_expiry_timestamp_seconds",
            "When the first certificate of a file in use expires, by the setting that names the file.",
            "livemin",
            "setting",
        )

    def _counter(self, name: str, text: str, *labels: str) -> Family[Count]:
        return self._count(name, "counter", text, None, labels)

    def _gauge(self, name: str, text: str, mode: GaugeMode, *labels: str) -> Family[Count]:
        return self._count(name, "gauge", text, mode, labels)

    def _count(self, name: str, kind: str, text: str, mode: GaugeMode | None, labels: tuple[str, ...]) -> Family[Count]:
        suffix = "_total" if kind == "counter" else ""
        family = Family(f"{PREFIX}_{name}", kind, text, mode, labels, partial(Count, suffix))
        self.collector.families.append(family)
        return family

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Family[Distribution]:
        family = Family(f"{PREFIX}_{name}", "histogram", text, None, labels, partial(Distribution, buckets))
        self.collector.families.append(family)
        return family


def new_registry(families: Families) -> CollectorRegistry:
    """A registry that knows this process, and these families."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(families.collector)
    return registry


def exposition(registry: CollectorRegistry, accept: str = "") -> tuple[bytes, str]:
    """What `/metrics` of one process answers: body and content type.

    `accept` is the scraper's Accept field: OpenMetrics for one that asks for it, else Prometheus' text format.
    Takes milliseconds per thousand series: not for an event loop that serves requests. Safe to call from any thread.
    """
    write, content_type = choose_encoder(accept)
    return write(registry), content_type
