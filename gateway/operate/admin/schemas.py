"""The JSON schemas of the OpenAPI document: what requests may say, and what answers hold."""

from typing import Any

from gateway.core.reconcile.policy import Verdict
from gateway.core.retention import MAX_RETENTION
from gateway.core.roles import Role
from gateway.operate.operations.inputs import ACTOR_MAX, REASON_MAX, STATES

Json = dict[str, Any]

VERSION: Json = {
    "type": "integer",
    "minimum": 1,
    "maximum": 2**31 - 1,
    "description": "Only if the record still has this version.",
}
REASON: Json = {
    "type": "string",
    "minLength": 1,
    "maxLength": REASON_MAX,
    "pattern": r"^[^\x00-\x08\x0b-\x1f\x7f-\x9f]*[!-~][^\x00-\x08\x0b-\x1f\x7f-\x9f]*$",
    "description": "Why. Kept in the audit table.",
}
ACTOR: Json = {
    "type": "string",
    "minLength": 1,
    "maxLength": ACTOR_MAX,
    "pattern": r"^[^\x00-\x1f\x7f-\x9f]*[!-~][^\x00-\x1f\x7f-\x9f]*$",
    "description": "For whom; without users: who does it, and required. Kept in the audit table.",
}
_RETENTION: Json = {
    "type": "number",
    "minimum": 1,
    "maximum": MAX_RETENTION,
    "description": "Seconds that the record is kept from now on. Default: the route's retention.",
}
_GROUNDS: Json = {"reason": REASON, "actor": ACTOR, "version": VERSION}
_BASE64 = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_NAME = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"
_VALUE: Json = {"type": "string", "pattern": r"^([!-~]([\t -~]*[!-~])?)?$", "maxLength": 8192}


def _object(properties: Json, *, closed: bool = False, required: "tuple[str, ...] | None" = None) -> Json:
    """With all properties required, unless told otherwise."""
    made: Json = {"type": "object", "required": list(properties if required is None else required), "properties": properties}
    return {**made, "additionalProperties": False} if closed else made


def _or_null(kind: str) -> Json:
    return {"type": [kind, "null"]}


_INSTANT: Json = {"type": "string", "format": "date-time"}
_MAYBE_INSTANT: Json = {"type": ["string", "null"], "format": "date-time"}
_TEXT: Json = {"type": "string"}
_NUMBER: Json = {"type": "integer"}
_DETAIL: Json = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}}

_RECORD: Json = {
    "id": {"type": "string", "description": "What paths and commands take."},
    "short_id": {"type": "string", "pattern": "^rec_[a-z2-7]{10}$", "description": "The same for people; it is looked for."},
    "state": {"type": "string", "enum": list(STATES)},
    "status": {"type": "string", "enum": [state for state in STATES if state != "dead_letter"]},
    "route": _TEXT,
    "scope": _TEXT,
    "scope_id": {"type": "string", "description": "The scope's name, and a digest of the principal."},
    "key": _TEXT,
    "key_digest": {"type": ["string", "null"], "description": "The key as log lines have it."},
    "record_id": {"type": "string", "format": "uuid", "description": "This life of the record."},
    "version": _NUMBER,
    "request_id": _TEXT,
    "method": _TEXT,
    "attempt": _NUMBER,
    "observed": {"type": "boolean", "description": "Made under `mode: observe`."},
    "reason": {"type": ["string", "null"], "description": "Of the last transition."},
    "created_at": _INSTANT,
    "locked_until": _MAYBE_INSTANT,
    "unknown_since": _MAYBE_INSTANT,
    "doubtful_until": {**_MAYBE_INSTANT, "description": "From then on *not executed* may be said."},
    "reconcile_after": {**_MAYBE_INSTANT, "description": "When the next look is due."},
    "looks": _NUMBER,
    "dead_lettered_at": _MAYBE_INSTANT,
    "completed_at": _MAYBE_INSTANT,
    "expires_at": _MAYBE_INSTANT,
    "response_status": _or_null("integer"),
    "response_length": _or_null("integer"),
    "captured": {"type": "object", "additionalProperties": _TEXT, "description": "Values of the request, by name."},
}

_UUID: Json = {"type": "string", "format": "uuid"}

