"""What a route map says, resolved: routes, and the policy of each guarded one. Durations are seconds, sizes
are bytes.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from gateway.core.cors import Cors
from gateway.core.reconcile.policy import AnswerPlan, Condition, Manual, Reconcile, Webhook

DEFAULT_RETENTION = 86400.0
"""Seconds that a completed record is kept where neither its route nor its upstream says how long."""

MAX_RETENTION = 3650 * 86400.0
"""Seconds: as long as a route, an upstream or an operator may have a record kept."""


class KeyMode(enum.StrEnum):
    """How strictly a key's spelling is judged; see `gateway.core.key`."""

    LENIENT = "lenient"
    STRICT = "strict"
    RAW = "raw"


class BodyMode(enum.StrEnum):
    """Which part of the body the fingerprint covers; see `gateway.core.fingerprint`."""

    AUTO = "auto"
    JSON = "json"
    FORM = "form"
    MULTIPART = "multipart"
    BYTES = "bytes"
    NONE = "none"


class InFlight(enum.StrEnum):
    """What a duplicate of a running request gets."""

    CONFLICT = "conflict"
    WAIT = "wait"


class OnExpired(enum.StrEnum):
    """What a request under an expired record gets."""

    EXECUTE = "execute"
    GONE = "gone"


class OnUnknown(enum.StrEnum):
    """What becomes of an attempt whose outcome is unknown: it is found out, or the next retry runs it again (the
    upstream deduplicates by key).
    """

    RECONCILE = "reconcile"
    REEXECUTE = "reexecute"


class OnStoreOutage(enum.StrEnum):
    """What a guarded request gets while Postgres cannot be asked."""

    REJECT = "reject"
    FORWARD = "forward"


class ForwardKey(enum.StrEnum):
    """Which key the upstream sees: the client's field lines, a keyed digest of scope and key, or none."""

    AS_RECEIVED = "as_received"
    DERIVED = "derived"
    NONE = "none"


class Mode(enum.StrEnum):
    """Whether decisions are carried out, or only counted and logged while every request goes through."""

    ENFORCE = "enforce"
    OBSERVE = "observe"


class Expired(enum.StrEnum):
    """What becomes of a row whose retention is over."""

    DELETE = "delete"
    KEEP = "keep"


class Combine(enum.StrEnum):
    """How several sources of a principal work together: each must be there, or the first that is there counts."""

    ALL = "all"
    FIRST = "first"


@dataclass(frozen=True, slots=True)
class HeaderKey:
    """The key is the value of a header field, or of one of several; `name` is the first of them."""

    name: str
    others: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.others)


@dataclass(frozen=True, slots=True)
class QueryKey:
    """The key is the value of a query parameter."""

    name: str


@dataclass(frozen=True, slots=True)
class BodyKey:
    """The key is a string or a whole number in the JSON body, at this JSON pointer (RFC 6901)."""

    pointer: str


@dataclass(frozen=True, slots=True)
class FormKey:
    """The key is the value of a field of the form body (application/x-www-form-urlencoded)."""

    name: str


KeyPlace: TypeAlias = HeaderKey | QueryKey | BodyKey | FormKey


@dataclass(frozen=True, slots=True)
class KeyPolicy:
    """Where the key is and which spellings count. Lengths are characters of the key itself, quotes not counted.

    `pattern` is a regular expression that the whole key must match besides its grammar. With `fold_case` keys that
    differ in letter case alone are one. `notice`: keys that look guessable or personal are counted and logged by
    digest.
    """

    place: KeyPlace = field(default_factory=lambda: HeaderKey("Idempotency-Key"))
    required: bool = True
    mode: KeyMode = KeyMode.LENIENT
    min_length: int = 1
    max_length: int = 255
    pattern: str | None = None
    fold_case: bool = False
    notice: bool = True

    @property
    def headers(self) -> tuple[str, ...]:
        """The fields that may hold the key; none if it is not in a field."""
        return self.place.names if isinstance(self.place, HeaderKey) else ()


@dataclass(frozen=True, slots=True)
class HeaderPrincipal:
    """The value of a header field, as a keyed digest."""

    name: str


@dataclass(frozen=True, slots=True)
class BasicPrincipal:
    """The user and password of HTTP Basic credentials (RFC 7617), as a keyed digest. The upstream judges the password.
    It never sees a replay, so a replay is only for a caller with the same password.
    """


