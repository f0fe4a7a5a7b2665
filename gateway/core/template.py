"""Answers as templates: `{placeholders}` in header values and bodies, each value escaped for the place where it stands. Pure.

What a place is, the template's own text says. In a header value: inside a quoted string, or outside. In a JSON body: inside a string, or
outside, where only numbers may stand. In an XML body: text or a quoted attribute. In `text/plain`: a line. Bodies of other media types
have no placeholders.
"""

import enum
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias

from gateway.core.model import Headers
from gateway.core.policy import Template

PLACEHOLDERS: Mapping[str, str] = MappingProxyType(
    {
        "key": "the client's key, as its text is",
        "request_id": "the id of this exchange, as in X-Request-Id",
        "date": "the time of this answer, as in Date",
        "status": "the status of this answer",
        "detail": "a sentence that tells the client how to go on",
        "retry_after": "whole seconds, 1 to 60",
        "original_request": "the id of the exchange in which the operation ran",
        "original_status": "the status of the stored answer",
        "expires": "when the record ends, written as Date is",
    }
)
"""Every placeholder, and what stands in its place. Besides: `{stored:POINTER}`."""

NUMBERS = frozenset({"status", "retry_after", "original_status"})
"""Placeholders that may stand outside of strings in JSON."""

STORED = "stored:"
"""The beginning of a placeholder for a text in the stored JSON answer: a JSON pointer follows, in which `*` is any member or index."""

MAX_VALUE = 1024
"""Longer values are cut. Keys and ids of exchanges are much shorter; what an upstream stored need not be."""

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*(?::[^{}\"\s]*)?)\}")
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)+")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)


class TemplateError(ValueError):
    """A placeholder that cannot be filled in. The message names it and the remedy."""


class _Place(enum.Enum):
    HEADER = enum.auto()
    HEADER_STRING = enum.auto()
    JSON_STRING = enum.auto()
    JSON_VALUE = enum.auto()
    XML = enum.auto()
    PLAIN = enum.auto()
    NOWHERE = enum.auto()


@dataclass(frozen=True, slots=True)
class _Slot:
    name: str
    place: _Place


_Pieces: TypeAlias = tuple[str | _Slot, ...]


@dataclass(frozen=True, slots=True)
class _Field:
    """A header field. `whole` is its value if that holds no placeholder."""

    name: bytes
    pieces: _Pieces
    whole: bytes | None


_Fields: TypeAlias = tuple[_Field, ...]


@dataclass(frozen=True, slots=True)
class _Compiled:
    headers: _Fields
    body: _Pieces


def render(template: Template, values: Mapping[str, str], status: int | None = None) -> tuple[int, Headers, bytes]:
    """Status, header fields and body of an answer. `status` overrides the template's own; `{status}` is filled in from it.

    `values` is by placeholder. One that is not there, or empty, is nothing in a body (`null` outside of strings in JSON), and a header
    field with it is left out. `Cache-Control: no-store` is added unless the template says something else. Raises `TemplateError` for a
    template that `check` refuses.
    """
    compiled = _compile(template)
    final = template.status if status is None else status
    known = {**values, "status": str(final)}
    headers = _filled(compiled.headers, known)
    if not any(name.lower() == b"cache-control" for name, _ in headers):
        headers += ((b"Cache-Control", b"no-store"),)
    return final, headers, "".join(_fill(compiled.body, known)).encode()


def render_headers(headers: tuple[tuple[str, str], ...], values: Mapping[str, str]) -> Headers:
    """Header fields alone. A field is left out if a placeholder in it has no value."""
    return _filled(_compile_headers(headers), values)


def check(template: Template) -> None:
    """Raises `TemplateError` for an unknown placeholder, and for one in a place where its value could not be made safe."""
    _compile(template)


def placeholders(template: Template) -> frozenset[str]:
    """The names of all placeholders in a template."""
    compiled = _compile(template)
    pieces = [piece for field in compiled.headers for piece in field.pieces] + list(compiled.body)
    return frozenset(piece.name for piece in pieces if isinstance(piece, _Slot))


def is_json(media_type: str) -> bool:
    """Whether a Content-Type value names JSON: `application/json`, `…+json`, `application/x-amz-json-1.1`."""
    return "json" in _subtype_words(media_type)


def is_xml(media_type: str) -> bool:
    """Whether a Content-Type value names XML."""
    return "xml" in _subtype_words(media_type)


def content_type(template: Template) -> str:
    """The template's Content-Type; empty if it has none."""
    return next((value for name, value in template.headers if name.lower() == "content-type"), "")


def _subtype_words(media_type: str) -> list[str]:
    return re.split(r"[+.-]", media_type.partition(";")[0].partition("/")[2].strip().lower())


