"""Mistakes in binding what is found to the caller: a lookup by what a client wrote may find another caller's operation."""

from collections.abc import Iterable

from gateway.config.kinds import Reader
from gateway.config.mistakes import Place
from gateway.config.policy_fields import IdempotencyFields
from gateway.config.reconcile_fields import ReconcileFields, RuleFields
from gateway.config.shapes import Field, Section
from gateway.config.webhook_fields import WebhookFields
from gateway.core.policy import BasicPrincipal, ForwardKey, HeaderPrincipal, Policy, PrincipalSource
from gateway.core.reconcile.placeholders import CAPTURED, PRINCIPAL, REQUEST_ID
from gateway.core.reconcile.policy import OWN_KEY, Cancel, Lookup, Rule, Verdict
from gateway.core.reconcile.request import binds_caller, placeholders_of

_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-auth-token", "x-access-token"})
_LEAK = "a client may write another caller's, and would get that one's answer"
_BELIEVE = "write `caller_bound: upstream` if no caller can name another's"


def check_caller(reader: Reader, section: Section, policy: Policy) -> None:
    """Report where a captured value, or a request's id, which a client may choose too, alone finds an operation; and where `{principal}`
    has no value that may be kept.
    """
    reconcile, webhook = section.sub(IdempotencyFields.RECONCILE), section.sub(IdempotencyFields.WEBHOOK)
    if policy.keeps_principal and section.sound(IdempotencyFields.PRINCIPAL) and section.has(IdempotencyFields.PRINCIPAL):
        why = _unnameable(policy)
        if why is not None:
            reader.report(section.place_of(IdempotencyFields.PRINCIPAL), f"`{{principal}}` is asked for, and {why}")
            return
    if not policy.principal:
        return
    if reconcile.sound(ReconcileFields.REQUEST) and _readable(reconcile, ReconcileFields.RULES) and not lookup_bound(reconcile, policy):
        _check_lookup(reader, reconcile.place_of(ReconcileFields.REQUEST), policy)
    if (
        webhook.sound(WebhookFields.BY)
        and _readable(webhook, WebhookFields.RULES)
        and policy.webhook is not None
        and policy.webhook.by != OWN_KEY
    ):
        trusted = webhook.get(WebhookFields.CALLER_BOUND) == "upstream"
        if not trusted and not _all_bound(policy.webhook.rules):
            words = f"finds the record by a value that the client chooses: {_LEAK}"
            remedy = "have the rules that say executed compare the event with who asked (`same_as: '{principal}'`)"
            reader.report(webhook.place_of(WebhookFields.BY), f"{words}; {remedy}, or {_BELIEVE}")


def _readable(section: Section, field: Field[tuple[Section, ...]]) -> bool:
    """Whether all of the rules could be read: what is wrong in one is reported there, and may be what binds it."""
    rules: tuple[Section, ...] = section.get(field) or ()
    whole = section.sound(field) and all(rule.sound(RuleFields.WHEN) for rule in rules)
    return whole and not any(condition.broken for rule in rules for condition in rule.get(RuleFields.WHEN))


def lookup_bound(reconcile: Section, policy: Policy) -> bool:
    """Whether what a lookup or a cancel finds is the caller's own, as far as the file tells."""
    probe = policy.reconcile.probe
    if not isinstance(probe, Lookup | Cancel) or reconcile.get(ReconcileFields.CALLER_BOUND) == "upstream" or _all_bound(probe.rules):
        return True
    asked = _asked(probe)
    return PRINCIPAL in asked or (OWN_KEY in asked and policy.forward_key is ForwardKey.DERIVED)


def _check_lookup(reader: Reader, place: Place, policy: Policy) -> None:
    probe = policy.reconcile.probe
    assert isinstance(probe, Lookup | Cancel), "only these ask"
    if any(name.startswith(CAPTURED) or name == REQUEST_ID for name in _asked(probe)):
        remedy = "ask for `{principal}` too, or have the rules that say executed compare what was found with it (`same_as: '{principal}'`)"
        reader.report(place, f"asks by a value that the client chooses: {_LEAK}; {remedy}, or {_BELIEVE}")


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
