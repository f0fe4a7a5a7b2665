"""The ports of what resolves unknown outcomes: reconciler, webhooks, operators. Like `gateway.ports`, of which this is the second half.

Every change of a record is one atomic statement, fenced by its id, its `version` and its state, that writes what is to be remembered of it
in the same step: its history, a webhook's event, an operator's audit line. So none is lost and none is applied twice, whoever dies when.
A caller whose reply was lost repeats the call, or looks: the version has moved, and the answer is STALE. So it is if the event is known
already (`seen`), to anybody's step: an event is applied once.

All methods raise `StoreUnavailable` and no other error.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from uuid import UUID

from gateway.core.model import Record, RecordKey, Status, StoredResponse
from gateway.core.reconcile.policy import Verdict
from gateway.ports import Retention, Transition

Detail = Mapping[str, str | int | float | bool | None]
"""Facts for people: a request line, a status, a body's length and SHA-256, an event's digest. Never a body, a key or a credential."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The record as somebody saw it. Nothing is done to it once anything has changed."""

    key: RecordKey
    record_id: UUID
    version: int

    @classmethod
    def of(cls, found: Record) -> "Fence":
        """The record as the authority gave it."""
        return cls(found.key, found.record_id, found.version)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a record's history. `source`: lookup, cancel, resend, manual, webhook, operator or attempt; `what`: a verdict, or a
    closed-set word such as `dead_lettered`, `requeued`, `conflict`. `actor` and `reason` are a person's.
    """

    source: str
    what: str
    detail: Detail = field(default_factory=dict)
    actor: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """A webhook's event, to be known again. `digest` is SHA-256 of its id; `webhook` the route's id; `remember` seconds."""

    webhook: str
    digest: bytes
    remember: float


@dataclass(frozen=True, slots=True)
class Audit:
    """Who did what, and why: one line of the append-only audit table. `action`: resolve, release, delete, requeue, show_body, export."""

    actor: str
    action: str
    reason: str
    detail: Detail = field(default_factory=dict)


def deleted_key(key: RecordKey) -> RecordKey:
    """What lines about a deleted record have in place of its key."""
    return RecordKey(key.scope_id, f"sha256:{key.lookup_digest().hex()}")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What an event said of a record whose attempt still ran: kept with the record, and used as soon as it is unknown."""

    response: StoredResponse
    entry: Entry


@dataclass(frozen=True, slots=True)
class Doubtful:
    """An unknown record that was taken for a look.

    `look` counts the looks, this one included; `agreed` those in a row, before this one, that said *not executed*; `agreed_ago` is how long
    ago the last of them was. `over`: this look began after the upstream had surely finished (`doubtful_until`), so that *not executed* may
    count. `age` is how long it has been looked for: since the outcome is unknown, or since it was requeued. `born_ago`: the seconds since
    this life of the record began. `reason` is the doubt's. `sealed` is the original request as `Sealer` made it.
    """

    fence: Fence
    owner: bytes
    route_id: str
    request_id: str
    method: str
    target: bytes
    attempt: int
    reason: str
    look: int
    agreed: int
    agreed_ago: float | None
    over: bool
    age: float
    born_ago: float
    captured: Mapping[str, str]
    sealed: bytes | None = None
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """A record as a webhook finds it. `over` and `agreed`: as in `Doubtful`, were a look to begin now."""

    fence: Fence
    status: Status
    lease_live: bool
    expired: bool
    dead_lettered: bool
    route_id: str
    request_id: str
    attempt: int
    agreed: int
    agreed_ago: float | None
    over: bool
    captured: Mapping[str, str]


