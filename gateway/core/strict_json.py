"""The one reader of strict JSON: texts that every reader understands alike.

Clients, upstreams, providers, issuers and operators send JSON, and the gateway acts on what it says. It reads all of it by these rules:

* RFC 8259 in UTF-8, without a byte order mark, `NaN` or `Infinity`.
* No object has a name twice: RFC 8259 section 4 lets readers differ about which value counts.
* A value stands in at most `MAX_DEPTH` containers. The limit is ours and not the interpreter's, so that one body is read alike by every
  process of a rolling deploy.
* The caller chooses what a number becomes, since readers differ there, too: see `decoder`.
* A lone surrogate, which JSON can escape and UTF-8 cannot say, is read. A caller that stores or shows texts refuses it
  (`refuse_lone_surrogates`).

Every failure is a ValueError.
"""

import json
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeAlias

from gateway.core.pointers import Json

MAX_DEPTH = 64

_GREATEST_EXACT = 2**53 - 1
_LONGEST_EXACT = len(str(-_GREATEST_EXACT))

Pairs: TypeAlias = list[tuple[str, Json]]


class DuplicateName(ValueError):
    """An object has two members of one name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"duplicate name {name!r}")
        self.name = name


class Number(str):
    """A JSON number as its text: 1.10 stays 1.10, and 12345678901234567890 keeps its last digit."""

    __slots__ = ()


def unique_members(pairs: Pairs) -> dict[str, Json]:
    """An object's members. Raises `DuplicateName`."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise DuplicateName(_first_duplicate([name for name, _ in pairs]))
    return members


def _first_duplicate(names: Sequence[str]) -> str:
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value] # add answers None: go on


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def decoder(
    whole: Callable[[str], Json],
    other: Callable[[str], Json],
    members: Callable[[Pairs], dict[str, Json]] = unique_members,
) -> json.JSONDecoder:
    """A decoder for `read`. `whole` makes the value of a number without point and exponent, `other` that of every other number."""
    return json.JSONDecoder(object_pairs_hook=members, parse_int=whole, parse_float=other, parse_constant=_refuse_constant)


AS_WRITTEN = decoder(Number, Number)
"""Each number is a `Number`."""

AS_PYTHON = decoder(int, float)
"""Numbers are int and float. The interpreter refuses an int of thousands of digits."""


def _text_of_whole(number: str) -> str | float:
    if len(number) > _LONGEST_EXACT or number == "-0" or abs(int(number)) > _GREATEST_EXACT:
        return float(number)
    return number


AS_TEXTS = decoder(_text_of_whole, float)
"""A whole number that every reader writes alike is a plain str, its text; every other number is a float. Beyond 2^53-1 most readers have
another number (RFC 7493 section 2.2), and of -0 most make 0.
"""


def read(body: bytes, numbers: json.JSONDecoder = AS_WRITTEN) -> Json:
    """The value of a strict JSON text. `numbers` is a `decoder`. Raises ValueError for every other text."""
    try:
        value = numbers.decode(body.decode())
    except RecursionError as error:
        raise ValueError("too deep") from error  # the interpreter's limit lies beyond ours
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH:
        _refuse_depth(value)
    return value


def _refuse_depth(value: Json) -> None:
    """A scalar or an empty container may stand in `MAX_DEPTH` containers, and nothing deeper."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        holders = [list(item.values()) if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        level = [item for holder in holders for item in holder]
    if level:
        raise ValueError("too deep")


def refuse_lone_surrogates(value: Json) -> None:
    """Raises ValueError if a text anywhere in the value has no UTF-8."""
    json.dumps(value, ensure_ascii=False).encode()


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
