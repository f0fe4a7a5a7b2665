"""Every way in which an upstream might read a path.

Servers and frameworks differ: in how often they decode, in whether they split at slashes before or after, in what ends a path, in
what `;`, a backslash, trailing dots, blanks and letter case mean to them. A guard that knows one reading can be walked around by all the
others, so a target is judged under all of them. Segments are given *loosely* (`loosen`): case folded, without parameters and trailing dots.
"""

import re
from typing import TypeAlias

Reading: TypeAlias = tuple[str, ...]
"""The loosened segments of a path. The empty tuple is the root."""

DECODE_ROUNDS = 3
"""How often escapes are decoded: some servers and frameworks decode twice. What is still encoded after that is too ambiguous."""

MAX_READINGS = 64
"""A path with more readings than this is too ambiguous."""

MAX_SPECIALS = 32
"""How many characters that upstreams differ about (all of `_SPECIAL` but plain slashes) a path may hold; it bounds what one path costs."""

PLAIN = rb"[A-Za-z0-9_~!$&'()*+,=:@-](?:[A-Za-z0-9._~!$&'()*+,=:@-]*[A-Za-z0-9_~!$&'()*+,=:@-])?"
"""A regular expression for segments that all upstreams read alike, but for letter case."""

_PLAIN = re.compile(PLAIN)
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_SPECIAL = re.compile(rb"[/\\;?#\0]")
_PARAMETERS = re.compile(rb";[^/]*")
_END = re.compile(rb"[?#\0].*", re.DOTALL)
_SEPARATOR = re.compile(rb"[/\\]")
_BLANK = " \t\n\r\v\f\0"


def decode_escapes(text: bytes) -> bytes:
    """Decode valid escapes once; others are kept as they stand."""
    return _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), text) if b"%" in text else text


def loosen(segment: str) -> str:
    """What the most forgiving upstream compares; the segment itself if nothing of it remains."""
    return _core(segment).casefold() or segment


def readings(path: bytes) -> frozenset[Reading] | None:
    """All readings of an absolute path, or None if it is too ambiguous: dot segments, whose meaning depends on when they are resolved,
    more than `DECODE_ROUNDS` layers of escapes, `MAX_SPECIALS` doubtful characters or `MAX_READINGS` readings.
    """
    decoded = _decode_fully(path)
    if decode_escapes(decoded) != decoded or len(_SPECIAL.findall(decoded)) - path.count(b"/") > MAX_SPECIALS:
        return None
    ended: set[Reading] = set()
    going: set[Reading] = {()}
    for raw in path[1:].split(b"/"):
        options = _segment_readings(raw)
        if options is None:
            return None
        ended |= {head + segments for head in going for segments, ends in options if ends}
        going = {head + segments for head in going for segments, ends in options if not ends}
        if len(ended) + len(going) > MAX_READINGS:
            return None
    found = ended | going
    if not _core(_SEPARATOR.split(decoded[1:], maxsplit=1)[0].decode("utf-8", "surrogateescape")):
        found |= {reading[1:] for reading in found}  # to a URL parser, `//host/path` is a host and a path
    return frozenset(found)


def _segment_readings(raw: bytes) -> set[tuple[Reading, bool]] | None:
    """What stands between two slashes, in all its readings: segments, and whether the path ends in them. None: too ambiguous."""
    if _PLAIN.fullmatch(raw):
        return {((loosen(raw.decode()),), False)}
    result: set[tuple[Reading, bool]] = set()
    states = {(raw if _SPECIAL.search(_decode_fully(raw)) else _decode_fully(raw), False)}
    while True:
        states |= {(_END.sub(b"", text), True) for text, _ in states if _END.search(text)}
        states |= {(_PARAMETERS.sub(b"", text), ends) for text, ends in states}
        for text, ends in states:
            for pieces in (text.split(b"/"), _SEPARATOR.split(text)):
                segments = [_decode_fully(piece).decode("utf-8", "surrogateescape") for piece in pieces]
                if any(_bare(segment) in {".", ".."} for segment in segments):
                    return None
                result.add((tuple([loosen(segment) for segment in segments if segment]), ends))
                result.add((tuple([loosen(segment) for segment in segments if _core(segment)]), ends))
        decoded = {(decode_escapes(text), ends) for text, ends in states}
        if decoded == states:
            return result
        states = decoded


def _decode_fully(text: bytes) -> bytes:
    for _ in range(DECODE_ROUNDS):
        text = decode_escapes(text)
    return text


def _bare(segment: str) -> str:
    """A segment without parameters and surrounding blanks."""
    return segment.partition(";")[0].strip(_BLANK)


def _core(segment: str) -> str:
    """What remains of a segment where trailing dots are dropped too."""
    return _bare(segment).rstrip("." + _BLANK)
