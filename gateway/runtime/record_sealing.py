"""What is sealed of a record (`encryption: {answers: true}`): its answer, its captured values, its correlation and the request's target.

A sealed answer is a `StoredResponse` that stores carry like any other, in a row, in the archive, in Redis and in the local cache:

* `encoding` is `SEALED`, `status` 0, `headers` are none;
* `reason` is the sealed head: status, reason, header fields, how the body is packed, length and SHA-256 of the plain body, and behind all
  that a body of at most `WITH_HEAD` bytes;
* `body` is a longer body, packed and sealed; one byte where it is behind the head; of zero bytes where there is none, so that a sealed
  answer never passes for one without a body;
* `body_digest` is a keyed digest of the head, packed in whatever way: a repeated statement is known by it, though its bytes are others;
* `body_length` is that of the plain body, in clear.

An answer is bound to scope, key and record id; what is written before the database has given the record its id, to scope and key.
"""

import struct
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from orjson import JSONDecodeError, dumps, loads

from gateway.core.model import SEALED, Headers, Intent, RecordKey, StoredResponse
from gateway.ports.reconciliation import Sealer, Unsealable

WITH_HEAD = 4 * 1024
"""A body of so many bytes at most is sealed with its head: a second sealing costs more than its bytes do, and they share a row anyway."""

_VERSION = 1
_ELSEWHERE = b"\0"
_NONE, _APART, _BEHIND = 0, 1, 2
"""Where the body is."""
# version, status, encoding, where the body is, body_length, lengths of body_digest and reason, number of header fields
_HEAD = struct.Struct(">BHBBQHII")
_FIELD = struct.Struct(">II")
_HEAD_OF, _BODY_OF, _CAPTURED_OF, _TARGET_OF, _CORRELATION_OF = b"head\0", b"body\0", b"captured\0", b"target\0", b"correlation\0"
_SEALED_NAME = ""
"""The one name of sealed captured values in their JSON object: no captured value has it."""
_CORRELATED = "sealed:"
_TARGET = b"\0"
"""How a sealed target begins, and no target of a request does."""


class SealedParts(NamedTuple):
    """What a record holds of its request: sealed, or in clear."""

    target: bytes
    captured: Mapping[str, str] | None
    correlation: str | None
    request: bytes | None


class RecordSealer:
    """Seals and opens what records hold. `seals`: whether new ones are sealed; what is sealed is opened either way. Without a `sealer`
    nothing opens.
    """

    def __init__(self, sealer: Sealer | None, *, seals: bool) -> None:
        self._sealer = sealer or _Keyless()
        self.seals = seals

    # ---- answers

    def seal_answer(self, key: RecordKey, record_id: UUID, answer: StoredResponse) -> StoredResponse:
        """The answer as stores keep it: packed before, sealed now."""
        return answer if not self.seals or answer.encoding == SEALED else self._seal_answer(key, record_id, answer)

    def _seal_answer(self, key: RecordKey, record_id: UUID, answer: StoredResponse) -> StoredResponse:
        bound, body = _bound(key, record_id), answer.body
        (tag, *_) = self._sealer.tags(_HEAD_OF + bound + _pack_head(answer, 0, _NONE))
        if body is None:
            head, apart = _pack_head(answer, answer.encoding, _NONE), b""
        elif len(body) <= WITH_HEAD:
            head, apart = _pack_head(answer, answer.encoding, _BEHIND) + body, _ELSEWHERE
        else:
            head, apart = _pack_head(answer, answer.encoding, _APART), self._sealer.seal(body, _BODY_OF + bound)
        return StoredResponse(0, self._sealer.seal(head, _HEAD_OF + bound), (), apart, answer.body_length, tag, SEALED)

    def open_answer(self, key: RecordKey, record_id: UUID, kept: StoredResponse) -> StoredResponse:
        """The answer as it was packed, or as it is if it is not sealed. Raises `Unsealable`."""
        if kept.encoding != SEALED:
            return kept
        bound = _bound(key, record_id)
        opened, where = _unpack_head(self._sealer.open(kept.reason, _HEAD_OF + bound))
        if where == _BEHIND:
            return opened
        if where == _NONE or not kept.body:  # there was none, or the store could not hold it
            return opened.without_body()
        return replace(opened, body=self._sealer.open(kept.body, _BODY_OF + bound))

    # ---- requests

    def seal_intent(self, intent: Intent) -> Intent:
        """The intent as stores get it."""
        if not self.seals:
            return intent
        sealed = self._seal_parts(intent.key, SealedParts(intent.target, intent.captured, intent.correlation, None))
        return replace(intent, target=sealed.target, captured=sealed.captured, correlation=sealed.correlation)

    def _seal_parts(self, key: RecordKey, parts: SealedParts) -> SealedParts:
        """What is sealed already stays as it is. The request itself is sealed by whoever keeps it."""
        bound, target, correlation = key.lookup_digest(), parts.target, parts.correlation
        if not target.startswith(_TARGET):
            target = _TARGET + self._sealer.seal(target, _TARGET_OF + bound)
        if correlation is not None and not correlation.startswith(_CORRELATED):
            correlation = self.correlations(key.scope_id.partition(":")[0], correlation)[1]
        return SealedParts(target, self._seal_captured(bound, parts.captured), correlation, parts.request)

    def _seal_captured(self, bound: bytes, captured: Mapping[str, str] | None) -> Mapping[str, str] | None:
        if not captured or _SEALED_NAME in captured:
            return captured
        plain = dumps({name: value for name, value in captured.items() if _sound(value)})
        return {_SEALED_NAME: b64encode(self._sealer.seal(plain, _CAPTURED_OF + bound)).decode()}

    def open_captured(self, key: RecordKey, captured: Mapping[str, str]) -> Mapping[str, str]:
        """Captured values as they were. Raises `Unsealable`."""
        sealed = captured.get(_SEALED_NAME)
        if sealed is None:
            return captured
        try:
            opened: Mapping[str, str] = loads(self._sealer.open(b64decode(sealed), _CAPTURED_OF + key.lookup_digest()))
        except (JSONDecodeError, ValueError) as error:
            raise Unsealable(str(error)) from error
        return opened

    def open_target(self, key: RecordKey, target: bytes) -> bytes:
        """A request's target as it was. Raises `Unsealable`."""
        return self._sealer.open(target[1:], _TARGET_OF + key.lookup_digest()) if target.startswith(_TARGET) else target

    # ---- another key

    @property
    def present(self) -> bytes:
        """The name of the key that seals, as sealed values bear it."""
        return self._sealer.present

    def reseal_answer(self, key: RecordKey, record_id: UUID, sealed: StoredResponse) -> StoredResponse:
        """A sealed answer under the present key. Raises `Unsealable`."""
        return self._seal_answer(key, record_id, self.open_answer(key, record_id, sealed))

    def reseal_request(self, key: RecordKey, parts: SealedParts) -> SealedParts:
        """What is sealed of it, under the present key; what is in clear stays so. Raises `Unsealable`."""
        target, captured, correlation, request = parts
        bound, scope = key.lookup_digest(), key.scope_id.partition(":")[0]
        if captured is not None and _SEALED_NAME in captured:
            opened = self.open_captured(key, captured)
            captured = self._seal_captured(bound, opened)
            for value in opened.values():
                if correlation in (digests := self.correlations(scope, value))[1:]:
                    correlation = digests[1]
                    break
        if target.startswith(_TARGET):
            target = _TARGET + self._sealer.seal(self.open_target(key, target), _TARGET_OF + bound)
        if request is not None:
            request = self._sealer.seal(self._sealer.open(request, bound), bound)
        return SealedParts(target, captured, correlation, request)

    def correlations(self, scope: str, value: str) -> list[str]:
        """What records of the scope with this correlation may hold: itself, then its keyed digest under each key, the present one first."""
        data = _CORRELATION_OF + scope.encode() + b"\0" + value.encode("utf-8", "surrogatepass")
        return [value, *(_CORRELATED + tag.hex() for tag in self._sealer.tags(data))]