class Reconciliation(Protocol):
    """The authority's part in finding out. Observed records (`mode: observe`) are none of its business: never taken, never found."""

    async def due_routes(self, route_ids: Sequence[str]) -> frozenset[str]:
        """Those of the routes that have a record for `take_due` now: one statement, however many they are. Changes nothing."""
        ...

    async def take_due(self, route_id: str, limit: int, hold: float, owners: Sequence[bytes] = ()) -> Sequence[Doubtful]:
        """Claim at most `limit` records of the route that are unknown, no dead letters, and due: the longest due first.

        Each has its `version` and its count of looks raised and its `reconcile_after` moved `hold` seconds from now: whoever takes it
        and dies is followed by somebody else then. With `owners` (fresh tokens, one for each of `limit`), for looks that act, each gets
        a new owner in the same step, and its `doubtful_until` is moved to `hold` + its `max_execution` from now at least: what the look
        does may be under way for as long (`over` is told as it was before). A record with evidence is taken like any other, without either.
        Rows locked by others are skipped.
        """
        ...

    async def conclude_executed(
        self,
        fence: Fence,
        response: StoredResponse,
        retention: Retention,
        entry: Entry,
        event: Event | None = None,
        audit: Audit | None = None,
    ) -> Transition:
        """-> `completed` with this answer, from `unknown` (a dead letter, too), from `in_progress` whose lease has lapsed, and from
        `failed_retryable` that has not expired. STALE if the version has moved or the state is another; MISSING if there is no such record.
        """
        ...

    async def conclude_not_executed(
        self,
        fence: Fence,
        reason: str,
        retention: Retention,
        entry: Entry,
        event: Event | None = None,
        audit: Audit | None = None,
        *,
        looked: bool = False,
    ) -> Transition:
        """-> `failed_retryable`, from `unknown` (a dead letter, too) whose `doubtful_until` has passed; STALE otherwise. `looked`: it is
        the verdict of the look that the fence is from, and that look was `over`.
        """
        ...

    async def look_again(
        self, fence: Fence, seconds: float, *, agreed: bool | None, entry: Entry, event: Event | None = None, ended: bool | None = None
    ) -> Transition:
        """The record stays `unknown`; the next look is due in `seconds`.

        `agreed`: True, this one said *not executed* and counts (count + 1, `agreed_at` is when it began); None, the count and `agreed_at`
        stay as they are (it agreed, but too soon after the last one that counts, or asked nobody); False, the count starts anew at 0.
        `ended`, of a look that acts: True, what it did has ended: if it was `over`, `doubtful_until` is back at when it began; False, it
        may be under way: the next look is not before `doubtful_until`, from when on it may count.
        """
        ...

    async def dead_letter(self, fence: Fence, entry: Entry) -> Transition:
        """The record stays `unknown`, and nobody looks any more until somebody requeues it."""
        ...

    async def abandon(self, route_ids: Sequence[str], overdue: float, limit: int, entry: Entry) -> Sequence[str]:
        """Dead-letter at most `limit` unknown records that have been due for `overdue` seconds while nobody looked, but for those of
        `route_ids`; with `entry` in the history of each. Returns their routes, one for each record.
        """
        ...

    async def find_captured(self, scope: str, value: str, limit: int = 2) -> Sequence[Subject]:
        """Records of the scope named `scope`, of whatever principal, whose correlation is `value` (see `Intent.correlation`)."""
        ...

    async def attach(self, fence: Fence, evidence: Evidence, event: Event | None) -> Transition:
        """Keep evidence with a record that is `in_progress`: when it becomes unknown it is due at once and no dead letter. A record that
        completes drops it; `Store.release` does not believe otherwise. The newest wins, unless it knows no body and the one before does.
        """
        ...

    async def seen(self, event: Event) -> bool:
        """Whether the event has been applied or ignored before."""
        ...

    async def remember(self, event: Event) -> None:
        """Note an event that changed nothing (unknown key, nothing to say), so that its repetition is told as one."""
        ...

    async def note(self, key: RecordKey, record_id: UUID, entry: Entry) -> None:
        """Add a line to a record's history, changing nothing: evidence of a second execution, say."""
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records. `state`: a status, or `dead_letter`; None: any. `route`: a route id. `scope`: a scope's name. `key`: the client's key,
    exactly.
    """

    state: str | None = None
    route: str | None = None
    scope: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """A record as operators see it in a list. Instants are the database's, in UTC. `scope_id` names the principal by digest alone."""

    key: RecordKey
    record_id: UUID
    version: int
    status: Status
    route_id: str
    request_id: str
    method: str
    attempt: int
    observed: bool
    reason: str | None
    created_at: dt.datetime
    locked_until: dt.datetime | None
    unknown_since: dt.datetime | None
    doubtful_until: dt.datetime | None
    reconcile_after: dt.datetime | None
    looks: int
    dead_lettered_at: dt.datetime | None
    completed_at: dt.datetime | None
    expires_at: dt.datetime | None
    response_status: int | None
    response_length: int | None