@lru_cache(maxsize=1024)
def _compile_headers(headers: tuple[tuple[str, str], ...]) -> _Fields:
    return tuple([_compile_field(name, value) for name, value in headers])


def _compile_field(name: str, value: str) -> _Field:
    pieces = tuple(_split(value, _Place.HEADER, _Place.HEADER_STRING))
    fixed = [piece for piece in pieces if isinstance(piece, str)]
    return _Field(name.encode("ascii"), pieces, _value("".join(fixed)) if len(fixed) == len(pieces) else None)


@lru_cache(maxsize=1024)
def _compile(template: Template) -> _Compiled:
    headers = _compile_headers(template.headers)
    media_type = content_type(template)
    if is_json(media_type):
        body = _split(template.body, _Place.JSON_VALUE, _Place.JSON_STRING)
    elif is_xml(media_type):
        body = _slots(template.body, _Place.XML)
    elif media_type.partition(";")[0].strip().lower() == "text/plain":
        body = _slots(template.body, _Place.PLAIN)
    else:
        body = _slots(template.body, _Place.NOWHERE)
    return _Compiled(headers, tuple(body))


def _split(text: str, outside: _Place, inside: _Place) -> Iterator[str | _Slot]:
    """Pieces of a text in which double quotes delimit strings."""
    end = 0
    for string in _QUOTED.finditer(text):
        yield from _slots(text[end : string.start()], outside)
        yield from _slots(string[0], inside)
        end = string.end()
    yield from _slots(text[end:], outside)


def _slots(text: str, place: _Place) -> Iterator[str | _Slot]:
    end = 0
    for found in _PLACEHOLDER.finditer(text):
        if end < found.start():
            yield text[end : found.start()]
        yield _slot(found[1], place)
        end = found.end()
    if end < len(text):
        yield text[end:]


def _slot(name: str, place: _Place) -> _Slot:
    if name.startswith(STORED):
        if not _POINTER.fullmatch(name.removeprefix(STORED)):
            raise TemplateError(f"`{{{name}}}` names no JSON pointer; write one as in {{stored:/payment/id}}")
    elif name not in PLACEHOLDERS:
        known = ", ".join(f"{{{one}}}" for one in PLACEHOLDERS)
        raise TemplateError(f"there is no placeholder `{{{name}}}`; there are {known} and {{stored:/json/pointer}}")
    if place is _Place.NOWHERE:
        raise TemplateError(f"`{{{name}}}` cannot be escaped in this media type; placeholders work in JSON, XML and text/plain")
    if place is _Place.JSON_VALUE and name not in NUMBERS:
        raise TemplateError(f'`{{{name}}}` stands outside of a string; put it in quotes, as in "{{{name}}}"')
    return _Slot(name, place)


def _filled(headers: _Fields, values: Mapping[str, str]) -> Headers:
    filled: list[tuple[bytes, bytes]] = []
    for field in headers:
        if field.whole is not None:
            filled.append((field.name, field.whole))
        elif all(isinstance(piece, str) or values.get(piece.name) for piece in field.pieces):
            filled.append((field.name, _value("".join(_fill(field.pieces, values)))))
    return tuple(filled)


def _value(text: str) -> bytes:
    return text.strip().encode("ascii", "replace")


def _fill(pieces: _Pieces, values: Mapping[str, str]) -> list[str]:
    return [piece if isinstance(piece, str) else _ESCAPES[piece.place](values.get(piece.name, "")[:MAX_VALUE]) for piece in pieces]


_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_XML = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}
)  # white space by number, since attributes would lose it
_NOT_PLAIN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NOT_HEADER = re.compile(r"[^\x20-\x7e]")


def _header(value: str) -> str:
    return _NOT_HEADER.sub("?", value)


def _header_string(value: str) -> str:
    return _header(value).replace("\\", "\\\\").replace('"', '\\"')


def _json_string(value: str) -> str:
    return json.dumps(_SURROGATE.sub("\ufffd", value))[1:-1]


def _json_value(value: str) -> str:
    return str(int(value)) if _INTEGER.fullmatch(value) else "null"


def _xml(value: str) -> str:
    return _NOT_XML.sub("\ufffd", value).translate(_XML)


def _plain(value: str) -> str:
    return _NOT_PLAIN.sub(" ", value)


_ESCAPES: Mapping[_Place, Callable[[str], str]] = {
    _Place.HEADER: _header,
    _Place.HEADER_STRING: _header_string,
    _Place.JSON_STRING: _json_string,
    _Place.JSON_VALUE: _json_value,
    _Place.XML: _xml,
    _Place.PLAIN: _plain,
}
