"""Findings about how unknown outcomes are found out that stop nothing."""

from collections.abc import Iterator, Sequence
from typing import Any

from gateway.config.check_caller import lookup_bound
from gateway.config.check_webhook import taken_by
from gateway.config.fields import ConfigFields
from gateway.config.mistakes import Place
from gateway.config.policy_fields import IdempotencyFields
from gateway.config.policy_warnings import WITHOUT_BODY
from gateway.config.reconcile_fields import ReconcileFields, RuleFields
from gateway.config.resolve import ResolvedRoute
from gateway.config.shapes import Field, Section
from gateway.config.webhook_fields import WebhookFields
from gateway.core.policy import ForwardKey, Mode, OnUnknown, Policy
from gateway.core.reconcile.policy import OWN_KEY, Cancel, Lookup, Manual, Resend, StandardSignature, Test, Verdict, Webhook
from gateway.core.reconcile.request import binds_caller, placeholders_of

SHORT_SECRET = 16
_N = ReconcileFields
_I = IdempotencyFields
_OWN_KEYS = "write `forward_key: derived`, which gives each caller keys of its own at the upstream, or"
_MUST = "the upstream must deduplicate by key, for longer than the recovery may take: else an operation runs twice"


def warn_of_reconciliation(routes: Sequence[ResolvedRoute], root: Section) -> Iterator[tuple[Place, str]]:
    guarded = [(one, one.idempotency, one.route.policy) for one in routes]
    found = [(one, section, policy) for one, section, policy in guarded if section is not None and policy is not None]
    yield from _warn_of_observed([(section, policy) for _, section, policy in found])
    for one, section, policy in found:
        yield from _warn_of_repetition(section, policy)
        yield from _warn_of_looks(section.sub(_I.RECONCILE), policy)
        yield from _warn_of_absence(section.sub(_I.RECONCILE), policy)
        yield from _warn_of_shared_keys(section, policy)
        yield from _warn_of_capture(one, section, policy)
        if policy.webhook is not None:
            yield from _warn_of_webhook(section.sub(_I.WEBHOOK), policy.webhook)
            yield from _warn_of_path(section.sub(_I.WEBHOOK), policy.webhook, routes, root)
    if root.get(ConfigFields.WEBHOOK_LISTEN) is not None and all(policy.webhook is None for _, _, policy in found):
        yield root.place_of(ConfigFields.WEBHOOK_LISTEN), "has no effect: no route has a `webhook`"


def _warn_of_observed(guarded: Sequence[tuple[Section, Policy]]) -> Iterator[tuple[Place, str]]:
    """From `defaults`, it may serve another route that enforces."""
    for field in (_I.RECONCILE, _I.WEBHOOK):
        given = [(section.place_of(field), policy) for section, policy in guarded if section.given(field)]
        used = {place for place, policy in given if policy.mode is not Mode.OBSERVE}
        for place, policy in given:
            idle = field is _I.RECONCILE and policy.reconcile.probe == Manual()
            if place not in used and not idle:
                yield place, "has no effect with `mode: observe`: nobody looks for what became of an observed request"


def _warn_of_repetition(section: Section, policy: Policy) -> Iterator[tuple[Place, str]]:
    if isinstance(policy.reconcile.probe, Resend):
        yield section.sub(_I.RECONCILE).place_of(_N.PROBE), f"resend: {_MUST}"
    if policy.on_unknown is OnUnknown.REEXECUTE:
        yield section.place_of(_I.ON_UNKNOWN), f"reexecute: {_MUST}"


def _warn_of_looks(section: Section, policy: Policy) -> Iterator[tuple[Place, str]]:
    probe, pace = policy.reconcile.probe, policy.reconcile.pace
    if isinstance(probe, Lookup) and pace.looks == 1 and any(rule.verdict is Verdict.NOT_EXECUTED for rule in probe.rules):
        yield section.place_of(_N.LOOKS), "1: a lookup that lags behind for once would be believed, and the operation run again"
    if isinstance(probe, Manual):
        fields: tuple[Field[Any], ...] = (_N.TIMEOUT, _N.CONCURRENCY)
        for field in fields:
            if section.given(field) and section.get(field) != field.default:
                yield section.place_of(field), "has no effect with `probe: manual`"


