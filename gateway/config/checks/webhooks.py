"""Webhooks: mistakes within one and with the routes beside which they stand, and what is rarely meant."""

from collections.abc import Sequence

from gateway.config.checks.common import Findings, ResolvedRoute
from gateway.config.checks.recovery import NEVER_SEEN, captured_names, require_time_limit
from gateway.config.checks.rules import check_rules
from gateway.config.names import CONFIG, POLICY, RECONCILE, ROUTE, WEBHOOK
from gateway.config.section import Section
from gateway.core.key_policy import ForwardKey
from gateway.core.kinds import did_you_mean
from gateway.core.path_pattern import parse_pattern, path_segments
from gateway.core.policy import Policy, Route
from gateway.core.reconcile.policy import OWN_KEY, PlainSignature, StandardSignature, Verdict, Webhook
from gateway.core.units import format_duration

_REQUIRED = (
    (WEBHOOK.path, "where the provider posts its events, as in /webhooks/payments"),
    (WEBHOOK.signature, "how its events are known to be its own; anybody may post here"),
    (WEBHOOK.event_id, "where an event's id is, as in /id or header:webhook-id"),
    (WEBHOOK.find, "where in the event the key is, as in /data/object/metadata/idempotency_key"),
    (WEBHOOK.rules, "what its events mean"),
)
SHORT_SECRET = 16


def check_webhooks(root: Section, routes: Sequence[ResolvedRoute]) -> Findings:
    seen: dict[str, ResolvedRoute] = {}
    for one in routes:
        if one.guard is None or one.guard[1].webhook is None or not one.guard[0].sound(POLICY.webhook):
            continue
        section, policy = one.guard
        webhook = section.sub(POLICY.webhook)
        for field, words in _REQUIRED:
            if not webhook.given(field):
                yield webhook.place_of(field), f"is required: {words}"
        event = one.guard[1].webhook
        yield from _check_signature(webhook, event)
        yield from _check_finding(section, webhook, policy, event)
        yield from _check_rules(root, one, webhook, policy)
        if webhook.given(WEBHOOK.path) and webhook.sound(WEBHOOK.path):
            yield from _check_path(root, routes, webhook, event.path)
            first = seen.setdefault(event.path, one)
            if first is not one:
                words = f"{event.path} is the webhook of route `{first.route.id}` too; each route has its own"
                yield webhook.place_of(WEBHOOK.path), words


def taken_by(path: str, routes: Sequence[Route]) -> Route | None:
    """The route that would take a provider's request, were it no webhook's."""
    segments = path_segments(path)
    matching = (route for route in routes if not route.methods or "POST" in route.methods)
    return next((route for route in matching if parse_pattern(route.path).matches(segments)), None)


def _check_path(root: Section, routes: Sequence[ResolvedRoute], webhook: Section, path: str) -> Findings:
    if not root.sound(CONFIG.webhook_listen) or root.get(CONFIG.webhook_listen) is not None:
        return
    readable = [one.route for one in routes if one.section.sound(ROUTE.path, ROUTE.methods)]
    taken = taken_by(path, readable)
    if taken is not None and taken.policy is not None:
        words = f"is a path of the guarded route `{taken.id}`, whose requests would be taken for events"
        yield webhook.place_of(WEBHOOK.path), f"{words}; choose another one, or a listener of its own (`webhook_listen`)"


def _check_signature(webhook: Section, policy: Webhook) -> Findings:
    signature = policy.signature
    if not webhook.sound(WEBHOOK.signature, WEBHOOK.remember) or isinstance(signature, PlainSignature):
        return
    if policy.remember < 2 * signature.tolerance:
        tolerance = f"the signature's tolerance ({format_duration(signature.tolerance)})"
        words = f"{format_duration(policy.remember)} is shorter than twice {tolerance}"
        yield webhook.place_of(WEBHOOK.remember), f"{words}: an event could be played back after it is forgotten"


def _check_finding(section: Section, webhook: Section, policy: Policy, event: Webhook) -> Findings:
    place, captured = webhook.place_of(WEBHOOK.by), captured_names(policy)
    if not webhook.sound(WEBHOOK.by) or not section.sub(POLICY.reconcile).sound(RECONCILE.capture):
        return
    if event.by != OWN_KEY and event.by not in captured:
        hint = did_you_mean(event.by, captured | {OWN_KEY}) or "; name it in `reconcile.capture`, or write key"
        yield place, f"no value is captured as `{event.by}`{hint}"
    if event.by == OWN_KEY and policy.forward_key is ForwardKey.NONE:
        yield place, f"no event can name the key: {NEVER_SEEN}; find by a captured value"


def _check_rules(root: Section, one: ResolvedRoute, webhook: Section, policy: Policy) -> Findings:
    rules = webhook.each(WEBHOOK.rules)
    if not webhook.sound(WEBHOOK.rules) or not rules or policy.webhook is None:
        return
    yield from check_rules(rules, policy.webhook.rules, captured_names(policy), event=True)
    verdicts = {rule.verdict for rule in policy.webhook.rules}
    if verdicts == {Verdict.NOT_YET_KNOWN}:
        yield webhook.place_of(WEBHOOK.rules), "no rule says executed or not_executed: its events would tell nothing"
    if Verdict.NOT_EXECUTED in verdicts:
        yield from require_time_limit(root, one, webhook.place_of(WEBHOOK.rules), "a webhook that says not_executed")


def warn_of_webhooks(routes: Sequence[ResolvedRoute], root: Section) -> Findings:
    used = False
    for one in routes:
        if one.guard is not None and (event := one.guard[1].webhook) is not None:
            used = True
            webhook = one.guard[0].sub(POLICY.webhook)
            yield from _warn_of_webhook(webhook, event)
            yield from _warn_of_path(webhook, event, routes, root)
    if root.get(CONFIG.webhook_listen) is not None and not used:
        yield root.place_of(CONFIG.webhook_listen), "has no effect: no route has a `webhook`"


def _warn_of_webhook(section: Section, webhook: Webhook) -> Findings:
    signature = webhook.signature
    if any(len(secret) < SHORT_SECRET for secret in signature.secrets):
        words = f"a secret of less than {SHORT_SECRET} bytes can be guessed from one event"
        yield section.place_of(WEBHOOK.signature), f"{words}, and events forged with it; have the provider make a longer one"
    if webhook.event_id.startswith("header:") and not isinstance(signature, StandardSignature):
        words = "is a header field, which the signature does not cover: a replay with another one is a new event"
        yield section.place_of(WEBHOOK.event_id), f"{words}; name a place within the event"


def _warn_of_path(section: Section, webhook: Webhook, routes: Sequence[ResolvedRoute], root: Section) -> Findings:
    """A closing /** takes whatever else there is, and so is meant to give way."""
    if root.get(CONFIG.webhook_listen) is not None:
        return
    taken = taken_by(webhook.path, [one.route for one in routes])
    if taken is not None and taken.policy is None and not taken.path.endswith("/**"):
        words = f"is a path of route `{taken.id}` too"
        yield section.place_of(WEBHOOK.path), f"{words}: what is posted there no longer reaches its upstream"
