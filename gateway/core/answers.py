"""What of an upstream's answer is for the client, and what its own signals say of keeping it. Pure."""

from http import HTTPStatus

from gateway.core.headers import first, to_client
from gateway.core.hints import RETENTION, hinted, retention_of
from gateway.core.model import Headers
from gateway.core.policy import Policy


def for_client(method: str, status: int, headers: Headers, policy: Policy, date: bytes) -> Headers:
    """The fields of an answer as the client gets them: end-to-end ones, without what is between the upstream and us, and with a Date
    (RFC 9110 section 6.6.1), `date` if the upstream sent none.
    """
    bodiless = status == 304 or (method == "HEAD" and status != 204)
    fields = to_client(headers, bodiless=bodiless)
    if policy.hints or policy.trust_retention:
        _, removed = hinted(status, headers, policy.hints)
        removed |= {RETENTION} if policy.trust_retention else frozenset()
        fields = tuple([field for field in fields if field[0].lower() not in removed])
    return fields if first(fields, b"date") is not None else (*fields, (b"Date", date))


def kept_for(headers: Headers, policy: Policy) -> float | None:
    """Seconds by the upstream's own word, where the route trusts it; 0: the answer itself is not to be kept. None: as the route says."""
    return retention_of(headers, policy.retention) or 0.0 if policy.trust_retention else None


def phrase(status: int) -> bytes:
    """The reason phrase of an answer that we make (RFC 9110 section 15); empty for a status without a name."""
    return HTTPStatus(status).phrase.encode() if status in _NAMED else b""


_NAMED = frozenset(HTTPStatus)
