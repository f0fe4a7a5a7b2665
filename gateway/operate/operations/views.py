"""Records and outcomes as JSON carries them: snake_case names, RFC 3339 instants in UTC, digests in hex. Never an owner token."""

import datetime as dt
from base64 import b64encode
from typing import assert_never

from gateway.background.probe import Finding
from gateway.core.model import Headers, StoredResponse
from gateway.operate.operations.ids import record_id_text, short_id_text
from gateway.operate.operations.outcomes import Changed, Conflict, Done, NotFound, Proposed, TooEarly
from gateway.ports.approvals import Proposal
from gateway.ports.approvals import Proposed as Waiting
from gateway.ports.reconciliation import AuditLine, Entry, Listed, Page, Remembered, Selection, Shown

Json = dict[str, object]


def instant(at: dt.datetime | None) -> str | None:
    """RFC 3339 in UTC with microseconds: one width, so that texts sort as instants do."""
    return None if at is None else at.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def listed_json(listed: Listed) -> Json:
    """A record as lists show it. `id` and `short_id` are what commands and paths take; `record_id` names this life of it."""
    return {
        "id": record_id_text(listed.key),
        "short_id": short_id_text(listed.key),
        "state": "dead_letter" if listed.dead_lettered_at is not None else listed.status.value,
        "status": listed.status.value,
        "route": listed.route_id,
        "scope": listed.key.scope_id.partition(":")[0],
        "scope_id": listed.key.scope_id,
        "key": listed.key.key,
        "key_digest": listed.key_digest,
        "record_id": str(listed.record_id),
        "version": listed.version,
        "request_id": listed.request_id,
        "method": listed.method,
        "attempt": listed.attempt,
        "observed": listed.observed,
        "reason": listed.reason,
        "created_at": instant(listed.created_at),
        "locked_until": instant(listed.locked_until),
        "unknown_since": instant(listed.unknown_since),
        "doubtful_until": instant(listed.doubtful_until),
        "reconcile_after": instant(listed.reconcile_after),
        "looks": listed.looks,
        "dead_lettered_at": instant(listed.dead_lettered_at),
        "completed_at": instant(listed.completed_at),
        "expires_at": instant(listed.expires_at),
        "response_status": listed.response_status,
        "response_length": listed.response_length,
        "captured": dict(listed.captured),
    }


def shown_json(shown: Shown) -> Json:
    """A record whole. The response has a `body_base64` only if its body was asked for, and kept."""
    return {
        **listed_json(shown.listed),
        "target": shown.target.decode("latin-1"),
        "recovery_point": shown.recovery_point,
        "recovery_data": shown.recovery_data,
        "completed_by": shown.completed_by,
        "captured": dict(shown.captured),
        "fingerprint": {"version": shown.fingerprint_version, "digest": shown.fingerprint.hex()},
        "executed_says_webhook": shown.evidence,
        "response": None if shown.response is None else _response_json(shown.response),
        "history": [_remembered_json(line) for line in shown.history],
        "read_at": instant(shown.at),
    }


def page_json(page: Page) -> Json:
    """A page of records. `cursor` is null at the end, and there alone."""
    return {"records": [listed_json(listed) for listed in page.records], "cursor": page.cursor}


def audit_json(line: AuditLine) -> Json:
    """A line of the audit table. `id` is null for what concerned no single record (an export)."""
    audit = line.audit
    return {
        "line": line.id,
        "at": instant(line.at),
        "actor": audit.actor,
        "action": audit.action,
        "reason": audit.reason,
        "id": record_id_text(line.key) if line.key.scope_id else None,
        "short_id": short_id_text(line.key) if line.key.scope_id else None,
        "key": line.key.key if line.key.scope_id else None,
        "record_id": str(line.record_id) if line.key.scope_id else None,
        "detail": dict(audit.detail),
    }


def changed_json(changed: Changed) -> Json:
    """What a change came to. `result`: done, not_found, conflict, too_early; `record` is the record as it is now."""
    match changed:
        case Done(now, redis_wait, memory_wait):
            return {
                "result": "done",
                "record": None if now is None else listed_json(now),
                "redis": _redis_json(redis_wait),
                "memory": None if memory_wait is None else {"wait_seconds": memory_wait},
            }
        case NotFound():
            return {"result": "not_found", "record": None}
        case Conflict(now, why):
            return {"result": "conflict", "why": why, "record": listed_json(now)}
        case TooEarly(until, now):
            return {"result": "too_early", "until": instant(until), "record": listed_json(now)}
        case Proposed(proposal, now):
            return {"result": "proposed", "proposal": proposal_json(proposal), "record": listed_json(now)}
        case _:
            assert_never(changed)


def proposal_json(proposal: Proposal) -> Json:
    """A verdict that somebody proposes. Its answer's body is as it would be kept, and no part of it."""
    response = proposal.response
    return {
        "proposal": str(proposal.id),
        "id": record_id_text(proposal.key),
        "short_id": short_id_text(proposal.key),
        "key": proposal.key.key,
        "verdict": proposal.change,
        "proposed_by": proposal.proposer,
        "reason": proposal.reason,
        "retention": proposal.retention,
        "response": None if response is None else _response_json(response.without_body()),
    }


def waiting_json(waiting: Waiting) -> Json:
    """A proposal as it is kept. `stale`: it can be confirmed no more."""
    return {
        **proposal_json(waiting.proposal),
        "route": waiting.route_id,
        "proposed_at": instant(waiting.at),
        "expires_at": instant(waiting.expires_at),
        "stale": waiting.stale,
    }


def selection_json(selection: Selection) -> dict[str, str | None]:
    """A selection as an audit line keeps it: only what it says. The key itself is what the operator typed, and stays out."""
    given = {
        **{name: getattr(selection, name) for name in ("state", "route", "scope", "scope_id", "request_id", "trace_id", "key_digest")},
        "since": instant(selection.since),
        "until": instant(selection.until),
    }
    return {name: value for name, value in given.items() if value is not None}


def _redis_json(wait: float | None) -> Json | None:
    return None if wait is None else {"acknowledged": wait == 0.0, "wait_seconds": wait}


def _response_json(response: StoredResponse) -> Json:
    document: Json = {
        "status": response.status,
        "reason": response.reason.decode("latin-1"),
        "headers": _headers_json(response.headers),
        "body_length": response.body_length,
        "body_sha256": response.body_digest.hex(),
    }
    if response.body is not None:
        document["body_base64"] = b64encode(response.body).decode()
    return document


def asked_json(finding: Finding) -> Json:
    """What an upstream says now of an operation, by the rules of its route. `answer` is what the rules make of it."""
    answer = None if finding.answer is None else _response_json(finding.answer)
    return {"verdict": finding.verdict.value, "detail": dict(finding.detail), "answer": answer}


def _headers_json(headers: Headers) -> list[list[str]]:
    return [[name.decode("latin-1"), value.decode("latin-1")] for name, value in headers]


def _remembered_json(line: Remembered) -> Json:
    entry: Entry = line.entry
    return {
        "at": instant(line.at),
        "source": entry.source,
        "what": entry.what,
        "actor": entry.actor,
        "reason": entry.reason,
        "detail": dict(entry.detail),
    }