@dataclass(frozen=True, slots=True)
class CertificatePrincipal:
    """The subject of the client's certificate: of our own TLS, or (`header`) as a trusted proxy tells it."""

    header: str | None = None


@dataclass(frozen=True, slots=True)
class JwksFile:
    """A file of public keys. `stamp` digests its contents."""

    path: str
    stamp: str


@dataclass(frozen=True, slots=True)
class JwksUrl:
    """An address of public keys, asked for again after `refresh` seconds and used for at most `stale` seconds without
    an answer.
    """

    url: str
    refresh: float = 300.0
    stale: float = 86400.0


@dataclass(frozen=True, slots=True)
class JwtSecret:
    """A shared secret (HS256, HS384, HS512)."""

    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class JwtPrincipal:
    """A claim of a JWT (RFC 7519) that is verified: signature by `keys` and one of `algorithms`, `exp` and `nbf` within
    `leeway`, `iss` and `aud` where given. `claim` is the path to a text or whole number.
    """

    claim: tuple[str, ...]
    keys: JwksFile | JwksUrl | JwtSecret
    algorithms: tuple[str, ...]
    header: str = "Authorization"
    issuer: str | None = None
    audience: tuple[str, ...] = ()
    leeway: float = 30.0


@dataclass(frozen=True, slots=True)
class ForwardAuthPrincipal:
    """A header of the answer to a subrequest: GET `path` of `upstream` with the request's `forward` fields. 2xx is yes,
    for `cache`.
    """

    upstream: str
    path: str
    answer_header: str
    forward: tuple[str, ...] = ("Authorization", "Cookie")
    cache: float = 5.0


PrincipalSource: TypeAlias = HeaderPrincipal | BasicPrincipal | CertificatePrincipal | JwtPrincipal | ForwardAuthPrincipal


def principal_headers(sources: tuple[PrincipalSource, ...]) -> tuple[str, ...]:
    """The request fields that say who asks."""
    names: list[str] = []
    for source in sources:
        match source:
            case HeaderPrincipal(name):
                names.append(name)
            case JwtPrincipal():
                names.append(source.header)
            case BasicPrincipal():
                names.append("Authorization")
            case CertificatePrincipal(header):
                names += [] if header is None else [header]
            case ForwardAuthPrincipal():
                names += source.forward
            case _:
                assert_never(source)
    return tuple(names)


@dataclass(frozen=True, slots=True)
class FingerprintPolicy:
    """What a request means on a route. `headers` are lower-case names; `ignore` and `only` are JSON pointers (RFC 6901)
    in which a `*` segment stands for every index of an array or every member of an object. `only` non-empty: nothing
    else of a JSON body counts. `ignore_query` and `ignore_form` are decoded names of parameters and of form fields that
    do not count, `ignore_headers` lower-case names of what would count without being asked to
    (`gateway.core.fingerprint_head.DROPPABLE`).
    """

    body: BodyMode = BodyMode.AUTO
    headers: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    ignore_headers: tuple[str, ...] = ()
    ignore_query: tuple[str, ...] = ()
    ignore_form: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes: the largest request body that is taken, and the largest answer that is held until its commit."""

    request_body: int = 1024 * 1024
    response_body: int = 8 * 1024 * 1024


class Situation(enum.StrEnum):
    """What a dialect may answer in its own words. Everything else is a problem document."""

    MISSING = "missing"
    INVALID = "invalid"
    MISMATCH = "mismatch"
    IN_FLIGHT = "in_flight"
    UNKNOWN = "unknown"
    EXPIRED = "expired"
    NOT_STORED = "not_stored"
    STORE_UNAVAILABLE = "store_unavailable"
    REPLAYED = "replayed"


class Replay(enum.StrEnum):
    """What a retry of a completed operation gets: the stored answer, or the dialect's answer for `replayed`."""

    VERBATIM = "verbatim"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Template:
    """One answer of a dialect. `{placeholders}` in header values and in the body are filled in, escaped for where they
    stand.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The wire form of the gateway's own answers and marks. What is left out has the default form.

    `first_headers` are added to answers that come from the upstream, `replay_headers` to replays instead of the default
    marks (None).
    """

    name: str = "ietf"
    answers: Mapping[Situation, Template] = field(default_factory=dict)
    replay: Replay = Replay.VERBATIM
    first_headers: tuple[tuple[str, str], ...] = ()
    replay_headers: tuple[tuple[str, str], ...] | None = None


