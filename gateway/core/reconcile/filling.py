"""Texts with placeholders: `{key}`, `{principal}`, `{request_id}`, `{captured.NAME}`, `{found:/json/pointer}`, each escaped for the place
where it stands.

The values are other people's: the client chose its key, the upstream what was found. So a value that cannot stand somewhere unchanged is
refused there, never cut, cleaned or replaced: a look for something else finds nothing, and *nothing* would free a key.
"""

import enum
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import quote

from gateway.core.pointers import NOTHING, Json, split_pointer
from gateway.core.strict_json import Number, write

FOUND = "found:"
CAPTURED = "captured."
PRINCIPAL = "principal"
REQUEST_ID = "request_id"
OWN = frozenset({"key", REQUEST_ID, PRINCIPAL})

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*(?:[.:][^{}\"]*)?)\}")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_NOT_HEADER = re.compile(r"[^\x20-\x7e]")
_NOT_PATH = re.compile(r"[/\\;?#%\x00-\x1f\x7f-\x9f]")


class Unfillable(ValueError):
    """A placeholder without a value, or with one that cannot stand where it does. `name` is the placeholder; no value is told."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"`{{{name}}}` {why}")
        self.name = name


class Place(enum.Enum):
    """Where a placeholder stands."""

    PATH = enum.auto()
    QUERY = enum.auto()
    HEADER = enum.auto()
    HEADER_STRING = enum.auto()
    JSON_STRING = enum.auto()
    JSON_VALUE = enum.auto()
    FORM = enum.auto()
    NOWHERE = enum.auto()
    """In a body whose media type says nothing of how to escape."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One placeholder, by the name between its braces."""

    name: str
    place: Place


Pieces: TypeAlias = tuple[str | Slot, ...]
Values: TypeAlias = Callable[[str], Json]
"""From a placeholder's name to its value; `NOTHING` if it has none."""


def compile_target(text: str) -> Pieces:
    """A request target. Raises ValueError, as all of these do, for a placeholder that does not exist or could not be made safe there."""
    return tuple(_target(text))


def compile_header(text: str) -> Pieces:
    """A header value: double quotes delimit strings in it."""
    return tuple(_split(text, Place.HEADER, Place.HEADER_STRING))


def compile_body(text: str, content_type: str) -> Pieces:
    """A body, by its Content-Type: JSON, or a form."""
    if is_json(content_type):
        return tuple(_split(text, Place.JSON_VALUE, Place.JSON_STRING))
    form = _media_type(content_type) == "application/x-www-form-urlencoded"
    return tuple(_slots(text, Place.FORM if form else Place.NOWHERE))


def is_json(content_type: str) -> bool:
    """Whether a Content-Type value names JSON: `application/json`, `…+json`."""
    return "json" in re.split(r"[+.-]", _media_type(content_type).partition("/")[2])


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def content_type_of(headers: Iterable[tuple[str, str]]) -> str:
    """The Content-Type among fields; empty if there is none."""
    return next((value for name, value in headers if name.lower() == "content-type"), "")


def same_as(text: str) -> str:
    """The placeholder of a comparison: `{principal}`, `{key}`, `{request_id}` or `{captured.NAME}`, and nothing else."""
    found = _PLACEHOLDER.fullmatch(text)
    if found is None or found[1].startswith(FOUND):
        raise ValueError("write one placeholder, as in '{principal}' or '{captured.account}'")
    return _slot(found[1], Place.QUERY).name


def fill(pieces: Pieces, values: Values) -> str:
    """The text. Raises `Unfillable`."""
    return "".join([piece if isinstance(piece, str) else _filled(piece, values(piece.name)) for piece in pieces])


def sample(pieces: Pieces) -> str:
    """The text with a value that is right everywhere."""
    return "".join([piece if isinstance(piece, str) else "1" for piece in pieces])


def slots(pieces: Pieces) -> list[Slot]:
    """The placeholders."""
    return [piece for piece in pieces if isinstance(piece, Slot)]


def _target(text: str) -> Iterator[str | Slot]:
    """The first question mark that stands in no placeholder ends the path."""
    place = Place.PATH
    for piece in _slots(text, Place.PATH):
        if isinstance(piece, Slot):
            yield Slot(piece.name, place)
        else:
            place = Place.QUERY if "?" in piece else place
            yield piece


def _split(text: str, outside: Place, inside: Place) -> Iterator[str | Slot]:
    end = 0
    for string in _QUOTED.finditer(text):
        yield from _slots(text[end : string.start()], outside)
        yield from _slots(string[0], inside)
        end = string.end()
    yield from _slots(text[end:], outside)


def _slots(text: str, place: Place) -> Iterator[str | Slot]:
    end = 0
    for found in _PLACEHOLDER.finditer(text):
        yield text[end : found.start()]
        yield _slot(found[1], place)
        end = found.end()
    yield text[end:]


def _slot(name: str, place: Place) -> Slot:
    if name.startswith(FOUND):
        split_pointer(name.removeprefix(FOUND))
    elif name not in OWN and not (name.startswith(CAPTURED) and len(name) > len(CAPTURED)):
        known = "{key}, {principal}, {request_id}, {captured.NAME} and, in answers, {found:/json/pointer}"
        raise ValueError(f"there is no placeholder `{{{name}}}`; there are {known}")
    if place is Place.NOWHERE:
        raise ValueError(f"`{{{name}}}` cannot be escaped in this media type; placeholders work in JSON and in urlencoded forms")
    if place is Place.JSON_VALUE and name in OWN:
        raise ValueError(f'`{{{name}}}` stands outside of a string; put it in quotes, as in "{{{name}}}"')
    return Slot(name, place)


def _filled(slot: Slot, value: Json) -> str:
    if value is NOTHING:
        raise Unfillable(slot.name, "has no value")
    if slot.place is Place.JSON_VALUE:
        return _json_value(slot, value)
    text = _text(slot, value)
    match slot.place:
        case Place.PATH:
            return _percent(slot, _segment(slot, text))
        case Place.QUERY | Place.FORM:
            return _percent(slot, text)
        case Place.JSON_STRING:
            return json.dumps(text)[1:-1]
        case Place.HEADER_STRING:
            return _header(slot, text).replace("\\", "\\\\").replace('"', '\\"')
        case _:
            return _bare(slot, _header(slot, text))


def _text(slot: Slot, value: Json) -> str:
    if isinstance(value, str):
        if not value and not slot.name.startswith(FOUND):
            raise Unfillable(slot.name, "is empty, which could name everything")
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    raise Unfillable(slot.name, "is neither a text nor a number")


def _json_value(slot: Slot, value: Json) -> str:
    """Outside of strings: what was found is a JSON value itself; of what was captured only numbers may stand there."""
    if slot.name.startswith(FOUND):
        return write(value)
    if not isinstance(value, str) or isinstance(value, Number) or not _WHOLE.fullmatch(value):
        raise Unfillable(slot.name, "stands outside of a string and is no whole number")
    return value


def _segment(slot: Slot, text: str) -> str:
    """Most frameworks route by the decoded path: an escaped slash is one more segment to them, and what it leads to *does not exist*."""
    if _NOT_PATH.search(text):
        why = "stands in the path and holds what servers read as more than a part of it, such as a slash, even if escaped"
        raise Unfillable(slot.name, f"{why}; ask for it in the query")
    return text


def _percent(slot: Slot, text: str) -> str:
    """Only what RFC 3986 section 2.3 calls unreserved stands for itself."""
    try:
        return quote(text, safe="")
    except UnicodeEncodeError as error:
        raise Unfillable(slot.name, "is no Unicode text") from error


def _header(slot: Slot, text: str) -> str:
    """Line ends would begin a new field (RFC 9110 section 5.5)."""
    if _NOT_HEADER.search(text):
        raise Unfillable(slot.name, "holds a character that no header field takes")
    return text


def _bare(slot: Slot, text: str) -> str:
    if text.strip() != text:
        raise Unfillable(slot.name, "begins or ends with a blank, which a header field would lose")
    return text
