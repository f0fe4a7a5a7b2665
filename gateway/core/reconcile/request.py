"""Requests of probes, made from templates; and what a template may be, for the configuration."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from gateway.core.field_names import FRAMING, HOP_BY_HOP, OURS, PER_EXCHANGE
from gateway.core.model import Headers
from gateway.core.path_interpretations import parts
from gateway.core.pointers import split_pointer
from gateway.core.reconcile.found import BODILESS, Names
from gateway.core.reconcile.placeholders import CAPTURED, FOUND, PRINCIPAL, fill_body, fill_fields, placeholder
from gateway.core.reconcile.policy import AnswerPlan, Cancel, Lookup, Reconcile, RequestTemplate, Rule, Test, Webhook
from gateway.core.strict_json import read
from gateway.core.template import (
    Pieces,
    Place,
    Unfillable,
    compile_body,
    compile_header,
    compile_target,
    content_type_of,
    fill,
    is_json,
    sample,
    slots,
)

__all__ = ["Made", "Unfillable", "binds_caller", "check_plan", "check_template", "make_request", "names_principal", "placeholders_of"]

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_METHOD = re.compile(r"[A-Z][A-Z-]*")
_NOT_VISIBLE = re.compile(r"[^\x21-\x7e]")
_NOT_HEADER = re.compile(r"[^\x20-\x7e]")
_NOT_IN_REQUESTS = HOP_BY_HOP | FRAMING | {b"host", b"expect"}
_NOT_IN_ANSWERS = HOP_BY_HOP | FRAMING | PER_EXCHANGE | OURS


@dataclass(frozen=True, slots=True)
class Made:
    """A request, but for Host and framing. `target` is in origin-form. `body` is empty if there is none."""

    method: str
    target: bytes
    headers: Headers
    body: bytes


def make_request(template: RequestTemplate, names: Names) -> Made:
    """The request of one look. Raises `Unfillable`, also if the values would make another path of the target than the
    template's.
    """
    pieces = compile_target(template.target, placeholder)
    target = fill(pieces, names.value).encode("ascii")
    if parts(target.partition(b"?")[0]) is None:
        in_path = ", ".join(slot.name for slot in slots(pieces) if slot.place is Place.PATH)
        raise Unfillable(in_path, "makes a path that servers read differently, such as one with dot segments")
    body = b"" if template.body is None else fill_body(template.body, template.headers, names.value)
    return Made(template.method, target, fill_fields(template.headers, names.value), body)


def placeholders_of(template: RequestTemplate | AnswerPlan) -> frozenset[str]:
    """The placeholders of a template, as written between the braces: `key`, `captured.order`, `request_id`,
    `found:/id`.

    Raises ValueError, with a sentence that teaches, for one that does not exist or could not be made safe where it
    stands.
    """
    return frozenset(slot.name for pieces in _compiled(template) for slot in slots(pieces))


def names_principal(reconcile: Reconcile, webhook: Webhook | None) -> bool:
    """Whether a record must keep its caller, since a template or a rule names it. A broken template names no caller."""
    probe, rules = reconcile.probe, () if webhook is None else webhook.rules
    templates: list[RequestTemplate | AnswerPlan] = []
    if isinstance(probe, Lookup | Cancel):
        templates.append(probe.request)
        rules = (*rules, *probe.rules)
    templates += [rule.answer for rule in rules]
    return any(binds_caller(rule) for rule in rules) or any(_names_principal(template) for template in templates)


def binds_caller(rule: Rule) -> bool:
    """Whether the rule applies only to what is found to be the caller's own."""
    return any(condition.test is Test.SAME_AS and PRINCIPAL in condition.values for condition in rule.when)


def _names_principal(template: RequestTemplate | AnswerPlan) -> bool:
    try:
        return PRINCIPAL in placeholders_of(template)
    except ValueError:
        return False


