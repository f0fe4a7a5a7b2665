"""What of an upstream's answer is for the client, and what its own signals say of keeping it. Pure."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from gateway.core.headers import first, to_client
from gateway.core.hints import RETENTION, removed, retention_of, signal_of
from gateway.core.model import Earlier, Headers, StoredResponse
from gateway.core.policy import HintedOutcome, Policy
from gateway.core.reconcile.found import Built, Found, Names, build, document_of
from gateway.core.reconcile.policy import AnswerPlan


def for_client(method: str, status: int, headers: Headers, policy: Policy, date: bytes) -> Headers:
    """The fields of an answer as the client gets them: end-to-end ones, without what is between the upstream and us, and with a Date
    (RFC 9110 section 6.6.1), `date` if the upstream sent none.
    """
    bodiless = status == 304 or (method == "HEAD" and status != 204)
    fields = to_client(headers, bodiless=bodiless)
    if policy.hints or policy.trust_retention:
        ours = removed(policy.hints) | ({RETENTION} if policy.trust_retention else frozenset())
        fields = tuple([field for field in fields if field[0].lower() not in ours])
    return fields if first(fields, b"date") is not None else (*fields, (b"Date", date))


def kept_for(headers: Headers, policy: Policy) -> float | None:
    """Seconds by the upstream's own word, where the route trusts it; 0: the answer itself is not to be kept. None: as the route says."""
    return retention_of(headers, policy.retention) or 0.0 if policy.trust_retention else None


def built(answer: Built) -> StoredResponse:
    """An answer that rules have built."""
    body = answer.body or b""
    plain = StoredResponse(answer.status, phrase(answer.status), answer.headers, body, len(body), hashlib.sha256(body).digest())
    return plain if answer.body is not None else plain.without_body()


@dataclass(frozen=True, slots=True)
class Heard:
    """What a response says of the execution, where the route trusts its word. `answer` is the operation's, in place of the response, where
    this says that the operation exists already.
    """

    outcome: HintedOutcome | None
    answer: StoredResponse | None = None


def hear(found: Found, policy: Policy, earlier: Earlier, names: Callable[[], Names], *, readable: bool = True) -> Heard:
    """Listen to a response as it came. `readable` False: its body was not kept, or is longer than `LONGEST_READ`.

    That the operation exists is no answer yet: where the hint's cannot be built, nobody knows.
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
