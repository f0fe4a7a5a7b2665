"""Request headers that make the sample slow, late, untrue or make it fail, so that a client can see what the gateway does about it."""

import enum
import re
from dataclasses import dataclass

from aiohttp import web

from gateway.devtools.sample.ledger import OperationRefused

DELAY = "X-Sample-Delay"
EXECUTE_AFTER = "X-Sample-Execute-After"
FAIL = "X-Sample-Fail"
HIDE = "X-Sample-Hide"
DOWN = "X-Sample-Down"
DEDUPLICATE = "X-Sample-Deduplicate"
WEBHOOK = "X-Sample-Webhook"
LONGEST_DELAY = 60.0
MOST_HIDDEN = 1000


class Fail(enum.StrEnum):
    """How a request fails."""

    BEFORE = "before"
    AFTER = "after"
    DROP = "drop"
    LATE = "late"
    RESET = "reset"
    TRUNCATE = "truncate"
    INTERNAL_ERROR = "500"
    UNAVAILABLE = "503"
    TOO_MANY = "429"


MEANINGS = {
    Fail.BEFORE: "closes the connection without executing and without an answer",
    Fail.AFTER: "executes, then answers 500",
    Fail.DROP: "executes, then closes the connection without an answer",
    Fail.LATE: f"closes the connection without an answer, and executes all the same, {EXECUTE_AFTER} later",
    Fail.RESET: "executes, then resets the connection",
    Fail.TRUNCATE: "executes, then closes the connection halfway through the answer",
    Fail.INTERNAL_ERROR: "answers 500 without executing",
    Fail.UNAVAILABLE: "answers 503 without executing",
    Fail.TOO_MANY: "answers 429 without executing",
}

HEADERS = {
    DELAY: "2s or 500ms: waits that long after executing and before answering",
    EXECUTE_AFTER: "3s: executes that long after the request came, even if its client has gone",
    FAIL: {str(fail): meaning for fail, meaning in MEANINGS.items()},
    HIDE: "2: that many lookups by its key do not show what this request executes",
    DOWN: "5s: lookups answer 503 for that long",
    DEDUPLICATE: f"yes: what this key has executed answers again, 409 while it runs; {FAIL} is for the first request under a key alone",
    WEBHOOK: "2s: the event of this execution is sent that long after it; none: it is not sent",
}


@dataclass(frozen=True, slots=True)
class Variant:
    """What the headers of one request ask for. Times are seconds; `delay` is between executing and answering. `webhook` None: no event."""

    delay: float = 0.0
    execute_after: float = 0.0
    fail: Fail | None = None
    hide: int = 0
    down: float = 0.0
    deduplicate: bool | None = None
    webhook: float | None = 0.0


def variant_of(request: web.Request) -> Variant:
    """Raises OperationRefused (400) for a header that it does not understand."""
    return Variant(
        _time(request, DELAY),
        _time(request, EXECUTE_AFTER),
        _fail(request),
        _count(request),
        _time(request, DOWN),
        _yes(request),
        None if request.headers.get(WEBHOOK) == "none" else _time(request, WEBHOOK),
    )


def seconds_of(text: str) -> float | None:
    """A time such as `2s`, `500ms` or `1.5`, at most `LONGEST_DELAY`; None if it is none."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|)", text, re.ASCII)
    seconds = float(found[1]) / (1000 if found[2] == "ms" else 1) if found else -1.0
    return seconds if 0 <= seconds <= LONGEST_DELAY else None


def _time(request: web.Request, name: str) -> float:
    seconds = seconds_of(request.headers.get(name, "0"))
    if seconds is None:
        raise OperationRefused(400, "bad_header", f"{name} is a time such as 2s or 500ms, at most {LONGEST_DELAY:.0f}s")
    return seconds


def _fail(request: web.Request) -> Fail | None:
    word = request.headers.get(FAIL)
    if word is None:
        return None
    try:
        return Fail(word.strip().lower())
    except ValueError:
        raise OperationRefused(400, "bad_header", f"{FAIL} is one of {', '.join(Fail)}") from None


def _count(request: web.Request) -> int:
    text = request.headers.get(HIDE, "0")
    if re.fullmatch(r"\d{1,4}", text, re.ASCII) is None or int(text) > MOST_HIDDEN:
        raise OperationRefused(400, "bad_header", f"{HIDE} is a number of lookups, at most {MOST_HIDDEN}")
    return int(text)


def _yes(request: web.Request) -> bool | None:
    word = request.headers.get(DEDUPLICATE)
    if word not in {None, "yes", "no"}:
        raise OperationRefused(400, "bad_header", f"{DEDUPLICATE} is yes or no")
    return None if word is None else word == "yes"
