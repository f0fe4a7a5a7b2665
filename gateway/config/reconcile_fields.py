"""The part of the table about finding out what an unknown attempt did: probes. Defaults are those of `gateway.core.reconcile.policy`.

What a route must say is judged after `defaults` have filled in theirs (`check_reconcile`), so nothing here is `required` but in lists,
which are taken whole.
"""

from gateway.config import reconcile_texts, texts
from gateway.config.alternatives import Alternatives
from gateway.config.json_values import JsonValues, Yes
from gateway.config.kinds import Choice, Duration, Text, Whole
from gateway.config.named import FromFile, Named
from gateway.config.shapes import Field, ListOf, Section, Struct
from gateway.core.reconcile.placeholders import same_as
from gateway.core.reconcile.policy import AnswerPlan, Pace, Verdict

PROBES = ("lookup", "cancel", "resend", "manual")
TESTS = ("equals", "exists", "missing", "empty", "not_empty", "same_as")
CALLER_BOUND = Choice({word: word for word in ("rules", "upstream")})
CONCURRENCY_MAX = 1000

_PACE = Pace()
_POINTER = Text("a JSON pointer", reconcile_texts.whole_pointer, reconcile_texts.WHOLE_POINTER_PATTERN)
_NAME = Text("a header name", texts.header_name, texts.HEADER_PATTERN)
_VALUE = Text("a header value", reconcile_texts.header_value, secret=True)
_PLAIN_VALUE = Text("a header value", reconcile_texts.header_value)


class ConditionFields:
    """`when[]` of a rule."""

    POINTER = Field("pointer", _POINTER, "Where in the JSON body (RFC 6901); empty: the whole.", required=True)
    EQUALS = Field("equals", JsonValues(), "What is there is this value, or one of these; numbers by their value, and 1 is not '1'.")
    EXISTS = Field("exists", Yes("missing"), "true: something other than null is there.")
    MISSING = Field("missing", Yes("exists"), "true: nothing is there, not even null; `equals: null` is for that.")
    EMPTY = Field("empty", Yes("not_empty"), "true: an empty list, object or text is there.")
    NOT_EMPTY = Field("not_empty", Yes("empty"), "true: a list, object or text that is not empty is there.")
    SAME_AS = Field(
        "same_as",
        Text("a placeholder", same_as, r"^\{(principal|key|request_id|captured\.[A-Za-z_][A-Za-z0-9_]{0,63})\}$"),
        "What is there is what this stands for: '{principal}' binds what was found to the caller.",
    )


CONDITIONS = ListOf(
    Struct.of(
        ConditionFields,
        Alternatives(TESTS, required=True),
        {"path": "pointer", "is": "equals", "in": "equals", "value": "equals", "present": "exists", "absent": "missing"},
    ),
    unique=False,
)


class AnswerFields:
    """`answer` of a rule."""

    STATUS = Field("status", Whole(200, 599), "The answer's status. Default: that of what was found.")
    HEADERS = Field("headers", Named(_NAME, _PLAIN_VALUE, fold=True), "Its header fields, with placeholders.", ())
    BODY = Field("body", Text("text", str), "Its body, with placeholders such as {key} and {found:/id}. Either this or `pointer`.")
    POINTER = Field("pointer", _POINTER, "Its body is what this names in what was found, as JSON; empty: the whole.", AnswerPlan().pointer)


ANSWER = Struct.of(AnswerFields, Alternatives(("body", "pointer")))


class RuleFields:
    """`rules[]`."""

    STATUS = Field("status", ListOf(Whole(100, 599), at_least=1), "The statuses at which it applies. Default: any.", ())
    WHEN: Field[tuple[Section, ...]] = Field("when", CONDITIONS, "Conditions on the JSON body, which must all be met.", ())
    VERDICT = Field(
        "verdict",
        Choice({verdict.value: verdict for verdict in Verdict}),
        "executed, not_executed or not_yet_known. A payment that was created and then declined is executed.",
        required=True,
    )
    ANSWER: Field[Section] = Field(
        "answer",
        ANSWER,
        "The operation's answer, of an executed one. Default: what was found, with its status.",
    )


