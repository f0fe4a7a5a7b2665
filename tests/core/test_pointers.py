"""JSON pointers (RFC 6901) with wildcards: what is ignored, and what alone is covered."""

import json
from itertools import permutations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.canonical import canonicalise
from gateway.core.pointers import NOTHING, Json, Pointer, at, compile_pointer, matches, selected, split_pointer, without
from tests.core.jsons import texts, values


def compiled(*pointers: str) -> tuple[Pointer, ...]:
    return tuple(map(compile_pointer, pointers))


def ignoring(body: Json, *pointers: str) -> Json:
    """What is left of the body in a canonical form."""
    form = canonicalise(json.dumps(body).encode(), compiled(*pointers))
    assert form is not None
    return json.loads(form)


def covering(body: Json, *pointers: str) -> bytes:
    form = canonicalise(json.dumps(body).encode(), (), compiled(*pointers))
    assert form is not None
    return form


# ---- ignored


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
        ("/obj/*", '{"at":0,"list":[1,{"at":2,"x":3}],"obj":{}}'),
        ("/list/*", '{"at":0,"list":[null,null],"obj":{"":4,"a/b":5,"m~n":6}}'),
        ("/list/*/at", '{"at":0,"list":[1,{"x":3}],"obj":{"":4,"a/b":5,"m~n":6}}'),
        ("/*/1/x", '{"at":0,"list":[1,{"at":2}],"obj":{"":4,"a/b":5,"m~n":6}}'),
        ("/*/*", '{"at":0,"list":[null,null],"obj":{}}'),
        ("/*", "{}"),
        ("", "null"),
        ("/", None),
        ("/absent", None),
        ("/absent/*", None),
        ("/at/deeper", None),
        ("/at/*", None),
        ("/*/*/*/*", None),
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
    """A pointer leaves out the values that it names, places in arrays kept, and nothing if it names none (`left` None)."""
    body = b'{"at":0,"list":[1,{"at":2,"x":3}],"obj":{"":4,"a/b":5,"m~n":6}}'
    assert canonicalise(body, compiled(pointer)) == (canonicalise(body) if left is None else left.encode())


POINTERS = ("/a", "/a/0", "/a/1/b", "/b", "/b/a", "/0", "", "/*", "/a/*", "/a/*/b", "/*/1", "/*/*/*")


@given(values, st.dictionaries(st.sampled_from("ab0"), values, max_size=3), st.lists(st.sampled_from(POINTERS), max_size=3, unique=True))
def test_order_of_pointers_does_not_matter(inner: Json, members: dict[str, Json], pointers: list[str]) -> None:
    """A route's pointers are a set: whatever their order, the same form, ignored or selected."""
    body = json.dumps(members | {"a": [inner, {"b": inner}]}).encode()
    orders = [compiled(*order) for order in permutations(pointers)]
    assert len({canonicalise(body, order) for order in orders}) == 1
    assert len({canonicalise(body, (), order) for order in orders}) == 1


@given(values, values)
def test_ignored_values_do_not_matter(one: Json, other: Json) -> None:
    """Two bodies that differ only in an ignored value, or in its absence, share a form; with another member changed they do not."""
    bodies = [{"amount": 1, "at": one}, {"at": other, "amount": 1}, {"amount": 1}]
    assert [ignoring(body, "/at") for body in bodies] == [{"amount": 1}] * 3
    assert ignoring({"amount": 2, "at": one}, "/at") == {"amount": 2}


@given(st.lists(st.tuples(values, values, values), min_size=1, max_size=3))
def test_ignored_values_in_every_element(items: list[tuple[Json, Json, Json]]) -> None:
    """A wildcard reaches each element of an array, and each member of an object, and nothing beside what it names."""
    one = [{"sku": sku, "at": at} for sku, at, _ in items]
    other = [{"sku": sku, "at": at} for sku, _, at in items]
    want = json.loads(json.dumps([{"sku": sku} for sku, _, _ in items]))
    for body in (one, other):
        assert ignoring({"items": body}, "/items/*/at") == ignoring({"items": want})
        named = dict(zip("xyz", body, strict=False))
        assert ignoring(named, "/*/at") == ignoring(dict(zip("xyz", want, strict=False)))


def test_a_wildcard_is_what_each_index_says() -> None:
    """A wildcard leaves out what a pointer for each index and name would."""
    body = {"a": [{"b": 1, "c": 2}, 3, [4], {"b": None}], "*": {"b": 5}}
    assert ignoring(body, "/a/*/b") == ignoring(body, *(f"/a/{at}/b" for at in range(5)))
    assert ignoring(body, "/*/0") == ignoring(body, "/a/0", "/*/0")


def test_a_star_among_other_letters_is_a_letter() -> None:
    """Only a segment that is a star alone is a wildcard; without wildcards, as version 1 reads them, it is a name."""
    body = {"a*": 1, "**": 2, "*": 3, "b": 4}
    assert ignoring(body, "/a*", "/**") == {"*": 3, "b": 4}
    assert without(dict(body), compile_pointer("/*", wildcards=False)) == {"a*": 1, "**": 2, "b": 4}
    assert without(dict(body), compile_pointer("/*")) == {}


def test_places_in_arrays_are_kept() -> None:
    """[1, ignored] and [ignored, 1] are different operations."""
    assert ignoring([1, 2], "/1") != ignoring([2, 1], "/0")


# ---- selected

ORDER = {"id": 7, "items": [{"sku": "a", "n": 1}, {"n": 2}, 5, {"sku": None, "n": {"sku": 3}}], "total": {"amount": 10, "currency": "EUR"}}


