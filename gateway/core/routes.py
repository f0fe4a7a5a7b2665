"""Which route a request target belongs to.

The *raw* path is what is forwarded, byte for byte (RFC 9110 section 7.7: a proxy must not change it). The *normal* path is the usual
reading an upstream makes of it: escapes decoded, dot segments resolved, doubled and trailing slashes and `;parameters` dropped. It decides
among unguarded routes. A request of which *any* reading (`gateway.core.readings`) belongs to a guarded route that its raw path misses
is refused: passing it on would let some spelling walk around the guard.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from gateway.core.policy import Route
from gateway.core.readings import DECODE_ROUNDS, PLAIN, decode_escapes, loosen, readings

CACHED_TARGETS, CACHED_TARGET = 2048, 256
"""How many matches are remembered, and for targets of how many bytes at most."""

_PLAIN = re.compile(rb"(?:/%b)+|/" % PLAIN)
_ABSOLUTE = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
_SEGMENT = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%-]*")
_PARAMETER = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A path pattern. `segments` holds literals, and None for a `{parameter}` (exactly one non-empty segment).

    `rest` is the closing `/**`: zero or more further segments.
    """

    segments: tuple[str | None, ...]
    rest: bool

    def matches(self, segments: tuple[str, ...]) -> bool:
        """Whether a path split at its slashes belongs to this pattern."""
        if len(segments) < len(self.segments) or (len(segments) > len(self.segments) and not self.rest):
            return False
        return all(have != "" if want is None else have == want for want, have in zip(self.segments, segments, strict=False))

    def covers(self, other: "Pattern") -> bool:
        """Whether every path that belongs to `other` belongs to this pattern too."""
        if len(self.segments) > len(other.segments) or ((other.rest or len(other.segments) > len(self.segments)) and not self.rest):
            return False
        pairs = zip(self.segments, other.segments, strict=False)
        return all(theirs is None or theirs != "" if mine is None else mine == theirs for mine, theirs in pairs)


def parse_pattern(text: str) -> Pattern:
    """Read `/literal/{parameter}/**`. Raises ValueError with a sentence that says what to change."""
    if not text.startswith("/"):
        raise ValueError(f"a path starts with a slash: /{text}")
    parts = text[1:].split("/")
    rest = parts[-1] == "**"
    if rest:
        parts.pop()
    elif parts == [""]:
        return Pattern(("",), rest=False)
    return Pattern(tuple(_parse_segment(part) for part in parts), rest)


def _parse_segment(part: str) -> str | None:
    if _PARAMETER.fullmatch(part):
        return None
    if part in {"", ".", ".."}:
        raise ValueError("empty and dot segments never match, since requests are compared in their normal form; remove them")
    if "*" in part or "{" in part or "}" in part:
        raise ValueError(f"{part!r}: a parameter fills a whole segment, as in /{{name}}, and ** stands only at the end")
    if "%" in part or not _SEGMENT.fullmatch(part):
        raise ValueError(f"{part!r}: write the path decoded, in letters, digits and -._~!$&'()+,;=:@")
    return part


@dataclass(frozen=True, slots=True)
class Matched:
    """The route that the request belongs to."""

    route: Route


@dataclass(frozen=True, slots=True)
class NoRoute:
    """No line of the route map takes this request."""


@dataclass(frozen=True, slots=True)
class RefusedTarget:
    """Passing this target on could walk around the guard of `route`; or it is no target that a proxy may take (`route` None)."""

    route: Route | None


Match: TypeAlias = Matched | NoRoute | RefusedTarget


def split_target(target: bytes) -> tuple[bytes, bytes, bytes]:
    """Split a request target (RFC 9112 section 3.2) into path, query and the origin-form to forward. The query is without its `?`.

    An absolute-form target loses scheme and authority, since the upstream comes from the route map alone. A `#` is no delimiter here:
    no client may send a fragment, and `RouteTable.match` refuses it.
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
        self._compiled = tuple((parse_pattern(route.path), route) for route in routes)
        self._loose = tuple((_loosen_pattern(pattern), route) for pattern, route in self._compiled)
        self._folded = all(pattern == loose for (pattern, _), (loose, _) in zip(self._compiled, self._loose, strict=True))
        self._cached = lru_cache(maxsize=CACHED_TARGETS)(self._match)
        self._guarded = tuple(route for route in routes if route.policy is not None)

    def match(self, method: str, target: bytes) -> Match:
        """Find the route of a request. Pure; linear in the number of routes, but for short targets that came before."""
        if len(target) > CACHED_TARGET:
            return self._match(method, target)
        return self._cached(method, target)

    def _match(self, method: str, target: bytes) -> Match:
        path, _, _ = split_target(target)
        if not path.startswith(b"/") or b"#" in target:
            return self._match_asterisk(method) if target == b"*" else RefusedTarget(None)
        segments = tuple(path[1:].decode("utf-8", "surrogateescape").split("/"))
        raw = _find(self._compiled, method, segments)
        if _PLAIN.fullmatch(path):
            return self._match_plain(method, segments, raw)
        if self._guarded and (refused := self._refuse(method, path, raw)) is not None:
            return refused
        if raw is not None and raw.policy is not None:
            return Matched(raw)
        found = _find(self._compiled, method, normal_segments(path)) or raw
        return Matched(found) if found else NoRoute()

    def _match_plain(self, method: str, segments: tuple[str, ...], raw: Route | None) -> Match:
        """A path that all upstreams read alike, but for letter case: many frameworks ignore it in routes."""
        if raw is not None and raw.policy is not None:
            return Matched(raw)
        lower = tuple(map(str.lower, segments))
        if self._guarded and (lower != segments or not self._folded):
            guard = _find(self._loose, method, lower)
            if guard is not None and guard.policy is not None:
                return RefusedTarget(guard)
        return Matched(raw) if raw else NoRoute()

    def _refuse(self, method: str, path: bytes, raw: Route | None) -> RefusedTarget | None:
        """Whether an upstream might read the path as one of a guarded route other than `raw`."""
        possible = readings(path)
        if possible is None:
            others = any(route is not raw and _takes(route, method) for route in self._guarded)
            return RefusedTarget(None) if others else None
        for reading in possible:
            for segments in (reading or ("",), (*reading, "")):  # some upstreams see a closing slash, which `/**` takes and `/a` does not
                guard = _find(self._loose, method, segments)
                if guard is not None and guard.policy is not None and guard is not raw:
                    return RefusedTarget(guard)
        return None

    def _match_asterisk(self, method: str) -> Match:
        """`OPTIONS *` is about the server as a whole (RFC 9110 section 9.3.7): the route of `/` answers for it."""
        found = _find(self._compiled, method, ("",)) if method == "OPTIONS" else None
        return Matched(found) if found and found.policy is None else RefusedTarget(None)


def _find(compiled: tuple[tuple[Pattern, Route], ...], method: str, segments: tuple[str, ...]) -> Route | None:
    for pattern, route in compiled:
        if _takes(route, method) and pattern.matches(segments):
            return route
    return None


def _takes(route: Route, method: str) -> bool:
    return not route.methods or method in route.methods


def _loosen_pattern(pattern: Pattern) -> Pattern:
    return Pattern(tuple(None if literal is None else loosen(literal) for literal in pattern.segments), pattern.rest)
