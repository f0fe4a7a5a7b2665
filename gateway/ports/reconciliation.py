"""The ports of the reconciler, of webhooks and of operators, who resolve unknown outcomes. They belong to
`gateway.ports`.

Every change of a record is one atomic statement, fenced by the record's id, `version` and state. The same statement
writes the record's history, a webhook's event and an operator's audit line. So none of them is lost and none is applied
twice, whichever process dies when.

A caller whose reply was lost repeats the call, or looks: the version has moved, and the answer is STALE. The answer is
also STALE if the event is known already (`seen`), whichever process applied it: an event is applied once.

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
"""Facts for people: a request line, a status, a body's length and SHA-256, an event's digest. Never a body, a key or a
credential.
"""


@dataclass(frozen=True, slots=True)
class Fence:
    """A record as the caller saw it. A fenced write does nothing once the record has changed."""

    key: RecordKey
    record_id: UUID
    version: int

    @classmethod
    def of(cls, found: Record) -> "Fence":
        """The record as the authority gave it."""
        return cls(found.key, found.record_id, found.version)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a record's history. `source`: lookup, cancel, resend, manual, webhook, operator or attempt. `what`: a
    verdict, or a word of a closed set such as `dead_lettered`, `requeued`, `conflict`. `actor` and `reason` are those
    of a person.
    """

    source: str
    what: str
    detail: Detail = field(default_factory=dict)
    actor: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """The identity of a webhook's event. `digest` is the SHA-256 of its id, `webhook` the route's id; the store
    remembers it for `remember` seconds.
    """

    webhook: str
    digest: bytes
    remember: float


@dataclass(frozen=True, slots=True)
class Audit:
    """One line of the append-only audit table: who did what, and why. `action`: resolve, release, delete, requeue,
    look_now, propose, reject, ask, show_body, export, erase.
    """

    actor: str
    action: str
    reason: str
    detail: Detail = field(default_factory=dict)


def deleted_key(key: RecordKey) -> RecordKey:
    """What stands in place of the key in lines about a deleted record."""
    return RecordKey(key.scope_id, f"sha256:{key.lookup_digest().hex()}")


@dataclass(frozen=True, slots=True)
class Evidence:
    """An event that said *executed* while the record's attempt still ran. The store keeps it with the record; the
    reconciler uses it as soon as the record is unknown.
    """

    response: StoredResponse
    entry: Entry


