"""Routes that take what others are for: a route that can never match, and unguarded routes that reach where guarded
ones are.
"""

from collections.abc import Sequence

from gateway.config.checks.common import Findings, ResolvedRoute
from gateway.config.names import ROUTE
from gateway.core.path_pattern import parse_pattern
from gateway.core.policy import Route
from gateway.core.reach import Servers, one_place
from gateway.core.route_hosts import covers

CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
"""The methods that change something (RFC 9110 section 9.2.1), and that a client may put a key on."""
READING = frozenset({"GET", "HEAD", "OPTIONS"})
"""The methods that catch-alls are best kept to."""


def check_overlap(routes: Sequence[ResolvedRoute]) -> Findings:
    readable = [one for one in routes if one.section.sound(ROUTE.hosts, ROUTE.path, ROUTE.methods)]
    for index, later in enumerate(readable):
        taking = shadowing([one.route for one in readable[:index]], later.route)
        if taking:
            place = later.section.place
            places = [one.section.place.told(place) for route in taking for one in readable[:index] if one.route is route]
            spelled = [f"`{route.id}` ({there})" if route.id else there for route, there in zip(taking, places, strict=True)]
            words = f"this route can never match: all of its requests go to {', '.join(spelled)}"
            yield later.section.place_of(ROUTE.path), words


def shadows(earlier: Route, later: Route) -> bool:
    """Whether every request that `later` would match goes to `earlier`. Exact for the two: hosts and paths by their
    patterns, methods as sets.
    """
    hosts = all(_takes_host(earlier, host) for host in later.hosts or (None,))
    return hosts and _takes_methods(earlier.methods, later) and parse_pattern(earlier.path).covers(parse_pattern(later.path))


def shadowing(earlier: Sequence[Route], later: Route) -> tuple[Route, ...]:
    """The routes that together leave `later` nothing: one that shadows it, or several that cover its path and share out
    its hosts and methods.

    Empty exactly if some request reaches `later`. Narrower paths need not be added up: one whose parameters are filled
    with segments that no pattern spells, and whose rest is an empty segment, is matched by no pattern that does not
    cover the whole.
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
    return not route.hosts or (host is not None and any(covers(own, host) for own in route.hosts))


def _takes_methods(methods: frozenset[str], later: Route) -> bool:
    return not methods or (bool(later.methods) and later.methods <= methods)


def warn_of_overlap(routes: Sequence[ResolvedRoute], servers: Servers) -> Findings:
    readable = [one for one in routes if one.section.sound(ROUTE.path, ROUTE.methods, ROUTE.upstream)]
    guarded = [one for one in readable if one.idempotency is not None]
    for open_one in readable:
        if open_one.idempotency is None:
            yield from _warn_of_catch_all(open_one, guarded, servers)
    for one in guarded:
        yield from _warn_of_methods(one, readable, servers)


def _warn_of_catch_all(one: ResolvedRoute, guarded: Sequence[ResolvedRoute], servers: Servers) -> Findings:
    """Whatever spelling of a guarded path the gateway does not know goes through a catch-all."""
    for guard in guarded:
        beside = _covers(one.route, guard.route) and not _covers(guard.route, one.route) and _one_upstream(one, guard, servers)
        if beside and _share_methods(one.route, guard.route):
            words = f"takes, unguarded, any spelling of {guard.route.path} (route `{guard.route.id}`) that the upstream alone knows"
            yield one.section.place_of(ROUTE.path), f"{words}; {_remedy(one.route, guard.route)}"
            return


def _remedy(one: Route, guard: Route) -> str:
    if one.methods and guard.methods and one.methods <= READING:
        return f"take {_listed(one.methods & guard.methods)} out of its `methods`, and give other paths routes of their own"
    return "give it `methods: [GET, HEAD, OPTIONS]`, and other paths routes of their own"


def _warn_of_methods(one: ResolvedRoute, routes: Sequence[ResolvedRoute], servers: Servers) -> Findings:
    """A key that comes with another method protects nothing, and only a test of that method would show it."""
    if not one.route.methods:
        return
    free = CHANGING - one.route.methods
    for other in routes:
        if other is one or not _covers(other.route, one.route) or not _one_upstream(other, one, servers):
            continue
        taken = free & (other.route.methods or CHANGING)
        if taken and other.idempotency is None:
            words = (
                f"{_listed(taken)} of this path pass{'es' if len(taken) == 1 else ''} through `{other.route.id}` unguarded, with a key too"
            )
            yield one.section.place_of(ROUTE.methods), f"{words}; list them here, or keep them out of there"
            return
        free -= taken


def _one_upstream(one: ResolvedRoute, other: ResolvedRoute, servers: Servers) -> bool:
    """Whether equal paths of the two lead to one place, whatever their upstreams are called."""
    return one_place(one.route.upstream, other.route.upstream, servers)


def _covers(one: Route, other: Route) -> bool:
    meet = not one.hosts or not other.hosts or any(covers(a, b) or covers(b, a) for a in one.hosts for b in other.hosts)
    return meet and parse_pattern(one.path).covers(parse_pattern(other.path))


def _share_methods(one: Route, other: Route) -> bool:
    return not one.methods or not other.methods or bool(one.methods & other.methods)


def _listed(methods: frozenset[str]) -> str:
    *others, last = sorted(methods)
    return f"{', '.join(others)} and {last}" if others else last
