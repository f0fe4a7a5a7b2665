"""Rewritten paths: a prefix that the route's path does not have, and unguarded routes that reach a guarded path at the upstream."""

from collections.abc import Sequence

from gateway.config.checks.common import Findings, ResolvedRoute, Servers
from gateway.config.names import REWRITE, ROUTE
from gateway.core.path_interpretations import loosen
from gateway.core.path_pattern import Pattern
from gateway.core.policy import Route
from gateway.core.rewrite import upstream_pattern
from gateway.core.route_hosts import covers


def check_rewrites(routes: Sequence[ResolvedRoute]) -> Findings:
    for one in routes:
        rewrite, section = one.route.rewrite, one.section.sub(ROUTE.rewrite)
        sound = rewrite is not None and one.section.sound(ROUTE.path, ROUTE.rewrite) and section.sound(REWRITE.prefix)
        if sound and rewrite is not None and rewrite.prefix and not rewrite.begins(one.route.path):
            yield section.place_of(REWRITE.prefix), f"{one.route.path} does not begin with {rewrite.prefix}; write a beginning of the path"


def warn_of_rewrites(routes: Sequence[ResolvedRoute], servers: Servers) -> Findings:
    """The guards are asked about the client's path, so none is asked about what another path becomes."""
    guarded = [one for one in routes if one.idempotency is not None]
    for one in routes:
        if one.idempotency is None:
            guard = next((guard.route for guard in guarded if _walks_around(one.route, guard.route, servers)), None)
            if guard is not None:
                words = f"what it takes may reach, unguarded, what the upstream knows of {guard.path} (route `{guard.id}`)"
                yield one.section.place_of(ROUTE.rewrite, ROUTE.path), f"{words}; rewrite it to another prefix, or guard it too"


def _walks_around(one: Route, guard: Route, servers: Servers) -> bool:
    """Where both change paths alike, the order of the routes decides, as it does where neither does."""
    methods = not one.methods or not guard.methods or one.methods & guard.methods
    hosts = not one.hosts or not guard.hosts or any(covers(a, b) or covers(b, a) for a in one.hosts for b in guard.hosts)
    if not (methods and hosts):
        return False
    pairs = [(mine, its) for mine in servers.get(one.upstream, ()) for its in servers.get(guard.upstream, ()) if mine[0] == its[0]]
    changed = [(mine, its) for (_, mine), (_, its) in pairs if mine != its or one.rewrite != guard.rewrite]
    return any(meet(_at_upstream(one, mine), _at_upstream(guard, its)) for mine, its in changed)


def _at_upstream(route: Route, front: str) -> Pattern:
    pattern = upstream_pattern(route.path, route.rewrite, front)
    return Pattern(tuple(None if name is None else loosen(name) for name in pattern.segments), pattern.rest)


def meet(one: Pattern, other: Pattern) -> bool:
    """Whether some path without empty segments belongs to both."""
    shorter, longer = sorted((_segments(one), _segments(other)), key=len)
    if len(shorter) < len(longer) and not (one if len(_segments(one)) < len(_segments(other)) else other).rest:
        return False
    return all(a is None or b is None or a == b for a, b in zip(shorter, longer, strict=False))


def _segments(pattern: Pattern) -> tuple[str | None, ...]:
    return () if pattern.segments == ("",) else pattern.segments
