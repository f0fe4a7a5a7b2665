"""How a route finds out what an unknown attempt did: what its `reconcile:` and `webhook:` sections say, resolved.
Durations are seconds.

Words: a *look* is one probe and the reading of its answer; its *verdict* is `executed`, `not_executed` or
`not_yet_known`. A webhook's event is read by the same kind of rules, and its verdict counts as a look's.
"""

import enum
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, TypeAlias

from gateway.core import texts
from gateway.core.common_kinds import HEADER, NAME
from gateway.core.kinds import (
    Choice,
    Duration,
    FromFile,
    Inline,
    JsonScalar,
    ListOf,
    Named,
    OneOrMany,
    ScalarKind,
    SectionOf,
    SetOf,
    Size,
    Text,
    Whole,
    Yes,
)
from gateway.core.reconcile import placeholders
from gateway.core.setting import Form, Key, Shape

OWN_PRINCIPAL = "@principal"
"""The captured name of the caller, where the route's templates or rules name `{principal}`. No configured name can be
this one.
"""

OWN_KEY = "key"
"""The captured name that every route with a probe or a webhook has: the key as the upstream saw it (`forward_key`)."""

CONCURRENCY_MAX = 1000

_POINTER = Text("a JSON pointer", texts.whole_pointer, texts.WHOLE_POINTER_PATTERN)
_INNER_POINTER = Text("a JSON pointer", texts.inner_pointer, texts.POINTER_PATTERN)
_VALUE = Text("a header value", texts.header_value)
_SECRET_VALUE = Text("a header value", texts.header_value, secret=True)
_CALLER_BOUND = Choice.of(("rules", "upstream"))
_TOLERANCE = Duration("1s", "1d")


def _captured_name(text: str) -> str:
    """The name of a captured value. `key` is there by itself."""
    if text == OWN_KEY:
        raise ValueError("`key` is the key itself, as the upstream saw it, and always there; choose another name")
    return texts.captured(text)


class Verdict(enum.StrEnum):
    """What a look, an event or a person says of an attempt. A payment that was created and then declined is
    `executed`.
    """

    EXECUTED = "executed"
    NOT_EXECUTED = "not_executed"
    NOT_YET_KNOWN = "not_yet_known"


class Test(enum.StrEnum):
    """How a condition judges what its pointer names."""

    EQUALS = "equals"
    """One of `values`: texts, numbers, true, false, null; numbers by their value."""
    EXISTS = "exists"
    """There, and not null."""
    MISSING = "missing"
    """Not there at all: null is there."""
    EMPTY = "empty"
    """There, and an empty list, object or text."""
    NOT_EMPTY = "not_empty"
    SAME_AS = "same_as"
    """A text or a number that is what the placeholder in `values` stands for."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Something about a JSON body, at a JSON pointer (RFC 6901; empty: the whole). A body that is no JSON
    meets none.
    """

    pointer: str
    test: Test = Test.EQUALS
    values: tuple[str | int | float | bool | None, ...] = ()


def _yes(opposite: str) -> Yes:
    return Yes(f"write true here, or `{opposite}: true` for the opposite")


