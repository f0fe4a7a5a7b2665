"""The parts of an OpenAPI description that state the contract of one route: parameter, responses, headers, `x-idempotency`.

They are written so that OpenAPI 3.0 and 3.1 read them alike, and without references: what they add needs no place elsewhere.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeAlias, assert_never

from gateway.core.decision import RETRY_AFTER_MAX
from gateway.core.dialect_model import Replay, Situation, Template
from gateway.core.key_policy import BodyKey, FormKey, HeaderKey, KeyMode, KeyPolicy, QueryKey
from gateway.core.model import Status
from gateway.core.policy import OnExpired, OnStoreOutage, Policy
from gateway.core.problems import Problem, Retry
from gateway.core.quota import LIMIT_FIELD, POLICY_FIELD, Quota
from gateway.core.status_headers import DUPLICATE, Mark
from gateway.core.units import format_rate

Json: TypeAlias = Any
"""What JSON can hold: dict with str keys, list, str, bool, int, float, None."""

_TEXTS = {
    Situation.MISSING: Problem.KEY_MISSING,
    Situation.INVALID: Problem.KEY_INVALID,
    Situation.IN_FLIGHT: Problem.REQUEST_IN_PROGRESS,
    Situation.UNKNOWN: Problem.OUTCOME_UNKNOWN,
    Situation.NOT_STORED: Problem.RESPONSE_NOT_STORED,
    Situation.EXPIRED: Problem.KEY_EXPIRED,
    Situation.MISMATCH: Problem.KEY_REUSED,
    Situation.STORE_UNAVAILABLE: Problem.STORE_UNAVAILABLE,
}
_COMES_BACK = frozenset({Situation.IN_FLIGHT, Situation.UNKNOWN, Situation.STORE_UNAVAILABLE})
"""What is answered with a `Retry-After`."""

_STORED = frozenset({Problem.ABANDONED, Problem.CANCELLED})
"""What a record is completed with: such a document is about no one request."""

_DECIDED = frozenset(Situation) - {Situation.MISSING, Situation.INVALID, Situation.STORE_UNAVAILABLE}
"""What `gateway.core.status_headers.mark` has a word for."""


def _header(description: str, **schema: Json) -> dict[str, Json]:
    return {"description": description, "schema": {"type": "string", **schema}}


_REPLAY_FIELDS = {
    "Idempotent-Replayed": _header("This answer is the stored one of an earlier request; nothing was executed.", enum=["true"]),
    "Original-Request": _header("The id of the request that this answer was first given to."),
}
_STATUS_FIELDS = {
    "Idempotency-Status": _header("What the key did for this request.", enum=[value.value for value in Mark]),
    "Idempotency-Expires": _header("When the key is forgotten, as an HTTP-date. A later request with it is a new operation."),
}
_RETRY = _header("What a program may do about this refusal.", enum=[value.value for value in Retry])
_DUPLICATE = _header("An equal request came under another key shortly before: use one key for all attempts.", enum=["true"])
_RETRY_AFTER = {
    "description": "After how many seconds to try again.",
    "schema": {"type": "integer", "minimum": 1, "maximum": RETRY_AFTER_MAX},
}

_QUOTA_FIELDS = {
    "Retry-After": _RETRY_AFTER,
    LIMIT_FIELD.decode(): _header("The quota that is used up, and for how many seconds."),
    POLICY_FIELD.decode(): _header("The caller's quotas (draft-ietf-httpapi-ratelimit-headers-10)."),
}


def parameter(key: KeyPolicy) -> dict[str, Json] | None:
    """The Parameter Object of the key; None for a key in the body, which the API's own schema holds."""
    others: tuple[str, ...] = ()
    match key.place:
        case HeaderKey(name, others):
            where = "header"
        case QueryKey(name):
            where = "query"
        case BodyKey() | FormKey():
            return None
        case _:
            assert_never(key.place)
    elsewhere = f"May also be sent as {' or '.join(others)}. " if others else ""
    quoted = where == "header" and key.mode is KeyMode.STRICT
    extra = 2 if quoted else 0
    schema: dict[str, Json] = {"type": "string", "minLength": key.min_length + extra, "maxLength": key.max_length + extra}
    if key.pattern is not None and not key.fold_case and _portable(key.pattern):
        schema["pattern"] = f'^"(?:{key.pattern})"$' if quoted else f"^(?:{key.pattern})$"
    needed = "Required. " if key.required else "Without it nothing protects the request from being executed twice. "
    form = "A quoted string (RFC 9651). " if quoted else ""
    text = f"{needed}{form}Names one operation: a fresh random value, such as a UUID, for each new one; the same again for every retry."
    required = key.required and not others
    return {"name": name, "in": where, "required": required, "description": elsewhere + text, "schema": schema}