class Remembered(NamedTuple):
    """A line of history with its instant."""

    at: dt.datetime
    entry: Entry


@dataclass(frozen=True, slots=True)
class Shown:
    """One record whole. `response` has its body only if that was asked for. `at` is the database's clock when it was read; `evidence`: an
    event has said that it was executed, which the reconciler has not concluded yet.
    """

    listed: Listed
    target: bytes
    captured: Mapping[str, str]
    fingerprint_version: int
    fingerprint: bytes
    response: StoredResponse | None
    history: Sequence[Remembered]
    at: dt.datetime
    evidence: bool


@dataclass(frozen=True, slots=True)
class Page:
    """One page, and where the next begins (opaque to everybody but the store); None at the end."""

    records: Sequence[Listed]
    cursor: str | None


class AuditLine(NamedTuple):
    """A line of the audit table."""

    id: int
    at: dt.datetime
    audit: Audit
    key: RecordKey
    record_id: UUID


class Operations(Protocol):
    """What operators may see and do. Changes go through `Reconciliation`'s verdicts with an `Audit`, and through these."""

    async def select(self, selection: Selection, cursor: str | None, limit: int) -> Page:
        """At most `limit` records in a stable order: a record that stays as it is appears exactly once in a walk through all pages. Found
        by an index in every case, but for `key` without a scope, which steps from scope id to scope id. Raises ValueError for a cursor that
        is none.
        """
        ...

    async def show(self, key: RecordKey, *, body: bool = False, audit: Audit | None = None) -> Shown | None:
        """One record with its history. With `audit` (required with `body`) that it was shown is written down in the same step."""
        ...

    async def requeue(self, fence: Fence, audit: Audit) -> Transition:
        """A dead letter is `unknown` and due now, its looks counted from 0 and their age from now. STALE if it is none."""
        ...

    async def release(self, fence: Fence, retention: Retention, audit: Audit) -> Transition:
        """-> `failed_retryable` by a person's word, from `unknown` or a lapsed `in_progress`, and only after `doubtful_until` (of a lapsed
        one: `reconcile_after`). STALE otherwise.
        """
        ...

    async def delete(self, fence: Fence, audit: Audit) -> Transition:
        """Forget a `completed` or `failed_retryable` record: its key is free. STALE for any other state.

        Of the key only a digest is left (`deleted_key`): archived lives of it go, its history loses its details, and its lines there and in
        the audit table, the one of the deletion included, have the digest in its place.
        """
        ...

    async def audited(self, after: int, limit: int) -> Sequence[AuditLine]:
        """Lines of the audit table with an id above `after`, in order."""
        ...

    async def write_audit(self, key: RecordKey, record_id: UUID, audit: Audit) -> None:
        """A line about something that changed nothing (an export)."""
        ...


class Unsealable(Exception):
    """A sealed request that none of the configured keys opens, or that is not what it was."""


class Sealer(Protocol):
    """Encryption at rest of original requests (`probe: resend`): AES-256-GCM. What is sealed opens only under the record it was sealed
    for.
    """

    def seal(self, plain: bytes, bound_to: bytes) -> bytes: ...

    def open(self, sealed: bytes, bound_to: bytes) -> bytes:
        """Raises `Unsealable`."""
        ...


VERDICT_REASONS: Mapping[Verdict, str] = {Verdict.NOT_EXECUTED: "verdict_not_executed"}
"""`last_error_code` after a verdict that released a record; an operator's release is `operator_released`."""
