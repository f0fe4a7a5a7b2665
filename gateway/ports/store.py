"""Records behind one authority: what every store must do. Implementations pass `tests/store/contract` unchanged."""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from gateway.core.model import Fingerprint, Intent, Lease, Record, RecordKey, StoredResponse, Tombstone
from gateway.core.policy import Expired, OnExpired, Policy
from gateway.core.value import value


class StoreUnavailable(Exception):
    """The gateway could not reach a store, or lost its answer.

    `may_have_landed` is False only if the statement certainly wrote nothing and will write nothing: it did not reach
    the store, or the store itself said that it undid it.

    `asked` is False only if nothing of the statement reached the store, and the gateway knows of no other record under
    its key. Only then no other record can have been in its way.

    `reason` is a word of a closed set for metrics: `refused`, `timeout`, `disconnected`, `overloaded`, `not_ready`,
    `error`, and those of `gateway.store.redis.server`.
    """

    def __init__(self, store: str, reason: str, *, may_have_landed: bool, asked: bool | None = None) -> None:
        super().__init__(f"{store}: {reason}")
        self.store = store
        self.reason = reason
        self.may_have_landed = may_have_landed
        self.asked = may_have_landed if asked is None else asked


class Transition(enum.Enum):
    """What a fenced write answers. `STALE` is a normal outcome: the fence (owner, state or version) did not match.

    `MISSING` is the stale case without any such record: a statement that the gateway sent earlier may still be on its
    way.
    """

    DONE = "done"
    ALREADY = "already"
    STALE = "stale"
    MISSING = "missing"


@value
class Settled:
    """The answer to `complete`, `release` or `doubt`. `expires_at_us` is the record's expiry on the store's clock
    (microseconds since the epoch), for a `complete` that is DONE or ALREADY. `whole`: False if the store could not hold
    all of the response, and kept it without its body; then no cache may answer with the body.
    """

    transition: Transition
    expires_at_us: int | None = None
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a record is kept after its end, in seconds. The store keeps it with the record: the reaper knows no
    route map.

    * `seconds`: from the end (completion, release) to the expiry. The other two count from the expiry, whenever the
      reaper comes.
    * `gone_for`: how long a tombstone then remembers a *completed* record (`on_expired: gone`). None: no tombstone.
    * `keep_for`: how long the archive keeps the whole record (`expired: keep`), whether the reaper or a new life takes
      its place. None: the record is deleted.
    """

    seconds: float
    gone_for: float | None = None
    keep_for: float | None = None

    @classmethod
    def of(cls, policy: Policy, seconds: float | None = None) -> "Retention":
        """The retention of a route; `seconds` overrides its `retention`."""
        return cls(
            policy.retention if seconds is None else seconds,
            policy.tombstone if policy.on_expired is OnExpired.GONE else None,
            policy.keep_for if policy.expired is Expired.KEEP else None,
        )


@dataclass(frozen=True, slots=True)
class Promise:
    """What a route promises of accepted work. Made once for a route. `pending_for`: how long it may wait to be run, in
    seconds, from the moment at which it was accepted. `per_route` and `per_principal`: how many may be pending at a
    time.
    """

    pending_for: float
    retention: Retention
    per_route: int
    per_principal: int


class Parked(enum.Enum):
    """What `park` answers. `FULL`: too many are pending, and the record is deleted if it was made for this attempt. The
    others are those of `Transition`.
    """

    DONE = "done"
    ALREADY = "already"
    FULL = "full"
    STALE = "stale"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Answered:
    """An attempt that ended with an answer."""

    response: StoredResponse
    retention: Retention


@dataclass(frozen=True, slots=True)
class Doubted:
    """An attempt that may have executed, and why the gateway does not know."""

    reason: str


OBSERVED_DOUBT_KEPT = 86400.0
"""Seconds from a doubt to the expiry of an observed record: it guards nothing, and no verdict ever resolves it."""

TOMBSTONE_AFTER = 3600.0
"""The reaper takes a record that leaves a tombstone only from this age on, in seconds from the record's birth.

