"""Rules, of probes and of webhooks alike: what an answer or an event is taken to mean, and whether what is found is the
caller's own.
"""

from collections.abc import Collection, Iterable, Sequence

from gateway.config.checks.common import Findings
from gateway.config.mistakes import Place
from gateway.config.names import CONDITION, POLICY, PROBE, RULE, WEBHOOK
from gateway.config.section import Section
from gateway.core.key_policy import ForwardKey
from gateway.core.policy import Policy
from gateway.core.principal_source import BasicPrincipal, HeaderPrincipal, PrincipalSource
from gateway.core.reconcile.placeholders import CAPTURED, PRINCIPAL, REQUEST_ID
from gateway.core.reconcile.policy import OWN_KEY, Cancel, Lookup, Rule, Test, Verdict
from gateway.core.reconcile.request import binds_caller, check_plan, placeholders_of

_SAYS_NOTHING = (
    frozenset(range(300, 400))
    | frozenset({400, 401, 403, 405, 406, 407, 408, 411, 413, 414, 415, 416, 417, 421, 425, 426, 428, 429, 431, 451})
    | frozenset(range(500, 600))
)
"""Statuses about the asking, not about what was asked for: a redirect to a login page, a question that is not taken, an
error.
"""
_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-auth-token", "x-access-token"})
_LEAK = "a client may write another caller's, and would get that one's answer"
_BELIEVE = "write `caller_bound: upstream` if no caller can name another's"


def check_rules(sections: Sequence[Section], rules: Sequence[Rule], captured: Collection[str], *, event: bool) -> Findings:
    """`sections` and `rules` belong together, one by one; `captured` are the names that placeholders may use. `event`:
    of a webhook.
    """
    for index, (section, rule) in enumerate(zip(sections, rules, strict=True)):
        if not section.sound(RULE.statuses, RULE.when, RULE.verdict, RULE.answer) or any(one.broken for one in section.each(RULE.when)):
            continue
        covering = next((at for at, earlier in enumerate(rules[:index]) if covers(earlier, rule)), None)
        if covering is not None:
            yield section.place, f"never applies: all that it takes goes to rule {covering + 1}; put this one first, or remove it"
        if event and rule.statuses:
            yield section.place_of(RULE.statuses), "an event has no status; say with `when` which events are meant"
            continue
        for one, condition in zip(section.each(RULE.when), rule.when, strict=True):
            named = str(condition.values[0]) if condition.test is Test.SAME_AS and condition.values else ""
            if named.startswith(CAPTURED) and named.removeprefix(CAPTURED) not in captured:
                yield one.place_of(CONDITION.same_as), f"`{{{named}}}` is not captured; name it in `reconcile.capture`"
        yield from _check_verdict(section, rule, event=event)
        yield from _check_answer(section, rule, captured, event=event)


def covers(earlier: Rule, later: Rule) -> bool:
    """Whether `earlier` surely applies to all that `later` applies to."""
    statuses = not earlier.statuses or (bool(later.statuses) and later.statuses <= earlier.statuses)
    return statuses and set(map(repr, earlier.when)) <= set(map(repr, later.when))


def _check_verdict(section: Section, rule: Rule, *, event: bool) -> Findings:
    place = section.place_of(RULE.verdict)
    if rule.verdict is Verdict.NOT_YET_KNOWN or rule.when:
        return
    if not rule.statuses:
        what = "any event at all" if event else "any answer at all, an error or a login page too,"
        remedy = "`when`" if event else "`status` or `when`"
        yield place, f"{what} would mean {rule.verdict}; say with {remedy} which ones do"
    elif silent := sorted(rule.statuses & _SAYS_NOTHING):
        words = f"{silent[0]} says that the question was not answered, and nothing about the operation"
        remedy = "leave it out (it is not yet known then), or say with `when` what its body has"
        yield section.place_of(RULE.statuses), f"{words}; {remedy}"


