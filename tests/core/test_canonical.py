"""Canonical JSON: the published form for strict I-JSON, None for whatever could be read in two ways."""

import decimal
import hashlib
import json
import random
import re
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.canonical import canonicalise, ecmascript
from gateway.core.pointers import Json, compile_pointer
from gateway.core.strict_json import MAX_DEPTH
from tests.core.jsons import corpus, json_texts, scrambled, values
from tests.core.vectors import load

VECTORS = load("canonical")
NUMBERS = load("numbers")


@pytest.mark.parametrize("case", VECTORS, ids=[case["name"] for case in VECTORS])
def test_vectors(case: dict[str, str | None]) -> None:
    """The golden form, or none, of each text; what has a form is its own form's form."""
    assert case["input"] is not None
    found = canonicalise(case["input"].encode())
    assert found == (None if case["canonical"] is None else case["canonical"].encode())
    if found is not None:
        assert canonicalise(found) == found


@pytest.mark.parametrize("case", NUMBERS, ids=[case["text"] for case in NUMBERS])
def test_number_vectors(case: dict[str, str]) -> None:
    """Doubles are printed as ECMAScript prints them."""
    (double,) = struct.unpack(">d", bytes.fromhex(case["ieee754"]))
    assert ecmascript(double) == case["text"]


PAIRS_THAT_DIFFER = [
    ("9007199254740993", "9007199254740992"),
    ("9007199254740993.0", "9007199254740992.0"),
    ("-9007199254740993", "-9007199254740992"),
    ("1152921504606846976", "1152921504606847000"),
    ("1e400", "1e500"),
    ("1e400", "-1e400"),
    ("1" * 4301 + ".0", "2" * 4301 + ".0"),
    ("1" * 4301, "1" * 4300 + "2"),
    ("1e-400", "0"),
    ("1e-9999999999999999999", "0"),
    ("0.1", "0.1000000000000000055511151231257827"),
    ("10000000000000000.1", "10000000000000001.0"),
    ('"1"', "1"),
    ("true", "1"),
    ("false", "0"),
    ('"true"', "true"),
    ('{"a":null}', "{}"),
    ("[]", "{}"),
    ("[1,2]", "[2,1]"),
    ("[[1],2]", "[1,[2]]"),
    ('"a"', '"A"'),
    ('"\u00e9"', '"e\u0301"'),
    ('{"amt":999,"amt":1}', '{"amt":1}'),
    ('{"amt":1,"amt":1}', '{"amt":1}'),
    ('"\\ud800"', '"\\ud801"'),
    ('"\\ud800"', '"?"'),
    ("NaN", "null"),
]


@pytest.mark.parametrize(("one", "other"), PAIRS_THAT_DIFFER)
def test_pairs_that_differ(one: str, other: str) -> None:
    """Texts that mean different operations never share a canonical form."""
    found = canonicalise(one.encode())
    assert found is None or found != canonicalise(other.encode())


PAIRS_THAT_ARE_EQUAL = [
    ("1e2", "100"),
    ("100.10", "100.1"),
    ("1", "1.0"),
    ("-0", "0"),
    ("-0.0", "0"),
    ("0e5", "0"),
    ("1E+2", "1e2"),
    ("100000000000000000000", "1e20"),
    ('{"a":1,"b":2}', ' { "b" : 2 , "a" : 1 } '),
    ('"\\u0061\\/"', '"a/"'),
    ('"\\ud83d\\ude00"', '"\U0001f600"'),
]


@pytest.mark.parametrize(("one", "other"), PAIRS_THAT_ARE_EQUAL)
def test_pairs_that_are_equal(one: str, other: str) -> None:
    """Spellings of one value share one canonical form."""
    assert canonicalise(one.encode()) == canonicalise(other.encode()) is not None


