"""Text as a person is to see it. Pure.

Keys, paths, reasons and names come from strangers. A character that is not seen, or that changes how others are seen (controls, marks of
direction such as U+202E, spaces without width), would let one key look like another, or a line of a terminal lie about itself.
"""


def visible(text: str, keep: str = "") -> str:
    """The text, in which each character that Unicode does not count as printable stands escaped as Python writes it, but for
    those in `keep`. Linear.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else one.encode("unicode_escape", "replace").decode("ascii") for one in text)
