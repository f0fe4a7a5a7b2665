"""Which route a request target belongs to.

The gateway forwards the *raw* path, byte for byte (RFC 9110 section 7.7: a proxy must not change it). The *normal* path
is how an upstream usually reads it: escapes decoded, dot segments resolved, doubled and trailing slashes and
`;parameters` dropped. It decides among unguarded routes. If *any* reading (`gateway.core.path_interpretations`) belongs
to a guarded route that the raw path misses, the gateway refuses the request: otherwise some spelling would walk around
the guard.

`/v1/pay` and `/v1/pay/` are two spellings of one path, which frameworks redirect to each other or take for one: a guard
of either guards both.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from gateway.core.path_interpretations import DECODE_ROUNDS, PLAIN, decode_escapes, loosen, names_host, parts
from gateway.core.path_pattern import Pattern, parse_pattern, path_segments
from gateway.core.policy import Route
from gateway.core.route_hosts import HostIndex
from gateway.core.route_index import Bits, RouteIndex

CACHED_TARGETS, CACHED_TARGET = 2048, 256
"""How many matches the table remembers, and for targets of how many bytes at most."""

MAX_SEGMENTS = 512
"""The gateway refuses a path of more segments: that bounds what a path costs before anything is known of it."""

_PLAIN = re.compile(rb"(?:/%b)+/?|/" % PLAIN)
_ABSOLUTE = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


@dataclass(frozen=True, slots=True)
class Matched:
    """The route that the request belongs to."""

    route: Route


@dataclass(frozen=True, slots=True)
class NoRoute:
    """No line of the route map takes this request."""


@dataclass(frozen=True, slots=True)
class RefusedTarget:
    """A target that could walk around the guard of `route`, or that a proxy may not take at all (`route` None)."""

    route: Route | None


Match: TypeAlias = Matched | NoRoute | RefusedTarget


def split_target(target: bytes) -> tuple[bytes, bytes, bytes]:
    """Split a request target (RFC 9112 section 3.2) into path, query and the origin-form to forward. The query is
    without its `?`.

    An absolute-form target loses scheme and authority, since the upstream comes from the route map alone. A `#` is no
    delimiter here: no client may send a fragment, and `RouteTable.match` refuses it.
    """
    origin = target
    if not target.startswith(b"/"):
        absolute = _ABSOLUTE.match(target)
        if absolute:
            origin = target[absolute.end() :]
            if not origin.startswith(b"/"):
                origin = b"/" + origin
    path, _, query = origin.partition(b"?")
    return path, query, origin


def normal_segments(path: bytes) -> tuple[str, ...]:
    """The usual reading of a path, split at its slashes. Escapes that are not valid are kept as they stand."""
    for _ in range(DECODE_ROUNDS):
        path = decode_escapes(path)
    path = path.partition(b"?")[0].partition(b"#")[0].replace(b"\\", b"/")
    result: list[str] = []
    for part in path.split(b"/"):
        segment = part.partition(b";")[0].strip().decode("utf-8", "surrogateescape").rstrip("\0")
        if segment == "..":
            del result[-1:]
        elif segment not in {"", "."}:
            result.append(segment)
    return tuple(result) or ("",)


class RouteTable:
    """The route map, compiled. Immutable, so that a reload swaps whole tables. Routes match in file order."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        self.routes = routes
        patterns = tuple(parse_pattern(route.path) for route in routes)
        loose = tuple(map(_loosen_pattern, patterns))
        self._index, self._loose = RouteIndex(patterns), RouteIndex(loose)
        self._folded = patterns == loose
        self._spelled = _bits(routes[at].policy is None and pattern.spells_its_end for at, pattern in enumerate(patterns))
        self._cached = lru_cache(maxsize=CACHED_TARGETS)(self._match)
        self._cached_for_all = lru_cache(maxsize=CACHED_TARGETS)(self._match_for_all)
        self._guarded = _bits(route.policy is not None for route in routes)
        self._of_method = {method: self._taking(method) for route in routes for method in route.methods}
        self._of_others = self._taking(None)
        self._hosts = HostIndex([route.hosts for route in routes])
        self.by_host = self._hosts.needed

    def match(self, method: str, target: bytes, host: bytes = b"") -> Match:
        """Find the route of a request. Pure; linear in the target, but for short ones that came before.

        `host` is the effective one (`gateway.core.host`); it need not be known unless `by_host`. Routes for other
        hosts, guarded or not, do not exist for the request.
        """
        here = self._hosts.find(host)
        if here is None:
            return RefusedTarget(None)
        return self._match(method, target, here) if len(target) > CACHED_TARGET else self._cached(method, target, here)

    def under(self, target: bytes, host: bytes = b"", methods: Iterable[str] | None = None) -> Sequence[Match]:
        """The match of the target under these methods, or (None) under each method that the route map names and one
        that stands for all others. Remembers as `match`.
        """
        if methods is not None:
            known = self._of_method.keys()
            names = {method if method in known else "" for method in methods}
            return [self.match(method, target, host) for method in sorted(names)]
        here = self._hosts.find(host)
        if here is None:
            return (RefusedTarget(None),)
        return self._match_for_all(target, here) if len(target) > CACHED_TARGET else self._cached_for_all(target, here)

    def _match_for_all(self, target: bytes, here: Bits) -> tuple[Match, ...]:
        return tuple([self._match(method, target, here) for method in sorted(self._of_method.keys() | {""})])

    def _match(self, method: str, target: bytes, here: Bits) -> Match:
        path, _, _ = split_target(target)
        if not path.startswith(b"/") or b"#" in target:
            return self._match_asterisk(method, here) if target == b"*" else RefusedTarget(None)
        if path.count(b"/") > MAX_SEGMENTS:
            return RefusedTarget(None)
        text = path.decode("utf-8", "surrogateescape")
        taking = self._of_method.get(method, self._of_others) & here
        raw = self._find(self._index, taking, text)
        guarded = raw is not None and self._is_guarded(raw)
        plain = _PLAIN.fullmatch(path) is not None
        if raw is not None and guarded and plain:
            return Matched(self.routes[raw])
        if self._guarded & taking and (refused := self._refuse(taking, path, text, raw, plain)) is not None:
            return refused
        found = raw if guarded or plain else _first(self._index.find(normal_segments(path)) & taking)
        found = raw if found is None else found
        return NoRoute() if found is None else Matched(self.routes[found])

    def _find(self, index: RouteIndex, taking: Bits, path: str) -> int | None:
        """The route whose pattern the path matches as it stands. A path with a closing slash has two spellings; a guard
        of either counts.
        """
        without = _first(index.find(path_segments(path)) & taking)
        if len(path) == 1 or not path.endswith("/") or (without is not None and self._is_guarded(without)):
            return without
        closed = _first(index.find(path[1:].split("/")) & taking)
        return without if closed is None or (without is not None and not self._is_guarded(closed)) else closed

    def _refuse(self, taking: Bits, path: bytes, text: str, raw: int | None, plain: bool) -> RefusedTarget | None:  # noqa: FBT001 - private
        """Whether an upstream might read the path as one of a guarded route other than `raw`."""
        if plain and b"." not in path:  # all upstreams read it alike, but for letter case: many frameworks ignore it in routes
            if self._folded and text == text.lower():
                return None
            guard = self._find(self._loose, taking, text.lower())
            return RefusedTarget(self.routes[guard]) if guard is not None and self._is_guarded(guard) else None
        options = parts(path)
        spelled = raw is not None and bool(self._spelled >> raw & 1)
        found = None if options is None else self._loose.find_all(options, host_first=names_host(path), assume=not spelled)
        if found is None:
            others = self._guarded & taking & ~(0 if raw is None else 1 << raw)
            return RefusedTarget(None) if others else None
        guards = [guard for bits in found if (guard := _first(bits & taking)) is not None and guard != raw and self._is_guarded(guard)]
        return RefusedTarget(self.routes[min(guards)]) if guards else None

    def _match_asterisk(self, method: str, here: Bits) -> Match:
        """`OPTIONS *` is about the server as a whole (RFC 9110 section 9.3.7): the route of `/` answers for it."""
        found = self._find(self._index, self._of_method.get(method, self._of_others) & here, "/") if method == "OPTIONS" else None
        return RefusedTarget(None) if found is None or self._is_guarded(found) else Matched(self.routes[found])

    def _is_guarded(self, number: int) -> bool:
        return bool(self._guarded >> number & 1)

    def _taking(self, method: str | None) -> Bits:
        return _bits(not route.methods or method in route.methods for route in self.routes)


def _first(found: Bits) -> int | None:
    return (found & -found).bit_length() - 1 if found else None


def _bits(members: Iterable[bool]) -> Bits:
    return sum(1 << at for at, member in enumerate(members) if member)


def _loosen_pattern(pattern: Pattern) -> Pattern:
    return Pattern(tuple(None if literal is None else loosen(literal) for literal in pattern.segments), pattern.rest)
