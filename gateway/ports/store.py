"""Records behind one authority: what every store must do. Implementations pass `tests/store/contract` unchanged."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gateway.core.model import Intent, Lease, Record, RecordKey, StoredResponse, Tombstone
from gateway.core.policy import Expired, OnExpired, Policy


class StoreUnavailable(Exception):
    """A store could not be asked, or its answer was lost.

    `may_have_landed` is False only when it is certain that nothing is written and nothing will be: the statement did not reach the store,
    or the store itself said that it undid it. `asked` is False only when nothing of it reached the store, and nothing of
    somebody else's is known to be under its key: then, and only then, nobody else's record can have been in its way. `reason` is a
    closed-set word for metrics: `refused`, `timeout`, `disconnected`, `overloaded`, `not_ready`, `error`, and those of
    `gateway.store.redis.server`.
    """

    def __init__(self, store: str, reason: str, *, may_have_landed: bool, asked: bool | None = None) -> None:
        super().__init__(f"{store}: {reason}")
        self.store = store
        self.reason = reason
        self.may_have_landed = may_have_landed
        self.asked = may_have_landed if asked is None else asked


class Transition(enum.Enum):
    """What a fenced write answers. `STALE` is a normal outcome: the fence (owner, state or version) did not match.

    `MISSING` is the stale case in which there is no such record at all: a statement sent earlier may still be on its way.
    """

    DONE = "done"
    ALREADY = "already"
    STALE = "stale"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Settled:
    """The answer to complete, release or doubt. `expires_at_us` is the record's expiry on the store's clock (microseconds since the epoch),
    given for a complete that is DONE or ALREADY.
    """

    transition: Transition
    expires_at_us: int | None = None


@dataclass(frozen=True, slots=True)
class Retention:
    """What becomes of a record after it has ended, in seconds. It is written down with the record: the reaper knows no route map.

    `seconds`: from the end (completion, release) to expiry. The others count from the expiry, whenever the reaper comes.
    `gone_for`: how long a tombstone then remembers a *completed* record (`on_expired: gone`); None leaves none.
    `keep_for`: how long the whole record is kept in the archive (`expired: keep`), whether the reaper or a new life takes its place; None
    deletes it.
    """

    seconds: float
    gone_for: float | None = None
    keep_for: float | None = None

    @classmethod
    def of(cls, policy: Policy, seconds: float | None = None) -> "Retention":
        """What a route says; `seconds` overrides its own retention."""
        return cls(
            policy.retention if seconds is None else seconds,
            policy.tombstone if policy.on_expired is OnExpired.GONE else None,
            policy.keep_for if policy.expired is Expired.KEEP else None,
        )


@dataclass(frozen=True, slots=True)
class Answered:
    """An attempt that came to an answer."""

    response: StoredResponse
    retention: Retention


@dataclass(frozen=True, slots=True)
class Doubted:
    """An attempt of which nobody knows whether it executed, and why."""

    reason: str


OBSERVED_DOUBT_KEPT = 86400.0
"""Seconds from a doubt to the expiry of an observed record: it guards nothing, and nobody will ever resolve it."""

TOMBSTONE_AFTER = 3600.0
"""The least age, in seconds from its birth, at which a record is reaped that leaves a tombstone.