RULES = ListOf(Struct.of(RuleFields, meant={"statuses": "status", "conditions": "when", "response": "answer"}), at_least=1, unique=False)


class RequestFields:
    """`routes[].idempotency.reconcile.request`."""

    METHOD = Field(
        "method", Text("a method", texts.method, texts.METHOD_PATTERN), "The request's method. Default: GET of a lookup, POST of a cancel."
    )
    PATH = Field(
        "path",
        Text("a path", reconcile_texts.request_target, r"^/"),
        "Path and query, with {key}, {principal}, {captured.NAME} and {request_id}, percent-encoded; in the path none may hold a "
        "slash or the like.",
    )
    HEADERS = Field("headers", Named(_NAME, _VALUE, fold=True), "All header fields that are sent besides Host, with placeholders.", ())
    HEADERS_FILE = Field(
        "headers_file", Named(_NAME, FromFile(_VALUE), fold=True), "More of them, each with a file that holds the value.", ()
    )
    BODY = Field("body", Text("text", str), "The request's body, with placeholders, which are escaped for JSON in a JSON body.")


class ReconcileFields:
    """`routes[].idempotency.reconcile`."""

    PROBE = Field(
        "probe",
        Choice({word: word for word in PROBES}),
        "lookup: ask; cancel: make sure that it never happens; resend: send it again (the upstream deduplicates by key); manual: nobody.",
        "manual",
    )
    UPSTREAM = Field(
        "upstream", Text("a name", texts.name, texts.NAME_PATTERN), "Whom to ask: a name among `upstreams`. Default: the route's own."
    )
    REQUEST: Field[Section] = Field(
        "request", Struct.of(RequestFields, meant={"target": "path", "url": "path"}), "What is sent by lookup and cancel."
    )
    RULES: Field[tuple[Section, ...]] = Field(
        "rules", RULES, "What the answer means; the first that applies counts. If none does, the outcome is not yet known."
    )
    CAPTURE = Field(
        "capture",
        Named(
            Text("a name", reconcile_texts.captured_name, reconcile_texts.CAPTURED_PATTERN),
            Text("a JSON pointer", reconcile_texts.inner_pointer, texts.POINTER_PATTERN),
        ),
        "Values of the original JSON request that are kept with the record, by name and JSON pointer: a text or a number each.",
        (),
    )
    CALLER_BOUND = Field(
        "caller_bound",
        CALLER_BOUND,
        "Who sees to it that a captured value finds the caller's own operation: rules, the request or the rules name {principal}; "
        "upstream, callers cannot name each other's.",
        "rules",
    )
    LOOKS = Field("looks", Whole(1, 20), "How many looks in a row must agree on not executed.", _PACE.looks)
    APART = Field("apart", Duration("0s", "1d"), "How far apart these are at least.", _PACE.apart)
    FIRST = Field("first", Duration("100ms", "1d"), "The wait after a look that found nothing out; it doubles each time.", _PACE.first)
    LONGEST = Field("longest", Duration("100ms", "7d"), "Up to this.", _PACE.longest)
    ATTEMPTS = Field("attempts", Whole(1, 10_000), "After so many looks the record is a dead letter.", _PACE.attempts)
    MAX_AGE = Field("max_age", Duration("1s", "365d"), "After so long in doubt the record is a dead letter.", _PACE.max_age)
    TIMEOUT = Field("timeout", Duration("10ms", "10m"), "For one look.", _PACE.timeout)
    CONCURRENCY = Field("concurrency", Whole(1, CONCURRENCY_MAX), "Looks under way at one upstream, of one process.", _PACE.concurrency)


RECONCILE = Struct.of(ReconcileFields, meant={"kind": "probe", "captured": "capture"})