def _warn_of_absence(section: Section, policy: Policy) -> Iterator[tuple[Place, str]]:
    """Of an event that cannot be said: it is signed, and the provider's own."""
    probe = policy.reconcile.probe
    if not isinstance(probe, Lookup | Cancel):
        return
    sections = section.get(_N.RULES)
    for one, rule in zip(sections, probe.rules, strict=True):
        absent = bool(rule.when) and all(condition.test is Test.MISSING for condition in rule.when)
        if rule.verdict is Verdict.NOT_EXECUTED and absent and not rule.statuses:
            words = "an error in JSON meets this too, and would mean not_executed"
            yield one.place_of(RuleFields.WHEN), f"{words}; name the `status`, or something that must be there"


def _warn_of_shared_keys(section: Section, policy: Policy) -> Iterator[tuple[Place, str]]:
    """Where callers are told apart here, and have the same keys at the upstream."""
    if not policy.principal or policy.forward_key is not ForwardKey.AS_RECEIVED:
        return
    probe, webhook = policy.reconcile.probe, policy.webhook
    asked = placeholders_of(probe.request) if isinstance(probe, Lookup | Cancel) else frozenset[str]()
    if OWN_KEY in asked and not lookup_bound(section.sub(_I.RECONCILE), policy):
        words = "asks by {key} alone: of two callers who use one key, one would get the other's answer"
        place = section.sub(_I.RECONCILE).place_of(_N.REQUEST)
        yield place, f"{words}; {_OWN_KEYS} ask for `{{principal}}` too"
    bound = webhook is not None and all(binds_caller(rule) for rule in webhook.rules if rule.verdict is Verdict.EXECUTED)
    trusted = section.sub(_I.WEBHOOK).get(WebhookFields.CALLER_BOUND) == "upstream" if webhook is not None else False
    if webhook is not None and webhook.by == OWN_KEY and not bound and not trusted:
        words = "key: of two callers who use one key, one would get the other's answer"
        yield (
            section.sub(_I.WEBHOOK).place_of(WebhookFields.BY),
            f"{words}; {_OWN_KEYS} have the rules compare the event with `{{principal}}`",
        )


def _warn_of_capture(one: ResolvedRoute, section: Section, policy: Policy) -> Iterator[tuple[Place, str]]:
    if not policy.reconcile.capture:
        return
    place = section.sub(_I.RECONCILE).place_of(_N.CAPTURE)
    bodiless = sorted(one.route.methods & WITHOUT_BODY)
    if bodiless:
        yield place, f"{bodiless[0]} requests have no body to capture anything from"
    used = {policy.webhook.by} if policy.webhook is not None else set()
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


def _warn_of_webhook(section: Section, webhook: Webhook) -> Iterator[tuple[Place, str]]:
    signature = webhook.signature
    if any(len(secret) < SHORT_SECRET for secret in signature.secrets):
        words = f"a secret of less than {SHORT_SECRET} bytes can be guessed from one event"
        yield section.place_of(WebhookFields.SIGNATURE), f"{words}, and events forged with it; have the provider make a longer one"
    if webhook.event_id.startswith("header:") and not isinstance(signature, StandardSignature):
        words = "is a header field, which the signature does not cover: a replay with another one is a new event"
        yield section.place_of(WebhookFields.EVENT_ID), f"{words}; name a place within the event"


def _warn_of_path(section: Section, webhook: Webhook, routes: Sequence[ResolvedRoute], root: Section) -> Iterator[tuple[Place, str]]:
    """A closing /** takes whatever else there is, and so is meant to give way."""
    if root.get(ConfigFields.WEBHOOK_LISTEN) is not None:
        return
    taken = taken_by(webhook.path, [one.route for one in routes])
    if taken is not None and taken.policy is None and not taken.path.endswith("/**"):
        words = f"is a path of route `{taken.id}` too"
        yield section.place_of(WebhookFields.PATH), f"{words}: what is posted there no longer reaches its upstream"
