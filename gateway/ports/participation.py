"""The port of upstreams that take part: recovery points, and what the authority is to know of their routes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.core.attempt_token import AttemptToken
from gateway.core.recovery_point import RecoveryPoint
from gateway.ports.store import Retention


@dataclass(frozen=True, slots=True)
class Participant:
    """A route whose upstream takes part. `lease` is how long a point that is told keeps the attempt's lease alive, in seconds. `co_commit`:
    the upstream may complete records itself, with answers of at most `longest_answer` bytes, which are kept as `retention` says.
    """

    route_id: str
    lease: float
    retention: Retention
    longest_answer: int
    co_commit: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an attempt has come. `lease_left` is in seconds, on the authority's clock."""

    attempt: int
    point: RecoveryPoint | None
    lease_left: float


class Participation(Protocol):
    """The authority's part. All methods raise `StoreUnavailable` and no other error."""

    async def advance(self, token: AttemptToken, point: RecoveryPoint) -> Progress | None:
        """Keep how far the attempt has come, with the record and in its history, and renew its lease. None: superseded. Only
        the owner of an `in_progress` record that is not observed is not. A repetition of the same point adds no line to the history.
        """
        ...

    async def progress(self, token: AttemptToken) -> Progress | None:
        """How far the record has come, with this attempt or those before it. None as for `advance`. Changes nothing."""
        ...

    async def register(self, participants: Sequence[Participant]) -> None:
        """Let the authority know of these routes. What it knew of others stays."""
        ...
