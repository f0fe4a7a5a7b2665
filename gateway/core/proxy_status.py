"""What went wrong on the way, in the words of RFC 9209: members of the `Proxy-Status` field, and the registered error
type of each of ours.

A reason of `gateway.core.failures` is more exact than the problem it is answered with (`PROBLEMS`): `error_of` uses the
first where there is one. A replay has no error.
"""

import re
from collections.abc import Mapping

from gateway.core.failures import FAILURES
from gateway.core.problems import Problem

_TOKEN = re.compile(r"[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")

PROBLEMS: Mapping[Problem, str] = {
    Problem.KEY_MISSING: "http_request_error",
    Problem.TOO_EARLY: "http_request_error",
    Problem.KEY_INVALID: "http_request_error",
    Problem.KEY_REUSED: "proxy_internal_response",
    Problem.REQUEST_IN_PROGRESS: "proxy_internal_response",
    Problem.RESPONSE_NOT_STORED: "proxy_internal_response",
    Problem.OUTCOME_UNKNOWN: "proxy_internal_response",
    Problem.KEY_EXPIRED: "proxy_internal_response",
    Problem.ABANDONED: "proxy_internal_response",
    Problem.CANCELLED: "proxy_internal_response",
    Problem.TOO_MANY_PENDING: "proxy_internal_response",
    Problem.QUOTA_EXCEEDED: "proxy_internal_response",
    Problem.NO_OPERATION: "http_request_error",
    Problem.NOT_COMPLETED: "http_request_error",
    Problem.NOT_PENDING: "http_request_error",
    Problem.PRINCIPAL_MISSING: "http_request_error",
    Problem.STORE_UNAVAILABLE: "proxy_internal_error",
    Problem.PRINCIPAL_UNAVAILABLE: "proxy_internal_error",
    Problem.UPSTREAM_UNREACHABLE: "destination_unavailable",
    Problem.TARGET_REFUSED: "http_request_error",
    Problem.BODY_TOO_LARGE: "http_request_error",
    Problem.NO_ROUTE: "destination_not_found",
    Problem.METHOD_REFUSED: "http_request_error",
    Problem.HEADER_TOO_LARGE: "http_request_error",
    Problem.BAD_REQUEST: "http_request_error",
    Problem.CODING_UNSUPPORTED: "proxy_internal_response",
    Problem.VERSION_UNSUPPORTED: "proxy_internal_response",
    Problem.EXPECTATION_FAILED: "http_request_error",
    Problem.REQUEST_TIMEOUT: "http_request_error",
    Problem.PROXY_LOOP: "proxy_loop_detected",
    Problem.TOO_MANY_CONNECTIONS: "proxy_internal_response",
    Problem.OVERLOADED: "proxy_internal_response",
    Problem.SHUTTING_DOWN: "proxy_internal_response",
    Problem.ATTEMPT_SUPERSEDED: "http_request_error",
    Problem.UPSTREAM_FAILED: "http_response_incomplete",
    Problem.INTERNAL_ERROR: "proxy_internal_error",
}
"""`http_request_error` is for 4xx that judge the request alone, `proxy_internal_response` for all that was answered out
of what we know.
"""


def error_of(problem: Problem, cause: str | None) -> str:
    """The error type of an answer of ours with this problem. `cause` is the word of a reason, where the upstream is
    behind it.
    """
    return PROBLEMS[problem] if cause is None else FAILURES[cause].error


def proxy_status(name: str, *, error: str | None = None, received_status: int | None = None, details: str | None = None) -> bytes:
    """One member of the field's List (RFC 9209 section 2; RFC 9651 section 4.1), to go after those of hops nearer to
    the origin.

    `error` is one of the values above. `received_status` is the status that the upstream answered with, if it did.
    `details` is for people and goes to clients: no upstream's address in it. Characters that a String cannot hold
    become `?`.
    """
    member = name if _TOKEN.fullmatch(name) else _string(name)
    if error is not None:
        member += f";error={error}"
    if received_status is not None:
        member += f";received-status={received_status:d}"
    if details is not None:
        member += f";details={_string(details)}"
    return member.encode("ascii")


def _string(text: str) -> str:
    printable = _UNPRINTABLE.sub("?", text)
    return '"' + printable.replace("\\", "\\\\").replace('"', '\\"') + '"'
