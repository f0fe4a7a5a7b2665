"""Every answer of our own making: its word, status and title. The last segment of each `type` URI is the word (RFC 9457 section 3.1.1).

`detail` texts help a client to go on; none holds a key, a header value or an upstream's address.
"""

import enum
from dataclasses import dataclass


class Retry(enum.StrEnum):
    """What a program may do about a refusal: the member `retry`, and the field `Idempotency-Retry`. A closed set, and part of the contract
    with clients.
    """

    SAME_KEY = "same-key"
    """Repeat the same request with the same key, after `Retry-After` where that is there."""

    FIX_REQUEST = "fix-request"
    """Nothing was executed: change the request."""

    NEW_KEY = "new-key"
    """This key is used up: a new operation needs a new one."""

    ASK_UPSTREAM = "ask-upstream"
    """The operation may have run: find out by other means."""

    NEVER = "never"
    """Repeating cannot help."""


@dataclass(frozen=True, slots=True)
class ProblemType:
    """One meaning. `status` is the usual status; some meanings have a more exact one in places.

    `retry` is what a program may do about it; `retry_later`, where the answer has a `Retry-After`, and `retry_safe`, after a method that is
    safe, if these are otherwise.
    """

    slug: str
    status: int
    retry: Retry
    title: str
    detail: str
    retry_later: Retry | None = None
    retry_safe: Retry | None = None


