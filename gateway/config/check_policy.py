"""Mistakes between the values of one route's policy, and with what it leans on elsewhere."""

from collections.abc import Sequence
from typing import Any

from gateway.config.check_principal import check_sources, meaning
from gateway.config.fields import ConfigFields
from gateway.config.key_fields import KeyFields, PlaceFields
from gateway.config.kinds import Reader
from gateway.config.mistakes import Place
from gateway.config.policy_fields import FingerprintFields, HintFields, IdempotencyFields
from gateway.config.reconcile_fields import ConditionFields, ReconcileFields
from gateway.config.resolve_reconcile import resolve_answer
from gateway.config.shapes import Field, Section
from gateway.core.field_names import FRAMING, HOP_BY_HOP
from gateway.core.fingerprint import VERSION
from gateway.core.policy import BodyKey, FormKey, ForwardKey, HeaderKey, HintedOutcome, KeyPlace, Policy, QueryKey
from gateway.core.reconcile.request import check_plan


def check_policy(reader: Reader, root: Section, section: Section, policy: Policy) -> None:
    """Report what is wrong with the policy of a guarded route, everything filled in."""
    names = IdempotencyFields
    principal = section.place_of(names.PRINCIPAL)
    if not section.has(names.PRINCIPAL):
        reader.report(principal, "a guarded route names who asks: write [{header: X-Account-Id}], or none for one scope for all callers")
    sources = section.get(names.PRINCIPAL)
    if sources and section.sound(names.PRINCIPAL):
        check_sources(reader, root, sources, section.get(names.PRINCIPAL_COMBINE))
    secret_missing = root.sound(ConfigFields.DIGEST_SECRET) and root.get(ConfigFields.DIGEST_SECRET) is None
    if secret_missing and policy.principal:
        reader.report(principal, "a principal needs `digest_secret`: what tells callers apart is kept as a keyed digest only")
    if secret_missing and policy.forward_key is ForwardKey.DERIVED:
        reader.report(section.place_of(names.FORWARD_KEY), "derived keys need `digest_secret`")
    _check_version(reader, root, section)
    _check_body(reader, section, policy)
    check_alone(reader, section)


def _check_version(reader: Reader, root: Section, section: Section) -> None:
    """Version 2 of the fingerprint cannot leave out what it does not cover by name."""
    version, fingerprint = root.get(ConfigFields.FINGERPRINT_VERSION), section.sub(IdempotencyFields.FINGERPRINT)
    for field in (FingerprintFields.IGNORE_HEADERS, FingerprintFields.IGNORE_QUERY, FingerprintFields.IGNORE_FORM):
        if version < VERSION and fingerprint.sound(field) and fingerprint.get(field):
            reader.report(fingerprint.place_of(field), f"needs `fingerprint_version: {VERSION}`; version {version} does not know it")


def check_alone(reader: Reader, section: Section) -> None:
    """Report what is wrong within a policy section, be it a route's or a dialect's."""
    names = IdempotencyFields
    key = section.sub(names.KEY)
    shortest, longest = key.get(KeyFields.MIN_LENGTH), key.get(KeyFields.MAX_LENGTH)
    if key.sound(KeyFields.MIN_LENGTH, KeyFields.MAX_LENGTH) and shortest > longest:
        wrong = KeyFields.MIN_LENGTH if key.given(KeyFields.MIN_LENGTH) else KeyFields.MAX_LENGTH
        reader.report(key.place_of(wrong), f"min_length {shortest} is greater than max_length {longest}")
    both = sorted({*section.get(names.RELEASE_ON)} & {*section.get(names.DOUBT_ON)})
    if both and section.sound(names.RELEASE_ON, names.DOUBT_ON):
        wrong_list = names.DOUBT_ON if section.given(names.DOUBT_ON) else names.RELEASE_ON
        statuses = ", ".join(map(str, both))
        reader.report(section.place_of(wrong_list), f"{statuses} in both release_on and doubt_on; an outcome settles one way")
    captured = section.sub(names.RECONCILE).get(ReconcileFields.CAPTURE) or ()
    for hint in section.get(names.HINTS):
        _check_hint(reader, hint, frozenset(name for name, _ in captured))
    _check_key_fields(reader, section)


def _check_key_fields(reader: Reader, section: Section) -> None:
    """A key stands in no field that says how a message is sent, or what it holds."""
    key, goes = section.sub(IdempotencyFields.KEY), section.sub(IdempotencyFields.FORWARD_KEY_IN)
    if key.given(KeyFields.HEADER) and key.sound(KeyFields.HEADER):
        names = key.get(KeyFields.HEADER)
        _check_key_names(reader, key.place_of(KeyFields.HEADER), names)
    if goes.given(PlaceFields.HEADER) and goes.sound(PlaceFields.HEADER):
        _check_key_names(reader, goes.place_of(PlaceFields.HEADER), (goes.get(PlaceFields.HEADER),))


