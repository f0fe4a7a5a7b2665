"""What an operator's change comes to."""

import datetime as dt
from dataclasses import dataclass
from typing import TypeAlias

from gateway.ports.reconciliation import Listed


@dataclass(frozen=True, slots=True)
class Done:
    """It is committed. `now` is the record as it was read right after, None if it is gone.

    `redis_wait` is how many seconds Redis may still tell otherwise, at most: 0.0 if it has acknowledged, None if there is no Redis or the
    change is none that it could contradict.
    """

    now: Listed | None
    redis_wait: float | None = None


@dataclass(frozen=True, slots=True)
class NotFound:
    """There is no such record, or none any more."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Nothing was changed: the record, which is `now` so, does not allow it. `why` is a sentence for people."""

    now: Listed
    why: str


@dataclass(frozen=True, slots=True)
class TooEarly:
    """Nothing was changed: until the instant `until` the upstream may still be at it, so that *not executed* cannot be said."""

    until: dt.datetime
    now: Listed


Changed: TypeAlias = Done | NotFound | Conflict | TooEarly
