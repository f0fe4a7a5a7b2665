"""The admin listener as an OpenAPI document (version 3.1): what `GET /admin/v1/openapi.json` gives."""

from collections.abc import Mapping
from typing import Any

from gateway import __version__
from gateway.core.roles import NEEDED, Action
from gateway.operate.admin.schemas import ACTOR, REASON, SCHEMAS, VERSION
from gateway.operate.operations import PAGE_MAX, STATES

PAGE = 100
"""Records in a page of which nothing else is said."""

Json = dict[str, Any]

_INSTANT: Json = {"type": "string", "format": "date-time"}

_PROBLEMS: Mapping[int, str] = {
    400: "The request cannot be what was meant; `field` names the parameter or member.",
    401: "The token is missing, or nobody's.",
    403: "The caller's role is too low (`role` is the one needed), or the request comes from a page of another origin.",
    404: "There is no such record.",
    409: "The record is not, or no longer, in a state for this; `record` is what it is now, `not_before` the instant to wait for.",
    413: "The body is larger than 16 MiB.",
    415: "The body is not sent as application/json.",
    421: "The listener knows no token and no users, and `Host` is no loopback name.",
    422: "The new configuration has mistakes; the old one stays in use.",
    503: "A store is away. A change may have been made all the same: look before you repeat it.",
}


