"""How an unknown outcome is found out: mistakes, and findings that stop nothing."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import assert_never

from gateway.config.checks.common import WITHOUT_BODY, Findings, ResolvedRoute
from gateway.config.checks.rules import check_caller, check_rules, lookup_bound
from gateway.config.checks.upstreams import unknown_upstream
from gateway.config.mistakes import Place
from gateway.config.names import (
    ABOVE,
    ADMIN,
    CONFIG,
    ENCRYPTION,
    ENCRYPTION_KEYS,
    PACE,
    POLICY,
    PROBE,
    RECONCILE,
    REQUEST,
    ROUTE_MAP,
    RULE,
    SECOND_APPROVAL,
    TIMEOUTS,
    UPSTREAM,
    WEBHOOK,
)
from gateway.config.section import Section
from gateway.core.key_policy import ForwardKey
from gateway.core.policy import Mode, OnUnknown, Policy
from gateway.core.reconcile.placeholders import PRINCIPAL
from gateway.core.reconcile.policy import OWN_KEY, Cancel, Lookup, Manual, Pace, RequestTemplate, Resend, Test, Verdict
from gateway.core.reconcile.request import binds_caller, check_template, placeholders_of
from gateway.core.setting import setting_of
from gateway.core.units import format_duration

NEVER_SEEN = "the upstream never sees the key, since `forward_key: none`"
_OWN_KEYS = "write `forward_key: derived`, which gives each caller keys of its own at the upstream, or"
_MUST = "the upstream must deduplicate by key, for longer than the recovery may take: else an operation runs twice"


def check_recovery(root: Section, routes: Sequence[ResolvedRoute]) -> Findings:
    yield from _check_keys(root)
    for one in routes:
        if one.guard is None:
            continue
        section, policy = one.guard
        reconcile = section.sub(POLICY.reconcile)
        yield from _check_reexecution(root, one, section, policy)
        if reconcile.sound(PROBE.probe):
            yield from _check_probe(root, one, reconcile, policy)
            yield from _check_pace(reconcile, policy.reconcile.pace)
        yield from check_caller(section, policy)


def _check_keys(root: Section) -> Findings:
    given = root.sound(ENCRYPTION_KEYS.encryption_key) and root.get(ENCRYPTION_KEYS.encryption_key) is not None
    if given and find_spec("cryptography") is None:
        yield root.place_of(ENCRYPTION_KEYS.encryption_key), "needs cryptography: pip install 'idempotency-gateway[sealing]'"
    encryption = root.sub(CONFIG.encryption)
    if not given and root.sound(ENCRYPTION_KEYS.encryption_key) and encryption.get(ENCRYPTION.answers) is True:
        yield encryption.place_of(ENCRYPTION.answers), "needs `encryption_key`: openssl rand -hex 32"
    for former in (ENCRYPTION_KEYS.former_encryption_keys, ENCRYPTION_KEYS.former_encryption_key_files):
        if root.sound(ENCRYPTION_KEYS.encryption_key, former) and root.get(former) and not given:
            yield root.place_of(former), "needs `encryption_key`: former ones open what is there, and encrypt nothing new"


def _check_reexecution(root: Section, one: ResolvedRoute, section: Section, policy: Policy) -> Findings:
    if not policy.repeats:
        return
    place, word = section.place_of(POLICY.on_unknown), policy.on_unknown.value
    yield from _check_time_limit(root, one, place, word)
    if policy.forward_key is ForwardKey.NONE:
        yield place, f"{word} needs an upstream that deduplicates by key, and {NEVER_SEEN}"
    if isinstance(policy.reconcile.probe, Cancel):
        yield place, f"{word} runs again what `probe: cancel` makes sure never happens; choose one of them"


def _check_probe(root: Section, one: ResolvedRoute, section: Section, policy: Policy) -> Findings:
    place = section.place_of(PROBE.probe)
    match policy.reconcile.probe:
        case Lookup() | Cancel() as probe:
            yield from require_time_limit(root, one, place, f"`probe: {section.get(PROBE.probe)}`")
            yield from _check_request(root, section, policy, probe)
            yield from _check_verdicts(section, policy, probe)
        case Resend():
            yield from _refuse_fields(section, "sends the original request again")
            if root.sound(ENCRYPTION_KEYS.encryption_key) and root.get(ENCRYPTION_KEYS.encryption_key) is None:
                yield place, "resend keeps each request until its outcome is known, and only encrypted: it needs `encryption_key`"
            if policy.forward_key is ForwardKey.NONE:
                yield place, f"resend needs an upstream that deduplicates by key, and {NEVER_SEEN}"
        case Manual():
            yield from _refuse_fields(section, "asks nobody")
        case _:
            assert_never(policy.reconcile.probe)


def _refuse_fields(section: Section, does: str) -> Findings:
    """What only lookup and cancel use. `defaults` may have these for routes that choose another probe."""
    chosen = section.given(PROBE.probe) and _in_defaults(section.place_of(PROBE.probe))
    for field in (PROBE.upstream, PROBE.request, PROBE.rules):
        place = section.place_of(field)
        if section.given(field) and (chosen or not _in_defaults(place)):
            words = f"`probe: {section.get(PROBE.probe)}` {does}"
            yield place, f"{words}; remove this, or write `probe: lookup` or `probe: cancel`"


def require_time_limit(root: Section, one: ResolvedRoute, place: Place, what: str) -> Findings:
    """Whoever concludes that something did not happen must know when it no longer can: no default is good enough for
    that.
    """
    name = one.route.upstream
    upstream = root.by_name(CONFIG.upstreams).get(name)
    if upstream is None or not root.sound(CONFIG.upstreams):
        return
    if upstream.given(UPSTREAM.max_execution):
        yield from _check_time_limit(root, one, place, what)
        return
    words = f"{what} needs `upstreams.{name}.max_execution`, written out: until that long after an attempt it may still be running there"
    yield place, f"{words}, and nothing is concluded from its absence"


def _check_time_limit(root: Section, one: ResolvedRoute, place: Place, what: str) -> Findings:
    """The gateway itself gives an exchange `timeouts.total`: one that may take so long has not surely ended before."""
    name = one.route.upstream
    upstream = root.by_name(CONFIG.upstreams).get(name)
    if upstream is None or not root.sound(CONFIG.upstreams):
        return
    timeouts = upstream.sub(UPSTREAM.timeouts)
    if not upstream.sound(UPSTREAM.max_execution, UPSTREAM.timeouts) or not timeouts.sound(TIMEOUTS.total):
        return
    limit, total = upstream.get(UPSTREAM.max_execution), timeouts.get(TIMEOUTS.total)
    if limit < total:
        words = f"{what} rests on `upstreams.{name}.max_execution` ({format_duration(limit)}), which is shorter than its `timeouts.total`"
        running = f"({format_duration(total)}): an operation that may take so long could still be running"
        yield place, f"{words} {running}; raise the one or lower the other"


def _check_request(root: Section, section: Section, policy: Policy, probe: Lookup | Cancel) -> Findings:
    if probe.upstream is not None and (unknown := unknown_upstream(probe.upstream, root)) is not None:
        yield section.place_of(PROBE.upstream), unknown
    request = section.sub(PROBE.request)
    if request.broken or request.lost:
        return
    if not request.has(REQUEST.path):
        yield request.place_of(REQUEST.path), "is required: what is asked for, as in /v1/charges?idempotency_key={key}"
        return
    lower = [name.lower() for name, _ in probe.request.headers]
    for name, _ in request.get(REQUEST.headers_file):
        if lower.count(name.lower()) > 1:
            yield request.place_of(REQUEST.headers_file), f"`{name}` is in `headers` too; keep one of them"
    if not section.sound(RECONCILE.capture):
        return
    if (bad := _bad_header(probe.request)) is not None:
        words = "holds something in braces that is no placeholder, or none that may stand there"
        yield request.place_of(REQUEST.headers), f"the value of `{bad}` {words}; there are {{key}}, {{captured.NAME}}"
        return
    try:
        check_template(probe.request, captured_names(policy))
    except ValueError as problem:
        yield request.place, str(problem)
        return
    placeholders = placeholders_of(probe.request)
    if not placeholders - {PRINCIPAL}:
        yield request.place, "asks the same of every operation: name which one is meant, by {key} or {captured.NAME}"
    if policy.forward_key is ForwardKey.NONE and OWN_KEY in placeholders:
        yield request.place, f"asks by {{key}}, and {NEVER_SEEN}; ask by a captured value"


def _bad_header(template: RequestTemplate) -> str | None:
    """The first header field of which the placeholders are not good. What is wrong is not told: it may be a part of a secret."""
    for name, value in template.headers:
        try:
            placeholders_of(replace(template, headers=((name, value),), target="/", body=None))
        except ValueError:
            return name
    return None


def _check_verdicts(section: Section, policy: Policy, probe: Lookup | Cancel) -> Findings:
    if not section.sound(PROBE.rules):
        return
    place, rules = section.place_of(PROBE.rules), section.each(PROBE.rules)
    if not rules:
        yield place, "is required: what the answer means, as in [{status: [200], verdict: executed}]"
        return
    if section.sound(RECONCILE.capture):
        yield from check_rules(rules, probe.rules, captured_names(policy), event=False)
    needed, why = (
        (Verdict.EXECUTED, "what was executed would never be found")
        if isinstance(probe, Lookup)
        else (Verdict.NOT_EXECUTED, "what was cancelled would never be free for a retry")
    )
    if all(rule.verdict is not needed for rule in probe.rules) and all(one.sound(RULE.verdict) for one in rules):
        yield place, f"no rule says {needed}: {why}"


def _check_pace(section: Section, pace: Pace) -> Findings:
    if not section.sound(PACE.looks, PACE.apart, PACE.first, PACE.longest, PACE.attempts, PACE.max_age):
        return
    if pace.attempts < pace.looks:
        place = section.place_of(PACE.attempts, PACE.looks)
        yield place, f"attempts ({pace.attempts}) are fewer than looks ({pace.looks}): they could never agree"
    if pace.longest < pace.first:
        place = section.place_of(PACE.longest, PACE.first)
        yield place, f"longest ({format_duration(pace.longest)}) is shorter than first ({format_duration(pace.first)})"
    least = pace.apart * (pace.looks - 1)
    if least >= pace.max_age:
        place = section.place_of(PACE.max_age, PACE.apart)
        words = f"{pace.looks} looks that are {format_duration(pace.apart)} apart take {format_duration(least)}"
        yield place, f"{words}, and max_age is {format_duration(pace.max_age)}: they could never agree"


def _in_defaults(place: Place) -> bool:
    return place.path.startswith(f"{setting_of(ROUTE_MAP.defaults).name}.")


def captured_names(policy: Policy) -> frozenset[str]:
    """The values that a route keeps of its requests."""
    return frozenset(name for name, _ in policy.reconcile.capture)


def warn_of_recovery(root: Section, routes: Sequence[ResolvedRoute]) -> Findings:
    guarded = [(one, *one.guard) for one in routes if one.guard is not None]
    yield from _warn_of_observed([(section, policy) for _, section, policy in guarded])
    for one, section, policy in guarded:
        yield from _warn_of_repetition(section, policy)
        yield from _warn_of_looks(section.sub(POLICY.reconcile), policy)
        yield from _warn_of_absence(section.sub(POLICY.reconcile), policy)
        yield from _warn_of_shared_keys(section, policy)
        yield from _warn_of_capture(one, section, policy, root)


def _warn_of_observed(guarded: Sequence[tuple[Section, Policy]]) -> Findings:
    """From `defaults`, it may serve another route that enforces."""
    for field in (POLICY.reconcile, POLICY.webhook):
        given = [(section.place_of(field), policy) for section, policy in guarded if section.given(field)]
        used = {place for place, policy in given if policy.mode is not Mode.OBSERVE}
        for place, policy in given:
            idle = field is POLICY.reconcile and policy.reconcile.probe == Manual()
            if place not in used and not idle:
                yield place, "has no effect with `mode: observe`: nobody looks for what became of an observed request"


def _warn_of_repetition(section: Section, policy: Policy) -> Findings:
    if isinstance(policy.reconcile.probe, Resend):
        yield section.sub(POLICY.reconcile).place_of(PROBE.probe), f"resend: {_MUST}"
    if policy.on_unknown is OnUnknown.REEXECUTE:
        yield section.place_of(POLICY.on_unknown), f"reexecute: {_MUST}"
    if policy.on_unknown is OnUnknown.RESUME:
        words = "the upstream must go on from its last recovery point without doing again what came before"
        yield section.place_of(POLICY.on_unknown), f"resume: {words}: else an operation runs twice"


def _warn_of_looks(section: Section, policy: Policy) -> Findings:
    probe, pace = policy.reconcile.probe, policy.reconcile.pace
    if isinstance(probe, Lookup) and pace.looks == 1 and any(rule.verdict is Verdict.NOT_EXECUTED for rule in probe.rules):
        yield section.place_of(PACE.looks), "1: a lookup that lags behind for once would be believed, and the operation run again"
    if isinstance(probe, Manual):
        for field in (PACE.timeout, PACE.concurrency):
            if section.given(field) and section.get(field) != setting_of(field).default:
                yield section.place_of(field), "has no effect with `probe: manual`"


def _warn_of_absence(section: Section, policy: Policy) -> Findings:
    """Of an event that cannot be said: it is signed, and the provider's own."""
    probe = policy.reconcile.probe
    if not isinstance(probe, Lookup | Cancel):
        return
    for one, rule in zip(section.each(PROBE.rules), probe.rules, strict=True):
        absent = bool(rule.when) and all(condition.test is Test.MISSING for condition in rule.when)
        if rule.verdict is Verdict.NOT_EXECUTED and absent and not rule.statuses:
            words = "an error in JSON meets this too, and would mean not_executed"
            yield one.place_of(RULE.when), f"{words}; name the `status`, or something that must be there"


