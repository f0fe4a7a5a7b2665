"""The figures of this moment, taken from the metrics that Prometheus scrapes, so that both say the same."""

from collections import defaultdict

from gateway.operate.admin.exposition import read

PREFIX = "idempotency_"

_OF_ROUTES = {
    "in_flight": "in_flight",
    "route_unknown": "unknown",
    "route_dead_letters": "dead_letters",
    "route_unknown_oldest_age_seconds": "unknown_oldest_age_seconds",
    "route_pending": "pending",
    "route_pending_oldest_age_seconds": "pending_oldest_age_seconds",
}
"""Gauges by route, and what they are called here."""

Json = dict[str, object]


def figures(exposition: str) -> Json:
    """What JSON can carry. `requests` counts from the start of the processes, by decision, and so do the `decisions` of a route (under
    `mode: observe` what would have been decided): of two readings the difference is a rate.
    """
    requests, records = defaultdict[str, float](float), dict[str, float]()
    decisions: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    routes: defaultdict[str, dict[str, float]] = defaultdict(dict)
    single: dict[str, float] = {}
    targets: list[Json] = []
    for series in read(exposition):
        name, labels, value = series.name.removeprefix(PREFIX), series.labels, series.value
        if name == "requests_total":
            requests[labels["decision"]] += value
            decisions[labels["route"]][labels["decision"]] += value
            routes[labels["route"]]["requests"] = routes[labels["route"]].get("requests", 0.0) + value
        elif name in _OF_ROUTES:
            routes[labels["route"]][_OF_ROUTES[name]] = value
        elif name == "records":
            records[labels["status"]] = value
        elif name == "upstream_target_up":
            targets.append({**labels, "up": value == 1.0})
        elif not labels:
            single[name] = value
    return {
        "requests": dict(requests),
        "in_flight": sum(route.get("in_flight", 0.0) for route in routes.values()),
        "records": records,
        "dead_letters": single.get("dead_letters"),
        "unknown_oldest_age_seconds": single.get("unknown_oldest_age_seconds"),
        "pending_oldest_age_seconds": max((route.get("pending_oldest_age_seconds", 0.0) for route in routes.values()), default=0.0),
        "redis_away": single.get("redis_breaker_open") == 1.0,
        "last_reload_successful": single.get("config_last_reload_successful") != 0.0,
        "targets": targets,
        "routes": {name: {**route, "decisions": decisions.get(name, {})} for name, route in routes.items()},
    }
