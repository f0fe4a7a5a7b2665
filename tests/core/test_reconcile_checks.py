"""What a template may be, and what its author is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.reconcile.found import Found, Names, judge
from gateway.core.reconcile.policy import AnswerPlan, RequestTemplate, Rule, Verdict
from gateway.core.reconcile.request import check_plan, check_template, make_request, placeholders_of

JSON = ("Content-Type", "application/json")


def test_placeholders() -> None:
    """All of them, from wherever they stand, as they are written."""
    template = RequestTemplate("POST", "/{key}?o={captured.order}", (JSON, ("X", "{request_id}")), '{"a":"{captured.a b}","q":"{ id }"}')
    assert placeholders_of(template) == {"key", "captured.order", "request_id", "captured.a b"}
    plan = AnswerPlan(201, (JSON, ("Location", "/c/{found:/id}")), '{"a":{found:/data/0/x y},"b":"{found:}"}')
    assert placeholders_of(plan) == {"found:/id", "found:/data/0/x y", "found:"}
    assert placeholders_of(AnswerPlan()) == frozenset()


@pytest.mark.parametrize(
    "template",
    [
        RequestTemplate("GET", "/v1/charges?idempotency_key={key}"),
        RequestTemplate("GET", "/"),
        RequestTemplate("GET", "/v1/orders/{captured.order}/charges", (("Authorization", "Bearer {not-a-placeholder}"),)),
        RequestTemplate("POST", "/v1/charges/cancel", (JSON,), '{"idempotency_key": "{key}", "n": {captured.order}}'),
        RequestTemplate("POST", "/v1/search", (("content-type", "application/x-www-form-urlencoded"),), "q={key}"),
        RequestTemplate("POST", "/v1/search", (("Content-Type", "text/plain"),), "all of it"),
    ],
)
def test_good_templates(template: RequestTemplate) -> None:
    """Templates that can be sent pass."""
    check_template(template, {"order"})


@pytest.mark.parametrize(
    ("template", "lesson"),
    [
        (RequestTemplate("get", "/"), "capital letters"),
        (RequestTemplate("CONNECT", "/"), "no method of a probe"),
        (RequestTemplate("GET", "v1/charges"), "begins with a slash"),
        (RequestTemplate("GET", "http://payments/v1"), "begins with a slash"),
        (RequestTemplate("GET", "{key}"), "begins with a slash"),
        (RequestTemplate("GET", "/v1/a#b"), "fragment"),
        (RequestTemplate("GET", "/v1/a b"), "blanks"),
        (RequestTemplate("GET", "/v1/ä"), "ASCII"),
        (RequestTemplate("GET", "/v1/../{key}"), "dot segments"),
        (RequestTemplate("GET", "/v1/{id}"), "there is no placeholder `{id}`; there are {key}, {principal}, {request_id}"),
        (RequestTemplate("GET", "/v1/{captured.}"), "no placeholder"),
        (RequestTemplate("GET", "/v1/{captured.oder}"), "`{captured.oder}` is not captured; what is captured is {captured.order}"),
        (RequestTemplate("GET", "/v1/{found:/id}"), "nothing has been found yet"),
        (RequestTemplate("GET", "/v1/{found:id}"), "starts with a slash"),
        (RequestTemplate("GET", "/", (("Host", "x"),)), "`Host` is not a template's to set"),
        (RequestTemplate("GET", "/", (("content-length", "1"),)), "`content-length` is not"),
        (RequestTemplate("GET", "/", (("X Y", "1"),)), "no name of a header field"),
        (RequestTemplate("GET", "/", (("X", "s3cret\n"),)), "the value of `X` holds line ends"),
        (RequestTemplate("POST", "/", (), "{}"), "needs a Content-Type"),
        (RequestTemplate("POST", "/", (JSON,), "{'a': 1}"), "not JSON"),
        (RequestTemplate("POST", "/", (JSON,), '{"a": 1, "a": 2}'), "duplicate name"),
        (RequestTemplate("POST", "/", (JSON,), '{"a": {key}}'), 'put it in quotes, as in "{key}"'),
        (RequestTemplate("POST", "/", (("Content-Type", "application/xml"),), "<a>{key}</a>"), "cannot be escaped"),
    ],
)
def test_bad_templates(template: RequestTemplate, lesson: str) -> None:
    """A template that could never be sent is refused with a sentence, which tells no header value."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the sentence is what is tested
        check_template(template, {"order"})
    assert lesson in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_nothing_is_captured() -> None:
    """Where nothing is captured at all, the sentence says how to begin."""
    with pytest.raises(ValueError, match=r"write `capture: \{name: /pointer\}`"):
        check_template(RequestTemplate("GET", "/{captured.order}"), ())