class Problem(enum.Enum):
    """The closed set of our own answers."""

    KEY_MISSING = ProblemType(
        "key-missing",
        400,
        Retry.FIX_REQUEST,
        "Idempotency key is missing",
        "This operation needs an idempotency key. Send a fresh UUID for each new operation.",
    )
    KEY_INVALID = ProblemType("key-invalid", 400, Retry.FIX_REQUEST, "Idempotency key is invalid", "The idempotency key cannot be used.")
    KEY_REUSED = ProblemType(
        "key-reused",
        422,
        Retry.NEW_KEY,
        "Idempotency key is already used",
        "This key was first used with a different request. Use a new key for a new operation; repeat the first request to get its answer.",
    )
    REQUEST_IN_PROGRESS = ProblemType(
        "request-in-progress",
        409,
        Retry.SAME_KEY,
        "A request is outstanding for this idempotency key",
        "The first request with this key has not finished. Repeat this request later to get its answer.",
    )
    RESPONSE_NOT_STORED = ProblemType(
        "response-not-stored",
        409,
        Retry.ASK_UPSTREAM,
        "The operation completed, but its response was not stored",
        "The operation ran once and completed; its response was not kept. It will not run again under this key.",
    )
    OUTCOME_UNKNOWN = ProblemType(
        "outcome-unknown",
        409,
        Retry.ASK_UPSTREAM,
        "The outcome of the operation is unknown",
        "The operation may have been executed, and is never executed again under this key. Ask the API itself before you use a new key.",
        retry_later=Retry.SAME_KEY,
    )
    KEY_EXPIRED = ProblemType(
        "key-expired",
        410,
        Retry.NEW_KEY,
        "Idempotency key has expired",
        "This key was used before and has expired. Use a new key for a new operation.",
    )
    ABANDONED = ProblemType(
        "abandoned",
        408,
        Retry.NEW_KEY,
        "The operation was given up before it was run",
        "The operation was accepted and could not be sent in time. Nothing was executed. Use a new key for a new try.",
    )
    CANCELLED = ProblemType(
        "cancelled",
        410,
        Retry.NEW_KEY,
        "The operation was cancelled before it was run",
        "The operation was accepted, and cancelled by its client. Nothing was executed. Use a new key for a new operation.",
    )
    TOO_MANY_PENDING = ProblemType(
        "too-many-pending",
        429,
        Retry.SAME_KEY,
        "Too many operations are waiting to be run",
        "Nothing was accepted or executed. Repeat this request later with the same key.",
    )
    QUOTA_EXCEEDED = ProblemType(
        "quota-exceeded",
        429,
        Retry.SAME_KEY,
        "The caller's quota is used up",
        "Nothing was executed, and the key is not used up. Repeat this request later with the same key.",
    )
    NO_OPERATION = ProblemType(
        "no-operation",
        404,
        Retry.FIX_REQUEST,
        "No such operation",
        "There is no operation of this name that this caller has asked for.",
    )
    NOT_COMPLETED = ProblemType(
        "not-completed",
        404,
        Retry.SAME_KEY,
        "The operation has not completed",
        "There is no response yet. Repeat this request later.",
    )
    NOT_PENDING = ProblemType(
        "not-pending",
        409,
        Retry.NEVER,
        "The operation is not waiting",
        "Only what was not sent yet can be cancelled. Nothing has changed.",
    )
    PRINCIPAL_MISSING = ProblemType(
        "principal-missing",
        401,
        Retry.FIX_REQUEST,
        "The caller could not be identified",
        "This operation needs credentials that identify the caller.",
    )
    STORE_UNAVAILABLE = ProblemType(
        "store-unavailable",
        503,
        Retry.SAME_KEY,
        "The idempotency record cannot be reached",
        "Nothing was executed, since nothing could be made sure of. Repeat this request later with the same key.",
    )
    UPSTREAM_UNREACHABLE = ProblemType(
        "upstream-unreachable",
        502,
        Retry.SAME_KEY,
        "The upstream could not be reached",
        "Nothing was sent to the upstream. It is safe to repeat this request with the same key.",
    )
    TARGET_REFUSED = ProblemType(
        "target-refused",
        400,
        Retry.FIX_REQUEST,
        "The request target is ambiguous",
        "Send the path as documented: no dot segments, doubled or trailing slashes, needless escapes or other letter case.",
    )
    TOO_EARLY = ProblemType(
        "too-early",
        425,
        Retry.SAME_KEY,
        "The request came in early data",
        "Early data can be replayed by anybody who has seen it. Send an idempotency key, or this request after the handshake.",
    )
    PRINCIPAL_UNAVAILABLE = ProblemType(
        "principal-unavailable",
        503,
        Retry.SAME_KEY,
        "The caller cannot be identified now",
        "What tells callers apart cannot be reached. Nothing was executed. Repeat this request later with the same key.",
    )
    BODY_TOO_LARGE = ProblemType(
        "body-too-large", 413, Retry.FIX_REQUEST, "The request body is too large", "The request body is larger than this operation takes."
    )
    NO_ROUTE = ProblemType("no-route", 404, Retry.FIX_REQUEST, "No such route", "No route takes this method and path.")
    METHOD_REFUSED = ProblemType("method-refused", 405, Retry.FIX_REQUEST, "The method is not supported", "This proxy opens no tunnels.")
    HEADER_TOO_LARGE = ProblemType(
        "header-too-large",
        431,
        Retry.FIX_REQUEST,
        "The request head is too large",
        "The request line and the fields are longer or more than are taken.",
    )
    BAD_REQUEST = ProblemType("bad-request", 400, Retry.FIX_REQUEST, "The request is malformed", "The request is not well-formed HTTP.")
    CODING_UNSUPPORTED = ProblemType(
        "coding-unsupported",
        501,
        Retry.FIX_REQUEST,
        "The transfer coding is not supported",
        "Send the body under a Content-Length, or chunked.",
    )
    VERSION_UNSUPPORTED = ProblemType(
        "version-unsupported", 505, Retry.FIX_REQUEST, "The HTTP version is not supported", "Use HTTP/1.1 or HTTP/1.0."
    )
    EXPECTATION_FAILED = ProblemType(
        "expectation-failed",
        417,
        Retry.FIX_REQUEST,
        "The expectation cannot be met",
        "The only expectation that can be met is 100-continue.",
    )
    REQUEST_TIMEOUT = ProblemType(
        "request-timeout",
        408,
        Retry.SAME_KEY,
        "The request took too long to arrive",
        "Nothing was executed. Repeat this request with the same key.",
    )
    PROXY_LOOP = ProblemType(
        "proxy-loop",
        502,
        Retry.NEVER,
        "The request came back to where it was",
        "This gateway has forwarded this request before. Gateways that are chained on purpose need different names (`name`).",
    )
    TOO_MANY_CONNECTIONS = ProblemType(
        "too-many-connections",
        503,
        Retry.SAME_KEY,
        "There are too many connections",
        "Nothing was executed. Repeat this request later with the same key.",
    )
    OVERLOADED = ProblemType(
        "overloaded", 503, Retry.SAME_KEY, "The gateway is overloaded", "Nothing was executed. Repeat this request later with the same key."
    )
    SHUTTING_DOWN = ProblemType(
        "shutting-down", 503, Retry.SAME_KEY, "The gateway is shutting down", "Nothing was executed. Repeat this request with the same key."
    )
    ATTEMPT_SUPERSEDED = ProblemType(
        "attempt-superseded",
        409,
        Retry.NEVER,
        "The attempt owns its record no more",
        "The attempt has ended, or another one has taken over. Stop, and roll back what is not committed.",
    )
    UPSTREAM_FAILED = ProblemType(
        "upstream-failed",
        502,
        Retry.ASK_UPSTREAM,
        "The upstream failed",
        "The upstream did not send a complete answer. Whether it acted on the request is not known.",
        retry_safe=Retry.SAME_KEY,
    )
    INTERNAL_ERROR = ProblemType(
        "internal-error",
        500,
        Retry.ASK_UPSTREAM,
        "The gateway failed",
        "The gateway failed on this request. If it carried an idempotency key, repeat it with the same key.",
        retry_safe=Retry.SAME_KEY,
    )


SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that ask for nothing to be done (RFC 9110 section 9.2.1)."""


def retry_of(problem: Problem, *, retry_after: int | None = None, method: str = "") -> Retry:
    """What a program may do about this refusal of a request with this method; an unknown one is not safe."""
    kind = problem.value
    if retry_after is not None and kind.retry_later is not None:
        return kind.retry_later
    return kind.retry_safe if kind.retry_safe is not None and method in SAFE_METHODS else kind.retry