def _check_answer(section: Section, rule: Rule, captured: Collection[str], *, event: bool) -> Findings:
    place = section.place_of(RULE.answer)
    if rule.verdict is not Verdict.EXECUTED:
        if section.given(RULE.answer):
            yield place, f"an answer is that of an executed operation, and this rule says {rule.verdict}; remove it"
        return
    if section.sub(RULE.answer).broken:
        return
    try:
        check_plan(rule.answer, captured, event=event)
    except ValueError as problem:
        yield place, str(problem)


def check_caller(section: Section, policy: Policy) -> Findings:
    """Where a captured value, or a request's id, which a client may choose too, alone finds an operation; and
    where `{principal}` has no value that may be kept.
    """
    reconcile, webhook = section.sub(POLICY.reconcile), section.sub(POLICY.webhook)
    if policy.keeps_principal and section.sound(POLICY.principal) and section.has(POLICY.principal):
        why = _unnameable(policy)
        if why is not None:
            yield section.place_of(POLICY.principal), f"`{{principal}}` is asked for, and {why}"
            return
    if not policy.principal:
        return
    if reconcile.sound(PROBE.request) and _readable(reconcile, PROBE.rules) and not lookup_bound(reconcile, policy):
        yield from _check_lookup(reconcile.place_of(PROBE.request), policy)
    event = policy.webhook
    if event is None or event.by == OWN_KEY or event.caller_bound == "upstream" or _all_bound(event.rules):
        return
    if webhook.sound(WEBHOOK.by) and _readable(webhook, WEBHOOK.rules):
        words = f"finds the record by a value that the client chooses: {_LEAK}"
        remedy = "have the rules that say executed compare the event with who asked (`same_as: '{principal}'`)"
        yield webhook.place_of(WEBHOOK.by), f"{words}; {remedy}, or {_BELIEVE}"


def _readable(section: Section, setting: object) -> bool:
    """Whether all of the rules could be read: what is wrong in one is reported there, and may be what binds it."""
    rules = section.each(setting)
    whole = section.sound(setting) and all(rule.sound(RULE.when) for rule in rules)
    return whole and not any(condition.broken for rule in rules for condition in rule.each(RULE.when))


def lookup_bound(reconcile: Section, policy: Policy) -> bool:
    """Whether what a lookup or a cancel finds is the caller's own, as far as the file tells."""
    probe = policy.reconcile.probe
    if not isinstance(probe, Lookup | Cancel) or reconcile.get(PROBE.caller_bound) == "upstream" or _all_bound(probe.rules):
        return True
    asked = _asked(probe)
    return PRINCIPAL in asked or (OWN_KEY in asked and policy.forward_key is ForwardKey.DERIVED)


def _check_lookup(place: Place, policy: Policy) -> Findings:
    probe = policy.reconcile.probe
    assert isinstance(probe, Lookup | Cancel), "only these ask"
    if any(name.startswith(CAPTURED) or name == REQUEST_ID for name in _asked(probe)):
        remedy = "ask for `{principal}` too, or have the rules that say executed compare what was found with it (`same_as: '{principal}'`)"
        yield place, f"asks by a value that the client chooses: {_LEAK}; {remedy}, or {_BELIEVE}"


def _asked(probe: Lookup | Cancel) -> frozenset[str]:
    try:
        return placeholders_of(probe.request)
    except ValueError:  # reported where it stands
        return frozenset()


def _all_bound(rules: Iterable[Rule]) -> bool:
    executed = [rule for rule in rules if rule.verdict is Verdict.EXECUTED]
    return bool(executed) and all(binds_caller(rule) for rule in executed)


def _unnameable(policy: Policy) -> str | None:
    """Why who asks cannot be named; None if it can."""
    if not policy.principal:
        return "with `none` nobody is told apart"
    if len(policy.principal) > 1:
        return "several sources together have no one value; name one"
    if _is_credential(policy.principal[0]):
        return "this is a credential, which would be kept in clear; name a source that says who asks, such as an account's id or a claim"
    return None


def _is_credential(source: PrincipalSource) -> bool:
    return isinstance(source, BasicPrincipal) or (isinstance(source, HeaderPrincipal) and source.name.lower() in _CREDENTIALS)
