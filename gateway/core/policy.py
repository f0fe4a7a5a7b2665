"""What a route map says, resolved: routes, and the policy of each guarded one. Durations are seconds, sizes
are bytes.
"""

import enum
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from gateway.core import texts
from gateway.core.common_kinds import NAME, STATUSES
from gateway.core.cors import Cors
from gateway.core.dialect_model import Dialect
from gateway.core.fingerprint_policy import FingerprintPolicy
from gateway.core.hints import Hint
from gateway.core.key_policy import ForwardKey, KeyPlace, KeyPolicy, KeyTarget
from gateway.core.kinds import DialectName, Duration, ListOf, NoneOr, OneOrMany, SectionOf, SetOf, Size, Text, Whole
from gateway.core.principal_source import Combine, PrincipalSource, SourceForm
from gateway.core.quota import Quota
from gateway.core.reconcile.policy import Manual, Reconcile, Webhook
from gateway.core.retention import DEFAULT_RETENTION, KEPT
from gateway.core.rewrite import Rewrite
from gateway.core.route_hosts import parse_host
from gateway.core.sent_fields import AnswerFields, SentFields
from gateway.core.setting import Key, Shape

LEASE_MARGIN = 0.1
"""The share of a lease, at its end, in which its holder no longer trusts it."""


class InFlight(enum.StrEnum):
    """What a duplicate of a running request gets."""

    CONFLICT = "conflict"
    WAIT = "wait"
    ACCEPTED = "accepted"


class Execution(enum.StrEnum):
    """When a first request is answered: when its operation is done, as soon as it is sure to be run, or as the client prefers."""

    SYNC = "sync"
    ASYNC = "async"
    PREFER = "prefer"


class OnExpired(enum.StrEnum):
    """What a request under an expired record gets."""

    EXECUTE = "execute"
    GONE = "gone"


class OnUnknown(enum.StrEnum):
    """What becomes of an attempt whose outcome is unknown: it is found out, or the next retry runs it again (the
    upstream deduplicates by key, or resumes at the last recovery point that it told).
    """

    RECONCILE = "reconcile"
    REEXECUTE = "reexecute"
    RESUME = "resume"


class OnStoreOutage(enum.StrEnum):
    """What a guarded request gets while Postgres cannot be asked."""

    REJECT = "reject"
    FORWARD = "forward"


class Mode(enum.StrEnum):
    """Whether decisions are carried out, or only counted and logged while every request goes through."""

    ENFORCE = "enforce"
    OBSERVE = "observe"


