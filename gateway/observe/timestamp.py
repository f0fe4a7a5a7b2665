"""Instants as logs write them."""

import time
from functools import lru_cache


def rfc3339(seconds: float) -> str:
    """Seconds since the epoch as RFC 3339 in UTC with milliseconds, cut off rather than rounded."""
    return instant(int(seconds * 1000))


@lru_cache(maxsize=4)
def instant(milliseconds: int) -> str:
    """As `rfc3339`. The requests of a busy process share it."""
    return f"{_second(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"


@lru_cache(maxsize=2)
def _second(whole: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))


epoch_seconds = time.time  # noqa: TID251 - timestamps of logs and metrics are the wall clock's
"""The present instant. The wall clock is read here and only here: for people's eyes, never for a decision."""
