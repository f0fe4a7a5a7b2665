"""The answers of dialects as templates, and the placeholders that they know. Pure.

Placeholders may stand in header values, and in bodies of JSON, XML and `text/plain`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias

from gateway.core.dialect_model import Template
from gateway.core.model import Headers
from gateway.core.template import Pieces, Place, Slot, compile_body, compile_header, content_type_of, fill_anyway, slots

PLACEHOLDERS: Mapping[str, str] = MappingProxyType(
    {
        "key": "the client's key, as its text is",
        "request_id": "the id of this exchange, as in X-Request-Id",
        "date": "the time of this answer, as in Date",
        "status": "the status of this answer",
        "detail": "a sentence that tells the client how to go on",
        "retry": "what a program may do: same-key, fix-request, new-key, ask-upstream or never",
        "retry_after": "whole seconds, 1 to 60",
        "original_request": "the id of the exchange in which the operation ran",
        "original_status": "the status of the stored answer",
        "expires": "when the record ends, written as Date is",
    }
)
"""Every placeholder, and what stands in its place. Besides: `{stored:POINTER}`."""

NUMBERS = frozenset({"status", "retry_after", "original_status"})
"""Placeholders that may stand outside of strings in JSON."""

OF_RECORD = frozenset({"key", "original_request", "original_status", "expires"})
"""Placeholders that stand for the same in all replays of one record."""

STORED = "stored:"
"""The beginning of a placeholder for a text in the stored JSON answer: a JSON pointer follows, in which `*` is any member or index."""

_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)+")


class TemplateError(ValueError):
    """A placeholder that cannot be filled in. The message names it and the remedy."""


@dataclass(frozen=True, slots=True)
class _Field:
    """A header field. `whole` is its value if that holds no placeholder; `names` are those of its placeholders."""

    name: bytes
    pieces: Pieces
    whole: bytes | None
    names: tuple[str, ...]


_Fields: TypeAlias = tuple[_Field, ...]


@dataclass(frozen=True, slots=True)
class _Compiled:
    headers: _Fields
    body: Pieces


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
    return final, headers, fill_anyway(compiled.body, known).encode()


def render_headers(headers: tuple[tuple[str, str], ...], values: Mapping[str, str]) -> Headers:
    """Header fields alone. A field is left out if a placeholder in it has no value."""
    return _filled(_compile_headers(headers), values)


def named_in(headers: tuple[tuple[str, str], ...]) -> frozenset[str]:
    """The names of all placeholders in header fields."""
    return frozenset(name for field in _compile_headers(headers) for name in field.names)


def check(template: Template) -> None:
    """Raises `TemplateError` for an unknown placeholder, and for one in a place where its value could not be made safe."""
    _compile(template)


def placeholders(template: Template) -> frozenset[str]:
    """The names of all placeholders in a template."""
    compiled = _compile(template)
    return frozenset(slot.name for pieces in (*[field.pieces for field in compiled.headers], compiled.body) for slot in slots(pieces))


@lru_cache(maxsize=1024)
def _compile_headers(headers: tuple[tuple[str, str], ...]) -> _Fields:
    return tuple([_compile_field(name, value) for name, value in headers])


def _compile_field(name: str, value: str) -> _Field:
    pieces = compile_header(value, _placeholder)
    fixed = [piece for piece in pieces if isinstance(piece, str)]
    whole = _value("".join(fixed)) if len(fixed) == len(pieces) else None
    return _Field(name.encode("ascii"), pieces, whole, tuple(dict.fromkeys([slot.name for slot in slots(pieces)])))


@lru_cache(maxsize=1024)
def _compile(template: Template) -> _Compiled:
    return _Compiled(_compile_headers(template.headers), compile_body(template.body, content_type_of(template.headers), _placeholder))


def _placeholder(name: str, place: Place) -> Slot:
    if name.startswith(STORED):
        if not _POINTER.fullmatch(name.removeprefix(STORED)):
            raise TemplateError(f"`{{{name}}}` names no JSON pointer; write one as in {{stored:/payment/id}}")
    elif name not in PLACEHOLDERS:
        known = ", ".join(f"{{{one}}}" for one in PLACEHOLDERS)
        raise TemplateError(f"there is no placeholder `{{{name}}}`; there are {known} and {{stored:/json/pointer}}")
    if place in {Place.NOWHERE, Place.FORM}:
        raise TemplateError(f"`{{{name}}}` cannot be escaped in this media type; placeholders work in JSON, XML and text/plain")
    if place is Place.JSON_VALUE and name not in NUMBERS:
        raise TemplateError(f'`{{{name}}}` stands outside of a string; put it in quotes, as in "{{{name}}}"')
    return Slot(name, place)


def _filled(headers: _Fields, values: Mapping[str, str]) -> Headers:
    filled: list[tuple[bytes, bytes]] = []
    for field in headers:
        if field.whole is not None:
            filled.append((field.name, field.whole))
            continue
        known = {name: text for name in field.names if (text := values.get(name))}
        if len(known) == len(field.names):
            filled.append((field.name, _value(fill_anyway(field.pieces, known))))
    return tuple(filled)


def _value(text: str) -> bytes:
    return text.strip().encode("ascii", "replace")
