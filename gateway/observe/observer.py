"""The observer that production runs: `gateway.ports.Observer` over Prometheus metrics, the access log and messages."""

import logging
import platform
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

from gateway import __version__
from gateway.core.model import Status
from gateway.core.policy import Route
from gateway.core.timeline import JUDGEMENTS
from gateway.observe import sets, snapshot
from gateway.observe.accesslog import AccessLog, access_line, attempt_line, webhook_line
from gateway.observe.logs import describe
from gateway.observe.metrics import Families, exposition, new_registry
from gateway.observe.series import RouteSeries, StoreSeries
from gateway.observe.timestamp import epoch_seconds
from gateway.observe.tracing import Tracer
from gateway.ports import (
    Counts,
    FinishedAttempt,
    FinishedRequest,
    RouteDoubt,
    RoutePending,
    StoreUnavailable,
    Swept,
    WebhookExchange,
)

FAILURE_LOG_SECONDS = 10.0

_log = logging.getLogger(__name__)


class MetricsObserver:
    """Counts and logs. Belongs to the event loop's thread, but for `exposition`.

    What every request is counted under is raised in place rather than by a call: see `Distribution.observe`.

    What is usual, and what alerts compare, exists at 0 from the start; other series when they first count. `access_log_fd` is where
    access lines go; None: nowhere. With `user_agent` they have what clients call themselves.
    One at most for each process when workers share their metrics.
    """

    def __init__(
        self, routes: Sequence[Route], *, access_log_fd: int | None = 1, user_agent: bool = False, tracer: Tracer | None = None
    ) -> None:
        self._families = families = Families()
        self._registry = new_registry(families)
        self._access_log = None if access_log_fd is None else AccessLog(access_log_fd, families.log_lines_dropped.inc)
        self._user_agent = user_agent
        self._tracer = tracer
        self._stores = StoreSeries(families)
        _ = self._stores.durations["postgres", "reserve"]  # an alert compares it
        self._targets: dict[str, frozenset[str]] = {}
        self._routes: dict[str, RouteSeries] = {}
        self._other = RouteSeries(families, sets.OTHER)
        self._other.guard()
        self._failures = {task: families.background_failures.labels(task) for task in (*sets.TASKS, sets.OTHER)}
        self._refusals = {reason: families.refused_connections.labels(reason) for reason in sets.REFUSALS}
        self._clock_steps = {direction: families.clock_steps.labels(direction) for direction in sets.CLOCK_DIRECTIONS}
        self._clock_suspended = {judgement: families.clock_suspended.labels(judgement) for judgement in JUDGEMENTS}
        self._rounds = {task: families.background_last_round.labels(task) for task in sets.ROUNDS}
        for task in sets.ROUNDS:
            self.background_ran(task)
        self._failure_lines = _Quiet(FAILURE_LOG_SECONDS)
        self._records = {status: families.records.labels(status.value) for status in Status}
        self._series(sets.UNMATCHED).extend(None)
        self.update_routes(routes)
        families.build_info.labels(__version__, platform.python_version()).set(1)
        families.redis_breaker_open.set(0)
        self.reloaded(successful=True)

    def update_routes(self, routes: Sequence[Route]) -> None:
        """Take over a new route map: its series appear at 0, those of routes that left stay as they are."""
        for route in routes:
            self._series(route.id).extend(route)

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """What `/metrics` answers: see `gateway.observe.metrics.exposition`."""
        return exposition(self._registry, accept)

    def snapshot(self) -> bytes:
        """All figures of this process for its supervisor: see `gateway.observe.snapshot`. Safe to call from any thread."""
        return snapshot.take(self._families.collector.families)

    def close(self) -> None:
        """Write the last access lines, waiting at most a second for their reader."""
        if self._access_log is not None:
            self._access_log.close()
        if self._tracer is not None:
            self._tracer.close()

    def _series(self, route_id: str) -> RouteSeries:
        found = self._routes.get(route_id)
        if found is None:
            found = self._routes[route_id] = RouteSeries(self._families, route_id)
        return found

    # ---- requests

    def request_started(self, route: str) -> None:
        self._routes.get(route, self._other).in_flight.value += 1

    def request_ended(self, request: FinishedRequest) -> None:
        series = self._routes.get(request.route, self._other)
        series.in_flight.value -= 1
        requests, durations = series.decided[request.mode, request.decision]
        requests.value += 1
        series.answered[request.status].value += 1
        seconds = request.total_seconds
        durations.counts[bisect_left(durations.bounds, seconds)] += 1
        durations.sum += seconds
        if self._access_log is not None:
            self._access_log.append(access_line(request, series.pattern, user_agent=self._user_agent))
        if self._tracer is not None and request.trace is not None and request.trace.sampled:
            self._trace(self._tracer.request, request, request.trace, series.pattern)

    def _trace(self, tell: Callable[..., None], *about: object) -> None:
        """A span that cannot be made costs what it is about nothing."""
        try:
            tell(*about)
        except Exception as error:
            self.background_failed("trace", error)

    def looked(self, route: str, request_id: str, verdict: str, seconds: float) -> None:
        """The upstream was asked what the attempt of this request did."""
        if self._tracer is not None:
            self._trace(self._tracer.look, route, request_id, verdict, seconds)

    def resolved(self, route: str, request_id: str, change: str, seconds: float) -> None:
        """A person has said what became of the attempt of this request."""
        if self._tracer is not None:
            self._trace(self._tracer.verdict, route, request_id, change, seconds)

    def malformed_request(self) -> None:
        """A client sent what is no well-formed HTTP, and was refused before it had a route."""
        self._families.malformed_requests.inc()

    def refused_client(self, reason: str) -> None:
        """A connection was refused, or closed before a request was whole. What is too large counts as malformed."""
        if reason in self._refusals:
            self._refusals[reason].inc()
        else:
            self.malformed_request()

    def memory_held(self, size: int) -> None:
        """How many bytes of bodies this process holds."""
        self._families.memory_held.set(size)

    def scopes_differ(self, count: int) -> None:
        """How many scopes mean something else in the database than in this process."""
        self._families.scopes_differ.set(count)

    def update_certificates(self, expiries: Mapping[str, float]) -> None:
        """Take over when the certificates in use expire, by setting; those of settings that left are forgotten."""
        for (setting,) in [*self._families.certificate_expiry.series]:
            if setting not in expiries:
                self._families.certificate_expiry.remove(setting)
        for setting, expiry in expiries.items():
            self._families.certificate_expiry.labels(setting).set(expiry)

    # ---- upstreams

    def update_targets(self, upstreams: Mapping[str, Sequence[str]]) -> None:
        """Take over the targets of new or changed upstreams, all of them up; those that left are forgotten where that can be done."""
        for upstream, targets in upstreams.items():
            for target in self._targets.get(upstream, frozenset()) - set(targets):
                self._families.target_up.labels(upstream, target).set(1)
                self._families.target_up.remove(upstream, target)
            self._targets[upstream] = frozenset(targets)
            for target in targets:
                self._families.target_up.labels(upstream, target).set(1)

    def target_changed(self, upstream: str, target: str, *, healthy: bool) -> None:
        """A target failed too often and is left alone, or answers again."""
        self._families.target_up.labels(upstream, target).set(healthy)
        fields = {"upstream": upstream, "target": target}
        if healthy:
            _log.info("A target answers again", extra=fields)
        else:
            _log.warning("A target failed too often and is left alone for a while", extra=fields)

    def settled(self, route: str, settlement: str, reason: str) -> None:
        self._routes.get(route, self._other).settled[settlement, reason].value += 1

    def upstream_answered(self, route: str, status: int | None, seconds: float) -> None:
        durations = self._routes.get(route, self._other).upstream[status]
        durations.counts[bisect_left(durations.bounds, seconds)] += 1
        durations.sum += seconds

    def upstream_unreachable(self, upstream: str, reason: str, cause: str | None) -> None:
        suppressed = self._failure_lines.due(f"upstream {upstream}")
        if suppressed is not None:
            fields = {"upstream": upstream, "reason": reason, "cause": cause, "suppressed": suppressed}
            _log.warning("An upstream could not be reached; nothing was sent", extra=fields)

    def key_noticed(self, route: str, kind: str, key_digest: str) -> None:
        series = self._routes.get(route, self._other)
        series.key_noticed[kind].inc()
        suppressed = self._failure_lines.due(f"key {route} {kind}")
        if suppressed is not None:
            fields = {"route": route, "kind": kind, "key": key_digest, "suppressed": suppressed}
            _log.info("A key looks guessable or personal", extra=fields)

    def duplicate_seen(self, route: str, key_digest: str) -> None:
        self._routes.get(route, self._other).duplicates.inc()
        suppressed = self._failure_lines.due(f"duplicate {route}")
        if suppressed is not None:
            fields = {"route": route, "key": key_digest, "suppressed": suppressed}
            _log.warning("A caller sent an equal request under another key shortly before", extra=fields)

    # ---- stores

    def store_operation(self, store: str, operation: str, seconds: float) -> None:
        durations = self._stores.durations[store, operation]
        durations.counts[bisect_left(durations.bounds, seconds)] += 1
        durations.sum += seconds

    def store_error(self, store: str, operation: str, reason: str) -> None:
        self._stores.errors[store, operation, reason].inc()

    def store_batch(self, operation: str, size: int) -> None:
        sizes = self._stores.batches[operation]
        sizes.counts[bisect_left(sizes.bounds, size)] += 1
        sizes.sum += size

    def stale_write(self, operation: str) -> None:
        self._stores.stale[operation].inc()

    def redis_breaker(self, *, is_open: bool) -> None:
        self._families.redis_breaker_open.set(is_open)

    def clock_stepped(self, seconds: float) -> None:
        self._clock_steps["forward" if seconds > 0 else "back"].inc()
        _log.error("The database's clock was set", extra={"seconds": round(seconds, 3)})

    def clock_disagrees(self, seconds: float) -> None:
        _log.error(
            "The database's clock and this host's disagree: the earlier one is believed, expired records may stay",
            extra={"seconds": round(seconds)},
        )

    def clock_suspended(self, judgements: Mapping[str, bool]) -> None:
        for judgement, suspended in judgements.items():
            self._clock_suspended[judgement].set(suspended)
        _log.warning(
            "What is judged by the database's clock as it stands has changed", extra={"suspended": [*filter(judgements.get, judgements)]}
        )

    # ---- background

    def swept(self, swept: Sequence[Swept]) -> None:
        for one in swept:
            self._routes.get(one.route_id, self._other).zombies.inc()
            fields = {"route": one.route_id, "request_id": one.request_id, "attempt": one.attempt}
            _log.warning("A lease lapsed without its owner; the record is unknown now", extra=fields)

    def reconciled(self, route: str, result: str) -> None:
        self._routes.get(route, self._other).reconciled[result].inc()

    def webhook_event(self, event: WebhookExchange) -> None:
        self._routes.get(event.route, self._other).webhook_event[event.result].inc()
        if self._access_log is not None:
            self._access_log.append(webhook_line(event))
        if self._tracer is not None:
            self._trace(self._tracer.webhook, event)

    def record_lost(self, route: str, request_id: str) -> None:
        self._families.lost_records.inc()
        fields = {"route": route, "request_id": request_id}
        _log.error("The database had lost the record of an operation that was under way; it was put back", extra=fields)

    def answer_differs(self, route: str, request_id: str) -> None:
        self._routes.get(route, self._other).differences.inc()
        _log.warning("An upstream's answer is not the one that it committed", extra={"route": route, "request_id": request_id})

    def conflicting_execution(self, route: str, request_id: str) -> None:
        self._routes.get(route, self._other).conflicts.inc()
        _log.error("An operation was executed twice under one key", extra={"route": route, "request_id": request_id})

    def reaped(self, count: int) -> None:
        self._families.reaped.inc(count)

    def counted(self, counts: Counts) -> None:
        self._records[Status.PENDING].set(counts.pending)
        self._records[Status.IN_PROGRESS].set(counts.in_progress)
        self._records[Status.COMPLETED].set(counts.completed)
        self._records[Status.FAILED_RETRYABLE].set(counts.failed_retryable)
        self._records[Status.UNKNOWN].set(counts.unknown)
        self._families.dead_letters.set(counts.dead_letters)
        self._families.unknown_oldest_age.set(counts.unknown_oldest_age)
        self._count_routes(counts.by_route)
        self._count_pending(counts.pending_by_route)

    def _count_routes(self, by_route: Sequence[RouteDoubt]) -> None:
        """Of every route, also of those that have nothing in doubt any more. Records of routes that left the map count as `other`."""
        doubts: dict[str, list[RouteDoubt]] = {route: [] for route in (*self._routes, sets.OTHER)}
        for doubt in by_route:
            doubts.get(doubt.route_id, doubts[sets.OTHER]).append(doubt)
        for route, found in doubts.items():
            self._routes.get(route, self._other).in_doubt(found)

    def _count_pending(self, by_route: Sequence[RoutePending]) -> None:
        """As `_count_routes`."""
        waiting: dict[str, list[RoutePending]] = {route: [] for route in (*self._routes, sets.OTHER)}
        for pending in by_route:
            waiting.get(pending.route_id, waiting[sets.OTHER]).append(pending)
        for route, found in waiting.items():
            self._routes.get(route, self._other).pending(found)

    def work_began(self, route: str, seconds: float) -> None:
        durations = self._routes.get(route, self._other).accepted_wait
        durations.sum += seconds
        durations.counts[bisect_left(durations.bounds, seconds)] += 1

    def attempt_ended(self, attempt: FinishedAttempt) -> None:
        pattern = self._routes.get(attempt.route, self._other).pattern
        if self._access_log is not None:
            self._access_log.append(attempt_line(attempt, pattern))
        if self._tracer is not None:
            self._trace(self._tracer.attempt, attempt, pattern)

    def abandoned(self, route: str) -> None:
        self._routes.get(route, self._other).abandoned.inc()

    def reloaded(self, *, successful: bool) -> None:
        self._families.reload_successful.set(successful)
        if successful:
            self._families.reload_timestamp.set(epoch_seconds())

    def background_ran(self, task: str) -> None:
        if task in self._rounds:
            self._rounds[task].set(epoch_seconds())

    def background_failed(self, task: str, error: BaseException) -> None:
        self._failures.get(task, self._failures[sets.OTHER]).inc()
        suppressed = self._failure_lines.due(task)
        if suppressed is None:
            return
        fields: dict[str, object] = {"task": task, "error": describe(error), "suppressed": suppressed}
        # A store that is away is an event of its own; where it was asked from says nothing.
        trace = None if isinstance(error, StoreUnavailable) else (type(error), error, error.__traceback__)
        _log.error("Background work failed", extra=fields, exc_info=trace)


class _Quiet:
    """At most one line for each subject within `seconds`. Subjects are few: names of background tasks."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last: dict[str, tuple[float, int]] = {}

    def due(self, subject: str) -> int | None:
        """How many lines were left out since the last one, if it is time for another; else None."""
        now = time.monotonic()
        said, left_out = self._last.get(subject, (now - self._seconds, 0))
        if now - said < self._seconds:
            self._last[subject] = (said, left_out + 1)
            return None
        self._last[subject] = (now, 0)
        return left_out
