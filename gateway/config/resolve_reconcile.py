"""From the sections of probes and webhooks to their values. As in `resolve`, nothing is judged here: what is missing stays empty."""

from collections.abc import Iterable
from typing import Any

from gateway.config.reconcile_fields import TESTS, AnswerFields, ConditionFields, ReconcileFields, RequestFields, RuleFields
from gateway.config.shapes import Field, Section
from gateway.config.webhook_fields import PlainFields, SignatureFields, StandardFields, StripeFields, WebhookFields
from gateway.core.reconcile.policy import (
    AnswerPlan,
    Cancel,
    Condition,
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


def resolve_reconcile(section: Section) -> Reconcile:
    names = ReconcileFields
    pace = Pace(
        looks=section.get(names.LOOKS),
        apart=section.get(names.APART),
        first=section.get(names.FIRST),
        longest=section.get(names.LONGEST),
        attempts=section.get(names.ATTEMPTS),
        max_age=section.get(names.MAX_AGE),
        timeout=section.get(names.TIMEOUT),
        concurrency=section.get(names.CONCURRENCY),
    )
    return Reconcile(_probe(section), pace, section.get(names.CAPTURE))


def resolve_webhook(section: Section) -> Webhook:
    names = WebhookFields
    return Webhook(
        path=section.get(names.PATH) or "",
        signature=_signature(section.sub(names.SIGNATURE)),
        event_id=section.get(names.EVENT_ID) or "",
        find=section.get(names.FIND) or "",
        rules=_rules(section.get(names.RULES)),
        by=section.get(names.BY),
        limit=section.get(names.LIMIT),
        remember=section.get(names.REMEMBER),
    )


def _probe(section: Section) -> Probe:
    names = ReconcileFields
    match section.get(names.PROBE):
        case "lookup":
            request = _request(section.sub(names.REQUEST), "GET")
            return Lookup(request, _rules(section.get(names.RULES)), section.get(names.UPSTREAM))
        case "cancel":
            request = _request(section.sub(names.REQUEST), "POST")
            return Cancel(request, _rules(section.get(names.RULES)), section.get(names.UPSTREAM))
        case "resend":
            return Resend()
        case _:
            return Manual()


def _request(section: Section, method: str) -> RequestTemplate:
    names = RequestFields
    return RequestTemplate(
        method=section.get(names.METHOD) or method,
        target=section.get(names.PATH) or "",
        headers=(*section.get(names.HEADERS), *section.get(names.HEADERS_FILE)),
        body=section.get(names.BODY),
    )


def _rules(sections: Iterable[Section] | None) -> tuple[Rule, ...]:
    return tuple(_rule(section) for section in sections or ())


def _rule(section: Section) -> Rule:
    names = RuleFields
    statuses = section.get(names.STATUS)
    return Rule(
        verdict=section.get(names.VERDICT),
        statuses=frozenset(statuses),
        when=tuple(resolve_condition(one) for one in section.get(names.WHEN)),
        answer=resolve_answer(section.sub(names.ANSWER)),
    )


def resolve_answer(section: Section) -> AnswerPlan:
    names = AnswerFields
    return AnswerPlan(section.get(names.STATUS), section.get(names.HEADERS), section.get(names.BODY), section.get(names.POINTER))


def resolve_condition(section: Section) -> Condition:
    test = next((name for name in TESTS if name in section.fields), "equals")
    same = section.get(ConditionFields.SAME_AS)
    return Condition(section.get(ConditionFields.POINTER), Test(test), section.get(ConditionFields.EQUALS) or ((same,) if same else ()))


def _signature(section: Section) -> Signature:
    names = SignatureFields
    if section.given(names.STRIPE):
        stripe = section.sub(names.STRIPE)
        return StripeSignature(_secrets(stripe, StripeFields), stripe.get(StripeFields.TOLERANCE))
    if section.given(names.STANDARD):
        standard = section.sub(names.STANDARD)
        return StandardSignature(_secrets(standard, StandardFields), standard.get(StandardFields.TOLERANCE))
    plain = section.sub(names.HMAC_SHA256)
    return PlainSignature(
        header=plain.get(PlainFields.HEADER) or "",
        secrets=_secrets(plain, PlainFields),
        encoding=plain.get(PlainFields.ENCODING),
        prefix=plain.get(PlainFields.PREFIX),
    )


def _secrets(section: Section, names: "type[StripeFields | StandardFields | PlainFields]") -> tuple[bytes, ...]:
    one: Field[Any] = names.SECRET
    secret = section.get(one)
    several = section.get(names.SECRETS) or section.get(names.SECRET_FILES) or ()
    return tuple(each for each in (secret, *several) if each)
