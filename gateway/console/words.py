"""What the console says of records, in sentences: their state, what comes next, and what a change means for the next retry. Pure."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from gateway.core.model import Status
from gateway.core.policy import OnUnknown, Policy
from gateway.core.roles import Action
from gateway.operate.operations.rules import Change
from gateway.ports.reconciliation import Listed

DEAD_LETTER = "dead_letter"

STATE_WORDS = {
    Status.COMPLETED.value: "completed",
    Status.UNKNOWN.value: "unknown",
    DEAD_LETTER: "dead letter",
    Status.IN_PROGRESS.value: "in progress",
    Status.PENDING.value: "pending",
    Status.FAILED_RETRYABLE.value: "failed, retryable",
}
"""The states by name, in the order in which a person looks for them."""


def state_of(listed: Listed) -> str:
    """The state as lists name it: a status, or `dead_letter`."""
    return DEAD_LETTER if listed.dead_lettered_at is not None else listed.status.value


@dataclass(frozen=True, slots=True)
class Until:
    """An instant that something waits for, for a countdown. `text` says what happens then; `at` None: nobody knows when."""

    text: str
    at: dt.datetime | None = None


def next_step(listed: Listed) -> Until:
    """What happens to the record by itself, and when."""
    match listed.status:
        case Status.COMPLETED:
            return Until("expires", listed.expires_at)
        case Status.FAILED_RETRYABLE:
            return Until("expires", listed.expires_at)
        case Status.IN_PROGRESS:
            return Until("lease ends", listed.locked_until)
        case Status.PENDING:
            return Until("waits for a free slot")
        case Status.UNKNOWN if listed.dead_lettered_at is not None:
            return Until("waits for a person")
        case Status.UNKNOWN:
            return Until("next look", listed.reconcile_after)
        case _:
            assert_never(listed.status)


def retry_now(listed: Listed, at: dt.datetime, policy: Policy | None) -> str:
    """What a client gets that sends the request again now, at the instant `at`."""
    if listed.observed:
        return "The route only observed this request: a retry runs at the upstream, whatever this record says."
    match listed.status:
        case Status.COMPLETED if listed.expires_at is not None and listed.expires_at <= at:
            return "The record has expired: a request with this key is a new operation."
        case Status.COMPLETED:
            return "A retry gets the stored answer, byte for byte. The operation does not run again."
        case Status.FAILED_RETRYABLE:
            return "A retry runs the operation: the attempt before was not executed."
        case Status.PENDING:
            return "A retry gets 202 again. Nothing was sent yet; the gateway runs the operation when there is a free slot."
        case Status.IN_PROGRESS if listed.locked_until is not None and listed.locked_until > at:
            return "A retry gets 409 request-in-progress, or waits, as its route says. The attempt is under way."
        case Status.IN_PROGRESS:
            return "The lease has lapsed: a retry, or the next sweep, makes the record unknown. Nothing runs again."
        case Status.UNKNOWN:
            return _retry_of_unknown(policy)
        case _:
            assert_never(listed.status)


def _retry_of_unknown(policy: Policy | None) -> str:
    if policy is not None and policy.on_unknown is not OnUnknown.RECONCILE:
        return "A retry gets 409 outcome-unknown until the attempt has surely ended. Then it runs the operation again, as its route says."
    return "A retry gets 409 outcome-unknown. The operation does not run again until its outcome is known."


PATHS = {
    "completed": Change.EXECUTED,
    "not-executed": Change.NOT_EXECUTED,
    "release": Change.RELEASE,
    "delete": Change.DELETE,
    "requeue": Change.REQUEUE,
    "look-now": Change.LOOK_NOW,
}
"""The last part of a verdict's address."""

NEEDS = {
    Change.EXECUTED: Action.RESOLVE,
    Change.NOT_EXECUTED: Action.RESOLVE,
    Change.RELEASE: Action.RELEASE,
    Change.DELETE: Action.DELETE,
    Change.REQUEUE: Action.REQUEUE,
    Change.LOOK_NOW: Action.LOOK,
}
"""What a visitor must be allowed to do."""

TITLES = {
    Change.EXECUTED: "It was executed",
    Change.NOT_EXECUTED: "It was not executed",
    Change.RELEASE: "Release it",
    Change.DELETE: "Delete the record",
    Change.REQUEUE: "Look again",
    Change.LOOK_NOW: "Look now",
}
"""The changes, as headings and links name them."""