class Expired(enum.StrEnum):
    """What becomes of a row whose retention is over."""

    DELETE = "delete"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes: the largest request body that is taken, and the largest answer that is held until its commit."""

    request_body: Annotated[int, Size("1GiB"), "The largest request body that is taken."] = 1024 * 1024
    response_body: Annotated[int, Size("1GiB"), "The largest response body that is kept."] = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class MaxPending:
    """How many accepted operations may be pending at a time."""

    route: Annotated[int, Whole(1, 1_000_000), "Of the whole route."] = 10_000
    principal: Annotated[int, Whole(1, 1_000_000), "Of one caller."] = 1_000


@dataclass(frozen=True, slots=True)
class Participate:
    """What the upstream does for its own recovery. It gets a token for each attempt; without either it does not take part."""

    progress: Annotated[bool, "Whether it tells how far it has come (`progress.listen`)."] = False
    co_commit: Annotated[
        bool, "Whether it completes records in its own transactions; its database is the gateway's (`migrate --co-commit-role`)."
    ] = False


@dataclass(frozen=True, slots=True)
class Policy:
    """How one route is guarded. Durations are seconds. `principal` holds sources; empty means `none`: one scope for
    all, spelled out.

    `tombstone` is how long an expired record under `on_expired: gone` is remembered by a digest; `keep_for` how long
    one under `expired: keep` stays in the archive. `hints` are tried in order. `trust_retention`: the upstream's
    `Idempotency-Retention` field says how long its answer is kept. `forward_key_in` None: where the client put it.
    `duplicates` is the window in which one caller's equal requests under different keys are counted, 0 for never;
    `mark_duplicates` tells the client. `reconcile` and `webhook` say how an unknown outcome is found out.
    `keeps_principal`: they name the principal, whose value is kept with each record.
    """

    SHAPE: ClassVar = Shape(layered=True)

    scope: Annotated[str, NAME, "The name under which keys live; routes that share it share keys. Default: the route's id."]
    principal: Annotated[
        tuple[PrincipalSource, ...],
        NoneOr(SectionOf(SourceForm), "source", "{header: X-Account-Id}"),
        "Who asks: a list of sources such as {header: X-Account-Id}, or none.",
    ]
    key: Annotated[KeyPolicy, "Where the key is, and which keys are good."] = field(default_factory=KeyPolicy)
    fingerprint: Annotated[FingerprintPolicy, "What a request means: what must be equal in a retry."] = field(
        default_factory=FingerprintPolicy
    )
    mode: Annotated[
        Mode, "enforce, or observe: everything is decided, counted and logged, and every request goes through (gives the promise up)."
    ] = Mode.ENFORCE
    dialect: Annotated[Dialect, DialectName(), "The wire form of the gateway's own answers: a name, or a file such as ./house.yaml."] = (
        field(default_factory=Dialect)
    )
    in_flight: Annotated[
        InFlight,
        "What a duplicate of a running request gets: conflict, 409 at once; wait, its answer or 409; accepted, 202 and where to look.",
    ] = InFlight.CONFLICT
    execution: Annotated[
        Execution,
        "When a first request is answered: sync, when it is done; async, with 202, as soon as it is sure to be run; prefer, as it asks in "
        "Prefer: respond-async.",
    ] = Execution.SYNC
    pending_for: Annotated[float, Duration("1s", "30d"), "How long accepted work may wait until it can be sent; then it ends with 408."] = (
        3600.0
    )
    max_pending: Annotated[MaxPending, "How much accepted work may wait at a time; more is refused with 429."] = field(
        default_factory=MaxPending
    )
    concurrency: Annotated[int, Whole(1, 10_000), "How much accepted work one process runs at the route's upstream at a time."] = 16
    quota: Annotated[Quota | None, "How much one caller may begin in this scope; more is refused with 429. Default: no limit."] = None
    wait: Annotated[float, Duration("0s", "5m"), "How long a duplicate waits under `in_flight: wait`."] = 10.0
    lease: Annotated[float, Duration("100ms", "1h"), "How long a crashed process keeps a key; running ones renew it."] = 30.0
    retention: Annotated[float, KEPT, "How long an answer is replayed, counted from completion."] = DEFAULT_RETENTION
    on_expired: Annotated[OnExpired, "What a request under an expired key gets: execute, a fresh run; gone, a refusal (410)."] = (
        OnExpired.EXECUTE
    )
    tombstone: Annotated[float, KEPT, "How long an expired key is remembered, by a digest, under `on_expired: gone`."] = 30 * 86400.0
    expired: Annotated[Expired, "What becomes of an expired record: delete, or keep in the archive, for audit; it is never replayed."] = (
        Expired.DELETE
    )
    keep_for: Annotated[float, KEPT, "How long it stays there under `expired: keep`."] = 90 * 86400.0
    release_on: Annotated[
        frozenset[int], STATUSES, "Statuses that prove that the upstream did not execute: the key stays free for a retry."
    ] = frozenset({307, 308, 401, 407, 421, 425, 429})
    doubt_on: Annotated[frozenset[int], STATUSES, "Statuses after which it is unknown whether the upstream executed."] = frozenset(
        {408, 502, 503, 504, *range(520, 528), 530}
    )
    hints: Annotated[
        tuple[Hint, ...],
        ListOf(SectionOf(Hint), unique=False),
        "What the upstream's own signals say of its execution, the first that applies; before `release_on` and `doubt_on`.",
    ] = ()
    trust_retention: Annotated[
        bool, "Whether the upstream may say in Idempotency-Retention how long its answer is kept, or not at all."
    ] = False
    on_store_outage: Annotated[
        OnStoreOutage, "What a request gets while Postgres is away: 503, or an unguarded run (gives the promise up)."
    ] = OnStoreOutage.REJECT
    limits: Annotated[Limits, "Body sizes."] = field(default_factory=Limits)
    settle_timeout: Annotated[float, Duration("10ms", "1m"), "How long an answer is held for its commit."] = 2.0
    stream: Annotated[bool, "Relay answers as they come, all but the last chunk, instead of holding them."] = False
    forward_key: Annotated[ForwardKey, "Which key the upstream sees; derived: a keyed digest of scope and key."] = ForwardKey.AS_RECEIVED
    forward_key_in: Annotated[KeyPlace | None, SectionOf(KeyTarget), "Where the upstream sees it. Default: where the client put it."] = None
    status_fields: Annotated[bool, "Add Idempotency-Status, Idempotency-Expires and Idempotency-Retry to answers."] = False
    expose_headers: Annotated[bool, "Let scripts of other origins read our header fields (Access-Control-Expose-Headers)."] = False
    duplicates: Annotated[
        float, Duration("0s", "1h"), "The window in which equal requests under different keys are counted; 0s: never."
    ] = 0.0
    mark_duplicates: Annotated[bool, "Whether such an answer tells the client, in a header field."] = False
    max_execution: float = 120.0
    combine: Annotated[
        Combine,
        Key("principal_combine"),
        "all: each source must be there, and all together say who asks; first: the first that is there counts.",
    ] = Combine.ALL
    on_unknown: Annotated[
        OnUnknown,
        "What becomes of an attempt whose outcome is unknown: it is found out; or, later, a retry runs it again (the upstream "
        "deduplicates by key, or resumes at the recovery point that it told last).",
    ] = OnUnknown.RECONCILE
    participate: Annotated[Participate, "What the upstream does for its own recovery (docs/participation.md)."] = field(
        default_factory=Participate
    )
    reconcile: Annotated[Reconcile, "How an unknown outcome is found out."] = field(default_factory=Reconcile)
    webhook: Annotated[Webhook | None, "Where the provider tells what became of operations."] = None
    keeps_principal: bool = False

    @property
    def accepts(self) -> bool:
        """Whether requests may be answered before they are executed."""
        return self.execution is not Execution.SYNC

    @property
    def has_status(self) -> bool:
        """Whether clients are told where to look for their operations."""
        return self.accepts or self.in_flight is InFlight.ACCEPTED

    @property
    def reads_answers(self) -> bool:
        """Whether bodies of the upstream's answers are looked into."""
        return any(hint.when for hint in self.hints)

    @property
    def key_goes_to(self) -> KeyPlace:
        """Where the upstream sees the key, if it does."""
        return self.forward_key_in or self.key.place

    @property
    def repeats(self) -> bool:
        """Whether a retry runs again what is in doubt, once the attempt before has surely ended."""
        return self.on_unknown is not OnUnknown.RECONCILE

    @property
    def takes_part(self) -> bool:
        """Whether the upstream is told which attempt it executes. One that is only observed is none."""
        return self.mode is Mode.ENFORCE and (self.participate.progress or self.participate.co_commit)

    @property
    def reconcilable(self) -> bool:
        """Whether an unknown record may end without a person: else it is a dead letter at once."""
        return self.repeats or self.webhook is not None or not isinstance(self.reconcile.probe, Manual)


