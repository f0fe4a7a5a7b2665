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

from gateway.core.forms import FREE_PAIRS, MAX_PAIRS, in_order_of_names, may_name, read_form, without_named
from gateway.core.scope import length_prefixed
from tests.core.vectors import load, octets

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
    """The pairs of each golden body in the order of fingerprint version 2, or none."""
    found = read_form(octets(case["input"]), ordering=in_order_of_names)
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
    """To version 2, two forms share an encoding exactly if each name has the same values in the same order."""
    found = [read_form(urlencode(pairs).encode(), ordering=in_order_of_names) for pairs in (one, other)]
    assert (found[0] == found[1]) == (meaning(one) == meaning(other))


def php(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """What PHP's `$_POST` holds: variables, and arrays as lists of (index, value) in their order."""
    variables: dict[str, Any] = {}
    for spelled, value in pairs:
        name = spelled.partition("\0")[0].lstrip(" ")
        base, bracket, rest = name.partition("[")
        if bracket and "]" not in rest:
            base, rest = base + "_" + rest, ""
        holder, index = variables, base.replace(".", "_").replace(" ", "_")
        path = rest.split("]")[0:-1] if rest else []
        for step in path:
            if not isinstance(holder.get(index), dict):
                holder[index] = {}
            holder = holder[index]
            index = step.removeprefix("[") or str(sum(key.isdigit() for key in holder))
        holder[index] = value
    return {name: _listed(value) for name, value in variables.items()}


def _listed(value: Any) -> Any:
    return [(index, _listed(item)) for index, item in value.items()] if isinstance(value, dict) else value


def asp(pairs: list[tuple[str, str]]) -> dict[str, list[str]]:
    """What ASP.NET's `Request.Form` holds: texts by name, letter case aside."""
    return meaning([(name.lower(), value) for name, value in pairs])


tricky = st.sampled_from(["a", "b", "a[b]", "a[]", "a[b][c]", "a.b", "a_b", "a b", "a[b", "A", " a", "a\0x", "a-b", "b[]"])


@given(st.lists(st.tuples(tricky, st.sampled_from(["1", "2"])), max_size=4), st.randoms(use_true_random=False))
@example([("a", "2"), ("a[b]", "1")], random.Random(1))
@example([("a.b", "1"), ("a_b", "2")], random.Random(1))
@example([("a[b", "1"), ("a_b", "2")], random.Random(1))
@example([("a", "1"), ("A", "2")], random.Random(1))
def test_an_order_that_a_reader_can_tell_counts(pairs: list[tuple[str, str]], rnd: random.Random) -> None:
    """Forms in different orders share an encoding only if PHP and ASP.NET read the same in both."""
    other = rnd.sample(pairs, len(pairs))
    for shuffled in (other, pairs[::-1]):
        if read_form(urlencode(pairs).encode()) == read_form(urlencode(shuffled).encode()):
            assert (php(pairs), asp(pairs)) == (php(shuffled), asp(shuffled))


independent = st.lists(
    st.tuples(st.sampled_from(["amount", "currency", "to_id", "note", "x9"]), texts), max_size=5, unique_by=itemgetter(0)
)


@given(independent, st.randoms(use_true_random=False))
def test_the_order_of_independent_names_does_not_count(pairs: list[tuple[str, str]], rnd: random.Random) -> None:
    """Names that no reader takes for one another may come in any order, up to `FREE_PAIRS`."""
    assert read_form(urlencode(pairs).encode()) == read_form(urlencode(rnd.sample(pairs, len(pairs))).encode())


@pytest.mark.parametrize(("more", "alike"), [(0, True), (1, False)])
def test_the_order_of_many_pairs_counts(more: int, alike: bool) -> None:
    """Readers drop silently what comes behind their own limit."""
    pairs = [b"n%d=1" % at for at in range(FREE_PAIRS + more)]
    assert (read_form(b"&".join(pairs)) == read_form(b"&".join(reversed(pairs)))) == alike


def test_ignored_fields_are_left_out() -> None:
    """Each occurrence of a name, as decoded; also where it alone would make the order count."""
    names = frozenset({b"sig", b"sent at", b"a.b"})
    plain = read_form(b"amount=1&to=b")
    assert plain is not None
    for body in (b"sig=1&amount=1&to=b&sig=2", b"to=b&sent+at=1&amount=1", b"%73ig=&to=b&sent%20at=&amount=1", b"a.b=1&to=b&amount=1"):
        assert read_form(body, names) == plain
    assert read_form(b"amount=1&to=b&SIG=1", names) != plain


@pytest.mark.parametrize(
    ("query", "left"),
    [(b"a=1&sig=2&b=3", b"a=1&b=3"), (b"sig", b""), (b"%73ig=1&a=%20", b"a=%20"), (b"sig=1&&a", b"&a"), (b"sigs=1", b"sigs=1"), (b"", b"")]
    + [(text, text) for text in (b"sig=1;a=5", b"sig=;a=5&b=1", b";sig=1")],
)
def test_parameters_are_left_out_of_a_query(query: bytes, left: bytes) -> None:
    """Each one of these names, decoded; what is left stays as it stands. Some readers find an amount behind a `;`."""
    assert without_named(query, frozenset({b"sig"})) == left


TAKEN = ("key_id", "key.id", "key id", " key_id", "KEY-ID", "key_id[]", "key_id[a][b]", "key[id", "key_id\0x")
NOT_TAKEN = ("key", "keyid", "key_id2", "key[id]", "")


@pytest.mark.parametrize("spelled", [*TAKEN, *NOT_TAKEN])
def test_what_a_reader_may_take_for_a_name(spelled: str) -> None:
    """Dots, blanks, brackets, letter case, hyphens and what comes behind a NUL mean nothing to some reader."""
    assert may_name(spelled.encode(), b"key_id") == (spelled in TAKEN)


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
            assert read_form(body, ordering=in_order_of_names) == length_prefixed([part for pair in pairs for part in pair])
        assert len(found) == len(length_prefixed([part for pair in pairs for part in pair]))


@given(st.dictionaries(st.from_regex(r"[a-z0-9_]{1,8}", fullmatch=True), st.lists(texts, min_size=1, max_size=3), max_size=4))
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