BUTTONS = {
    Change.EXECUTED: "Record this answer",
    Change.NOT_EXECUTED: "Record: not executed",
    Change.RELEASE: "Release",
    Change.DELETE: "Delete",
    Change.REQUEUE: "Queue for looks",
    Change.LOOK_NOW: "Look now",
}

CHOOSE = {
    Change.EXECUTED: "You know that it ran, and what the upstream answered. Retries get that answer from now on.",
    Change.NOT_EXECUTED: "The upstream has surely finished and has no trace of it. The next retry runs it.",
    Change.RELEASE: "Nobody could find out, and you answer for it: the next retry runs it.",
    Change.DELETE: "Forget the record and its key. A request with the key is a new operation.",
    Change.REQUEUE: "Have the gateway ask the upstream again, from the first look on.",
    Change.LOOK_NOW: "Have the gateway ask the upstream now, rather than when the next look is due.",
}
"""One sentence each, for the person who has to choose."""

DONE: Mapping[str, str] = {
    "proposed": "Proposed. Another user confirms or rejects it; until then nothing changes.",
    "approved": "Done. You have confirmed the verdict.",
    "rejected": "Rejected. The record is as it was.",
    Change.EXECUTED: "Done. Retries get this answer from now on.",
    Change.NOT_EXECUTED: "Done. The next retry runs the operation.",
    Change.RELEASE: "Done. The next retry runs the operation.",
    Change.DELETE: "Done. The record is gone, and its key is free.",
    Change.REQUEUE: "Done. The looks begin anew; retries get 409 outcome-unknown meanwhile.",
    Change.LOOK_NOW: "Done. The next look is due now; what it finds is in the timeline within seconds.",
}


def consequence(change: Change, listed: Listed) -> str:
    """What the change means for the next retry."""
    again = f"as attempt {listed.attempt + 1}"
    match change:
        case Change.EXECUTED:
            return (
                "The next retry, and every later one, gets exactly this answer, marked as replayed. "
                "The operation never runs again under this key. A verdict is for good."
            )
        case Change.NOT_EXECUTED:
            return (
                f"The next retry runs the operation at the upstream, {again}. If the attempt before has executed after all, "
                "it then runs twice: be sure that the upstream has no trace of it."
            )
        case Change.RELEASE:
            return (
                f"The next retry runs the operation at the upstream, {again}, by your word alone. If the attempt before has executed, "
                "it then runs twice."
            )
        case Change.DELETE if listed.status is Status.COMPLETED:
            return (
                "The stored answer is lost. The next request with this key, a late retry of the same operation too, runs at the upstream "
                "as a new operation: what has been executed then runs a second time."
            )
        case Change.DELETE:
            return "The key is free: the next request with it, whatever it asks for, runs as a new operation."
        case Change.REQUEUE:
            return "For clients nothing changes: retries get 409 outcome-unknown until a look finds the outcome. Looks count from 0 again."
        case Change.LOOK_NOW:
            return "For clients nothing changes: retries get 409 outcome-unknown until a look finds the outcome. One comes now."
        case _:
            assert_never(change)


REASONS = {
    "upstream_disconnected": "the upstream hung up after the request was sent",
    "upstream_timeout": "the upstream did not answer in time",
    "lease_expired": "the gateway died, or was cut off, while the operation ran",
    "read_timeout": "the upstream did not answer in time",
    "operator_released": "a person released it",
    "verdict_not_executed": "a verdict says that it was not executed",
}


def reason_words(code: str | None) -> str | None:
    """A stored reason for people: the code stays where nothing better is known."""
    if code is None:
        return None
    if code.startswith("status_"):
        return f"the upstream answered {code.removeprefix('status_')}"
    return REASONS.get(code, code.replace("_", " "))


def duration(seconds: float) -> str:
    """A length of time, as people say it: 45 s, 4 min 10 s, 3 h 5 min, 2 d 4 h."""
    left = max(int(seconds), 0)
    for unit, size, below, under in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if left >= size:
            rest = left % size // under
            return f"{left // size} {unit} {rest} {below}" if rest else f"{left // size} {unit}"
    return f"{left} s"


def ago(at: dt.datetime, now: dt.datetime) -> str:
    """How far an instant lies back, or ahead."""
    seconds = (now - at).total_seconds()
    return f"{duration(seconds)} ago" if seconds >= 0 else f"in {duration(-seconds)}"
