"""How unknown outcomes are found out, as people read it: lines of the table of settings."""

from collections.abc import Iterator
from typing import Any, assert_never

from gateway.config.reconcile_fields import ReconcileFields
from gateway.config.shapes import Field
from gateway.config.webhook_fields import WebhookFields
from gateway.core.reconcile.policy import (
    Cancel,
    Lookup,
    Manual,
    Pace,
    PlainSignature,
    Probe,
    Reconcile,
    RequestTemplate,
    Resend,
    Rule,
    Signature,
    StandardSignature,
    StripeSignature,
    Test,
    Webhook,
)

_N = ReconcileFields
_PACE: tuple[Field[Any], ...] = (
    _N.LOOKS, _N.APART, _N.FIRST, _N.LONGEST, _N.ATTEMPTS, _N.MAX_AGE, _N.TIMEOUT, _N.CONCURRENCY,
)  # fmt: skip
_DEFAULT = Pace()


def reconcile_lines(reconcile: Reconcile) -> Iterator[tuple[str, str]]:
    """Paths within `idempotency` and values, of what is not by default. Header fields are named, without their values."""
    probe = reconcile.probe
    if not isinstance(probe, Manual):
        yield "reconcile.probe", _probe_words(probe)
    if isinstance(probe, Lookup | Cancel):
        for rule in probe.rules:
            yield "reconcile.rules", _rule_words(rule)
    for name, pointer in reconcile.capture:
        yield f"reconcile.capture.{name}", pointer
    for field in _PACE:
        value = getattr(reconcile.pace, field.name)
        if value != getattr(_DEFAULT, field.name):
            yield f"reconcile.{field.name}", str(field.kind.write(value))


def webhook_lines(webhook: Webhook) -> Iterator[tuple[str, str]]:
    yield "webhook", f"POST {webhook.path}, signed {_signature_words(webhook.signature)}, event id {webhook.event_id}"
    yield "webhook.find", f"{webhook.find} as {webhook.by}"
    for rule in webhook.rules:
        yield "webhook.rules", _rule_words(rule)
    for field in (WebhookFields.LIMIT, WebhookFields.REMEMBER):
        value = getattr(webhook, field.name)
        if value != field.default:
            yield f"webhook.{field.name}", str(field.kind.write(value))


def _probe_words(probe: Probe) -> str:
    match probe:
        case Lookup():
            return f"lookup: {_request_words(probe.request, probe.upstream)}"
        case Cancel():
            return f"cancel: {_request_words(probe.request, probe.upstream)}"
        case Resend():
            return "resend"
        case Manual():
            return "manual"
        case _:
            assert_never(probe)


def _request_words(request: RequestTemplate, upstream: str | None) -> str:
    where = f" of {upstream}" if upstream is not None else ""
    fields = f" with {', '.join(name for name, _ in request.headers)}" if request.headers else ""
    return f"{request.method} {request.target}{where}{fields}"


def _rule_words(rule: Rule) -> str:
    conditions = [f"{condition.pointer or 'the body'} {_test_words(condition.test, condition.values)}" for condition in rule.when]
    statuses = [" ".join(map(str, sorted(rule.statuses)))] if rule.statuses else []
    status = f", answered with {rule.answer.status}" if rule.answer.status is not None else ""
    return f"{' and '.join([*statuses, *conditions]) or 'else'} -> {rule.verdict}{status}"


def _test_words(test: Test, values: tuple[object, ...]) -> str:
    if test is Test.EQUALS:
        return f"= {' | '.join(map(_value_words, values))}"
    if test is Test.SAME_AS:
        return f"= {{{values[0]}}}"
    return f"is {test.value.replace('_', ' ')}" if test is not Test.EXISTS else "exists"


def _value_words(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case _:
            return str(value)


def _signature_words(signature: Signature) -> str:
    several = f" ({len(signature.secrets)} secrets)" if len(signature.secrets) > 1 else ""
    match signature:
        case StripeSignature():
            return f"stripe{several}"
        case StandardSignature():
            return f"standard{several}"
        case PlainSignature(header):
            return f"hmac_sha256 in {header}{several}"
        case _:
            assert_never(signature)
