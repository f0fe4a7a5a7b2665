"""From a route's policy section to its policy. As in `resolve`, nothing is judged here."""

from gateway.config.key_fields import KeyFields, PlaceFields
from gateway.config.policy_fields import FingerprintFields, HintFields, IdempotencyFields, LimitFields
from gateway.config.resolve_principal import resolve_sources
from gateway.config.resolve_reconcile import resolve_answer, resolve_condition, resolve_reconcile, resolve_webhook
from gateway.config.shapes import Section
from gateway.core.policy import (
    BodyKey,
    Dialect,
    FingerprintPolicy,
    FormKey,
    HeaderKey,
    Hint,
    KeyPlace,
    KeyPolicy,
    Limits,
    Policy,
    QueryKey,
)
from gateway.core.reconcile.request import names_principal


def resolve_policy(section: Section, dialect: Dialect, route_id: str, max_execution: float) -> Policy:
    """`section` has everything filled in that a dialect and the file's `defaults` say."""
    names = IdempotencyFields
    limits = section.sub(names.LIMITS)
    principal, hints = section.get(names.PRINCIPAL), section.get(names.HINTS)
    release_on, doubt_on = section.get(names.RELEASE_ON), section.get(names.DOUBT_ON)
    reconcile = resolve_reconcile(section.sub(names.RECONCILE))
    webhook = resolve_webhook(section.sub(names.WEBHOOK)) if section.given(names.WEBHOOK) else None
    return Policy(
        scope=section.get(names.SCOPE) or route_id,
        principal=resolve_sources(principal or ()),
        key=_key(section.sub(names.KEY)),
        fingerprint=_fingerprint(section.sub(names.FINGERPRINT)),
        mode=section.get(names.MODE),
        dialect=dialect,
        in_flight=section.get(names.IN_FLIGHT),
        wait=section.get(names.WAIT),
        lease=section.get(names.LEASE),
        retention=section.get(names.RETENTION),
        on_expired=section.get(names.ON_EXPIRED),
        tombstone=section.get(names.TOMBSTONE),
        expired=section.get(names.EXPIRED),
        keep_for=section.get(names.KEEP_FOR),
        release_on=frozenset(release_on),
        doubt_on=frozenset(doubt_on),
        hints=tuple(_hint(one) for one in hints),
        trust_retention=section.get(names.TRUST_RETENTION),
        on_store_outage=section.get(names.ON_STORE_OUTAGE),
        limits=Limits(limits.get(LimitFields.REQUEST_BODY), limits.get(LimitFields.RESPONSE_BODY)),
        settle_timeout=section.get(names.SETTLE_TIMEOUT),
        stream=section.get(names.STREAM),
        forward_key=section.get(names.FORWARD_KEY),
        forward_key_in=_forward_key_in(section),
        status_fields=section.get(names.STATUS_FIELDS),
        expose_headers=section.get(names.EXPOSE_HEADERS),
        duplicates=section.get(names.DUPLICATES),
        mark_duplicates=section.get(names.MARK_DUPLICATES),
        max_execution=max_execution,
        combine=section.get(names.PRINCIPAL_COMBINE),
        on_unknown=section.get(names.ON_UNKNOWN),
        reconcile=reconcile,
        webhook=webhook,
        keeps_principal=names_principal(reconcile, webhook),
    )


def _key(section: Section) -> KeyPolicy:
    return KeyPolicy(
        place=_place(section),
        required=section.get(KeyFields.REQUIRED),
        mode=section.get(KeyFields.MODE),
        min_length=section.get(KeyFields.MIN_LENGTH),
        max_length=section.get(KeyFields.MAX_LENGTH),
        pattern=section.get(KeyFields.PATTERN),
        fold_case=section.get(KeyFields.FOLD_CASE),
        notice=section.get(KeyFields.NOTICE),
    )


def _place(section: Section) -> KeyPlace:
    """Where the key is; of `KeyFields` and of `PlaceFields`, which have these fields alike, but for the number of headers."""
    query, pointer, form = section.get(PlaceFields.QUERY), section.get(PlaceFields.JSON_POINTER), section.get(PlaceFields.FORM)
    if query is not None:
        return QueryKey(query)
    if form is not None:
        return FormKey(form)
    if pointer is not None:
        return BodyKey(pointer)
    headers = section.get(KeyFields.HEADER)
    return HeaderKey(headers) if isinstance(headers, str) else HeaderKey(headers[0], headers[1:])


def _forward_key_in(section: Section) -> KeyPlace | None:
    return _place(section.sub(IdempotencyFields.FORWARD_KEY_IN)) if section.has(IdempotencyFields.FORWARD_KEY_IN) else None


def _fingerprint(section: Section) -> FingerprintPolicy:
    return FingerprintPolicy(
        body=section.get(FingerprintFields.BODY),
        headers=section.get(FingerprintFields.HEADERS),
        ignore=section.get(FingerprintFields.IGNORE),
        only=section.get(FingerprintFields.ONLY),
        ignore_headers=section.get(FingerprintFields.IGNORE_HEADERS),
        ignore_query=section.get(FingerprintFields.IGNORE_QUERY),
        ignore_form=section.get(FingerprintFields.IGNORE_FORM),
    )


def _hint(section: Section) -> Hint:
    statuses = section.get(HintFields.STATUSES)
    return Hint(
        header=section.get(HintFields.HEADER),
        value=section.get(HintFields.VALUE),
        statuses=frozenset(statuses),
        outcome=section.get(HintFields.OUTCOME),
        remove=section.get(HintFields.REMOVE),
        when=tuple(resolve_condition(one) for one in section.get(HintFields.WHEN)),
        answer=resolve_answer(section.sub(HintFields.ANSWER)),
    )