@dataclass(frozen=True, slots=True)
class Doubtful:
    """An unknown record that a process has taken for a look.

    * `look` counts the looks, this one included. `agreed` counts those in a row before this one that said *not
      executed*; `agreed_ago` is the time since the last of them.
    * `over`: this look began after the upstream had surely finished (`doubtful_until`), so that *not executed* may
      count.
    * `age` is the time since the outcome became unknown, or since an operator requeued the record. `born_ago` is the
      time since this life of the record began.
    * `reason` is that of the doubt. `sealed` is the original request as `Sealer` made it.
    * `secret`: its captured values and its target are kept encrypted, so that nothing else that is kept may tell them.
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
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """A record as a webhook finds it. `over` and `agreed` are as in `Doubtful`, for a look that began now."""

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
    """The authority's part in reconciliation. It never takes and never finds observed records (`mode: observe`)."""

    async def due_routes(self, route_ids: Sequence[str]) -> frozenset[str]:
        """Those of the routes that have a record for `take_due` now. One statement for any number of routes; changes
        nothing.
        """
        ...

    async def take_due(self, route_id: str, limit: int, hold: float, owners: Sequence[bytes] = ()) -> Sequence[Doubtful]:
        """Take at most `limit` records of the route that are unknown, no dead letters, and due, the longest due first.

        The statement raises the `version` and the count of looks of each, and moves its `reconcile_after` to `hold`
        seconds from now: if the process dies, another one takes the record then.

        `owners` (fresh tokens, one for each of `limit`) is for looks that act. Each record then gets a new owner in the
        same step, and its `doubtful_until` moves to at least `hold` + its `max_execution` from now, since what the look
        does may be under way for as long (`over` is the value from before). A record with evidence gets neither. The
        statement skips rows that other transactions have locked.
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
        """-> `completed` with this answer, from `unknown` (a dead letter, too), from `in_progress` with a lapsed lease,
        from `pending`, and from `failed_retryable` that has not expired. STALE if the version has moved or the state is another;
        MISSING if there is no such record.
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
        """-> `failed_retryable`, or `pending` and due now if it is accepted work, from `unknown` (a dead letter, too)
        whose `doubtful_until` has passed; STALE otherwise. `looked`: this is the verdict of the look that took the
        fence's version, and that look was `over`.
        """
        ...

    async def look_again(
        self, fence: Fence, seconds: float, *, agreed: bool | None, entry: Entry, event: Event | None = None, ended: bool | None = None
    ) -> Transition:
        """The record stays `unknown`; the next look is due in `seconds`.

        `agreed`:

        * True: this look said *not executed* and counts (count + 1; `agreed_at` is when it began);
        * None: the count and `agreed_at` stay (the look agreed too soon after the last one that counts, or sent no
          probe);
        * False: the count starts anew at 0.

        `ended`, of a look that acts:

        * True: what it did has ended. If the look was `over`, `doubtful_until` goes back to when it began;
        * False: it may be under way. The next look comes at `doubtful_until` at the earliest, and may count then.
        """
        ...

    async def dead_letter(self, fence: Fence, entry: Entry) -> Transition:
        """The record stays `unknown`, and no look follows until an operator requeues it."""
        ...

    async def abandon(self, route_ids: Sequence[str], overdue: float, limit: int, entry: Entry) -> Sequence[str]:
        """Make dead letters of at most `limit` unknown records that have been due for `overdue` seconds without a look,
        except those of `route_ids`, and add `entry` to the history of each. Returns their routes, one for each record.
        """
        ...

    async def find_captured(self, scope: str, value: str, limit: int = 2) -> Sequence[Subject]:
        """Records of the scope named `scope`, of any principal, whose correlation is `value` (see
        `Intent.correlation`).
        """
        ...

    async def attach(self, fence: Fence, evidence: Evidence, event: Event | None) -> Transition:
        """Keep evidence with a record that is `in_progress`. When the record becomes unknown, it is due at once and no
        dead letter. A record that completes drops the evidence; `Store.release` answers STALE because of it. The newest
        evidence wins, unless it has no body and the earlier one has.
        """
        ...

    async def seen(self, event: Event) -> bool:
        """Whether a process has applied or ignored the event before."""
        ...

    async def remember(self, event: Event) -> None:
        """Remember an event that changed nothing (unknown key, no verdict), so that `seen` knows its repetition."""
        ...

    async def note(self, key: RecordKey, record_id: UUID, entry: Entry) -> None:
        """Add a line to a record's history, such as evidence of a second execution. Changes nothing else."""
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records. `state`: a status, or `dead_letter`; None: any. `route`: a route id. `scope`: a scope's name.
    `key`: the client's key, exactly. `scope_id`: one caller's, whole. `request_id`: that of the last attempt. `trace_id`:
    that id was made in this trace, with which it begins. `since`, `until`: made at this instant or later, and
    before this one. `digests`: of those `RecordKey.lookup_digest`s that lie between these two, as far as they go.
    `key_digest`: the key as logs show it, which no store knows: it leaves this one to its caller.
    """

    state: str | None = None
    route: str | None = None
    scope: str | None = None
    key: str | None = None
    scope_id: str | None = None
    request_id: str | None = None
    trace_id: str | None = None
    since: dt.datetime | None = None
    until: dt.datetime | None = None
    digests: tuple[bytes, bytes] | None = None
    key_digest: str | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """A record as operators see it in a list. Instants are the database's, in UTC. `scope_id` names the principal by
    digest alone. `key_digest`: the key as logs show it; a store does not tell it. `captured` is empty where nothing opens it.
    """

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
    key_digest: str | None = None
    captured: Mapping[str, str] = field(default_factory=dict)


class Remembered(NamedTuple):
    """A line of history with its instant."""

    at: dt.datetime
    entry: Entry


@dataclass(frozen=True, slots=True)
class Shown:
    """One whole record. `response` has its body only if the caller asked for it. `at` is the database's clock at the
    reading. `evidence`: an event has said *executed*, and the reconciler has not concluded from it yet. `recovery_point`
    and the JSON text of `recovery_data` are what the upstream told last. `completed_by`: gateway, upstream, verdict or
    operator.
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
    recovery_point: str | None = None
    recovery_data: str | None = None
    completed_by: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One page, and where the next begins, a text that only the store reads; None at the end."""

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
    """What operators may see and do. They change records by the verdicts of `Reconciliation`, with an `Audit`, and by
    these methods.
    """

    async def select(self, selection: Selection, cursor: str | None, limit: int) -> Page:
        """At most `limit` records in a stable order: a record that does not change appears exactly once in a walk
        through all pages.

        An index serves every selection. A `key` without a scope is found by stepping from scope id to scope id. Raises
        ValueError for a text that is no cursor.
        """
        ...

    async def show(self, key: RecordKey, *, body: bool = False, audit: Audit | None = None) -> Shown | None:
        """One record with its history. `audit` (required with `body`) is written in the same step."""
        ...

    async def requeue(self, fence: Fence, audit: Audit) -> Transition:
        """Make a dead letter `unknown` and due now: its looks count from 0, its age from now. STALE if the record is no
        dead letter.
        """
        ...

    async def look_now(self, fence: Fence, audit: Audit) -> Transition:
        """Make the next look of a record that is `unknown`, and no dead letter, due now. STALE otherwise."""
        ...

    async def release(self, fence: Fence, retention: Retention, audit: Audit) -> Transition:
        """-> `failed_retryable`, or `pending` if it is accepted work, by a person's verdict, from `unknown` or from
        `in_progress` with a lapsed lease, and only after `doubtful_until` (with a lapsed lease: `reconcile_after`). STALE otherwise.
        """
        ...

    async def delete(self, fence: Fence, audit: Audit) -> Transition:
        """Forget a `completed` or `failed_retryable` record: its key is free. STALE for any other state.

        Only a digest of the key is left (`deleted_key`): the step deletes archived lives of the key and the details of
        its history, and puts the digest in the key's place there and in the audit table, in the line of the deletion,
        too.
        """
        ...

    async def audited(self, after: int, limit: int) -> Sequence[AuditLine]:
        """Lines of the audit table with an id above `after`, in order."""
        ...

    async def audited_last(self, after: int, before: int, limit: int) -> Sequence[AuditLine]:
        """Lines of the audit table with an id above `after` and below `before`, the newest first."""
        ...

    async def write_audit(self, key: RecordKey, record_id: UUID, audit: Audit) -> None:
        """Write a line about an action that changed nothing (an export)."""
        ...


class Unsealable(Exception):
    """None of the configured keys opens the sealed request, or it was altered."""


class Sealer(Protocol):
    """Encryption at rest of original requests (`probe: resend`): AES-256-GCM. A sealed request opens only under the
    record that it was sealed for.
    """

    def seal(self, plain: bytes, bound_to: bytes) -> bytes: ...

    def open(self, sealed: bytes, bound_to: bytes) -> bytes:
        """Raises `Unsealable`."""
        ...

    @property
    def present(self) -> bytes:
        """The id of the key that seals, which stands in bytes 2 to 9 of what it has sealed."""
        ...

    def tags(self, data: bytes) -> tuple[bytes, ...]:
        """Keyed digests of 32 bytes, one for each configured key, that of the key that seals first."""
        ...


VERDICT_REASONS: Mapping[Verdict, str] = {Verdict.NOT_EXECUTED: "verdict_not_executed"}
"""`last_error_code` after a verdict that released a record; an operator's release is `operator_released`."""