_RESPONSE: Json = _object(
    {
        "status": _NUMBER,
        "reason": _TEXT,
        "headers": {"type": "array", "items": {"type": "array", "items": _TEXT, "minItems": 2, "maxItems": 2}},
        "body_length": _NUMBER,
        "body_sha256": _TEXT,
        "body_base64": {"type": "string", "contentEncoding": "base64", "description": "Only if it was asked for, and kept."},
    },
    required=("status", "reason", "headers", "body_length", "body_sha256"),
)

_HISTORY: Json = _object(
    {"at": _INSTANT, "source": _TEXT, "what": _TEXT, "actor": _or_null("string"), "reason": _or_null("string"), "detail": _DETAIL}
)

_SHOWN: Json = {
    **_RECORD,
    "target": {"type": "string", "description": "As sent, its bytes as ISO-8859-1."},
    "fingerprint": _object({"version": _NUMBER, "digest": _TEXT}),
    "recovery_point": {"type": ["string", "null"], "description": "How far an attempt has come, as the upstream told last."},
    "recovery_data": {"type": ["string", "null"], "description": "The JSON text that the upstream told with it."},
    "completed_by": {"type": ["string", "null"], "enum": ["gateway", "upstream", "verdict", "operator", None]},
    "executed_says_webhook": {"type": "boolean", "description": "An event said so, and the reconciler is about to conclude with it."},
    "response": {"anyOf": [_RESPONSE, {"type": "null"}]},
    "history": {"type": "array", "items": _HISTORY},
    "read_at": _INSTANT,
}

_REDIS: Json = {
    "type": ["object", "null"],
    "description": "Whether Redis has acknowledged; if not, for how many seconds it may still answer from before. Null: it holds nothing.",
    "required": ["acknowledged", "wait_seconds"],
    "properties": {"acknowledged": {"type": "boolean"}, "wait_seconds": {"type": "number"}},
}

_MEMORY: Json = {
    "type": ["object", "null"],
    "description": "For how many seconds gateways may still replay it from their own memory. Null: they cannot.",
    "required": ["wait_seconds"],
    "properties": {"wait_seconds": {"type": "number"}},
}

_AUDIT_LINE: Json = _object(
    {
        "line": _NUMBER,
        "at": _INSTANT,
        "actor": _TEXT,
        "action": _TEXT,
        "reason": _TEXT,
        "id": _or_null("string"),
        "short_id": _or_null("string"),
        "key": _or_null("string"),
        "record_id": _or_null("string"),
        "detail": _DETAIL,
    }
)

_PROBLEM: Json = _object(
    {
        "type": {"const": "about:blank"},
        "title": _TEXT,
        "status": _NUMBER,
        "detail": _TEXT,
        "field": _TEXT,
        "errors": {"type": "array", "items": _TEXT},
        "result": {"type": "string", "enum": ["conflict", "too_early"]},
        "record": {"$ref": "#/components/schemas/Record"},
        "not_before": _INSTANT,
        "role": {"type": "string", "enum": list(Role), "description": "The least role that may do this."},
    },
    required=("type", "title", "status", "detail"),
)

_HEADERS: Json = {
    "description": "Names and texts, or pairs in order. Fields that are never stored (framing, hop-by-hop, Set-Cookie) are left out.",
    "anyOf": [
        {"type": "object", "propertyNames": {"pattern": _NAME}, "additionalProperties": _VALUE, "maxProperties": 100},
        {
            "type": "array",
            "maxItems": 100,
            "items": {
                "type": "array",
                "prefixItems": [{"type": "string", "pattern": _NAME, "maxLength": 200}, _VALUE],
                "items": False,
                "minItems": 2,
                "maxItems": 2,
            },
        },
    ],
}

_NO_BODY: Json = {"properties": {"body": {"maxLength": 0}, "body_base64": {"maxLength": 0}}}

_EXECUTED: Json = {
    **_object(
        {
            "verdict": {"const": "executed"},
            "status": {"type": "integer", "minimum": 200, "maximum": 599},
            "headers": _HEADERS,
            "body": {"type": "string", "description": "As UTF-8."},
            "body_base64": {"type": "string", "contentEncoding": "base64", "pattern": _BASE64},
            "retention": _RETENTION,
            **_GROUNDS,
        },
        closed=True,
        required=("verdict", "status", "reason"),
    ),
    "description": "It ran: this is its answer from now on. Also for one that was created and then declined.",
    "not": {"required": ["body", "body_base64"]},
    "if": {"properties": {"status": {"enum": [204, 205, 304]}}},
    "then": _NO_BODY,
}