def document() -> Json:
    """All operations of the listener, but the page at `/`."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Idempotency gateway: admin API",
            "version": __version__,
            "description": "What operators of the gateway see and do. Every change needs a reason, and is written to an append-only audit "
            "table in the same transaction, with the name of who makes it: the user whose token it is. `actor` is then for whom. On a "
            "listener without users it is who does it, and required. `x-role` is the least role that an operation needs.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": "records"}, {"name": "audit"}, {"name": "process"}],
        "security": [{"token": []}],
        "paths": {**_record_paths(), **_proposal_paths(), **_audit_paths(), **_process_paths()},
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "A user's, or `admin.token`; on loopback there may be none."}
            },
            "responses": {f"Problem{status}": _problem(status, text) for status, text in _PROBLEMS.items()},
            "parameters": {"id": _record_id()},
        },
    }


def _record_paths() -> Json:
    record = {"$ref": "#/components/parameters/id"}
    return {
        "/admin/v1/records": {
            "get": _operation(
                "listRecords", "records", "Records, one page at a time", _json("Page"), (400,), _selection(state=True) + _paging()
            )
        },
        "/admin/v1/records/{id}": {
            "parameters": [record],
            "get": _operation(
                "showRecord",
                "records",
                "One record with its history. Its stored body only with `body=true`, which needs `reason` and the role operator",
                _json("RecordShown"),
                (400, 404),
                [_query("body", {"type": "boolean"}), *_grounds(required=False)],
            ),
            "delete": _operation(
                "deleteRecord",
                "records",
                "Forget a completed or failed_retryable record: its key is free, and only its digest is left",
                _json("Changed"),
                (400, 404, 409),
                [*_grounds(required=True), _query("version", VERSION)],
                action=Action.DELETE,
            ),
        },
        "/admin/v1/records/{id}/resolve": {
            "parameters": [record],
            "post": _change("resolveRecord", "Say what became of an operation, and with what answer", "Resolution", Action.RESOLVE),
        },
        "/admin/v1/records/{id}/release": {
            "parameters": [record],
            "post": _change("releaseRecord", "Let the next retry run it, by the word of somebody who knows", "Release", Action.RELEASE),
        },
        "/admin/v1/records/{id}/look-now": {
            "parameters": [record],
            "post": _change("lookNow", "Have the next look of an unknown record made at once", "Grounds", Action.LOOK),
        },
        "/admin/v1/records/{id}/ask": {
            "parameters": [record],
            "post": _ask(),
        },
        "/admin/v1/records/{id}/preview": {
            "parameters": [record],
            "post": _preview(),
        },
        "/admin/v1/dead-letters": {
            "get": _operation(
                "listDeadLetters",
                "records",
                "Unknown records without another look: a person decides",
                _json("Page"),
                (400,),
                _selection(state=False) + _paging(),
            )
        },
        "/admin/v1/dead-letters/by-amount": {
            "get": _operation(
                "listDeadLettersByAmount",
                "records",
                "Dead letters with the largest captured numbers first; of the oldest 5000",
                _json("Amounts"),
                (400,),
                [
                    _query("capture", {"type": "string", "minLength": 1}, "The captured value's name.", required=True),
                    *_narrowed(),
                    _limit(),
                ],
            )
        },
        "/admin/v1/dead-letters/requeue": {
            "post": _many("requeueDeadLetters", "Have the reconciler look at many again, the oldest first"),
        },
        "/admin/v1/dead-letters/{id}/requeue": {
            "parameters": [record],
            "post": _change("requeueDeadLetter", "Have the reconciler look at it again, from the beginning", "Grounds", Action.REQUEUE),
        },
    }


def _ask() -> Json:
    made = _operation(
        "askUpstream",
        "records",
        "What the upstream says now, by the lookup of the record's route. Nothing changes but the audit table, which says who has asked",
        _json("Asked"),
        (400, 404, 409, 413, 415),
        action=Action.LOOK,
    )
    return {**made, "requestBody": _body("Reasons")}


def _preview() -> Json:
    made = _operation(
        "previewAnswer",
        "records",
        "What the retry would get if the record completed with this answer. Changes nothing",
        _json("Preview"),
        (400, 404, 413, 415),
        action=Action.RESOLVE,
    )
    return {**made, "requestBody": _body("Answer")}


def _proposal_paths() -> Json:
    record = {"$ref": "#/components/parameters/id"}
    cursor = {"type": "string", "pattern": "^[0-9TZ:.+-]+_[0-9a-f-]{36}$"}
    paging = [_limit(), _query("cursor", cursor, "`cursor` of the page before.")]
    return {
        "/admin/v1/proposals": {
            "get": _operation("listProposals", "records", "Verdicts that wait for another user", _json("Proposals"), (400,), paging)
        },
        "/admin/v1/records/{id}/proposal": {
            "parameters": [record],
            "get": _operation("showProposal", "records", "The verdict about it that waits for another user", _json("Proposal"), (400, 404)),
        },
        "/admin/v1/records/{id}/approve": {
            "parameters": [record],
            "post": _change("approveProposal", "Carry out what another user has proposed", "Approval", Action.APPROVE),
        },
        "/admin/v1/records/{id}/reject": {
            "parameters": [record],
            "post": _change("rejectProposal", "Drop a proposal, another user's or one's own", "Rejection", Action.APPROVE),
        },
    }


def _audit_paths() -> Json:
    line = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
    exported = {
        "description": "One record a line: as `Record`, or with `bodies` as `RecordShown`. One that is cut is not whole.",
        "content": {"application/jsonl": {"schema": {"type": "string"}}},
    }
    return {
        "/admin/v1/audit": {
            "get": _operation(
                "listAudit",
                "audit",
                "Who did what, when and why, in order, or the newest first",
                _json("AuditPage"),
                (400,),
                [
                    _query("after", {**line, "default": 0}, "Only lines with an `id` above this: that of the last one that was seen."),
                    _query("newest", {"type": "boolean"}, "The newest first; so it is with `before`, too."),
                    _query(
                        "before",
                        {**line, "minimum": 1},
                        "Only lines with an `id` below this: that of the last one that was seen, where the newest come first.",
                    ),
                    _limit(),
                ],
            )
        },
        "/admin/v1/export": {
            "get": _operation(
                "exportRecords",
                "audit",
                "Records as JSON lines, streamed",
                exported,
                (400,),
                [
                    *_selection(state=True),
                    _query("bodies", {"type": "boolean"}, "With history and stored bodies; each record is audited. For the role admin."),
                    *_grounds(required=True),
                ],
                action=Action.EXPORT,
            )
        },
    }


def _process_paths() -> Json:
    text = {"description": "Yes.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    anything = {"description": "As JSON.", "content": {"application/json": {"schema": {"type": "object"}}}}
    not_ready = {"description": "It cannot; `checks` says why.", "content": {"application/json": {"schema": {"$ref": _ref("Readiness")}}}}
    return {
        "/livez": {"get": _open("livez", "Whether the process runs", {"200": text})},
        "/readyz": {"get": _open("readyz", "Whether it can serve", {"200": _json("Readiness"), "503": not_ready})},
        "/metrics": {"get": _open("metrics", "Metrics, in Prometheus's text format or OpenMetrics", {"200": text})},
        "/admin/v1/now": {"get": _operation("showFigures", "process", "Figures of this moment", anything, ())},
        "/admin/v1/config": {"get": _operation("showConfig", "process", "The configuration in use, secrets redacted", anything, ())},
        "/admin/v1/reload": {
            "post": _operation("reload", "process", "Read the configuration again", _json("Reloaded"), (409, 422), action=Action.RELOAD),
        },
        "/admin/v1/openapi.json": {"get": _operation("describe", "process", "This document", anything, ())},
    }


def _operation(
    name: str,
    tag: str,
    summary: str,
    done: Json,
    problems: tuple[int, ...],
    parameters: "list[Json] | None" = None,
    *,
    action: Action = Action.SEE,
) -> Json:
    made: Json = {"operationId": name, "tags": [tag], "summary": summary, "x-role": NEEDED[action].value}
    if parameters:
        made["parameters"] = parameters
    refusals = {str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in {*problems, 401, 403, 421, 503}}
    return {**made, "responses": {"200": done, **dict(sorted(refusals.items()))}}


def _change(name: str, summary: str, body: str, action: Action) -> Json:
    made = _operation(name, "records", summary, _json("Changed"), (400, 404, 409, 413, 415), action=action)
    if action in {Action.RESOLVE, Action.RELEASE}:
        made["responses"]["202"] = _json("Proposed")
    return {**made, "requestBody": _body(body)}


def _many(name: str, summary: str) -> Json:
    made = _operation(name, "records", summary, _json("Requeued"), (400, 413, 415), [*_narrowed(), _limit()], action=Action.REQUEUE)
    return {**made, "requestBody": _body("Reasons")}


def _body(schema: str) -> Json:
    return {"required": True, "content": {"application/json": {"schema": {"$ref": _ref(schema)}}}}


def _open(name: str, summary: str, responses: Json) -> Json:
    return {"operationId": name, "tags": ["process"], "summary": summary, "security": [], "responses": responses}


def _ref(schema: str) -> str:
    return f"#/components/schemas/{schema}"


def _json(schema: str) -> Json:
    return {
        "description": "Done." if schema == "Changed" else "Found.",
        "content": {"application/json": {"schema": {"$ref": _ref(schema)}}},
    }


def _problem(status: int, text: str) -> Json:
    made: Json = {"description": text, "content": {"application/problem+json": {"schema": {"$ref": _ref("Problem")}}}}
    if status == 401:
        made["headers"] = {"WWW-Authenticate": {"required": True, "schema": {"type": "string"}}}
    return made


def _query(name: str, schema: Json, description: str = "", *, required: bool = False) -> Json:
    told: Json = {"description": description} if description else {}
    return {"name": name, "in": "query", "required": required, **told, "schema": schema}


def _record_id() -> Json:
    schema = {"type": "string", "minLength": 5, "pattern": "^rec_[A-Za-z0-9_-]+$"}
    return {"name": "id", "in": "path", "required": True, "description": "The `id` or `short_id` of a listed record.", "schema": schema}


def _selection(*, state: bool) -> "list[Json]":
    states = [_query("state", {"type": "string", "enum": list(STATES)})] if state else []
    text = {"type": "string", "minLength": 1, "pattern": r"^[^\x00]+$"}
    return [
        *states,
        _query("route", text, "A route's id."),
        _query("scope", text, "A scope's name."),
        _query("key", text, "The client's key, exactly."),
        _query("scope_id", text, "One caller's scope, as log lines and records have it."),
        _query("request_id", text, "The request id of the last attempt: `X-Request-Id` at the upstream."),
        _query("trace_id", {"type": "string", "pattern": "^[0-9a-f]{32}$"}, "The trace in which the gateway has made the request's id."),
        _query("key_digest", {"type": "string", "pattern": "^[0-9a-f]{16}$"}, "The key as log lines have it. Quick with `scope_id`."),
        _query("since", _INSTANT, "Records that were made at this instant or later."),
        _query("until", _INSTANT, "Records that were made before this instant."),
    ]


def _narrowed() -> "list[Json]":
    return [one for one in _selection(state=False) if one["name"] in {"route", "scope", "scope_id", "since", "until"}]


def _paging() -> "list[Json]":
    cursor = {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"}
    return [_limit(), _query("cursor", cursor, "`cursor` of the page before, of the same selection.")]


def _limit() -> Json:
    return _query("limit", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": PAGE})


def _grounds(*, required: bool) -> "list[Json]":
    return [_query("reason", REASON, "Why.", required=required), _query("actor", ACTOR, "Who, or for whom.")]
