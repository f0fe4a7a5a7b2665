"""Heads that are alike but for a few values: what is found by their shape is what stands in them."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.field_names import STEER, VARY
from gateway.core.head_shapes import GLANCES, LONGEST, SHAPES, HeadShapes, any_of

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: %b\r\nAccept: */*\r\nContent-Length: %b\r\n\r\n"
WORDS = st.lists(st.from_regex(rb"[a-z]{1,3}(-[a-z]{1,2})?", fullmatch=True), max_size=8)


def learnt(*heads: bytes) -> HeadShapes[bytes]:
    """Each head is known by itself."""
    shapes = HeadShapes[bytes](VARY)
    for head in heads:
        assert shapes.glance(head) is None
        glanced = shapes.glance(head)
        assert glanced is not None
        shapes.keep(glanced[0], head)
    return shapes


@given(WORDS, WORDS)
@example([b"a", b"ab", b"abc", b"b"], [b"", b"ab-c"])
def test_a_pattern_for_names_matches_these_in_any_case_and_no_others(names: list[bytes], others: list[bytes]) -> None:
    pattern = re.compile(any_of(names))
    for name in (*names, *others):
        for spelled in (name, name.upper(), name.title()):
            assert (pattern.fullmatch(spelled) is not None) == (name in names or (not names and name == b""))


@pytest.mark.parametrize("value", [b"k", b"a key", b'"quoted"', b"\x7e" * 200])
def test_a_head_is_found_by_its_shape_with_the_values_that_vary(value: bytes) -> None:
    first = HEAD % (b"1", b"2")
    found = learnt(first).find(HEAD % (value, b"17"))
    assert found is not None
    cut, values = found
    assert (cut.known, values) == (first, [value, b"17"])
    assert cut.size == len(HEAD % (value, b"17"))
    assert learnt(first).find(HEAD % (value, b"42"), cut) == (cut, (value, b"42"))


@pytest.mark.parametrize(
    "head",
    [
        HEAD.replace(b"*/*", b"*/ *") % (b"1", b"2"),
        HEAD.replace(b"POST", b"PUT ") % (b"1", b"2"),
        HEAD.replace(b"Accept", b"accept") % (b"1", b"2"),
        HEAD.replace(b"Key:", b"Key :") % (b"1", b"2"),
        HEAD.replace(b"Idempotency", b"idempotency") % (b"1", b"2"),
        HEAD % (b"\x80", b"2"),
        HEAD % (b"\t", b"2"),
        HEAD % (b"1\r\n 2", b"2"),
        HEAD % (b"1\rX", b"2"),
        HEAD % (b"1\nX: y", b"2"),
        HEAD % (b"1\r\nX: y", b"2"),
        HEAD % (b"", b"2"),
    ],
)
def test_another_head_is_not_found(head: bytes) -> None:
    """Whatever differs outside of a value, or makes of a value something that a parser has to judge."""
    shapes = learnt(HEAD % (b"1", b"2"))
    known = shapes.find(HEAD % (b"1", b"2"))
    assert known is not None
    assert shapes.find(head) is None
    assert shapes.find(head, known[0]) is None


@given(st.lists(st.from_regex(rb"[ -~\x80]{1,6}", fullmatch=True), min_size=2, max_size=2), st.binary(min_size=1, max_size=2), st.data())
def test_a_cut_gives_the_values_that_the_pattern_finds(values: list[bytes], stray: bytes, data: st.DataObject) -> None:
    """Of any bytes of its length: the values of the same shape, or none."""
    shapes = learnt(HEAD % (b"1", b"2"))
    size = [len(value) for value in values]
    found = shapes.find(HEAD % (b"k" * size[0], b"1" * size[1]))
    assert found is not None
    head = bytearray(HEAD % tuple(values))
    at = data.draw(st.integers(0, len(head) - len(stray)))
    head[at : at + len(stray)] = stray
    alone, after = shapes.find(bytes(head)), shapes.find(bytes(head), found[0])
    assert (None if after is None else (after[0].known, tuple(after[1]))) == (None if alone is None else (alone[0].known, tuple(alone[1])))


def test_a_shape_is_remembered_when_it_comes_again() -> None:
    """What comes once costs no memory but a number."""
    shapes = HeadShapes[int](VARY)
    assert shapes.glance(HEAD % (b"1", b"2")) is None
    assert shapes.glance(HEAD % (b"3", b"4")) is not None
    assert shapes.glance((HEAD % (b"1", b"2")).replace(b"*/*", b"x")) is None


def test_what_clients_invent_does_not_fill_the_memory() -> None:
    """Neither by their number, nor by their length; and what is forgotten is learnt again."""
    shapes = HeadShapes[int](VARY)
    for number in range(2 * GLANCES):
        shapes.glance(b"GET /%d HTTP/1.1\r\n\r\n" % number)
    assert len(shapes._glances) <= GLANCES
    for number in range(2 * SHAPES):
        shapes.keep((b"%d" % number,), number)
    assert len(shapes._shapes) <= SHAPES
    long = HEAD.replace(b"*/*", b"x" * LONGEST) % (b"1", b"2")
    assert [shapes.glance(long), shapes.glance(long)] == [None, None]


@pytest.mark.parametrize("name", [*sorted(STEER), b"x-forwarded-for", b"x-forwarded-anything", b"x_forwarded_for"])
def test_a_field_that_steers_never_varies(name: bytes) -> None:
    """Not even where a route says that it holds keys."""
    assert name not in VARY
    assert not HeadShapes[int]({name, b"x-key"}).varies(name)


def test_other_fields_vary_from_now_on() -> None:
    """The map of routes was changed. What was known is forgotten."""
    shapes = learnt(HEAD % (b"1", b"2"))
    shapes.vary({b"accept"})
    assert shapes.find(HEAD % (b"1", b"2")) is None
    assert [shapes.varies(name) for name in (b"accept", b"idempotency-key")] == [True, False]
