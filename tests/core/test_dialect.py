"""Answers and marks of a dialect: each value escaped for the place where it stands."""

import json
import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.dialect import answer_to, conflict_answer, mark_first, mark_replay, render
from gateway.core.dialect_model import Dialect, Replay, Situation, Template
from gateway.core.dialect_template import TemplateError, check, placeholders, render_headers
from gateway.core.problems import Problem
from gateway.core.template import MAX_VALUE, is_json, is_xml

JSON = (("Content-Type", "application/json"),)
XML = (("Content-Type", "application/xml"),)
PLAIN = (("Content-Type", "text/plain; charset=utf-8"),)
ANYTHING = st.text(st.characters(), max_size=60)
"""Every code point, lone surrogates and control characters among them."""
LINES = st.text(st.characters(codec="utf-8"), max_size=60)


def body(template: Template, **values: str) -> bytes:
    return render(template, values)[2]


def header(value: str, **values: str) -> bytes | None:
    """The value of a header field with this template; None if it is left out."""
    return dict(render(Template(400, (("X-Mark", value),)), values)[1]).get(b"X-Mark")


def test_status_headers_and_body() -> None:
    """An answer is what its template says, with values in place of placeholders, and is not to be cached."""
    template = Template(409, (*JSON, ("Retry-After", "{retry_after}")), '{"error": "{detail}", "code": {status}}')
    assert render(template, {"retry_after": "3", "detail": "wait"}) == (
        409,
        ((b"Content-Type", b"application/json"), (b"Retry-After", b"3"), (b"Cache-Control", b"no-store")),
        b'{"error": "wait", "code": 409}',
    )


def test_another_status() -> None:
    """A more exact status takes the template's place everywhere."""
    status, _, text = render(Template(500, JSON, '{"code": {status}}'), {"status": "1"}, 504)
    assert (status, text) == (504, b'{"code": 504}')


def test_a_templates_own_cache_control_stands() -> None:
    """What a dialect says about caching is not doubled."""
    assert render(Template(400, (("cache-control", "private"),)), {})[1] == ((b"cache-control", b"private"),)


@pytest.mark.parametrize("retry_after", ["", "soon", "1.5", "9" * 40])
def test_no_number_is_null(retry_after: str) -> None:
    """Outside of strings nothing but a number is written."""
    assert body(Template(409, JSON, '{"wait": {retry_after}}'), retry_after=retry_after) == b'{"wait": null}'


def test_a_number_has_no_leading_zeros() -> None:
    """They would be no JSON."""
    assert body(Template(409, JSON, '{"wait": {retry_after}}'), retry_after="007") == b'{"wait": 7}'


def test_a_header_without_its_value_is_left_out() -> None:
    """An empty Retry-After would mean something else than none."""
    assert header("{retry_after}") is None
    assert header("{retry_after}", retry_after="") is None
    assert header("t={retry_after}", retry_after="2") == b"t=2"


def test_values_are_not_templates() -> None:
    """A key that looks like a placeholder stays as it is."""
    assert body(Template(400, JSON, '"{key} {detail}"'), key="{detail}", detail="{key}") == b'"{detail} {key}"'


def test_braces_that_are_no_placeholders_stay() -> None:
    """JSON is written as it is."""
    assert body(Template(400, JSON, '{"a":{"b":{}}, "c": "{}{ }{1}"}')) == b'{"a":{"b":{}}, "c": "{}{ }{1}"}'


@given(ANYTHING)
def test_json_strings_hold_any_value(value: str) -> None:
    """The JSON is what it was without the value, and the string in it is the value, lone surrogates aside."""
    found = json.loads(body(Template(400, JSON, '{"a": "<{key}>", "b": 1}'), key=value))
    assert found == {"a": "<" + re.sub("[\ud800-\udfff]", "\ufffd", value) + ">", "b": 1}


@given(ANYTHING)
def test_xml_holds_any_value(value: str) -> None:
    """Text and attribute are the value, characters that XML has no place for aside; no element is added."""
    root = ET.fromstring(body(Template(400, XML, '<a b="{key}"><c>{key}</c></a>'), key=value))
    wanted = re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", value)
    assert root.get("b") == wanted
    assert [child.tag for child in root] == ["c"]
    assert (root[0].text or "") == wanted


