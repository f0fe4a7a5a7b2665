"""A completed record as what is fast keeps it: as a value, and as bytes: one object instead of dozens. Pure.

A process keeps thousands for a few seconds, and most are asked for by nobody. As bytes each takes a third of the memory, and leaves
without touching what has long dropped out of the processor's caches.
"""

import struct
from uuid import UUID

from gateway.core.model import Fingerprint, Record, RecordKey, Status, StoredResponse
from gateway.core.packing import ENCODINGS, PLAIN
from gateway.core.value import value

# record_id, version, attempt, length of request_id, status, length of reason, number and length of headers, body kept, body_length,
# length of its digest, encoding and length of the body as stored. Header names and values follow as lines: RFC 9110 section 5.5 allows no
# line feed in either.
_PARTS = struct.Struct(">16sQIHHHHI?QBBI")


@value
class CompletedEntry:
    """A completed record. `expires_at_us` is the authority's clock, microseconds since the epoch.

    `version` is 0 when the writer did not know it: an owner's `complete` is not told.
    """

    fingerprint: Fingerprint
    owner: bytes
    expires_at_us: int
    record_id: UUID
    version: int
    attempt: int
    request_id: str
    response: StoredResponse


def completed_entry(record: Record) -> CompletedEntry | None:
    """What a record of the authority says, or None when it is not final, or has expired."""
    if record.status is not Status.COMPLETED or record.expired or record.response is None or record.expires_at_us is None:
        return None
    return CompletedEntry(
        record.fingerprint,
        record.owner,
        record.expires_at_us,
        record.record_id,
        record.version,
        record.attempt,
        record.request_id,
        record.response,
    )


def record_of(key: RecordKey, entry: CompletedEntry, response: StoredResponse, now_us: int) -> Record:
    """The record as it stands at `now_us` of the authority's clock, with this form of its response."""
    return Record(
        key,
        entry.record_id,
        entry.version,
        Status.COMPLETED,
        entry.fingerprint,
        entry.owner,
        entry.attempt,
        entry.request_id,
        expires_in=(entry.expires_at_us - now_us) / 1e6,
        expires_at_us=entry.expires_at_us,
        response=response,
    )


def parts_of(entry: CompletedEntry) -> tuple[bytes, ...]:
    """All of it but fingerprint, owner and expiry, as bytes to be joined. ValueError or struct.error if the form cannot hold it."""
    response, request_id = entry.response, entry.request_id.encode()
    fields = [part for pair in response.headers for part in pair]
    lines, body = b"\n".join(fields), response.body
    if lines.count(b"\n") != max(len(fields) - 1, 0):
        raise ValueError("a header field cannot hold a line feed")
    head = _PARTS.pack(
        entry.record_id.bytes,
        entry.version,
        entry.attempt,
        len(request_id),
        response.status,
        len(response.reason),
        len(response.headers),
        len(lines),
        body is not None,
        response.body_length,
        len(response.body_digest),
        response.encoding,
        len(body or b""),
    )
    return head, request_id, response.reason, response.body_digest, lines, body or b""


def read_completed(value: bytes, at: int, end: int, fingerprint: Fingerprint, owner: bytes, expires_at_us: int) -> CompletedEntry | None:
    """What `parts_of` has written between `at` and `end`. None if it does not add up; ValueError or struct.error may be raised, too."""
    parts = _PARTS.unpack_from(value, at)
    record_id, version, attempt, id_length, status, reason_length, count, lines_length, kept, body_length, digest_length = parts[:11]
    encoding, stored_length = parts[11:]
    if encoding not in ENCODINGS or (not kept and (stored_length or encoding != PLAIN)):
        return None
    at += _PARTS.size
    reason_at = at + id_length
    digest_at = reason_at + reason_length
    lines_at = digest_at + digest_length
    body_at = lines_at + lines_length
    fields = value[lines_at:body_at].split(b"\n") if count else []
    if body_at + stored_length != end or len(fields) != 2 * count:
        return None
    headers = tuple(zip(fields[::2], fields[1::2], strict=True))
    body = value[body_at:end] if kept else None
    response = StoredResponse(status, value[reason_at:digest_at], headers, body, body_length, value[digest_at:lines_at], encoding)
    request_id = value[at:reason_at].decode()
    return CompletedEntry(fingerprint, owner, expires_at_us, UUID(bytes=record_id), version, attempt, request_id, response)
