"""Records, histories and audit lines as people read them on a terminal.

Everything here is read from the documents that the admin API gives as JSON. Texts of clients (keys, captured values, targets) may hold
control characters, which could rewrite what a terminal shows: they are escaped.
"""

import datetime as dt
import re
import shutil
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TextIO

from gateway.core.units import format_duration
from gateway.core.visible import visible

NOTHING = "-"
WIDTH = 120
"""Columns of a terminal into which a line of records fits."""
_GAP = "  "
_NARROWEST = 8


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, width: int | None = None, elastic: Collection[str] = ()) -> str:
    """Columns, aligned, under a line of headings. The last column is not padded.

    With `width` the `elastic` columns are cut until a line fits, the widest first; what is cut ends with an ellipsis.
    """
    lines = [tuple(headings), *(tuple(map(plain, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    if width is not None:
        _narrow(widths, [place for place, heading in enumerate(headings) if heading in elastic], width)
    return "\n".join(_GAP.join(map(_cell, line, widths)).rstrip() for line in lines)


def _narrow(widths: list[int], elastic: Sequence[int], width: int) -> None:
    while sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        widest = max(elastic, key=lambda place: widths[place])
        if widths[widest] <= _NARROWEST:
            return
        widths[widest] -= 1


def _cell(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else f"{text[: width - 1]}…"


def pairs(facts: Mapping[str, object]) -> str:
    """One fact a line, its name first."""
    width = max(map(len, facts), default=0) + 1
    return "\n".join(f"{name + ':':<{width}} {plain(value)}" for name, value in facts.items())


def plain(value: object) -> str:
    """A value in one line, without anything that a terminal would obey."""
    match value:
        case None | "":
            return NOTHING
        case bool():
            return "yes" if value else "no"
        case str():
            return visible(value)
        case Mapping():
            return plain(" ".join(f"{name}={plain(item)}" for name, item in value.items()))
        case _:
            return str(value)


def instant(text: str | None) -> str:
    """An instant of a document, to the second."""
    if text is None:
        return NOTHING
    return f"{dt.datetime.fromisoformat(text).astimezone(dt.UTC):%Y-%m-%d %H:%M:%SZ}"


RECORD_HEADINGS = ("STATE", "ROUTE", "KEY", "ATTEMPT", "SINCE", "REASON", "NEXT", "ID")
_INSTANT_COLUMNS = (4, 6)
_YEAR = re.compile(r"\b\d{4}-(?=\d\d-\d\d )")


def record_table(records: Sequence[Mapping[str, Any]], *, width: int | None = None) -> str:
    """One line a record. With `width`, that of a terminal, instants have no year and texts are cut where they must be; pipes get all."""
    rows = map(_record_row, records)
    if width is None:
        return table(RECORD_HEADINGS, rows)
    short = ([_YEAR.sub("", plain(text)) if place in _INSTANT_COLUMNS else text for place, text in enumerate(row)] for row in rows)
    return table(RECORD_HEADINGS, short, width=width, elastic=("ROUTE", "KEY", "REASON"))


def terminal_width(stream: TextIO) -> int | None:
    """How wide a line of records may be there, `WIDTH` at least; None where no person looks."""
    return max(WIDTH, shutil.get_terminal_size().columns) if stream.isatty() else None


def _record_row(record: Mapping[str, Any]) -> Sequence[object]:
    since = {
        "dead_letter": record["dead_lettered_at"],
        "unknown": record["unknown_since"],
        "completed": record["completed_at"],
    }.get(record["state"]) or record["created_at"]
    reason = None if record["state"] == "completed" else record["reason"]  # of the doubt that there was before
    shown = (record["state"], record["route"], record["key"], record["attempt"], instant(since), reason)
    return (*shown, _next(record), record["short_id"])


def _next(record: Mapping[str, Any]) -> str:
    """What happens to the record by itself, and when."""
    match record["state"]:
        case "dead_letter":
            return "a person"
        case "unknown":
            return f"look {instant(record['reconcile_after'])}"
        case "pending":
            return "to be sent"
        case "in_progress":
            return f"lease ends {instant(record['locked_until'])}"
        case _:
            return f"expires {instant(record['expires_at'])}"


def shown_text(record: Mapping[str, Any]) -> str:
    """One record whole, with its history."""
    answer = record["response"]
    facts = {
        **{
            name: record[name]
            for name in ("short_id", "id", "state", "route", "scope_id", "key", "key_digest", "method", "target", "attempt", "request_id")
        },
        "reason": record["reason"],
        **{name: instant(record[name]) for name in _INSTANTS if record[name] is not None},
        "next": _next(record),
        "looks": record["looks"],
        **({"observed": True} if record["observed"] else {}),
        **({"recovery_point": record["recovery_point"]} if record["recovery_point"] is not None else {}),
        **({"recovery_data": record["recovery_data"]} if record["recovery_data"] is not None else {}),
        **({"completed_by": record["completed_by"]} if record["completed_by"] is not None else {}),
        **({"webhook": "says that it was executed"} if record["executed_says_webhook"] else {}),
        **{f"captured.{name}": value for name, value in record["captured"].items()},
        **(_answer_facts(answer) if answer is not None else {}),
        "record_id": record["record_id"],
        "version": record["version"],
    }
    history = [(instant(line["at"]), *(line[name] for name in _HISTORY), _in_order(line["detail"])) for line in record["history"]]
    lines = table(("AT", *map(str.upper, _HISTORY), "DETAIL"), history) if history else "no history: no look, event or change yet"
    return f"{pairs(facts)}\n\n{lines}"


def asked_text(found: Mapping[str, Any]) -> str:
    """What an upstream says of an operation."""
    answer = found["answer"]
    facts = {"verdict": found["verdict"], **_in_order(found["detail"]), **(_answer_facts(answer) if answer is not None else {})}
    return pairs(facts)


def proposed_text(waiting: Mapping[str, Any]) -> str:
    """A verdict that waits for another user."""
    answer = waiting["response"]
    facts = {name: waiting[name] for name in ("proposal", "verdict", "proposed_by", "reason", "proposed_at", "expires_at", "stale")}
    if waiting["retention"] is not None:
        facts["kept for"] = format_duration(waiting["retention"])
    return pairs({**facts, **(_answer_facts(answer) if answer is not None else {})})


_FACTS = ("short_id", "id", "state", "route", "scope_id", "key", "method", "target", "attempt", "request_id")
_INSTANTS = ("created_at", "unknown_since", "doubtful_until", "dead_lettered_at", "completed_at", "expires_at")
_HISTORY = ("source", "what", "actor", "reason")
_FIRST = ("look", "request", "status", "why")


def _in_order(detail: Mapping[str, object]) -> Mapping[str, object]:
    """With what is asked first at the beginning: the database keeps no order."""
    first = [name for name in _FIRST if name in detail]
    return {name: detail[name] for name in (*first, *sorted(detail.keys() - set(first)))}


def _answer_facts(answer: Mapping[str, Any]) -> dict[str, object]:
    return {
        "answer": f"{answer['status']} {answer['reason']}".rstrip(),
        **{f"answer.{name}": value for name, value in answer["headers"]},
        "answer_length": answer["body_length"],
        "answer_sha256": answer["body_sha256"],
    }


def audit_table(lines: Sequence[Mapping[str, Any]]) -> str:
    """One line of the audit a line."""
    names = ("line", "actor", "action", "reason", "key", "detail", "short_id")
    return table(
        ("LINE", "AT", *map(str.upper, names[1:-1]), "ID"),
        [(line["line"], instant(line["at"]), *(line[n] for n in names[1:])) for line in lines],
    )


def body_text(body: bytes | None) -> str:
    """A stored body. What is no text is shown as base64."""
    if body is None:
        return "no body is kept"
    try:
        return "\n".join(plain(line) if line else "" for line in body.decode().split("\n"))
    except UnicodeDecodeError:
        return b64encode(body).decode()
