"""The upstream's own signals: whether it executed, and how long to keep its answer. The gateway believes them where a
route trusts them.

Fields and body are read from a complete response as the upstream sent it. A trusted signal that cannot be read, or
whose field lines contradict each other, is a doubt: guessing could let an operation run twice.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from gateway.core import texts
from gateway.core.common_kinds import HEADER, STATUSES
from gateway.core.headers import Fields, wire_name
from gateway.core.kinds import Text
from gateway.core.model import Headers
from gateway.core.pointers import NOTHING, Json
from gateway.core.reconcile.found import document_of, meets
from gateway.core.reconcile.policy import CONDITIONS, AnswerPlan, Condition
from gateway.core.retention import MAX_RETENTION
from gateway.core.setting import Shape

RETENTION = b"idempotency-retention"
"""The field of `retention_of`, in lower case. On a route that trusts it, the client does not get the field."""

LONGEST_READ = 1024 * 1024
"""Bytes. The gateway does not read a longer body, which then meets no condition."""


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
    statuses: Annotated[frozenset[int], STATUSES, "The statuses at which it counts. Empty: any."] = frozenset()
    outcome: Annotated[HintedOutcome | None, "What it tells. Default: its own value is one of these words."] = None
    remove: Annotated[bool, "Whether the client does not see the field."] = False
    when: Annotated[
        tuple[Condition, ...], CONDITIONS, "Conditions on the JSON body of the answer, up to 1 MiB, which must all be met."
    ] = ()
    answer: Annotated[AnswerPlan, "Of `exists`: the operation's answer. Default: what the upstream says, as it comes."] = field(
        default_factory=AnswerPlan
    )


@dataclass(frozen=True, slots=True)
class Signal:
    """What a response says of the execution. `answer` is the plan of the hint that applied."""

    outcome: HintedOutcome
    answer: AnswerPlan


def removed(hints: Sequence[Hint]) -> frozenset[bytes]:
    """The lower-case names of fields that the client does not get: from no response, whether the hint applies or not,
    since it must not come to rely on them.
    """
    return frozenset([wire_name(hint.header) for hint in hints if hint.remove and hint.header is not None])


def reads_body(status: int, hints: Sequence[Hint]) -> bool:
    """Whether what a response with this status says depends on its body."""
    return any(hint.when and (not hint.statuses or status in hint.statuses) for hint in hints)


def signal_of(status: int, headers: Headers, hints: Sequence[Hint], body: bytes | None = None) -> Signal | None:
    """What the first hint that applies makes of a response. None: no hint applies, the route's lists decide.

    `body` is None where it was not kept, or is longer than `LONGEST_READ`. What is no JSON meets no condition, nor does
    what has a content coding.
    """
    if not hints:
        return None
    fields = Fields(headers)
    document = document_of(body) if body is not None and reads_body(status, hints) else NOTHING
    for hint in hints:
        outcome = _apply(hint, status, fields, document)
        if outcome is not None:
            return Signal(outcome, hint.answer)
    return None


def _apply(hint: Hint, status: int, fields: Fields, document: Json) -> HintedOutcome | None:
    if (hint.statuses and status not in hint.statuses) or not meets(hint.when, document):
        return None
    if hint.header is None:
        return hint.outcome
    said = {value.strip(b" \t").lower() for value in fields.values(wire_name(hint.header))}
    if not said or (hint.value is not None and hint.value.strip().lower().encode() not in said):
        return None
    if hint.value is None and hint.outcome is not None:
        return hint.outcome  # the field's mere presence is the signal, as with Retry-After on a 503
    if len(said) > 1:
        return HintedOutcome.UNKNOWN
    return hint.outcome or _OUTCOMES.get(said.pop(), HintedOutcome.UNKNOWN)


_OUTCOMES = {outcome.value.encode(): outcome for outcome in HintedOutcome}


def retention_of(headers: Headers, default: float) -> float | None:
    """How many seconds an answer is kept by the word of the upstream: `Idempotency-Retention: <whole seconds>`, at most
    `MAX_RETENTION`.

    None for `no-store`, and for 0, which means the same: the *answer* is not kept. Its record is, for `default`, or the
    operation could run again. Without the field, or if it cannot be read, `default`. Of several lines the shortest
    counts.
    """
    said = [_seconds(value.strip(b" \t").lower()) for value in Fields(headers).values(RETENTION)]
    readable = [seconds for seconds in said if seconds is not None]
    if not readable or len(readable) < len(said):
        return default
    return min(readable) or None


def _seconds(value: bytes) -> float | None:
    if value == b"no-store":
        return 0.0
    if not value.isdigit():
        return None
    return MAX_RETENTION if len(value) > 12 else min(float(value), MAX_RETENTION)
