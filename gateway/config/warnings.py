"""Findings that stop nothing: settings that are valid and that rarely mean what they say."""

from collections.abc import Iterator, Sequence

from gateway.config.fields import FingerprintFields, IdempotencyFields
from gateway.config.mistakes import Place
from gateway.config.resolve import ResolvedRoute
from gateway.config.shapes import Section
from gateway.config.units import format_duration
from gateway.core.policy import BodyMode, InFlight, Policy

SHORT_RETENTION = 3600.0
SHORT_LEASE = 3.0


def find_warnings(routes: Sequence[ResolvedRoute]) -> tuple[tuple[Place, str], ...]:
    """Every warning once, also where several routes take it from `defaults`."""
    found = (
        warning
        for one in routes
        if one.idempotency is not None and one.route.policy is not None
        for warning in _warn(one.idempotency, one.route.policy)
    )
    return tuple(dict.fromkeys(found))


def _warn(section: Section, policy: Policy) -> Iterator[tuple[Place, str]]:
    names = IdempotencyFields
    retention = format_duration(policy.retention)
    recovery = policy.max_execution + (policy.wait if policy.in_flight is InFlight.WAIT else 0)
    if policy.retention < recovery:
        parts = "wait + max_execution" if policy.in_flight is InFlight.WAIT else "the upstream's max_execution"
        yield (
            section.place_of(names.RETENTION),
            f"{retention} is shorter than {parts} ({format_duration(recovery)}): a slow retry would execute again",
        )
    elif policy.retention < SHORT_RETENTION:
        yield section.place_of(names.RETENTION), f"{retention} is short: a retry after it executes again; most APIs keep keys for 24h"
    if policy.lease < SHORT_LEASE:
        yield (
            section.place_of(names.LEASE),
            f"{format_duration(policy.lease)} is short: a pause of a third of it can lapse a running attempt",
        )
    if any(name.lower() == "authorization" for name in policy.principal):
        yield (
            section.place_of(names.PRINCIPAL),
            "Authorization is a raw credential: a token refresh is a new scope, see the documentation on principals",
        )
    fingerprint = section.sub(names.FINGERPRINT)
    if policy.fingerprint.ignore and policy.fingerprint.body in {BodyMode.BYTES, BodyMode.NONE}:
        yield fingerprint.place_of(FingerprintFields.IGNORE), f"has no effect with `body: {policy.fingerprint.body}`"
