"""Bodies of multipart/form-data (RFC 7578) by their parts: the boundary, which a retry changes, does not count.

A body is read only if it is framed strictly as RFC 2046 section 5.1.1 says, without preamble, epilogue and padding, and each part says
strictly what it is (RFC 7578 section 4.2). What could be read in two ways has no reading, and counts by its bytes. Parts keep their
order, on which receivers may rely (RFC 7578 section 5.2). Of each part count: the parameters of Content-Disposition (name, filename),
Content-Type, the SHA-256 of its bytes, and further fields, which a receiver should ignore (section 4.8) and may not.
"""

import hashlib
import re
from collections.abc import Mapping
from enum import Enum, auto

from gateway.core.model import Headers
from gateway.core.scope import length_prefixed

MAX_PARTS = 1024
MAX_HEAD = 8 * 1024
"""Bytes of one part's fields."""

MEDIA_TYPE = b"multipart/form-data"

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_NAME = re.compile(_TOKEN)
_PARAMETER = re.compile(
    rb"[ \t]*;[ \t]*(" + _TOKEN + rb")=(?:(" + _TOKEN + rb')|"([^"\\\x00-\x08\x0a-\x1f\x7f]*)")'
)  # backslashes: see parameters
_BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


def parts_reader(headers: Headers) -> "PartsReader | None":
    """A reader for the body of a request with these header fields, or None if it is not to be read by parts."""
    values = [value for name, value in headers if name.lower() == b"content-type"]
    coded = any(name.lower() == b"content-encoding" for name, _ in headers)
    return None if coded or len(values) != 1 else _reader(values[0])


def read_parts(content_type: bytes, body: bytes) -> bytes | None:
    """The digest (32 bytes) of a whole body's parts, or None if it has no reading by parts."""
    reader = _reader(content_type)
    if reader is None:
        return None
    reader.feed(body)
    return reader.digest()


def _reader(content_type: bytes) -> "PartsReader | None":
    media_type, semicolon, rest = content_type.partition(b";")
    found = parameters(semicolon + rest)
    if media_type.strip().lower() != MEDIA_TYPE or found is None or not _BOUNDARY.fullmatch(found.get(b"boundary", b"")):
        return None
    return PartsReader(found)


class _Stage(Enum):
    START = auto()
    DELIMITED = auto()
    """Behind a boundary: the end of its line and then a part, or two hyphens and then nothing."""
    HEAD = auto()
    HEAD_END = auto()
    CONTENT = auto()
    END = auto()
    FAILED = auto()


