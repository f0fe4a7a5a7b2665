"""Findings about how a route is guarded that stop nothing."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, assert_never

from gateway.config.key_fields import KeyFields
from gateway.config.mistakes import Place
from gateway.config.policy_fields import FingerprintFields, IdempotencyFields, LimitFields
from gateway.config.policy_texts import exposed
from gateway.config.principal_fields import JwtFields, SourceFields
from gateway.config.resolve import ResolvedRoute
from gateway.config.resolve_principal import resolve_sources
from gateway.config.shapes import Field, Section
from gateway.config.units import format_duration
from gateway.core.fingerprint import LARGE_BODY
from gateway.core.policy import (
    BasicPrincipal,
    BodyKey,
    BodyMode,
    CertificatePrincipal,
    Expired,
    FormKey,
    ForwardAuthPrincipal,
    ForwardKey,
    HeaderPrincipal,
    InFlight,
    JwksFile,
    JwksUrl,
    JwtPrincipal,
    JwtSecret,
    OnExpired,
    Policy,
)

SHORT_RETENTION = 3600.0
SHORT_LEASE = 3.0
RAW_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "cookie"})
WITHOUT_BODY = frozenset({"GET", "HEAD", "DELETE", "OPTIONS", "TRACE"})

_N = IdempotencyFields
_IDLE: tuple[tuple[Field[Any], Callable[[Policy], bool], str], ...] = (
    (_N.WAIT, lambda policy: policy.in_flight is InFlight.WAIT, "in_flight: conflict"),
    (_N.TOMBSTONE, lambda policy: policy.on_expired is OnExpired.GONE, "on_expired: execute"),
    (_N.KEEP_FOR, lambda policy: policy.expired is Expired.KEEP, "expired: delete"),
    (_N.FORWARD_KEY_IN, lambda policy: policy.forward_key is not ForwardKey.NONE, "forward_key: none"),
    (_N.MARK_DUPLICATES, lambda policy: policy.duplicates > 0, "duplicates: 0s"),
)
"""Settings that count only under another one, and what stands in their way."""


def warn_of_policies(routes: Sequence[ResolvedRoute]) -> Iterator[tuple[Place, str]]:
    guarded = [(one, one.idempotency, one.route.policy) for one in routes]
    for one, section, policy in guarded:
        if section is None or policy is None:
            continue
        yield from _warn_of_times(section, policy)
        for source in section.get(_N.PRINCIPAL) or ():
            yield from _warn_of_source(section.place_of(_N.PRINCIPAL), source)
        yield from _warn_of_body(one, section, policy)
    yield from _warn_of_idle([(section, policy) for _, section, policy in guarded if section is not None and policy is not None])


def _warn_of_times(section: Section, policy: Policy) -> Iterator[tuple[Place, str]]:
    retention = format_duration(policy.retention)
    recovery = policy.max_execution + (policy.wait if policy.in_flight is InFlight.WAIT else 0)
    if policy.retention < recovery:
        parts = "wait + max_execution" if policy.in_flight is InFlight.WAIT else "the upstream's max_execution"
        yield (
            section.place_of(_N.RETENTION),
            f"{retention} is shorter than {parts} ({format_duration(recovery)}): a slow retry would execute again",
        )
    elif policy.retention < SHORT_RETENTION:
        yield section.place_of(_N.RETENTION), f"{retention} is short: a retry after it executes again; most APIs keep keys for 24h"
    if policy.lease < SHORT_LEASE:
        yield section.place_of(_N.LEASE), f"{format_duration(policy.lease)} is short: a pause of a third of it can lapse a running attempt"


def _warn_of_idle(guarded: Sequence[tuple[Section, Policy]]) -> Iterator[tuple[Place, str]]:
    """A setting that changes nothing, at no route that takes it (from `defaults`, several may)."""
    for field, counts, obstacle in _IDLE:
        given = [
            (section.place_of(field), policy) for section, policy in guarded if section.given(field) and section.get(field) != field.default
        ]
        used = {place for place, policy in given if counts(policy)}
        for place, _ in given:
            if place not in used:
                yield place, f"has no effect with `{obstacle}`"
    combine = _N.PRINCIPAL_COMBINE
    given = [(section.place_of(combine), policy) for section, policy in guarded if section.given(combine)]
    several = {place for place, policy in given if len(policy.principal) > 1}
    for place, policy in given:
        if place not in several and policy.combine.value != "all":
            yield place, "has no effect with one source"


def _warn_of_source(principal: Place, section: Section) -> Iterator[tuple[Place, str]]:
    (source,) = resolve_sources([section])
    match source:
        case HeaderPrincipal(name):
            if name.lower() in RAW_CREDENTIALS:
                words = f"{name.title()} is a raw credential: a token refresh is a new scope, in which a retry executes again"
                yield principal, f"{words}; name what stays the same, such as {{jwt: {{claim: sub, ...}}}} or {{basic: true}}"
        case JwtPrincipal():
            yield from _warn_of_jwt(section.sub(SourceFields.JWT), source)
        case BasicPrincipal() | CertificatePrincipal() | ForwardAuthPrincipal():
            pass
        case _:
            assert_never(source)


def _warn_of_jwt(section: Section, source: JwtPrincipal) -> Iterator[tuple[Place, str]]:
    names = JwtFields
    match source.keys:
        case JwksUrl(url):
            if exposed(url):
                yield section.place_of(names.JWKS_URL), "http: whoever sits between can put in keys of their own; use https"
        case JwksFile() | JwtSecret():
            for field in (names.REFRESH, names.STALE):
                if section.given(field):
                    yield section.place_of(field), "has no effect without `jwks_url`"
        case _:
            assert_never(source.keys)
    if not source.audience and not isinstance(source.keys, JwtSecret):
        yield section.place_of(names.AUDIENCE), "is not given: a token that was meant for another service of the issuer counts here too"
    if len(source.claim) == 1 and "." in source.claim[0] and "/" not in source.claim[0]:
        nested = ", ".join(source.claim[0].split("."))
        yield section.place_of(names.CLAIM), f"is the claim called `{source.claim[0]}`; if a nested one is meant, write [{nested}]"


def _warn_of_body(one: ResolvedRoute, section: Section, policy: Policy) -> Iterator[tuple[Place, str]]:
    key, fingerprint, limits = section.sub(_N.KEY), section.sub(_N.FINGERPRINT), section.sub(_N.LIMITS)
    in_body = isinstance(policy.key.place, BodyKey | FormKey)
    bodiless = sorted(one.route.methods & WITHOUT_BODY)
    if in_body and bodiless:
        place = key.place_of(KeyFields.JSON_POINTER if isinstance(policy.key.place, BodyKey) else KeyFields.FORM)
        yield place, f"{bodiless[0]} requests have no body to hold a key"
    if fingerprint.get(FingerprintFields.IGNORE_FORM):
        if policy.fingerprint.body not in {BodyMode.AUTO, BodyMode.FORM}:
            yield fingerprint.place_of(FingerprintFields.IGNORE_FORM), f"has no effect with `body: {policy.fingerprint.body}`"
        elif policy.limits.request_body > LARGE_BODY:
            place = limits.place_of(LimitFields.REQUEST_BODY)
            yield place, "a body is looked into up to 1MiB: a larger one counts whole in the fingerprint"
    pointers = [field for field in (FingerprintFields.IGNORE, FingerprintFields.ONLY) if fingerprint.get(field)]
    if pointers and policy.fingerprint.body not in {BodyMode.AUTO, BodyMode.JSON}:
        for field in pointers:
            yield fingerprint.place_of(field), f"has no effect with `body: {policy.fingerprint.body}`"
    elif (in_body or pointers) and policy.limits.request_body > LARGE_BODY:
        what = "a key in a larger body is not found" if in_body else "a larger one counts whole in the fingerprint"
        yield limits.place_of(LimitFields.REQUEST_BODY), f"a body is looked into up to 1MiB: {what}"
