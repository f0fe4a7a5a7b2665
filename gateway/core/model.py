"""The words of the gateway as values: keys, fingerprints, leases, records, responses.

Everything here is frozen and knows no clock and no I/O. SQL, metrics and docs use the same words: a *record* is the row
for (scope, key); a *lease* is the executor's time-limited ownership of it.
"""

import enum
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from gateway.core.quota import Quota
from gateway.core.value import value

Headers = tuple[tuple[bytes, bytes], ...]
"""Field lines in wire order, names and values exactly as received (RFC 9110 section 5.3: order is significant)."""

RESPONSE_SCHEMA_VERSION = 1

SEALED = 2
"""The encoding of an answer that is encrypted as a whole (`gateway.runtime.record_sealing`)."""


class Status(enum.StrEnum):
    """The five states of a record. `gateway.core.transitions` lists their changes."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED_RETRYABLE = "failed_retryable"
    UNKNOWN = "unknown"


class Earlier(enum.Enum):
    """What the attempts of a record before the present one may have done."""

    NOTHING = enum.auto()
    """There was none, or each is proved, or asserted by its route, not to have executed."""
    JUDGED = enum.auto()
    """One was in doubt until a look, an event or a person judged it *not executed*."""
    DOUBTED = enum.auto()
    """One is still in doubt: nothing about the present attempt proves that the operation did not run."""


@value
class RecordKey:
    """Where a record lives: a key inside a scope. `scope_id` comes from `gateway.core.scope`, `key` from
    `gateway.core.key`.
    """

    scope_id: str
    key: str

    def lookup_digest(self) -> bytes:
        """32 bytes that name this record in Redis and in logs' digests; injective, since the scope is
        length-prefixed.
        """
        scope = self.scope_id.encode()
        return hashlib.sha256(b"idempotency-gateway/lookup/1\0%d:%b" % (len(scope), scope) + self.key.encode()).digest()


@value
class Fingerprint:
    """What a request means. `policy` is the digest of the fingerprint policy text that it was computed under."""

    version: int
    policy: bytes
    digest: bytes


@value
class StoredResponse:
    """An upstream's answer as it is kept and replayed.

    `body` is None when it was not kept (over the route's cap, or it could not be stored); `body_length` and
    `body_digest` (SHA-256) describe the full body even then, as the upstream sent it. `encoding` says how `body` is
    packed (`gateway.core.packing`): stores carry both and never look inside. It is 0 when there is no body, unless the
    whole answer is `SEALED`: then the body is never None, and of zero bytes where there is none.
    """

    status: int
    reason: bytes
    headers: Headers
    body: bytes | None
    body_length: int
    body_digest: bytes
    encoding: int = 0

    def without_body(self) -> "StoredResponse":
        if self.encoding == SEALED:
            return replace(self, body=b"")
        return StoredResponse(self.status, self.reason, self.headers, None, self.body_length, self.body_digest)


@value
class Record:
    """A record as a store found it. `lease_live` and `expired` are facts on the store's clock, not on ours.

    `reconcile_in` is the number of seconds until `reconcile_after` (never negative), None when there is no such
    instant. `expires_in` likewise counts to `expires_at`; it is None while the record cannot expire. `expires_at_us` is
    the same instant on the store's clock, in microseconds since the epoch. `doubt_over`: it is `unknown`, and its
    `doubtful_until` has passed: the upstream has surely finished. `born_ago`: the seconds since this life of the record
    began. `judged`: an attempt of this life was in doubt, and a verdict then said *not executed*. `observed`: see
    `gateway.ports.Store`; in a record that comes from Redis, False says nothing. `accepted`: the gateway has promised
    that it will be run; `due_in` are the seconds until a `pending` record may be.
    """

    key: RecordKey
    record_id: UUID
    version: int
    status: Status
    fingerprint: Fingerprint
    owner: bytes
    attempt: int
    request_id: str
    lease_live: bool = False
    expired: bool = False
    dead_lettered: bool = False
    reconcile_in: float | None = None
    expires_in: float | None = None
    expires_at_us: int | None = None
    last_error_code: str | None = None
    response: StoredResponse | None = None
    doubt_over: bool = False
    born_ago: float = 0.0
    judged: bool = False
    observed: bool = False
    accepted: bool = False
    due_in: float | None = None

    @property
    def earlier(self) -> Earlier:
        """What the attempts up to now may have done, for the attempt that claims this record."""
        if self.status is Status.UNKNOWN and not self.expired:
            return Earlier.DOUBTED
        return Earlier.JUDGED if self.judged and not self.expired else Earlier.NOTHING


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A completed record was here and has expired, on a route with `on_expired: gone`. Nothing else of it is left.

    `key` is that of the request that asks. `route_id` is the route that completed the record. The store forgets the
    tombstone in `expires_in` seconds, at `expires_at_us` (microseconds since the epoch, on its own clock), and then
    reports it no more.
    """

    key: RecordKey
    route_id: str
    expires_in: float
    expires_at_us: int


@value
class Lease:
    """The right to execute one attempt, held by the process that knows `owner`.

    `owner` is 16 fresh random bytes for each reserve statement and is never sent twice. `started` is the reading of the
    holder's CLOCK_BOOTTIME just before the acknowledged statement was sent, so `started + duration - margin` is an
    instant up to which the holder may trust the lease whatever the database's clock says (design, "Fence before
    sending").

    `earlier`: what the attempts before it may have done. It is a `reexecution` (`on_unknown: reexecute`) where one is
    in doubt.

    `intent` is what a store was asked for when it gave the lease, so that a cache knows what a completion answers. None:
    no cache need know.
    """

    key: RecordKey
    record_id: UUID
    owner: bytes
    attempt: int
    started: float
    duration: float
    earlier: Earlier = Earlier.NOTHING
    intent: "Intent | None" = field(default=None, repr=False, compare=False)

    @property
    def reexecution(self) -> bool:
        return self.earlier is Earlier.DOUBTED


@dataclass(frozen=True, slots=True)
class Terms:
    """What all intents of one route have in common. Made once for a route and its policy, so that a store may compare
    two by identity.

    Durations are seconds. `max_execution` is how long after a lapsed lease the upstream may still be at it: it places
    `reconcile_after`. `reconcilable` says whether the route has a probe; without one a doubtful record is a dead letter
    at once.

    `gone_for` is the route's `tombstone` under `on_expired: gone`, None under `execute`: with it a store reports a
    tombstone of the key instead of making a new record. `observed`: the route's mode is `observe`, the attempt is not
    guarded, and its record blocks no other request unless it completes. `reexecute`: a claim may also take an `unknown`
    record that is no dead letter and whose `reconcile_after` has passed. `accepts`: whether a record is accepted matters
    to the caller, so that only the authority can answer for one that is under way. `co_commits`: the
    upstream may hold the record locked, and whoever waits for that shall hold up nobody else. `quota`: what one caller may
    begin; stores count it.
    """

    route_id: str
    lease: float
    max_execution: float
    reconcilable: bool = False
    gone_for: float | None = None
    observed: bool = False
    reexecute: bool = False
    accepts: bool = False
    co_commits: bool = False
    quota: Quota | None = None


@value
class Intent:
    """All that a store needs to make a record out of a request: one reserve or claim statement.

    `captured`: values of the request by name, kept for probes and webhooks; `correlation` the one by which the route's
    webhook finds the record; `sealed` the request itself, encrypted, for a probe that resends it.
    """

    key: RecordKey
    fingerprint: Fingerprint
    owner: bytes
    terms: Terms
    request_id: str
    method: str
    target: bytes
    captured: Mapping[str, str] | None = None
    correlation: str | None = None
    sealed: bytes | None = None
