"""Requests of probes."""

import json
from urllib.parse import parse_qsl, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.reconcile.found import Names
from gateway.core.reconcile.policy import RequestTemplate
from gateway.core.reconcile.request import Made, Unfillable, make_request

JSON = ("Content-Type", "application/json")
FORM = ("Content-Type", "application/x-www-form-urlencoded")


def named(key: str = "k-1", **captured: str) -> Names:
    return Names(key, captured, "req-1")


def target(text: str, names: Names) -> str:
    return make_request(RequestTemplate("GET", text), names).target.decode()


def header(text: str, names: Names) -> str:
    return make_request(RequestTemplate("GET", "/", (("X", text),)), names).headers[0][1].decode()


def body(text: str, names: Names, content_type: tuple[str, str] = JSON) -> bytes:
    return make_request(RequestTemplate("POST", "/", (content_type,), text), names).body


def test_makes_a_request() -> None:
    """Everything is filled in, and nothing is added."""
    template = RequestTemplate(
        "POST",
        "/v1/search/{captured.order}?key={key}&limit=1",
        (("Authorization", "Bearer s3cret"), JSON, ("X-Request", "{request_id}")),
        '{"reference": "{captured.order}", "amount": {captured.amount}, "key": "{key}"}',
    )
    assert make_request(template, named('k"/1', order="o 7", amount="12")) == Made(
        "POST",
        b"/v1/search/o%207?key=k%22%2F1&limit=1",
        ((b"Authorization", b"Bearer s3cret"), (b"Content-Type", b"application/json"), (b"X-Request", b"req-1")),
        b'{"reference": "o 7", "amount": 12, "key": "k\\"/1"}',
    )


def test_makes_a_request_without_a_body() -> None:
    """A template without a body makes a request without one."""
    assert make_request(RequestTemplate("GET", "/v1/charges"), named()) == Made("GET", b"/v1/charges", (), b"")


def test_a_value_is_no_template() -> None:
    """Placeholders in values stay as they are."""
    assert target("/{key}", named("{captured.a}", a="x")) == "/%7Bcaptured.a%7D"
    assert header("{key}", named("{request_id}")) == "{request_id}"


def test_braces_that_are_no_placeholders_stay() -> None:
    """JSON has braces of its own, and a query language too, with blanks inside of them."""
    text = '{"query":"query($k: String!) { charge(key: $k) { id status } }","variables":{"k":"{key}"},"empty":{}}'
    assert body(text, named()) == text.replace("{key}", "k-1").encode()


@pytest.mark.parametrize(
    ("text", "names", "name"),
    [
        ("/v1/{captured.order}", named(), "captured.order"),
        ("/v1/{captured.order}", named(order=""), "captured.order"),
        ("/v1?ref={captured.order}", named(order=""), "captured.order"),
        ("/v1/{key}", named(""), "key"),
        ("/v1/{key}", named(".."), "key"),
        ("/v1/{key}", named("."), "key"),
        ("/v1/{key}?{captured.a}", named("..", a=".."), "key"),
        ("/v1/{key}/x", named("../refunds/1"), "key"),
        ("/v1/{key}", named("a/../../b"), "key"),
        ("/v1/{key}", named("..\\b"), "key"),
        ("/v1/{key}", named("%2e%2e%2fadmin"), "key"),
        ("/v1/{key}", named("..;a"), "key"),
        ("/v1/.{key}", named("."), "key"),
        ("/v1/{key}{captured.a}", named(".", a="."), "key, captured.a"),
        ("/v1/{captured.a}", named(a="\ud800"), "captured.a"),
    ],
)
def test_unfillable_targets(text: str, names: Names, name: str) -> None:
    """A value that is missing or empty would ask for everything; one that makes another path would ask for something else."""
    with pytest.raises(Unfillable) as caught:
        target(text, names)
    assert caught.value.name == name


SEPARATORS = ["a/b", "/a", "a/", "a\\b", "a;b", "a?b", "a#b", "a%2Fb", "a%", "a\0", "a\nb", "\x7f", "\x85"]


@pytest.mark.parametrize("value", SEPARATORS)
@pytest.mark.parametrize("text", ["/v1/{captured.v}", "/v1/x-{captured.v}/y?z=1", "/{captured.v}?v={key}"])
def test_a_path_takes_no_separators(text: str, value: str) -> None:
    """Frameworks that route by the decoded path would answer that there is no such thing, whatever was executed. No value is told."""
    with pytest.raises(Unfillable, match=r"`\{captured\.v\}` stands in the path") as caught:
        target(text, named(v=value))
    assert caught.value.name == "captured.v"
    assert value not in str(caught.value).removeprefix("`{captured.v}`")


