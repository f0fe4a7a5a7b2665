"""What a person is shown of texts that strangers wrote."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.visible import visible


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("order-1", "order-1"),
        ("Zahlung über 5 €", "Zahlung über 5 €"),
        ("paid\u202etnuoma", r"paid\u202etnuoma"),
        ("a\u200bb", r"a\u200bb"),
        ("a\x1b[31m", r"a\x1b[31m"),
        ("\ufeffa\x85", r"\ufeffa\x85"),
        ("a\u00a0b", r"a\xa0b"),
        ("line\none", r"line\none"),
        ("\ud800", r"\ud800"),
    ],
)
def test_what_is_not_seen_is_shown(text: str, seen: str) -> None:
    assert visible(text) == seen


@given(st.text(st.characters(codec=None)), st.sampled_from(["", "\n\t"]))
def test_nothing_that_misleads_is_left(text: str, keep: str) -> None:
    """No control, no mark of direction, no space without width; and what can be seen stays as it is, in its place."""
    shown = visible(text, keep)
    assert all(unicodedata.category(one) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} for one in shown if one not in keep)
    assert [one for one in text if one.isprintable()] == [one for one in text if one in shown and one.isprintable()]
    assert visible(shown, keep) == shown
