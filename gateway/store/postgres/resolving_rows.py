"""What the statements of `reconcile.sql` are given, and what their rows mean.

Evidence is a JSON object:

    {"version": 1, "status": 201, "reason": <base64>, "headers": <base64 of `rows.encode_headers`>, "body": <base64> or null, "encoding": 0,
     "length": 12, "digest": <base64>, "entry": {"source": …, "what": …, "detail": {…}, "actor": …, "reason": …}, "of": <hex>}

`encoding` says how the body is packed; `length` and `digest` are of the body as it was sent; `of`, which the statement adds, is the owner
token of the attempt that it is about.
"""

import json
from base64 import b64decode, b64encode
from dataclasses import replace
from typing import Any

from gateway.core.model import SEALED, RecordKey, Status, StoredResponse
from gateway.core.packing import ENCODINGS, PLAIN
from gateway.ports import Retention
from gateway.ports.reconciliation import Audit, Detail, Doubtful, Entry, Event, Evidence, Fence, Subject
from gateway.runtime.record_sealing import RecordSealer
from gateway.store.postgres.rows import Row, Unreadable, decode_captured, decode_headers, encode_headers, schema_version

EVIDENCE_VERSION = 1


def fence_arguments(fence: Fence) -> tuple[Any, ...]:
    return fence.key.scope_id, fence.key.key, fence.record_id, fence.version


def retention_arguments(retention: Retention) -> tuple[Any, ...]:
    return retention.seconds, retention.gone_for, retention.keep_for


def entry_arguments(entry: Entry) -> tuple[Any, ...]:
    return entry.source, entry.what, encode_detail(entry.detail), clean_text(entry.actor), clean_text(entry.reason)


def event_arguments(event: Event | None) -> tuple[Any, ...]:
    return (None, None, None) if event is None else (event.webhook, event.digest, event.remember)


def audit_arguments(audit: Audit | None) -> tuple[Any, ...]:
    if audit is None:
        return None, None, None, None
    return clean_text(audit.actor), audit.action, clean_text(audit.reason), encode_detail(audit.detail)


def response_arguments(response: StoredResponse) -> tuple[Any, ...]:
    encoding = PLAIN if response.body is None else response.encoding
    return (
        response.status,
        response.reason,
        encode_headers(response.headers),
        response.body,
        encoding,
        response.body_length,
        response.body_digest,
        schema_version(encoding),
    )


def clean_text(text: str | None) -> str | None:
    """Words for people, with a mark in place of what no text of Postgres can hold (a NUL, half of a surrogate pair)."""
    return None if text is None else text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def encode_detail(detail: Detail) -> str:
    """Facts for people as a JSON object."""
    cleaned = {name: clean_text(value) if isinstance(value, str) else value for name, value in detail.items()}
    return json.dumps(cleaned, ensure_ascii=False)


def encode_evidence(evidence: Evidence) -> str:
    response, entry = evidence.response, evidence.entry
    return json.dumps(
        {
            "version": EVIDENCE_VERSION,
            "status": response.status,
            "reason": _text(response.reason),
            "headers": _text(encode_headers(response.headers)),
            "body": None if response.body is None or (response.encoding == SEALED and not response.body) else _text(response.body),
            "encoding": response.encoding,
            "length": response.body_length,
            "digest": _text(response.body_digest),
            "entry": {
                "source": entry.source,
                "what": entry.what,
                "detail": json.loads(encode_detail(entry.detail)),
                "actor": clean_text(entry.actor),
                "reason": clean_text(entry.reason),
            },
        }
    )


def decode_evidence(stored: str) -> Evidence:
    """The inverse of `encode_evidence`. Raises `Unreadable` for what this version does not write."""
    made = json.loads(stored)
    if made.get("version") != EVIDENCE_VERSION or made["encoding"] not in ENCODINGS:
        raise Unreadable(f"evidence version {made.get('version')}")
    response = StoredResponse(
        status=made["status"],
        reason=b64decode(made["reason"]),
        headers=decode_headers(b64decode(made["headers"])),
        body=_body(made["body"], made["encoding"]),
        body_length=made["length"],
        body_digest=b64decode(made["digest"]),
        encoding=made["encoding"],
    )
    return Evidence(response, Entry(**made["entry"]))


def decode_doubtful(row: Row, behind: float, sealer: RecordSealer) -> Doubtful:
    """A record that `take_due` has taken, on a clock that is `behind` what it was. Raises `Unreadable` and `Unsealable`."""
    evidence: str | None = row["evidence"]
    doubtful = Doubtful(
        fence=_fence(row),
        owner=row["owner"],
        route_id=row["route_id"],
        request_id=row["request_id"],
        method=row["request_method"],
        target=row["request_target"],
        attempt=row["attempt"],
        reason=row["last_error_code"],
        look=row["reconcile_attempts"],
        agreed=row["reconcile_agreed"],
        agreed_ago=row["agreed_ago"],
        over=row["over"],
        age=max(row["age"], 0.0),
        born_ago=max(row["born_ago"] + behind, 0.0),
        captured=decode_captured(row["captured"]),
        sealed=row["request_sealed"],
        evidence=None if evidence is None else decode_evidence(evidence),
    )
    return _opened(doubtful, sealer)


def _body(stored: str | None, encoding: int) -> bytes | None:
    """A sealed answer without a body has one of zero bytes; its JSON null tells `attach` that it has none."""
    return b64decode(stored) if stored is not None else b"" if encoding == SEALED else None


def _opened(doubtful: Doubtful, sealer: RecordSealer) -> Doubtful:
    key, evidence = doubtful.fence.key, doubtful.evidence
    if evidence is not None:
        evidence = Evidence(sealer.open_answer(key, doubtful.fence.record_id, evidence.response), evidence.entry)
    captured, target = sealer.open_captured(key, doubtful.captured), sealer.open_target(key, doubtful.target)
    secret = captured is not doubtful.captured or target is not doubtful.target
    return replace(doubtful, captured=captured, target=target, evidence=evidence, secret=secret)


def decode_subject(row: Row, sealer: RecordSealer) -> Subject:
    """Raises `Unsealable`."""
    fence, captured = _fence(row), decode_captured(row["captured"])
    return Subject(
        fence=fence,
        status=Status(row["status"]),
        lease_live=row["lease_live"],
        expired=row["expired"],
        dead_lettered=row["dead_lettered"],
        route_id=row["route_id"],
        request_id=row["request_id"],
        attempt=row["attempt"],
        agreed=row["reconcile_agreed"],
        agreed_ago=row["agreed_ago"],
        over=row["over"],
        captured=sealer.open_captured(fence.key, captured),
    )


def _fence(row: Row) -> Fence:
    return Fence(RecordKey(row["scope_id"], row["idempotency_key"]), row["record_id"], row["version"])


def _text(data: bytes) -> str:
    return b64encode(data).decode()