def _portable(pattern: str) -> bool:
    """Whether ECMA-262, in which OpenAPI's patterns are written, reads this regular expression as Python does, as far as can be told."""
    return not re.search(r"\(\?(?![:=!]|<[=!])|\\[AZaz]|[*+?}]\+", pattern)


def upstream_headers(policy: Policy) -> dict[str, Json]:
    """The fields that the gateway may add to an answer of the API, be it the first or a replay."""
    headers: dict[str, Json] = {}
    if policy.dialect.replay_headers is not None:
        headers |= _named(policy.dialect.replay_headers)
    elif policy.dialect.replay is Replay.VERBATIM:
        headers |= _REPLAY_FIELDS
    headers |= _named(policy.dialect.first_headers)
    if policy.mark_duplicates and policy.duplicates:
        headers[DUPLICATE.decode()] = _DUPLICATE
    return headers | _STATUS_FIELDS if policy.status_fields else headers


def _named(fields: tuple[tuple[str, str], ...]) -> dict[str, Json]:
    """Fields of a dialect. One without placeholders always has the same value."""
    return {
        name: {"schema": {"type": "string"} if "{" in value else {"type": "string", "enum": [value]}}
        for name, value in fields
        if name.lower() != "content-type"
    }


def responses(policy: Policy, problem_base: str, described: frozenset[str]) -> dict[str, Json]:
    """The gateway's own answers, by status. Those of `described` statuses get no description: the API has one of its own there."""
    result: dict[str, dict[str, Json]] = {}
    problems: dict[str, list[Problem]] = {}
    for situation in _situations(policy):
        template = policy.dialect.answers.get(situation)
        if template is not None:
            _add(result, template.status, situation, policy, f"{_meaning(situation)}.", template)
        elif situation in _TEXTS:
            kind = _TEXTS[situation].value
            _add(result, kind.status, situation, policy, f"{kind.title} (`{kind.slug}`). {kind.detail}")
            problems.setdefault(str(kind.status), []).append(_TEXTS[situation])
    if policy.principal:
        kind = Problem.PRINCIPAL_MISSING.value
        _add(result, kind.status, None, policy, f"{kind.title} (`{kind.slug}`). {kind.detail}")
        problems.setdefault(str(kind.status), []).append(Problem.PRINCIPAL_MISSING)
    for problem in (Problem.ABANDONED, Problem.CANCELLED, Problem.TOO_MANY_PENDING) if policy.accepts else ():
        kind = problem.value
        _add(result, kind.status, None, policy, f"{kind.title} (`{kind.slug}`). {kind.detail}")
        problems.setdefault(str(kind.status), []).append(problem)
    if policy.accepts:
        result[str(Problem.TOO_MANY_PENDING.value.status)].setdefault("headers", {})["Retry-After"] = _RETRY_AFTER
    if policy.quota is not None:
        kind = Problem.QUOTA_EXCEEDED.value
        _add(result, kind.status, None, policy, f"{kind.title} (`{kind.slug}`). {kind.detail}")
        problems.setdefault(str(kind.status), []).append(Problem.QUOTA_EXCEEDED)
        result[str(kind.status)].setdefault("headers", {}).update(_QUOTA_FIELDS)
    if policy.has_status:
        result["202"] = _accepted()
    for status, kinds in problems.items():
        result[status].setdefault("content", {})["application/problem+json"] = {"schema": _problem_schema(kinds, problem_base)}
    for status in described & result.keys():
        del result[status]["description"]
    return dict(sorted(result.items()))


def _accepted() -> dict[str, Json]:
    """The answer to a request that is run later, or is being run."""
    text = "The operation is accepted, or under way: look for its end at `Location`, or repeat the request with the same key."
    headers = {
        "Location": _header("Where the operation can be looked at.", format="uri-reference"),
        "Link": _header("The same place, as `rel=monitor`."),
        "Retry-After": _RETRY_AFTER,
    }
    document: Json = {
        "type": "object",
        "required": ["status", "operation"],
        "properties": {
            "status": {"type": "string", "enum": [Status.PENDING.value, Status.IN_PROGRESS.value]},
            "operation": {"type": "string", "format": "uri-reference"},
        },
    }
    return {"description": text, "headers": headers, "content": {"application/json": {"schema": document}}}


