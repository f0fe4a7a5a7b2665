"""The binary value of a Redis entry, and its key. Pure.

    format 1 | state 1 | owner 16 | lookup digest 32 | expires_at 8 | fingerprint | of a completed record: parts, seal 16

`gateway.store.completed` makes the parts. Format 1 is for leases, format 3 for completed records. Completed records of
formats 1 and 2 have no seal, and the gateway does not read them: it asks the authority instead.

State and owner stand at a fixed place, so that `settle.lua` can compare our own lease without reading further. Every
read compares the lookup digest, so that a reply out of step never passes for this record's answer. The seal is a keyed
digest of all that comes before it: an entry that was altered in Redis, be it by a byte of a body or of a header, is no
answer. A lease has no seal, since it is never an answer. Integers are big-endian.
"""

import hashlib
import hmac
import struct
from binascii import b2a_base64

from gateway.core.model import Fingerprint
from gateway.core.value import value
from gateway.store.completed import CompletedEntry, parts_of, read_completed

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
    body = entry.response.body
    if body is not None and len(body) > limit:
        return None
    try:
        head = _head(FORMAT, _COMPLETED, lookup, entry.fingerprint, entry.owner, entry.expires_at_us)
        value = b"".join((head, *parts_of(entry)))
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
            return read_completed(value, end, len(value) - SEAL_LENGTH, fingerprint, owner, expires_at_us)
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