def _check_key_names(reader: Reader, place: Place, names: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if name.lower().encode() in _TAKEN:
            reader.report(place, f"{name} has a meaning of its own, which a key would destroy; name another field")
        first = seen.setdefault(name.lower().replace("_", "-"), name)
        if first is not name:
            reader.report(place, f"{first} and {name} are one field; keep one of them")


def _check_body(reader: Reader, section: Section, policy: Policy) -> None:
    """A body is JSON or a form, never both."""
    came, goes = policy.key.place, policy.key_goes_to
    bodies = {type(came), type(goes)} == {BodyKey, FormKey}
    if bodies and policy.forward_key is not ForwardKey.NONE and section.sound(IdempotencyFields.KEY, IdempotencyFields.FORWARD_KEY_IN):
        reader.report(
            section.place_of(IdempotencyFields.FORWARD_KEY_IN),
            "a body that holds the key as a form holds none as JSON, and the other way round; name the same kind, a header or a query",
        )


_TAKEN = HOP_BY_HOP | FRAMING | {b"host", b"content-type", b"content-encoding", b"expect", b"via", b"date", b"authorization", b"cookie"}


def _check_hint(reader: Reader, hint: Section, captured: frozenset[str]) -> None:
    names = HintFields
    if not hint.sound(names.HEADER, names.WHEN):
        return
    value, words = hint.get(names.VALUE), [outcome.value for outcome in HintedOutcome]
    header, outcome = hint.get(names.HEADER), hint.get(names.OUTCOME)
    if header is None:
        _check_bodily(reader, hint)
    elif value is not None and hint.sound(names.OUTCOME) and hint.get(names.OUTCOME) is None and value.lower() not in words:
        reader.report(hint.place_of(names.VALUE), f"`{value}` names no outcome; say with `outcome` what it means: {', '.join(words)}")
    if header is not None and hint.sound(names.REMOVE) and hint.get(names.REMOVE) and header.lower().encode() in HOP_BY_HOP | FRAMING:
        reader.report(hint.place_of(names.REMOVE), f"{header} says how the answer is sent, and is the gateway's to write")
    for condition in hint.get(names.WHEN):
        if condition.given(ConditionFields.SAME_AS):
            reader.report(condition.place_of(ConditionFields.SAME_AS), "compares what a look or an event finds; a hint knows a fixed value")
    if not hint.given(names.ANSWER) or not hint.sound(names.ANSWER, names.OUTCOME) or hint.sub(names.ANSWER).broken:
        return
    place = hint.place_of(names.ANSWER)
    if outcome is not HintedOutcome.EXISTS:
        reader.report(place, "an answer is built where `outcome: exists` says that the operation was executed before; remove it")
        return
    try:
        check_plan(resolve_answer(hint.sub(names.ANSWER)), captured, event=False)
    except ValueError as problem:
        reader.report(place, str(problem))


def _check_bodily(reader: Reader, hint: Section) -> None:
    """A hint that the body alone gives."""
    names = HintFields
    fields: tuple[Field[Any], ...] = (names.VALUE, names.REMOVE)
    for field in fields:
        if hint.given(field) and hint.sound(field) and hint.get(field):
            reader.report(hint.place_of(field), "is of a header field; name it with `header`, or remove this")
    if hint.sound(names.OUTCOME) and hint.get(names.OUTCOME) is None:
        words = ", ".join(outcome.value for outcome in HintedOutcome)
        reader.report(hint.place_of(names.OUTCOME), f"is required: what it means that the body is so: {words}")


def identity(policy: Policy) -> tuple[object, ...]:
    """What routes of one scope must have in common, or a key would mean one thing here and another there."""
    key = policy.key
    combine = policy.combine if len(policy.principal) > 1 else None
    grammar = (key.required, key.mode, key.min_length, key.max_length, key.pattern, key.fold_case)
    return tuple(meaning(source) for source in policy.principal), combine, _place(key.place), grammar


def _place(place: KeyPlace) -> tuple[str, str]:
    match place:
        case HeaderKey():
            return "header", " ".join(sorted(map(str.lower, place.names)))
        case QueryKey(name):
            return "query", name
        case BodyKey(pointer):
            return "body", pointer
        case FormKey(name):
            return "form", name