class PartsReader:
    """Reads a body in pieces of any size, of which it keeps at most `MAX_HEAD` bytes or a boundary.

    `parameters` are those of the body's own Content-Type; all but the boundary count.
    """

    def __init__(self, parameters: Mapping[bytes, bytes]) -> None:
        self._delimiter = b"\r\n--" + parameters[b"boundary"]
        self._text = b"\r\n"  # a body starts with a boundary, as if a line had ended before it
        self._at = 0
        self._stage = _Stage.START
        self._count = 0
        self._head: list[bytes] = []
        self._content = hashlib.sha256()
        self._all = hashlib.sha256(length_prefixed(_counted({name: value for name, value in parameters.items() if name != b"boundary"})))

    def feed(self, piece: bytes) -> None:
        """Read on."""
        self._text = self.kept + piece if self._stage is not _Stage.FAILED else b""
        self._at = 0
        while self._step():
            pass

    @property
    def kept(self) -> bytes:
        """What of the body is in memory, because it depends on what follows."""
        return self._text[self._at :]

    def digest(self) -> bytes | None:
        """32 bytes that stand for all parts, or None if what was read is not one whole body in the strict form."""
        whole = self._stage is _Stage.END and self.kept in {b"", b"\r\n"}
        return self._all.digest() if whole else None

    def _step(self) -> bool:
        """Take the next thing. False if that needs more bytes, or if the rest is of no interest."""
        ahead = len(self._text) - self._at
        match self._stage:
            case _Stage.START | _Stage.HEAD_END:
                return ahead >= len(self._delimiter) and self._begin()
            case _Stage.DELIMITED:
                return ahead >= 2 and self._end_of_line()
            case _Stage.HEAD:
                return self._fields(ahead)
            case _Stage.CONTENT:
                return self._bytes(ahead)
            case _Stage.END:
                return ahead > 2 and self._go(_Stage.FAILED)
            case _Stage.FAILED:
                return False

    def _go(self, stage: _Stage, size: int = 0) -> bool:
        """Pass `size` bytes and go to the stage."""
        self._at += size
        self._stage = stage
        return True

    def _begin(self) -> bool:
        """A boundary must stand at the start. Where a part's empty line ends none may: some would take the part for empty."""
        delimited = self._text.startswith(self._delimiter, self._at)
        if self._stage is _Stage.START:
            return self._go(_Stage.DELIMITED, len(self._delimiter)) if delimited else self._go(_Stage.FAILED)
        return self._go(_Stage.FAILED) if delimited else self._go(_Stage.CONTENT, 2)

    def _end_of_line(self) -> bool:
        behind = self._text[self._at : self._at + 2]
        if behind == b"\r\n" and self._count < MAX_PARTS:
            return self._go(_Stage.HEAD, 2)
        return self._go(_Stage.END if behind == b"--" and self._count else _Stage.FAILED, 2)

    def _fields(self, ahead: int) -> bool:
        end = self._text.find(b"\r\n\r\n", self._at, self._at + MAX_HEAD)
        if end < 0:
            return ahead >= MAX_HEAD and self._go(_Stage.FAILED)
        head = self._text[self._at : end]
        found = None if self._delimiter in b"\r\n" + head else _read_head(head)
        if found is None:
            return self._go(_Stage.FAILED)
        self._head, self._content = found, hashlib.sha256()
        return self._go(_Stage.HEAD_END, end + 2 - self._at)

    def _bytes(self, ahead: int) -> bool:
        end = self._text.find(self._delimiter, self._at)
        size = end - self._at if end >= 0 else max(0, ahead - len(self._delimiter) + 1)  # the rest may be the start of a boundary
        self._content.update(memoryview(self._text)[self._at : self._at + size])
        self._at += size
        if end < 0:
            return False
        self._all.update(length_prefixed([*self._head, self._content.digest()]))
        self._count += 1
        return self._go(_Stage.DELIMITED, len(self._delimiter))


def _read_head(head: bytes) -> list[bytes] | None:
    """What a part's fields say, as parts of an injective encoding; None if that could be read in two ways."""
    fields: dict[bytes, bytes] = {}
    for line in head.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if not colon or not _NAME.fullmatch(name) or _CONTROL.search(value) or name.lower() in fields:
            return None
        fields[name.lower()] = value.strip(b" \t")
    kind, semicolon, rest = fields.pop(b"content-disposition", b"").partition(b";")
    disposition = parameters(semicolon + rest)
    if kind.strip(b" \t").lower() != b"form-data" or disposition is None or b"name" not in disposition:
        return None
    return [*_counted(disposition), *_counted(fields)]


def parameters(text: bytes) -> dict[bytes, bytes] | None:
    """The parameters of a header field's value, from the first semicolon on, by lower-case name. None if they are not strictly such.

    A backslash in a quoted text is refused: some readers take it for an escape, some for itself (RFC 7578 section 4.2).
    """
    found: dict[bytes, bytes] = {}
    text = text.rstrip(b" \t")
    at = 0
    while at < len(text):
        one = _PARAMETER.match(text, at)
        if one is None or (name := one[1].lower()) in found:
            return None
        found[name] = one[2] if one[2] is not None else one[3]
        at = one.end()
    return found


def _counted(pairs: Mapping[bytes, bytes]) -> list[bytes]:
    """The number of pairs, and the pairs by name."""
    return [b"%d" % len(pairs), *(part for pair in sorted(pairs.items()) for part in pair)]
