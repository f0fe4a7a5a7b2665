"""Between rows of `gateway_records` and the model: what a statement is given, and what its answer means.

Response headers are kept as bytes, so that every field line survives with its order, case and octets: for each line two big-endian 32-bit
lengths, of the name and of the value, then the name and the value.

Response schema version 1 has a plain body. Version 2 has one that is packed as `response_body_encoding` says, and is written for those
only: a release that knows version 1 alone refuses it, where the column, of which it knows nothing, would let it replay packed bytes. Under
version 1 the column says nothing: that release leaves it as it finds it. Version 3 is a sealed answer (`gateway.runtime.record_sealing`).
"""

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import asyncpg

from gateway.core.model import RESPONSE_SCHEMA_VERSION, SEALED, Fingerprint, Headers, Intent, Record, RecordKey, Status, StoredResponse
from gateway.core.packing import ENCODINGS, PLAIN

PACKED_SCHEMA_VERSION = 2
SEALED_SCHEMA_VERSION = 3

_LENGTHS = struct.Struct(">II")

_STATUSES = {status.value: status for status in Status}

Row = asyncpg.Record


class Unreadable(Exception):
    """A stored response that this version cannot read. Never guessed at: the store answers "error" for it."""


def encode_headers(headers: Headers) -> bytes:
    pack = _LENGTHS.pack
    return b"".join([part for name, value in headers for part in (pack(len(name), len(value)), name, value)])


def decode_headers(stored: bytes) -> Headers:
    """The inverse of `encode_headers`. Raises `Unreadable` for anything that it did not make."""
    headers: list[tuple[bytes, bytes]] = []
    at = 0
    while at < len(stored):
        try:
            name_length, value_length = _LENGTHS.unpack_from(stored, at)
        except struct.error as error:
            raise Unreadable("header lengths are cut") from error
        start = at + _LENGTHS.size
        middle = start + name_length
        at = middle + value_length
        if at > len(stored):
            raise Unreadable("a header line is cut")
        headers.append((stored[start:middle], stored[middle:at]))
    return tuple(headers)


