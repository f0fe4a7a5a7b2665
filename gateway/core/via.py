"""The `Via` field (RFC 9110 section 7.6.3): who has forwarded a message already."""

import re
from collections.abc import Iterable

_OPEN, _CLOSE = b"()"
_MARK = re.compile(rb"\\.|[()]", re.DOTALL)


def forwarders(lines: Iterable[bytes]) -> frozenset[bytes]:
    """The lower-case `received-by` of every hop in these `Via` lines.

    Comments are skipped, nested and with quoted pairs as they may be; a parenthesis without an end opens no comment, so
    that no client can hide a later hop behind it.
    """
    names: set[bytes] = set()
    for line in lines:
        for hop in without_comments(line).split(b","):
            words = hop.split()
            if len(words) > 1:
                names.add(words[1].lower())
    return frozenset(names)


def without_comments(value: bytes) -> bytes:
    """A field value with each comment (RFC 9110 section 5.6.5) replaced by a space. One pass, whatever the nesting."""
    if b"(" not in value:
        return value
    comments: list[tuple[int, int]] = []
    opened: list[int] = []
    for mark in _MARK.finditer(value):
        start, after = mark.span()
        if value[start] == _OPEN:
            opened.append(start)
        elif value[start] == _CLOSE and opened:
            begin = opened.pop()
            while comments and comments[-1][0] > begin:
                comments.pop()
            comments.append((begin, after))
    pieces: list[bytes] = []
    end = 0
    for begin, after in comments:
        pieces.append(value[end:begin])
        end = after
    pieces.append(value[end:])
    return b" ".join(pieces)