@dataclass(frozen=True, slots=True)
class Route:
    """One line of the route map. `policy` is None for a route that passes straight through.

    `methods` is empty for "any method", `hosts` for "any host"; those are spelt as by
    `gateway.core.route_hosts.parse_host`. `path` is the pattern as written: literals, `{parameters}`, a closing `/**`.
    """

    id: Annotated[str, Text("a route id", texts.route_id, texts.NAME_PATTERN), "The route's name in metrics, logs and records."]
    path: Annotated[
        str,
        Text("a path pattern", texts.path_pattern, r"^/"),
        "Literals, {parameters} that fill one segment, and a closing /** for zero or more further segments.",
    ]
    upstream: Annotated[str, NAME, "A name among `upstreams`."]
    methods: Annotated[
        frozenset[str],
        SetOf(Text("a method", texts.method, texts.METHOD_PATTERN), at_least=1),
        "HTTP methods. Default: POST and PATCH for a guarded route, any for an unguarded one.",
    ] = frozenset()
    policy: Annotated[Policy | None, Key("idempotency"), "How the route is guarded. Without it requests pass straight through."] = None
    hosts: Annotated[
        tuple[str, ...],
        Key("host"),
        OneOrMany(Text("a host name", parse_host)),
        "The host, or a list: shop.example, or *.example for all names below it; for any port. Default: any host.",
    ] = ()
    cors: Annotated[Cors | None, "Which pages of other origins may read its answers. Default: as the file's `cors`."] = None
    rewrite: Annotated[Rewrite | None, "The beginning of the path as the upstream gets it. Default: as it came."] = None
    answer_headers: Annotated[AnswerFields | None, "Fields that are set or removed in the upstream's answers, before these are kept."] = (
        None
    )
    request_headers: Annotated[SentFields | None, "Fields that are set or removed on the way to the upstream."] = None