@given(LINES)
def test_plain_text_stays_one_line(value: str) -> None:
    """A value adds no line to a log-like body."""
    assert len(body(Template(400, PLAIN, "key: {key}."), key=value).decode().splitlines()) == 1


@given(ANYTHING)
def test_a_header_value_stays_one_value(value: str) -> None:
    """Nothing but visible ASCII and inner spaces: no line is ended, no field is added."""
    found = header("<{key}>", key=value)
    assert (found is None) is (value == "")
    assert found is None or re.fullmatch(rb"<[\x20-\x7e]*>", found)
    alone = header("{key}", key=value)
    assert alone is None or alone == alone.strip()


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=60))
def test_a_quoted_header_value_is_one_string(value: str) -> None:
    """Quotes and backslashes are escaped inside a quoted string (RFC 9110 section 5.6.4)."""
    found = header('"{key}"; a=1', key=value)
    assert found is not None
    string = re.fullmatch(rb'"((?:[^"\\]|\\.)*)"; a=1', found)
    assert string is not None
    assert re.sub(rb"\\(.)", rb"\1", string[1]) == value.encode()


def test_long_values_are_cut() -> None:
    """An answer has a bounded size, whatever an upstream stored."""
    assert body(Template(400, JSON, '"{key}"'), key="k" * 10**6) == b'"' + b"k" * MAX_VALUE + b'"'
    assert header("{key}", key="k" * 10**6) == b"k" * MAX_VALUE


@pytest.mark.parametrize(
    "template",
    [
        Template(400, (("A", "{nothing}"),)),
        Template(400, (("A", "{Key}"),)),
        Template(400, JSON, '"{stored:}"'),
        Template(400, JSON, '"{stored:a/b}"'),
        Template(400, JSON, '{"a": {key}}'),
        Template(400, JSON, '{"a": "{key}, "b": "{detail}"}'),
        Template(400, (("Content-Type", "text/html"),), "{key}"),
        Template(400, (), "{key}"),
    ],
)
def test_a_template_that_cannot_be_safe_is_refused(template: Template) -> None:
    """Unknown placeholders, and places whose escaping nobody knows."""
    with pytest.raises(TemplateError):
        check(template)
    with pytest.raises(TemplateError):
        render(template, {})


def test_placeholders_are_known() -> None:
    """Those of headers and body together."""
    assert placeholders(Template(400, (*JSON, ("A", "{key}")), '"{stored:/a/*}"')) == {"key", "stored:/a/*"}


@pytest.mark.parametrize(
    ("media_type", "json_like", "xml_like"),
    [
        ("application/json", True, False),
        ("application/problem+json; charset=utf-8", True, False),
        ("application/x-amz-json-1.1", True, False),
        ("text/xml", False, True),
        ("application/soap+xml", False, True),
        ("text/plain", False, False),
        ("application/jsonp", False, False),
    ],
)
def test_media_types(media_type: str, json_like: bool, xml_like: bool) -> None:
    """JSON and XML are told by the subtype's words."""
    assert (is_json(media_type), is_xml(media_type)) == (json_like, xml_like)


def test_refusals_in_the_dialects_words() -> None:
    """Refusals over a key have a situation; all others, and those that the dialect leaves out, are problem documents."""
    template = Template(418)
    found = Dialect("house", dict.fromkeys(Situation, template))
    own = {problem for problem in Problem if answer_to(found, problem) is template}
    assert own == {
        Problem.KEY_MISSING,
        Problem.KEY_INVALID,
        Problem.KEY_REUSED,
        Problem.REQUEST_IN_PROGRESS,
        Problem.OUTCOME_UNKNOWN,
        Problem.KEY_EXPIRED,
        Problem.RESPONSE_NOT_STORED,
        Problem.STORE_UNAVAILABLE,
    }
    assert answer_to(Dialect(), Problem.KEY_MISSING) is None


CONFLICT = Template(409, JSON, '"{stored:/*/id}"')
NAMING = Dialect("house", {Situation.REPLAYED: CONFLICT}, Replay.CONFLICT)


