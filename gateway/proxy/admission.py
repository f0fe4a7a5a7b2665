"""What can be judged from a request before any store is touched: its key, its caller's fields, its size. Pure."""

from dataclasses import dataclass
from typing import assert_never

from gateway.core.decision import Label
from gateway.core.headers import Fields, wire_name
from gateway.core.key import Key, KeyFound, KeyInvalid, KeyMissing
from gateway.core.key_policy import BodyKey, FormKey, HeaderKey, KeyPolicy, QueryKey
from gateway.core.overrides import fold
from gateway.core.policy import Policy
from gateway.core.problems import Problem
from gateway.core.scope import PrincipalMissing
from gateway.core.splice import JsonText
from gateway.engine.answers import Refused, Reply
from gateway.plan import GuardPlan


@dataclass(frozen=True, slots=True)
class Unkeyed:
    """No key, and the route does not ask for one: passes straight through."""


def misspelt(doubles: frozenset[bytes], policy: Policy) -> Reply | None:
    """A refusal of a key whose field is spelled as CGI would take it for the right one: its client counts on it, and nobody else does."""
    meant = next((name for name in policy.key.headers if fold(wire_name(name)) in doubles), None) if doubles else None
    if meant is None:
        return None
    detail = f"The key was sent in a field that is spelled almost like {meant}. Spell it exactly so, and send it once."
    return Reply(Label.KEY_INVALID, Refused(Problem.KEY_INVALID, detail=detail))


def principal_missing(found: PrincipalMissing) -> Reply:
    """The refusal of a request whose caller does not show who it is."""
    detail = f"This operation needs the {found.header} field, once, to identify the caller."
    return Reply(Label.PRINCIPAL_MISSING, Refused(Problem.PRINCIPAL_MISSING, detail=detail))


def announced_too_large(fields: Fields, policy: Policy) -> bool:
    """Whether the head alone says that the body is over the route's limit."""
    announced = fields.first(b"content-length")
    return announced is not None and announced.isdigit() and int(announced[:20]) > policy.limits.request_body


def judge_in_body(guard: GuardPlan, body: bytes | None, fields: Fields, text: JsonText | None) -> Key | Unkeyed | Reply:
    """Judge a key in the body, once that is read. None: it is too large to be looked into. `text` is what is known of it as JSON."""
    assert guard.find_key_in_body is not None, "the key is in the body"
    if body is None:
        return judge(KeyInvalid("The body is too large to be searched for a key."), fields, guard.policy)
    return judge(guard.find_key_in_body(body, fields, text), fields, guard.policy)


def judge(found: KeyFound, fields: Fields, policy: Policy) -> Key | Unkeyed | Reply:
    """What a key, or none, means for the request."""
    return found if isinstance(found, Key) else without_key(found, fields, policy)


def without_key(found: KeyMissing | KeyInvalid, fields: Fields, policy: Policy) -> Unkeyed | Reply:
    """What it means that there is no key, or a bad one."""
    match found:
        case KeyMissing():
            if (
                fields.first(b"early-data") is not None
            ):  # whatever it says (RFC 8470 section 5.1); without a record a replayed flight would run again (RFC 8470 section 5.2)
                return Reply(Label.KEY_MISSING, Refused(Problem.TOO_EARLY))
            if not policy.key.required:
                return Unkeyed()
            detail = f"This operation needs an idempotency key. Send a fresh UUID in {_where(policy.key)} for each new operation."
            return Reply(Label.KEY_MISSING, Refused(Problem.KEY_MISSING, detail=detail))
        case KeyInvalid(detail):
            return Reply(Label.KEY_INVALID, Refused(Problem.KEY_INVALID, detail=detail))
        case _:
            assert_never(found)


def too_large(policy: Policy) -> Reply:
    """The refusal of a body over the route's limit."""
    detail = f"The request body may have at most {policy.limits.request_body} bytes here."
    return Reply(Label.BODY_TOO_LARGE, Refused(Problem.BODY_TOO_LARGE, detail=detail))


def overloaded() -> Reply:
    """The refusal of a request that there is no memory for."""
    return Reply(Label.OVERLOADED, Refused(Problem.OVERLOADED, retry_after=1))


def _where(key: KeyPolicy) -> str:
    match key.place:
        case HeaderKey():
            return " or ".join(key.place.names)
        case QueryKey(name):
            return f"the query parameter {name}"
        case BodyKey(pointer):
            return f"{pointer} of the JSON body"
        case FormKey(name):
            return f"the form field {name}"
        case _:
            assert_never(key.place)
