"""Findings about unguarded routes that reach where guarded ones are."""

from collections.abc import Iterator, Sequence

from gateway.config.fields import RouteFields
from gateway.config.mistakes import Place
from gateway.config.resolve import ResolvedRoute
from gateway.core.policy import Route
from gateway.core.route_hosts import covers
from gateway.core.routes import parse_pattern

CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
"""The methods that change something (RFC 9110 section 9.2.1), and that a client may put a key on."""

READING = frozenset({"GET", "HEAD", "OPTIONS"})
"""The methods that catch-alls are best kept to."""


def warn_of_guards(routes: Sequence[ResolvedRoute]) -> Iterator[tuple[Place, str]]:
    readable = [one for one in routes if one.section.sound(RouteFields.PATH, RouteFields.METHODS, RouteFields.UPSTREAM)]
    guarded = [one for one in readable if one.idempotency is not None]
    for open_one in readable:
        if open_one.idempotency is None:
            yield from _warn_of_catch_all(open_one, guarded)
    for one in guarded:
        yield from _warn_of_methods(one, readable)


def _warn_of_catch_all(one: ResolvedRoute, guarded: Sequence[ResolvedRoute]) -> Iterator[tuple[Place, str]]:
    """Whatever spelling of a guarded path the gateway does not know goes through a catch-all."""
    for guard in guarded:
        beside = _covers(one.route, guard.route) and not _covers(guard.route, one.route) and one.route.upstream == guard.route.upstream
        if beside and _share_methods(one.route, guard.route):
            words = f"takes, unguarded, any spelling of {guard.route.path} (route `{guard.route.id}`) that the upstream alone knows"
            yield one.section.place_of(RouteFields.PATH), f"{words}; {_remedy(one.route, guard.route)}"
            return


def _remedy(one: Route, guard: Route) -> str:
    if one.methods and guard.methods and one.methods <= READING:
        return f"take {_listed(one.methods & guard.methods)} out of its `methods`, and give other paths routes of their own"
    return "give it `methods: [GET, HEAD, OPTIONS]`, and other paths routes of their own"


def _warn_of_methods(one: ResolvedRoute, routes: Sequence[ResolvedRoute]) -> Iterator[tuple[Place, str]]:
    """A key that comes with another method protects nothing, and nobody says so before it happens."""
    if not one.route.methods:
        return
    free = CHANGING - one.route.methods
    for other in routes:
        if other is one or not _covers(other.route, one.route) or other.route.upstream != one.route.upstream:
            continue
        taken = free & (other.route.methods or CHANGING)
        if taken and other.idempotency is None:
            words = (
                f"{_listed(taken)} of this path pass{'es' if len(taken) == 1 else ''} through `{other.route.id}` unguarded, with a key too"
            )
            yield one.section.place_of(RouteFields.METHODS), f"{words}; list them here, or keep them out of there"
            return
        free -= taken


def _covers(one: Route, other: Route) -> bool:
    meet = not one.hosts or not other.hosts or any(covers(a, b) or covers(b, a) for a in one.hosts for b in other.hosts)
    return meet and parse_pattern(one.path).covers(parse_pattern(other.path))


def _share_methods(one: Route, other: Route) -> bool:
    return not one.methods or not other.methods or bool(one.methods & other.methods)


def _listed(methods: frozenset[str]) -> str:
    *others, last = sorted(methods)
    return f"{', '.join(others)} and {last}" if others else last
