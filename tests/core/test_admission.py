"""What a request's head alone decides, in which order, and what a refusal says."""

import pytest

from gateway.core.decision import Label
from gateway.core.headers import Fields
from gateway.core.key import Key, find_key
from gateway.core.key_policy import HeaderKey, KeyPolicy
from gateway.core.model import Headers, RecordKey
from gateway.core.policy import Limits, Policy
from gateway.core.principal_source import HeaderPrincipal
from gateway.core.problems import Problem
from gateway.core.scope import PrincipalMissing, Scope, find_scope
from gateway.engine.answers import Refused, Reply
from gateway.proxy.admission import Unkeyed, announced_too_large, judge, principal_missing, too_large
from tests.support.requests import plan_of

SECRET = b"s"
POLICY = Policy("charges", (HeaderPrincipal("Authorization"),), limits=Limits(request_body=1000))
KEY: Headers = ((b"Idempotency-Key", b'"k-1"'),)
AUTH: Headers = ((b"Authorization", b"Bearer t"),)


def refusal(admission: RecordKey | Unkeyed | Reply) -> tuple[Label, Problem]:
    assert isinstance(admission, Reply)
    assert isinstance(admission.answer, Refused)
    return admission.label, admission.answer.problem


def admitted(fields: Fields, policy: Policy) -> RecordKey | Unkeyed | Reply:
    """A request's head, judged in the order in which the proxy judges it."""
    guard = plan_of(policy, secret=SECRET)
    assert guard.find_key is not None
    assert guard.find_scope is not None
    key = judge(guard.find_key(fields, b"/v1/charges"), fields, policy)
    if isinstance(key, Unkeyed | Reply):
        return key
    assert isinstance(key, Key)
    scope = guard.find_scope(fields)
    if isinstance(scope, PrincipalMissing):
        return principal_missing(scope)
    return too_large(policy) if announced_too_large(fields, policy) else RecordKey(scope.id, key.text)


def test_admitted() -> None:
    """A keyed request of a known caller gets its record's place: the caller's scope and the unquoted key."""
    scope = find_scope(Fields(AUTH), "charges", ("Authorization",), SECRET)
    assert isinstance(scope, Scope)
    assert admitted(Fields(KEY + AUTH), POLICY) == RecordKey(scope.id, "k-1")


def test_without_a_principal() -> None:
    """A route whose principal is `none`, spelled out, has one scope for all callers."""
    assert admitted(Fields(KEY), Policy("charges", ())) == RecordKey("charges:none", "k-1")


@pytest.mark.parametrize(
    ("headers", "label", "problem"),
    [
        (AUTH, Label.KEY_MISSING, Problem.KEY_MISSING),
        ((), Label.KEY_MISSING, Problem.KEY_MISSING),
        ((*AUTH, (b"Idempotency-Key", b"")), Label.KEY_INVALID, Problem.KEY_INVALID),
        ((*AUTH, (b"Idempotency-Key", b"a b")), Label.KEY_INVALID, Problem.KEY_INVALID),
        ((*AUTH, *KEY, *KEY), Label.KEY_INVALID, Problem.KEY_INVALID),
        (KEY, Label.PRINCIPAL_MISSING, Problem.PRINCIPAL_MISSING),
        ((*KEY, *AUTH, *AUTH), Label.PRINCIPAL_MISSING, Problem.PRINCIPAL_MISSING),
        ((*KEY, (b"Content-Length", b"1001")), Label.PRINCIPAL_MISSING, Problem.PRINCIPAL_MISSING),
        ((*KEY, *AUTH, (b"Content-Length", b"1001")), Label.BODY_TOO_LARGE, Problem.BODY_TOO_LARGE),
        ((*KEY, *AUTH, (b"content-length", b"9" * 5000)), Label.BODY_TOO_LARGE, Problem.BODY_TOO_LARGE),
    ],
)
def test_refusals(headers: Headers, label: Label, problem: Problem) -> None:
    """Each refusal has its label and its problem; the key is judged first, then the caller, then the announced length."""
    assert refusal(admitted(Fields(headers), POLICY)) == (label, problem)


@pytest.mark.parametrize("length", [b"0", b"1000", b"", b"-1", b"+1", b"1e9", b"x", b"\xb2"])
def test_lengths_that_do_not_refuse(length: bytes) -> None:
    """A length within the limit is admitted; what is no number is left to the HTTP parser and the reading of the body."""
    assert isinstance(admitted(Fields((*KEY, *AUTH, (b"Content-Length", length))), POLICY), RecordKey)


def test_optional_keys() -> None:
    """Where the key is optional a request without one passes, also without credentials; a bad key is refused all the same."""
    policy = Policy("charges", (HeaderPrincipal("Authorization"),), key=KeyPolicy(required=False))
    assert admitted(Fields(()), policy) == Unkeyed()
    assert refusal(admitted(Fields(((b"Idempotency-Key", b""),)), policy)) == (Label.KEY_INVALID, Problem.KEY_INVALID)
    assert refusal(admitted(Fields(KEY), policy)) == (Label.PRINCIPAL_MISSING, Problem.PRINCIPAL_MISSING)


def test_details_name_the_field_and_never_its_value() -> None:
    """A refusal tells which field to send, and repeats no key and no credential."""
    policy = Policy("charges", (HeaderPrincipal("X-Tenant"),), key=KeyPolicy(HeaderKey("X-Payout-Idempotency")))
    missing = admitted(Fields(()), policy)
    assert isinstance(missing, Reply)
    assert isinstance(missing.answer, Refused)
    assert "X-Payout-Idempotency" in (missing.answer.detail or "")
    headers: Headers = ((b"X-Payout-Idempotency", b"needle"), (b"X-Tenant", b"secret-1"), (b"X-Tenant", b"secret-2"))
    nobody = admitted(Fields(headers), policy)
    assert isinstance(nobody, Reply)
    assert isinstance(nobody.answer, Refused)
    detail = nobody.answer.detail or ""
    assert "X-Tenant" in detail
    assert "needle" not in detail
    assert "secret" not in detail


def test_too_large_names_the_limit() -> None:
    """The refusal of a body says how large it may be."""
    answer = too_large(POLICY).answer
    assert isinstance(answer, Refused)
    assert "1000 bytes" in (answer.detail or "")


def test_nominated_fields_still_count() -> None:
    """`Connection` naming the key or the credential does not switch protection off."""
    headers: Headers = ((b"Connection", b"Idempotency-Key, Authorization"), *KEY, *AUTH)
    assert admitted(Fields(headers), POLICY) == admitted(Fields(KEY + AUTH), POLICY)
    assert find_key(Fields(headers), POLICY.key) == Key("k-1")
