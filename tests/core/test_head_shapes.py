"""Heads that are alike but for a few values: what is found by their shape is what stands in them."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.field_names import STEER, VARY
from gateway.core.head_shapes import LONGEST, MOST_LINES, HeadShapes, any_of

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: %b\r\nAccept: */*\r\nContent-Length: %b\r\n\r\n"
WORDS = st.lists(st.from_regex(rb"[a-z]{1,3}(-[a-z]{1,2})?", fullmatch=True), max_size=8)


LINES = 4


def learn(shapes: HeadShapes[bytes], head: bytes, lines: int = LINES) -> bool:
    """Let a head come that is known by itself, as a parser would have it. Whether it is remembered now."""
    if shapes.find(head, 0) is not None:
        return True
    glanced = shapes.glance(head, lines)
    if glanced is not None:
        shapes.keep(glanced[0], head, head, lines)
    return glanced is not None


def learnt(*heads: bytes) -> HeadShapes[bytes]:
    shapes = HeadShapes[bytes](VARY)
    for head in heads:
        assert [learn(shapes, head), learn(shapes, head)] == [False, True]
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
    shapes = learnt(first)
    for values in ([value, b"17"], [value, b"42"], [b"k", b"1"]):
        ticket = 0
        for _ in range(3):
            found = shapes.find(HEAD % tuple(values), ticket)
            assert found is not None
            assert (found[0], [*found[1]]) == (first, values)
            ticket = found[2]


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
    known = shapes.find(HEAD % (b"1", b"2"), 0)
    assert known is not None
    assert [shapes.find(head, ticket) for ticket in (0, known[2], 99)] == [None, None, None]


@given(st.lists(st.from_regex(rb"[ -~\x80]{1,6}", fullmatch=True), min_size=2, max_size=2), st.binary(min_size=1, max_size=2), st.data())
def test_a_cut_gives_the_values_that_the_pattern_finds(values: list[bytes], stray: bytes, data: st.DataObject) -> None:
    """Of any bytes of its length: the values of the same shape, or none."""
    shapes = learnt(HEAD % (b"1", b"2"))
    size = [len(value) for value in values]
    found = shapes.find(HEAD % (b"k" * size[0], b"1" * size[1]), 0)
    assert found is not None
    head = bytearray(HEAD % tuple(values))
    at = data.draw(st.integers(0, len(head) - len(stray)))
    head[at : at + len(stray)] = stray
    alone, after = (shapes.find(bytes(head), ticket) for ticket in (0, found[2]))
    assert (None if after is None else (after[0], tuple(after[1]))) == (None if alone is None else (alone[0], tuple(alone[1])))


def test_a_shape_is_remembered_when_it_comes_again() -> None:
    """What comes once costs no memory but a number; nor is a head remembered about which nobody has asked just now."""
    shapes = HeadShapes[bytes](VARY)
    assert not learn(shapes, HEAD % (b"1", b"2"))
    assert not learn(shapes, (HEAD % (b"1", b"2")).replace(b"*/*", b"x"))
    assert shapes.glance(HEAD % (b"1", b"2"), LINES) is None
    assert learn(shapes, HEAD % (b"3", b"4"))


def is_known(shapes: HeadShapes[bytes], head: bytes) -> bool:
    """Also where few heads are looked up."""
    return any(shapes.find(head, 0) is not None for _ in range(10))


def head_of(number: int) -> bytes:
    return (HEAD % (b"1", b"2")).replace(b"*/*", b"%d" % number)


def test_what_clients_invent_does_not_fill_the_memory_nor_drive_out_what_is_used() -> None:
    """Shapes that come twice each, far more than there is room for: the first stay, and what nobody asks for makes room in the end."""
    shapes = HeadShapes[bytes](VARY, room=100_000)
    for number in range(100):
        learn(shapes, head_of(number))
        learn(shapes, head_of(number))
    known = [number for number in range(100) if is_known(shapes, head_of(number))]
    assert 5 < len(known) < 40
    assert known == [*range(len(known))]
    asked, unasked, *_ = shapes._shapes.values()
    for number in range(300_000):
        learn(shapes, head_of(0))
        if learn(shapes, head_of(100 + number % 500)):
            break
    else:
        pytest.fail("what nobody asks for stays")
    assert number > 1000
    assert not is_known(shapes, head_of(1))
    assert is_known(shapes, head_of(0))
    assert shapes._held <= 100_000
    held = shapes._held
    assert not shapes.take(unasked, 10)
    assert shapes._held == held
    assert not asked.gone


@pytest.mark.parametrize("lengths", [range(1, 400)])
def test_values_of_any_lengths_do_not_fill_it_either(lengths: range) -> None:
    """Nor is a ticket good for another head than the one that it was given for."""
    shapes, tickets = learnt(HEAD % (b"1", b"2")), []
    held = shapes._held
    for length in lengths:
        found = shapes.find(HEAD % (b"k" * length, b"2"), 0)
        assert found is not None
        tickets.append(found[2])
    assert shapes._held < held + 12_000
    assert len(set(tickets) - {0}) > 32
    for length, ticket in zip(lengths, tickets, strict=True):
        for other in range(1, 60):
            found = shapes.find(HEAD % (b"k" * other, b"2"), ticket)
            assert found is not None, (length, other)
            assert found[1][0] == b"k" * other


def test_a_head_that_is_too_long_or_has_too_many_lines_is_left_alone() -> None:
    shapes = HeadShapes[bytes](VARY)
    long = HEAD.replace(b"*/*", b"x" * LONGEST) % (b"1", b"2")
    assert not any(learn(shapes, long) for _ in range(3))
    assert not any(learn(shapes, head_of(1), MOST_LINES + 1) for _ in range(3))


def test_where_nothing_comes_again_few_heads_are_looked_up() -> None:
    """And one that does is known soon."""
    shapes = HeadShapes[bytes](VARY)
    for number in range(200):
        learn(shapes, head_of(number))
    looked = 0
    for number in range(200, 280):
        shapes.find(head_of(number), 0)
        looked += shapes._missed is not None
    assert looked <= 10
    assert any(learn(shapes, head_of(1000)) for _ in range(30))
    assert is_known(shapes, head_of(1000))


@pytest.mark.parametrize("name", [*sorted(STEER), b"x-forwarded-host", b"x-forwarded-anything", b"x_forwarded_for"])
def test_a_field_that_steers_never_varies(name: bytes) -> None:
    """Not even where a route says that it holds keys."""
    assert name not in VARY
    assert not HeadShapes[int]({name, b"x-key"}).varies(name)


def test_other_fields_vary_from_now_on() -> None:
    """The map of routes was changed. What was known is forgotten."""
    shapes = learnt(HEAD % (b"1", b"2"))
    found = shapes.find(HEAD % (b"1", b"2"), 0)
    assert found is not None
    shapes.vary({b"accept"})
    assert [shapes.find(HEAD % (b"1", b"2"), ticket) for ticket in (0, found[2])] == [None, None]
    assert [shapes.varies(name) for name in (b"accept", b"idempotency-key")] == [True, False]
