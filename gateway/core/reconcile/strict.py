"""JSON that can be read in one way only, with every number as its own text.

What an upstream or a provider says decides whether money moves again. So nothing is read that two readers could read differently
(duplicate names: RFC 8259 section 4), and no number goes through a double: 1.10 stays 1.10, and 12345678901234567890 keeps its last digit.
"""

import json
from collections.abc import Sequence
from typing import NoReturn

from gateway.core.canonical import MAX_DEPTH
from gateway.core.pointers import NOTHING, Json, split_pointer

_GREATEST_EXACT = 2**53 - 1
_LONGEST_EXACT = len(str(-_GREATEST_EXACT))


class Number(str):
    """A JSON number by its text."""

    __slots__ = ()


def read(body: bytes) -> Json:
    """The value of a JSON text in UTF-8; numbers are `Number`. Raises ValueError for all else, and for nesting beyond `MAX_DEPTH`."""
    return _read(body, _DECODER)


def read_texts(body: bytes) -> Json:
    """As `read`, at a fraction of the cost, for who wants texts only: whole numbers that every reader writes alike are their texts, all
    others are floats.
    """
    return _read(body, _TEXT_DECODER)


def _read(body: bytes, decoder: json.JSONDecoder) -> Json:
    try:
        value = decoder.decode(body.decode())
    except RecursionError as error:
        raise ValueError("too deep") from error  # an interpreter's limit, and all of them lie beyond ours
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH:
        _check_depth(value)
    return value


def tokens_of(pointer: str) -> list[str]:
    """The reference tokens of a JSON pointer (RFC 6901); none for the empty one. Raises ValueError if it is no pointer."""
    return split_pointer(pointer) if pointer else []


def at(value: Json, tokens: Sequence[str]) -> Json:
    """What the tokens name; `NOTHING` if they name nothing. There is no wildcard, and `-` names nothing."""
    for token in tokens:
        if isinstance(value, dict):
            value = value.get(token, NOTHING)
        elif isinstance(value, list):
            value = next((item for index, item in enumerate(value) if str(index) == token), NOTHING)
        else:
            return NOTHING
    return value


def write(value: Json) -> str:
    """The value as a compact JSON text: members in their order, numbers as they were written, characters as themselves."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join([f"{_quoted(name)}:{write(item)}" for name, item in value.items()]) + "}"
    if isinstance(value, list):
        return "[" + ",".join([write(item) for item in value]) + "]"
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(text)  # a lone surrogate has no UTF-8, only its escape
    return json.dumps(text, ensure_ascii=False)


def _check_depth(value: Json) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        holders = [list(item.values()) if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        level = [item for holder in holders for item in holder]
    if level:
        raise ValueError("too deep")


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("duplicate name")
    return members


def _text_of_whole(number: str) -> str | float:
    """Beyond 2^53-1 most readers have another number (RFC 7493 section 2.2), and of -0 most make 0."""
    if len(number) > _LONGEST_EXACT or number == "-0" or abs(int(number)) > _GREATEST_EXACT:
        return float(number)
    return number


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=Number, parse_int=Number, parse_constant=_refuse_constant)
_TEXT_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_text_of_whole, parse_constant=_refuse_constant)
