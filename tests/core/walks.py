"""Upstreams of all kinds, as far as they read paths: every result that some order of common rewriting steps can give.

Written from what servers and frameworks do, without a look at how the gateway judges; `outcomes` is plain search.
"""

import re
from collections.abc import Callable, Iterator

Step = Callable[[bytes], bytes]


def decode(path: bytes) -> bytes:
    """Decode escapes once (nginx, WSGI, Django, Starlette; some do it twice)."""
    return re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), path)


def strip_parameters(path: bytes) -> bytes:
    """Drop `;parameters` (Tomcat, Jetty, Spring)."""
    return re.sub(rb";[^/]*", b"", path)


def backslashes(path: bytes) -> bytes:
    """Take a backslash for a slash (IIS, WHATWG URL parsers)."""
    return path.replace(b"\\", b"/")


def resolve_dots(path: bytes) -> bytes:
    """Resolve dot segments as they stand (RFC 3986 section 5.2.4)."""
    result: list[bytes] = []
    for segment in path[1:].split(b"/"):
        if segment == b"..":
            del result[-1:]
        elif segment != b".":
            result.append(segment)
    return b"/" + b"/".join(result)


def merge_slashes(path: bytes) -> bytes:
    """Collapse runs of slashes (nginx, Go)."""
    return re.sub(rb"/{2,}", b"/", path)


def drop_last_slash(path: bytes) -> bytes:
    """Take `/a/` for `/a` (Express, Spring, Flask)."""
    return path[:-1] if len(path) > 1 and path.endswith(b"/") else path


def cut_at_end(path: bytes) -> bytes:
    """Let the path end at a `?` or `#`, also a decoded one, or at a NUL (C strings)."""
    return re.split(rb"[?#\0]", path, maxsplit=1)[0]


def trim_segments(path: bytes) -> bytes:
    """Drop blanks around and dots behind a segment's name (Windows, IIS)."""
    segments = [part if part.strip() in {b".", b".."} else part.strip().rstrip(b". ") for part in path.split(b"/")]
    return b"/".join(segments)


def drop_host(path: bytes) -> bytes:
    """Read `//host/path` as a URL without a scheme (`new URL(target, base)` in Node)."""
    found = re.match(rb"//+[^/]*(/.*)", path, re.DOTALL)
    return found[1] if found else path


def fold_case(path: bytes) -> bytes:
    """Ignore letter case (Express, ASP.NET)."""
    return path.lower()


STEPS: tuple[Step, ...] = (
    *(strip_parameters, backslashes, resolve_dots, merge_slashes, drop_last_slash, cut_at_end, trim_segments, fold_case),
)
DECODES = 3


def outcomes(path: bytes, limit: int = 4000) -> Iterator[bytes]:
    """Every path that some order of the steps gives, escapes decoded at most three times and a host dropped at most once; ends quietly
    at `limit` paths.
    """
    seen = {(path, 0, False)}
    waiting = [(path, 0, False)]
    while waiting and len(seen) < limit:
        now, decoded, dropped = waiting.pop(0)
        yield now
        following = [(step(now), decoded, dropped) for step in STEPS]
        if decoded < DECODES:
            following.append((decode(now), decoded + 1, dropped))
        if not dropped:
            following.append((drop_host(now), decoded, True))
        for state in following:
            if state[0].startswith(b"/") and state not in seen:
                seen.add(state)
                waiting.append(state)


def routed(path: bytes) -> Iterator[tuple[str, ...]]:
    """How a router splits a path: as it stands, or with escapes decoded within each segment after the splitting (Go, Rails)."""
    segments = path[1:].split(b"/")
    for _ in range(DECODES + 1):
        yield tuple(segment.decode("utf-8", "surrogateescape") for segment in segments)
        segments = [decode(segment) for segment in segments]