_ANSWER: Json = {
    **_object(
        {name: _EXECUTED["properties"][name] for name in ("status", "headers", "body", "body_base64")}, closed=True, required=("status",)
    ),
    "not": {"required": ["body", "body_base64"]},
    "if": _EXECUTED["if"],
    "then": _NO_BODY,
}

_PROPOSAL: Json = {
    "proposal": _UUID,
    "id": _TEXT,
    "short_id": _TEXT,
    "key": _TEXT,
    "verdict": {"type": "string", "enum": ["executed", "not_executed", "release"]},
    "proposed_by": _TEXT,
    "reason": _TEXT,
    "retention": {**_or_null("number"), "description": "Seconds that the record would be kept; null: as its route says."},
    "response": {"anyOf": [_RESPONSE, {"type": "null"}]},
}

_WAITING: Json = {
    **_PROPOSAL,
    "route": _or_null("string"),
    "proposed_at": _INSTANT,
    "expires_at": _INSTANT,
    "stale": {"type": "boolean", "description": "The record has come further: it can be confirmed no more."},
}

_NOT_EXECUTED: Json = {
    **_object({"verdict": {"const": "not_executed"}, "retention": _RETENTION, **_GROUNDS}, closed=True, required=("verdict", "reason")),
    "description": "It did not run and will not: the next retry runs it.",
}

SCHEMAS: Json = {
    "Record": _object(_RECORD),
    "RecordShown": _object(_SHOWN),
    "Page": _object(
        {
            "records": {"type": "array", "items": {"$ref": "#/components/schemas/Record"}},
            "cursor": {"type": ["string", "null"], "description": "Where the next page begins; null at the end."},
        }
    ),
    "Changed": _object(
        {
            "result": {"const": "done"},
            "record": {"anyOf": [{"$ref": "#/components/schemas/Record"}, {"type": "null"}], "description": "As it is now; null if gone."},
            "redis": _REDIS,
            "memory": _MEMORY,
        }
    ),
    "Proposed": _object(
        {"result": {"const": "proposed"}, "proposal": _object(_PROPOSAL), "record": {"$ref": "#/components/schemas/Record"}}
    ),
    "Proposal": _object(_WAITING),
    "Proposals": _object(
        {"proposals": {"type": "array", "items": {"$ref": "#/components/schemas/Proposal"}}, "cursor": _or_null("string")}
    ),
    "Approval": _object({"proposal": _UUID, **_GROUNDS}, closed=True, required=("proposal", "reason")),
    "Rejection": _object({"proposal": _UUID, "reason": REASON, "actor": ACTOR}, closed=True, required=("proposal", "reason")),
    "Reasons": _object({"reason": REASON, "actor": ACTOR}, closed=True, required=("reason",)),
    "Requeued": _object({"requeued": _NUMBER, "refused": _NUMBER}),
    "Amounts": _object(
        {
            "records": {"type": "array", "items": {"$ref": "#/components/schemas/Record"}},
            "whole": {"type": "boolean", "description": "Whether these are all that there are."},
        }
    ),
    "Asked": _object(
        {
            "verdict": {"enum": [verdict.value for verdict in Verdict]},
            "detail": {"type": "object", "description": "What was asked and what came back, as history has it of a look."},
            "answer": {"anyOf": [_RESPONSE, {"type": "null"}], "description": "What the rules make of it, where they say *executed*."},
        }
    ),
    "Answer": _ANSWER,
    "Preview": _object({"message_base64": {"type": "string", "contentEncoding": "base64", "description": "HTTP/1.1, without the date."}}),
    "Resolution": {"oneOf": [_EXECUTED, _NOT_EXECUTED]},
    "Grounds": _object(_GROUNDS, closed=True, required=("reason",)),
    "Release": _object({**_GROUNDS, "retention": _RETENTION}, closed=True, required=("reason",)),
    "AuditPage": _object({"lines": {"type": "array", "items": _AUDIT_LINE}}),
    "Readiness": _object({"status": _TEXT, "checks": {"type": "object", "additionalProperties": _TEXT}}),
    "Reloaded": _object({"status": {"const": "reloaded"}}),
    "Problem": _PROBLEM,
}