@st.composite
def number_texts(draw: st.DrawFn) -> str:
    """Numbers as JSON allows them, many of them neighbours of doubles and of the limits."""
    if draw(st.booleans()):
        start = draw(st.sampled_from([2**53, 2**54, 10**15, 10**21, 2**63, 0]) | st.integers(0, 10**25))
        digits = str(abs(start + draw(st.integers(-3, 3))))
    else:
        return str(Decimal(repr(draw(st.floats(0, 1e25)))))
    fraction = draw(st.sampled_from(["", ".0", ".10", ".5", ".000000000000000000001"]) | st.from_regex(r"\.[0-9]{1,25}", fullmatch=True))
    exponent = draw(st.sampled_from(["", "e0", "E+2", "e-7", "e22", "e-30", "e400", "e-400", "e0012"]))
    return draw(st.sampled_from(["", "-"])) + digits + fraction + exponent


@given(number_texts(), number_texts())
@example("9007199254740993", "9007199254740992")
@example("1e23", "100000000000000000000000")
def test_numbers_are_compared_by_their_exact_value(one: str, other: str) -> None:
    """Two numbers share a canonical form only if they are the same decimal number, and then they do if both have one."""
    first, second = canonicalise(one.encode()), canonicalise(other.encode())
    if first is not None and second is not None:
        assert (first == second) == (Decimal(one) == Decimal(other))


@given(number_texts())
@example("5e-324")
@example("1.7976931348623157e308")
def test_canonical_numbers_are_what_was_written(text: str) -> None:
    """A number is canonical if its double's shortest text has exactly its value; the form has it too, in ECMAScript's layout."""
    found = canonicalise(text.encode())
    within_limits = len(text) <= 64 and len(text.lower().partition("e")[2].lstrip("+-")) <= 3
    assert (found is not None) == (within_limits and Decimal(repr(float(text))) == Decimal(text))
    if found is not None:
        assert Decimal(found.decode()) == Decimal(text)
        assert re.fullmatch(rb"-?(?:0|[1-9]\d{0,20}|(?:0|[1-9]\d*)\.\d*[1-9]|[1-9](?:\.\d*[1-9])?e[+-]\d+)", found)
        assert found != b"-0"
        assert canonicalise(found) == found


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_survive(double: float) -> None:
    """Every finite double is canonical as its own shortest text, whatever layout it was written in."""
    found = canonicalise(repr(double).encode())
    assert found is not None
    assert float(found) == double
    assert found == canonicalise(f"{Decimal(repr(double)):e}".encode())


@given(values, st.randoms(use_true_random=False))
def test_spelling_does_not_matter(value: Json, rnd: random.Random) -> None:
    """Blanks, member order and escapes do not change the canonical form; the form is JSON of the same value and its own form."""
    plain = canonicalise(json.dumps(value).encode())
    assert plain is not None
    assert canonicalise(scrambled(value, rnd).encode()) == plain == canonicalise(plain)
    assert json.loads(plain, parse_int=float) == value


@given(values, values)
def test_different_values_have_different_forms(one: Json, other: Json) -> None:
    """Two values share a canonical form only if they are the same value, booleans and numbers told apart."""
    same = canonicalise(json.dumps(one).encode()) == canonicalise(json.dumps(other).encode())
    assert same == (_typed(one) == _typed(other))


