"""What can be judged from a request's head alone, before its body is read and before any store is touched. Pure."""

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from gateway.core.decision import Label
from gateway.core.headers import Fields
from gateway.core.key import Key, KeyInvalid, KeyMissing, find_key
from gateway.core.model import RecordKey
from gateway.core.policy import Policy
from gateway.core.problems import Problem
from gateway.core.scope import PrincipalMissing, find_scope
from gateway.engine.answers import Refused, Reply


@dataclass(frozen=True, slots=True)
class Admitted:
    """A keyed request by a known caller: to be guarded."""

    key: RecordKey


@dataclass(frozen=True, slots=True)
class Unkeyed:
    """No key, and the route does not ask for one: passes straight through."""


Admission: TypeAlias = Admitted | Unkeyed | Reply


def admit(fields: Fields, policy: Policy, secret: bytes) -> Admission:
    """Judge a request's head. A `Reply` is a refusal: it is never stored and consumes no key."""
    found = find_key(fields, policy.key)
    match found:
        case Key(text):
            pass
        case KeyMissing():
            if not policy.key.required:
                return Unkeyed()
            detail = f"This operation needs an idempotency key. Send a fresh UUID in {policy.key.header} for each new operation."
            return Reply(Label.KEY_MISSING, Refused(Problem.KEY_MISSING, detail=detail))
        case KeyInvalid(detail):
            return Reply(Label.KEY_INVALID, Refused(Problem.KEY_INVALID, detail=detail))
        case _:
            assert_never(found)
    scope = find_scope(fields, policy.scope, policy.principal, secret)
    if isinstance(scope, PrincipalMissing):
        detail = f"This operation needs the {scope.header} field, once, to identify the caller."
        return Reply(Label.PRINCIPAL_MISSING, Refused(Problem.PRINCIPAL_MISSING, detail=detail))
    announced = fields.first(b"content-length")
    if announced is not None and announced.isdigit() and int(announced[:20]) > policy.limits.request_body:
        return too_large(policy)
    return Admitted(RecordKey(scope.id, text))


def too_large(policy: Policy) -> Reply:
    """The refusal of a body over the route's limit."""
    detail = f"The request body may have at most {policy.limits.request_body} bytes here."
    return Reply(Label.BODY_TOO_LARGE, Refused(Problem.BODY_TOO_LARGE, detail=detail))
