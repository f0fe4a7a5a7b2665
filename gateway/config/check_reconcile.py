"""Mistakes about how an unknown outcome is found out, seen with all else that the file says."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import assert_never

from gateway.config.check_caller import check_caller
from gateway.config.check_rules import check_rules
from gateway.config.fields import ConfigFields
from gateway.config.kinds import Reader, did_you_mean
from gateway.config.mistakes import Place
from gateway.config.policy_fields import IdempotencyFields
from gateway.config.reconcile_fields import ReconcileFields, RequestFields, RuleFields
from gateway.config.resolve import ResolvedRoute
from gateway.config.shapes import Section
from gateway.config.units import format_duration
from gateway.config.upstream_fields import TimeoutFields, UpstreamFields
from gateway.core.policy import ForwardKey, OnUnknown, Policy
from gateway.core.reconcile.placeholders import PRINCIPAL
from gateway.core.reconcile.policy import OWN_KEY, Cancel, Lookup, Manual, Pace, RequestTemplate, Resend, Verdict
from gateway.core.reconcile.request import check_template, placeholders_of

_N = ReconcileFields
NEVER_SEEN = "the upstream never sees the key, since `forward_key: none`"


def check_reconcile(reader: Reader, root: Section, routes: Sequence[ResolvedRoute]) -> None:
    _check_keys(reader, root)
    for one in routes:
        section, policy = one.idempotency, one.route.policy
        if section is None or policy is None:
            continue
        reconcile = section.sub(IdempotencyFields.RECONCILE)
        _check_reexecution(reader, root, one, section, policy)
        if reconcile.sound(_N.PROBE):
            _check_probe(reader, root, one, reconcile, policy)
            _check_pace(reader, reconcile, policy.reconcile.pace)
        check_caller(reader, section, policy)


def _check_keys(reader: Reader, root: Section) -> None:
    names = ConfigFields
    given = root.sound(names.ENCRYPTION_KEY) and root.get(names.ENCRYPTION_KEY) is not None
    if given and find_spec("cryptography") is None:
        reader.report(root.place_of(names.ENCRYPTION_KEY), "needs cryptography: pip install 'idempotency-gateway[sealing]'")
    for former in (names.FORMER_ENCRYPTION_KEYS, names.FORMER_ENCRYPTION_KEY_FILES):
        if root.sound(names.ENCRYPTION_KEY, former) and root.get(former) and not given:
            reader.report(root.place_of(former), "needs `encryption_key`: former ones open what is there, and encrypt nothing new")


def _check_reexecution(reader: Reader, root: Section, one: ResolvedRoute, section: Section, policy: Policy) -> None:
    if policy.on_unknown is not OnUnknown.REEXECUTE:
        return
    place = section.place_of(IdempotencyFields.ON_UNKNOWN)
    _check_time_limit(reader, root, one, place, "reexecute")
    if policy.forward_key is ForwardKey.NONE:
        reader.report(place, f"reexecute needs an upstream that deduplicates by key, and {NEVER_SEEN}")
    if isinstance(policy.reconcile.probe, Cancel):
        reader.report(place, "reexecute runs again what `probe: cancel` makes sure never happens; choose one of them")


def _check_probe(reader: Reader, root: Section, one: ResolvedRoute, section: Section, policy: Policy) -> None:
    place = section.place_of(_N.PROBE)
    match policy.reconcile.probe:
        case Lookup() | Cancel() as probe:
            require_time_limit(reader, root, one, place, f"`probe: {section.get(_N.PROBE)}`")
            _check_request(reader, root, section, policy, probe)
            _check_verdicts(reader, section, policy, probe)
        case Resend():
            _refuse_fields(reader, section, "sends the original request again")
            if root.sound(ConfigFields.ENCRYPTION_KEY) and root.get(ConfigFields.ENCRYPTION_KEY) is None:
                reader.report(place, "resend keeps each request until its outcome is known, and only encrypted: it needs `encryption_key`")
            if policy.forward_key is ForwardKey.NONE:
                reader.report(place, f"resend needs an upstream that deduplicates by key, and {NEVER_SEEN}")
        case Manual():
            _refuse_fields(reader, section, "asks nobody")
        case _:
            assert_never(policy.reconcile.probe)


def _refuse_fields(reader: Reader, section: Section, does: str) -> None:
    """What only lookup and cancel use. What `defaults` have for these is nobody's mistake where a route chooses another probe."""
    chosen = section.given(_N.PROBE) and _in_defaults(section.place_of(_N.PROBE))
    for field in (_N.UPSTREAM, _N.REQUEST, _N.RULES):
        place = section.place_of(field)
        if section.given(field) and (chosen or not _in_defaults(place)):
            reader.report(place, f"`probe: {section.get(_N.PROBE)}` {does}; remove this, or write `probe: lookup` or `probe: cancel`")


def _in_defaults(place: Place) -> bool:
    return place.path.startswith(f"{ConfigFields.DEFAULTS.name}.")


def require_time_limit(reader: Reader, root: Section, one: ResolvedRoute, place: Place, what: str) -> None:
    """Whoever concludes that something did not happen must know when it no longer can: no default is good enough for that."""
    upstreams, name = root.get(ConfigFields.UPSTREAMS) or {}, one.route.upstream
    if not root.sound(ConfigFields.UPSTREAMS) or name not in upstreams:
        return
    if not upstreams[name].given(UpstreamFields.MAX_EXECUTION):
        reader.report(
            place,
            f"{what} needs `upstreams.{name}.max_execution`, written out: until that long after an attempt it may still be running there, "
            "and nothing is concluded from its absence",
        )
    else:
        _check_time_limit(reader, root, one, place, what)


