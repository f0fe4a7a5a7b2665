"""What a request asks of the store."""

from gateway.core.model import Fingerprint, Intent, Terms
from gateway.core.policy import Mode, OnExpired, OnUnknown, Policy
from gateway.core.redaction import redact_target
from gateway.engine.request import GuardedRequest

_made: dict[str, tuple[Policy, Terms]] = {}
"""The last terms of each route, and the policy that they were made of: a reload brings another."""


def terms_of(route_id: str, policy: Policy) -> Terms:
    """What all intents of a route with this policy have in common; the same object for the same policy object."""
    made = _made.get(route_id)
    if made is not None and made[0] is policy:
        return made[1]
    terms = Terms(
        route_id,
        policy.lease,
        policy.max_execution,
        policy.reconcilable,
        policy.tombstone if policy.on_expired is OnExpired.GONE else None,
        policy.mode is Mode.OBSERVE,
        policy.on_unknown is OnUnknown.REEXECUTE,
    )
    _made[route_id] = policy, terms
    return terms


def intent_of(request: GuardedRequest, meaning: Fingerprint, owner: bytes) -> Intent:
    """The intent of `owner`, a token that no statement but this one is sent with."""
    return Intent(
        request.key,
        meaning,
        owner,
        terms_of(request.route_id, request.policy),
        request.request_id,
        request.method,
        redact_target(request.target),
        request.captured,
        request.correlation,
        request.sealed,
    )
