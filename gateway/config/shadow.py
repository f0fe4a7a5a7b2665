"""Whether a route can ever match, given the routes before it."""

from collections.abc import Sequence

from gateway.core import route_hosts
from gateway.core.policy import Route
from gateway.core.routes import parse_pattern


def shadows(earlier: Route, later: Route) -> bool:
    """Whether every request that `later` would match goes to `earlier`. Exact for the two: hosts and paths by their patterns, methods as
    sets.
    """
    hosts = all(_takes_host(earlier, host) for host in later.hosts or (None,))
    return hosts and _takes_methods(earlier.methods, later) and parse_pattern(earlier.path).covers(parse_pattern(later.path))


def shadowing(earlier: Sequence[Route], later: Route) -> tuple[Route, ...]:
    """The routes that together leave `later` nothing: one that shadows it, or several that cover its path and share out its hosts and
    methods.

    Empty exactly if some request reaches `later`. Narrower paths need not be added up: one whose parameters are filled with segments
    that no pattern spells, and whose rest is an empty segment, is matched by no pattern that does not cover the whole.
    """
    for route in earlier:
        if shadows(route, later):
            return (route,)
    each = [_shadowing_on([route for route in earlier if _takes_host(route, host)], later) for host in later.hosts or (None,)]
    if not all(each):
        return ()
    return tuple([route for route in earlier if any(route is one for routes in each for one in routes)])


def _shadowing_on(earlier: Sequence[Route], later: Route) -> tuple[Route, ...]:
    """The same on one host of `later`, of which `earlier` are all the routes."""
    pattern = parse_pattern(later.path)
    for route in earlier:
        if _takes_methods(route.methods, later) and parse_pattern(route.path).covers(pattern):
            return (route,)
    covering = [route for route in earlier if route.methods & later.methods and parse_pattern(route.path).covers(pattern)]
    taken = frozenset[str]().union(*(route.methods for route in covering))
    return tuple(covering) if later.methods and later.methods <= taken else ()


def _takes_host(route: Route, host: str | None) -> bool:
    """Whether the route takes all that is for this host of another one; None: for any host."""
    return not route.hosts or (host is not None and any(route_hosts.covers(own, host) for own in route.hosts))


def _takes_methods(methods: frozenset[str], later: Route) -> bool:
    return not methods or (bool(later.methods) and later.methods <= methods)
