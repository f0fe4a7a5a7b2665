"""Whether a route can ever match, given the routes before it."""

from collections.abc import Sequence

from gateway.core.policy import Route
from gateway.core.routes import parse_pattern


def shadows(earlier: Route, later: Route) -> bool:
    """Whether every request that `later` would match goes to `earlier`. Exact for the two: paths by their patterns, methods as sets."""
    return _takes_methods(earlier.methods, later) and parse_pattern(earlier.path).covers(parse_pattern(later.path))


def shadowing(earlier: Sequence[Route], later: Route) -> tuple[Route, ...]:
    """The routes that together leave `later` nothing: one that shadows it, or several that cover its path and share out its methods.

    Empty exactly if some request reaches `later`. Narrower paths need not be added up: one whose parameters are filled with segments
    that no pattern spells, and whose rest is an empty segment, is matched by no pattern that does not cover the whole.
    """
    for route in earlier:
        if shadows(route, later):
            return (route,)
    pattern = parse_pattern(later.path)
    covering = [route for route in earlier if route.methods & later.methods and parse_pattern(route.path).covers(pattern)]
    taken = frozenset[str]().union(*(route.methods for route in covering))
    return tuple(covering) if later.methods and later.methods <= taken else ()


def _takes_methods(methods: frozenset[str], later: Route) -> bool:
    return not methods or (bool(later.methods) and later.methods <= methods)
