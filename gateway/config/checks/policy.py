"""How a route is guarded: mistakes between the values of its policy, and findings that stop nothing."""

from collections.abc import Callable, Sequence

from gateway.config.checks.common import WITHOUT_BODY, Findings, ResolvedRoute
from gateway.config.checks.principal import check_sources, meaning, warn_of_sources
from gateway.config.mistakes import Place
from gateway.config.names import CONDITION, CONFIG, FINGERPRINT, HINT, KEY, KEY_SOURCE, KEY_TARGET, LIMITS, POLICY, POSTGRES, RECONCILE
from gateway.config.section import Section, value_of
from gateway.core.field_names import FRAMING, HOP_BY_HOP
from gateway.core.fingerprint import LARGE_BODY, VERSION
from gateway.core.fingerprint_policy import BodyMode
from gateway.core.hints import HintedOutcome
from gateway.core.key_policy import BodyKey, FormKey, ForwardKey, HeaderKey, KeyPlace, QueryKey
from gateway.core.policy import LEASE_MARGIN, Expired, InFlight, Mode, OnExpired, Policy
from gateway.core.reconcile.request import check_plan
from gateway.core.setting import setting_of
from gateway.core.units import format_duration

_TAKEN = HOP_BY_HOP | FRAMING | {b"host", b"content-type", b"content-encoding", b"expect", b"via", b"date", b"authorization", b"cookie"}
SHORT_RETENTION = 3600.0
SHORT_LEASE = 3.0
_IDLE: tuple[tuple[object, Callable[[Policy], bool], str], ...] = (
    (POLICY.wait, lambda policy: policy.in_flight is InFlight.WAIT, "`in_flight: conflict`"),
    (POLICY.pending_for, lambda policy: policy.accepts, "`execution: sync`"),
    (POLICY.concurrency, lambda policy: policy.accepts, "`execution: sync`"),
    (POLICY.quota, lambda policy: policy.mode is Mode.ENFORCE, "`mode: observe`"),
    (POLICY.tombstone, lambda policy: policy.on_expired is OnExpired.GONE, "`on_expired: execute`"),
    (POLICY.keep_for, lambda policy: policy.expired is Expired.KEEP, "`expired: delete`"),
    (POLICY.forward_key_in, lambda policy: policy.forward_key is not ForwardKey.NONE, "`forward_key: none`"),
    (POLICY.mark_duplicates, lambda policy: policy.duplicates > 0, "`duplicates: 0s`"),
    (POLICY.combine, lambda policy: len(policy.principal) > 1, "one source"),
)
"""Settings that count only under another one, and what stands in their way."""


def check_policy(root: Section, section: Section, policy: Policy) -> Findings:
    """What is wrong with the policy of a guarded route, everything filled in."""
    principal = section.place_of(POLICY.principal)
    if not section.has(POLICY.principal):
        yield principal, "a guarded route names who asks: write [{header: X-Account-Id}], or none for one scope for all callers"
    if section.sound(POLICY.principal):
        yield from check_sources(root, section.each(POLICY.principal), policy)
    secret_missing = root.sound(CONFIG.digest_secret) and root.get(CONFIG.digest_secret) is None
    if secret_missing and policy.principal:
        yield principal, "a principal needs `digest_secret`: what tells callers apart is kept as a keyed digest only"
    if secret_missing and policy.forward_key is ForwardKey.DERIVED:
        yield section.place_of(POLICY.forward_key), "derived keys need `digest_secret`"
    yield from _check_lease(root, section, policy)
    yield from _check_version(root, section)
    yield from _check_body(section, policy)
    yield from check_alone(section)


def _check_lease(root: Section, section: Section, policy: Policy) -> Findings:
    """Another node's clock may end a lease early by the skew; its holder must have stopped trusting it by then."""
    skew = root.sub(CONFIG.postgres).get(POSTGRES.clock_skew)
    if policy.lease * LEASE_MARGIN < skew and root.sub(CONFIG.postgres).sound(POSTGRES.clock_skew) and section.sound(POLICY.lease):
        needed = format_duration(skew / LEASE_MARGIN)
        yield section.place_of(POLICY.lease), f"a tenth of it must cover `postgres.clock_skew`, {format_duration(skew)}: at least {needed}"