@dataclass(frozen=True, slots=True)
class ConditionForm(Form[Condition]):
    """A condition as the file says it."""

    SHAPE: ClassVar = Shape(
        one_of=("equals", "exists", "missing", "empty", "not_empty", "same_as"),
        required=True,
        meant={"path": "pointer", "is": "equals", "in": "equals", "value": "equals", "present": "exists", "absent": "missing"},
    )

    pointer: Annotated[str, _POINTER, "Where in the JSON body (RFC 6901); empty: the whole."]
    equals: Annotated[
        tuple[str | int | float | bool | None, ...],
        OneOrMany(JsonScalar()),
        "What is there is this value, or one of these; numbers by their value, and 1 is not '1'.",
    ] = ()
    exists: Annotated[bool | None, _yes("missing"), "true: something other than null is there."] = None
    missing: Annotated[bool | None, _yes("exists"), "true: nothing is there, not even null; `equals: null` is for that."] = None
    empty: Annotated[bool | None, _yes("not_empty"), "true: an empty list, object or text is there."] = None
    not_empty: Annotated[bool | None, _yes("empty"), "true: a list, object or text that is not empty is there."] = None
    same_as: Annotated[
        str | None,
        Text("a placeholder", placeholders.same_as, r"^\{(principal|key|request_id|captured\.[A-Za-z_][A-Za-z0-9_]{0,63})\}$"),
        "What is there is what this stands for: '{principal}' binds what was found to the caller.",
    ] = None

    def value(self) -> Condition:
        if self.same_as is not None:
            return Condition(self.pointer, Test.SAME_AS, (self.same_as,))
        test = next((test for test in (Test.EXISTS, Test.MISSING, Test.EMPTY, Test.NOT_EMPTY) if getattr(self, test)), Test.EQUALS)
        return Condition(self.pointer, test, self.equals)


CONDITIONS = ListOf(SectionOf(ConditionForm), unique=False)


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """How the operation's answer is built from what a look found.

    `status` None: the look's own. `headers` and `body` are texts with placeholders: `{key}`, `{captured.NAME}`,
    `{request_id}` and `{found:/json/pointer}`, each escaped for where it stands. Without `body` the answer's body is
    what `pointer` names in what was found, as JSON; the empty pointer is the whole of it, byte for byte.
    """

    SHAPE: ClassVar = Shape(one_of=("body", "pointer"))

    status: Annotated[int | None, Whole(200, 599), "The answer's status. Default: that of what was found."] = None
    headers: Annotated[tuple[tuple[str, str], ...], Named(HEADER, _VALUE, fold=True), "Its header fields, with placeholders."] = ()
    body: Annotated[str | None, Text("text"), "Its body, with placeholders such as {key} and {found:/id}. Either this or `pointer`."] = None
    pointer: Annotated[str, _POINTER, "Its body is what this names in what was found, as JSON; empty: the whole."] = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """What is found means `verdict` if its status is among `statuses` (any, if empty; an event has none) and it meets
    all of `when`.
    """

    SHAPE: ClassVar = Shape(meant={"statuses": "status", "conditions": "when", "response": "answer"})

    verdict: Annotated[Verdict, "executed, not_executed or not_yet_known. A payment that was created and then declined is executed."]
    statuses: Annotated[
        frozenset[int], Key("status"), SetOf(Whole(100, 599), at_least=1), "The statuses at which it applies. Default: any."
    ] = frozenset()
    when: Annotated[tuple[Condition, ...], CONDITIONS, "Conditions on the JSON body, which must all be met."] = ()
    answer: Annotated[AnswerPlan, "The operation's answer, of an executed one. Default: what was found, with its status."] = field(
        default_factory=AnswerPlan
    )


RULES = ListOf(SectionOf(Rule), at_least=1, unique=False)


@dataclass(frozen=True, slots=True)
class RequestTemplate:
    """A request with placeholders `{key}`, `{captured.NAME}` and `{request_id}`: percent-encoded in `target`, escaped
    for JSON in a JSON body, checked in header values. Nothing of the client's own fields goes along; `headers` are all
    that is sent besides Host.
    """

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    body: str | None = None


