"""Between entries and records. Pure: the authority's clock comes in as a reading."""

from uuid import UUID

from gateway.core.model import Record, RecordKey, Status
from gateway.store.completed import CompletedEntry, record_of
from gateway.store.redis.codec import LeaseEntry

_UNKNOWN_ID = UUID(int=0)


def in_progress(key: RecordKey, entry: LeaseEntry) -> Record:
    """Somebody's lease as a record. `record_id`, `version`, `attempt` and `request_id` are placeholders: only the authority knows them."""
    return Record(key, _UNKNOWN_ID, 0, Status.IN_PROGRESS, entry.fingerprint, entry.owner, attempt=0, request_id="", lease_live=True)


def replayable(key: RecordKey, entry: CompletedEntry, now_us: int | None) -> Record | None:
    """The completed record, or None when it may have expired. `now_us` is an upper estimate of the authority's clock, None if unknown."""
    if now_us is None or entry.expires_at_us <= now_us:
        return None
    return record_of(key, entry, entry.response, now_us)
