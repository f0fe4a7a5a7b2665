"""Accepted work: how long until the next try, what a client prefers, and how an operation is named in a URL."""

import base64
import binascii
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from gateway.core.decision import Complete, Doubt, Release, Settlement
from gateway.core.policy import Execution

BACKOFF_FIRST, BACKOFF_LONGEST = 1.0, 60.0
"""Seconds until an operation is tried again of which nothing was sent: after the first attempt, and at most."""

RETRY_AFTER_LONGEST = 3600.0
"""Of an upstream's Retry-After no more seconds than this are waited."""

TRIES = 100
"""Attempts of an accepted operation, at most."""

LONGEST_WAIT = 60
"""Seconds for which a request may ask to be held, at most."""


def backoff(attempt: int, retry_after: float | None, jitter: float) -> float:
    """Seconds until the next try, after this attempt. `jitter` is from 0 to 1. An upstream that says when to come again is believed."""
    pause = min(BACKOFF_LONGEST, BACKOFF_FIRST * 2.0 ** min(attempt - 1, 16)) * (0.5 + jitter / 2)
    return pause if retry_after is None else max(pause, min(retry_after, RETRY_AFTER_LONGEST))


def asked_to_wait(value: bytes | None) -> float | None:
    """The seconds that a Retry-After field names (RFC 9110 section 10.2.3). A date is not read: whose clock it is of is not known."""
    text = b"" if value is None else value.strip(b" \t")
    return float(text) if re.fullmatch(rb"\d{1,9}", text) else None


@dataclass(frozen=True, slots=True)
class Park:
    """The operation was not executed, and is tried again in `delay` seconds."""

    reason: str
    delay: float


@dataclass(frozen=True, slots=True)
class Abandon:
    """The operation was not executed, and no try is left. It is completed: with the upstream's answer if there is one, else with ours."""

    reason: str


def after(settlement: Settlement, attempt: int, left: float, retry_after: float | None, jitter: float) -> Complete | Doubt | Park | Abandon:
    """What becomes of accepted work whose attempt ended so. `left` are the seconds for which it may still be pending."""
    if not isinstance(settlement, Release):
        return settlement
    delay = backoff(attempt, retry_after, jitter)
    return Park(settlement.reason, delay) if attempt < TRIES and delay < left else Abandon(settlement.reason)


@dataclass(frozen=True, slots=True)
class Preference:
    """What a request says in its Prefer fields (RFC 7240) that concerns us. `wait`: whole seconds, as asked."""

    respond_async: bool = False
    wait: int | None = None


_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]++"  # noqa: S105 - a grammar's token
_TEXT = r'"(?:[^"\\]++|\\.)*+'
_MEMBERS = re.compile(rf'((?:[^,"]++|{_TEXT}(?:"|\\?\Z))*+)(?:,|\Z)', re.DOTALL)
_PREFERENCE = re.compile(rf'[ \t]*+({_TOKEN})[ \t]*+(?:=[ \t]*+({_TOKEN}|{_TEXT}"))?+[ \t]*+(?:;.*+)?+', re.DOTALL)
"""Neither ever goes back over what it has read: their cost is linear."""


def preference_of(values: Iterable[bytes]) -> Preference:
    """The preferences of the field lines, in order. Of one that is repeated the first counts; what cannot be read is left
    out, as a server may ignore any preference. A text in quotes that does not end takes the rest along.
    """
    found: dict[str, str] = {}
    for member in _MEMBERS.finditer(",".join(value.decode("latin-1") for value in values)):
        read = _PREFERENCE.fullmatch(member[1])
        if read is not None:
            found.setdefault(read[1].lower(), (read[2] or "").strip('"'))
    return Preference("respond-async" in found, whole_seconds(found.get("wait", "")))


def whole_seconds(text: str) -> int | None:
    """The whole number that this is, if it is one."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def wants_acceptance(execution: Execution, preference: Preference) -> bool:
    """Whether the request is answered before it is executed."""
    return execution is Execution.ASYNC or (execution is Execution.PREFER and preference.respond_async)


def operation_id(scope: str, key: str) -> str:
    """An operation's name in a URL: the scope's name and the key. Whose it is, is not in it: the caller says so anew each time."""
    name = scope.encode()
    return base64.urlsafe_b64encode(len(name).to_bytes(2, "big") + name + key.encode()).rstrip(b"=").decode()


def parse_operation_id(text: str) -> tuple[str, str] | None:
    """The scope's name and the key; None for anything that `operation_id` did not make of what may be a key."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{3,2048}", text):
        return None
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        length = int.from_bytes(raw[:2], "big")
        scope, key = raw[2 : 2 + length].decode(), raw[2 + length :].decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (scope, key) if key.isprintable() and operation_id(scope, key) == text else None


def seconds_left(left: float | None) -> int:
    """Whole seconds from 1 to 60 for a Retry-After field about work that is under way."""
    return 1 if left is None else max(1, min(60, math.ceil(left)))
