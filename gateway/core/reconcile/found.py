"""What a look or an event found, and what the route's rules make of it.

No guesses: an answer that no rule takes, that is no JSON, or from which the rule's answer cannot be built, is *not yet
known*.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import assert_never

from gateway.core.headers import first
from gateway.core.model import Headers
from gateway.core.pointers import NOTHING, Json, at, split_pointer
from gateway.core.reconcile.placeholders import CAPTURED, FOUND, PRINCIPAL, fill_body, fill_fields
from gateway.core.reconcile.policy import OWN_PRINCIPAL, AnswerPlan, Condition, Rule, Test, Verdict
from gateway.core.strict_json import Number, read, write
from gateway.core.template import Unfillable

BODILESS = frozenset({204, 205, 304})
"""Statuses of answers that have no body (RFC 9110 sections 15.3.5, 15.3.6, 15.4.5)."""


@dataclass(frozen=True, slots=True)
class Found:
    """An answer to a probe, whole; or an event, whose `status` is None. `headers` and `body` as received."""

    status: int | None
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True)
class Names:
    """What placeholders stand for. `key`: as the upstream saw it; `captured`: by name, with `OWN_KEY` or without, and
    with `OWN_PRINCIPAL` where who asked was kept.
    """

    key: str
    captured: Mapping[str, str] = field(default_factory=dict)
    request_id: str = ""

    def value(self, placeholder: str) -> Json:
        """What a placeholder stands for, but for `{found:…}`; `NOTHING` if it has no value."""
        if placeholder == "key":
            return self.key
        if placeholder == "request_id":
            return self.request_id
        if placeholder == PRINCIPAL:
            return self.captured.get(OWN_PRINCIPAL, NOTHING)
        return self.captured.get(placeholder.removeprefix(CAPTURED), NOTHING) if placeholder.startswith(CAPTURED) else NOTHING


@dataclass(frozen=True, slots=True)
class Built:
    """The operation's answer as the record is to keep it. `headers` have no framing: no Content-Length, no
    Transfer-Encoding. `body` None: unknown.
    """

    status: int
    headers: Headers
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict. `answer` is there exactly for `executed`; `rule` is the index of the rule that applied, None if none
    did.

    `why` is a short text for people, without values of the request or of what was found. `bare` is there where the rule
    says executed, but its answer cannot be built. It is that answer's status alone, for webhooks, which get no second
    look.
    """

    verdict: Verdict
    answer: Built | None = None
    rule: int | None = None
    why: str = ""
    bare: Built | None = None


def judge(found: Found, rules: Sequence[Rule], names: Names) -> Judged:
    """By the first rule that applies; NOT_YET_KNOWN if none does, or if the answer of an `executed` cannot be built.

    JSON is read strictly (`strict_json.read`), whatever the Content-Type says: a text with duplicate names is none.
    Raises nothing.
    """
    document = document_of(found.body)
    for index, rule in enumerate(rules):
        if _applies(rule, found.status, document, names):
            return _judged(rule, index, found, document, names)
    what = "the event" if found.status is None else f"status {found.status}"
    return Judged(Verdict.NOT_YET_KNOWN, why=f"no rule applies to {what}{'' if document is not NOTHING else ', whose body is not JSON'}")


def document_of(body: bytes) -> Json:
    """What conditions are about; `NOTHING` if the body is no strict JSON."""
    try:
        return read(body)
    except ValueError:
        return NOTHING


def _judged(rule: Rule, index: int, found: Found, document: Json, names: Names) -> Judged:
    if rule.verdict is not Verdict.EXECUTED:
        return Judged(rule.verdict, rule=index, why=f"rule {index + 1}")
    try:
        answer = build(rule.answer, found, document, names)
    except ValueError as error:
        why = f"rule {index + 1} says executed, but its answer cannot be built: {error}"
        return Judged(Verdict.NOT_YET_KNOWN, rule=index, why=why, bare=_bare(rule.answer, found))
    return Judged(Verdict.EXECUTED, answer, index, f"rule {index + 1}")


def _bare(plan: AnswerPlan, found: Found) -> Built | None:
    status = found.status if plan.status is None else plan.status
    return None if status is None or not 200 <= status <= 599 else Built(status, (), None)


