"""Response heads that break the grammar of RFC 9112 in ways that it tells a recipient to put right. Pure.

The upstream has executed: an answer that can be read in only one way is worth more than an unknown outcome. This module
refuses what two readers may read differently, above all where the body ends. A strict parser takes every repaired head.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

MAX_HEAD = 256 * 1024
"""A head, trailer section or run of chunk sizes that is still unfinished after so many bytes is refused."""

_HEAD_END = re.compile(rb"\n\r?\n")
_NOT_TEXT = bytes([*range(0x09), *range(0x0A, 0x20), 0x7F])
_TO_SPACES = bytes.maketrans(_NOT_TEXT, b" " * len(_NOT_TEXT))
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_BLANKS = b" \t"
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


class Malformed(Exception):
    """The bytes are no valid response. `str()` says why, in words of ours or of the parser's."""


class Violation(Enum):
    """What was put right. The value is the word for logs."""

    BARE_LF = "lines that end with LF alone"  # RFC 9112 section 2.2
    BLANK_BEFORE_COLON = "white space before a colon"  # section 5.1
    FOLDED = "a folded line"  # section 5.2
    CONTROL = "a control character"  # RFC 9110 section 5.5
    REPEATED_LENGTH = "a repeated Content-Length"  # RFC 9110 section 8.6


@dataclass(frozen=True, slots=True)
class Repaired:
    """The head as it should have been sent, and what was wrong with it."""

    head: bytes
    violations: frozenset[Violation]


def repair(head: bytes) -> Repaired:
    """Put right what can be put right in one head, which runs from its status line to the end of its empty line.

    Raises Malformed for what has no one meaning: a line of white space alone, or before the first field, a field
    without a name or a colon, control characters in a framing field, lengths that differ. All else that is wrong stays,
    for a strict parser to refuse.
    """
    violations: set[Violation] = set()
    status, *lines = _unfolded(head, violations)
    fields = [_field(line, violations) for line in lines]
    whole = [_status_line(status, violations), *(b"%b: %b" % field for field in _one_length(fields, violations)), b"", b""]
    return Repaired(b"\r\n".join(whole), frozenset(violations))


class MalformedHeads:
    """Bytes in which one head after the other is repaired. `rest` is what comes after the heads that were taken."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._searched = 0

    @property
    def rest(self) -> bytes:
        return bytes(self._bytes)

    def feed(self, data: bytes | bytearray) -> None:
        self._bytes += data

    def take(self) -> Repaired | None:
        """The next head; None: it is not whole. Raises Malformed. Each byte is looked at once, however they come in."""
        if not self._searched:
            self._bytes[:] = self._bytes.lstrip(b"\r\n")
        end = _HEAD_END.search(self._bytes, self._searched)
        if end is None:
            if len(self._bytes) > MAX_HEAD:
                raise Malformed("head too long")
            self._searched = max(0, len(self._bytes) - 2)
            return None
        head = bytes(self._bytes[: end.end()])
        del self._bytes[: end.end()]
        self._searched = 0
        return repair(head)


def _unfolded(head: bytes, violations: set[Violation]) -> list[bytes]:
    """The lines without their ends, each with its continuations behind it."""
    lines: list[list[bytes]] = []
    *raw, empty, _ = head.split(b"\n")
    for line in (*raw, empty):
        if not line.endswith(b"\r"):
            violations.add(Violation.BARE_LF)
    for line in raw:
        text = line.removesuffix(b"\r")
        if text[:1] not in (b" ", b"\t"):
            lines.append([text])
        elif len(lines) < 2 or not text.strip(_BLANKS):
            raise Malformed("white space in the place of a field")
        else:
            violations.add(Violation.FOLDED)
            lines[-1][-1] = lines[-1][-1].rstrip(_BLANKS)
            lines[-1].append(text.strip(_BLANKS))
    return [b" ".join(parts) for parts in lines]


def _status_line(line: bytes, violations: set[Violation]) -> bytes:
    start = line.split(b" ", 2)
    if len(start) == 3:
        start[2] = _text(start[2], violations)
    return b" ".join(start)


def _field(line: bytes, violations: set[Violation]) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    bare = name.rstrip(_BLANKS)
    if not colon or not _TOKEN.fullmatch(bare):
        raise Malformed("a field without a colon, or whose name is none")
    if bare != name:
        violations.add(Violation.BLANK_BEFORE_COLON)
    text = _text(value, violations)
    if text is not value and bare.lower() in _FRAMING:
        raise Malformed("a control character in a framing field")
    return bare, text.strip(_BLANKS)


def _text(value: bytes, violations: set[Violation]) -> bytes:
    """With a space for each control character; the very same object if there is none."""
    text = value.translate(_TO_SPACES)
    if text == value:
        return value
    violations.add(Violation.CONTROL)
    return text


def _one_length(fields: Sequence[tuple[bytes, bytes]], violations: set[Violation]) -> Sequence[tuple[bytes, bytes]]:
    """With one Content-Length, in the first one's place, if there are several that agree to the digit."""
    lengths = [place for place, (name, _) in enumerate(fields) if name.lower() == b"content-length"]
    values = [value.strip(_BLANKS) for place in lengths for value in fields[place][1].split(b",")]
    if len(values) < 2:
        return fields
    if len(set(values)) > 1 or not values[0].isdigit():
        raise Malformed("lengths that differ")
    violations.add(Violation.REPEATED_LENGTH)
    first = lengths[0]
    return [(fields[first][0], values[0]) if place == first else field for place, field in enumerate(fields) if place not in lengths[1:]]
