"""Which route a request target belongs to.

Two readings of one target are compared. The *raw* path is what is forwarded, byte for byte (RFC 9110 section 7.7: a proxy must not
change it). The *normal* path is the widest reading an upstream might make of it: escapes decoded, dot segments resolved, doubled
and trailing slashes and `;parameters` dropped. A request whose normal path belongs to a guarded route that its raw path
misses is refused: passing it on would let any spelling walk around the guard.
"""

import re
from dataclasses import dataclass
from typing import TypeAlias

from gateway.core.policy import Route

DECODE_ROUNDS = 3
"""How often escapes are decoded in the normal form: some servers and frameworks decode twice."""

_PLAIN = re.compile(rb"(?:/[A-Za-z0-9_~!$&'()*+,=:@-][A-Za-z0-9._~!$&'()*+,=:@-]*)+|/")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
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

    An absolute-form target loses scheme and authority, since the upstream comes from the route map alone. A fragment, which no client
    may send, is kept in the forwarded form and left out of the path.
    """
    origin = target
    if not target.startswith(b"/"):
        absolute = _ABSOLUTE.match(target)
        if absolute:
            origin = target[absolute.end() :]
            if not origin.startswith(b"/"):
                origin = b"/" + origin
    path, _, query = origin.partition(b"?")
    return path.partition(b"#")[0], query, origin


def normal_segments(path: bytes) -> tuple[str, ...]:
    """The widest reading of a path, split at its slashes. Escapes that are not valid are kept as they stand."""
    for _ in range(DECODE_ROUNDS):
        decoded = _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), path)
        if decoded == path:
            break
        path = decoded
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

    def match(self, method: str, target: bytes) -> Match:
        """Find the route of a request. Pure; linear in the number of routes."""
        path, _, _ = split_target(target)
        if not path.startswith(b"/"):
            return self._match_asterisk(method) if path == b"*" else RefusedTarget(None)
        raw = self._find(method, tuple(path[1:].decode("utf-8", "surrogateescape").split("/")))
        if _PLAIN.fullmatch(path):
            return Matched(raw) if raw else NoRoute()
        normal = self._find(method, normal_segments(path))
        if normal is not None and normal.policy is not None and normal is not raw:
            return RefusedTarget(normal)
        found = raw if raw is not None and raw.policy is not None else normal or raw
        return Matched(found) if found else NoRoute()

    def _match_asterisk(self, method: str) -> Match:
        """`OPTIONS *` is about the server as a whole (RFC 9110 section 9.3.7): the route of `/` answers for it."""
        found = self._find(method, ("",)) if method == "OPTIONS" else None
        return Matched(found) if found and found.policy is None else RefusedTarget(None)

    def _find(self, method: str, segments: tuple[str, ...]) -> Route | None:
        for pattern, route in self._compiled:
            if (not route.methods or method in route.methods) and pattern.matches(segments):
                return route
        return None
