"""The binary value of a Redis entry, and its key. Pure.

    format 1 | state 1 | owner 16 | lookup digest 32 | expires_at 8 | fingerprint | for completed: record, response, seal 16

Format 1 is for leases, format 3 for completed records. Completed records of formats 1 and 2 have no seal, and the
gateway does not read them: it asks the authority instead.

State and owner stand at a fixed place, so that `settle.lua` can compare our own lease without reading further. Every
read compares the lookup digest, so that a reply out of step never passes for this record's answer. The seal is a keyed
digest of all that comes before it: an entry that was altered in Redis, be it by a byte of a body or of a header, is no
answer. A lease has no seal, since it is never an answer. Integers are big-endian.
"""

import hashlib
import hmac
import struct
from binascii import b2a_base64
from uuid import UUID

from gateway.core.model import Fingerprint, StoredResponse
from gateway.core.packing import ENCODINGS, PLAIN
from gateway.core.value import value

LEASE_FORMAT = 1
FORMAT = 3
OWNER_LENGTH = 16
DIGEST_LENGTH = 32
SEAL_LENGTH = 16
_LEASE = 1
_COMPLETED = 2
_URL_SAFE = bytes.maketrans(b"+/", b"-_")

# format, state, owner, lookup digest, expires_at (us), fingerprint version, lengths of its policy and digest
_HEAD = struct.Struct(">BB16s32sqHBB")
# record_id, version, attempt, length of request_id, status, length of reason, number and length of headers, body kept, body_length,
# length of its digest, encoding and length of the body as stored. Header names and values follow as lines: RFC 9110 section 5.5 allows no
# line feed in either.
_TAIL = struct.Struct(">16sQIHHHHI?QBBI")


class Seal:
    """Makes the seals of values. The digest secret keys them, so that write access to Redis is not enough to make one;
    without a secret a seal detects accidents only.
    """

    __slots__ = ("_keyed",)

    def __init__(self, secret: bytes) -> None:
        key = hashlib.blake2b(secret, person=b"idem-redis-entry").digest()
        self._keyed = hashlib.blake2b(key=key, digest_size=SEAL_LENGTH)

    def of(self, value: bytes | memoryview) -> bytes:
        """The seal of all of `value`."""
        digest = self._keyed.copy()
        digest.update(value)
        return digest.digest()


@value
class LeaseEntry:
    """A process asks the authority for this record, or executes its attempt."""

    fingerprint: Fingerprint
    owner: bytes


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


def entry_key(lookup: bytes) -> bytes:
    """The Redis key of a record. The braces keep all keys of one record in one cluster slot."""
    return b"idem:{%b}" % b2a_base64(lookup, newline=False).rstrip(b"=").translate(_URL_SAFE)


def quota_keys(scope_id: str) -> tuple[bytes, bytes]:
    """The Redis keys of what a caller has taken of its quota: new keys, and places. In one cluster slot."""
    name = hashlib.blake2b(scope_id.encode(), digest_size=DIGEST_LENGTH, person=b"idem-redis-quota").hexdigest().encode()
    return b"idem:{q:%b}:k" % name, b"idem:{q:%b}:p" % name


def lease_prefix(owner: bytes) -> bytes:
    """How the value of a lease of `owner` begins, and no other value does."""
    if len(owner) != OWNER_LENGTH:
        raise ValueError("an owner token has 16 bytes")
    return bytes((LEASE_FORMAT, _LEASE)) + owner


def encode_lease(lookup: bytes, fingerprint: Fingerprint, owner: bytes) -> bytes:
    """The value of a lease. ValueError if a length is impossible."""
    return _head(LEASE_FORMAT, _LEASE, lookup, fingerprint, owner, 0)


