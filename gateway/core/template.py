"""Texts with `{placeholders}`, each value escaped for the place where its placeholder stands. The one template engine. Pure.

The template's own text says what a place is: in a request target, the path or the query; in a header value or a JSON body, inside a
quoted string or outside; in XML, text or a quoted attribute; in `text/plain`, a line; in a form, a name or a value.

A `Vocabulary` says which placeholders exist, and where each may stand. There are two ways to fill a template, which differ in what they do
with a value that cannot stand in its place unchanged:

* `fill` refuses it. A probe that asked for something else would find nothing, and *nothing* would free a key.
* `fill_anyway` replaces the characters that cannot stand there. Our own answer to a client has to go out.
"""

import enum
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias
from urllib.parse import quote

from gateway.core.pointers import NOTHING, Json
from gateway.core.strict_json import Number, write

MAX_VALUE = 1024
"""Characters. `fill_anyway` cuts longer values. Keys and ids of exchanges are much shorter; what an upstream stored need not be."""

PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*(?:[.:][^{}\"]*)?)\}")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_SHORT_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)


class Unfillable(ValueError):
    """A placeholder has no value, or one that cannot stand in its place. `name` is the placeholder; the message tells no value."""

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
    XML = enum.auto()
    PLAIN = enum.auto()
    FORM = enum.auto()
    NOWHERE = enum.auto()
    """In a body whose media type does not say how to escape."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A placeholder, by the name between its braces. `of_json`: its value is any part of a JSON document, so it may be an empty text, and
    outside of strings in JSON it stands as it is.
    """

    name: str
    place: Place
    of_json: bool = False


Pieces: TypeAlias = tuple[str | Slot, ...]
"""A template, compiled."""

Vocabulary: TypeAlias = Callable[[str, Place], Slot]
"""Makes the slot of a placeholder. Raises ValueError, with the remedy, for one that does not exist or may not stand in this place."""

Values: TypeAlias = Callable[[str], Json]
"""From a placeholder's name to its value; `NOTHING` if it has none."""


# ---- compiling


def compile_target(text: str, vocabulary: Vocabulary) -> Pieces:
    """A request target. Raises what the vocabulary raises, as all of these do."""
    return tuple(_target(text, vocabulary))


def compile_header(text: str, vocabulary: Vocabulary) -> Pieces:
    """A header value: double quotes delimit strings in it."""
    return tuple(_split(text, Place.HEADER, Place.HEADER_STRING, vocabulary))


def compile_body(text: str, content_type: str, vocabulary: Vocabulary) -> Pieces:
    """A body, by its Content-Type."""
    if is_json(content_type):
        return tuple(_split(text, Place.JSON_VALUE, Place.JSON_STRING, vocabulary))
    if is_xml(content_type):
        return tuple(_slots(text, Place.XML, vocabulary))
    return tuple(_slots(text, _BODIES.get(_media_type(content_type), Place.NOWHERE), vocabulary))


_BODIES: Mapping[str, Place] = MappingProxyType({"text/plain": Place.PLAIN, "application/x-www-form-urlencoded": Place.FORM})


def slots(pieces: Pieces) -> list[Slot]:
    """The placeholders."""
    return [piece for piece in pieces if isinstance(piece, Slot)]


def is_json(content_type: str) -> bool:
    """Whether a Content-Type value names JSON: `application/json`, `…+json`, `application/x-amz-json-1.1`."""
    return "json" in _subtype_words(content_type)


def is_xml(content_type: str) -> bool:
    """Whether a Content-Type value names XML."""
    return "xml" in _subtype_words(content_type)


def content_type_of(headers: tuple[tuple[str, str], ...]) -> str:
    """The Content-Type among the fields; empty if there is none."""
    return next((value for name, value in headers if name.lower() == "content-type"), "")


def _subtype_words(content_type: str) -> list[str]:
    return re.split(r"[+.-]", _media_type(content_type).partition("/")[2])


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _target(text: str, vocabulary: Vocabulary) -> Iterator[str | Slot]:
    """The first question mark that stands in no placeholder ends the path."""
    end, place = 0, Place.PATH
    for found in PLACEHOLDER.finditer(text):
        before = text[end : found.start()]
        place = Place.QUERY if "?" in before else place
        yield before
        yield vocabulary(found[1], place)
        end = found.end()
    yield text[end:]


def _split(text: str, outside: Place, inside: Place, vocabulary: Vocabulary) -> Iterator[str | Slot]:
    """Pieces of a text in which double quotes delimit strings."""
    end = 0
    for string in _QUOTED.finditer(text):
        yield from _slots(text[end : string.start()], outside, vocabulary)
        yield from _slots(string[0], inside, vocabulary)
        end = string.end()
    yield from _slots(text[end:], outside, vocabulary)


