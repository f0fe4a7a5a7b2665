"""How five kinds of upstreams read a request target, each in its own order of steps; and which route that reading belongs to.

A model gives all readings that the kind has with one setting or another. What an upstream would redirect counts as read: clients
follow. Nothing here looks at how the gateway judges.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Path: TypeAlias = tuple[bytes, ...]

_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_ABSOLUTE = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A route's path in pieces: literals, None for a parameter. `rest`: any further segments may follow."""

    pieces: tuple[bytes | None, ...]
    rest: bool = False

    def takes(self, path: Path, same: Callable[[bytes], bytes]) -> bool:
        """Whether a path belongs here, literals compared as `same` sees them."""
        if len(path) < len(self.pieces) or (len(path) > len(self.pieces) and not self.rest):
            return False
        return all(have != b"" if want is None else same(have) == same(want) for want, have in zip(self.pieces, path, strict=False))

    @property
    def text(self) -> str:
        names = ["{p}" if piece is None else piece.decode() for piece in self.pieces]
        return "/" + "/".join([*names, "**"] if self.rest else names)


def first_taking(patterns: Sequence[Pattern], path: Path, same: Callable[[bytes], bytes] = bytes) -> int | None:
    """The number of the first pattern that takes a path, as an upstream with routes like the gateway's has it."""
    return next((number for number, pattern in enumerate(patterns) if pattern.takes(path, same)), None)


def nginx(target: bytes) -> Iterator[Path]:
    """Cut at `?` and `#`, decode once, merge slashes, resolve dots; a location takes what begins with it, so a closing slash too."""
    path = _decode(re.split(rb"[?#]", _path(target))[0])
    if b"\0" not in path:
        yield _closed(_clean(path))


def flask(target: bytes) -> Iterator[Path]:
    """gunicorn or Werkzeug's server, then WSGI: decoded once, slashes merged; `//host/path` may lose its slashes or its host."""
    path = _path(target).partition(b"?")[0].partition(b"#")[0]
    for one in (path, re.sub(rb"^//[^/]*", b"", path)):
        decoded = re.sub(rb"/{2,}", b"/", _decode(one))
        yield _closed(tuple(decoded[1:].split(b"/")))


def express(target: bytes) -> Iterator[Path]:
    """Not decoded before matching; a closing slash is optional; with a `#`, the old URL parser is at work, to which a backslash is a slash.

    Node refuses controls, blanks and bytes above ASCII before any of this.
    """
    path = _path(target).partition(b"?")[0]
    if re.search(rb"[\x00-\x20\x7f-\xff]", path):
        return
    if b"#" in path:
        path = path.partition(b"#")[0].replace(b"\\", b"/")
    yield _closed(tuple(path[1:].split(b"/")))


def spring(target: bytes) -> Iterator[Path]:
    """Tomcat and Spring: `;parameters` dropped, decoded once, slashes merged, dots resolved; parameters first, last, or by segment."""
    path = _path(target).partition(b"?")[0]
    for early in (_without_parameters(path), path):
        for decoded in (_decode(early), _decode(early).replace(b"\\", b"/")):
            yield _closed(_clean(_without_parameters(decoded)))
    segments = (_decode(segment.partition(b";")[0]) for segment in path[1:].split(b"/"))
    yield _closed(tuple(segments))


def go(target: bytes) -> Iterator[Path]:
    """ServeMux: the path cleaned and then decoded by segment, or, before 1.22, the other way round."""
    path = _path(target).partition(b"?")[0]
    yield _closed(tuple(_decode(segment) for segment in _clean(path)))
    yield _closed(_clean(_decode(path)))


@dataclass(frozen=True, slots=True)
class Upstream:
    """A kind of upstream: how it reads paths, and how it compares literals."""

    name: str
    read: Callable[[bytes], Iterator[Path]]
    same: Callable[[bytes], bytes] = bytes


UPSTREAMS = (
    Upstream("nginx", nginx),
    Upstream("flask", flask),
    Upstream("express", express, bytes.lower),
    Upstream("spring", spring),
    Upstream("go", go),
)


def _path(target: bytes) -> bytes:
    """The origin-form of an absolute-form; a path begins with a slash."""
    absolute = _ABSOLUTE.match(target)
    path = target[absolute.end() :] if absolute else target
    return path if path.startswith(b"/") else b"/" + path


def _decode(path: bytes) -> bytes:
    return _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), path)


def _without_parameters(path: bytes) -> bytes:
    return re.sub(rb";[^/]*", b"", path)


def _clean(path: bytes) -> Path:
    """Slashes merged, dot segments resolved; a closing slash is an empty last segment."""
    parts = path.split(b"/")
    kept: list[bytes] = []
    for part in parts:
        if part == b"..":
            del kept[-1:]
        elif part not in {b"", b"."}:
            kept.append(part)
    return (*kept, b"") if parts[-1] in {b"", b".", b".."} else tuple(kept)


def _closed(path: Path) -> Path:
    """A closing slash makes no other path of it: what has one is redirected, or taken all the same."""
    return path[:-1] if len(path) > 1 and path[-1] == b"" else path