No reserve that began before the record was born, and so saw neither it nor its tombstone, can still give out a lease then.
"""


class Store(Protocol):
    """Records behind one authority. Every method is one atomic step, on the store's own clock.

    Writes after reserve are fenced by `lease.key` and `lease.owner`; `lease.record_id` is no part of the fence, since a holder whose
    reserve lost its reply does not know it (owner tokens are unique over all records and attempts).

    *Observed records* are those whose last reserve or claim had `intent.observed` (`mode: observe`): the flag is the last taker's. They
    move like others, so that a duplicate can be judged as it would be under `enforce`, but guard nothing unless they are `completed`:

    * an enforcing reserve takes over one that is not `completed`, whatever is under way or in doubt under it (see `reserve`);
    * in doubt, it is no dead letter, and no probe is for it: a reconciler must leave it alone. It expires after `OBSERVED_DOUBT_KEPT`;
    * completed, it is a record like any other: replayed, compared, expired, remembered by a tombstone.

    *Durable.* What a write answers lasts, whatever fails next: its commit has waited for whatever the authority waits for, such as a
    synchronous standby, and with it everything that was committed before. `ALREADY`, `STALE` and a claim that answers None rest on a write
    (they lock the record), too. What a read shows need not last: a commit whose wait was cut short is visible, and a failover takes it
    back. An answer that comes with the word that the wait was cut short counts as lost.

    All methods raise `StoreUnavailable` and no other error. A cancelled call leaves the store consistent: the
    statement landed whole or not at all, and the caller must treat it as one whose reply was lost.
    """

    async def reserve(self, intent: Intent) -> Lease | Record | Tombstone:
        """Make a new `in_progress` record owned by `intent.owner`, or report the record that is there, or the tombstone of one that was.

        Exactly one of any number of concurrent callers gets a `Lease` (attempt 1). A caller that gets a `Record` or a `Tombstone` has
        changed nothing: it neither extends a lease nor touches a fingerprint. An expired record is reported with `expired=True`,
        a lapsed one with `lease_live=False`; what to do about either is `gateway.core.decision`'s business. So is the caller's own, if this
        very statement landed before and its reply was lost: that it is there says nothing of whether it lasts (see *Durable*).

        *Tombstones* are looked for only where there is no record, and only for an intent with `gone_for`: it gets the live one of its key
        and makes nothing. At whatever moment the reaper comes, such an intent sees a completed record or its tombstone, and gets no `Lease`
        while either is there. Any other intent makes a new record; the tombstone stays.

        *Taking over.* If the record is observed and not `completed` (`in_progress` with a live lease or without, `unknown`,
        `failed_retryable`) and `intent.observed` is False, the intent gets a `Lease` on a new life of it: another record id, attempt 1,
        its own fingerprint whatever the old one, nothing of the old reason; observed no more. Exactly one of many does. The former
        owner's writes are stale from then on. An observing intent gets the record as it is.

        Unlike a new record, a takeover whose reply was lost may land although the record was seen in another's hands meanwhile, as with
        `claim`.
        """
        ...

    async def claim(self, found: Record, intent: Intent) -> Lease | None:
        """Take over `found`, which was `failed_retryable` (attempt + 1) or expired (a new record life, attempt 1).

        Fenced by `found.record_id` and `found.version`, and by the state itself: succeeds only while the record is still exactly as
        found (and `failed_retryable` unexpired, or still expired). A retry keeps the record's own fingerprint; a new life takes the
        intent's. The record is observed from then on if `intent.observed`, else not. None: somebody was faster, reserve again.

        With `intent.reexecute` also one that was found `unknown`, is no dead letter, and whose `doubtful_until` has passed
        (attempt + 1, the record's own fingerprint; the lease is a `reexecution`).
        """
        ...

    async def lapse(self, found: Record) -> bool:
        """`in_progress` with a lapsed lease -> `unknown`, reason `lease_expired`. Fenced by record_id, version and the lease itself.

        True: this call did it. False: renewed, settled or lapsed by somebody else meanwhile; look again.
        """
        ...

    async def find(self, key: RecordKey) -> Record | None:
        """The record as it stands, body included, or None. Reads the authority, never a replica. Changes nothing."""
        ...

    async def complete(self, lease: Lease, response: StoredResponse, retention: Retention) -> Settled:
        """-> `completed`, only for the owner of the attempt and from `in_progress`, `unknown` or `failed_retryable`.

        `completed` is immutable: ALREADY if this very owner completed it before (a repeated statement), STALE otherwise; neither changes
        the retention of the first. `expires_at` is now + `retention.seconds`. A response that the store cannot hold is stored without its
        body rather than refused.
        """
        ...

    async def release(self, lease: Lease, reason: str, retention: Retention) -> Settled:
        """-> `failed_retryable`, only for the owner and from `in_progress` or `unknown`: the attempt did not execute.

        STALE where there is evidence that it did (`Reconciliation.attach`): the record is `unknown` then, and due at once.
        """
        ...

    async def doubt(self, lease: Lease, reason: str) -> Settled:
        """-> `unknown`, only for the owner and from `in_progress` (from `unknown`: ALREADY). Sets `reconcile_after`, or `dead_lettered_at`
        when the record is not reconcilable. An observed record gets an `expires_at` and no `dead_lettered_at` instead.
        """
        ...

    async def restore(self, lease: Lease, intent: Intent, end: Answered | Doubted) -> Settled:
        """Put back the record of an attempt whose settle was MISSING, `completed` or `unknown`, with the lease's record id, owner and
        attempt, and the intent's request. `intent` is that of the request, under the lease's own owner.

        DONE if there was no record: exactly one of any number of concurrent callers, reserves included, makes one. Where there is a record
        it is as `complete` or `doubt`: ALREADY if this was repeated, STALE if it is another's, which stays untouched. A tombstone does not
        count. MISSING if an operator has deleted this very record, completed: it stays deleted. Retention, expiry and doubt begin now.
        """
        ...

    async def renew(self, leases: Sequence[Lease]) -> frozenset[bytes]:
        """Push `locked_until` to now + duration for each lease still `in_progress` under its owner; returns the owners renewed.

        One statement for all. Rows locked by others are skipped (and not returned), never waited for.
        """
        ...

    def now_us(self) -> int | None:
        """An upper estimate of the store's own clock, microseconds since the epoch; None until it has answered once.

        Learned from the clock readings that answers carry plus the local CLOCK_BOOTTIME that passed since *before* the statement was
        sent, so that "not expired by this estimate" implies "not expired by the store" whatever the host's wall clock says.
        """
        ...


class RouteDoubt(NamedTuple):
    """A route's records in doubt: how many, how many of them dead letters, and the age of the oldest in seconds."""

    route_id: str
    unknown: int
    dead_letters: int
    oldest_age: float


@dataclass(frozen=True, slots=True)
class Counts:
    """Figures for the gauges. `completed` may be an estimate; ages are seconds.

    Observed records in doubt are nobody's turn: they are not among `unknown` and `dead_letters`, and not the oldest.
    """

    in_progress: int
    completed: int
    failed_retryable: int
    unknown: int
    dead_letters: int
    unknown_oldest_age: float
    by_route: Sequence[RouteDoubt] = ()


@dataclass(frozen=True, slots=True)
class Swept:
    """One lapsed lease that a sweep turned into `unknown`: a worker died, or lost the database for longer than a lease."""

    key: RecordKey
    route_id: str
    request_id: str
    attempt: int


class Maintenance(Protocol):
    """The authority's background work. Small batches, rows locked by others skipped, safe to run in every process at once."""

    async def sweep(self, limit: int) -> Sequence[Swept]:
        """Lapsed `in_progress` -> `unknown`, at most `limit`; returns what was swept."""
        ...

    async def reap(self, limit: int) -> int:
        """Delete at most `limit` expired records: `completed`, `failed_retryable`, and observed ones that are `unknown`. Returns how many;
        0 when nothing is left that could be reaped now.

        In the same atomic step each leaves what its `Retention` says: a tombstone if it is `completed` and has `gone_for` (where one is
        there already, the longer period counts), and itself in the archive if it has `keep_for`. One that leaves a tombstone is not reaped
        before it has the age of `TOMBSTONE_AFTER`: until then it answers itself. What is archived is never replayed, nor in the way of a
        new record.
        """
        ...

    async def purge(self, limit: int) -> int:
        """Delete what the reaper left and whose own period is over: at most `limit` tombstones, and at most `limit` archived records.
        Returns how many of both; 0 when nothing is left.
        """
        ...

    async def watch_clock(self) -> None:
        """Read the authority's clock, so that a step is noticed also while nobody asks for anything."""
        ...

    async def counts(self) -> Counts: ...
