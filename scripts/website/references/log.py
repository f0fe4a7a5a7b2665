"""What the log says: the fields of access lines, as the program writes them, and its messages, as the source has them."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import orjson

import gateway
from gateway.core.decision import Label
from gateway.core.headers import Fields
from gateway.core.scope import Scope
from gateway.observe.accesslog import access_line, attempt_line, webhook_line
from gateway.ports import FinishedAttempt, FinishedRequest, WebhookExchange
from scripts.website.references.markdown import code, prose, table
from scripts.website.references.markdown import page as whole

_INTRODUCTION = """
The log is JSON, one object a line: access lines on stdout (`access_log`), one for each request, each event of a
webhook, and each attempt of accepted work that no client waited for; messages on stderr. No line holds a key, a
credential or a body. [observability.md](../observability.md) says how lines, records and traces are joined.
"""
_FIELDS: Mapping[str, str] = {
    "ts": "when the line was written, UTC",
    "level": "`info`",
    "msg": "`request`, `webhook`, or `attempt`: accepted work that ran after its 202",
    "request_id": "`X-Request-Id` of the answer, and of the request at the upstream. Of an event: that of the attempt that it is about. "
    "Of an attempt: that of the request that was accepted",
    "route": "the id of the route that took it; `unmatched` if none did",
    "mode": "`enforce`, `observe`, or `off` where nothing guards",
    "decision": "what became of the request (below)",
    "method": "of the request",
    "status": "of the answer to the client; where it left before, the one that it would have got",
    "settlement": "what the attempt came to: `complete`, `release`, `doubt`; null if none ran, or while the gateway still settles it",
    "reason": "why it came to that",
    "key": "the key's digest under `digest_secret`, the same in all processes: `key_digest` of records",
    "attempt": "the number of the attempt that ran, or that a 202 has promised; null in a 202 that met an operation under way",
    "waited_ms": "from the acceptance to the moment at which a process took the work",
    "duration_ms": "from the head of the request to the end of its answer; of an attempt, from the moment at which it was taken",
    "store_ms": "of that, in Postgres, Redis and memory",
    "upstream_ms": "of that, the exchange with the upstream; null if there was none",
    "upstream_status": "of the upstream's answer",
    "request_bytes": "of the body",
    "response_bytes": "of the body",
    "client_gone": "whether the client had left before its answer",
    "client": "the nearest address that is no trusted proxy",
    "path_pattern": "the path that the route takes, as the route map has it",
    "scope_id": "the caller: the scope's name, and a digest of the principal",
    "trace_id": "of `traceparent`, the client's or one that began here (`tracing`)",
    "record_id": "`record_id` of the record",
    "original_request_id": "of a request that met a record: the request id that the record had",
    "user_agent": "what the client calls itself; only with `access_log_user_agent: true`",
    "result": "what became of the event: [label `result`](metrics.md#the-labels)",
}
_DECISIONS: Mapping[Label, str] = {
    Label.EXECUTE: "a first attempt ran, or a new one after expiry",
    Label.EXECUTE_RETRY: "an attempt ran after one that had not executed",
    Label.REEXECUTE: "an attempt ran after one in doubt (`on_unknown: reexecute` or `resume`)",
    Label.REPLAY: "the stored answer",
    Label.REPLAY_WITHOUT_BODY: "it completed, and no answer is kept: 409 `response-not-stored`",
    Label.IN_PROGRESS: "the first request still runs: 409",
    Label.ACCEPTED: "202, and a place to look at",
    Label.KEY_MISUSE: "the key of another operation: 422",
    Label.UNKNOWN: "the outcome is in doubt: 409",
    Label.GONE: "the key has expired: 410",
    Label.KEY_MISSING: "no key where one is required: 400",
    Label.KEY_INVALID: "an unusable key: 400",
    Label.PRINCIPAL_MISSING: "the caller did not say who it is: 401",
    Label.PRINCIPAL_UNAVAILABLE: "the gateway could not find out who the caller is: 503",
    Label.TOO_MANY_PENDING: "too much accepted work waits: 429",
    Label.QUOTA_EXCEEDED: "the caller has begun as much as its quota allows: 429",
    Label.STATUS: "a request at a status resource",
    Label.BODY_TOO_LARGE: "413",
    Label.REFUSED_TARGET: "an ambiguous target: 400",
    Label.REFUSED_REQUEST: "refused before it was looked at: framing, size, time, loops",
    Label.OVERLOADED: "the process holds as much as it may: 503",
    Label.ABORTED: "the client left, or the gateway failed, before there was a decision",
    Label.STORE_UNAVAILABLE: "the record cannot be reached: 503",
    Label.UNPROTECTED: "forwarded without a record: `on_store_outage: forward`, or a key with a method that the guard does not list",
    Label.BYPASS: "nothing guards it: an unguarded route, or no key where none is required",
}
_MESSAGES = """
Messages have `ts`, `level`, `logger` and `msg`, and the fields that the table names; one about an error also has `error`
and `stack`, without any text that could hold data of a request. `…` stands for what differs. These are the warnings and
errors; what is merely told (`info`) is left out.
"""
_LEVELS = frozenset({"warning", "error", "exception", "critical"})


def page() -> str:
    """The page."""
    lines = {"request": _request(), "attempt": _attempt(), "webhook": _event()}
    names = dict.fromkeys(name for line in lines.values() for name in line)
    where = {name: _where([kind for kind, line in lines.items() if name in line], len(lines)) for name in names}
    examples = {name: code(orjson.dumps(next(line[name] for line in lines.values() if name in line)).decode()) for name in names}
    return whole(
        "The log",
        prose(_INTRODUCTION),
        "## Access lines",
        table(("field", "in lines of", "is", "as in"), ((code(name), where[name], _FIELDS[name], examples[name]) for name in names)),
        "## Decisions",
        table(("`decision`", "means"), ((code(label.value), _DECISIONS[label]) for label in Label)),
        "## Messages",
        prose(_MESSAGES),
        table(("level", "message", "fields"), sorted(set(_messages()))),
    )


def _where(kinds: list[str], of: int) -> str:
    return "all" if len(kinds) == of else ", ".join(map(code, kinds))


def _attempt() -> dict[str, object]:
    attempt = FinishedAttempt(
        request_id="83977ff417d37b56bc287e56c4918c6b",
        route="create-charge",
        decision=Label.EXECUTE,
        method="POST",
        record_id=UUID("0a6f3a3e-9f0b-4c0e-8a46-4b1c6b3a1b11"),
        scope_id="create-charge:header.rn4Hlcce9Os_5GhUzcTOylSE0nlKTnVpVYS0uOmZL0M",
        key_digest="00112233445566aa",
        attempt=1,
        settlement="complete",
        reason="responded",
        waited=0.75,
        total_seconds=0.0452,
        started=0.0,
        upstream_started=0.0,
        upstream_seconds=0.0408,
        upstream_status=201,
        traceparent=b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    )
    line: dict[str, object] = orjson.loads(attempt_line(attempt, "/v1/charges"))
    return line


def _request() -> dict[str, object]:
    facts: dict[str, object] = {
        "request_id": "83977ff417d37b56bc287e56c4918c6b",
        "route": "create-charge",
        "mode": "enforce",
        "decision": Label.EXECUTE,
        "method": "POST",
        "status": 201,
        "total_seconds": 0.0452,
        "store_seconds": 0.0031,
        "upstream_seconds": 0.0408,
        "upstream_status": 201,
        "settlement": "complete",
        "reason": "responded",
        "key_digest": "00112233445566aa",
        "attempt": 1,
        "request_bytes": 14,
        "response_bytes": 96,
        "client_gone": False,
        "client_address": "203.0.113.7",
        "fields": Fields(((b"user-agent", b"shop/1.4"),)),
        "scope": Scope("create-charge:header.rn4Hlcce9Os_5GhUzcTOylSE0nlKTnVpVYS0uOmZL0M"),
        "original": None,
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    }
    line: dict[str, object] = orjson.loads(access_line(cast("FinishedRequest", SimpleNamespace(**facts)), "/v1/charges", user_agent=True))
    return {**line, "ts": "2026-11-28T04:21:59.120Z"}


def _event() -> dict[str, object]:
    event: dict[str, object] = orjson.loads(
        webhook_line(WebhookExchange("create-charge", "applied", "POST", 200, 0.004, 412, "203.0.113.9"))
    )
    return event


def _messages() -> Iterator[tuple[str, str, str]]:
    """Each message of the source that is a text of its own: level, text, and the names of its fields."""
    for file in sorted(Path(gateway.__file__).parent.rglob("*.py")):
        for call in ast.walk(ast.parse(file.read_text("utf-8"))):
            match call:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="_log"), attr=level), args=[ast.Constant(value=str(text)), *_]) if (
                    level in _LEVELS
                ):
                    yield "error" if level == "exception" else level, _plain(text), ", ".join(map(code, _extra(call)))
                case _:
                    pass


def _plain(text: str) -> str:
    for mark in ("%s", "%d", "%r", "%.0f", "%.1f", "%.3f"):
        text = text.replace(mark, "…")
    return text


def _extra(call: ast.Call) -> list[str]:
    """The fields that a message is told to have, where the call spells them out."""
    given = next((word.value for word in call.keywords if word.arg == "extra"), None)
    return [str(key.value) for key in given.keys if isinstance(key, ast.Constant)] if isinstance(given, ast.Dict) else []
