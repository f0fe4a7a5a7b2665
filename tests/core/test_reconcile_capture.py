"""Values of a request that are kept for probes and webhooks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.pointers import Json
from gateway.core.reconcile.capture import MAX_LENGTH, UNREAD, capture, is_unread
from tests.core.jsons import json_texts, texts, values

JSON = b"application/json"


@pytest.mark.parametrize(
    ("value", "want"),
    [
        ('"ord_1"', "ord_1"),
        ('"\\u00e9 \\n"', "é \n"),
        ("12", "12"),
        ("-7", "-7"),
        ("0", "0"),
        ("9007199254740991", "9007199254740991"),
        ("-9007199254740991", "-9007199254740991"),
        ("9007199254740992", None),
        ("-9007199254740992", None),
        ("12345678901234567890", None),
        ('"12345678901234567890"', "12345678901234567890"),
        ('"' + "x" * 255 + '"', "x" * 255),
        ('"' + "x" * 256 + '"', None),
        ('""', None),
        ("1.0", None),
        ("1e2", None),
        ("-0", None),
        ('"-0"', "-0"),
        ("9" * 5000, None),
        ("1e9999", None),
        ("true", None),
        ("null", None),
        ('["a"]', None),
        ("{}", None),
        ('"a\\u0000b"', None),
        ('"\\ud800"', None),
        ('"\\ud83d\\ude00"', "😀"),
    ],
)
def test_captures(value: str, want: str | None) -> None:
    """Texts and whole numbers, whole; what is of another kind, another number to others, too long, or cannot be kept is left out, and
    told to be there.
    """
    left_out = {} if value in {'""', "null"} else {UNREAD: "v"}
    assert capture(f'{{"v":{value}}}'.encode(), JSON, [("v", "/v")]) == (left_out if want is None else {"v": want})


def test_what_is_left_out_is_told_by_name() -> None:
    """Each of several; and no part of a name is one."""
    captured = capture(b'{"amount":1.5,"tip":[1],"order":"o1"}', JSON, [(name, f"/{name}") for name in ("amount", "tip", "order", "gone")])
    assert captured == {"order": "o1", UNREAD: "amount tip"}
    assert [is_unread(name, captured) for name in ("amount", "tip", "order", "gone", "", "amoun")] == [True, True, *[False] * 4]
    assert not is_unread("amount", {})


def test_captures_by_name() -> None:
    """Each name has the value at its own pointer; what is not there is left out."""
    body = b'{"order":{"id":"o1","lines":[{"sku":"s0"}]}}'
    wanted = [("order", "/order/id"), ("sku", "/order/lines/0/sku"), ("again", "/order/id"), ("gone", "/order/lines/1/sku")]
    assert capture(body, JSON, wanted) == {"order": "o1", "sku": "s0", "again": "o1"}


@pytest.mark.parametrize("content_type", [None, b"", b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data", b"\xff"])
def test_only_from_json(content_type: bytes | None) -> None:
    """What is not said to be JSON may be read otherwise by the upstream: nothing of it is captured."""
    assert capture(b'{"v":"x"}', content_type, [("v", "/v"), ("w", "/w")]) == {UNREAD: "v w"}


@pytest.mark.parametrize("content_type", [b"application/json;charset=utf-8", b"Application/JSON", b"application/vnd.api+json"])
def test_from_all_that_is_json(content_type: bytes) -> None:
    """Parameters, letter case and suffixes do not matter."""
    assert capture(b'{"v":"x"}', content_type, [("v", "/v")]) == {"v": "x"}


@pytest.mark.parametrize("body", [None, b"", b"v=x", b'{"v":"x","v":"y"}', b'{"v":"x"', b"\x1f\x8b"])
def test_only_from_strict_json(body: bytes | None) -> None:
    """What is no JSON, JSON with two meanings, or not at hand gives nothing; only where there is no body there is no value either."""
    assert capture(body, JSON, [("v", "/v")]) == ({} if body == b"" else {UNREAD: "v"})


@pytest.mark.parametrize(
    ("body", "want"),
    [
        (b'{"order":{"id":"o1","ID":"o2"}}', {"id": "o1", UNREAD: "id"}),
        (b'{"order":{"id":"o1"},"Order":{}}', {"id": "o1", UNREAD: "id"}),
        (b'{"ORDER":{"id":"o1"}}', {UNREAD: "id"}),
        (b'{"order":{"id":"o1"},"orders":[],"x":{"Order":1}}', {"id": "o1"}),
        (b'{"order":[{"ID":1}]}', {}),
    ],
)
def test_a_second_spelling_is_told(body: bytes, want: dict[str, str]) -> None:
    """Go and .NET take a name in other letter cases, too. What is captured stays what is spelled as wanted."""
    assert capture(body, JSON, [("id", "/order/id")]) == want


@given(st.dictionaries(texts, values), st.sets(texts))
def test_keeps_what_is_there(members: dict[str, Json], others: set[str]) -> None:
    """Exactly the texts and whole numbers that fit are captured, each unchanged."""
    wanted = [(name, "/" + name.replace("~", "~0").replace("/", "~1")) for name in sorted({*members, *others})]
    captured = capture(json.dumps(members).encode(), JSON, wanted)
    for name, value in members.items():
        kept = isinstance(value, str | int) and not isinstance(value, bool) and value != "" and "\0" not in str(value)
        assert captured.get(name) == (str(value) if kept else None)
    assert captured.keys() - {UNREAD} <= members.keys()


@given((json_texts | st.text()).map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary())
def test_never_fails(body: bytes) -> None:
    """Whatever a client sends: no error, and nothing that could not be stored."""
    for value in capture(body, JSON, [("whole", ""), ("first", "/0"), ("a", "/a")]).values():
        assert 0 < len(value) <= MAX_LENGTH
        assert "\0" not in value
        value.encode()
