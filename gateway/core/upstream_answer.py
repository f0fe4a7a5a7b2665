"""What of an upstream's answer is for the client, and what its own signals say of keeping it. Pure."""

import hashlib
from collections.abc import Callable, Set
from dataclasses import dataclass
from http import HTTPStatus

from gateway.core.headers import Crossed, cross
from gateway.core.hints import RETENTION, HintedOutcome, removed, retention_of, signal_of
from gateway.core.model import Earlier, Headers, StoredResponse
from gateway.core.policy import Policy
from gateway.core.reconcile.found import Built, Found, Names, build, document_of
from gateway.core.reconcile.policy import AnswerPlan


def answer_fields(method: str, status: int, headers: Headers, removed: Set[bytes], date: bytes, added: Headers = ()) -> Crossed:
    """The fields of an answer as the client gets them and as its record keeps them: end-to-end ones, without those in `removed`, with
    those that are `added`, and with a Date (RFC 9110 section 6.6.1), `date` if the upstream sent none.

    An answer to HEAD and a 304 keep their `Content-Length`, which says what a GET would have got (section 8.6).
    """
    bodiless = status == 304 or (method == "HEAD" and status != 204)
    return cross(headers, date, bodiless=bodiless, removed=removed, added=added)


def removed_fields(policy: Policy) -> frozenset[bytes]:
    """The lower-case names of an answer's fields that are between the upstream and the gateway."""
    return removed(policy.hints) | ({RETENTION} if policy.trust_retention else frozenset())


def kept_for(headers: Headers, policy: Policy) -> float | None:
    """Seconds by the upstream's own word, where the route trusts it; 0: the answer itself is not to be kept. None: as
    the route says.
    """
    return retention_of(headers, policy.retention) or 0.0 if policy.trust_retention else None


def built(answer: Built) -> StoredResponse:
    """An answer that rules have built."""
    body = answer.body or b""
    plain = StoredResponse(answer.status, phrase(answer.status), answer.headers, body, len(body), hashlib.sha256(body).digest())
    return plain if answer.body is not None else plain.without_body()


@dataclass(frozen=True, slots=True)
class Heard:
    """What a response says of the execution, where the route trusts its word. `answer` is the operation's, in place of
    the response, where this says that the operation exists already.
    """

    outcome: HintedOutcome | None
    answer: StoredResponse | None = None


def hear(found: Found, policy: Policy, earlier: Earlier, names: Callable[[], Names], *, readable: bool = True) -> Heard:
    """The upstream's own signal in a response as it came. `readable` False: the body was not kept, or is longer than
    `LONGEST_READ`.

    A signal that the operation exists is no answer yet: where the hint's answer cannot be built, the outcome is
    unknown.
    """
    assert found.status is not None, "of a response"
    signal = signal_of(found.status, found.headers, policy.hints, found.body if readable else None)
    if signal is None:
        return Heard(None)
    if signal.outcome is not HintedOutcome.EXISTS or earlier is Earlier.NOTHING or signal.answer == AnswerPlan():
        return Heard(signal.outcome)
    try:
        return Heard(signal.outcome, built(build(signal.answer, found, document_of(found.body), names())))
    except ValueError:
        return Heard(HintedOutcome.UNKNOWN)


def phrase(status: int) -> bytes:
    """The reason phrase of an answer that we make (RFC 9110 section 15); empty for a status without a name."""
    return HTTPStatus(status).phrase.encode() if status in _NAMED else b""


_NAMED = frozenset(HTTPStatus)
