"""Mistakes about webhooks: within one, between them, and with the routes beside which they stand."""

from collections.abc import Sequence

from gateway.config.check_reconcile import NEVER_SEEN, captured_names, require_time_limit
from gateway.config.check_rules import check_rules
from gateway.config.fields import AdminFields, ConfigFields, RouteFields
from gateway.config.kinds import Reader, did_you_mean
from gateway.config.policy_fields import IdempotencyFields
from gateway.config.reconcile_fields import ReconcileFields
from gateway.config.resolve import ResolvedRoute
from gateway.config.shapes import Section
from gateway.config.units import format_duration
from gateway.config.webhook_fields import WebhookFields
from gateway.core.policy import ForwardKey, Policy, Route
from gateway.core.reconcile.policy import OWN_KEY, PlainSignature, Verdict, Webhook
from gateway.core.routes import parse_pattern, path_segments

_N = WebhookFields
_REQUIRED = (
    (_N.PATH, "where the provider posts its events, as in /webhooks/payments"),
    (_N.SIGNATURE, "how its events are known to be its own; anybody may post here"),
    (_N.EVENT_ID, "where an event's id is, as in /id or header:webhook-id"),
    (_N.FIND, "where in the event the key is, as in /data/object/metadata/idempotency_key"),
    (_N.RULES, "what its events mean"),
)


def check_webhooks(reader: Reader, root: Section, routes: Sequence[ResolvedRoute]) -> None:
    _check_listener(reader, root)
    seen: dict[str, ResolvedRoute] = {}
    for one in routes:
        section, policy = one.idempotency, one.route.policy
        if section is None or policy is None or policy.webhook is None or not section.sound(IdempotencyFields.WEBHOOK):
            continue
        webhook = section.sub(IdempotencyFields.WEBHOOK)
        for field, words in _REQUIRED:
            if not webhook.given(field):
                reader.report(webhook.place_of(field), f"is required: {words}")
        _check_signature(reader, webhook, policy.webhook)
        _check_finding(reader, section, webhook, policy, policy.webhook)
        _check_rules(reader, root, one, webhook, policy)
        if webhook.given(_N.PATH) and webhook.sound(_N.PATH):
            _check_path(reader, root, routes, webhook, policy.webhook.path)
            first = seen.setdefault(policy.webhook.path, one)
            if first is not one:
                words = f"{policy.webhook.path} is the webhook of route `{first.route.id}` too; each route has its own"
                reader.report(webhook.place_of(_N.PATH), words)


def taken_by(path: str, routes: Sequence[Route]) -> Route | None:
    """The route that would take a provider's request, were it no webhook's."""
    segments = path_segments(path)
    matching = (route for route in routes if not route.methods or "POST" in route.methods)
    return next((route for route in matching if parse_pattern(route.path).matches(segments)), None)


def _check_listener(reader: Reader, root: Section) -> None:
    names, admin = ConfigFields, root.sub(ConfigFields.ADMIN)
    listen = root.get(names.WEBHOOK_LISTEN)
    if not root.sound(names.WEBHOOK_LISTEN) or listen is None or str(listen).endswith(":0"):
        return
    place = root.place_of(names.WEBHOOK_LISTEN)
    if root.sound(names.LISTEN) and str(root.get(names.LISTEN)) == str(listen):
        reader.report(place, f"{listen} is the address of `listen` too; leave this out to take webhooks there")
    if admin.sound(AdminFields.LISTEN) and str(admin.get(AdminFields.LISTEN)) == str(listen):
        reader.report(place, f"{listen} is the address of `admin.listen` too; providers have no business there")


def _check_path(reader: Reader, root: Section, routes: Sequence[ResolvedRoute], webhook: Section, path: str) -> None:
    if not root.sound(ConfigFields.WEBHOOK_LISTEN) or root.get(ConfigFields.WEBHOOK_LISTEN) is not None:
        return
    readable = [one.route for one in routes if one.section.sound(RouteFields.PATH, RouteFields.METHODS)]
    taken = taken_by(path, readable)
    if taken is not None and taken.policy is not None:
        words = f"is a path of the guarded route `{taken.id}`, whose requests would be taken for events"
        reader.report(webhook.place_of(_N.PATH), f"{words}; choose another one, or a listener of its own (`webhook_listen`)")


def _check_signature(reader: Reader, webhook: Section, policy: Webhook) -> None:
    signature = policy.signature
    if not webhook.sound(_N.SIGNATURE, _N.REMEMBER) or isinstance(signature, PlainSignature):
        return
    if policy.remember < 2 * signature.tolerance:
        words = (
            f"{format_duration(policy.remember)} is shorter than twice the signature's tolerance ({format_duration(signature.tolerance)})"
        )
        reader.report(webhook.place_of(_N.REMEMBER), f"{words}: an event could be played back after it is forgotten")


def _check_finding(reader: Reader, section: Section, webhook: Section, policy: Policy, event: Webhook) -> None:
    place, captured = webhook.place_of(_N.BY), captured_names(policy)
    if not webhook.sound(_N.BY) or not section.sub(IdempotencyFields.RECONCILE).sound(ReconcileFields.CAPTURE):
        return
    if event.by != OWN_KEY and event.by not in captured:
        hint = did_you_mean(event.by, captured | {OWN_KEY}) or "; name it in `reconcile.capture`, or write key"
        reader.report(place, f"no value is captured as `{event.by}`{hint}")
    if event.by == OWN_KEY and policy.forward_key is ForwardKey.NONE:
        reader.report(place, f"no event can name the key: {NEVER_SEEN}; find by a captured value")


def _check_rules(reader: Reader, root: Section, one: ResolvedRoute, webhook: Section, policy: Policy) -> None:
    rules = webhook.get(_N.RULES)
    if not webhook.sound(_N.RULES) or not rules or policy.webhook is None:
        return
    check_rules(reader, rules, policy.webhook.rules, captured_names(policy), event=True)
    verdicts = {rule.verdict for rule in policy.webhook.rules}
    if verdicts == {Verdict.NOT_YET_KNOWN}:
        reader.report(webhook.place_of(_N.RULES), "no rule says executed or not_executed: its events would tell nothing")
    if Verdict.NOT_EXECUTED in verdicts:
        require_time_limit(reader, root, one, webhook.place_of(_N.RULES), "a webhook that says not_executed")
