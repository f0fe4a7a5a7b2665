"""The search of the records' list: what the query says, as a `Selection`, and as the form shows it again."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

from gateway.operate.operations import STATES, Wrong
from gateway.ports.reconciliation import Selection

WAYS = {
    "key": "Key",
    "request_id": "Request id",
    "scope_id": "Caller (scope id)",
    "key_digest": "Key as logs show it",
    "id": "Record id",
    "trace_id": "Trace id",
}
"""By what a text is looked for, with the words of the form."""

_NAMES = ("q", "by", "state", "route", "since", "until")


@dataclass(frozen=True, slots=True)
class Search:
    """What was asked for. `mistakes`: what is wrong with it, by field; then `selection` is what could be read."""

    given: Mapping[str, str]
    selection: Selection
    mistakes: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str | None:
        """The record id that was asked for, if one was."""
        return self.given["q"] if self.given["by"] == "id" and self.given["q"] else None

    def address(self, path: str, **more: str) -> str:
        """The same search at another page of its list."""
        query = {**{name: value for name, value in self.given.items() if value and not (name == "by" and not self.given["q"])}, **more}
        return f"{path}?{urlencode(query)}" if query else path


def read_search(query: Mapping[str, str], state: str | None = None) -> Search:
    """The search of a query. `state`: the list's own, which none may change. Unknown names are left alone: a link may carry others."""
    given = {name: query.get(name, "").strip() for name in _NAMES}
    mistakes: dict[str, str] = {}
    if given["by"] not in WAYS:
        given["by"] = _guess(given["q"])
    if given["state"] and given["state"] not in STATES:
        mistakes["state"] = "There is no such state."
        given["state"] = ""
    instants: dict[str, dt.datetime | None] = {}
    for name in ("since", "until"):
        try:
            instants[name] = _instant(given[name])
        except ValueError:
            instants[name], mistakes[name] = None, "Write it as 2026-11-28 04:21, in UTC."
    sought = {given["by"]: given["q"]} if given["q"] and given["by"] != "id" else {}
    selection = Selection(
        state or given["state"] or None,
        given["route"] or None,
        key=sought.get("key"),
        scope_id=sought.get("scope_id"),
        request_id=sought.get("request_id"),
        trace_id=sought.get("trace_id"),
        since=instants["since"],
        until=instants["until"],
        key_digest=sought.get("key_digest"),
    )
    return Search(given, selection, mistakes)


def _guess(text: str) -> str:
    """A record id says itself what it is."""
    return "id" if text.startswith("rec_") else "key"


def _instant(text: str) -> dt.datetime | None:
    """A date, or a date and a time, in UTC unless it names an offset."""
    if not text:
        return None
    try:
        found = dt.datetime.fromisoformat(text)
        return found.replace(tzinfo=dt.UTC) if found.tzinfo is None else found.astimezone(dt.UTC)
    except OverflowError:
        raise ValueError("beyond all calendars") from None


def told(mistake: Wrong) -> dict[str, str]:
    """A mistake that the service found, at the field of the form that has it."""
    place = "q" if mistake.field in WAYS else mistake.field
    return {place: mistake.why[:1].upper() + mistake.why[1:]}