@pytest.mark.parametrize(
    "plan",
    [
        AnswerPlan(),
        AnswerPlan(201, pointer="/data/0"),
        AnswerPlan(204),
        AnswerPlan(
            201, (JSON, ("Location", "/v1/charges/{found:/id}")), '{"id":"{found:/id}","amount":{found:/amount},"o":"{captured.order}"}'
        ),
        AnswerPlan(200, (("Content-Type", "text/plain"),), "done"),
        AnswerPlan(200, (JSON,), "{found:}"),
    ],
)
def test_good_plans(plan: AnswerPlan) -> None:
    """Plans that can be built pass."""
    check_plan(plan, {"order"}, event=False)


@pytest.mark.parametrize(
    ("plan", "lesson"),
    [
        (AnswerPlan(), "an event has no status of its own"),
        (AnswerPlan(101), "200 to 599"),
        (AnswerPlan(600), "200 to 599"),
        (AnswerPlan(201, (JSON,), "{}", "/a"), "not both"),
        (AnswerPlan(204, pointer="/a"), "status 204 has no body"),
        (AnswerPlan(204, (JSON,), "{}"), "status 204 has no body"),
        (AnswerPlan(201, pointer="a"), "starts with a slash"),
        (AnswerPlan(201, pointer="/~2"), "~0"),
        (AnswerPlan(201, (("Set-Cookie", "a=b"),)), "`Set-Cookie` is not kept"),
        (AnswerPlan(201, (("Transfer-Encoding", "chunked"),)), "`Transfer-Encoding` is not kept"),
        (AnswerPlan(201, (("Idempotent-Replayed", "true"),)), "is not kept"),
        (AnswerPlan(201, (("Location", "{stored:/id}"),)), "no placeholder"),
        (AnswerPlan(201, (("Location", "{found:id}"),)), "starts with a slash"),
        (AnswerPlan(201, (), "{}"), "needs a Content-Type"),
        (AnswerPlan(201, (JSON,), '{"a":{found:/a}'), "not JSON"),
        (AnswerPlan(201, (JSON,), '{"a":"{captured.b}"}'), "is not captured"),
    ],
)
def test_bad_plans(plan: AnswerPlan, lesson: str) -> None:
    """A plan that could never be built is refused with a sentence."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the sentence is what is tested
        check_plan(plan, {"order"}, event=True)
    assert lesson in str(caught.value)


_pieces = st.sampled_from(
    [
        "/",
        "a",
        "{key}",
        "{captured.order}",
        "{request_id}",
        "{x}",
        "{",
        "}",
        '"',
        ".",
        "?",
        "%2e",
        "#",
        " ",
        "\\",
        ":1,",
        "{found:/a}",
        "é",
        "[",
        "]",
    ]
)
_texts = st.lists(_pieces, max_size=6).map("".join)
_types = st.sampled_from([JSON, ("Content-Type", "application/x-www-form-urlencoded"), ("Content-Type", "text/plain")])


@given(_texts.map("/".__add__), _texts, _types, st.none() | _texts)
def test_what_passes_can_be_sent(target: str, value: str, content_type: tuple[str, str], body: str | None) -> None:
    """A template that passes makes a request from plain values."""
    template = RequestTemplate("POST", target, (("X", value), content_type), body)
    try:
        check_template(template, {"order"})
    except ValueError:
        return
    made = make_request(template, Names("k-1", {"order": "7"}, "req-1"))
    assert made.target.startswith(b"/")
    assert b"{key}" not in made.target + made.body + made.headers[0][1]


@given(_texts, _types, st.none() | _texts, st.booleans())
def test_what_passes_can_be_built(value: str, content_type: tuple[str, str], body: str | None, event: bool) -> None:
    """A plan that passes builds an answer from what has all that it names."""
    plan = AnswerPlan(201, (("X", value), content_type), body)
    try:
        check_plan(plan, {"order"}, event=event)
    except ValueError:
        return
    judged = judge(Found(None, (), b'{"a":1}'), [Rule(Verdict.EXECUTED, answer=plan)], Names("k-1", {"order": "7"}, "req-1"))
    assert judged.answer is not None, judged.why
