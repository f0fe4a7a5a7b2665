"""Which guards a request could walk around at its upstream, though the route map takes it for something else. Pure.

The guards are asked about the path that the client sent. What another path becomes behind a rewrite, or at a server that two upstreams
name, no guard is asked about.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from gateway.core.path_interpretations import loosen
from gateway.core.path_pattern import Pattern, pattern_text
from gateway.core.policy import Route
from gateway.core.rewrite import Rewrite, upstream_pattern
from gateway.core.route_hosts import covers
from gateway.core.routes import NoRoute, RouteTable

Servers: TypeAlias = Mapping[str, frozenset[tuple[str, str]]]
"""By the name of an upstream: each of its servers, and the path that stands in front of every request's there."""


def one_place(one: str, other: str, servers: Servers) -> bool:
    """Whether equal paths lead to one place at two upstreams."""
    return not servers.get(one, frozenset()).isdisjoint(servers.get(other, frozenset()))


def one_server(one: str, other: str, servers: Servers) -> bool:
    """Whether two upstreams have a server in common, whatever stands in front of their paths."""
    mine, its = ({server for server, _ in servers.get(name, frozenset())} for name in (one, other))
    return not mine.isdisjoint(its)


class Guards:
    """Those of a route map, by how they change their paths."""

    def __init__(self, guards: Iterable[Route], servers: Servers) -> None:
        self._servers = servers
        self._alike = defaultdict[tuple[str, Rewrite | None], list[Route]](list)
        self._moved: dict[tuple[str, Rewrite | None, str], list[_Moved]] = {}
        for guard in guards:
            self._alike[guard.upstream, guard.rewrite].append(guard)

    def reached_by(self, route: Route) -> Mapping[str, tuple[Route, ...]]:
        """Those that a route's requests may be at the upstream, whatever their methods are, with the paths that they have there; by what
        stands in front of the route's own. Where both change paths alike, the order of the routes decides, as it does where neither does.
        """
        found = defaultdict[str, dict[str, Route]](dict)
        own = {front: _loosened(upstream_pattern(route.path, route.rewrite, front)) for _, front in self._servers.get(route.upstream, ())}
        for (upstream, rewrite), guards in self._alike.items():
            for mine, its in self._changed(route, upstream, rewrite):
                for guard, moved in zip(guards, self._at_upstream(upstream, rewrite, its), strict=True):
                    if meet(own[mine], moved.loosened) and guard is not route and _share_hosts(route, guard):
                        found[mine][moved.route.id] = moved.route
        return {front: tuple(routes.values()) for front, routes in found.items()}

    def _changed(self, route: Route, upstream: str, rewrite: Rewrite | None) -> set[tuple[str, str]]:
        """What stands in front of both paths at each server that both have, where they do not change paths alike."""
        mine, its = self._servers.get(route.upstream, frozenset()), self._servers.get(upstream, frozenset())
        if not mine or not its:
            return set()
        rewritten = route.rewrite != rewrite
        return {(one, other) for here, one in mine for there, other in its if here == there and (rewritten or one != other)}

    def _at_upstream(self, upstream: str, rewrite: Rewrite | None, front: str) -> "list[_Moved]":
        """The guards that change their paths so, as the upstream has them; made once."""
        known = self._moved.get((upstream, rewrite, front))
        if known is None:
            known = self._moved[upstream, rewrite, front] = [_moved(guard, front) for guard in self._alike[upstream, rewrite]]
        return known


class _Moved(NamedTuple):
    """A guard with the path that it has at the upstream, by which its id is told from those of the others that are made of it."""

    route: Route
    loosened: Pattern


def _moved(guard: Route, front: str) -> _Moved:
    pattern = upstream_pattern(guard.path, guard.rewrite, front)
    path = pattern_text(pattern)
    return _Moved(replace(guard, id=f"{guard.id} {path}", path=path, rewrite=None), _loosened(pattern))


class Beyond:
    """What a route's requests may be at the upstream, found out when the first of them asks for something else than it says: few ever do,
    and a map of a thousand rewrites would take seconds to load.
    """

    __slots__ = ("_guards", "_reach", "_route")

    def __init__(self, route: Route, guards: Guards) -> None:
        self._route = route
        self._guards = guards
        self._reach: list[tuple[bytes, RouteTable]] | None = None

    def has(self, target: bytes, host: bytes, methods: Collection[str] | None = None) -> bool:
        """Whether a target, as the upstream gets it, may be a guard's there under one of the methods; None: under any."""
        if self._reach is None:
            self._reach = [(front.encode(), RouteTable(guards)) for front, guards in self._guards.reached_by(self._route).items()]
        return any(not isinstance(match, NoRoute) for front, table in self._reach for match in table.under(front + target, host, methods))


def meet(one: Pattern, other: Pattern) -> bool:
    """Whether some path without empty segments belongs to both."""
    mine, its = _segments(one), _segments(other)
    if len(mine) != len(its) and not (one if len(mine) < len(its) else other).rest:
        return False
    return all(a == b or a is None or b is None for a, b in zip(mine, its, strict=False))


def _share_hosts(one: Route, other: Route) -> bool:
    return not one.hosts or not other.hosts or any(covers(a, b) or covers(b, a) for a in one.hosts for b in other.hosts)


def _loosened(pattern: Pattern) -> Pattern:
    return Pattern(tuple(None if name is None else loosen(name) for name in pattern.segments), pattern.rest)


def _segments(pattern: Pattern) -> tuple[str | None, ...]:
    return () if pattern.segments == ("",) else pattern.segments
