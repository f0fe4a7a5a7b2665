"""The fixtures of a rolling upgrade."""

from tests.support.stack import upstream

__all__ = ["upstream"]