def _applies(rule: Rule, status: int | None, document: Json, names: Names) -> bool:
    if rule.statuses and status not in rule.statuses:
        return False
    return meets(rule.when, document, names)


def meets(when: Sequence[Condition], document: Json, names: Names | None = None) -> bool:
    """Whether a body, as `document_of` reads it, meets all of the conditions. Without `names` nothing is the same as a
    placeholder.
    """
    return all(_meets(condition, document, names) for condition in when)


def _meets(condition: Condition, document: Json, names: Names | None) -> bool:
    """A body that is no JSON meets no condition, not even `missing`: an error page says nothing about a payment. Nor
    does JSON without the object or list that the pointer looks into. null neither exists nor is missing:
    `"order": null` does not show an order, and does not prove that there is none.
    """
    if document is NOTHING:
        return False
    tokens = split_pointer(condition.pointer)
    value = at(document, tokens)
    match condition.test:
        case Test.EQUALS:
            return any(_equal(value, wanted) for wanted in condition.values)
        case Test.EXISTS:
            return value is not NOTHING and value is not None
        case Test.MISSING:
            return value is NOTHING and isinstance(at(document, tokens[:-1]), dict | list)
        case Test.EMPTY:
            return _holds(value) and not value
        case Test.NOT_EMPTY:
            return _holds(value) and bool(value)
        case Test.SAME_AS:
            return names is not None and isinstance(value, str) and any(_same(value, names, name) for name in condition.values)
        case _:
            assert_never(condition.test)


def _same(value: str, names: Names, name: object) -> bool:
    """Compared by characters, numbers by their text, as they are captured. A placeholder without a value, or with an
    empty one, names no caller.
    """
    wanted = names.value(str(name))
    return isinstance(wanted, str) and bool(wanted) and str(value) == str(wanted)


def _holds(value: Json) -> bool:
    """Whether it is something that can be empty: numbers, true, false and null are neither empty nor not."""
    return isinstance(value, dict | list | str) and not isinstance(value, Number)


def _equal(value: Json, wanted: object) -> bool:
    """Texts by their characters, numbers by their values. true is not 1, "1" is not 1."""
    if isinstance(value, Number):
        return isinstance(wanted, int | float) and not isinstance(wanted, bool) and _same_number(value, wanted)
    if isinstance(value, str):
        return isinstance(wanted, str) and str(value) == wanted
    return (value is None or isinstance(value, bool)) and value is wanted


def _same_number(text: str, wanted: float) -> bool:
    """A float stands for its shortest text, which is what was written in the route map."""
    try:
        return Decimal(text) == Decimal(repr(wanted))
    except ArithmeticError:
        return False  # an exponent beyond all that is written in a route map


def build(plan: AnswerPlan, found: Found, document: Json, names: Names) -> Built:
    """The answer that a plan makes of what was found; `document` is of its body. Raises ValueError if it cannot be
    built, with a text that tells no value.
    """
    status = found.status if plan.status is None else plan.status
    if status is None or not 200 <= status <= 599:
        raise ValueError("it has no status that an answer can have")

    def value(name: str) -> Json:
        if name.startswith(FOUND):
            return at(document, split_pointer(name.removeprefix(FOUND)))
        return names.value(name)

    headers = fill_fields(plan.headers, value)
    if status in BODILESS:
        return Built(status, headers, b"")
    if plan.body is not None:
        return Built(status, headers, fill_body(plan.body, plan.headers, value))
    if plan.pointer:
        part = at(document, split_pointer(plan.pointer))
        if part is NOTHING:
            raise Unfillable(FOUND + plan.pointer, "names nothing in what was found")
        if part is None:
            raise Unfillable(FOUND + plan.pointer, "names null, which is no answer")
        return Built(status, _described(headers, ((b"Content-Type", b"application/json"),)), write(part).encode())
    kept = [(name, first(found.headers, name.lower())) for name in (b"Content-Type", b"Content-Encoding")]
    return Built(status, _described(headers, tuple([(name, text) for name, text in kept if text is not None])), found.body)


def _described(headers: Headers, by: Headers) -> Headers:
    """The plan's fields, and what else tells how to read the body, unless the plan tells it."""
    return headers + tuple([field for field in by if first(headers, field[0].lower()) is None])