def encode_completed(lookup: bytes, entry: CompletedEntry, limit: int, seal: Seal) -> bytes | None:
    """The value of a completed record, or None when it is longer than `limit` bytes or the format cannot hold it."""
    response = entry.response
    body = response.body
    if body is not None and len(body) > limit:
        return None
    try:
        head = _head(FORMAT, _COMPLETED, lookup, entry.fingerprint, entry.owner, entry.expires_at_us)
        value = b"".join((head, *_tail(entry, response), body if body is not None else b""))
    except (struct.error, ValueError):
        return None
    return value + seal.of(value) if len(value) + SEAL_LENGTH <= limit else None


def decode(lookup: bytes, value: bytes, seal: Seal) -> LeaseEntry | CompletedEntry | None:
    """What `value` says about the record of `lookup`.

    None means "ask the authority": another format, state or record, a seal that is not ours, or bytes that do not add
    up. Never raises.
    """
    try:
        form, state, owner, digest, expires_at_us, fingerprint_version, policy_length, digest_length = _HEAD.unpack_from(value)
        if digest != lookup:
            return None
        middle = _HEAD.size + policy_length
        end = middle + digest_length
        fingerprint = Fingerprint(fingerprint_version, value[_HEAD.size : middle], value[middle:end])
        if form == FORMAT and state == _COMPLETED and hmac.compare_digest(seal.of(memoryview(value)[:-SEAL_LENGTH]), value[-SEAL_LENGTH:]):
            return _decode_completed(value, end, fingerprint, owner, expires_at_us)
    except (struct.error, ValueError):
        return None
    return LeaseEntry(fingerprint, owner) if form == LEASE_FORMAT and state == _LEASE and len(value) == end else None


def _head(form: int, state: int, lookup: bytes, fingerprint: Fingerprint, owner: bytes, expires_at_us: int) -> bytes:
    if len(owner) != OWNER_LENGTH or len(lookup) != DIGEST_LENGTH:
        raise ValueError("an owner token has 16 bytes, a lookup digest 32")
    policy, digest = fingerprint.policy, fingerprint.digest
    try:
        head = _HEAD.pack(form, state, owner, lookup, expires_at_us, fingerprint.version, len(policy), len(digest))
    except struct.error as error:
        raise ValueError(str(error)) from None
    return head + policy + digest


def _tail(entry: CompletedEntry, response: StoredResponse) -> list[bytes]:
    request_id = entry.request_id.encode()
    fields = [part for pair in response.headers for part in pair]
    lines = b"\n".join(fields)
    if lines.count(b"\n") != max(len(fields) - 1, 0):
        raise ValueError("a header field cannot hold a line feed")
    tail = _TAIL.pack(
        entry.record_id.bytes,
        entry.version,
        entry.attempt,
        len(request_id),
        response.status,
        len(response.reason),
        len(response.headers),
        len(lines),
        response.body is not None,
        response.body_length,
        len(response.body_digest),
        response.encoding,
        len(response.body or b""),
    )
    return [tail, request_id, response.reason, response.body_digest, lines]


def _decode_completed(value: bytes, at: int, fingerprint: Fingerprint, owner: bytes, expires_at_us: int) -> CompletedEntry | None:
    tail = _TAIL.unpack_from(value, at)
    record_id, version, attempt, id_length, status, reason_length, count, lines_length, kept, body_length, digest_length = tail[:11]
    encoding, stored_length = tail[11:]
    if encoding not in ENCODINGS or (not kept and (stored_length or encoding != PLAIN)):
        return None
    at += _TAIL.size
    reason_at = at + id_length
    digest_at = reason_at + reason_length
    lines_at = digest_at + digest_length
    body_at = lines_at + lines_length
    end = body_at + stored_length
    fields = value[lines_at:body_at].split(b"\n") if count else []
    if len(value) != end + SEAL_LENGTH or len(fields) != 2 * count:
        return None
    headers = tuple(zip(fields[::2], fields[1::2], strict=True))
    body = value[body_at:end] if kept else None
    response = StoredResponse(status, value[reason_at:digest_at], headers, body, body_length, value[digest_at:lines_at], encoding)
    request_id = value[at:reason_at].decode()
    return CompletedEntry(fingerprint, owner, expires_at_us, UUID(bytes=record_id), version, attempt, request_id, response)
