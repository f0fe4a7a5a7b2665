"""Every way in which an upstream might read a path, one part of the path after the other.

Servers and frameworks differ: in how often they decode, in whether they split at slashes before or after, in what ends
a path, in what `;`, a backslash, trailing dots, blanks, letter case, a format's suffix and a script's name mean to
them. Every reading that a guard does not know is a way around it, so the gateway judges a target under all of them.
Segments are given *loosely* (`loosen`): case folded, without parameters and trailing dots.

A path of n doubtful parts has up to 2^n readings, so they are never listed: `parts` gives the alternatives of each
part, and `gateway.core.route_index` walks all patterns through them at once. Both cost time that is linear in the path.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

Reading: TypeAlias = tuple[str, ...]
"""Loosened segments: of a path, or of a part of one. The empty tuple is the root."""

DECODE_ROUNDS = 3
"""How often escapes are decoded: some servers and frameworks decode twice. What is still encoded after that is too
ambiguous.
"""

MAX_SPECIALS = 32
"""How many characters that upstreams differ about (all of `_SPECIAL` but plain slashes) a path may hold; it bounds what
one path costs.
"""

PLAIN = rb"[A-Za-z0-9_~!$&'()*+,=:@-](?:[A-Za-z0-9._~!$&'()*+,=:@-]*[A-Za-z0-9_~!$&'()*+,=:@-])?"
"""A regular expression for segments that all upstreams read alike, but for letter case, a format's suffix and a
script's name.
"""

_PLAIN = re.compile(PLAIN)
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_WIDE_ESCAPE = re.compile(rb"%[uU][0-9A-Fa-f]{4}")
"""Of no standard; Jetty before 12 and Windows' HTTP.sys decode it."""

_SPECIAL = re.compile(rb"[/\\;?#\0]")
_PARAMETERS = re.compile(rb";[^/]*")
_END = re.compile(rb"[?#\0].*", re.DOTALL)
_SEPARATOR = re.compile(rb"[/\\]")
_SCRIPT = re.compile(r".+\.(?:php[0-9]?|phtml|f?cgi|pl|py|wsgi|rb|aspx?|ashx|asmx|svc|cfm|dll|exe)", re.DOTALL)
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_BLANK = " \t\n\r\v\f\0"


class Option(NamedTuple):
    """One reading of a part of a path: `segments`, after which the path may end whatever stands behind (`ends`).

    `anew`: they begin a path of their own, and what was before them is not of it. `assumed`: this is how a framework
    reads what all others take as it stands, so that it does not count against a route that spells the last segment out.
    """

    segments: Reading
    ends: bool = False
    anew: bool = False
    assumed: bool = False


def decode_escapes(text: bytes) -> bytes:
    """Decode valid escapes once; others are kept as they stand."""
    return _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), text) if b"%" in text else text


def loosen(segment: str) -> str:
    """What the most forgiving upstream compares; the segment itself if nothing of it remains."""
    return _core(segment).casefold() or segment


def parts(path: bytes) -> list[tuple[Option, ...]] | None:
    """The readings of what stands between the slashes of an absolute path, part by part; a reading of the path takes
    one of each.

    None if it is too ambiguous: dot segments, whose meaning depends on when they are resolved, more than
    `DECODE_ROUNDS` layers of escapes, escapes of no standard, or more than `MAX_SPECIALS` doubtful characters.
    """
    decoded = _decode_fully(path)
    if (
        decode_escapes(decoded) != decoded
        or _WIDE_ESCAPE.search(decoded)
        or len(_SPECIAL.findall(decoded)) - path.count(b"/") > MAX_SPECIALS
    ):
        return None
    raw = path[1:].split(b"/")
    last = next((at for at in range(len(raw) - 1, -1, -1) if _is_something(raw[at])), -1)
    result: list[tuple[Option, ...]] = []
    for at, part in enumerate(raw):
        options = _options(part)
        if options is None:
            return None
        result.append(tuple(_assume(options, last=at == last)))
    return result


def names_host(path: bytes) -> bool:
    """Whether the first segment may be read as a host: to a URL parser, `//host/path` is a host and a path. Then
    nothing of it counts.
    """
    first = _SEPARATOR.split(_decode_fully(path)[1:], maxsplit=1)[0]
    return not _core(first.decode("utf-8", "surrogateescape"))


def _options(raw: bytes) -> Iterable[Option] | None:
    """What stands between two slashes, in all readings that take it as it stands. None: too ambiguous."""
    if _PLAIN.fullmatch(raw):
        return (Option((loosen(raw.decode()),)),)
    result: set[Option] = set()
    states = {(raw if _SPECIAL.search(_decode_fully(raw)) else _decode_fully(raw), False)}
    while True:
        states |= {(_END.sub(b"", text), True) for text, _ in states if _END.search(text)}
        states |= {(text.partition(b";")[0], True) for text, _ in states if b";" in text}  # Fastify takes it for the query's beginning
        states |= {(_PARAMETERS.sub(b"", text), ends) for text, ends in states}
        for text, ends in states:
            for pieces in (text.split(b"/"), _SEPARATOR.split(text)):
                segments = [_decode_fully(piece).decode("utf-8", "surrogateescape") for piece in pieces]
                if any(_bare(segment) in {".", ".."} for segment in segments):
                    return None
                result.add(Option(tuple([loosen(segment) for segment in segments if segment]), ends))
                result.add(Option(tuple([loosen(segment) for segment in segments if _core(segment)]), ends))
        decoded = {(decode_escapes(text), ends) for text, ends in states}
        if decoded == states:
            return result
        states = decoded


def _assume(options: Iterable[Option], *, last: bool) -> list[Option]:
    """The options, and what frameworks make of them: `pay.json` is `pay` in the format JSON (Rails), and what follows
    `index.php` is the path that the script is asked for (PATH_INFO, RFC 3875 section 4.1.5), wherever the script lies.
    """
    result = list(options)
    for segments, ends, _, _ in options:
        if (last or ends) and segments:
            result += [Option((*segments[:-1], stem), ends, assumed=True) for stem in _stems(segments[-1])]
        for at, segment in enumerate(segments):
            if _SCRIPT.fullmatch(segment):
                result.append(Option((*segments[:at], *segments[at + 1 :]), ends, assumed=True))
                result.append(Option(segments[at + 1 :], ends, anew=True, assumed=True))
    return result


def _stems(segment: str) -> set[str]:
    """A segment less its last suffix, the last two, the last three, or all that has a dot: Sinatra's formats
    hold dots.
    """
    pieces = segment.split(".")
    return {stem for stem in (".".join(pieces[:count]) for count in (1, -3, -2, -1)) if stem} - {segment}


def _is_something(raw: bytes) -> bool:
    return _PLAIN.fullmatch(raw) is not None or bool(_core(_decode_fully(raw).decode("utf-8", "surrogateescape")))


def _decode_fully(text: bytes) -> bytes:
    for _ in range(DECODE_ROUNDS):
        text = decode_escapes(text)
    return text


def _bare(segment: str) -> str:
    """A segment without parameters, surrounding blanks, and bytes that are no UTF-8: Bottle drops those."""
    return _NOT_UTF8.sub("", segment.partition(";")[0]).strip(_BLANK)


def _core(segment: str) -> str:
    """What remains of a segment where trailing dots are dropped too."""
    return _bare(segment).rstrip("." + _BLANK)
