"""Whether a record, as shown, allows a change. Pure; the store's fence decides in the end."""

import datetime as dt
import enum
from typing import assert_never

from gateway.core.model import Status
from gateway.operate.operations.outcomes import Conflict, TooEarly
from gateway.ports.reconciliation import Listed, Shown


class Change(enum.StrEnum):
    """What an operator may do to a record; the words of `Audit.action`, but for the two verdicts, which are both a
    `resolve`.
    """

    EXECUTED = "executed"
    NOT_EXECUTED = "not_executed"
    RELEASE = "release"
    DELETE = "delete"
    REQUEUE = "requeue"
    LOOK_NOW = "look_now"


def obstacle(change: Change, shown: Shown) -> Conflict | TooEarly | None:
    """What stands in the way of the change, at the instant `shown.at`; None if nothing does."""
    now = shown.listed
    if now.observed and not (change is Change.DELETE and _ended(now)):
        return Conflict(now, "It was made under `mode: observe`: it guards nothing, and ends by itself.")
    match change:
        case Change.EXECUTED:
            return _to_completed(now, shown.at)
        case Change.NOT_EXECUTED:
            if now.status is Status.IN_PROGRESS and not _running(now, shown.at):
                return Conflict(now, "Its lease has lapsed: a sweep makes it unknown within seconds. Try again then, or release it.")
            return _to_retryable(now, shown)
        case Change.RELEASE:
            return _to_retryable(now, shown)
        case Change.DELETE:
            return (
                None if _ended(now) else Conflict(now, f"It is {now.status}. Only completed and failed_retryable records can be deleted.")
            )
        case Change.REQUEUE:
            return None if now.dead_lettered_at is not None else Conflict(now, "It is no dead letter.")
        case Change.LOOK_NOW:
            waits = now.status is Status.UNKNOWN and now.dead_lettered_at is None
            return None if waits else Conflict(now, "No look of it is due: it is no unknown record, or a dead letter, to be requeued.")
        case _:
            assert_never(change)


def _to_completed(now: Listed, at: dt.datetime) -> Conflict | None:
    if now.status is Status.COMPLETED:
        return Conflict(now, "It is completed already, and what is completed never changes.")
    if _running(now, at):
        return Conflict(now, "Its attempt is still under way, and will say itself how it ended.")
    if now.status is Status.FAILED_RETRYABLE and now.expires_at is not None and now.expires_at <= at:
        return Conflict(now, "It has expired: the next request with its key is a new operation.")
    return None


def _to_retryable(now: Listed, shown: Shown) -> Conflict | TooEarly | None:
    if now.status is Status.COMPLETED:
        return Conflict(now, "It is completed: the operation was executed. Delete the record if its key is to be used anew.")
    if now.status is Status.FAILED_RETRYABLE:
        return Conflict(now, "It is failed_retryable already: the next retry runs.")
    if _running(now, shown.at):
        return Conflict(now, "Its attempt is still under way, and will say itself how it ended.")
    if shown.evidence:
        return Conflict(
            now, "A webhook's event has said that it was executed: the reconciler concludes with that, and it must not run again."
        )
    if now.doubtful_until is not None and now.doubtful_until > shown.at:
        return TooEarly(now.doubtful_until, now)
    return None


def _running(now: Listed, at: dt.datetime) -> bool:
    return now.locked_until is not None and now.locked_until > at


def _ended(now: Listed) -> bool:
    return now.status in {Status.COMPLETED, Status.FAILED_RETRYABLE}