class HintedOutcome(enum.StrEnum):
    """What an upstream says of its own execution."""

    COMPLETED = "completed"
    NOT_EXECUTED = "not-executed"
    UNKNOWN = "unknown"
    EXISTS = "exists"
    """What the request asks for is there already. To a repetition after a doubt: the operation was executed, by the
    attempt before. To a first attempt: an answer like any other.
    """


@dataclass(frozen=True, slots=True)
class Hint:
    """An upstream's signal that steers the settlement of a complete response, by this route's trust.

    It applies when the response has the header field (with `value`, letter case aside, unless None), its status is
    among `statuses` (any, if empty), and its JSON body meets all of `when`. `header` None: the body alone tells.
    `outcome` None: the field's own value names the outcome. `remove`: the client does not see the field. `answer` is of
    EXISTS: how the operation's answer is built from the response; the plan that says nothing is the response as it
    came.
    """

    header: str | None
    value: str | None = None
    statuses: frozenset[int] = frozenset()
    outcome: HintedOutcome | None = None
    remove: bool = False
    when: tuple[Condition, ...] = ()
    answer: AnswerPlan = field(default_factory=AnswerPlan)


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

    scope: str
    principal: tuple[PrincipalSource, ...]
    key: KeyPolicy = field(default_factory=KeyPolicy)
    fingerprint: FingerprintPolicy = field(default_factory=FingerprintPolicy)
    mode: Mode = Mode.ENFORCE
    dialect: Dialect = field(default_factory=Dialect)
    in_flight: InFlight = InFlight.CONFLICT
    wait: float = 10.0
    lease: float = 30.0
    retention: float = DEFAULT_RETENTION
    on_expired: OnExpired = OnExpired.EXECUTE
    tombstone: float = 30 * 86400.0
    expired: Expired = Expired.DELETE
    keep_for: float = 90 * 86400.0
    release_on: frozenset[int] = frozenset({307, 308, 401, 407, 421, 425, 429})
    doubt_on: frozenset[int] = frozenset({408, 502, 503, 504, *range(520, 528), 530})
    hints: tuple[Hint, ...] = ()
    trust_retention: bool = False
    on_store_outage: OnStoreOutage = OnStoreOutage.REJECT
    limits: Limits = field(default_factory=Limits)
    settle_timeout: float = 2.0
    stream: bool = False
    forward_key: ForwardKey = ForwardKey.AS_RECEIVED
    forward_key_in: KeyPlace | None = None
    status_fields: bool = False
    expose_headers: bool = False
    duplicates: float = 0.0
    mark_duplicates: bool = False
    max_execution: float = 120.0
    combine: Combine = Combine.ALL
    on_unknown: OnUnknown = OnUnknown.RECONCILE
    reconcile: Reconcile = field(default_factory=Reconcile)
    webhook: Webhook | None = None
    keeps_principal: bool = False

    @property
    def reads_answers(self) -> bool:
        """Whether bodies of the upstream's answers are looked into."""
        return any(hint.when for hint in self.hints)

    @property
    def key_goes_to(self) -> KeyPlace:
        """Where the upstream sees the key, if it does."""
        return self.forward_key_in or self.key.place

    @property
    def reconcilable(self) -> bool:
        """Whether an unknown record may end without a person: else it is a dead letter at once."""
        reexecutes = self.on_unknown is OnUnknown.REEXECUTE
        return reexecutes or self.webhook is not None or not isinstance(self.reconcile.probe, Manual)


@dataclass(frozen=True, slots=True)
class Route:
    """One line of the route map. `policy` is None for a route that passes straight through.

    `methods` is empty for "any method", `hosts` for "any host"; those are spelt as by
    `gateway.core.route_hosts.parse_host`. `path` is the pattern as written: literals, `{parameters}`, a closing `/**`.
    """

    id: str
    path: str
    upstream: str
    methods: frozenset[str] = frozenset()
    policy: Policy | None = None
    hosts: tuple[str, ...] = ()
    cors: Cors | None = None
