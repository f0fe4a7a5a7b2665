"""What a route map says, resolved: routes, and the policy of each guarded one. Durations are seconds, sizes
are bytes.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, TypeAlias, assert_never

from gateway.core import texts
from gateway.core.cors import Cors
from gateway.core.key_pattern import expression
from gateway.core.kinds import (
    DialectName,
    Duration,
    Inline,
    ListOf,
    LocalPath,
    NoneOr,
    OneOrMany,
    SectionOf,
    SetOf,
    Size,
    Text,
    Whole,
    Yes,
)
from gateway.core.quota import Quota
from gateway.core.reconcile.policy import CONDITIONS, AnswerPlan, Condition, Manual, Reconcile, Webhook
from gateway.core.rewrite import Rewrite
from gateway.core.route_hosts import parse_host
from gateway.core.sent_fields import AnswerFields, SentFields
from gateway.core.setting import Form, Key, Shape
from gateway.core.signing import Algorithm
from gateway.core.units import parse_duration

NAME = Text("a name", texts.name, texts.NAME_PATTERN)
HEADER = Text("a header name", texts.header_name, texts.HEADER_PATTERN)
_FILE = LocalPath("a file path")
_QUERY = Text("the name of a query parameter", texts.parameter)
_POINTER = Text("a JSON pointer", texts.member_pointer, texts.POINTER_PATTERN)
_FORM = Text("the name of a form field", texts.parameter)
_NAMES = ListOf(Text("the name of a parameter", texts.parameter))
_POINTERS = ListOf(Text("a JSON pointer", texts.pointer, texts.POINTER_PATTERN))
_STATUSES = SetOf(Whole(100, 599))

DEFAULT_RETENTION = 86400.0
"""Seconds that a completed record is kept where neither its route nor its upstream says how long."""

_KEPT = Duration("1s", "3650d")
MAX_RETENTION = parse_duration(_KEPT.maximum)
"""Seconds: as long as a route, an upstream or an operator may have a record kept."""


LEASE_MARGIN = 0.1
"""The share of a lease, at its end, in which its holder no longer trusts it."""


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

_PLACES = Shape(
    one_of=("header", "query", "json_pointer", "form"),
    meant={"name": "header", "parameter": "query", "pointer": "json_pointer", "body": "json_pointer", "field": "json_pointer"},
)


@dataclass(frozen=True, slots=True)
class KeySource(Form[KeyPlace]):
    """Where the file says that the client puts the key."""

    SHAPE: ClassVar = _PLACES

    header: Annotated[
        tuple[str, ...],
        OneOrMany(HEADER),
        "The header field that holds the key; of a list, one of them may be there, or several that are equal. Either this or `query`, "
        "`json_pointer` or `form`.",
    ] = ("Idempotency-Key",)
    query: Annotated[str | None, _QUERY, "The query parameter that holds the key."] = None
    json_pointer: Annotated[
        str | None, _POINTER, "Where in the JSON body the key is (RFC 6901), text or whole number; bodies up to 1MiB."
    ] = None
    form: Annotated[
        str | None, _FORM, "The field of a form body (application/x-www-form-urlencoded) that holds the key; bodies up to 1MiB."
    ] = None

    def value(self) -> KeyPlace:
        return _place(self.header, self.query, self.json_pointer, self.form)


@dataclass(frozen=True, slots=True)
class KeyTarget(Form[KeyPlace]):
    """Where the file says that the upstream sees the key."""

    SHAPE: ClassVar = replace(_PLACES, required=True)

    header: Annotated[str | None, HEADER, "A header field. Either this or `query`, `json_pointer` or `form`."] = None
    query: Annotated[str | None, _QUERY, "A query parameter."] = None
    json_pointer: Annotated[str | None, _POINTER, "A member of the JSON body (RFC 6901). Nothing else of the body changes."] = None
    form: Annotated[str | None, _FORM, "A field of the form body. Nothing else of the body changes."] = None

    def value(self) -> KeyPlace:
        return _place((self.header or "",), self.query, self.json_pointer, self.form)


def _place(headers: tuple[str, ...], query: str | None, json_pointer: str | None, form: str | None) -> KeyPlace:
    if query is not None:
        return QueryKey(query)
    if form is not None:
        return FormKey(form)
    return HeaderKey(headers[0], headers[1:]) if json_pointer is None else BodyKey(json_pointer)


@dataclass(frozen=True, slots=True)
class KeyPolicy:
    """Where the key is and which spellings count. Lengths are characters of the key itself, quotes not counted.

    `pattern` is a regular expression that the whole key must match besides its grammar. With `fold_case` keys that
    differ in letter case alone are one. `notice`: keys that look guessable or personal are counted and logged by
    digest.
    """

    place: Annotated[KeyPlace, Inline(KeySource)] = field(default_factory=lambda: HeaderKey("Idempotency-Key"))
    required: Annotated[bool, "Whether a request without a key is refused (400) or passed through unguarded."] = True
    mode: Annotated[KeyMode, "lenient: a quoted string or a bare token; strict: a quoted string; raw: visible ASCII."] = KeyMode.LENIENT
    min_length: Annotated[int, Whole(1, 255), "The least number of characters of a key."] = 1
    max_length: Annotated[int, Whole(1, 255), "The greatest number of characters of a key."] = 255
    pattern: Annotated[
        str | None, Text("a regular expression", expression), "A regular expression that the whole key must match besides."
    ] = None
    fold_case: Annotated[bool, "Whether keys that differ in letter case alone are one key."] = False
    notice: Annotated[bool, "Count and log, by digest, keys that look guessable or personal."] = True

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

    header: Annotated[
        str | None, HEADER, "The header field in which a trusted proxy names the subject. Default: the certificate of our own TLS."
    ] = None


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

    url: str = field(repr=False)
    refresh: float = 300.0
    stale: float = 86400.0


@dataclass(frozen=True, slots=True)
class JwtSecret:
    """A shared secret (HS256, HS384, HS512)."""

    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class JwtKeys(Form[JwksFile | JwksUrl | JwtSecret]):
    """Where the file says that the keys are. The reader of the file adds the stamp of `JwksFile`."""

    SHAPE: ClassVar = Shape(one_of=("jwks_file", "jwks_url", "secret"), required=True)

    jwks_file: Annotated[str | None, _FILE, "JSON: the issuer's public keys (RFC 7517)."] = None
    jwks_url: Annotated[str | None, Text("a URL", texts.jwks_url), "Where the issuer publishes its keys."] = None
    secret: Annotated[str | None, Text("text", texts.optional, secret=True), "A secret shared with the issuer; for HS256 and its like."] = (
        field(default=None, repr=False)
    )
    refresh: Annotated[float, Duration("10s", "24h"), "How often the keys of `jwks_url` are asked for."] = 300.0
    stale: Annotated[float, Duration("10s", "30d"), "How long keys of `jwks_url` are used while nothing answers there."] = 86400.0

    def value(self) -> JwksFile | JwksUrl | JwtSecret:
        if self.jwks_file is not None:
            return JwksFile(self.jwks_file, "")
        return JwtSecret((self.secret or "").encode()) if self.jwks_url is None else JwksUrl(self.jwks_url, self.refresh, self.stale)


@dataclass(frozen=True, slots=True)
class JwtPrincipal:
    """A claim of a JWT (RFC 7519) that is verified: signature by `keys` and one of `algorithms`, `exp` and `nbf` within
    `leeway`, `iss` and `aud` where given. `claim` is the path to a text or whole number.
    """

    claim: Annotated[
        tuple[str, ...],
        OneOrMany(Text("the name of a claim", texts.not_empty("a claim has a name, such as sub"))),
        "The claim that says who asks, such as sub; a list leads to a nested one.",
    ]
    keys: Annotated[JwksFile | JwksUrl | JwtSecret, Inline(JwtKeys)]
    algorithms: Annotated[
        tuple[str, ...], ListOf(Algorithm.any(), at_least=1), "What a token may be signed with, as in [RS256]; all else is refused."
    ]
    header: Annotated[str, HEADER, "The header field that holds the token, as Bearer credentials or bare."] = "Authorization"
    issuer: Annotated[str | None, Text("an issuer", texts.optional), "What `iss` must be."] = None
    audience: Annotated[
        tuple[str, ...],
        OneOrMany(Text("an audience", texts.not_empty("an audience is a text that is not empty, as in https://api.example.com"))),
        "What `aud` must name, one of these at least; without it a token for another service counts too.",
    ] = ()
    leeway: Annotated[float, Duration("0s", "5m"), "By how much clocks may differ, for `exp` and `nbf`."] = 30.0


@dataclass(frozen=True, slots=True)
class ForwardAuthPrincipal:
    """A header of the answer to a subrequest: GET `path` of `upstream` with the request's `forward` fields. 2xx is yes,
    for `cache`.
    """

    upstream: Annotated[str, NAME, "The service that is asked: a name among `upstreams`."]
    path: Annotated[str, Text("a path", texts.target_path, r"^/"), "What is asked for: GET this path. 2xx means yes."]
    answer_header: Annotated[str, HEADER, "The header field of its answer that says who asks."]
    forward: Annotated[tuple[str, ...], ListOf(HEADER, at_least=1), "The header fields of the request that it gets to see."] = (
        "Authorization",
        "Cookie",
    )
    cache: Annotated[float, Duration("0s", "5m"), "How long a yes counts for the same fields; 0s: it is asked every time."] = 5.0


PrincipalSource: TypeAlias = HeaderPrincipal | BasicPrincipal | CertificatePrincipal | JwtPrincipal | ForwardAuthPrincipal


@dataclass(frozen=True, slots=True)
class SourceForm(Form[PrincipalSource]):
    """One source as the file says it."""

    SHAPE: ClassVar = Shape(
        one_of=("header", "jwt", "forward_auth", "basic", "client_certificate"),
        required=True,
        meant={"certificate": "client_certificate", "claim": "jwt", "token": "jwt"},
    )

    header: Annotated[str | None, HEADER, "A request header; its value is kept as a keyed digest only."] = None
    jwt: Annotated[JwtPrincipal | None, "A claim of a token (RFC 7519) that is verified."] = None
    forward_auth: Annotated[ForwardAuthPrincipal | None, "What an authentication service says of the request."] = None
    basic: Annotated[
        bool | None, Yes("write true, or remove this source"), "true: the user and password of HTTP Basic credentials, as a keyed digest."
    ] = None
    client_certificate: Annotated[CertificatePrincipal | None, "The subject of the client's certificate; {} for that of our own TLS."] = (
        None
    )

    def value(self) -> PrincipalSource:
        if self.header is not None:
            return HeaderPrincipal(self.header)
        return self.jwt or self.forward_auth or self.client_certificate or BasicPrincipal()


def needs_waiting(principal: tuple[PrincipalSource, ...]) -> bool:
    """Whether identifying a caller may have to wait for another server's answer."""
    return any(
        isinstance(source, ForwardAuthPrincipal) or (isinstance(source, JwtPrincipal) and isinstance(source.keys, JwksUrl))
        for source in principal
    )


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
    (`gateway.core.field_names.DROPPABLE`).
    """

    body: Annotated[
        BodyMode, "Which part of the body counts; auto: JSON by its meaning, forms by their fields, everything else by its bytes."
    ] = BodyMode.AUTO
    headers: Annotated[
        tuple[str, ...],
        ListOf(Text("a header name", texts.lower_header_name, texts.HEADER_PATTERN)),
        "Header fields that are part of what a request means.",
    ] = ()
    ignore: Annotated[
        tuple[str, ...], _POINTERS, "JSON pointers (RFC 6901) to what may change between attempts; a * stands for every index or member."
    ] = ()
    only: Annotated[
        tuple[str, ...], _POINTERS, "JSON pointers to what counts of a JSON body, in place of the whole; * as in `ignore`."
    ] = ()
    ignore_headers: Annotated[
        tuple[str, ...],
        ListOf(Text("a header name", texts.droppable, texts.HEADER_PATTERN)),
        "What does not count although it would by itself: Host, and fields that select the operation, such as If-Match.",
    ] = ()
    ignore_query: Annotated[
        tuple[str, ...], _NAMES, "Query parameters, decoded, that may change between attempts, such as a signature's."
    ] = ()
    ignore_form: Annotated[tuple[str, ...], _NAMES, "The same for fields of a form body."] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes: the largest request body that is taken, and the largest answer that is held until its commit."""

    request_body: Annotated[int, Size("1GiB"), "The largest request body that is taken."] = 1024 * 1024
    response_body: Annotated[int, Size("1GiB"), "The largest response body that is kept."] = 8 * 1024 * 1024


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

    SHAPE: ClassVar = Shape(some=("header", "when"))

    header: Annotated[str | None, HEADER, "The field of the upstream's answer that tells."]
    value: Annotated[str | None, Text("a header value", texts.field_value), "Its value, letter case aside. Default: any."] = None
    statuses: Annotated[frozenset[int], _STATUSES, "The statuses at which it counts. Empty: any."] = frozenset()
    outcome: Annotated[HintedOutcome | None, "What it tells. Default: its own value is one of these words."] = None
    remove: Annotated[bool, "Whether the client does not see the field."] = False
    when: Annotated[
        tuple[Condition, ...], CONDITIONS, "Conditions on the JSON body of the answer, up to 1 MiB, which must all be met."
    ] = ()
    answer: Annotated[AnswerPlan, "Of `exists`: the operation's answer. Default: what the upstream says, as it comes."] = field(
        default_factory=AnswerPlan
    )


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
    retention: Annotated[float, _KEPT, "How long an answer is replayed, counted from completion."] = DEFAULT_RETENTION
    on_expired: Annotated[OnExpired, "What a request under an expired key gets: execute, a fresh run; gone, a refusal (410)."] = (
        OnExpired.EXECUTE
    )
    tombstone: Annotated[float, _KEPT, "How long an expired key is remembered, by a digest, under `on_expired: gone`."] = 30 * 86400.0
    expired: Annotated[Expired, "What becomes of an expired record: delete, or keep in the archive, for audit; it is never replayed."] = (
        Expired.DELETE
    )
    keep_for: Annotated[float, _KEPT, "How long it stays there under `expired: keep`."] = 90 * 86400.0
    release_on: Annotated[
        frozenset[int], _STATUSES, "Statuses that prove that the upstream did not execute: the key stays free for a retry."
    ] = frozenset({307, 308, 401, 407, 421, 425, 429})
    doubt_on: Annotated[frozenset[int], _STATUSES, "Statuses after which it is unknown whether the upstream executed."] = frozenset(
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