def _compiled(template: RequestTemplate | AnswerPlan) -> list[Pieces]:
    texts = [compile_header(value, placeholder) for _, value in template.headers]
    if isinstance(template, RequestTemplate):
        texts.append(compile_target(template.target, placeholder))
    if template.body is not None:
        texts.append(compile_body(template.body, content_type_of(template.headers), placeholder))
    return texts


def check_template(template: RequestTemplate, captured: Collection[str]) -> None:
    """Raises ValueError, with a sentence that teaches, for a template that could never be sent. `captured`: the names
    that exist.

    No header value is told: it may be a secret.
    """
    if not _METHOD.fullmatch(template.method) or template.method in {"CONNECT", "TRACE"}:
        raise ValueError(f"`{template.method}` is no method of a probe; write one in capital letters, as GET or POST")
    target = sample(compile_target(template.target, placeholder))
    if not target.startswith("/") or "#" in target or _NOT_VISIBLE.search(target):
        raise ValueError(
            "the path begins with a slash and holds no fragment, no blanks and nothing that is not ASCII, as in /v1/charges?key={key}"
        )
    if parts(target.partition("?")[0].encode("ascii")) is None:
        raise ValueError("servers may read this path differently; write it without dot segments and escapes in escapes")
    _check_headers(template.headers, _NOT_IN_REQUESTS, "is not a template's to set; the gateway writes it")
    _check_body(template.body, template.headers)
    _check_names(placeholders_of(template), captured)
    if any(name.startswith(FOUND) for name in placeholders_of(template)):
        raise ValueError("`{found:…}` is for answers: when the request is made, nothing has been found yet")


def check_plan(plan: AnswerPlan, captured: Collection[str], *, event: bool) -> None:
    """Raises ValueError for a plan that could never be built. `event`: of a webhook's rule, where there is no status of
    its own.
    """
    if plan.status is None and event:
        raise ValueError("an event has no status of its own; write the status that the operation would have answered, as in `status: 201`")
    if plan.status is not None and not 200 <= plan.status <= 599:
        raise ValueError(f"{plan.status} is no status of a final answer; those are 200 to 599")
    if plan.body is not None and plan.pointer:
        raise ValueError("an answer has a `body` or a `pointer` to what was found, not both")
    if plan.status in BODILESS and (plan.pointer or plan.body):
        raise ValueError(f"an answer with status {plan.status} has no body")
    split_pointer(plan.pointer)
    _check_headers(plan.headers, _NOT_IN_ANSWERS, "is not kept with an answer")
    _check_body(plan.body, plan.headers)
    _check_names(placeholders_of(plan), captured)


def _check_headers(headers: Iterable[tuple[str, str]], refused: Collection[bytes], why: str) -> None:
    for name, value in headers:
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"`{name}` is no name of a header field")
        if name.lower().encode() in refused:
            raise ValueError(f"`{name}` {why}")
        if _NOT_HEADER.search(value) or value.strip() != value:
            raise ValueError(f"the value of `{name}` holds line ends, blanks at an end, or characters that are not ASCII")


def _check_body(body: str | None, headers: tuple[tuple[str, str], ...]) -> None:
    if body is None:
        return
    content_type = content_type_of(headers)
    if not content_type:
        raise ValueError(
            "a `body` needs a Content-Type among the headers, which says how values are escaped, as in `Content-Type: application/json`"
        )
    pieces = compile_body(body, content_type, placeholder)
    if is_json(content_type):
        try:
            read(sample(pieces).encode())
        except ValueError as error:
            raise ValueError(f"the `body` is not JSON, once its placeholders are filled in: {error}") from error


def _check_names(placeholders: Collection[str], captured: Collection[str]) -> None:
    for name in sorted(placeholders):
        if name.startswith(CAPTURED) and name.removeprefix(CAPTURED) not in captured:
            known = ", ".join(f"{{captured.{one}}}" for one in sorted(captured)) or "nothing: write `capture: {name: /pointer}`"
            raise ValueError(f"`{{{name}}}` is not captured; what is captured is {known}")