@pytest.mark.parametrize(
    ("stored", "found"),
    [
        (b'{"payments": {"id": "PM1"}}', "PM1"),
        (b'{"payments": {"id": 17}}', "17"),
        (b'{"meta": {}, "payments": {"id": "PM1"}}', "PM1"),
        (b'[{"id": "PM1"}]', "PM1"),
    ],
)
def test_a_conflict_names_what_is_there(stored: bytes, found: str) -> None:
    """The stored answer is searched for what the template asks for."""
    assert conflict_answer(NAMING, 201, stored) == (CONFLICT, {"stored:/*/id": found})


@pytest.mark.parametrize(
    "stored",
    [
        None,
        b"",
        b"no json",
        b"\xff",
        b"[" * 100_000,
        b"{}",
        b'{"id": "PM1"}',
        b'{"a": {"id": ""}}',
        b'{"a": {"id": true}}',
        b'{"a": {"id": []}}',
    ],
    ids=lambda stored: repr(stored)[:20],
)
def test_without_a_name_the_stored_answer_is_replayed(stored: bytes | None) -> None:
    """A conflict that names nothing would leave the client without its resource."""
    assert conflict_answer(NAMING, 201, stored) is None


@pytest.mark.parametrize("status", [302, 400, 404, 409, 500])
def test_failures_are_no_conflict(status: int) -> None:
    """Nothing was created that a conflict could name."""
    assert conflict_answer(NAMING, status, b'{"payments": {"id": "PM1"}}') is None


def test_a_conflict_without_names_needs_no_body() -> None:
    """A template without `{stored:…}` is complete by itself."""
    template = Template(409)
    assert conflict_answer(Dialect("house", {Situation.REPLAYED: template}, Replay.CONFLICT), 200, None) == (template, {})
    assert conflict_answer(Dialect("house", {Situation.REPLAYED: template}), 200, None) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda some: st.dictionaries(st.text(max_size=5), some, max_size=3) | st.lists(some, max_size=3),
    )
)
def test_any_stored_json_is_searched_without_an_error(document: object) -> None:
    """What is found is a text or a number of the document."""
    pointers = Template(409, JSON, '["{stored:/*/id}", "{stored:/0/a~1b}", "{stored:/*/*/*}"]')
    found = conflict_answer(Dialect("house", {Situation.REPLAYED: pointers}, Replay.CONFLICT), 200, json.dumps(document).encode())
    assert found is None or all(found[1].values())


def test_default_marks_of_a_replay() -> None:
    """Without a word of the dialect a replay says that it is one, and of what."""
    values = {"original_request": "r1"}
    assert mark_replay(((b"A", b"b"),), Dialect(), values) == (
        (b"A", b"b"),
        (b"Idempotent-Replayed", b"true"),
        (b"Original-Request", b"r1"),
    )


def test_marks_of_a_replay_replace_stored_fields() -> None:
    """The first answer's word on another try is not the replay's."""
    found = Dialect("house", replay_headers=(("Should-Retry", "false"),))
    assert mark_replay(((b"should-retry", b"true"), (b"A", b"b")), found, {}) == ((b"A", b"b"), (b"Should-Retry", b"false"))


def test_a_dialect_may_have_no_marks() -> None:
    """An empty mapping is not the same as none."""
    assert mark_replay(((b"A", b"b"),), Dialect("house", replay_headers=()), {}) == ((b"A", b"b"),)


def test_marks_of_a_first_answer_yield_to_the_upstreams() -> None:
    """What the upstream says of itself is better than what we would say for it."""
    found = Dialect("house", first_headers=(("Result", "accepted"), ("X-Key", "{key}")))
    assert mark_first(((b"result", b"rejected"),), found, {"key": "k"}) == ((b"result", b"rejected"), (b"X-Key", b"k"))
    assert mark_first(((b"A", b"b"),), Dialect(), {}) == ((b"A", b"b"),)


def test_a_placeholder_may_stand_twice_in_one_field() -> None:
    assert render_headers((("X-Mark", "{key}/{key}"), ("X-None", "{key}{detail}")), {"key": "k", "detail": ""}) == ((b"X-Mark", b"k/k"),)