class _Keyless:
    """A `Sealer` where no key is configured."""

    def seal(self, plain: bytes, bound_to: bytes) -> bytes:
        raise AssertionError("`check` refuses to encrypt without a key")

    def open(self, sealed: bytes, bound_to: bytes) -> bytes:
        raise Unsealable("no encryption key is configured")

    def tags(self, data: bytes) -> tuple[bytes, ...]:
        return ()

    @property
    def present(self) -> bytes:
        return b""


NOTHING_OPENS = RecordSealer(None, seals=False)
"""For where no key is configured."""


def _bound(key: RecordKey, record_id: UUID) -> bytes:
    return key.lookup_digest() + record_id.bytes


def _sound(value: str) -> bool:
    """Whether the text has an encoding (half of a surrogate pair has none); what has none is not kept, as without sealing."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _pack_head(answer: StoredResponse, encoding: int, where: int) -> bytes:
    digest, reason, headers = answer.body_digest, answer.reason, answer.headers
    head = _HEAD.pack(_VERSION, answer.status, encoding, where, answer.body_length, len(digest), len(reason), len(headers))
    lines = [part for name, value in headers for part in (_FIELD.pack(len(name), len(value)), name, value)]
    return b"".join((head, digest, reason, *lines))


def _unpack_head(packed: bytes) -> tuple[StoredResponse, int]:
    """The inverse of `_pack_head`: the answer with the body that is behind its head, and where its body is. Raises `Unsealable`."""
    try:
        version, status, encoding, where, length, digest_length, reason_length, count = _HEAD.unpack_from(packed)
        if version != _VERSION:
            raise Unsealable("a sealed answer of a later version")
        reason_at = _HEAD.size + digest_length
        at = reason_at + reason_length
        digest, reason = packed[_HEAD.size : reason_at], packed[reason_at:at]
        headers, at = _unpack_fields(packed, at, count)
    except struct.error as error:
        raise Unsealable("a sealed answer is cut") from error
    if at > len(packed) or (at < len(packed) and where != _BEHIND):
        raise Unsealable("a sealed answer goes on after its end, or is cut")
    return StoredResponse(status, reason, headers, packed[at:] if where == _BEHIND else None, length, digest, encoding), where


def _unpack_fields(packed: bytes, at: int, count: int) -> tuple[Headers, int]:
    fields: list[tuple[bytes, bytes]] = []
    for _ in range(count):
        name_length, value_length = _FIELD.unpack_from(packed, at)
        middle = at + _FIELD.size + name_length
        fields.append((packed[at + _FIELD.size : middle], packed[middle : middle + value_length]))
        at = middle + value_length
    return tuple(fields), at
