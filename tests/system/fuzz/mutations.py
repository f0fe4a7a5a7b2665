"""Ways to spoil a request: the pieces of `pieces.txt` put where they do not belong, and lines left out, repeated, or far too many."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tests.system.fuzz.messages import SMUGGLED, Line, Message

Mutation: TypeAlias = Callable[[Message, int], None]
"""Spoils a message in place; the number chooses where."""


def _read_pieces() -> dict[str, list[bytes]]:
    pieces: dict[str, list[bytes]] = {}
    section: list[bytes] = []
    for line in (Path(__file__).parent / "pieces.txt").read_text("ascii").splitlines():
        if line.startswith("["):
            section = pieces.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            section.append(_unescape(line))
    return pieces


def _unescape(text: str) -> bytes:
    return b"" if text == "\\" else text.encode().decode("unicode_escape").encode("latin-1")


PIECES = _read_pieces()
BYTES = tuple(bytes([code]) for code in (*range(0x24), *b"%'()+,-./:;=?@[\\]_`{|}~aZ09", 0x7F, 0x80, 0x85, 0xA0, 0xC3, 0xE9, 0xFF))
"""Bytes that parsers differ about, and a few that they agree on."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Put another piece into the message itself."""

    name: str
    value: bytes

    def __call__(self, message: Message, at: int) -> None:
        setattr(message, self.name, self.value)


@dataclass(frozen=True, slots=True)
class Speak:
    """Talk another protocol that looks alike, with a method of its own."""

    method: bytes
    version: bytes

    def __call__(self, message: Message, at: int) -> None:
        message.method, message.version = self.method, self.version


@dataclass(frozen=True, slots=True)
class ReplaceInLine:
    """Put another piece into one of the field lines."""

    name: str
    value: bytes

    def __call__(self, message: Message, at: int) -> None:
        if message.lines:
            setattr(message.lines[at % len(message.lines)], self.name, self.value)


@dataclass(frozen=True, slots=True)
class Space:
    """Put something else between two words of the start line."""

    value: bytes

    def __call__(self, message: Message, at: int) -> None:
        message.spaces[at % 2] = self.value


@dataclass(frozen=True, slots=True)
class Insert:
    """Add a field line. `piece` is `name | value`."""

    piece: bytes

    def __call__(self, message: Message, at: int) -> None:
        name, _, value = self.piece.partition(b" |")
        line = Line(name.removeprefix(b"\\"), value.removeprefix(b" "))
        message.lines.insert(at % (len(message.lines) + 1), line)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Give the message another body, under chunked framing alone."""

    body: bytes

    def __call__(self, message: Message, at: int) -> None:
        message.lines = [line for line in message.lines if line.name.lower() not in {b"content-length", b"transfer-encoding"}]
        message.lines.append(Line(b"Transfer-Encoding", b"chunked"))
        message.body = self.body


def leave_out(message: Message, at: int) -> None:
    """Delete a field line."""
    if message.lines:
        del message.lines[at % len(message.lines)]


def repeat(message: Message, at: int) -> None:
    """Write a field line twice."""
    if message.lines:
        line = message.lines[at % len(message.lines)]
        message.lines.append(Line(line.name, line.value, line.colon, line.ending))


def swap_case(message: Message, at: int) -> None:
    """Write all field names in the other case."""
    for line in message.lines:
        line.name = line.name.swapcase()


def crowd(message: Message, at: int) -> None:
    """Add more field lines than are taken."""
    message.lines += [Line(b"X-%d" % number, b"y") for number in range(300)]


def _replace(name: str, values: Iterable[bytes]) -> tuple[Mutation, ...]:
    return tuple(Replace(name, value) for value in values)


_SPECIAL: tuple[Mutation, ...] = (
    *_replace("target", (b"/" + b"a" * 9000, b"/v1/pay?" + b"%" * 9000, b"/" + b"%2f" * 60 + b"v1/pay")),
    *(Chunk(body) for body in (b"5;" + b"a" * 20000 + b"\r\nhello\r\n0\r\n\r\n", b"2\r\nhi\r\n0\r\n" + b"X: y\r\n" * 400 + b"\r\n")),
    Chunk(b"1\r\nz\r\n" * 300 + b"0\r\n\r\n"),
    *(Insert(name + b" | " + b"k" * 300) for name in (b"Idempotency-Key", b"X-Request-Id", b"Content-Type")),
    *(Insert(piece) for piece in (b"x-odd | " + b"a" * 9000, b"x" * 9000 + b" | long")),
    *_replace("body", (b"", b"x", SMUGGLED, b"\r\n", b"\0" * 100, b"z" * 2000)),
    crowd,
    *(Speak(method, b"RTSP/1.0") for method in (b"OPTIONS", b"ANNOUNCE", b"DESCRIBE", b"POST")),
    *(Speak(method, b"ICE/1.0") for method in (b"SOURCE", b"GET")),
    Speak(b"PRI", b"HTTP/2.0"),
)

KINDS: tuple[tuple[Mutation, ...], ...] = (
    tuple(Insert(piece) for piece in PIECES["fields"]),
    tuple(Insert(piece) for piece in PIECES["framing"]),
    tuple(Chunk(body) for body in PIECES["chunkings"]),
    _replace("target", PIECES["targets"]),
    _replace("method", PIECES["methods"]),
    _replace("version", PIECES["versions"]),
    (*_replace("before", PIECES["prefixes"]), *_replace("ending", PIECES["endings"]), *_replace("blank", PIECES["blanks"])),
    (*(Space(value) for value in PIECES["spaces"]), leave_out, repeat, swap_case),
    (*(ReplaceInLine("ending", value) for value in PIECES["endings"]), *(ReplaceInLine("colon", value) for value in PIECES["colons"])),
    _SPECIAL,
)
"""All mutations, in groups that are chosen equally often."""
