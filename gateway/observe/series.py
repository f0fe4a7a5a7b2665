"""The series of one route, resolved once, so that counting a request costs a dictionary look-up."""

from prometheus_client import Counter, Histogram

from gateway.core.decision import Label
from gateway.core.notice import Notice
from gateway.core.policy import Route
from gateway.observe import sets
from gateway.observe.metrics import Families


class RouteSeries:
    """Children of the families for one route. `extend` makes those that a route can need; the rest come on first use, from closed sets."""

    def __init__(self, families: Families, route_id: str) -> None:
        self._families = families
        self._id = route_id
        self.in_flight = families.in_flight.labels(route_id)
        self.duplicates = families.duplicates.labels(route_id)
        self._notices: dict[str, Counter] = {}
        self.zombies = families.zombies.labels(route_id)
        self.conflicts = families.conflicting_executions.labels(route_id)
        self._reconciled = {name: families.reconcile.labels(route_id, name) for name in (*sets.RECONCILED, sets.OTHER)}
        self.unknown = families.route_unknown.labels(route_id)
        self.dead_letters = families.route_dead_letters.labels(route_id)
        self.oldest_age = families.route_oldest_age.labels(route_id)
        self._webhook = {name: families.webhook_events.labels(route_id, name) for name in (*sets.WEBHOOK_RESULTS, sets.OTHER)}
        self._decided: dict[tuple[str, Label], tuple[Counter, Histogram]] = {}
        self._settled: dict[tuple[str, str], Counter] = {}
        self._upstream = {name: families.upstream_duration.labels(route_id, name) for name in sets.CODE_CLASSES}

    def extend(self, route: Route | None) -> None:
        """Make every series that requests of `route` can count under. None: requests that no route takes."""
        policy = None if route is None else route.policy
        for mode, decision in sets.decisions_of(policy):
            self.decided(mode, decision)
        if policy is not None:
            for kind in Notice:
                self._notices[kind.value] = self._families.key_notices.labels(self._id, kind.value)
        if route is not None:
            for settlement, reason in sets.settlements_of(route):
                self._settled[settlement, reason] = self._families.settlements.labels(self._id, settlement, reason)

    def decided(self, mode: str, decision: Label) -> tuple[Counter, Histogram]:
        """The counter and the duration of requests with this decision."""
        found = self._decided.get((mode, decision))
        if found is None:
            bounded = mode if mode in sets.MODES else sets.OTHER
            requests = self._families.requests.labels(self._id, bounded, decision.value)
            found = (requests, self._families.request_duration.labels(self._id, decision.value))
            self._decided[bounded, decision] = found
        return found

    def key_noticed(self, kind: str) -> None:
        """Count a key that looks like `kind`."""
        found = self._notices.get(kind)
        (found or self._families.key_notices.labels(self._id, sets.OTHER)).inc()

    def reconciled(self, result: str) -> Counter:
        """The counter of reconciling steps that ended so."""
        return self._reconciled.get(result) or self._reconciled[sets.OTHER]

    def webhook_event(self, result: str) -> Counter:
        """The counter of webhook requests that were answered so."""
        return self._webhook.get(result) or self._webhook[sets.OTHER]

    def settled(self, settlement: str, reason: str) -> Counter:
        """The counter of attempts that were settled so."""
        found = self._settled.get((settlement, reason))
        if found is not None:
            return found
        return self._families.settlements.labels(self._id, *sets.bounded_settlement(settlement, reason))

    def upstream(self, status: int | None) -> Histogram:
        """The durations of upstream exchanges that ended with this status."""
        return self._upstream[sets.code_class(status)]


class StoreSeries:
    """Children of the families that stores count under."""

    def __init__(self, families: Families) -> None:
        self._families = families
        self._durations: dict[tuple[str, str], Histogram] = {}
        self._errors: dict[tuple[str, str, str], Counter] = {}
        self._batches = {name: families.store_batch_size.labels(name) for name in (*sets.BATCHED, sets.OTHER)}
        self._stale = {name: families.stale_writes.labels(name) for name in (*sets.FENCED, sets.OTHER)}
        for store, operations in sets.STORE_OPERATIONS.items():
            for operation in operations:
                self._durations[store, operation] = families.store_duration.labels(store, operation)
                for reason in sets.STORE_REASONS:
                    self._errors[store, operation, reason] = families.store_errors.labels(store, operation, reason)

    def duration(self, store: str, operation: str) -> Histogram:
        found = self._durations.get((store, operation))
        return found or self._families.store_duration.labels(*_bounded(store, operation))

    def error(self, store: str, operation: str, reason: str) -> Counter:
        found = self._errors.get((store, operation, reason))
        if found is not None:
            return found
        return self._families.store_errors.labels(*_bounded(store, operation), reason if reason in sets.STORE_REASONS else sets.OTHER)

    def batch(self, operation: str) -> Histogram:
        return self._batches.get(operation) or self._batches[sets.OTHER]

    def stale(self, operation: str) -> Counter:
        return self._stale.get(operation) or self._stale[sets.OTHER]


def _bounded(store: str, operation: str) -> tuple[str, str]:
    operations = sets.STORE_OPERATIONS.get(store)
    if operations is None:
        return sets.OTHER, sets.OTHER
    return store, operation if operation in operations else sets.OTHER
