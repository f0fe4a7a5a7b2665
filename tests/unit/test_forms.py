"""Form bodies: one encoding for the spellings of the same pairs, none for what could be read in two ways."""

import random
from collections import defaultdict
from operator import itemgetter
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.forms import MAX_PAIRS, read_form
from gateway.core.scope import length_prefixed
from tests.unit.vectors import load, octets

VECTORS = load("forms")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
names = texts | st.sampled_from(["a", "b", "a[]", "a[b]", "a[][x]", "b[]"])
forms = st.lists(st.tuples(names, texts), max_size=6)


def pairs_of(described: Any) -> list[bytes]:
    """Names and values in turn, some of them repeated so many times."""
    if isinstance(described, list) and described and isinstance(described[0], dict):
        return pairs_of(described[0]["unit"]) * int(described[0]["times"])
    return [octets(part) for pair in described for part in pair]


@pytest.mark.parametrize("case", VECTORS, ids=[case["name"] for case in VECTORS])
def test_vectors(case: dict[str, Any]) -> None:
    """The pairs of each golden body in their order, or none."""
    found = read_form(octets(case["input"]))
    assert found == (None if case["pairs"] is None else length_prefixed(pairs_of(case["pairs"])))


def spelt(pairs: list[tuple[str, str]], rnd: random.Random) -> bytes:
    """A form body of these pairs in some spelling: escapes in either case and of anything, plus or %20, empty pairs."""

    def part(text: str) -> str:
        return "".join(_escaped(octet, rnd) for octet in text.encode())

    body = "&".join(f"{part(name)}={part(value)}" for name, value in pairs)
    return ("&" * rnd.randint(0, 1) + body + "&" * rnd.randint(0, 2)).encode()


def _escaped(octet: int, rnd: random.Random) -> str:
    char = chr(octet)
    if char == " " and rnd.random() < 0.5:
        return "+"
    if char.isascii() and (char.isalnum() or char in "-._~") and rnd.random() < 0.8:
        return char
    return rnd.choice(["%%%02x", "%%%02X"]) % octet


@given(forms, st.randoms(use_true_random=False))
def test_spelling_does_not_matter(pairs: list[tuple[str, str]], rnd: random.Random) -> None:
    """Escapes, plus signs and empty pairs do not change the encoding."""
    plain = read_form(urlencode(pairs).encode())
    assert plain is not None
    assert read_form(spelt(pairs, rnd)) == plain
    assert read_form(urlencode(pairs, quote_via=quote, safe="[]/@:").encode()) == plain


def meaning(pairs: list[tuple[str, str]]) -> dict[str, list[str]]:
    """What a reader makes of the pairs who keeps a list for each name."""
    lists: dict[str, list[str]] = defaultdict(list)
    for name, value in pairs:
        lists[name].append(value)
    return dict(lists)


plain_forms = st.lists(st.tuples(st.sampled_from(["a", "b", "a[b]", "ab", ""]), st.sampled_from(["", "1", "a", "&b=1", "="])), max_size=5)


@given(plain_forms, plain_forms)
@example([("a", "1"), ("b", "2")], [("b", "2"), ("a", "1")])
@example([("a", "1"), ("a", "2")], [("a", "2"), ("a", "1")])
@example([("a", "1"), ("b", "")], [("a", "1&b=")])
def test_order_counts_among_equal_names_alone(one: list[tuple[str, str]], other: list[tuple[str, str]]) -> None:
    """Two forms share an encoding exactly if each name has the same values in the same order."""
    assert (read_form(urlencode(one).encode()) == read_form(urlencode(other).encode())) == (meaning(one) == meaning(other))


def test_lists_of_objects_keep_their_order() -> None:
    """Which item a quantity belongs to is in the order of different names: readers of `items[][n]` build the list as it comes."""
    first = [("items[][sku]", "a"), ("items[][n]", "2"), ("items[][sku]", "b"), ("total", "5")]
    second = [("items[][sku]", "a"), ("items[][sku]", "b"), ("items[][n]", "2"), ("total", "5")]
    assert read_form(urlencode(first).encode()) != read_form(urlencode(second).encode())
    assert read_form(urlencode(first).encode()) == read_form(urlencode([first[3], *first[:3]]).encode())


@given(forms, st.data())
def test_any_change_of_a_pair_counts(pairs: list[tuple[str, str]], data: st.DataObject) -> None:
    """Another value, another name, a pair more or less: another encoding."""
    at = data.draw(st.integers(0, len(pairs)))
    changed = [*pairs[:at], data.draw(st.tuples(names, texts)), *pairs[at + data.draw(st.integers(0, 1)) :]]
    assert sorted(changed) == sorted(pairs) or read_form(urlencode(changed).encode()) != read_form(urlencode(pairs).encode())


@given(st.binary(max_size=40) | st.text("ab=&%+;[] 2", max_size=20).map(str.encode))
@example(b"a=%")
@example(b"&&")
def test_any_bytes_at_all(body: bytes) -> None:
    """Nothing that a client can send raises. What is read has the pairs that the standard library finds."""
    found = read_form(body)
    if found is not None:
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in parse_qsl(body.decode(), True, encoding="latin-1")]
        if not any(b"[]" in name for name, _ in pairs):
            pairs.sort(key=itemgetter(0))
            assert found == length_prefixed([part for pair in pairs for part in pair])
        assert len(found) == len(length_prefixed([part for pair in pairs for part in pair]))


@given(st.dictionaries(texts.filter(bool), st.lists(texts, min_size=1, max_size=3), max_size=4))
def test_what_clients_send_is_read(fields: dict[str, list[str]]) -> None:
    """The bodies of a common client are read, in whatever order it was given the fields."""
    orders = (dict(fields), dict(reversed(fields.items())))
    bodies = [httpx.Request("POST", "http://a.test", data=order).read() for order in orders]
    encodings = {read_form(body) for body in bodies}
    assert len(encodings) == 1
    assert None not in encodings


def test_the_number_of_pairs_is_bounded() -> None:
    """More pairs than the limit are not read, so that what a body costs is bounded."""
    assert read_form(b"&".join([b"a=1"] * MAX_PAIRS)) is not None
    assert read_form(b"&".join([b"a=1"] * (MAX_PAIRS + 1))) is None
