"""What people say, judged. Every mistake names its field."""

import datetime as dt
import re
import unicodedata
from dataclasses import dataclass

from gateway.core.model import Status
from gateway.core.reconcile.capture import keepable
from gateway.core.retention import MAX_RETENTION
from gateway.ports.reconciliation import Audit, Detail, Selection

STATES = (*[status.value for status in Status], "dead_letter")
"""What `Selection.state` may be."""

PAGE_MAX = 1000
AMOUNTS = 5000
"""How many dead letters are looked at for the largest amounts."""

LINE_MAX = 2**63 - 1
"""The largest id that a line of the audit table can have."""
"""Records, or lines of the audit, in one page at most."""

_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_KEY_DIGEST = re.compile(r"[0-9a-f]{16}", re.ASCII)

ACTOR_MAX = 255
REASON_MAX = 2000


class Wrong(ValueError):
    """An input that cannot be right, whatever the record is. `field` is its name, `why` a sentence for people."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field
        self.why = why


@dataclass(frozen=True, slots=True)
class By:
    """Who does something, and why; both go into the audit table. Raises `Wrong` if either is empty, too long, or holds control
    characters (a reason may have lines). `on_behalf_of`: for whom, as the actor says. `identity`
    tells actors apart for good.
    """

    actor: str
    reason: str
    on_behalf_of: str | None = None
    identity: str = ""

    def __post_init__(self) -> None:
        _check_text("actor", self.actor, ACTOR_MAX, "")
        if self.on_behalf_of is not None:
            _check_text("actor", self.on_behalf_of, ACTOR_MAX, "")
        _check_text("reason", self.reason, REASON_MAX, "\n\t")

    def audit(self, action: str, detail: Detail | None = None) -> Audit:
        """The line of the audit table that tells of it."""
        for_whom = {} if self.on_behalf_of is None else {"on_behalf_of": self.on_behalf_of}
        return Audit(self.actor, action, self.reason, {**for_whom, **(detail or {})})


def _check_text(field: str, text: str, longest: int, allowed: str) -> None:
    if not text.strip():
        raise Wrong(field, "say it: every change is written down with who made it and why")
    if len(text) > longest:
        raise Wrong(field, f"at most {longest} characters")
    if any(unicodedata.category(character) in {"Cc", "Cs"} and character not in allowed for character in text):
        raise Wrong(field, "control characters cannot be stored")


def check_selection(selection: Selection) -> None:
    if selection.state is not None and selection.state not in STATES:
        raise Wrong("state", f"one of {', '.join(STATES)}")
    for name in ("route", "scope", "key", "scope_id", "request_id"):
        text = getattr(selection, name)
        if text is not None and not (text and keepable(text)):
            raise Wrong(name, "no record can have this one")
    if selection.trace_id is not None and not _TRACE_ID.fullmatch(selection.trace_id):
        raise Wrong("trace_id", "32 hex digits in small letters, as in `traceparent` and in log lines")
    if selection.key_digest is not None and not _KEY_DIGEST.fullmatch(selection.key_digest):
        raise Wrong("key_digest", "16 hex digits, as a log line has them in `key`")


def read_instant(text: str) -> dt.datetime:
    """An instant as RFC 3339 has it, such as 2026-11-28T04:21:59Z. Raises ValueError with a sentence."""
    try:
        found = dt.datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.astimezone(dt.UTC)
    except (ValueError, OverflowError):
        pass  # as one without an offset
    raise ValueError("must be an instant with its offset, such as 2026-11-28T04:21:59Z")


def check_limit(limit: int) -> None:
    if not 1 <= limit <= PAGE_MAX:
        raise Wrong("limit", f"between 1 and {PAGE_MAX}")


def check_retention(seconds: float | None) -> None:
    if seconds is not None and not 1 <= seconds <= MAX_RETENTION:
        raise Wrong("retention", f"between 1 and {MAX_RETENTION:.0f} seconds")
