"""What a person is shown of texts that strangers wrote."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.visible import is_visible, visible


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
        ("ord\u3164er", r"ord\u3164er"),
        ("o\ufe0frder\U000e0101", r"o\ufe0frder\U000e0101"),
        ("e\u0301t\u00e9", "e\u0301t\u00e9"),
    ],
)
def test_what_is_not_seen_is_shown(text: str, seen: str) -> None:
    assert visible(text) == seen


@given(st.text(st.characters(codec=None)), st.sampled_from(["", "\n\t"]))
def test_nothing_that_misleads_is_left(text: str, keep: str) -> None:
    """No control, no mark of direction, no space without width; and what can be seen stays as it is, in its place."""
    shown = visible(text, keep)
    assert all(unicodedata.category(one) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} for one in shown if one not in keep)
    assert [one for one in text if is_visible(one)] == [one for one in text if one in shown and is_visible(one)]
    assert visible(shown, keep) == shown


# Default_Ignorable_Code_Point of Unicode 16, without what Python counts as unprintable, and characters whose glyph is empty.
IGNORABLE = ((0x34F, 0x34F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0))
SELECTORS, EMPTY = (0xE0100, 0xE01EF), ((0x2800, 0x2800), (0x1D159, 0x1D159))


@pytest.mark.parametrize(("first", "last"), [*IGNORABLE, SELECTORS, *EMPTY])
def test_what_draws_nothing_is_not_seen(first: int, last: int) -> None:
    """Though Unicode counts it as a letter, a mark or a symbol: two texts that differ in it would look alike."""
    assert not any(is_visible(chr(code)) for code in range(first, last + 1))
