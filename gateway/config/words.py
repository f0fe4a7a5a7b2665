"""Parts of a policy in a few words, for the tables that people read."""

from typing import assert_never

from gateway.core.hints import Hint
from gateway.core.key_policy import BodyKey, FormKey, HeaderKey, KeyPlace, QueryKey
from gateway.core.policy import Policy
from gateway.core.principal_source import (
    BasicPrincipal,
    CertificatePrincipal,
    Combine,
    ForwardAuthPrincipal,
    HeaderPrincipal,
    JwtPrincipal,
    PrincipalSource,
)
from gateway.core.reconcile.policy import (
    Cancel,
    Lookup,
    Manual,
    PlainSignature,
    Probe,
    RequestTemplate,
    Resend,
    Rule,
    Signature,
    StandardSignature,
    StripeSignature,
    Test,
)
from gateway.core.redaction import redact_text


def principal(policy: Policy) -> str:
    """Who asks, in a few words: sources that must all be there are joined by +, others by |."""
    return ("+" if policy.combine is Combine.ALL else "|").join(map(_source, policy.principal)) or "none"


def key(policy: Policy) -> str:
    """Where the key is, and whether there must be one."""
    return place(policy.key.place) + ("" if policy.key.required else " (optional)")


def place(at: KeyPlace) -> str:
    match at:
        case HeaderKey():
            return "|".join(at.names)
        case QueryKey(name):
            return f"query:{name}"
        case BodyKey(pointer):
            return f"body:{pointer}"
        case FormKey(name):
            return f"form:{name}"
        case _:
            assert_never(at)


def _source(source: PrincipalSource) -> str:
    match source:
        case HeaderPrincipal(name):
            return name
        case BasicPrincipal():
            return "basic"
        case CertificatePrincipal(header):
            return "certificate" if header is None else f"certificate:{header}"
        case JwtPrincipal(claim):
            return f"jwt:{'.'.join(claim)}"
        case ForwardAuthPrincipal():
            return f"forward_auth:{source.upstream}"
        case _:
            assert_never(source)


def hint(of: Hint) -> str:
    value = f": {of.value}" if of.value is not None else ""
    statuses = f" at {' '.join(map(str, sorted(of.statuses)))}" if of.statuses else ""
    outcome = of.outcome.value if of.outcome is not None else "its value"
    body = ", ".join(f"{condition.pointer or 'body'} {condition.test}" for condition in of.when)
    signal = " and ".join(part for part in (f"{of.header}{value}" if of.header is not None else "", body) if part)
    return f"{signal}{statuses} -> {outcome}{', removed' if of.remove else ''}"


def probe(of: Probe) -> str:
    match of:
        case Lookup():
            return f"lookup: {_request(of.request, of.upstream)}"
        case Cancel():
            return f"cancel: {_request(of.request, of.upstream)}"
        case Resend():
            return "resend"
        case Manual():
            return "manual"
        case _:
            assert_never(of)


def _request(request: RequestTemplate, upstream: str | None) -> str:
    where = f" of {upstream}" if upstream is not None else ""
    fields = f" with {', '.join(name for name, _ in request.headers)}" if request.headers else ""
    return f"{request.method} {redact_text(request.target)}{where}{fields}"


def rule(of: Rule) -> str:
    conditions = [f"{condition.pointer or 'the body'} {_test(condition.test, condition.values)}" for condition in of.when]
    statuses = [" ".join(map(str, sorted(of.statuses)))] if of.statuses else []
    status = f", answered with {of.answer.status}" if of.answer.status is not None else ""
    return f"{' and '.join([*statuses, *conditions]) or 'else'} -> {of.verdict}{status}"


def _test(test: Test, values: tuple[object, ...]) -> str:
    if test is Test.EQUALS:
        return f"= {' | '.join(map(_value, values))}"
    if test is Test.SAME_AS:
        return f"= {{{values[0]}}}"
    return f"is {test.value.replace('_', ' ')}" if test is not Test.EXISTS else "exists"


def _value(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case _:
            return str(value)


def signature(of: Signature) -> str:
    several = f" ({len(of.secrets)} secrets)" if len(of.secrets) > 1 else ""
    match of:
        case StripeSignature():
            return f"stripe{several}"
        case StandardSignature():
            return f"standard{several}"
        case PlainSignature(header):
            return f"hmac_sha256 in {header}{several}"
        case _:
            assert_never(of)