def _warn_of_shared_keys(section: Section, policy: Policy) -> Findings:
    """Where callers are told apart here, and have the same keys at the upstream."""
    if not policy.principal or policy.forward_key is not ForwardKey.AS_RECEIVED:
        return
    probe, webhook = policy.reconcile.probe, policy.webhook
    asked = placeholders_of(probe.request) if isinstance(probe, Lookup | Cancel) else frozenset[str]()
    if OWN_KEY in asked and not lookup_bound(section.sub(POLICY.reconcile), policy):
        words = "asks by {key} alone: of two callers who use one key, one would get the other's answer"
        place = section.sub(POLICY.reconcile).place_of(PROBE.request)
        yield place, f"{words}; {_OWN_KEYS} ask for `{{principal}}` too"
    bound = webhook is not None and all(binds_caller(rule) for rule in webhook.rules if rule.verdict is Verdict.EXECUTED)
    trusted = section.sub(POLICY.webhook).get(WEBHOOK.caller_bound) == "upstream" if webhook is not None else False
    if webhook is not None and webhook.by == OWN_KEY and not bound and not trusted:
        words = "key: of two callers who use one key, one would get the other's answer"
        yield (
            section.sub(POLICY.webhook).place_of(WEBHOOK.by),
            f"{words}; {_OWN_KEYS} have the rules compare the event with `{{principal}}`",
        )


def _warn_of_capture(one: ResolvedRoute, section: Section, policy: Policy, root: Section) -> Findings:
    if not policy.reconcile.capture:
        return
    place = section.sub(POLICY.reconcile).place_of(RECONCILE.capture)
    bodiless = sorted(one.route.methods & WITHOUT_BODY)
    if bodiless:
        yield place, f"{bodiless[0]} requests have no body to capture anything from"
    used = {policy.webhook.by} if policy.webhook is not None else set()
    used |= {root.sub(CONFIG.admin).sub(ADMIN.second_approval).sub(SECOND_APPROVAL.above).get(ABOVE.capture) or ""}
    rules = policy.webhook.rules if policy.webhook is not None else ()
    probe = policy.reconcile.probe
    if isinstance(probe, Lookup | Cancel):
        used |= placeholders_of(probe.request)
        rules = (*rules, *probe.rules)
    used |= {name for rule in rules for name in placeholders_of(rule.answer)}
    used |= {str(name) for rule in rules for condition in rule.when if condition.test is Test.SAME_AS for name in condition.values}
    for name, _ in policy.reconcile.capture:
        if not used & {name, f"captured.{name}"}:
            yield place, f"`{name}` is kept with each record, and nothing uses it"
