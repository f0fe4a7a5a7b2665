"""The port of accepted work: what the gateway has promised to run, and has not sent yet. It belongs to `gateway.ports`.

*Pending* means that the record lasts and that nothing of its request was sent. What a process does about a pending record is one atomic
statement each, fenced by the state; what the owner of an attempt does, by its owner token, as in `gateway.ports.Store`.

All methods raise `StoreUnavailable` and no other error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID

from gateway.core.model import Fingerprint, Lease, RecordKey, Status, StoredResponse, Terms, Tombstone
from gateway.ports.store import Parked, Promise, Transition

__all__ = ["Acceptance", "Ended", "Parked", "Promise", "Standing", "Taken"]


@dataclass(frozen=True, slots=True)
class Taken:
    """A pending record that a process has taken to run it: its lease, and all that the attempt needs of the request.

    `waited`: seconds from the acceptance to the moment at which it was taken; `left`: those up to `pending_until`.
    """

    lease: Lease
    route_id: str
    request_id: str
    method: str
    target: bytes
    fingerprint: Fingerprint
    captured: Mapping[str, str]
    correlation: str | None
    sealed: bytes
    waited: float
    left: float


class Ended(NamedTuple):
    """A record that was pending for too long."""

    route_id: str
    request_id: str


@dataclass(frozen=True, slots=True)
class Standing:
    """How an operation stands, for its client. `created_at_us` is on the store's clock, in microseconds since the epoch; `due_in` are
    the seconds until a pending record may be run, `reconcile_in` those until the next look at one in doubt.
    """

    key: RecordKey
    record_id: UUID
    version: int
    status: Status
    attempt: int
    created_at_us: int
    recovery_point: str | None
    lease_live: bool
    expired: bool
    dead_lettered: bool
    due_in: float | None
    reconcile_in: float | None


class Acceptance(Protocol):
    """The authority's part in accepted work."""

    async def accept(self, lease: Lease, promise: Promise) -> Transition:
        """The promise is made: the record of this attempt is accepted from now on. It stays `in_progress`, or `unknown`
        if its attempt was quicker. Only for the owner.

        ALREADY if it was accepted before, by this attempt or an earlier one.
        """
        ...

    async def take(self, terms: Terms, limit: int, owners: Sequence[bytes], *, doubtful: float | None = None) -> Sequence[Taken]:
        """Take at most `limit` pending records of the route that are due: -> `in_progress` (attempt + 1), each under one of `owners`, fresh
        tokens, with a lease.

        Of each principal the one that is due first, then of each the second, and so on; among equals, the longest due.
        It skips rows that other transactions have locked, and may take fewer than there are. `doubtful`: accepted
        records in doubt instead, no dead letters, of lives not older than so many seconds, whose `doubtful_until` has
        passed; each lease is a `reexecution`.
        """
        ...

    async def give_back(self, owners: Sequence[bytes]) -> int:
        """-> `pending`, due now, for each of these tokens that has taken a pending record (`take`) of which nobody knows: its reply was
        lost. Nothing was sent under any of them, and nothing will be. Not for tokens of records in doubt. Returns how many.
        """
        ...

    async def abandon(self, limit: int, answer: StoredResponse) -> Sequence[Ended]:
        """`pending` -> `completed` with this answer, for at most `limit` records whose `pending_until` has passed."""
        ...

    async def cancel(self, standing: Standing, answer: StoredResponse) -> Transition:
        """`pending` -> `completed` with this answer, for its client. STALE if it is pending no more, or another life of its key."""
        ...

    async def standing(self, key: RecordKey) -> Standing | None:
        """How the operation stands; None if there is no record."""
        ...

    async def tombstone(self, key: RecordKey) -> Tombstone | None:
        """What remembers a record of this key. Where none was found before, a reaper may have come between."""
        ...