@pytest.mark.parametrize("value", SEPARATORS)
def test_a_query_takes_separators(value: str) -> None:
    """Behind the first question mark an escaped one is a part of the value to every reader."""
    assert parse_qsl(target("/v1?x=1&v={captured.v}", named(v=value)).partition("?")[2])[1] == ("v", value)


def test_dots_are_fine_in_a_query() -> None:
    """Only a path has segments."""
    assert target("/v1?key={key}", named("../..")) == "/v1?key=..%2F.."
    assert target("/v1/{key}", named("a..b.")) == "/v1/a..b."


@pytest.mark.parametrize("value", ["s3cret\r\nX: y", "s3cret\n", "s3cret\0b", "s3\tcret", "s3crét", "s3cret\x7f", "s3cret\ud800"])
@pytest.mark.parametrize("text", ["{captured.v}", '"{captured.v}"', "Bearer {captured.v}"])
def test_unfillable_headers(value: str, text: str) -> None:
    """What could end the line, or that no field takes, is refused and not told."""
    with pytest.raises(Unfillable, match=r"captured\.v") as caught:
        header(text, named(v=value))
    assert "s3" not in str(caught.value)
    assert caught.value.name == "captured.v"


@pytest.mark.parametrize("value", [" a", "a ", " "])
def test_blanks_in_headers(value: str) -> None:
    """Blanks at an end would get lost on the way, but not from a string."""
    with pytest.raises(Unfillable):
        header("{captured.v}", named(v=value))
    assert header('"{captured.v}"', named(v=value)) == f'"{value}"'


@pytest.mark.parametrize("value", ["", "007", "1.0", "1e2", "-0", "x", "1,2", '1,"a":2', " 1", "1\n", "\u0661"])
def test_unfillable_numbers(value: str) -> None:
    """Outside of strings only a whole number can stand."""
    with pytest.raises(Unfillable):
        body('{"a":{captured.v}}', named(v=value))


def test_strings_in_headers_are_escaped() -> None:
    """Inside quotes a value cannot end the string (RFC 9651 section 3.3.3); outside it stands as it is."""
    assert header('"{key}";a=1', named('a"b\\c')) == '"a\\"b\\\\c";a=1'
    assert header("{key}", named('a"b\\c')) == 'a"b\\c'


_any_text = st.text(min_size=1, max_size=40)
_keys = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=40)


@given(_any_text)
def test_a_target_holds_any_value(value: str) -> None:
    """What is read from the target is the value, whole, and it cannot leave its place; or it is refused."""
    try:
        made = target("/v1/a/{captured.v}/b?x={captured.v}&y=2", named(v=value))
    except Unfillable:
        assert any(character in value for character in "./\\;?#% ") or not value.isprintable()
        return
    path, _, query = made.partition("?")
    assert not any(character in value for character in "/\\;?#%\0\r\n\x7f")
    segments = path.split("/")
    assert [segments[1], segments[2], segments[4], len(segments)] == ["v1", "a", "b", 5]
    assert unquote(segments[3], errors="strict") == value
    assert parse_qsl(query, strict_parsing=True) == [("x", value), ("y", "2")]
    assert all(0x21 <= ord(character) <= 0x7E for character in made)


@given(_any_text)
def test_json_holds_any_value(value: str) -> None:
    """What is read from the body is the value, and no member is changed or added."""
    assert json.loads(body('{"a":"{captured.v}","{captured.v}":["x{captured.v}y"]}', named(v=value))) == {"a": value, value: [f"x{value}y"]}


@given(st.integers())
def test_json_holds_any_whole_number(value: int) -> None:
    """A captured whole number can stand outside of strings."""
    assert json.loads(body('{"a":{captured.v}}', named(v=str(value)))) == {"a": value}


@given(_any_text)
def test_forms_hold_any_value(value: str) -> None:
    """What is read from a form is the value, and no pair is added."""
    try:
        made = body("a={captured.v}&b=2", named(v=value), FORM)
    except Unfillable:
        assert any(0xD800 <= ord(character) <= 0xDFFF for character in value)
        return
    assert parse_qsl(made.decode(), keep_blank_values=True, strict_parsing=True) == [("a", value), ("b", "2")]


@given(_keys)
def test_headers_hold_any_key(key: str) -> None:
    """A visible key arrives unchanged, bare or quoted, unless blanks at its ends would get lost."""
    if key.strip() != key:
        with pytest.raises(Unfillable):
            header("{key}", named(key))
        return
    assert header("{key}", named(key)) == key
    quoted = header('"{key}"', named(key))
    assert quoted[1:-1].replace("\\\\", "\0").replace('\\"', '"').replace("\0", "\\") == key