@dataclass(frozen=True, slots=True)
class RequestForm(Form[RequestTemplate]):
    """A request as the file says it. Without `method`, the probe decides."""

    SHAPE: ClassVar = Shape(meant={"target": "path", "url": "path"})

    method: Annotated[
        str | None,
        Text("a method", texts.method, texts.METHOD_PATTERN),
        "The request's method. Default: GET of a lookup, POST of a cancel.",
    ] = None
    path: Annotated[
        str | None,
        Text("a path", texts.request_target, r"^/"),
        "Path and query, with {key}, {principal}, {captured.NAME} and {request_id}, percent-encoded; in the path none may hold a "
        "slash or the like.",
    ] = None
    headers: Annotated[
        tuple[tuple[str, str], ...],
        Named(HEADER, _SECRET_VALUE, fold=True),
        "All header fields that are sent besides Host, with placeholders.",
    ] = field(default=(), repr=False)
    headers_file: Annotated[
        tuple[tuple[str, str], ...],
        Named(HEADER, FromFile(_SECRET_VALUE), fold=True),
        "More of them, each with a file that holds the value.",
    ] = field(default=(), repr=False)
    body: Annotated[str | None, Text("text"), "The request's body, with placeholders, which are escaped for JSON in a JSON body."] = None

    def value(self) -> RequestTemplate:
        return RequestTemplate(self.method or "", self.path or "", (*self.headers, *self.headers_file), self.body)


