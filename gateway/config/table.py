"""The resolved routes as people read them."""

from collections.abc import Sequence

from gateway.config.units import format_duration
from gateway.core.policy import InFlight, Route

_HEADINGS = ("ROUTE", "METHODS", "PATH", "UPSTREAM", "SCOPE", "PRINCIPAL", "KEY", "IN FLIGHT", "LEASE", "RETENTION", "STORE OUTAGE")


def route_table(routes: Sequence[Route]) -> str:
    """One line a route, in matching order, under a line of headings. An unguarded route has dashes where its policy would be."""
    rows = [_HEADINGS, *(_row(route) for route in routes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def _row(route: Route) -> tuple[str, ...]:
    first = (route.id, ",".join(sorted(route.methods)) or "any", route.path, route.upstream)
    policy = route.policy
    if policy is None:
        return first + ("-",) * (len(_HEADINGS) - len(first))
    in_flight = f"wait {format_duration(policy.wait)}" if policy.in_flight is InFlight.WAIT else policy.in_flight.value
    return (
        *first,
        policy.scope,
        "+".join(policy.principal) or "none",
        policy.key.header + ("" if policy.key.required else " (optional)"),
        in_flight,
        format_duration(policy.lease),
        format_duration(policy.retention),
        policy.on_store_outage.value,
    )
