"""Original requests encrypted at rest (`probe: resend`): AES-256-GCM, a key of its own for each message.

A sealed value is `version (1) | key id (8) | salt (16) | nonce (12) | ciphertext | tag (16)`. From each configured secret HKDF-SHA256
(RFC 5869) makes a pseudorandom key and the id by which the secret is known again; the message's own AES key is expanded from that with the
random salt. So there is no number of messages after which a secret had to be changed (one AES-GCM key takes 2^32 with random nonces, NIST
SP 800-38D section 8.3). What stands before the ciphertext is authenticated with it, as is what the value is bound to.
"""

import hashlib
import hmac
import os
import struct
from typing import Any, NamedTuple

from gateway.core.model import Headers
from gateway.ports.reconciliation import Unsealable

VERSION = 1
NEEDS_EXTRA = "sealing requests (probe: resend) needs the package `cryptography`: install idempotency-gateway[sealing]"

_ID, _SALT, _NONCE = 8, 16, 12
_HEAD = 1 + _ID + _SALT + _NONCE
_TAG = 16
_DOMAIN = b"idempotency-gateway/seal/1"
_PACKED = 1
_LENGTH = struct.Struct(">I")


class MissingSealing(Exception):
    """The package that encrypts is not installed; the message names the extra."""


class AesSealer:
    """Implements `gateway.ports.reconciliation.Sealer`. The first of `keys` seals, all of them open: put a new secret first, keep the
    former ones until nothing that they sealed is in doubt any more.

    Raises ValueError without a key or for an empty one, and `MissingSealing`.
    """

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        if not keys or not all(keys):
            raise ValueError("sealing needs a secret, and an empty one is none")
        self._aesgcm, self._invalid_tag = _cryptography()
        derived = [_derive(key) for key in keys]
        self._derived = tuple(dict.fromkeys(derived))
        self._first = derived[0]
        self._keys = {key.id: key for key in reversed(derived)}

    def seal(self, plain: bytes, bound_to: bytes) -> bytes:
        """Safe to call from any thread."""
        random = os.urandom(_SALT + _NONCE)
        head = bytes((VERSION,)) + self._first.id + random
        return head + bytes(self._cipher(self._first, head).encrypt(random[_SALT:], plain, _bound(head, bound_to)))

    def open(self, sealed: bytes, bound_to: bytes) -> bytes:
        """Raises `Unsealable`."""
        if len(sealed) < _HEAD + _TAG or sealed[0] != VERSION:
            raise Unsealable("not a sealed value that this version can read")
        head = sealed[:_HEAD]
        key = self._keys.get(head[1 : 1 + _ID])
        if key is None:
            raise Unsealable("sealed under a key that is not configured")
        try:
            return bytes(self._cipher(key, head).decrypt(head[-_NONCE:], sealed[_HEAD:], _bound(head, bound_to)))
        except self._invalid_tag:
            raise Unsealable("changed since it was sealed, or another record's") from None

    @property
    def present(self) -> bytes:
        """As `Sealer.present`."""
        return self._first.id

    def tags(self, data: bytes) -> tuple[bytes, ...]:
        """As `Sealer.tags`: HMAC-SHA256 under a key of its own."""
        return tuple(hmac.digest(key.tag, data, hashlib.sha256) for key in self._derived)

    def _cipher(self, key: "_Key", head: bytes) -> Any:
        salt = head[1 + _ID : 1 + _ID + _SALT]
        return self._aesgcm(_expand(key.pseudorandom, b"/message\0" + salt, 32))


class _Key(NamedTuple):
    pseudorandom: bytes
    id: bytes
    tag: bytes


def _derive(secret: bytes) -> _Key:
    pseudorandom = hmac.digest(_DOMAIN, secret, hashlib.sha256)
    return _Key(pseudorandom, _expand(pseudorandom, b"/id", _ID), _expand(pseudorandom, b"/tag", 32))


def _expand(pseudorandom: bytes, info: bytes, length: int) -> bytes:
    """HKDF-Expand (RFC 5869 section 2.3) for at most 32 bytes, which is its first block."""
    return hmac.digest(pseudorandom, _DOMAIN + info + b"\x01", hashlib.sha256)[:length]


def _bound(head: bytes, bound_to: bytes) -> bytes:
    """The head has a fixed length, so that no two pairs make the same bytes."""
    return head + bound_to


def _cryptography() -> tuple[Any, type[Exception]]:
    """Imported when first needed: only routes that resend do."""
    try:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra that most installations do without
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above
    except ImportError:
        raise MissingSealing(NEEDS_EXTRA) from None
    return AESGCM, InvalidTag


class PackedRequest(NamedTuple):
    """A request as the upstream got it. `headers` without framing and hop-by-hop fields, as in `gateway.ports.UpstreamRequest`."""

    method: bytes
    target: bytes
    headers: Headers
    body: bytes


def pack_request(method: bytes, target: bytes, headers: Headers, body: bytes) -> bytes:
    """A request as bytes: a version, then each part behind its length (32 bits, big-endian), the number of header fields before them.

    Raises `struct.error` for a part of 4 GiB.
    """
    parts: list[bytes] = [bytes((_PACKED,)), _sized(method), _sized(target), _LENGTH.pack(len(headers))]
    parts += [_sized(text) for field in headers for text in field]
    parts.append(_sized(body))
    return b"".join(parts)


def unpack_request(packed: bytes) -> PackedRequest:
    """The request that was packed. Raises ValueError for anything that `pack_request` did not make."""
    if packed[:1] != bytes((_PACKED,)):
        raise ValueError("not a packed request of a version that is known")
    reader = _Reader(packed, 1)
    method, target = reader.part(), reader.part()
    texts = [reader.part() for _ in range(2 * reader.number())]
    body = reader.part()
    if reader.at != len(packed):
        raise ValueError("a packed request goes on after its end")
    return PackedRequest(method, target, tuple(zip(texts[::2], texts[1::2], strict=True)), body)


def _sized(part: bytes) -> bytes:
    return _LENGTH.pack(len(part)) + part


class _Reader:
    def __init__(self, packed: bytes, at: int) -> None:
        self._packed = packed
        self.at = at

    def number(self) -> int:
        return int(_LENGTH.unpack(self._take(_LENGTH.size))[0])

    def part(self) -> bytes:
        return self._take(self.number())

    def _take(self, size: int) -> bytes:
        taken = self._packed[self.at : self.at + size]
        if len(taken) != size:
            raise ValueError("a packed request is cut")
        self.at += size
        return taken