def _check_version(root: Section, section: Section) -> Findings:
    """Version 2 of the fingerprint cannot leave out what it does not cover by name."""
    version, fingerprint = root.get(CONFIG.fingerprint_version), section.sub(POLICY.fingerprint)
    for field in (FINGERPRINT.ignore_headers, FINGERPRINT.ignore_query, FINGERPRINT.ignore_form):
        if version < VERSION and fingerprint.sound(field) and fingerprint.get(field):
            yield fingerprint.place_of(field), f"needs `fingerprint_version: {VERSION}`; version {version} does not know it"


def check_alone(section: Section) -> Findings:
    """What is wrong within a policy section, be it a route's or a dialect's."""
    key = section.sub(POLICY.key)
    shortest, longest = key.get(KEY.min_length), key.get(KEY.max_length)
    if key.sound(KEY.min_length, KEY.max_length) and shortest > longest:
        place = key.place_of(KEY.min_length, KEY.max_length)
        yield place, f"min_length {shortest} is greater than max_length {longest}"
    both = sorted(section.get(POLICY.release_on) & section.get(POLICY.doubt_on))
    if both and section.sound(POLICY.release_on, POLICY.doubt_on):
        place, statuses = section.place_of(POLICY.doubt_on, POLICY.release_on), ", ".join(map(str, both))
        yield place, f"{statuses} in both release_on and doubt_on; an outcome settles one way"
    captured = frozenset(name for name, _ in section.sub(POLICY.reconcile).get(RECONCILE.capture))
    for hint in section.each(POLICY.hints):
        yield from _check_hint(hint, captured)
    yield from _check_key_fields(section)


def _check_key_fields(section: Section) -> Findings:
    """A key stands in no field that says how a message is sent, or what it holds."""
    key, goes = section.sub(POLICY.key), section.sub(POLICY.forward_key_in)
    if key.given(KEY_SOURCE.header):
        yield from _check_key_names(key.place_of(KEY_SOURCE.header), key.get(KEY_SOURCE.header))
    if (header := goes.get(KEY_TARGET.header)) and goes.given(KEY_TARGET.header):
        yield from _check_key_names(goes.place_of(KEY_TARGET.header), (header,))


def _check_key_names(place: Place, names: Sequence[str]) -> Findings:
    seen: dict[str, str] = {}
    for name in names:
        if name.lower().encode() in _TAKEN:
            yield place, f"{name} has a meaning of its own, which a key would destroy; name another field"
        first = seen.setdefault(name.lower().replace("_", "-"), name)
        if first is not name:
            yield place, f"{first} and {name} are one field; keep one of them"


def _check_body(section: Section, policy: Policy) -> Findings:
    """A body is JSON or a form, never both."""
    came, goes = policy.key.place, policy.key_goes_to
    bodies = {type(came), type(goes)} == {BodyKey, FormKey}
    if bodies and policy.forward_key is not ForwardKey.NONE and section.sound(POLICY.key, POLICY.forward_key_in):
        words = "a body that holds the key as a form holds none as JSON, and the other way round"
        yield section.place_of(POLICY.forward_key_in), f"{words}; name the same kind, a header or a query"


def _check_hint(hint: Section, captured: frozenset[str]) -> Findings:
    if not hint.sound(HINT.header, HINT.when):
        return
    value, words = hint.get(HINT.value), [outcome.value for outcome in HintedOutcome]
    header, outcome = hint.get(HINT.header), hint.get(HINT.outcome)
    if header is None:
        yield from _check_bodily(hint)
    elif value is not None and hint.sound(HINT.outcome) and hint.get(HINT.outcome) is None and value.lower() not in words:
        yield hint.place_of(HINT.value), f"`{value}` names no outcome; say with `outcome` what it means: {', '.join(words)}"
    if header is not None and hint.sound(HINT.remove) and hint.get(HINT.remove) and header.lower().encode() in HOP_BY_HOP | FRAMING:
        yield hint.place_of(HINT.remove), f"{header} says how the answer is sent, and is the gateway's to write"
    for condition in hint.each(HINT.when):
        if condition.given(CONDITION.same_as):
            yield condition.place_of(CONDITION.same_as), "compares what a look or an event finds; a hint knows a fixed value"
    if not hint.given(HINT.answer) or not hint.sound(HINT.answer, HINT.outcome) or hint.sub(HINT.answer).broken:
        return
    place = hint.place_of(HINT.answer)
    if outcome is not HintedOutcome.EXISTS:
        yield place, "an answer is built where `outcome: exists` says that the operation was executed before; remove it"
        return
    try:
        check_plan(value_of(hint.sub(HINT.answer)), captured, event=False)
    except ValueError as problem:
        yield place, str(problem)


