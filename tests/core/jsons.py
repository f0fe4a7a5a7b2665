"""JSON values and texts to write, canonicalise and compare."""

import json
import random
import re
from collections.abc import Iterator

from hypothesis import strategies as st

from gateway.core.pointers import Json

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12)

_NUMBERS = """
0 -0 0.0 -0.0 1 -1 1.0 1.10 10.90 100.00 0.1 0.0001 0.00001 0.000001 1e2 1E2 1e+2 1e-7 1e21 1e23 1.0e5 -5e-324 4e-324 1e400 -1e400 1e-400
1.7976931348623157e308 999999999999999 1000000000000000 9007199254740992 9007199254740993 -9007199254740993 18446744073709551615
18446744073709551616 99999999999.9999 999999999999.5 123456789012345.6 12345678901.23450000 0.1000000000000000055511151231257827
3.141592653589793 0.30000000000000004
"""
_NO_NUMBERS = "01 +1 .5 5. 1e 1e0002 0e999 0e1000 NaN -Infinity - 1_0 0x1 00.0 -.0 1.0.0"
_LETTERS = r"a b A 1 e . , : { } [ ] \n \" \\ \/ \b \u0008 \u0061 \u0022 \u005c \u00e9 \u000f \ud83d\ude00 \uD83D\uDE00"
ODD_NUMBERS: list[str] = re.findall(r"\S+", _NUMBERS)
"""Numbers at the limits of what has a canonical text, some of them beyond."""

NO_NUMBERS: list[str] = re.findall(r"\S+", _NO_NUMBERS)
ODD_LETTERS = [*re.findall(r"\S+", _LETTERS), "\u00e9", "\u20ac", "\ufb33", "\uffff", "\U0001f600", "\u2028", "\x7f"]
"""What may stand between quotes."""

NO_LETTERS = ["\\ud83d", "\\ude00", "\\x", "\x01"]

_quoted = st.lists(st.sampled_from(ODD_LETTERS) | st.sampled_from(ODD_LETTERS + NO_LETTERS), max_size=4).map(
    lambda letters: '"' + "".join(letters) + '"'
)
_blank = st.sampled_from(["", "", "", " ", "\t\r\n"])
_member = st.builds("{}{}{}:".format, _blank, _quoted, _blank)


def _listed(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(inner, max_size=4).map(lambda items: "[" + ",".join(items) + "]")


def _objects(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(st.builds(str.__add__, _member, inner), max_size=4).map(lambda members: "{" + ",".join(members) + "}")


json_texts = st.recursive(
    st.builds("{}{}{}".format, _blank, st.sampled_from([*ODD_NUMBERS, *NO_NUMBERS, "true", "false", "null"]) | _quoted, _blank),
    lambda inner: _listed(inner) | _objects(inner),
    max_leaves=10,
)
"""Texts that are JSON, or nearly so: odd numbers and letters, duplicate names, lone surrogates."""


def corpus(size: int) -> Iterator[str]:
    """So many texts like `json_texts`, the same ones in every interpreter: only `random()` is pinned by Python's documentation."""
    rnd = random.Random(20261127)
    letters = ODD_LETTERS * 5 + NO_LETTERS
    numbers = ODD_NUMBERS * 6 + NO_NUMBERS

    def pick(among: int) -> int:
        return int(rnd.random() * among)

    def number() -> str:
        if pick(2):
            return numbers[pick(len(numbers))]
        return f"{pick(10 ** pick(17))}" + (f".{pick(10 ** pick(9))}" if pick(2) else "") + (f"e{pick(40) - 20}" if pick(4) == 0 else "")

    def quoted() -> str:
        return '"' + "".join(letters[pick(len(letters))] for _ in range(pick(4))) + '"'

    def value(depth: int) -> str:
        kind = pick(4 if depth > 4 else 9)
        if kind < 2:
            return number()
        if kind < 4:
            return quoted() if pick(3) else ("true", "false", "null")[pick(3)]
        inner = [value(depth + 1) for _ in range(pick(4))]
        blank = ("", "", " ", "\n")[pick(4)]
        if kind < 6:
            return "[" + f",{blank}".join(inner) + "]"
        return "{" + f",{blank}".join(f"{quoted()}:{blank}{item}" for item in inner) + "}"

    for _ in range(size):
        yield value(0)


def scrambled(value: Json, rnd: random.Random) -> str:
    """A JSON text of the value in some other spelling: blanks, member order, escapes."""

    def blank() -> str:
        return "".join(rnd.choices(" \t\r\n", k=rnd.randint(0, 2)))

    def quoted(text: str) -> str:
        return "".join(_escaped(char) if rnd.random() < 0.3 else json.dumps(char, ensure_ascii=False)[1:-1] for char in text)

    if isinstance(value, dict):
        names = rnd.sample(list(value), len(value))
        inner = ",".join(f'{blank()}"{quoted(name)}"{blank()}:{scrambled(value[name], rnd)}' for name in names)
        return f"{blank()}{{{inner}{blank()}}}{blank()}"
    if isinstance(value, list):
        return f"{blank()}[{','.join(scrambled(item, rnd) for item in value)}{blank()}]{blank()}"
    if isinstance(value, str):
        return f'{blank()}"{quoted(value)}"{blank()}'
    return f"{blank()}{json.dumps(value)}{blank()}"


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