def _slots(text: str, place: Place, vocabulary: Vocabulary) -> Iterator[str | Slot]:
    end = 0
    for found in PLACEHOLDER.finditer(text):
        if end < found.start():
            yield text[end : found.start()]
        yield vocabulary(found[1], place)
        end = found.end()
    if end < len(text):
        yield text[end:]


# ---- filling


def fill(pieces: Pieces, values: Values) -> str:
    """The text, with every value unchanged but for escapes. Raises `Unfillable`."""
    return "".join([piece if isinstance(piece, str) else _exact(piece, values(piece.name)) for piece in pieces])


def fill_anyway(pieces: Pieces, values: Mapping[str, str]) -> str:
    """The text, with characters that cannot stand in their place replaced. A value that is missing is empty, or null outside of strings in
    JSON.
    """
    return "".join([piece if isinstance(piece, str) else _clean(piece, values.get(piece.name, "")[:MAX_VALUE]) for piece in pieces])


def sample(pieces: Pieces) -> str:
    """The text with a value that is right in every place."""
    return "".join([piece if isinstance(piece, str) else "1" for piece in pieces])


def _exact(slot: Slot, value: Json) -> str:
    if value is NOTHING:
        raise Unfillable(slot.name, "has no value")
    if slot.place is Place.JSON_VALUE:
        return _exact_json(slot, value)
    text, rule = _text(slot, value), _RULES[slot.place]
    if rule.why is not None and rule.unfit.search(text):
        raise Unfillable(slot.name, rule.why)
    if slot.place is Place.HEADER and text.strip() != text:
        raise Unfillable(slot.name, "begins or ends with a blank, which a header field would lose")
    try:
        return rule.escape(text)
    except UnicodeEncodeError as error:
        raise Unfillable(slot.name, "is no Unicode text") from error


def _text(slot: Slot, value: Json) -> str:
    if isinstance(value, str):
        if not value and not slot.of_json:
            raise Unfillable(slot.name, "is empty, which could name everything")
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    raise Unfillable(slot.name, "is neither a text nor a number")


def _exact_json(slot: Slot, value: Json) -> str:
    """Outside of strings."""
    if slot.of_json:
        return write(value)
    if not isinstance(value, str) or isinstance(value, Number) or not _WHOLE.fullmatch(value):
        raise Unfillable(slot.name, "stands outside of a string and is no whole number")
    return value


def _clean(slot: Slot, text: str) -> str:
    if slot.place is Place.JSON_VALUE:
        return str(int(text)) if _SHORT_INTEGER.fullmatch(text) else "null"
    rule = _RULES[slot.place]
    return rule.escape(rule.unfit.sub(rule.replacement, text))


# ---- what may stand where


@dataclass(frozen=True, slots=True)
class _Rule:
    """`unfit` finds a character that cannot stand in a place. `fill` refuses it and says `why`; `fill_anyway` writes `replacement`. Where
    `why` is None, `fill` leaves the character to `escape`.
    """

    unfit: re.Pattern[str]
    replacement: str
    why: str | None
    escape: Callable[[str], str]


_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_PATH = re.compile(r"[/\\;?#%\x00-\x1f\x7f-\x9f]")
"""Most frameworks route by the decoded path: an escaped slash is one more segment to them, and what it leads to *does not exist*."""
_NOT_HEADER = re.compile(r"[^\x20-\x7e]")
"""Line ends would begin a new field (RFC 9110 section 5.5)."""
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOT_PLAIN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_XML = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}
)  # white space by number, since attributes would lose it


def _percent(text: str) -> str:
    """Only what RFC 3986 section 2.3 calls unreserved stands for itself."""
    return quote(text, safe="")


def _quoted_string(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _json_string(text: str) -> str:
    return json.dumps(text)[1:-1]


def _xml(text: str) -> str:
    return text.translate(_XML)


_IN_PATH = (
    "stands in the path and holds what servers read as more than a part of it, such as a slash, even if escaped; ask for it in the query"
)
_IN_HEADER = "holds a character that no header field takes"
_IN_BODY = "holds a character that the body's media type does not take"

_RULES: Mapping[Place, _Rule] = MappingProxyType(
    {
        Place.PATH: _Rule(_NOT_PATH, "", _IN_PATH, _percent),
        Place.QUERY: _Rule(_SURROGATE, "\ufffd", None, _percent),
        Place.FORM: _Rule(_SURROGATE, "\ufffd", None, _percent),
        Place.HEADER: _Rule(_NOT_HEADER, "?", _IN_HEADER, str),
        Place.HEADER_STRING: _Rule(_NOT_HEADER, "?", _IN_HEADER, _quoted_string),
        Place.JSON_STRING: _Rule(_SURROGATE, "\ufffd", None, _json_string),
        Place.XML: _Rule(_NOT_XML, "\ufffd", _IN_BODY, _xml),
        Place.PLAIN: _Rule(_NOT_PLAIN, " ", _IN_BODY, str),
    }
)
