"""Equal requests of one caller under different keys, close together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.duplicates import Duplicates


def test_two_keys_for_one_request() -> None:
    """The second key within the window is noticed, and so is a return of the first; the same key again, by itself, never is."""
    found = Duplicates(10.0)
    assert not found.seen("s", b"f", b"k1", 0.0)
    assert not found.seen("s", b"f", b"k1", 1.0)
    assert found.seen("s", b"f", b"k2", 2.0)
    assert found.seen("s", b"f", b"k1", 3.0)


def test_others_do_not_count() -> None:
    """Another caller, or another request, is no duplicate; scope and fingerprint cannot be mistaken for each other."""
    found = Duplicates(10.0)
    assert not found.seen("s", b"f", b"k1", 0.0)
    assert not found.seen("t", b"f", b"k2", 0.0)
    assert not found.seen("s", b"g", b"k3", 0.0)
    assert not found.seen("sf", b"", b"k4", 0.0)
    assert not found.seen("", b"sf", b"k5", 0.0)


def test_the_window_slides() -> None:
    """What counts is how long ago the other key was seen last."""
    found = Duplicates(10.0)
    assert not found.seen("s", b"f", b"k1", 0.0)
    assert not found.seen("s", b"f", b"k1", 8.0)
    assert found.seen("s", b"f", b"k2", 18.0)
    assert not found.seen("s", b"f", b"k2", 28.5)
    assert found.seen("s", b"f", b"k1", 28.5)


def test_memory_is_bounded() -> None:
    """Beyond its capacity it forgets what was seen longest ago, not what is in use."""
    found = Duplicates(1e9, capacity=3)
    for at in range(100):
        found.seen("s", b"kept", b"k", float(at))
        found.seen("s", b"f%d" % at, b"k", float(at))
        assert len(found) <= 3
    assert found.seen("s", b"kept", b"other", 100.0)
    assert not found.seen("s", b"f0", b"other", 100.0)


def test_memory_is_given_back() -> None:
    """What is outside the window goes as new requests come, well before the capacity is used up."""
    found = Duplicates(1.0, capacity=10_000)
    for index in range(1000):
        found.seen("s", b"%d" % index, b"k", 0.0)
    for index in range(500):
        found.seen("s", b"new", b"k", 2.0 + index / 1e6)
    assert len(found) == 1


@pytest.mark.parametrize(("window", "capacity"), [(0.0, 1), (-1.0, 1), (1.0, 0)])
def test_a_window_has_a_length(window: float, capacity: int) -> None:
    """A detector that can see nothing is a mistake."""
    with pytest.raises(ValueError, match="window"):
        Duplicates(window, capacity)


steps = st.lists(
    st.tuples(st.sampled_from(["s", "t"]), st.sampled_from([b"f", b"g"]), st.sampled_from([b"1", b"2", b"3"]), st.integers(0, 6))
)


@given(steps)
def test_as_if_all_were_remembered(steps: list[tuple[str, bytes, bytes, int]]) -> None:
    """As long as its capacity lasts, it answers as if it remembered every request there ever was."""
    found, log, now = Duplicates(5.0), list[tuple[str, bytes, bytes, float]](), 0.0
    for scope, fingerprint, key, pause in steps:
        now += pause
        want = any((scope, fingerprint) == past[:2] and key != past[2] and now - past[3] <= 5.0 for past in log)
        assert found.seen(scope, fingerprint, key, now) == want
        log.append((scope, fingerprint, key, now))
