"""Where a page of a list ends: a position in the list's order, opaque to everybody else, good for the same selection alone."""

import datetime as dt
import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

from gateway.core.reconcile.capture import keepable
from gateway.ports.reconciliation import Selection

_VERSION = 1
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
FIRST_INSTANT = dt.datetime(1, 1, 1, tzinfo=dt.UTC)


class Position(NamedTuple):
    """After this one. `at` where an instant orders the list."""

    scope_id: str
    key: str
    at: dt.datetime | None = None


def write_cursor(selection: Selection, position: Position) -> str:
    at = None if position.at is None else from_instant(position.at)
    fields = [_VERSION, _checksum(selection, position.scope_id, position.key, at), position.scope_id, position.key, at]
    return urlsafe_b64encode(json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()).rstrip(b"=").decode()


def read_cursor(selection: Selection, cursor: str) -> Position:
    """Raises ValueError for what `write_cursor` did not make, or made for another selection."""
    try:
        match json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))):
            case [_, _, str(scope_id), str(key), int() | None as at] if keepable(scope_id) and keepable(key):
                position = Position(scope_id, key, None if at is None else to_instant(at))
                if write_cursor(selection, position) == cursor:
                    return position
            case _:
                pass
    except (ValueError, OverflowError, RecursionError):
        pass  # as if it said something else
    raise ValueError("this is no cursor of this selection: take it from the page before, with the same filters, or begin anew")


def from_instant(at: dt.datetime) -> int:
    """Microseconds since the epoch, exactly."""
    return (at - _EPOCH) // _MICROSECOND


def to_instant(microseconds: int) -> dt.datetime:
    """The inverse of `from_instant`. Raises OverflowError."""
    return _EPOCH + dt.timedelta(microseconds=microseconds)


def _checksum(selection: Selection, scope_id: str, key: str, at: int | None) -> str:
    """Tells a cursor that is damaged, or another selection's; it keeps nobody from making one."""
    text = json.dumps([repr(selection), scope_id, key, at])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
