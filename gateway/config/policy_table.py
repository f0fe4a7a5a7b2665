"""A route's policy as people read it: columns of the table of routes, and lines for what is not by default."""

from collections.abc import Iterator
from typing import Any, assert_never

from gateway.config.key_fields import KeyFields
from gateway.config.policy_fields import FingerprintFields, IdempotencyFields, LimitFields
from gateway.config.reconcile_table import reconcile_lines, webhook_lines
from gateway.config.shapes import Field, Struct
from gateway.core.policy import (
    BasicPrincipal,
    BodyKey,
    CertificatePrincipal,
    Combine,
    FingerprintPolicy,
    FormKey,
    ForwardAuthPrincipal,
    HeaderKey,
    HeaderPrincipal,
    Hint,
    JwtPrincipal,
    KeyPlace,
    KeyPolicy,
    Limits,
    Policy,
    PrincipalSource,
    QueryKey,
)

_N = IdempotencyFields
_PLAIN = (
    _N.ON_EXPIRED, _N.TOMBSTONE, _N.EXPIRED, _N.KEEP_FOR, _N.RELEASE_ON, _N.DOUBT_ON, _N.TRUST_RETENTION, _N.SETTLE_TIMEOUT, _N.STREAM,
    _N.FORWARD_KEY, _N.ON_UNKNOWN, _N.STATUS_FIELDS, _N.EXPOSE_HEADERS, _N.DUPLICATES, _N.MARK_DUPLICATES,
)  # fmt: skip
"""What is in no column. A field's name is the policy's too."""

_KEY = (KeyFields.MODE, KeyFields.MIN_LENGTH, KeyFields.MAX_LENGTH, KeyFields.PATTERN, KeyFields.FOLD_CASE, KeyFields.NOTICE)
_DEFAULT = Policy(scope="", principal=())


def principal_words(policy: Policy) -> str:
    """Who asks, in a few words: sources that must all be there are joined by +, others by |."""
    return ("+" if policy.combine is Combine.ALL else "|").join(map(_source, policy.principal)) or "none"


def key_words(policy: Policy) -> str:
    """Where the key is, and whether there must be one."""
    return place_words(policy.key.place) + ("" if policy.key.required else " (optional)")


def place_words(place: KeyPlace) -> str:
    match place:
        case HeaderKey():
            return "|".join(place.names)
        case QueryKey(name):
            return f"query:{name}"
        case BodyKey(pointer):
            return f"body:{pointer}"
        case FormKey(name):
            return f"form:{name}"
        case _:
            assert_never(place)


def policy_lines(policy: Policy) -> Iterator[tuple[str, str]]:
    """Paths within `idempotency`, and values as the file would have them, of what has no column and another value than by default."""
    if policy.dialect.name != _DEFAULT.dialect.name:
        yield _N.DIALECT.name, policy.dialect.name
    yield from _changed("key.", policy.key, KeyPolicy(), *_KEY)
    yield from _changed("fingerprint.", policy.fingerprint, FingerprintPolicy(), *Struct.of(FingerprintFields).table)
    yield from _changed("limits.", policy.limits, Limits(), *Struct.of(LimitFields).table)
    yield from _changed("", policy, _DEFAULT, *_PLAIN)
    for hint in policy.hints:
        yield _N.HINTS.name, _hint(hint)
    if policy.forward_key_in is not None:
        yield _N.FORWARD_KEY_IN.name, place_words(policy.forward_key_in)
    yield from reconcile_lines(policy.reconcile)
    if policy.webhook is not None:
        yield from webhook_lines(policy.webhook)


def shown(field: Field[Any], value: object) -> str:
    """As the file would say it."""
    written = field.kind.write(tuple(sorted(value)) if isinstance(value, frozenset) else value)
    if isinstance(written, bool):
        return str(written).lower()
    return " ".join(map(str, written)) if isinstance(written, list) else str(written)


def _changed(path: str, owner: object, default: object, *fields: Field[Any]) -> Iterator[tuple[str, str]]:
    for field in fields:
        value = getattr(owner, field.name)
        if value != getattr(default, field.name):
            yield f"{path}{field.name}", shown(field, value) or "none"


def _source(source: PrincipalSource) -> str:
    match source:
        case HeaderPrincipal(name):
            return name
        case BasicPrincipal():
            return "basic"
        case CertificatePrincipal(header):
            return "certificate" if header is None else f"certificate:{header}"
        case JwtPrincipal(claim):
            return f"jwt:{'.'.join(claim)}"
        case ForwardAuthPrincipal():
            return f"forward_auth:{source.upstream}"
        case _:
            assert_never(source)


def _hint(hint: Hint) -> str:
    value = f": {hint.value}" if hint.value is not None else ""
    statuses = f" at {' '.join(map(str, sorted(hint.statuses)))}" if hint.statuses else ""
    outcome = hint.outcome.value if hint.outcome is not None else "its value"
    body = ", ".join(f"{condition.pointer or 'body'} {condition.test}" for condition in hint.when)
    signal = " and ".join(part for part in (f"{hint.header}{value}" if hint.header is not None else "", body) if part)
    return f"{signal}{statuses} -> {outcome}{', removed' if hint.remove else ''}"
