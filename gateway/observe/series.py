"""The series of one route, resolved once, so that counting a request costs a dictionary look-up.

What is rare has no series until it happens: a route map of a hundred routes would else show tens of thousands that stay at 0. What
alerts compare is there from the start, since an increase can only be seen of a series that was there before.
"""

from collections.abc import Sequence
from functools import cached_property

from prometheus_client import Counter, Gauge, Histogram

from gateway.core.decision import Label
from gateway.core.policy import Route
from gateway.core.weak_keys import Notice
from gateway.observe import sets
from gateway.observe.metrics import Families
from gateway.ports import RouteDoubt


class RouteSeries:
    """Children of the families for one route, from closed sets. `extend` makes those that are there from the start."""

    def __init__(self, families: Families, route_id: str) -> None:
        self._families = families
        self._id = route_id
        self.in_flight = families.in_flight.labels(route_id)
        self._notices: dict[str, Counter] = {}
        self._reconciled: dict[str, Counter] = {}
        self._webhook: dict[str, Counter] = {}
        self._decided: dict[tuple[str, Label], tuple[Counter, Histogram]] = {}
        self._listed: set[tuple[str, str]] = set()
        self._settled: dict[tuple[str, str], Counter] = {}
        self._upstream: dict[str, Histogram] = {}

    def extend(self, route: Route | None) -> None:
        """Make the series of `route` that are there from the start. None: of requests that no route takes."""
        policy = None if route is None else route.policy
        for mode, decision in sets.first_decisions(policy):
            self._families.requests.labels(self._id, mode, decision.value)
        if route is not None and policy is not None:
            self._listed.update(sets.settlements_of(route))
            self.guard()
            self.settled("complete", sets.RESPONDED)
            for result in sets.first_looks(policy):
                self.reconciled(result)
            for event in sets.first_events(policy):
                self.webhook_event(event)

    def guard(self) -> None:
        """Make what tells of lost workers, of second executions and of records in doubt."""
        _ = self.zombies, self.conflicts, self._doubts

    @cached_property
    def duplicates(self) -> Counter:
        return self._families.duplicates.labels(self._id)

    @cached_property
    def zombies(self) -> Counter:
        return self._families.zombies.labels(self._id)

    @cached_property
    def conflicts(self) -> Counter:
        return self._families.conflicting_executions.labels(self._id)

    @cached_property
    def _doubts(self) -> tuple[Gauge, Gauge, Gauge]:
        shown = self._families.route_unknown, self._families.route_dead_letters, self._families.route_oldest_age
        unknown, dead_letters, oldest_age = (gauge.labels(self._id) for gauge in shown)
        return unknown, dead_letters, oldest_age

    def in_doubt(self, found: Sequence[RouteDoubt]) -> None:
        """What the store says of the route's records in doubt. A route that guards nothing shows them only if there are any."""
        if not found and "_doubts" not in vars(self):
            return
        unknown, dead_letters, oldest_age = self._doubts
        unknown.set(sum(doubt.unknown for doubt in found))
        dead_letters.set(sum(doubt.dead_letters for doubt in found))
        oldest_age.set(max((doubt.oldest_age for doubt in found), default=0.0))

    def decided(self, mode: str, decision: Label) -> tuple[Counter, Histogram]:
        """The counter and the duration of requests with this decision."""
        found = self._decided.get((mode, decision))
        if found is None:
            bounded = mode if mode in sets.MODES else sets.OTHER
            requests = self._families.requests.labels(self._id, bounded, decision.value)
            found = (requests, self._families.request_duration.labels(self._id, decision.value))
            self._decided[mode, decision] = found
        return found

    def key_noticed(self, kind: str) -> None:
        """Count a key that looks like `kind`."""
        bounded = kind if kind in _NOTICES else sets.OTHER
        found = self._notices.get(bounded)
        if found is None:
            found = self._notices[bounded] = self._families.key_notices.labels(self._id, bounded)
        found.inc()

    def reconciled(self, result: str) -> Counter:
        """The counter of reconciling steps that ended so."""
        bounded = result if result in sets.RECONCILED else sets.OTHER
        found = self._reconciled.get(bounded)
        if found is None:
            found = self._reconciled[bounded] = self._families.reconcile.labels(self._id, bounded)
        return found

    def webhook_event(self, result: str) -> Counter:
        """The counter of webhook requests that were answered so."""
        bounded = result if result in sets.WEBHOOK_RESULTS else sets.OTHER
        found = self._webhook.get(bounded)
        if found is None:
            found = self._webhook[bounded] = self._families.webhook_events.labels(self._id, bounded)
        return found

    def settled(self, settlement: str, reason: str) -> Counter:
        """The counter of attempts that were settled so. Statuses are told apart as far as the route's lists name them."""
        found = self._settled.get((settlement, reason))
        if found is None:
            bounded = (settlement, reason) if (settlement, reason) in self._listed else sets.bounded_settlement(settlement, reason)
            found = self._settled[settlement, reason] = self._families.settlements.labels(self._id, *bounded)
        return found

    def upstream(self, status: int | None) -> Histogram:
        """The durations of upstream exchanges that ended with this status."""
        name = sets.code_class(status)
        found = self._upstream.get(name)
        if found is None:
            found = self._upstream[name] = self._families.upstream_duration.labels(self._id, name)
        return found


_NOTICES = frozenset(kind.value for kind in Notice)


class StoreSeries:
    """Children of the families that stores count under, made when they are first counted under."""

    def __init__(self, families: Families) -> None:
        self._families = families
        self._durations: dict[tuple[str, str], Histogram] = {}
        self._errors: dict[tuple[str, str, str], Counter] = {}
        self._batches: dict[str, Histogram] = {}
        self._stale: dict[str, Counter] = {}

    def duration(self, store: str, operation: str) -> Histogram:
        found = self._durations.get((store, operation))
        if found is None:
            found = self._families.store_duration.labels(*_bounded(store, operation))
            self._durations[store, operation] = found
        return found

    def error(self, store: str, operation: str, reason: str) -> Counter:
        found = self._errors.get((store, operation, reason))
        if found is None:
            known = reason in sets.STORE_REASONS or (store == "redis" and reason in sets.REDIS_REFUSALS)
            bounded = reason if known else sets.OTHER
            found = self._families.store_errors.labels(*_bounded(store, operation), bounded)
            self._errors[store, operation, reason] = found
        return found

    def batch(self, operation: str) -> Histogram:
        found = self._batches.get(operation)
        if found is None:
            found = self._families.store_batch_size.labels(operation if operation in sets.BATCHED else sets.OTHER)
            self._batches[operation] = found
        return found

    def stale(self, operation: str) -> Counter:
        found = self._stale.get(operation)
        if found is None:
            found = self._families.stale_writes.labels(operation if operation in sets.FENCED else sets.OTHER)
            self._stale[operation] = found
        return found


def _bounded(store: str, operation: str) -> tuple[str, str]:
    operations = sets.STORE_OPERATIONS.get(store)
    if operations is None:
        return sets.OTHER, sets.OTHER
    return store, operation if operation in operations else sets.OTHER
