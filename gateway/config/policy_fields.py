"""The part of the table about how a route is guarded. Defaults are those of `gateway.core.policy`."""

from gateway.config import policy_texts, texts
from gateway.config.dialect_kind import DialectKind
from gateway.config.key_fields import HEADER, KEY, PLACE
from gateway.config.kinds import Choice, Duration, Flag, Size, Text, Whole
from gateway.config.principal import PrincipalKind
from gateway.config.reconcile_fields import ANSWER, CONDITIONS, RECONCILE
from gateway.config.shapes import Field, ListOf, Section, Struct
from gateway.config.webhook_fields import WEBHOOK
from gateway.core.policy import (
    BodyMode,
    Combine,
    Expired,
    FingerprintPolicy,
    ForwardKey,
    HintedOutcome,
    InFlight,
    Limits,
    Mode,
    OnExpired,
    OnStoreOutage,
    OnUnknown,
    Policy,
)

_POLICY = Policy(scope="", principal=())
_FINGERPRINT = FingerprintPolicy()
_LIMITS = Limits()

_STATUSES = ListOf(Whole(100, 599))
_NAMES = ListOf(Text("the name of a parameter", policy_texts.parameter))
_POINTERS = ListOf(Text("a JSON pointer", texts.pointer, texts.POINTER_PATTERN))


class FingerprintFields:
    """`routes[].idempotency.fingerprint`."""

    BODY = Field(
        "body",
        Choice({mode.value: mode for mode in BodyMode}),
        "Which part of the body counts; auto: JSON by its meaning, forms by their fields, everything else by its bytes.",
        _FINGERPRINT.body,
    )
    HEADERS = Field(
        "headers",
        ListOf(Text("a header name", lambda text: texts.header_name(text).lower(), texts.HEADER_PATTERN)),
        "Header fields that are part of what a request means.",
        _FINGERPRINT.headers,
    )
    IGNORE = Field(
        "ignore",
        _POINTERS,
        "JSON pointers (RFC 6901) to what may change between attempts; a * stands for every index or member.",
        _FINGERPRINT.ignore,
    )
    ONLY = Field(
        "only", _POINTERS, "JSON pointers to what counts of a JSON body, in place of the whole; * as in `ignore`.", _FINGERPRINT.only
    )
    IGNORE_HEADERS = Field(
        "ignore_headers",
        ListOf(Text("a header name", policy_texts.droppable, texts.HEADER_PATTERN)),
        "What does not count although it would by itself: Host, and fields that select the operation, such as If-Match.",
        _FINGERPRINT.ignore_headers,
    )
    IGNORE_QUERY = Field(
        "ignore_query",
        _NAMES,
        "Query parameters, decoded, that may change between attempts, such as a signature's.",
        _FINGERPRINT.ignore_query,
    )
    IGNORE_FORM = Field("ignore_form", _NAMES, "The same for fields of a form body.", _FINGERPRINT.ignore_form)


class LimitFields:
    """`routes[].idempotency.limits`."""

    REQUEST_BODY = Field("request_body", Size("1GiB"), "The largest request body that is taken.", _LIMITS.request_body)
    RESPONSE_BODY = Field("response_body", Size("1GiB"), "The largest response body that is kept.", _LIMITS.response_body)


class HintFields:
    """`routes[].idempotency.hints[]`."""

    HEADER = Field("header", HEADER, "The field of the upstream's answer that tells.")
    VALUE = Field("value", Text("a header value", policy_texts.field_value), "Its value, letter case aside. Default: any.")
    STATUSES = Field("statuses", _STATUSES, "The statuses at which it counts. Empty: any.", ())
    OUTCOME = Field(
        "outcome",
        Choice({outcome.value: outcome for outcome in HintedOutcome}),
        "What it tells. Default: its own value is one of these words.",
    )
    REMOVE = Field("remove", Flag(), "Whether the client does not see the field.", default=False)
    WHEN: Field[tuple[Section, ...]] = Field(
        "when", CONDITIONS, "Conditions on the JSON body of the answer, up to 1 MiB, which must all be met.", ()
    )
    ANSWER: Field[Section] = Field("answer", ANSWER, "Of `exists`: the operation's answer. Default: what the upstream says, as it comes.")


