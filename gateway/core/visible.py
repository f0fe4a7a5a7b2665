"""Text as a person is to see it. Pure.

Keys, paths, reasons and names come from strangers. A character that is not seen, or that changes how others are seen (controls, marks of
direction such as U+202E, spaces without width, letters without a glyph), would let one key look like another, or a line of a terminal lie
about itself.
"""

import re

_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U0001d159\U000e0100-\U000e01ef]")
"""What is printable to Unicode, and draws nothing: fillers of Hangul, vowels that are not written, selectors of variants, empty Braille."""


def is_visible(text: str) -> bool:
    """Whether each character is seen. Linear."""
    return text.isprintable() and (text.isascii() or _BLANK.search(text) is None)


def visible(text: str, keep: str = "") -> str:
    """The text, in which each character that is not seen stands escaped as Python writes it, but for those in `keep`. Linear."""
    if is_visible(text):
        return text
    return "".join(one if one in keep or is_visible(one) else _escaped(one) for one in text)


def _escaped(one: str) -> str:
    return one.encode("unicode_escape", "replace").decode("ascii")
