"""The prefix of a path, as the upstream has it. Pure.

A rewritten path is one that no guard has judged: the guards are asked about what the client sent (`gateway.core.routes`). So that nothing
climbs out of what stands in front of it, a route that rewrites takes only steady paths: those in which no reader finds another segment, an
empty one or a dot segment.
"""

import re
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import unquote_to_bytes

from gateway.core.kinds import Text
from gateway.core.path_pattern import Pattern, parse_pattern, path_segments
from gateway.core.setting import Key

_UNSTEADY = re.compile(rb"//|/;|[\\\x00-\x20\x7f]|%(?![0-9A-Fa-f]{2})|%(?:[01][0-9A-Fa-f]|2[35EeFf]|3[BbFf]|5[Cc]|7[Ff])")
"""Empty segments, backslashes and controls; and, encoded: controls, `# % . / ; ? \\`. An encoded `%` could be any of them."""
_ESCAPE = re.compile(rb"%[0-9A-Fa-f]{2}")
_WORD = re.compile(rb"[A-Za-z0-9_~-]")


def path_prefix(text: str) -> str:
    """The beginning of a path: whole segments, without a closing slash, or `/`. Raises ValueError with a sentence."""
    pattern = parse_pattern(text)
    if pattern.rest or None in pattern.segments:
        raise ValueError(f"{text[:70]!r}: a prefix is written out, without parameters and without /**")
    return text if text == "/" else text.removesuffix("/")


_PREFIX = Text("a path prefix", path_prefix, r"^/")


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The upstream gets `to` in the place of `prefix`, the beginning of every path that the route takes."""

    prefix: Annotated[str, Key("from"), _PREFIX, "How the route's path begins: whole segments, written out."]
    to: Annotated[str, _PREFIX, "What the upstream gets in its place; / for nothing."]

    def pattern(self, path: str) -> Pattern:
        """The paths that the upstream gets of a route's."""
        pattern, taken, put = parse_pattern(path), _segments(self.prefix), _segments(self.to)
        segments: tuple[str | None, ...] = (*put, *_own(pattern)[len(taken) :])
        return Pattern(segments if segments or pattern.rest else ("",), pattern.rest)

    def begins(self, path: str) -> bool:
        """Whether every path of this pattern begins so."""
        taken = _segments(self.prefix)
        return parse_pattern(path).segments[: len(taken)] == taken


def upstream_pattern(path: str, rewrite: Rewrite | None, front: str) -> Pattern:
    """The paths that an upstream gets of a route's. `front`: the path of its URL, without a closing slash."""
    pattern = parse_pattern(path) if rewrite is None else rewrite.pattern(path)
    return Pattern((*(path_segments(front) if front else ()), *_own(pattern)) or pattern.segments, pattern.rest)


class Rewriting:
    """A rewrite as a request meets it. Without one: the upstream's own prefix is put in front, which is as much to climb out of."""

    __slots__ = ("_prefix", "_to")

    def __init__(self, rewrite: Rewrite | None) -> None:
        self._prefix = b"" if rewrite is None else rewrite.prefix.removesuffix("/").encode()
        self._to = b"" if rewrite is None else rewrite.to.removesuffix("/").encode()

    def takes(self, target: bytes) -> bool:
        """Whether a target in origin-form can be rewritten; `*` is about no path. Linear."""
        if target == b"*":
            return True
        path = target.partition(b"?")[0]
        rest = path[len(self._prefix) :]
        return path.startswith(self._prefix) and rest[:1] in {b"", b"/"} and is_steady(path)

    def apply(self, target: bytes) -> bytes:
        """The target as the upstream shall get it, of one that `takes` has passed. The query stays as it came."""
        if target == b"*":
            return target
        path, mark, query = target.partition(b"?")
        return (self._to + path[len(self._prefix) :] or b"/") + mark + query


def is_steady(path: bytes) -> bool:
    """Whether all readers find the same segments in a path, however they decode it, and none that is empty or made of dots. Linear."""
    if _UNSTEADY.search(path):
        return False
    try:
        unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        return False
    names = [segment.partition(b";")[0] for segment in _ESCAPE.sub(b"", path).split(b"/")]
    return not any(b"." in name and not _WORD.search(name) for name in names)


def _own(pattern: Pattern) -> tuple[str | None, ...]:
    """Its segments; the root has none."""
    return () if pattern.segments == ("",) else pattern.segments


def _segments(prefix: str) -> tuple[str, ...]:
    return () if prefix == "/" else path_segments(prefix)
