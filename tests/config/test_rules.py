"""Requests of probes, and rules about what is found: mistakes in them, each with its place and words."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.checks.rules import covers
from gateway.config.mistakes import Place
from gateway.config.names import CONDITION, REQUEST
from gateway.config.reader import Reader
from gateway.config.source import MapNode, compose
from gateway.core.reconcile.found import Found, Names, judge
from gateway.core.reconcile.policy import AnswerPlan, Condition, Rule, Verdict
from gateway.core.reconcile.policy import Test as Asks
from gateway.core.setting import setting_of
from tests.config.support import HEAD, ROUTES, mistakes

BASE = HEAD.replace('payments:8000"}', 'payments:8000", max_execution: 1m}') + ROUTES
FOUND = "rules: [{status: [200], verdict: executed}]"


REQUESTS = [
    pytest.param(
        "path: /a", "43: request: asks the same of every operation: name which one is meant, by {key} or {captured.NAME}", id="same"
    ),
    pytest.param(
        "path: '/a b'",
        "50: request.path: is a path, perhaps with a query; it starts with / and is ASCII without spaces and #, "
        "as in /v1/charges?key={key}",
        id="path",
    ),
    pytest.param(
        "path: '/{order}'",
        "43: request: there is no placeholder `{order}`; there are {key}, {principal}, {request_id}, {captured.NAME} and, in answers, "
        "{found:/json/pointer}",
        id="placeholder",
    ),
    pytest.param(
        "path: '/{captured.order}'",
        "43: request: `{captured.order}` is not captured; what is captured is nothing: write `capture: {name: /pointer}`",
        id="captured",
    ),
    pytest.param(
        "path: '/{key}', headers: {Content-Length: '1'}",
        "43: request: `Content-Length` is not a template's to set; the gateway writes it",
        id="framing",
    ),
    pytest.param(
        "path: '/{key}', headers: {Accept: a, accept: b}",
        "81: request.headers.accept: `Accept` is the same name; keep one of them",
        id="twice",
    ),
    pytest.param(
        "path: '/{key}', headers: {'A B': a}", '70: request.headers."A B": "A B" is not a header name; use letters, digits and -', id="name"
    ),
    pytest.param(
        'path: "/{key}", headers: {A: "s3cret\\nb"}',
        "73: request.headers.A: a header value is visible ASCII, with spaces inside if need be, and not empty",
        id="line-break",
    ),
    pytest.param(
        "path: '/{key}', headers: {A: 7}",
        "73: request.headers.A: expected a header value, found a whole number; put it in quotes",
        id="number",
    ),
    pytest.param(
        "path: '/{key}', headers: {A: 'x{s3cret}x'}",
        "69: request.headers: the value of `A` holds something in braces that is no placeholder, or none that may stand there; "
        "there are {key}, {captured.NAME}",
        id="secret-in-braces",
    ),
    pytest.param(
        "path: '/{key}', headers_file: {A: gone}", "78: request.headers_file.A: cannot read gone: No such file or directory", id="no-file"
    ),
    pytest.param(
        "path: '/{key}', headers: {A: b}, headers_file: {a: value}",
        "91: request.headers_file: `a` is in `headers` too; keep one of them",
        id="both",
    ),
    pytest.param(
        "path: '/{key}', body: a",
        "43: request: a `body` needs a Content-Type among the headers, which says how values are escaped, "
        "as in `Content-Type: application/json`",
        id="body",
    ),
    pytest.param("path: '/{key}', method: get", '68: request.method: "get" is not a method in capitals; write GET', id="method"),
]


@pytest.mark.parametrize(("request_fields", "expected"), REQUESTS)
def test_a_mistake_in_a_request_is_found_where_it_stands(tmp_path: Path, request_fields: str, expected: str) -> None:
    """One wrong field gives one message, without a word of what may be a secret."""
    (tmp_path / "value").write_text("s3cret")
    column, rest = expected.split(": ", 1)
    found = mistakes(tmp_path, f"{BASE}      reconcile: {{probe: lookup, request: {{{request_fields}}}, {FOUND}}}\n")
    assert found == [f"gateway.yaml:11:{column}: routes[0].idempotency.reconcile.{rest}"]
    assert "s3cret" not in found[0]


GOOD = "{status: [200], verdict: executed}"
SILENT = (
    "says that the question was not answered, and nothing about the operation; leave it out (it is not yet known then), "
    "or say with `when` what its body has"
)
RULES = [
    pytest.param(
        "{status: [404], verdict: not_executed}", ": no rule says executed: what was executed would never be found", id="no-executed"
    ),
    pytest.param(
        f"{GOOD}, {{verdict: not_executed}}",
        "[1].verdict: any answer at all, an error or a login page too, would mean not_executed; say with `status` or `when` which ones do",
        id="any-answer",
    ),
    pytest.param(
        "{verdict: executed}",
        "[0].verdict: any answer at all, an error or a login page too, would mean executed; say with `status` or `when` which ones do",
        id="any-executed",
    ),
    pytest.param(
        f"{GOOD}, {{status: [404, 503], verdict: not_executed}}",
        f"[1].status: 503 {SILENT}",
        id="error",
    ),
    *[
        pytest.param(f"{GOOD}, {{status: [{status}], verdict: not_executed}}", f"[1].status: {status} {SILENT}", id=f"asking-{status}")
        for status in (302, 304, 400, 403, 405, 406, 415, 426, 428)
    ],
    pytest.param("{status: [200, 302], verdict: executed}", f"[0].status: 302 {SILENT}", id="redirect-executed"),
    pytest.param(
        f"{GOOD}, {{status: [200], when: [{{pointer: /a, empty: true}}], verdict: not_executed}}",
        "[1]: never applies: all that it takes goes to rule 1; put this one first, or remove it",
        id="covered",
    ),
    pytest.param(
        f"{GOOD}, {{status: [404], verdict: not_executed, answer: {{status: 404}}}}",
        "[1].answer: an answer is that of an executed operation, and this rule says not_executed; remove it",
        id="answer-of-nothing",
    ),
    pytest.param(
        "{status: [200], verdict: executed, answer: {headers: {A: '{captured.a}'}}}",
        "[0].answer: `{captured.a}` is not captured; what is captured is nothing: write `capture: {name: /pointer}`",
        id="plan",
    ),
    pytest.param(
        "{status: [200], verdict: executed, answer: {body: a, pointer: /a}}",
        "[0].answer.pointer: `body` is given too; keep one of them",
        id="two-bodies",
    ),
    pytest.param(
        "{status: [200], verdict: executed, answer: {status: 100}}", "[0].answer.status: must be from 200 to 599, found 100", id="interim"
    ),
    pytest.param(
        "{status: [200], when: [{pointer: /a}], verdict: executed}",
        "[0].when[0]: one of `equals`, `exists`, `missing`, `empty`, `not_empty`, `same_as` is required",
        id="no-test",
    ),
    pytest.param(
        "{status: [200], when: [{pointer: /a, equals: 1, empty: true}], verdict: executed}",
        "[0].when[0].empty: `equals` is given too; keep one of them",
        id="two-tests",
    ),
    pytest.param(
        "{status: [200], when: [{pointer: /a, value: 1}], verdict: executed}",
        "[0].when[0].value: unknown key; did you mean `equals`?",
        id="value",
    ),
    pytest.param(
        "{status: [200], when: [{pointer: /a, exists: false}], verdict: executed}",
        "[0].when[0].exists: write true here, or `missing: true` for the opposite",
        id="false",
    ),
    pytest.param(
        "{status: [200], when: [{pointer: /a, equals: }], verdict: executed}",
        "[0].when[0].equals: has no value; write one, or remove the line",
        id="nothing",
    ),
    pytest.param(
        "{status: [200], when: [{pointer: /a, equals: []}], verdict: executed}",
        "[0].when[0].equals: the list is empty; name at least one",
        id="empty-list",
    ),
    pytest.param(
        "{status: [200], when: [{pointer: /a, equals: {a: b}}], verdict: executed}",
        "[0].when[0].equals: expected a text, a number, true, false or null, or a list of these; found a mapping",
        id="mapping",
    ),
    pytest.param(
        "{status: [200], when: [{pointer: /a, equals: 1.0e999}], verdict: executed}",
        "[0].when[0].equals: 1.0e999 is too large a number",
        id="too-large",
    ),
    pytest.param(
        "{status: [200], when: [{pointer: a, equals: 1}], verdict: executed}",
        '[0].when[0].pointer: "a" is not a JSON pointer; it starts with /, and ~ is written ~0, / inside a name ~1 (RFC 6901)',
        id="pointer",
    ),
    pytest.param("{status: [200], when: [{empty: true}], verdict: executed}", "[0].when[0].pointer: is required", id="no-pointer"),
    pytest.param(
        "{status: [200], verdict: done}", '[0].verdict: expected one of executed, not_executed, not_yet_known, found "done"', id="verdict"
    ),
    pytest.param("{statuses: [200], verdict: executed, status: [200]}", "[0].statuses: unknown key; did you mean `status`?", id="statuses"),
]


@pytest.mark.parametrize(("rules", "expected"), RULES)
def test_a_mistake_in_a_rule_is_found_where_it_stands(tmp_path: Path, rules: str, expected: str) -> None:
    """One wrong rule gives one message, at the field to change."""
    found = mistakes(tmp_path, f"{BASE}      reconcile: {{probe: lookup, request: {{path: '/{{key}}'}}, rules: [{rules}]}}\n")
    assert [one.partition("reconcile.rules")[2] for one in found] == [expected]


def test_a_cancel_that_frees_nothing_is_a_mistake(tmp_path: Path) -> None:
    """Cancelling is for a retry, which needs a verdict that nothing was executed."""
    text = f"{BASE}      reconcile: {{probe: cancel, request: {{path: '/{{key}}'}}, {FOUND}}}\n"
    (found,) = mistakes(tmp_path, text)
    assert found.endswith("reconcile.rules: no rule says not_executed: what was cancelled would never be free for a retry")


def test_rules_that_differ_in_the_kind_of_a_value_are_two(tmp_path: Path) -> None:
    """1 is not true, so neither rule covers the other."""
    rule = "{{status: [200], when: [{{pointer: /a, equals: {}}}], verdict: executed}}"
    rules = f"rules: [{rule.format('1')}, {rule.format('true')}]"
    assert mistakes(tmp_path, f"{BASE}      reconcile: {{probe: lookup, request: {{path: '/{{key}}'}}, {rules}}}\n") == []


_VALUES = st.sampled_from([1, True, "1", None, 1.5, "a"])
_CONDITIONS = st.builds(
    lambda pointer, asks, values: Condition(pointer, asks, tuple(values) if asks is Asks.EQUALS else ()),
    st.sampled_from(["", "/a", "/b"]),
    st.sampled_from(Asks),
    st.lists(_VALUES, min_size=1, max_size=2),
)
_RULES = st.builds(
    Rule,
    st.just(Verdict.EXECUTED),
    st.frozensets(st.sampled_from([200, 201, 404]), max_size=2),
    st.lists(_CONDITIONS, max_size=2).map(tuple),
    st.just(AnswerPlan(201)),
)
_BODIES = st.dictionaries(st.sampled_from("ab"), _VALUES | st.sampled_from([[], {}, "", [1]]), max_size=2)


@given(_RULES, _RULES, st.sampled_from([200, 201, 404, 500]), _BODIES)
def test_a_rule_that_is_covered_never_applies(earlier: Rule, later: Rule, status: int, body: dict[str, object]) -> None:
    """What the file is refused for is true: whatever is found, the earlier rule takes it or neither does."""
    if covers(earlier, later):
        assert judge(Found(status, (), json.dumps(body).encode()), (earlier, later), Names("k")).rule != 1


_JSON = _VALUES | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False).filter(lambda one: "." in repr(one))
"""Without a point a number with an exponent is text, as everywhere in the file: a plain 12e4 is more often an id."""


@given(st.recursive(_JSON, st.lists, max_leaves=3))
def test_what_json_can_say_is_read_as_it_is_meant(value: object) -> None:
    """A value, or a list of values, that is written as JSON arrives with its kind; a list within a list or an empty one does not."""
    node = compose(json.dumps({"equals": value}))
    assert isinstance(node, MapNode)
    reader = Reader({}, Path())
    found = reader.read(setting_of(CONDITION.equals).kind, node.entries[0].value, Place(1, 1))
    good = not isinstance(value, list) or (bool(value) and not any(isinstance(one, list) for one in value))
    assert (found is None) == bool(reader.mistakes) == (not good)
    if found is not None:
        expected = value if isinstance(value, list) else [value]
        assert [(type(one), one) for one in found.value] == [(type(one), one) for one in expected]


@given(st.text(min_size=1))
def test_no_header_value_is_repeated_in_a_mistake(text: str) -> None:
    """Whatever is wrong with it: it may be a secret."""
    node = compose(json.dumps({"A": f"SECRET{text}SECRET"}))
    assert node is not None
    reader = Reader({}, Path())
    reader.read(setting_of(REQUEST.headers).kind, node, Place(1, 1))
    assert not any("SECRET" in message for _, message in reader.mistakes)
