"""The upstream's own signals: whether it executed, and how long to keep its answer. The gateway believes them where a
route trusts them.

Fields and body are read from a complete response as the upstream sent it. A trusted signal that cannot be read, or
whose field lines contradict each other, is a doubt: guessing could let an operation run twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.core.headers import Fields, wire_name
from gateway.core.model import Headers
from gateway.core.pointers import NOTHING, Json
from gateway.core.policy import MAX_RETENTION, Hint, HintedOutcome
from gateway.core.reconcile.found import document_of, meets
from gateway.core.reconcile.policy import AnswerPlan

RETENTION = b"idempotency-retention"
"""The field of `retention_of`, in lower case. On a route that trusts it, the client does not get the field."""

LONGEST_READ = 1024 * 1024
"""Bytes. The gateway does not read a longer body, which then meets no condition."""


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
