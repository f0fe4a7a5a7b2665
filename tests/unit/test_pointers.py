"""Ignored parts of a body: JSON pointers (RFC 6901) and what is left without them."""

import json
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.canonical import Json, canonicalise, split_pointer, without
from tests.unit.jsons import texts, values


@pytest.mark.parametrize(
    ("pointer", "left"),
    [
        ("/at", '{"list":[1,{"at":2,"x":3}],"obj":{"":4,"a/b":5,"m~n":6}}'),
        ("/list/1/at", '{"at":0,"list":[1,{"x":3}],"obj":{"":4,"a/b":5,"m~n":6}}'),
        ("/list/0", '{"at":0,"list":[null,{"at":2,"x":3}],"obj":{"":4,"a/b":5,"m~n":6}}'),
        ("/obj", '{"at":0,"list":[1,{"at":2,"x":3}]}'),
        ("/obj/", '{"at":0,"list":[1,{"at":2,"x":3}],"obj":{"a/b":5,"m~n":6}}'),
        ("/obj/a~1b", '{"at":0,"list":[1,{"at":2,"x":3}],"obj":{"":4,"m~n":6}}'),
        ("/obj/m~0n", '{"at":0,"list":[1,{"at":2,"x":3}],"obj":{"":4,"a/b":5}}'),
        ("", "null"),
        ("/", None),
        ("/absent", None),
        ("/at/deeper", None),
        ("/list/2", None),
        ("/list/-", None),
        ("/list/01", None),
        ("/list/-1", None),
        ("/list/1e0", None),
        ("/list/\u0661", None),
        ("/list/99999999999999999999", None),
        ("/obj/m~01n", None),
    ],
)
def test_ignored_pointers(pointer: str, left: str | None) -> None:
    """A pointer leaves out the one value that it names, places in arrays kept, and nothing if it names none (`left` None)."""
    body = b'{"at":0,"list":[1,{"at":2,"x":3}],"obj":{"":4,"a/b":5,"m~n":6}}'
    assert canonicalise(body, (pointer,)) == (canonicalise(body) if left is None else left.encode())


POINTERS = ("/a", "/a/0", "/a/1/b", "/b", "/b/a", "/0", "")


@given(values, st.dictionaries(st.sampled_from("ab0"), values, max_size=3), st.lists(st.sampled_from(POINTERS), max_size=3, unique=True))
def test_order_of_pointers_does_not_matter(inner: Json, members: dict[str, Json], pointers: list[str]) -> None:
    """A route's pointers are a set: whatever their order, the same form."""
    body = json.dumps(members | {"a": [inner, {"b": inner}]}).encode()
    assert len({canonicalise(body, order) for order in permutations(pointers)}) == 1


@given(values, values)
def test_ignored_values_do_not_matter(one: Json, other: Json) -> None:
    """Two bodies that differ only in an ignored value, or in its absence, share a form; with another member changed they do not."""
    bodies = [{"amount": 1, "at": one}, {"at": other, "amount": 1}, {"amount": 1}]
    assert {canonicalise(json.dumps(body).encode(), ("/at",)) for body in bodies} == {b'{"amount":1}'}
    assert canonicalise(json.dumps({"amount": 2, "at": one}).encode(), ("/at",)) == b'{"amount":2}'


def test_places_in_arrays_are_kept() -> None:
    """[1, ignored] and [ignored, 1] are different operations."""
    assert canonicalise(b"[1,2]", ("/1",)) != canonicalise(b"[2,1]", ("/0",))


@pytest.mark.parametrize("pointer", ["a", "a/b", "~0", "/~", "/a~2", "/a~"])
def test_what_is_no_pointer(pointer: str) -> None:
    """A text that is no JSON pointer is refused with a sentence that says how one is written."""
    with pytest.raises(ValueError, match="JSON pointer"):
        split_pointer(pointer)


@given(st.lists(texts, min_size=1, max_size=4))
def test_pointers_split_into_their_tokens(tokens: list[str]) -> None:
    """Escaping tokens and splitting the pointer gives them back."""
    assert split_pointer("".join("/" + token.replace("~", "~0").replace("/", "~1") for token in tokens)) == tokens


def test_without_names_the_whole() -> None:
    """The empty pointer names the whole text."""
    assert without({"a": 1}, "") is None