def _check_time_limit(reader: Reader, root: Section, one: ResolvedRoute, place: Place, what: str) -> None:
    """The gateway itself gives an exchange `timeouts.total`: one that may take so long has not surely ended before."""
    upstreams, name = root.get(ConfigFields.UPSTREAMS) or {}, one.route.upstream
    if not root.sound(ConfigFields.UPSTREAMS) or name not in upstreams:
        return
    upstream = upstreams[name]
    timeouts = upstream.sub(UpstreamFields.TIMEOUTS)
    if not upstream.sound(UpstreamFields.MAX_EXECUTION, UpstreamFields.TIMEOUTS) or not timeouts.sound(TimeoutFields.TOTAL):
        return
    limit, total = upstream.get(UpstreamFields.MAX_EXECUTION), timeouts.get(TimeoutFields.TOTAL)
    if limit < total:
        reader.report(
            place,
            f"{what} rests on `upstreams.{name}.max_execution` ({format_duration(limit)}), which is shorter than its `timeouts.total` "
            f"({format_duration(total)}): an operation that may take so long could still be running; raise the one or lower the other",
        )


def _check_request(reader: Reader, root: Section, section: Section, policy: Policy, probe: Lookup | Cancel) -> None:
    names = root.get(ConfigFields.UPSTREAMS)
    if probe.upstream is not None and root.sound(ConfigFields.UPSTREAMS) and probe.upstream not in names:
        words = f"unknown upstream `{probe.upstream}`{did_you_mean(probe.upstream, names)}"
        reader.report(section.place_of(_N.UPSTREAM), words)
    request = section.sub(_N.REQUEST)
    if request.broken or request.lost:
        return
    if not request.has(RequestFields.PATH):
        reader.report(request.place_of(RequestFields.PATH), "is required: what is asked for, as in /v1/charges?idempotency_key={key}")
        return
    lower = [name.lower() for name, _ in probe.request.headers]
    for name, _ in request.get(RequestFields.HEADERS_FILE):
        if lower.count(name.lower()) > 1:
            reader.report(request.place_of(RequestFields.HEADERS_FILE), f"`{name}` is in `headers` too; keep one of them")
    if not section.sound(_N.CAPTURE) or not _check_headers(reader, request, probe.request):
        return
    try:
        check_template(probe.request, captured_names(policy))
    except ValueError as problem:
        reader.report(request.place, str(problem))
        return
    placeholders = placeholders_of(probe.request)
    if not placeholders - {PRINCIPAL}:
        reader.report(request.place, "asks the same of every operation: name which one is meant, by {key} or {captured.NAME}")
    if policy.forward_key is ForwardKey.NONE and OWN_KEY in placeholders:
        reader.report(request.place, f"asks by {{key}}, and {NEVER_SEEN}; ask by a captured value")


def _check_headers(reader: Reader, request: Section, template: RequestTemplate) -> bool:
    """Whether the placeholders in header values are good. What is wrong with one is not repeated: it may be a part of a secret."""
    for name, value in template.headers:
        try:
            placeholders_of(replace(template, headers=((name, value),), target="/", body=None))
        except ValueError:
            words = "holds something in braces that is no placeholder, or none that may stand there"
            reader.report(request.place_of(RequestFields.HEADERS), f"the value of `{name}` {words}; there are {{key}}, {{captured.NAME}}")
            return False
    return True


def _check_verdicts(reader: Reader, section: Section, policy: Policy, probe: Lookup | Cancel) -> None:
    if not section.sound(_N.RULES):
        return
    place, rules = section.place_of(_N.RULES), section.get(_N.RULES) or ()
    if not rules:
        reader.report(place, "is required: what the answer means, as in [{status: [200], verdict: executed}]")
        return
    if section.sound(_N.CAPTURE):
        check_rules(reader, rules, probe.rules, captured_names(policy), event=False)
    needed, why = (
        (Verdict.EXECUTED, "what was executed would never be found")
        if isinstance(probe, Lookup)
        else (Verdict.NOT_EXECUTED, "what was cancelled would never be free for a retry")
    )
    if all(rule.verdict is not needed for rule in probe.rules) and all(one.sound(RuleFields.VERDICT) for one in rules):
        reader.report(place, f"no rule says {needed}: {why}")


def _check_pace(reader: Reader, section: Section, pace: Pace) -> None:
    if not section.sound(_N.LOOKS, _N.APART, _N.FIRST, _N.LONGEST, _N.ATTEMPTS, _N.MAX_AGE):
        return
    if pace.attempts < pace.looks:
        place = section.place_of(_N.ATTEMPTS if section.given(_N.ATTEMPTS) else _N.LOOKS)
        reader.report(place, f"attempts ({pace.attempts}) are fewer than looks ({pace.looks}): they could never agree")
    if pace.longest < pace.first:
        place = section.place_of(_N.LONGEST if section.given(_N.LONGEST) else _N.FIRST)
        reader.report(place, f"longest ({format_duration(pace.longest)}) is shorter than first ({format_duration(pace.first)})")
    least = pace.apart * (pace.looks - 1)
    if least >= pace.max_age:
        place = section.place_of(_N.MAX_AGE if section.given(_N.MAX_AGE) else _N.APART)
        words = f"{pace.looks} looks that are {format_duration(pace.apart)} apart take {format_duration(least)}"
        reader.report(place, f"{words}, and max_age is {format_duration(pace.max_age)}: they could never agree")


def captured_names(policy: Policy) -> frozenset[str]:
    """The values that a route keeps of its requests."""
    return frozenset(name for name, _ in policy.reconcile.capture)
