"""The results of an operator's change."""

import datetime as dt
from dataclasses import dataclass
from typing import TypeAlias

from gateway.ports.approvals import Proposal
from gateway.ports.reconciliation import Listed


@dataclass(frozen=True, slots=True)
class Done:
    """The change is committed. `now` is the record as read right after, None if it is gone.

    `redis_wait` is for how many seconds Redis may still answer otherwise, at most: 0.0 if it has acknowledged, None
    without Redis or if it cannot contradict the change. `memory_wait` is for how many seconds gateways may still replay it from their
    own memory, at most; None if they cannot.
    """

    now: Listed | None
    redis_wait: float | None = None
    memory_wait: float | None = None


@dataclass(frozen=True, slots=True)
class NotFound:
    """There is no such record any more, or never was."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Nothing was changed: the record, as it is `now`, does not allow it. `why` is a sentence for people."""

    now: Listed
    why: str


@dataclass(frozen=True, slots=True)
class TooEarly:
    """Nothing was changed: up to the instant `until` the upstream may still execute, so *not executed* cannot be a
    verdict.
    """

    until: dt.datetime
    now: Listed


@dataclass(frozen=True, slots=True)
class Proposed:
    """The verdict waits for another user, who confirms or rejects it. The record is as it was."""

    proposal: Proposal
    now: Listed


Changed: TypeAlias = Done | NotFound | Conflict | TooEarly | Proposed