def _typed(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _typed(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_typed(item) for item in value]
    return (isinstance(value, bool), value)


@given(values)
def test_names_are_in_utf16_order(value: Json) -> None:
    """The members of every object are ordered by their UTF-16 code units."""
    form = canonicalise(json.dumps(value).encode())
    assert form is not None

    def check(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        assert all(one.encode("utf-16-be") < other.encode("utf-16-be") for (one, _), (other, _) in pairwise(pairs))
        return dict(pairs)

    json.loads(form, object_pairs_hook=check)


A = (compile_pointer("/a"),)


@given(
    st.binary(max_size=30) | st.text('[]{}",:0123456789.eE+-\\ud8 NaItrue', max_size=20).map(str.encode) | json_texts.map(str.encode),
    st.sampled_from([(), A]),
    st.sampled_from([(), A]),
)
@example(b'{"a":1e-99999999999999999999}', A, ())
@example(b'{"a":"\\ud800"}', A, ())
def test_any_bytes_at_all(body: bytes, ignore: tuple[Any, ...], only: tuple[Any, ...]) -> None:
    """Nothing that a client can send raises: it has a canonical form, which is its own form, or none."""
    found = canonicalise(body, ignore, only)
    assert not found or canonicalise(found, ignore, only) == found
    assert found != b"" or only


@given(json_texts)
@example('{"a":1,"a":1}')
@example('{"\\"":1,"\\u0022":2}')
@example('{"a\\\\":1,"a\\u005c":2}')
@example('{"\\\\":"","\\"":":"}')
@example('{"\U0001f600":1,"\ufb33":2}')
@example('["\U0001f600",{"\ufb33":"\\ud83d"}]')
@example("[1.10,0.0001,0.00001,100.0,99999999999.9999,123456789012.5]")
@example("[123456789012345,1234567890123456,-0,-0.5,0.5]")
@example("[100.0,0.00,-1.000000000,1.0000000000,1.0e5]")
@example("1.0.0")
@example("--1.0")
def test_both_readers_agree(text: str) -> None:
    """What the quick reader takes has the form that the exact one gives it: beside what only the latter reads, nothing changes."""
    alone, beside = canonicalise(text.encode()), canonicalise(f"[{text},1e0]".encode())
    assert beside == (None if alone is None else b"[" + alone + b",1]")


def test_both_readers_agree_on_many() -> None:
    """The same on a corpus that is larger than an example and the same in each run."""
    for text in corpus(4000):
        alone, beside = canonicalise(text.encode()), canonicalise(f"[{text},1e0]".encode())
        assert beside == (None if alone is None else b"[" + alone + b",1]"), text


def test_every_interpreter_finds_the_same() -> None:
    """The forms of a large corpus, pinned: another Python or another parser that reads anything else is noticed."""
    digest = hashlib.sha256()
    canonical = 0
    for text in corpus(6000):
        found = canonicalise(text.encode())
        canonical += found is not None
        digest.update(b"-" if found is None else b"%d:%b" % (len(found), found))
    assert (canonical, digest.hexdigest()) == (4667, "2a31049571264d6960cd5eb21e806f88385bc1184b313df3e1f994a93ae0d26b")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
def test_only_plain_utf8(encoding: str) -> None:
    """Another encoding, or a byte order mark, has no canonical form."""
    assert canonicalise('{"a":"\u00e9"}'.encode(encoding)) is None


@pytest.mark.parametrize("body", [b'"\xff"', b'"\xc3"', b'"\xed\xa0\x80"', b'"\xc0\xaf"', b'"\xf4\x90\x80\x80"'])
def test_only_valid_utf8(body: bytes) -> None:
    """Bytes that are not UTF-8, surrogates and overlong forms among them, have no canonical form."""
    assert canonicalise(body) is None


# ---- limits


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize(("depth", "canonical"), [(MAX_DEPTH + 1, True), (MAX_DEPTH + 2, False), (900, False), (100_000, False)])
def test_depth_is_bounded(depth: int, canonical: bool) -> None:
    """A scalar or empty container may stand below 64 containers, and nothing deeper."""
    assert (canonicalise(nested(depth)) is not None) is canonical
    assert (canonicalise(b'{"a":' * (depth - 1) + b"{}" + b"}" * (depth - 1)) is not None) is canonical


@pytest.mark.parametrize("depth", [MAX_DEPTH + 2, 900, 100_000])
def test_ignored_parts_count_for_the_depth(depth: int) -> None:
    """What is ignored is bounded like the rest: else the interpreter's own limit would decide which form a body has."""
    assert canonicalise(b'{"a":' + nested(depth) + b',"b":1}', A) is None
    assert canonicalise(b'{"a":' + nested(MAX_DEPTH) + b',"b":1}', A) == b'{"b":1}'


@pytest.mark.parametrize(
    ("number", "canonical"),
    [
        (b"1." + b"0" * 62, True),
        (b"1." + b"0" * 63, False),
        (b"1" + b"0" * 63, True),
        (b"1" + b"0" * 64, False),
        (b"1e307", True),
        (b"10000e-308", True),
        (b"1e0307", False),
        (b"0e999", True),
        (b"0e1000", False),
        (b"0e-1000", False),
    ],
)
def test_number_texts_are_bounded(number: bytes, canonical: bool) -> None:
    """A number has at most 64 characters and an exponent of at most 3 digits, whatever its value."""
    assert (canonicalise(number) is not None) is canonical


@contextmanager
def interpreter_limits(digits: int, recursion: int) -> Iterator[None]:
    before = sys.get_int_max_str_digits(), sys.getrecursionlimit()
    sys.set_int_max_str_digits(digits)
    sys.setrecursionlimit(recursion)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(before[0])
        sys.setrecursionlimit(before[1])


@pytest.mark.parametrize("digits", [0, 640, 100_000])
@pytest.mark.parametrize("recursion", [1000, 20_000])
def test_limits_are_ours(digits: int, recursion: int) -> None:
    """The interpreter's limits on digits and recursion change nothing."""
    bodies = [nested(MAX_DEPTH + 1), nested(400), b'{"a":' + nested(5000) + b"}", b"1" * 5000, b"1" * 700, b"1" * 60 + b".0", b"1" * 15]
    plain = [canonicalise(body, A) for body in bodies]
    with interpreter_limits(digits, recursion):
        assert [canonicalise(body, A) for body in bodies] == plain
    assert [found is not None for found in plain] == [True, False, False, False, False, False, True]


@pytest.mark.parametrize(
    "context", [decimal.Context(prec=1, Emax=1, Emin=-1), decimal.Context(prec=50, traps=list(decimal.Context().traps))]
)
def test_decimal_context_does_not_matter(context: decimal.Context) -> None:
    """Exact comparison does not depend on the decimal context that happens to be set."""
    bodies = [str(case["input"]).encode() for case in VECTORS]
    plain = [canonicalise(body) for body in bodies]
    with decimal.localcontext(context):
        assert [canonicalise(body) for body in bodies] == plain


names = st.sampled_from(
    ["a", "A", "b", ":a", ":A", "a:b", "A:b", 'a"', 'A"', "a\\\\", "é", "É", "ß", "ss", "n,", "k", "\u212a", "\u10a0", "\u2d00"]
)
holders = st.recursive(
    st.sampled_from([1, "A", '":A', ":", "A:", "x:y", None]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=4),
    max_leaves=6,
)


def _variants(value: Any) -> bool:
    """Whether an object has two names that differ in letter case alone, as far as all interpreters know about it."""
    if isinstance(value, dict):
        folded = {name.replace("\u212a", "K").casefold() if name != "\u10a0" else name for name in value}
        return len(folded) != len(value) or any(map(_variants, value.values()))
    return isinstance(value, list) and any(map(_variants, value))


@given(holders)
@example({"k": "v", ":a": 1, ":A": 2})
@example({'a"': 1, 'A"': 2})
@example({"a:b": "22:00Z", "A:b": "x:y"})
@example({"a": "T12:00:00", "b": "A:", "c": ":A"})
@example({"x": {"ID": 1}, "id": 2})
def test_names_that_are_one_without_letter_case(value: Any) -> None:
    """A text with such names in one object has no form where they are not wanted; all others have the form that they have anyway."""
    for body in (
        json.dumps(value).encode(),
        json.dumps(value, ensure_ascii=False).encode(),
        b'{"n":1.50,"v":' + json.dumps(value).encode() + b"}",
    ):
        want = None if _variants(value) else canonicalise(body)
        assert canonicalise(body, case_variants=False) == want
