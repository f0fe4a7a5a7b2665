"""What a request asks of the store."""

from gateway.core.model import Fingerprint, Intent
from gateway.core.policy import Mode, OnExpired, OnUnknown
from gateway.core.redaction import redact_target
from gateway.engine.request import GuardedRequest


def intent_of(request: GuardedRequest, meaning: Fingerprint, owner: bytes) -> Intent:
    """The intent of `owner`, a token that no statement but this one is sent with."""
    policy = request.policy
    return Intent(
        request.key,
        meaning,
        owner,
        request.route_id,
        request.request_id,
        request.method,
        redact_target(request.target),
        policy.lease,
        policy.max_execution,
        policy.reconcilable,
        policy.tombstone if policy.on_expired is OnExpired.GONE else None,
        policy.mode is Mode.OBSERVE,
        request.captured,
        request.correlation,
        request.sealed,
        policy.on_unknown is OnUnknown.REEXECUTE,
    )
