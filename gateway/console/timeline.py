"""What happened to a record, and what is to come, as one list of moments. Pure."""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.console.words import reason_words
from gateway.core.model import Status
from gateway.ports.reconciliation import Detail, Remembered, Shown


@dataclass(frozen=True, slots=True)
class Moment:
    """One line of the timeline. `kind` chooses the mark: begun, doubt, look, event, person, point, done, released or coming.
    `facts` are what proves it, by name.
    """

    at: dt.datetime
    kind: str
    title: str
    actor: str | None = None
    reason: str | None = None
    facts: tuple[tuple[str, str], ...] = ()


_SOURCES = {
    "lookup": "The gateway asked the upstream",
    "cancel": "The gateway asked the upstream to cancel it",
    "resend": "The gateway repeated the request",
    "manual": "No probe is configured",
    "webhook": "An event came",
}
_VERDICTS = {
    "executed": "executed",
    "not_executed": "not executed",
    "not_yet_known": "not yet known",
    "dead_lettered": "given up: a dead letter",
}
ACTIONS = {
    "executed": "Verdict: executed",
    "not_executed": "Verdict: not executed",
    "released": "Released",
    "requeued": "Queued for looks again",
    "look_now": "A look was asked for",
    "proposed": "A verdict was proposed",
    "rejected": "The proposed verdict was rejected",
}


def timeline(shown: Shown) -> list[Moment]:
    """All moments, oldest first; those after the reading are of kind `coming`."""
    moments = [*_of_record(shown), *(_remembered(line) for line in shown.history), *_coming(shown)]
    return sorted(moments, key=lambda moment: moment.at)


def _of_record(shown: Shown) -> Iterator[Moment]:
    listed = shown.listed
    yield Moment(
        listed.created_at,
        "begun",
        "The gateway reserved the key",
        facts=(("request", listed.request_id), ("method", listed.method)),
    )
    told = {(line.at, line.entry.what) for line in shown.history}
    if listed.unknown_since is not None:
        why = reason_words(listed.reason)
        attempt = (("attempt", str(listed.attempt)),)
        yield Moment(listed.unknown_since, "doubt", "The outcome became unknown" + (f": {why}" if why else ""), facts=attempt)
    if listed.dead_lettered_at is not None and not any(what == "dead_lettered" for _, what in told):
        yield Moment(listed.dead_lettered_at, "doubt", "It became a dead letter: nothing is configured that could find out")
    if listed.completed_at is not None:
        yield Moment(listed.completed_at, "done", _completed(shown), facts=_answer_facts(shown))


def _completed(shown: Shown) -> str:
    by = {
        "gateway": "with the upstream's answer",
        "upstream": "in the upstream's own transaction",
        "verdict": "by a verdict",
        "operator": "by a person's verdict",
    }
    return f"It completed {by.get(shown.completed_by or '', '')}".rstrip()


def _answer_facts(shown: Shown) -> tuple[tuple[str, str], ...]:
    response = shown.response
    if response is None:
        return ()
    return (("status", str(response.status)), ("length", str(response.body_length)), ("sha256", response.body_digest.hex()))


def _remembered(line: Remembered) -> Moment:
    entry = line.entry
    facts = _facts(entry.detail)
    if entry.source == "operator":
        title = ACTIONS.get(entry.what, entry.what.replace("_", " ").capitalize())
        return Moment(line.at, "person", title, entry.actor, entry.reason, facts)
    if entry.source == "attempt":
        return Moment(
            line.at, _kind(entry.what, "point"), f"Attempt: {_VERDICTS.get(entry.what, entry.what.replace('_', ' '))}", facts=facts
        )
    source = _SOURCES.get(entry.source, entry.source.replace("_", " ").capitalize())
    verdict = _VERDICTS.get(entry.what, entry.what.replace("_", " "))
    return Moment(
        line.at,
        _kind(entry.what, "event" if entry.source == "webhook" else "look"),
        f"{source}: {verdict}",
        entry.actor,
        entry.reason,
        facts,
    )


def _kind(what: str, otherwise: str) -> str:
    return "doubt" if what in {"dead_lettered", "conflict"} else otherwise


_FIRST = ("verdict", "why", "error", "request", "status")
"""The facts that a person reads first."""


def _facts(detail: Detail) -> tuple[tuple[str, str], ...]:
    told = {name: str(value) for name, value in detail.items() if value is not None}
    names = [*(name for name in _FIRST if name in told), *(name for name in told if name not in _FIRST)]
    return tuple((name.replace("_", " "), told[name].replace("_", " ") if name == "verdict" else told[name]) for name in names)


def _coming(shown: Shown) -> Iterator[Moment]:
    listed, now = shown.listed, shown.at
    found = {
        "The attempt's lease ends": listed.locked_until if listed.status is Status.IN_PROGRESS else None,
        "The upstream has surely finished: *not executed* may count": listed.doubtful_until,
        "The gateway looks": listed.reconcile_after if listed.status is Status.UNKNOWN and listed.dead_lettered_at is None else None,
        "The record expires": listed.expires_at,
    }
    for title, at in found.items():
        if at is not None and at > now:
            yield Moment(at, "coming", title.replace("*", ""))
