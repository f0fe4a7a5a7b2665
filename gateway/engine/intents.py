"""Makes the intent of a request: what it asks of the store."""

from dataclasses import replace

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


def uncounted(intent: Intent) -> Intent:
    """The same, for what the gateway does for a request that it has let in: that takes nothing of its caller's quota again, and no limit
    refuses it.
    """
    return replace(intent, terms=replace(intent.terms, quota=None))
