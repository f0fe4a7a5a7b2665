"""Canonical JSON (RFC 8785) for strict I-JSON (RFC 7493), and nothing else.

`canonicalise` answers None for everything whose meaning could be read in two ways: duplicate names, lone surrogates, NaN, a number
that is not exactly what the shortest text of its double says, another encoding than UTF-8, nesting or numbers beyond fixed limits. The
limits are ours, not the interpreter's, so that one body has one canonical form in every process of a rolling deploy.
"""

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import orjson

MAX_DEPTH = 64
MAX_NUMBER_LENGTH = 64
MAX_EXPONENT_LENGTH = 3

Json: TypeAlias = Any
"""dict with str keys, list, str, bool, None, int, or `_Number` for what ECMAScript would not print as a plain integer."""

_quote = json.encoder.encode_basestring
_POINTER_ESCAPE = re.compile(r"~([01])")


class NotCanonical(ValueError):
    """The text has no single meaning that a canonical form could stand for."""


class _Number(str):
    """A number that is already in its ECMAScript text (ECMA-262 Number::toString)."""

    __slots__ = ()


def canonicalise(body: bytes, ignore: Sequence[str] = ()) -> bytes | None:
    """The canonical form of a JSON text with the values under the JSON pointers `ignore` left out, or None if it has none."""
    try:
        value = parse(body)
        if ignore:
            _check_depth(value, 0)  # of the whole text: what is ignored must not decide whether an interpreter can read the rest
        for pointer in ignore:
            value = without(value, pointer)
        return _write_plain(value) if _is_plain(body) else _write(value, 0).encode()
    except (ValueError, RecursionError):  # UnicodeError and JSONDecodeError are ValueErrors; RecursionError lies beyond MAX_DEPTH anyway
        return None


def parse(body: bytes) -> Json:
    """Parse strict I-JSON. Raises ValueError (`NotCanonical`, `JSONDecodeError`, `UnicodeDecodeError`) or RecursionError."""
    return _DECODER.decode(body.decode())


def _unique_names(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise NotCanonical("duplicate name")
    return result


def _refuse_constant(text: str) -> Json:
    raise NotCanonical(text)


def _integer(text: str) -> Json:
    if len(text) <= 15:
        return int(text)
    return _number(text)


def _number(text: str) -> Json:
    """The number's ECMAScript text, if that text has exactly the value that was written: 1e2 is 100, but 0.1000…0001 is not 0.1."""
    if len(text) > MAX_NUMBER_LENGTH or len(text.lower().partition("e")[2].lstrip("+-")) > MAX_EXPONENT_LENGTH:
        raise NotCanonical("number too long")
    double = float(text)
    shortest = repr(double)
    if shortest in {"inf", "-inf"} or Decimal(shortest) != Decimal(text):
        raise NotCanonical("number not exact")
    return _Number(ecmascript(double))


def ecmascript(double: float) -> str:
    """ECMA-262 Number::toString for a finite double: the digits are Python's (both are the shortest), the layout is ECMAScript's."""
    if double == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(double)).as_tuple()
    assert isinstance(exponent, int), "a finite double"
    text = "".join(map(str, digits)).rstrip("0")
    point = len(digits) + exponent
    if len(text) <= point <= 21:
        layout = text + "0" * (point - len(text))
    elif 0 < point <= 21:
        layout = f"{text[:point]}.{text[point:]}"
    elif -6 < point <= 0:
        layout = "0." + "0" * -point + text
    else:
        mantissa = text[0] + ("." + text[1:] if len(text) > 1 else "")
        layout = f"{mantissa}e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return "-" + layout if sign else layout


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_names, parse_float=_number, parse_int=_integer, parse_constant=_refuse_constant)


def _check_depth(value: Json, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise NotCanonical("too deep")
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _check_depth(item, depth + 1)


def _write(value: Json, depth: int) -> str:
    if depth > MAX_DEPTH:
        raise NotCanonical("too deep")
    if type(value) is str:
        return _quote(value)
    if isinstance(value, dict):
        members = sorted(value, key=_utf16_order) if not all(map(str.isascii, value)) else sorted(value)
        return "{" + ",".join([f"{_quote(name)}:{_write(value[name], depth + 1)}" for name in members]) + "}"
    if isinstance(value, list):
        return "[" + ",".join([_write(item, depth + 1) for item in value]) + "]"
    if value is True:
        return "true"
    if value is False:
        return "false"
    return "null" if value is None else str(value)


def _is_plain(body: bytes) -> bool:
    """Whether the text cannot be too deep, and holds only ASCII without escapes: then names sort alike in every encoding."""
    return body.isascii() and b"\\" not in body and body.count(b"{") + body.count(b"[") <= MAX_DEPTH


def _write_plain(value: Json) -> bytes:
    """As `_write`, at a tenth of its cost."""
    return orjson.dumps(value, default=_fragment, option=orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_SUBCLASS)


def _fragment(value: object) -> orjson.Fragment:
    """The one subclass among the values: orjson takes its text as it is."""
    assert isinstance(value, _Number), "parse makes no other class"
    return orjson.Fragment(str(value))


def _utf16_order(name: str) -> bytes:
    """RFC 8785 section 3.2.3: names sort by their UTF-16 code units, which for characters beyond U+FFFF is not code point order."""
    return name.encode("utf-16-be")


def without(value: Json, pointer: str) -> Json:
    """`value` without what the JSON pointer (RFC 6901) names; unchanged if it names nothing. The empty pointer names the whole text."""
    if pointer == "":
        return None
    *parents, last = split_pointer(pointer)
    holder = value
    for token in parents:
        holder = _step(holder, token)
    if isinstance(holder, dict):
        holder.pop(last, None)
    elif isinstance(holder, list) and (index := _index(last, holder)) is not None:
        holder[index] = None  # the others keep their places: [1, ignored] and [ignored, 1] are different operations
    return value


def split_pointer(pointer: str) -> list[str]:
    """The reference tokens of a JSON pointer. Raises ValueError if it is none."""
    if not pointer.startswith("/"):
        raise ValueError("a JSON pointer is empty or starts with a slash, as in /client_timestamp")
    if re.search(r"~(?![01])", pointer):
        raise ValueError("in a JSON pointer ~ is written ~0 and / inside a name is written ~1")
    return [_POINTER_ESCAPE.sub(lambda found: "~/"[int(found[1])], token) for token in pointer[1:].split("/")]


def _step(value: Json, token: str) -> Json:
    if isinstance(value, dict):
        return value.get(token)
    if isinstance(value, list) and (index := _index(token, value)) is not None:
        return value[index]
    return None


def _index(name: str, array: list[Json]) -> int | None:
    valid = name.isascii() and name.isdigit() and (name == "0" or name[0] != "0") and len(name) < 10
    return int(name) if valid and int(name) < len(array) else None
