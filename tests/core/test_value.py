"""Values that the type checker keeps frozen."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.value import value


@value
class Pair:
    """An example."""

    first: int
    second: str = ""


def test_the_type_checker_refuses_an_assignment() -> None:
    """If it did not, it would call the comment unused, and the checks would fail."""
    pair = Pair(1)
    pair.first = 2  # type: ignore[misc]  # what this test is about
    with pytest.raises(AttributeError):
        pair.third = 3  # type: ignore[attr-defined]  # as above


pairs = st.builds(Pair, st.integers(0, 2), st.sampled_from(["", "a"]))


@given(pairs, pairs)
def test_equal_fields_make_equal_values(one: Pair, other: Pair) -> None:
    """As of a frozen dataclass: compared and hashed by their fields, matched by them, and copied with others."""
    assert (one == other) == ((one.first, one.second) == (other.first, other.second))
    assert one != other or hash(one) == hash(other)
    assert replace(one, first=other.first, second=other.second) == other
    match one:
        case Pair(first, second):
            assert Pair(first, second) == one
