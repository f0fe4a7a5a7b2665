"""What the gateway does now, from what it tells Prometheus: one source of figures, whether one process serves or several. Pure, but for
`Meter`, which remembers readings.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gateway.operate.admin.exposition import Reading, read, total

WINDOW = 30.0
"""Seconds over which rates are taken, at most."""
APART = 1.0
"""Seconds between two readings that are remembered, at least."""


@dataclass(frozen=True, slots=True)
class RouteFigures:
    """One route. `rate`: decisions a second, None if nobody knows yet. `oldest`: seconds that the oldest unknown record has waited, dead
    letters apart. `decisions`: how many since the start, by decision.
    """

    id: str
    mode: str
    rate: float | None
    in_flight: int
    unknown: int
    oldest: float
    dead_letters: int
    pending: int
    pending_oldest: float
    decisions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """One store, over the window: the mean time of a call in milliseconds, None without calls; failed calls."""

    name: str
    milliseconds: float | None
    errors: int


@dataclass(frozen=True, slots=True)
class Figures:
    """All of it. `targets`: upstream, address, whether it answers."""

    routes: Sequence[RouteFigures]
    stores: Sequence[StoreFigures]
    targets: Sequence[tuple[str, str, bool]]
    breaker_open: bool

    @property
    def rate(self) -> float | None:
        rates = [route.rate for route in self.routes]
        return None if None in rates else sum(rate for rate in rates if rate is not None)

    def decisions(self, route_id: str) -> Mapping[str, int]:
        """Of one route, since the start."""
        return next((route.decisions for route in self.routes if route.id == route_id), {})

    @property
    def in_flight(self) -> int:
        return sum(route.in_flight for route in self.routes)

    @property
    def unknown(self) -> int:
        return sum(route.unknown for route in self.routes)

    @property
    def oldest(self) -> float:
        return max((route.oldest for route in self.routes), default=0.0)

    @property
    def dead_letters(self) -> int:
        return sum(route.dead_letters for route in self.routes)

    @property
    def pending(self) -> int:
        return sum(route.pending for route in self.routes)

    @property
    def pending_oldest(self) -> float:
        return max((route.pending_oldest for route in self.routes), default=0.0)


def figures(now: Reading, before: Reading | None, seconds: float) -> Figures:
    """Of a reading; rates are those since another, `seconds` ago."""
    seen = sorted({one.labels["route"] for one in now if one.name in {"idempotency_requests_total", "idempotency_in_flight"}})
    return Figures(
        [_route(route, now, before, seconds) for route in seen],
        [_store(name, now, before) for name in ("postgres", "redis")],
        [(one.labels["upstream"], one.labels["target"], one.value > 0) for one in now if one.name == "idempotency_upstream_target_up"],
        total(now, "idempotency_redis_breaker_open") > 0,
    )


def _route(route: str, now: Reading, before: Reading | None, seconds: float) -> RouteFigures:
    name = "idempotency_requests_total"
    mine = [one for one in now if one.name == name and one.labels["route"] == route]
    count = sum(one.value for one in mine)
    rate = None if before is None or seconds <= 0 else max(0.0, count - total(before, name, route=route)) / seconds
    decisions: dict[str, int] = {}
    for one in mine:
        decisions[one.labels["decision"]] = decisions.get(one.labels["decision"], 0) + int(one.value)

    def gauge(suffix: str) -> float:
        return total(now, f"idempotency_route_{suffix}", route=route)

    return RouteFigures(
        route,
        next((one.labels["mode"] for one in mine), "off"),
        rate,
        int(total(now, "idempotency_in_flight", route=route)),
        int(gauge("unknown")),
        gauge("unknown_oldest_age_seconds"),
        int(gauge("dead_letters")),
        int(gauge("pending")),
        gauge("pending_oldest_age_seconds"),
        {decision: number for decision, number in decisions.items() if number},
    )


def _store(store: str, now: Reading, before: Reading | None) -> StoreFigures:
    def since(name: str) -> float:
        return total(now, name, store=store) - (0.0 if before is None else total(before, name, store=store))

    calls = since("idempotency_store_duration_seconds_count")
    spent = since("idempotency_store_duration_seconds_sum")
    return StoreFigures(store, spent / calls * 1000 if calls > 0 else None, int(max(0.0, since("idempotency_store_errors_total"))))


class Meter:
    """Takes readings when somebody looks, and remembers some, so that there are rates. `clock` never goes back. Threads may share it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._taken: deque[tuple[float, Reading]] = deque()
        self._lock = threading.Lock()

    def figures(self, exposition: str) -> Figures:
        """Of what is exposed now."""
        reading = read(exposition)
        with self._lock:
            now = self._clock()
            before = self._remember(now, reading)
        return figures(reading, None, 0.0) if before is None else figures(reading, before[1], now - before[0])

    def _remember(self, now: float, reading: Reading) -> tuple[float, Reading] | None:
        """Returns the reading to compare with."""
        while len(self._taken) > 1 and now - self._taken[0][0] > WINDOW:
            self._taken.popleft()
        before = self._earliest(now)
        if not self._taken or now - self._taken[-1][0] >= APART:
            self._taken.append((now, reading))
        return before

    def _earliest(self, now: float) -> tuple[float, Reading] | None:
        """The oldest reading of the window, if it is old enough to tell a rate. One from long ago tells none of now."""
        candidates: Iterable[tuple[float, Reading]] = (taken for taken in self._taken if APART <= now - taken[0] <= 2 * WINDOW)
        return next(iter(candidates), None)