class IdempotencyFields:
    """`routes[].idempotency`, and `defaults`."""

    SCOPE = Field(
        "scope",
        Text("a name", texts.name, texts.NAME_PATTERN),
        "The name under which keys live; routes that share it share keys. Default: the route's id.",
    )
    MODE = Field(
        "mode",
        Choice({mode.value: mode for mode in Mode}),
        "enforce, or observe: everything is decided, counted and logged, and every request goes through (gives the promise up).",
        _POLICY.mode,
    )
    DIALECT = Field("dialect", DialectKind(), "The wire form of the gateway's own answers: a name, or a file such as ./house.yaml.", "ietf")
    KEY: Field[Section] = Field("key", KEY, "Where the key is, and which keys are good.")
    PRINCIPAL = Field("principal", PrincipalKind(), "Who asks: a list of sources such as {header: X-Account-Id}, or none.")
    PRINCIPAL_COMBINE = Field(
        "principal_combine",
        Choice({combine.value: combine for combine in Combine}),
        "all: each source must be there, and all together say who asks; first: the first that is there counts.",
        _POLICY.combine,
    )
    FINGERPRINT: Field[Section] = Field("fingerprint", Struct.of(FingerprintFields), "What a request means: what must be equal in a retry.")
    IN_FLIGHT = Field(
        "in_flight",
        Choice({choice.value: choice for choice in InFlight}, later=frozenset({"accepted"})),
        "What a duplicate of a running request gets: 409 at once, or after waiting for the answer.",
        _POLICY.in_flight,
    )
    WAIT = Field("wait", Duration("0s", "5m"), "How long a duplicate waits under `in_flight: wait`.", _POLICY.wait)
    LEASE = Field("lease", Duration("100ms", "1h"), "How long a crashed process keeps a key; running ones renew it.", _POLICY.lease)
    RETENTION = Field("retention", Duration("1s", "3650d"), "How long an answer is replayed, counted from completion.", _POLICY.retention)
    ON_EXPIRED = Field(
        "on_expired",
        Choice({choice.value: choice for choice in OnExpired}),
        "What a request under an expired key gets: execute, a fresh run; gone, a refusal (410).",
        _POLICY.on_expired,
    )
    TOMBSTONE = Field(
        "tombstone",
        Duration("1s", "3650d"),
        "How long an expired key is remembered, by a digest, under `on_expired: gone`.",
        _POLICY.tombstone,
    )
    EXPIRED = Field(
        "expired",
        Choice({choice.value: choice for choice in Expired}),
        "What becomes of an expired record: delete, or keep in the archive, for audit; it is never replayed.",
        _POLICY.expired,
    )
    KEEP_FOR = Field("keep_for", Duration("1s", "3650d"), "How long it stays there under `expired: keep`.", _POLICY.keep_for)
    RELEASE_ON = Field(
        "release_on",
        _STATUSES,
        "Statuses that prove that the upstream did not execute: the key stays free for a retry.",
        tuple(sorted(_POLICY.release_on)),
    )
    DOUBT_ON = Field(
        "doubt_on", _STATUSES, "Statuses after which it is unknown whether the upstream executed.", tuple(sorted(_POLICY.doubt_on))
    )
    HINTS: Field[tuple[Section, ...]] = Field(
        "hints",
        ListOf(Struct.of(HintFields, some=("header", "when")), unique=False),
        "What the upstream's own signals say of its execution, the first that applies; before `release_on` and `doubt_on`.",
        (),
    )
    TRUST_RETENTION = Field(
        "trust_retention",
        Flag(),
        "Whether the upstream may say in Idempotency-Retention how long its answer is kept, or not at all.",
        _POLICY.trust_retention,
    )
    ON_UNKNOWN = Field(
        "on_unknown",
        Choice({choice.value: choice for choice in OnUnknown}),
        "What becomes of an attempt whose outcome is unknown: it is found out; or, later, a retry runs it again (the upstream "
        "deduplicates by key).",
        _POLICY.on_unknown,
    )
    RECONCILE: Field[Section] = Field("reconcile", RECONCILE, "How an unknown outcome is found out.")
    WEBHOOK: Field[Section] = Field("webhook", WEBHOOK, "Where the provider tells what became of operations.")
    ON_STORE_OUTAGE = Field(
        "on_store_outage",
        Choice({choice.value: choice for choice in OnStoreOutage}),
        "What a request gets while Postgres is away: 503, or an unguarded run (gives the promise up).",
        _POLICY.on_store_outage,
    )
    LIMITS: Field[Section] = Field("limits", Struct.of(LimitFields), "Body sizes.")
    SETTLE_TIMEOUT = Field("settle_timeout", Duration("10ms", "1m"), "How long an answer is held for its commit.", _POLICY.settle_timeout)
    STREAM = Field("stream", Flag(), "Relay answers as they come, all but the last chunk, instead of holding them.", _POLICY.stream)
    FORWARD_KEY = Field(
        "forward_key",
        Choice({choice.value: choice for choice in ForwardKey}),
        "Which key the upstream sees; derived: a keyed digest of scope and key.",
        _POLICY.forward_key,
    )
    FORWARD_KEY_IN: Field[Section] = Field("forward_key_in", PLACE, "Where the upstream sees it. Default: where the client put it.")
    STATUS_FIELDS = Field("status_fields", Flag(), "Add Idempotency-Status and Idempotency-Expires to answers.", _POLICY.status_fields)
    EXPOSE_HEADERS = Field(
        "expose_headers",
        Flag(),
        "Let scripts of other origins read our header fields (Access-Control-Expose-Headers).",
        _POLICY.expose_headers,
    )
    DUPLICATES = Field(
        "duplicates",
        Duration("0s", "1h"),
        "The window in which equal requests under different keys are counted; 0s: never.",
        _POLICY.duplicates,
    )
    MARK_DUPLICATES = Field(
        "mark_duplicates", Flag(), "Whether such an answer tells the client, in a header field.", _POLICY.mark_duplicates
    )


IDEMPOTENCY = Struct.of(IdempotencyFields)
