"""What an answer tells its client about its key, for routes that want it told, and what browsers may read of it."""

import enum
from datetime import UTC, datetime, timedelta
from typing import assert_never

from gateway.core.decision import Label
from gateway.core.policy import Policy
from gateway.core.quota import LIMIT_FIELD, POLICY_FIELD

STATUS = b"Idempotency-Status"
EXPIRES = b"Idempotency-Expires"
RETRY = b"Idempotency-Retry"
DUPLICATE = b"Idempotency-Duplicate"

MARKS = frozenset({STATUS.lower(), EXPIRES.lower(), RETRY.lower(), DUPLICATE.lower()})
"""Lower-case names of the fields that only the gateway may send on a route that asks for them; an upstream's own copies are removed."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_SECOND = int((datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH).total_seconds())
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Mark(enum.StrEnum):
    """The values of `Idempotency-Status`. A closed set, and part of the contract with clients."""

    NEW = "new"
    REPLAYED = "replayed"
    IN_PROGRESS = "in-progress"
    MISMATCH = "mismatch"
    UNKNOWN = "unknown"
    EXPIRED = "expired"
    UNPROTECTED = "unprotected"


def mark(label: Label, *, doubtful: bool = False) -> Mark | None:
    """The value for an answer on a guarded route; None where nothing was decided about a key. `doubtful`: this is the first answer, and
    it leaves the outcome unknown.

    `bypass` on a guarded route is a request without a key, where none is required: nothing protects it.
    """
    match label:
        case Label.EXECUTE | Label.EXECUTE_RETRY | Label.REEXECUTE:
            return Mark.UNKNOWN if doubtful else Mark.NEW
        case Label.REPLAY | Label.REPLAY_WITHOUT_BODY:
            return Mark.REPLAYED
        case Label.IN_PROGRESS | Label.ACCEPTED:
            return Mark.IN_PROGRESS
        case Label.KEY_MISUSE:
            return Mark.MISMATCH
        case Label.UNKNOWN:
            return Mark.UNKNOWN
        case Label.GONE:
            return Mark.EXPIRED
        case Label.UNPROTECTED | Label.BYPASS:
            return Mark.UNPROTECTED
        case (
            Label.KEY_MISSING
            | Label.KEY_INVALID
            | Label.PRINCIPAL_MISSING
            | Label.PRINCIPAL_UNAVAILABLE
            | Label.BODY_TOO_LARGE
            | Label.REFUSED_TARGET
            | Label.REFUSED_REQUEST
            | Label.OVERLOADED
            | Label.TOO_MANY_PENDING
            | Label.QUOTA_EXCEEDED
            | Label.STATUS
            | Label.ABORTED
            | Label.STORE_UNAVAILABLE
        ):
            return None
        case _:
            assert_never(label)


def expires(at_us: int) -> bytes:
    """The value of `Idempotency-Expires`: an HTTP-date (RFC 9110 section 5.6.7) from microseconds since the epoch.

    Rounded down, so that a client never counts on a record that is gone. Instants beyond the years 1970 to 9999 become the nearest one.
    """
    seconds = min(max(at_us // 1_000_000, 0), _LAST_SECOND)
    at = _EPOCH + timedelta(seconds=seconds)
    day = f"{_DAYS[at.weekday()]}, {at.day:02} {_MONTHS[at.month - 1]} {at.year:04}"
    return f"{day} {at.hour:02}:{at.minute:02}:{at.second:02} GMT".encode()


def exposed(policy: Policy) -> tuple[bytes, ...]:
    """The fields of a route's answers that a browser's script needs to see: ours, and the key's own, which many APIs echo."""
    names = [name.encode() for name in policy.key.headers]
    replay = policy.dialect.replay_headers
    names += [b"Idempotent-Replayed", b"Original-Request"] if replay is None else [name.encode() for name, _ in replay]
    names += [name.encode() for name, _ in policy.dialect.first_headers]
    names += [STATUS, EXPIRES, RETRY] if policy.status_fields else []
    names += [DUPLICATE] if policy.mark_duplicates else []
    names += [LIMIT_FIELD, POLICY_FIELD] if policy.quota is not None else []
    once: dict[bytes, bytes] = {}
    for name in [*names, b"Retry-After", b"X-Request-Id"]:
        once.setdefault(name.lower(), name)
    return tuple(once.values())