def _situations(policy: Policy) -> list[Situation]:
    """What this route can answer itself."""
    possible = {
        Situation.MISSING: policy.key.required,
        Situation.INVALID: True,
        Situation.IN_FLIGHT: True,
        Situation.UNKNOWN: True,
        Situation.NOT_STORED: True,
        Situation.REPLAYED: policy.dialect.replay is Replay.CONFLICT,
        Situation.EXPIRED: policy.on_expired is OnExpired.GONE,
        Situation.MISMATCH: True,
        Situation.STORE_UNAVAILABLE: policy.on_store_outage is OnStoreOutage.REJECT,
    }
    return [situation for situation, may in possible.items() if may]


def _meaning(situation: Situation) -> str:
    return "The operation was already executed" if situation is Situation.REPLAYED else _TEXTS[situation].value.title


def _add(
    result: dict[str, dict[str, Json]],
    status: int,
    situation: Situation | None,
    policy: Policy,
    text: str,
    template: Template | None = None,
) -> None:
    """Add one answer to the response of its status; several answers may share it."""
    response = result.setdefault(str(status), {})
    response["description"] = f"{response['description']}\n\n{text}" if "description" in response else text
    headers: dict[str, Json] = dict(_STATUS_FIELDS) if policy.status_fields and situation in _DECIDED else {}
    if policy.status_fields and situation is not Situation.REPLAYED:
        headers["Idempotency-Retry"] = _RETRY
    if situation in _COMES_BACK and (template is None or _names_retry_after(template)):
        headers["Retry-After"] = _RETRY_AFTER
    if template is not None:
        headers = _named(template.headers) | headers
        if template.body:
            response.setdefault("content", {})[_media_type(template)] = {"schema": {}}
    if headers:
        response.setdefault("headers", {}).update(headers)


def _names_retry_after(template: Template) -> bool:
    return any(name.lower() == "retry-after" for name, _ in template.headers)


def _media_type(template: Template) -> str:
    named: Mapping[str, str] = {name.lower(): value for name, value in template.headers}
    return named.get("content-type", "application/json").partition(";")[0].strip()


def _problem_schema(kinds: list[Problem], problem_base: str) -> dict[str, Json]:
    """The documents that `gateway.http.problem` writes for these meanings."""
    always = ["type", "title", "status", "detail", "instance", "retry"]
    if _STORED.intersection(kinds):
        always.remove("instance")
    retries = {retry for kind in kinds for retry in (kind.value.retry, kind.value.retry_later) if retry is not None}
    return {
        "type": "object",
        "required": always,
        "properties": {
            "type": {"type": "string", "format": "uri", "enum": [problem_base + kind.value.slug for kind in kinds]},
            "title": {"type": "string"},
            "status": {"type": "integer", "enum": sorted({kind.value.status for kind in kinds})},
            "detail": {"type": "string"},
            "instance": {"type": "string", "format": "uri"},
            "retry": {"type": "string", "enum": sorted(retries)},
        },
    }


def summary(policy: Policy) -> dict[str, Json]:
    """`x-idempotency`: the contract of an operation in one place, for people and generators. Durations are seconds."""
    key = policy.key
    place: dict[str, Json]
    match key.place:
        case HeaderKey(name, others):
            place = {"in": "header", "name": name} | ({"others": list(others)} if others else {})
        case QueryKey(name):
            place = {"in": "query", "name": name}
        case BodyKey(pointer):
            place = {"in": "body", "pointer": pointer}
        case FormKey(name):
            place = {"in": "form", "name": name}
        case _:
            assert_never(key.place)
    limits: dict[str, Json] = {"minLength": key.min_length, "maxLength": key.max_length, "caseSensitive": not key.fold_case}
    if key.pattern is not None:
        limits["pattern"] = key.pattern
    return {
        "key": {**place, "required": key.required, **limits},
        **({"execution": policy.execution.value} if policy.accepts else {}),
        **({"quota": _quota(policy.quota)} if policy.quota is not None else {}),
        "retention": int(policy.retention) if policy.retention == int(policy.retention) else policy.retention,
        "onExpired": policy.on_expired.value,
        "inFlight": policy.in_flight.value,
        "replay": policy.dialect.replay.value,
        "onStoreOutage": policy.on_store_outage.value,
    }


def _quota(quota: Quota) -> dict[str, Json]:
    keys = quota.new_keys
    new: dict[str, Json] = {} if keys is None else {"newKeys": {"rate": format_rate(keys.rate), "burst": keys.at_once}}
    return new if quota.in_flight is None else {**new, "inFlight": quota.in_flight}
