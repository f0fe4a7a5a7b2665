"""Every answer of the gateway's own (`gateway.core.problems`). What the type alone cannot tell stands in `_NOTES`."""

from collections.abc import Mapping

from gateway.core.problems import Problem, ProblemType, Retry
from scripts.website.references.markdown import code, prose, table
from scripts.website.references.markdown import page as whole

_INTRODUCTION = """
Answers that the gateway makes itself are `application/problem+json` (RFC 9457), unless the route's dialect has another
form. The last segment of `type` is the word in the first column; `problem_base` sets what stands before it. The gateway
never stores them (but for `abandoned` and `cancelled`, the end of accepted work), and none of them uses a key up. The
member `retry` tells a program what to do, whatever the type; [clients.md](../clients.md) shows it in use.
"""
_MEMBERS = """
Members of every document: `type`, `title`, `status`, `detail`, `instance` (the request id), `retry`; others stand in
the table. Every answer, these and all others, carries `X-Request-Id`.
"""
_RETRY: Mapping[Retry, str] = {
    Retry.SAME_KEY: "repeat the same request with the same key, after `Retry-After` where there is one",
    Retry.FIX_REQUEST: "nothing was executed: change the request",
    Retry.NEW_KEY: "this key is used up: a new operation needs a new key",
    Retry.ASK_UPSTREAM: "the operation may have run: find out by other means, and never send it again under a new key unchecked",
    Retry.NEVER: "repeating cannot help",
}
_NOTES: Mapping[Problem, str] = {
    Problem.REQUEST_IN_PROGRESS: "With `Retry-After: 1`. Under `in_flight: wait` the retry is first held for up to `wait` (10 s), and gets "
    "the first one's answer if that comes; under `in_flight: accepted` it gets 202 instead ([accepted.md](../accepted.md)).",
    Problem.OUTCOME_UNKNOWN: "Also 502 and 504, to the request whose attempt ended so. `upstream_status`, where it is there, is the status "
    "that a repetition got.",
    Problem.RESPONSE_NOT_STORED: "It was too large, the upstream said so, or it was erased. `original_status` is its status.",
    Problem.KEY_EXPIRED: "On routes with `on_expired: gone`.",
    Problem.UPSTREAM_UNREACHABLE: "Also 503 and 504. The member `reason` says why.",
    Problem.UPSTREAM_FAILED: "Also 504. On unguarded routes.",
    Problem.REQUEST_TIMEOUT: "On an unguarded route the upstream may have begun: then `ask-upstream`.",
    Problem.TARGET_REFUSED: "A spelling of a guarded path that is not its normal form, or an override: [forwarding.md](../forwarding.md).",
    Problem.HEADER_TOO_LARGE: "Over `client.max_header_size`, or more fields than `client.max_headers`.",
    Problem.BODY_TOO_LARGE: "Over the route's `limits.request_body`.",
    Problem.TOO_EARLY: "TLS early data without a key, on a guarded route.",
    Problem.ABANDONED: "Accepted work: [accepted.md](../accepted.md).",
    Problem.CANCELLED: "Accepted work.",
    Problem.TOO_MANY_PENDING: "Accepted work.",
    Problem.QUOTA_EXCEEDED: "`violated-policies` names the limit.",
    Problem.NO_OPERATION: "At a status resource.",
    Problem.NOT_COMPLETED: "At a status resource.",
    Problem.NOT_PENDING: "At a status resource.",
    Problem.ATTEMPT_SUPERSEDED: "To an upstream that takes part: [participation.md](../participation.md).",
    Problem.PROXY_LOOP: "Mend the route map, or give chained gateways different names.",
}


def page() -> str:
    """The page."""
    rows = ((code(each.value.slug), str(each.value.status), _retry(each.value), _text(each)) for each in Problem)
    return whole(
        "Answers of the gateway's own",
        prose(_INTRODUCTION),
        table(("`retry`", "what a program does"), ((code(word.value), text) for word, text in _RETRY.items())),
        prose(_MEMBERS),
        table(("type", "status", "`retry`", "means"), rows),
    )


def _text(problem: Problem) -> str:
    kind = problem.value
    return " ".join(filter(None, (f"{kind.title}.", kind.detail, _NOTES.get(problem, ""))))


def _retry(kind: ProblemType) -> str:
    also = [
        f"{code(word.value)} {when}"
        for word, when in ((kind.retry_later, "with `Retry-After`"), (kind.retry_safe, "after a safe method"))
        if word
    ]
    return "; ".join([code(kind.retry.value), *also])
