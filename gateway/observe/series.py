"""The series of one route, and of the stores: found once, so that counting costs a dictionary look-up.

What is rare has no series until it happens: a route map of a hundred routes would else show tens of thousands that stay at 0. What
alerts compare is there from the start, since an increase can only be seen of a series that was there before.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar

from gateway.core.decision import Label
from gateway.core.policy import Route
from gateway.core.weak_keys import Notice
from gateway.observe import sets
from gateway.observe.metrics import Families
from gateway.observe.tallies import Count, Distribution
from gateway.ports import RouteDoubt, RoutePending

K = TypeVar("K")
T = TypeVar("T")

_NOTICES = frozenset(kind.value for kind in Notice)


class _OnDemand(dict[K, T]):
    """Series by what they are asked for with, each found by `find` when it is first asked for."""

    def __init__(self, find: Callable[[K], T]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, key: K) -> T:
        found = self[key] = self._find(key)
        return found


class RouteSeries:
    """Series of the families for one route, from closed sets. `extend` makes those that are there from the start."""

    def __init__(self, families: Families, route_id: str) -> None:
        self._families = families
        self._id = route_id
        self._listed: set[tuple[str, str]] = set()
        self.pattern: str | None = None
        """The path that the route takes, for logs."""
        self.in_flight = families.in_flight.labels(route_id)
        self.decided = _OnDemand(self._decided)
        """The counter and the durations of requests, by mode and decision."""
        self.answered = _OnDemand(self._answered)
        """The counters of answers to clients, by their status."""
        self.settled = _OnDemand(self._settled)
        """The counters of settled attempts, by settlement and reason. Statuses are told apart as far as the route's lists name them."""
        self.upstream = _OnDemand(self._upstream)
        """The durations of upstream exchanges, by the status with which they ended."""
        self.key_noticed = _OnDemand(self._key_noticed)
        """The counters of keys, by what they look like."""
        self.reconciled = _OnDemand(self._reconciled)
        """The counters of reconciling steps, by how they ended."""
        self.webhook_event = _OnDemand(self._webhook_event)
        """The counters of webhook requests, by how they were answered."""

    def extend(self, route: Route | None) -> None:
        """Make the series of `route` that are there from the start. None: of requests that no route takes."""
        policy = None if route is None else route.policy
        self.pattern = None if route is None else route.path
        for mode, decision in sets.first_decisions(policy):
            self._families.requests.labels(self._id, mode, decision.value)
        if route is not None and policy is not None:
            self._listed.update(sets.settlements_of(route))
            self.guard()
            if policy.accepts:
                _ = self._waiting, self.abandoned, self.accepted_wait
            _ = self.settled["complete", sets.RESPONDED], self.answered[500]
            for result in sets.first_looks(policy):
                _ = self.reconciled[result]
            for event in sets.first_events(policy):
                _ = self.webhook_event[event]

    def guard(self) -> None:
        """Make what tells of lost workers, of second executions and of records in doubt."""
        _ = self.zombies, self.conflicts, self._doubts

    @cached_property
    def duplicates(self) -> Count:
        return self._families.duplicates.labels(self._id)

    @cached_property
    def differences(self) -> Count:
        return self._families.differing_answers.labels(self._id)

    @cached_property
    def zombies(self) -> Count:
        return self._families.zombies.labels(self._id)

    @cached_property
    def conflicts(self) -> Count:
        return self._families.conflicting_executions.labels(self._id)

    @cached_property
    def _doubts(self) -> tuple[Count, Count, Count]:
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

    @cached_property
    def abandoned(self) -> Count:
        return self._families.abandoned.labels(self._id)

    @cached_property
    def accepted_wait(self) -> Distribution:
        return self._families.accepted_wait.labels(self._id)

    @cached_property
    def _waiting(self) -> tuple[Count, Count]:
        return self._families.route_pending.labels(self._id), self._families.route_pending_oldest_age.labels(self._id)

    def pending(self, found: Sequence[RoutePending]) -> None:
        """What the store says of the route's accepted work. A route that accepts none shows it only if there is any."""
        if not found and "_waiting" not in vars(self):
            return
        pending, oldest_age = self._waiting
        pending.set(sum(each.pending for each in found))
        oldest_age.set(max((each.oldest_age for each in found), default=0.0))

    def _decided(self, key: tuple[str, Label]) -> tuple[Count, Distribution]:
        mode, decision = key
        requests = self._families.requests.labels(self._id, _known(mode, sets.MODES), decision.value)
        return requests, self._families.request_duration.labels(self._id, decision.value)

    def _answered(self, status: int) -> Count:
        return self._families.responses.labels(self._id, sets.code_class(status))

    def _settled(self, key: tuple[str, str]) -> Count:
        bounded = key if key in self._listed else sets.bounded_settlement(*key)
        return self._families.settlements.labels(self._id, *bounded)

    def _upstream(self, status: int | None) -> Distribution:
        return self._families.upstream_duration.labels(self._id, sets.code_class(status))

    def _key_noticed(self, kind: str) -> Count:
        return self._families.key_notices.labels(self._id, _known(kind, _NOTICES))

    def _reconciled(self, result: str) -> Count:
        return self._families.reconcile.labels(self._id, _known(result, sets.RECONCILED))

    def _webhook_event(self, result: str) -> Count:
        return self._families.webhook_events.labels(self._id, _known(result, sets.WEBHOOK_RESULTS))


class StoreSeries:
    """Series of the families that stores count under, made when they are first counted under."""

    def __init__(self, families: Families) -> None:
        self._families = families
        self.durations = _OnDemand(self._duration)
        """By store and operation."""
        self.errors = _OnDemand(self._error)
        """By store, operation and reason."""
        self.batches = _OnDemand(self._batch)
        """By operation."""
        self.stale = _OnDemand(self._stale)
        """By operation."""

    def _duration(self, key: tuple[str, str]) -> Distribution:
        return self._families.store_duration.labels(*_bounded(*key))

    def _error(self, key: tuple[str, str, str]) -> Count:
        store, operation, reason = key
        known = reason in sets.STORE_REASONS or (store == "redis" and reason in sets.REDIS_REFUSALS)
        return self._families.store_errors.labels(*_bounded(store, operation), reason if known else sets.OTHER)

    def _batch(self, operation: str) -> Distribution:
        return self._families.store_batch_size.labels(_known(operation, sets.BATCHED))

    def _stale(self, operation: str) -> Count:
        return self._families.stale_writes.labels(_known(operation, sets.FENCED))


def _known(word: str, words: Sequence[str] | frozenset[str]) -> str:
    return word if word in words else sets.OTHER


def _bounded(store: str, operation: str) -> tuple[str, str]:
    operations = sets.STORE_OPERATIONS.get(store)
    return (sets.OTHER, sets.OTHER) if operations is None else (store, _known(operation, operations))