By then no reserve that began before the record's birth, and so saw neither it nor its tombstone, can still give out a
lease.
"""


class Remembered:
    """A completed record that this process tells from its memory, again and again.

    `wire` is what all answers from it have in common, for requests of one plan (`wire_for`): who renders them keeps it
    here. Both are None until then.
    """

    __slots__ = ("record", "wire", "wire_for")

    def __init__(self, record: Record) -> None:
        self.record = record
        self.wire: bytes | None = None
        self.wire_for: object = None


Recollection: TypeAlias = Callable[[RecordKey, Fingerprint, float], Remembered | None]
"""What this process may tell of a key, under this fingerprint and at this instant (CLOCK_BOOTTIME), without asking a
store.
"""


class Store(Protocol):
    """Records behind one authority. Every method is one atomic step, on the store's own clock.

    `lease.key` and `lease.owner` fence the writes after `reserve`. `lease.record_id` is no part of the fence, since a
    holder whose reserve lost its reply does not know it. Owner tokens are unique over all records and attempts.

    *Observed records* are those whose last reserve or claim had `intent.observed` (`mode: observe`). Their states
    change like those of others, so that the gateway can judge a duplicate as under `enforce`. They guard nothing unless
    they are `completed`:

    * an enforcing reserve takes over an observed record that is not `completed`, whatever is under way or in doubt
      under it (`reserve`);
    * an observed record in doubt is no dead letter, and the reconciler never probes for it. It expires after
      `OBSERVED_DOUBT_KEPT`;
    * a completed observed record is a record like any other: replayed, compared, expired, remembered by a tombstone.

    *Durable.* What a write answers lasts, whatever fails next: its commit, and every commit before it, has waited for
    what the authority waits for, such as a synchronous standby. `ALREADY`, `STALE` and a claim that answers None rest
    on a write, too: they lock the record. What a read shows need not last: a commit whose wait was cut short is
    visible, and a failover takes it back. An answer that reports such a cut counts as lost.

    *Quotas.* Where an intent's terms have a quota and the store counts it, `reserve` and `claim` raise `OverQuota` in place of
    a lease that exceeds it, with nothing written; what a `Lease` has taken is held until `Quotas.leave`.

    Otherwise all methods raise `StoreUnavailable` and no other error. A cancelled call leaves the store consistent: its statement
    landed whole or not at all, and the caller treats it as a call whose reply was lost.
    """

    async def reserve(self, intent: Intent) -> Lease | Record | Tombstone:
        """Make a new `in_progress` record owned by `intent.owner`, or report the record or the tombstone that exists
        under the key.

        Exactly one of any number of concurrent callers gets a `Lease` (attempt 1). A call that returns a `Record` or a
        `Tombstone` has changed nothing: no lease, no fingerprint. An expired record has `expired=True`, a record with a
        lapsed lease has `lease_live=False`; `gateway.core.decision` says what follows. The record may be the caller's
        own, if this very statement landed before and its reply was lost. That it can be read does not say that it lasts
        (see *Durable*).

        *Tombstones.* Where there is no record, an intent with `gone_for` gets the live tombstone of its key, and the
        store makes nothing. At whatever moment the reaper comes, such an intent sees a completed record or its
        tombstone, and gets no `Lease` while either exists. For any other intent the store makes a new record; the
        tombstone stays.

        *Taking over.* If the record is observed and not `completed` (`in_progress` with a live lease or without,
        `unknown`, `failed_retryable`) and `intent.observed` is False, exactly one of many callers gets a `Lease` on a
        new life of it: another record id, attempt 1, the intent's fingerprint, no reason, not observed. The former
        owner's writes are stale from then on. An observing intent gets the record as it is.

        Unlike a new record, a takeover whose reply was lost may still land after the caller has seen the record with
        another owner, as with `claim`.
        """
        ...

    async def claim(self, found: Record, intent: Intent) -> Lease | None:
        """Take over `found`, which was `failed_retryable` (attempt + 1) or expired (a new record life, attempt 1).

        Fenced by `found.record_id`, `found.version` and the state: succeeds only while the record is exactly as found
        (unexpired and `failed_retryable`, or still expired). A retry keeps the record's own fingerprint; a new life
        takes the intent's. From then on the record is observed if `intent.observed`, else not. None: another caller was
        faster, reserve again.

        With `intent.reexecute` it also takes a record that was found `unknown`, is no dead letter, and whose
        `doubtful_until` has passed (attempt + 1, the record's own fingerprint; the lease is a `reexecution`).
        """
        ...

    async def lapse(self, found: Record) -> bool:
        """`in_progress` with a lapsed lease -> `unknown`, reason `lease_expired`. Fenced by record id, version and the
        lease itself.

        True: this call did it. False: its owner renewed or settled it meanwhile, or another process lapsed it; look
        again.
        """
        ...

    async def find(self, key: RecordKey) -> Record | None:
        """The record as it stands, body included, or None. Reads the authority, never a replica. Changes nothing."""
        ...

    async def complete(self, lease: Lease, response: StoredResponse, retention: Retention) -> Settled:
        """-> `completed`, only for the owner of the attempt, from any other state.

        `completed` is immutable: ALREADY if this very owner completed it before (a repeated statement), or a verdict or
        the upstream did with this very answer, fields included; STALE otherwise; neither changes the retention of the
        first. `expires_at` is now + `retention.seconds`. The store keeps a response that it cannot hold without its
        body, and does not refuse it.
        """
        ...

    async def release(self, lease: Lease, reason: str, retention: Retention) -> Settled:
        """-> `failed_retryable`, only for the owner and from `in_progress` or `unknown`: the attempt did not execute.

        STALE where there is evidence that it did execute (`Reconciliation.attach`): the record is `unknown` then, and
        due at once.
        """
        ...

    async def doubt(self, lease: Lease, reason: str) -> Settled:
        """-> `unknown`, only for the owner and from `in_progress` (from `unknown`: ALREADY).

        Sets `reconcile_after`, or `dead_lettered_at` when the record is not reconcilable. An observed record gets an
        `expires_at` instead of a `dead_lettered_at`.
        """
        ...

    async def park(self, lease: Lease, reason: str, delay: float, promise: Promise, *, unstarted: bool = False) -> Parked:
        """-> `pending`, due in `delay` seconds, only for the owner and from `in_progress` or `unknown`: nothing of the
        request was sent, or the attempt is known not to have executed. It is accepted from now on, if it was not
        before. The record has the sealed request; one that has not is STALE.

        `unstarted`: there was no attempt under this lease, and `attempt` counts none. Then the promise is a new one:
        FULL where so many are pending already that it may not be made. STALE where there is evidence that the attempt
        did execute, as for `release`.
        """
        ...

    async def restore(self, lease: Lease, intent: Intent, end: Answered | Doubted) -> Settled:
        """Put back the record of an attempt whose settle was MISSING, as `completed` or `unknown`, with the lease's
        record id, owner and attempt, and the intent's request. `intent` is that of the request, under the lease's own
        owner.

        DONE if there was no record: exactly one of any number of concurrent callers, reserves included, makes one.
        Where there is a record, the answer is that of `complete` or `doubt`: ALREADY if this call was repeated, STALE
        if the record is another's, which stays untouched. A tombstone does not count. MISSING if an operator has
        deleted this very record, completed: it stays deleted. Retention, expiry and doubt begin now.
        """
        ...

    async def renew(self, leases: Sequence[Lease]) -> frozenset[bytes]:
        """Push `locked_until` to now + duration for each lease that is still `in_progress` under its owner; returns the
        renewed owners.

        One statement for all. It skips rows that other transactions have locked (and does not return them), and never
        waits for them.
        """
        ...

    def now_us(self) -> int | None:
        """An upper estimate of the store's own clock, microseconds since the epoch; None until the store has answered
        once.

        It is the clock reading of an answer, plus the local CLOCK_BOOTTIME that has passed since *before* the statement
        was sent. So "not expired by this estimate" implies "not expired by the store", whatever the host's wall clock
        says.
        """
        ...


class RouteDoubt(NamedTuple):
    """A route's records in doubt: how many, how many of them dead letters, and the age of the oldest in seconds."""

    route_id: str
    unknown: int
    dead_letters: int
    oldest_age: float


class RoutePending(NamedTuple):
    """A route's pending records: how many, and the seconds since the oldest was accepted."""

    route_id: str
    pending: int
    oldest_age: float


@dataclass(frozen=True, slots=True)
class Counts:
    """Figures for the gauges. `completed` may be an estimate; ages are seconds.

    Observed records in doubt do not count: they are not among `unknown` and `dead_letters`, and not the oldest. Nor are dead letters the
    oldest: nobody looks for their outcome.
    """

    in_progress: int
    completed: int
    failed_retryable: int
    unknown: int
    dead_letters: int
    unknown_oldest_age: float
    by_route: Sequence[RouteDoubt] = ()
    pending: int = 0
    pending_by_route: Sequence[RoutePending] = ()


@dataclass(frozen=True, slots=True)
class Swept:
    """One lapsed lease that a sweep turned into `unknown`: a worker died, or lost the database for longer than
    a lease.
    """

    key: RecordKey
    route_id: str
    request_id: str
    attempt: int


class Maintenance(Protocol):
    """The authority's background work, in small batches. It skips rows that other transactions have locked, and is safe
    to run in every process at once.
    """

    async def sweep(self, limit: int) -> Sequence[Swept]:
        """Lapsed `in_progress` -> `unknown`, at most `limit`; returns the swept records."""
        ...

    async def reap(self, limit: int) -> int:
        """Delete at most `limit` expired records: `completed`, `failed_retryable`, and observed ones that are
        `unknown`. Returns how many; 0 when the reaper could take no record now.

        In the same atomic step each record leaves what its `Retention` says: a tombstone if it is `completed` and has
        `gone_for` (of two tombstones the longer period counts), and itself in the archive if it has `keep_for`. A
        record that leaves a tombstone stays until it has the age of `TOMBSTONE_AFTER`, and answers until then. The
        gateway never replays an archived record, and it is never in the way of a new record.
        """
        ...

    async def purge(self, limit: int) -> int:
        """Delete at most `limit` tombstones and at most `limit` archived records whose period is over. Returns how many
        of both; 0 when none is left.
        """
        ...

    async def watch_clock(self) -> None:
        """Read the authority's clock, so that the gateway notices a step even while no request comes."""
        ...

    async def counts(self) -> Counts: ...