def columns(items: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows to columns, as `unnest` takes them."""
    return list(zip(*items, strict=True))


def intent_row(intent: Intent) -> tuple[Any, ...]:
    """The row of `reserve` for one intent; that of `reserve_or_gone` has `tombstone_digest` behind it."""
    key = intent.key
    return (
        key.scope_id,
        key.key,
        intent.owner,
        intent.fingerprint.digest,
        intent.request_id,
        intent.method,
        intent.target,
        None if intent.captured is None else encode_captured(intent.captured),
        None if intent.correlation is None else storable(intent.correlation),
        intent.sealed,
    )


def intent_terms(intents: Sequence[Intent]) -> list[tuple[Any, ...]]:
    """The terms of `reserve` and `reserve_or_gone`: one for all intents, as nearly always, or those of each."""
    first = intents[0]
    terms, version, policy = first.terms, first.fingerprint.version, first.fingerprint.policy
    for intent in intents:
        fingerprint = intent.fingerprint
        if fingerprint.policy != policy or fingerprint.version != version or (intent.terms is not terms and intent.terms != terms):
            return [terms_row(intent) for intent in intents]
    return [terms_row(first)]


def terms_row(intent: Intent) -> tuple[Any, ...]:
    """The terms of `reserve` for one intent."""
    terms, fingerprint = intent.terms, intent.fingerprint
    return (
        terms.route_id,
        fingerprint.version,
        fingerprint.policy,
        terms.lease,
        terms.max_execution,
        terms.reconcilable,
        terms.observed,
    )


def intent_size(intent: Intent) -> int:
    """What an intent adds to a statement, in bytes, besides its small fields of bounded size."""
    captured = 0 if intent.captured is None else sum(map(len, intent.captured.values()))
    return len(intent.target) + captured + (0 if intent.sealed is None else len(intent.sealed))


def encode_captured(captured: Mapping[str, str] | None) -> str | None:
    """Captured values as the JSON object that is stored. One that Postgres can hold in no text (a NUL, half of a surrogate pair) is left
    out: it would make the request fail for what is only kept to find out about it.
    """
    if not captured:
        return None
    return json.dumps({name: value for name, value in captured.items() if storable(value) is not None}, ensure_ascii=False)


def decode_captured(stored: str | None) -> Mapping[str, str]:
    """The inverse of `encode_captured`."""
    return {} if stored is None else json.loads(stored)


def storable(text: str | None) -> str | None:
    """The text, if Postgres can hold it."""
    if text is None or "\0" in text:
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text


def tombstone_digest(intent: Intent) -> bytes | None:
    """That of the tombstone which the intent asks for, if it asks for one."""
    return None if intent.terms.gone_for is None else intent.key.lookup_digest()


def claim_arguments(found: Record, intent: Intent) -> tuple[Any, ...]:
    """The arguments of `new_life`, in order; `retry` has one more, whether it may execute again what is in doubt."""
    fingerprint = intent.fingerprint
    return (
        found.key.scope_id,
        found.key.key,
        found.record_id,
        found.version,
        intent.owner,
        fingerprint.digest,
        fingerprint.version,
        fingerprint.policy,
        intent.terms.route_id,
        intent.request_id,
        intent.method,
        intent.target,
        intent.terms.lease,
        intent.terms.max_execution,
        intent.terms.reconcilable,
        intent.terms.observed,
        encode_captured(intent.captured),
        storable(intent.correlation),
        intent.sealed,
    )


def decode_record(key: RecordKey, found: Sequence[Any], behind: float = 0.0) -> Record:
    """A record as `reserve` or `find` reports it: the columns of `find` from `record_id` on. Raises `Unreadable`.

    `behind`: how far the clock is behind what it was.
    """
    (
        record_id,
        version,
        word,
        digest,
        fingerprint_version,
        policy,
        owner,
        observed,
        attempt,
        request_id,
        lease_left,
        expires_in,
        expires_at_us,
        dead_lettered,
        reconcile_in,
        last_error_code,
        doubt_over,
        born_ago,
        judged,
        accepted,
        due_in,
        *answer,
        _,
    ) = found
    status = _STATUSES[word]
    return Record(
        key,
        record_id,
        version,
        status,
        Fingerprint(fingerprint_version, policy, digest),
        owner,
        attempt,
        request_id,
        lease_left is not None and lease_left > 0,
        expires_in is not None and expires_in <= 0,
        dead_lettered,
        None if reconcile_in is None else max(reconcile_in, 0.0),
        None if expires_in is None else max(expires_in, 0.0),
        expires_at_us,
        last_error_code,
        decode_response(answer) if status is Status.COMPLETED else None,
        bool(doubt_over),
        (born_ago or 0.0) + behind,
        bool(judged),
        observed,
        accepted,
        None if due_in is None else max(due_in, 0.0),
    )


def schema_version(encoding: int) -> int:
    """The schema version of a response whose body is packed so."""
    if encoding == SEALED:
        return SEALED_SCHEMA_VERSION
    return RESPONSE_SCHEMA_VERSION if encoding == PLAIN else PACKED_SCHEMA_VERSION


RESPONSE_COLUMNS = (
    "response_status_code",
    "response_reason",
    "response_headers",
    "response_body",
    "response_body_encoding",
    "response_body_length",
    "response_body_digest",
    "response_schema_version",
)


def decode_response(answer: Sequence[Any]) -> StoredResponse:
    """The answer of a completed record, from its `RESPONSE_COLUMNS`. Raises `Unreadable`."""
    status, reason, headers, body, encoding, length, digest, version = answer
    return StoredResponse(status, reason, decode_headers(headers), body, length, digest, _encoding(version, encoding, body))


def _encoding(version: int, encoding: int, body: bytes | None) -> int:
    if version == RESPONSE_SCHEMA_VERSION:
        return PLAIN
    if version == SEALED_SCHEMA_VERSION and encoding == SEALED and body is not None:
        return SEALED
    if version != PACKED_SCHEMA_VERSION:
        raise Unreadable(f"response schema version {version}")
    if encoding not in ENCODINGS or encoding in {PLAIN, SEALED} or body is None:
        raise Unreadable(f"response body encoding {encoding}")
    return encoding