def _check_bodily(hint: Section) -> Findings:
    """A hint that the body alone gives."""
    for field in (HINT.value, HINT.remove):
        if hint.given(field) and hint.sound(field) and hint.get(field):
            yield hint.place_of(field), "is of a header field; name it with `header`, or remove this"
    if hint.sound(HINT.outcome) and hint.get(HINT.outcome) is None:
        words = ", ".join(outcome.value for outcome in HintedOutcome)
        yield hint.place_of(HINT.outcome), f"is required: what it means that the body is so: {words}"


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


def warn_of_policies(routes: Sequence[ResolvedRoute]) -> Findings:
    for one in routes:
        if one.guard is not None:
            section, policy = one.guard
            yield from _warn_of_times(section, policy)
            yield from warn_of_sources(section, policy)
            yield from _warn_of_body(one, section, policy)
    yield from _warn_of_idle([one.guard for one in routes if one.guard is not None])


def _warn_of_times(section: Section, policy: Policy) -> Findings:
    retention = format_duration(policy.retention)
    recovery = policy.max_execution + (policy.wait if policy.in_flight is InFlight.WAIT else 0)
    if policy.retention < recovery:
        parts = "wait + max_execution" if policy.in_flight is InFlight.WAIT else "the upstream's max_execution"
        words = f"{retention} is shorter than {parts} ({format_duration(recovery)}): a slow retry would execute again"
        yield section.place_of(POLICY.retention), words
    elif policy.retention < SHORT_RETENTION:
        yield section.place_of(POLICY.retention), f"{retention} is short: a retry after it executes again; most APIs keep keys for 24h"
    if policy.lease < SHORT_LEASE:
        words = f"{format_duration(policy.lease)} is short: a pause of a third of it can lapse a running attempt"
        yield section.place_of(POLICY.lease), words


def _warn_of_idle(guarded: Sequence[tuple[Section, Policy]]) -> Findings:
    """A setting that changes nothing, at no route that takes it (from `defaults`, several may)."""
    for field, counts, obstacle in _IDLE:
        default = setting_of(field).default
        given = [(section.place_of(field), policy) for section, policy in guarded if section.given(field) and section.get(field) != default]
        used = {place for place, policy in given if counts(policy)}
        for place, _ in given:
            if place not in used:
                yield place, f"has no effect with {obstacle}"


def _warn_of_body(one: ResolvedRoute, section: Section, policy: Policy) -> Findings:
    key, fingerprint, limits = section.sub(POLICY.key), section.sub(POLICY.fingerprint), section.sub(POLICY.limits)
    in_body = isinstance(policy.key.place, BodyKey | FormKey)
    bodiless = sorted(one.route.methods & WITHOUT_BODY)
    if in_body and bodiless:
        place = key.place_of(KEY_SOURCE.json_pointer if isinstance(policy.key.place, BodyKey) else KEY_SOURCE.form)
        yield place, f"{bodiless[0]} requests have no body to hold a key"
    if fingerprint.get(FINGERPRINT.ignore_form):
        if policy.fingerprint.body not in {BodyMode.AUTO, BodyMode.FORM}:
            yield fingerprint.place_of(FINGERPRINT.ignore_form), f"has no effect with `body: {policy.fingerprint.body}`"
        elif policy.limits.request_body > LARGE_BODY:
            place = limits.place_of(LIMITS.request_body)
            yield place, "a body is looked into up to 1MiB: a larger one counts whole in the fingerprint"
    pointers = [field for field in (FINGERPRINT.ignore, FINGERPRINT.only) if fingerprint.get(field)]
    if pointers and policy.fingerprint.body not in {BodyMode.AUTO, BodyMode.JSON}:
        for field in pointers:
            yield fingerprint.place_of(field), f"has no effect with `body: {policy.fingerprint.body}`"
    elif (in_body or pointers) and policy.limits.request_body > LARGE_BODY:
        what = "a key in a larger body is not found" if in_body else "a larger one counts whole in the fingerprint"
        yield limits.place_of(LIMITS.request_body), f"a body is looked into up to 1MiB: {what}"
