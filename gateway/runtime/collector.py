"""The garbage collector, told what a gateway is: much that stays, and little that refers to itself."""

import gc

THRESHOLD = 20_000
"""Allocations between two young collections: several hundred requests' worth."""


def look_seldom() -> None:
    """At first, before the imports: what they make stays, and Python would look at it two hundred times, a tenth of a start."""
    gc.set_threshold(THRESHOLD, 20, 20)


def settle() -> None:
    """At the end of a start: the collector never looks again at objects that live as long as the process, and looks less often for what
    a request leaves behind.
    """
    gc.collect()
    gc.freeze()
    look_seldom()
