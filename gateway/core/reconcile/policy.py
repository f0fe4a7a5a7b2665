"""How a route finds out what an unknown attempt did: what its `reconcile:` and `webhook:` sections say, resolved.
Durations are seconds.

Words: a *look* is one probe and the reading of its answer; its *verdict* is `executed`, `not_executed` or
`not_yet_known`. A webhook's event is read by the same kind of rules, and its verdict counts as a look's.
"""

import enum
from dataclasses import dataclass, field
from typing import TypeAlias

OWN_PRINCIPAL = "@principal"
"""The captured name of the caller, where the route's templates or rules name `{principal}`. No configured name can be
this one.
"""

OWN_KEY = "key"
"""The captured name that every route with a probe or a webhook has: the key as the upstream saw it (`forward_key`)."""


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


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """How the operation's answer is built from what a look found.

    `status` None: the look's own. `headers` and `body` are texts with placeholders: `{key}`, `{captured.NAME}`,
    `{request_id}` and `{found:/json/pointer}`, each escaped for where it stands. Without `body` the answer's body is
    what `pointer` names in what was found, as JSON; the empty pointer is the whole of it, byte for byte.
    """

    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    body: str | None = None
    pointer: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """What is found means `verdict` if its status is among `statuses` (any, if empty; an event has none) and it meets
    all of `when`.
    """

    verdict: Verdict
    statuses: frozenset[int] = frozenset()
    when: tuple[Condition, ...] = ()
    answer: AnswerPlan = field(default_factory=AnswerPlan)


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
class Pace:
    """When a look is due. The first one is at `reconcile_after`, when the upstream has surely finished.

    *Not executed* needs `looks` agreeing looks in a row, at least `apart` from each other. Otherwise the wait before
    the next look grows from `first` to `longest`, doubling, with jitter. After `attempts` looks, or at the age of
    `max_age`, the record is a dead letter. `timeout` bounds one look; `concurrency` the looks under way at one upstream
    in one process.
    """

    looks: int = 2
    apart: float = 30.0
    first: float = 5.0
    longest: float = 600.0
    attempts: int = 30
    max_age: float = 86400.0
    timeout: float = 10.0
    concurrency: int = 4


@dataclass(frozen=True, slots=True)
class Reconcile:
    """`capture` names values of the original JSON request, by JSON pointer, that are kept with the record; a text or a
    number each.
    """

    probe: Probe = field(default_factory=Manual)
    pace: Pace = field(default_factory=Pace)
    capture: tuple[tuple[str, str], ...] = ()

    @property
    def acts(self) -> bool:
        """Whether a look may itself execute or prevent the operation."""
        return isinstance(self.probe, Resend | Cancel)


@dataclass(frozen=True, slots=True)
class StripeSignature:
    """`Stripe-Signature: t=<unix seconds>,v1=<hex>` over `<t>.<body>` (HMAC-SHA256). Any of `secrets`, for rotation."""

    secrets: tuple[bytes, ...] = field(repr=False)
    tolerance: float = 300.0


@dataclass(frozen=True, slots=True)
class StandardSignature:
    """Standard Webhooks: `webhook-id`, `webhook-timestamp`, `webhook-signature: v1,<base64> …` over
    `<id>.<timestamp>.<body>`.

    `secrets` are the decoded keys (`whsec_` and base64 on the file's side).
    """

    secrets: tuple[bytes, ...] = field(repr=False)
    tolerance: float = 300.0


@dataclass(frozen=True, slots=True)
class PlainSignature:
    """HMAC-SHA256 of the body in a header field, as `hex` or `base64`, after `prefix` (as in `sha256=`), or a list of
    such. It holds no time: a replay of an event is known by the event's id alone.
    """

    header: str
    secrets: tuple[bytes, ...] = field(repr=False)
    encoding: str = "hex"
    prefix: str = ""


Signature: TypeAlias = StripeSignature | StandardSignature | PlainSignature


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where a provider reports the outcome of operations, and how the gateway reads its events.

    `event_id` is a JSON pointer into the event, or `header:<name>`. The record is found by the text that `find` (a JSON
    pointer into the event) gives, among the route's records, as the captured value called `by` (`OWN_KEY`: the key as
    the upstream saw it).
    """

    path: str
    signature: Signature
    event_id: str
    find: str
    rules: tuple[Rule, ...]
    by: str = OWN_KEY
    limit: int = 1024 * 1024
    remember: float = 7 * 86400.0
