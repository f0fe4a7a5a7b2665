"""Makes the intent of a request: what it asks of the store."""

from gateway.core.model import Fingerprint, Intent
from gateway.core.redaction import redact_target
from gateway.engine.request import GuardedRequest


def intent_of(request: GuardedRequest, meaning: Fingerprint, owner: bytes) -> Intent:
    """The intent under `owner`, a token that no other statement carries."""
    return Intent(
        request.key,
        meaning,
        owner,
        request.guard.terms,
        request.request_id,
        request.method,
        redact_target(request.origin_form),
        request.captured,
        request.correlation,
        request.sealed,
    )