@pytest.mark.parametrize(
    ("pointers", "covered"),
    [
        (["/id"], '{"id":7}'),
        (["/total/amount", "/id"], '{"id":7,"total":{"amount":10}}'),
        (["/total", "/total/amount"], '{"total":{"amount":10,"currency":"EUR"}}'),
        (["/items/*/sku"], '{"items":[{"sku":"a"},null,null,{"sku":null}]}'),
        (["/items/0/sku"], '{"items":[{"sku":"a"}]}'),
        (["/items/1"], '{"items":[null,{"n":2}]}'),
        (["/items/0/*"], '{"items":[{"n":1,"sku":"a"}]}'),
        (["/items/2/sku"], ""),
        (["/items/01", "/items/-", "/items/9", "/absent", "/id/x", "/"], ""),
        (["/*/amount"], '{"total":{"amount":10}}'),
        (["/*"], None),
        ([""], None),
        (["", "/id"], None),
    ],
)
def test_selected_pointers(pointers: list[str], covered: str | None) -> None:
    """What a pointer names is covered where it stands, and nothing else; None for all of it."""
    assert covering(ORDER, *pointers) == (canonicalise(json.dumps(ORDER).encode()) if covered is None else covered.encode())


def test_ignored_comes_first() -> None:
    """What is ignored is not covered, whatever selects it."""
    body = json.dumps(ORDER).encode()
    assert canonicalise(body, compiled("/total/amount"), compiled("/total", "/id")) == b'{"id":7,"total":{"currency":"EUR"}}'
    assert canonicalise(body, compiled("/id"), compiled("/id")) == b""


@given(values, values, values)
def test_nothing_else_counts(one: Json, other: Json, amount: Json) -> None:
    """Bodies that agree in what is selected share a form, whatever else they hold; absent is not null."""
    forms = {covering(body, "/amount") for body in ({"amount": amount, "x": one}, {"y": other, "amount": amount}, {"amount": amount})}
    assert len(forms) == 1
    assert covering({"x": one}, "/amount") == b""
    assert forms != {b""}


@given(values, values)
@example([1, None], [1])
@example(None, [])
def test_what_is_selected_counts(one: Json, other: Json) -> None:
    """Two different selected values never share a form, wherever a pointer finds them."""
    same = canonicalise(json.dumps(one).encode()) == canonicalise(json.dumps(other).encode())
    for pointer in ("/a", "/*"):
        assert (covering({"a": one}, pointer) == covering({"a": other}, pointer)) == same
    for pointer in ("/0", "/*"):
        assert (covering([one], pointer) == covering([other], pointer)) == same


def places(value: Json, pointer: Pointer, path: str = "") -> list[tuple[str, str]]:
    """Each place that the pointer names, with the text of what stands there: another way to say what is selected."""
    if not pointer:
        return [(path, json.dumps(value, sort_keys=True))]
    if isinstance(value, dict):
        inner = [(name, item) for name, item in value.items() if pointer[0] in {None, name}]
        return [found for name, item in inner for found in places(item, pointer[1:], f"{path}.{name!r}")]
    if isinstance(value, list):
        elements = [(at, item) for at, item in enumerate(value) if pointer[0] in {None, str(at)}]
        return [found for at, item in elements for found in places(item, pointer[1:], f"{path}[{at}]")]
    return []


small = st.recursive(
    st.none() | st.integers(0, 1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "0", "1", "*"]), inner, max_size=3),
    max_leaves=8,
)
segments = st.sampled_from(["a", "b", "0", "1", "*"])
pointers = st.lists(st.lists(segments, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names)), min_size=1, max_size=3)


@given(small, small, pointers)
@example([None, 1], [0, 1], ["/1"])
@example({"0": 1}, [1], ["/*"])
@example([[None], 1], [{}, 1], ["/0/a", "/1"])
def test_selected_parts_are_equal_if_the_same_places_hold_the_same(one: Json, other: Json, pointers: list[str]) -> None:
    """Two bodies share a form exactly if each place that the pointers name is in both, and holds the same."""
    ready = compiled(*pointers)
    found = [{place for pointer in ready for place in places(value, pointer)} for value in (one, other)]
    assert (covering(one, *pointers) == covering(other, *pointers)) == (found[0] == found[1])


def test_nothing_is_selected_of_a_scalar() -> None:
    """A pointer into a number or a text names nothing."""
    assert selected(5, compiled("/a", "/0")) is NOTHING
    assert selected(5, compiled("")) == 5


# ---- pointers


@pytest.mark.parametrize("pointer", ["a", "a/b", "~0", "/~", "/a~2", "/a~", "*"])
def test_what_is_no_pointer(pointer: str) -> None:
    """A text that is no JSON pointer is refused with a sentence that says how one is written."""
    with pytest.raises(ValueError, match="JSON pointer"):
        split_pointer(pointer)
    with pytest.raises(ValueError, match="JSON pointer"):
        compile_pointer(pointer)


@given(st.lists(texts, min_size=1, max_size=4))
def test_pointers_split_into_their_segments(names: list[str]) -> None:
    """Escaping names and splitting the pointer gives them back."""
    assert split_pointer("".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names)) == names


def test_without_names_the_whole() -> None:
    """The empty pointer names the whole text."""
    assert without({"a": 1}, ()) is None


@given(small, st.lists(segments, max_size=3))
def test_matches_are_found_at_the_places_that_the_pointer_names(value: Json, names: list[str]) -> None:
    """A wildcard names every member or element, in order; without one, a pointer matches what `at` finds, or nothing."""
    pointer = compile_pointer("".join(f"/{name}" for name in names))
    found = matches(value, pointer)
    if None not in pointer:
        one = at(value, names)
        assert found == ([] if one is NOTHING else [one])
    elif pointer == (None,):
        assert found == list(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