@dataclass(frozen=True, slots=True)
class Lookup:
    """Ask, changing nothing. `upstream` None: the route's own."""

    request: RequestTemplate
    rules: tuple[Rule, ...]
    upstream: str | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Make sure that it never happens. This probe acts, so the look takes a new owner token first."""

    request: RequestTemplate
    rules: tuple[Rule, ...]
    upstream: str | None = None


@dataclass(frozen=True, slots=True)
class Resend:
    """Send the stored original request again to an upstream that deduplicates by key; its answer is the operation's.
    This probe acts.
    """


@dataclass(frozen=True, slots=True)
class Manual:
    """No probe: a webhook reports the outcome, or a person decides."""


Probe: TypeAlias = Lookup | Cancel | Resend | Manual


@dataclass(frozen=True, slots=True)
class ProbeForm(Form[Probe]):
    """What the file says of whom to ask."""

    probe: Annotated[
        str,
        Choice.of(("lookup", "cancel", "resend", "manual")),
        "lookup: ask; cancel: make sure that it never happens; resend: send it again (the upstream deduplicates by key); manual: none.",
    ] = "manual"
    upstream: Annotated[str | None, NAME, "Whom to ask: a name among `upstreams`. Default: the route's own."] = None
    request: Annotated[RequestTemplate, SectionOf(RequestForm), "What is sent by lookup and cancel."] = field(
        default_factory=lambda: RequestTemplate("", "")
    )
    rules: Annotated[
        tuple[Rule, ...] | None, RULES, "What the answer means; the first that applies counts. If none does, the outcome is not yet known."
    ] = None
    caller_bound: Annotated[
        str,
        _CALLER_BOUND,
        "Who sees to it that a captured value finds the caller's own operation: rules, the request or the rules name {principal}; "
        "upstream, callers cannot name each other's.",
    ] = "rules"

    def value(self) -> Probe:
        match self.probe:
            case "lookup":
                return Lookup(self._request("GET"), self.rules or (), self.upstream)
            case "cancel":
                return Cancel(self._request("POST"), self.rules or (), self.upstream)
            case "resend":
                return Resend()
            case _:
                return Manual()

    def _request(self, method: str) -> RequestTemplate:
        return replace(self.request, method=self.request.method or method)


@dataclass(frozen=True, slots=True)
class Pace:
    """When a look is due. The first one is at `reconcile_after`, when the upstream has surely finished.

    *Not executed* needs `looks` agreeing looks in a row, at least `apart` from each other. Otherwise the wait before
    the next look grows from `first` to `longest`, doubling, with jitter. After `attempts` looks, or at the age of
    `max_age`, the record is a dead letter. `timeout` bounds one look; `concurrency` the looks under way at one upstream
    in one process.
    """

    looks: Annotated[int, Whole(1, 20), "How many looks in a row must agree on not executed."] = 2
    apart: Annotated[float, Duration("0s", "1d"), "How far apart these are at least."] = 30.0
    first: Annotated[float, Duration("100ms", "1d"), "The wait after a look that found nothing out; it doubles each time."] = 5.0
    longest: Annotated[float, Duration("100ms", "7d"), "Up to this."] = 600.0
    attempts: Annotated[int, Whole(1, 10_000), "After so many looks the record is a dead letter."] = 30
    max_age: Annotated[float, Duration("1s", "365d"), "After so long in doubt the record is a dead letter."] = 86400.0
    timeout: Annotated[float, Duration("10ms", "10m"), "For one look."] = 10.0
    concurrency: Annotated[int, Whole(1, CONCURRENCY_MAX), "Looks under way at one upstream, of one process."] = 4


@dataclass(frozen=True, slots=True)
class Reconcile:
    """`capture` names values of the original JSON request, by JSON pointer, that are kept with the record; a text or a
    number each.
    """

    SHAPE: ClassVar = Shape(meant={"kind": "probe", "captured": "capture"})

    probe: Annotated[Probe, Inline(ProbeForm)] = field(default_factory=Manual)
    pace: Annotated[Pace, Inline(Pace)] = field(default_factory=Pace)
    capture: Annotated[
        tuple[tuple[str, str], ...],
        Named(Text("a name", _captured_name, texts.CAPTURED_PATTERN), _INNER_POINTER),
        "Values of the original JSON request that are kept with the record, by name and JSON pointer: a text or a number each.",
    ] = ()

    @property
    def acts(self) -> bool:
        """Whether a look may itself execute or prevent the operation."""
        return isinstance(self.probe, Resend | Cancel)


def _several(secret: ScalarKind) -> ListOf:
    return ListOf(secret, at_least=1, unique=False)


_SECRET = Text("text", texts.signing_secret, secret=True)
_STANDARD_SECRET = Text("text", texts.standard_secret, secret=True)
_SECRETS = Shape(one_of=("secret", "secrets", "secret_files"), required=True)
_ONE = "The secret that the provider signs with"
_SEVERAL = "Several, any of which will do: the old and the new one while it changes."
_FILES = "Several, each in a file of its own."


@dataclass(frozen=True, slots=True)
class Secrets(Form[tuple[bytes, ...]]):
    """Secrets whose text is the key."""

    SHAPE: ClassVar = _SECRETS

    secret: Annotated[bytes | None, _SECRET, f"{_ONE}."] = field(default=None, repr=False)
    secrets: Annotated[tuple[bytes, ...] | None, _several(_SECRET), _SEVERAL] = field(default=None, repr=False)
    secret_files: Annotated[tuple[bytes, ...] | None, _several(FromFile(_SECRET)), _FILES] = field(default=None, repr=False)

    def value(self) -> tuple[bytes, ...]:
        return tuple(one for one in (self.secret, *(self.secrets or self.secret_files or ())) if one)


@dataclass(frozen=True, slots=True)
class StandardSecrets(Secrets):
    """Secrets of Standard Webhooks."""

    secret: Annotated[bytes | None, _STANDARD_SECRET, f"{_ONE}: whsec_ and base64."] = field(default=None, repr=False)
    secrets: Annotated[tuple[bytes, ...] | None, _several(_STANDARD_SECRET), _SEVERAL] = field(default=None, repr=False)
    secret_files: Annotated[tuple[bytes, ...] | None, _several(FromFile(_STANDARD_SECRET)), _FILES] = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class StripeSignature:
    """`Stripe-Signature: t=<unix seconds>,v1=<hex>` over `<t>.<body>` (HMAC-SHA256). Any of `secrets`, for rotation."""

    secrets: Annotated[tuple[bytes, ...], Inline(Secrets)] = field(repr=False)
    tolerance: Annotated[float, _TOLERANCE, "By how much its time may differ from ours."] = 300.0


@dataclass(frozen=True, slots=True)
class StandardSignature:
    """Standard Webhooks: `webhook-id`, `webhook-timestamp`, `webhook-signature: v1,<base64> …` over
    `<id>.<timestamp>.<body>`.

    `secrets` are the decoded keys (`whsec_` and base64 on the file's side).
    """

    secrets: Annotated[tuple[bytes, ...], Inline(StandardSecrets)] = field(repr=False)
    tolerance: Annotated[float, _TOLERANCE, "By how much its time may differ from ours."] = 300.0


@dataclass(frozen=True, slots=True)
class PlainSignature:
    """HMAC-SHA256 of the body in a header field, as `hex` or `base64`, after `prefix` (as in `sha256=`), or a list of
    such. It holds no time: a replay of an event is known by the event's id alone.
    """

    header: Annotated[str, HEADER, "The header field that holds it."]
    secrets: Annotated[tuple[bytes, ...], Inline(Secrets)] = field(repr=False)
    encoding: Annotated[str, Choice.of(("hex", "base64")), "How the digest is spelled."] = "hex"
    prefix: Annotated[str, Text("text", texts.signature_prefix), "What stands before it, as in sha256=."] = ""


Signature: TypeAlias = StripeSignature | StandardSignature | PlainSignature


@dataclass(frozen=True, slots=True)
class SignatureForm(Form[Signature]):
    """A signature as the file says it."""

    SHAPE: ClassVar = Shape(
        one_of=("stripe", "standard", "hmac_sha256"),
        required=True,
        meant={"hmac": "hmac_sha256", "plain": "hmac_sha256", "standard_webhooks": "standard"},
    )

    stripe: Annotated[StripeSignature | None, "Stripe-Signature: t=<unix seconds>,v1=<hex>."] = None
    standard: Annotated[StandardSignature | None, "Standard Webhooks: webhook-id, webhook-timestamp, webhook-signature."] = None
    hmac_sha256: Annotated[PlainSignature | None, "HMAC-SHA256 of the body in a header field."] = None

    def value(self) -> Signature:
        return self.stripe or self.standard or self.hmac_sha256 or PlainSignature("", ())


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where a provider reports the outcome of operations, and how the gateway reads its events.

    `event_id` is a JSON pointer into the event, or `header:<name>`. The record is found by the text that `find` (a JSON
    pointer into the event) gives, among the route's records, as the captured value called `by` (`OWN_KEY`: the key as
    the upstream saw it).
    """

    SHAPE: ClassVar = Shape(meant={"id": "event_id", "url": "path"}, layered=True)

    path: Annotated[str, Text("a path", texts.literal_path, r"^/"), "Where the provider posts its events, as in /webhooks/payments."]
    signature: Annotated[Signature, SectionOf(SignatureForm), "How its events are known to be its own."]
    event_id: Annotated[
        str,
        Text("a place", texts.event_id, texts.EVENT_ID_PATTERN),
        "Where an event's id is: a JSON pointer into it, or header:<name>. One that came before changes nothing.",
    ]
    find: Annotated[str, _INNER_POINTER, "Where in the event the text is by which the record is found."]
    rules: Annotated[tuple[Rule, ...], RULES, "What an event means; the first that applies counts. It has no status."]
    by: Annotated[
        str,
        Text("a name", texts.captured, texts.CAPTURED_PATTERN),
        "What that text is: key, the key as the upstream saw it, or the name of a captured value.",
    ] = OWN_KEY
    limit: Annotated[int, Size("16MiB", "1KiB"), "The largest event that is taken; above it: 413."] = 1024 * 1024
    remember: Annotated[float, Duration("1m", "90d"), "How long an event's id is remembered."] = 7 * 86400.0
    caller_bound: Annotated[
        str,
        _CALLER_BOUND,
        "Who sees to it that a captured value finds the caller's own record: rules, which compare the event with {principal}; upstream, "
        "callers cannot name each other's.",
    ] = "rules"
