"""Rewritten paths: a prefix that the route's path does not have, and unguarded routes that reach a guarded path at the upstream."""

from collections.abc import Sequence

from gateway.config.checks.common import Findings, ResolvedRoute
from gateway.config.names import REWRITE, ROUTE
from gateway.core.policy import Route
from gateway.core.reach import Guards, Servers


def check_rewrites(routes: Sequence[ResolvedRoute]) -> Findings:
    for one in routes:
        rewrite, section = one.route.rewrite, one.section.sub(ROUTE.rewrite)
        sound = rewrite is not None and one.section.sound(ROUTE.path, ROUTE.rewrite) and section.sound(REWRITE.prefix)
        if sound and rewrite is not None and rewrite.prefix and not rewrite.begins(one.route.path):
            yield section.place_of(REWRITE.prefix), f"{one.route.path} does not begin with {rewrite.prefix}; write a beginning of the path"


def warn_of_rewrites(routes: Sequence[ResolvedRoute], servers: Servers) -> Findings:
    """The guards are asked about the client's path, so none is asked about what another path becomes."""
    guarded = [(one.route, Guards((one.route,), servers)) for one in routes if one.idempotency is not None]
    for one in routes:
        if one.idempotency is None:
            guard = next((guard for guard, at_upstream in guarded if _walks_around(one.route, guard, at_upstream)), None)
            if guard is not None:
                words = f"what it takes may reach, unguarded, what the upstream knows of {guard.path} (route `{guard.id}`)"
                yield one.section.place_of(ROUTE.rewrite, ROUTE.path), f"{words}; rewrite it to another prefix, or guard it too"


def _walks_around(one: Route, guard: Route, at_upstream: Guards) -> bool:
    methods = not one.methods or not guard.methods or one.methods & guard.methods
    return bool(methods) and bool(at_upstream.reached_by(one))
