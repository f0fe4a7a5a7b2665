"""A string set in a JSON body by splicing."""

import json
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.core.splice import JsonText, splice
from tests.core.jsons import texts, values


@pytest.mark.parametrize(
    ("body", "pointer", "want"),
    [
        ('{"key":"old"}', "/key", '{"key":"K"}'),
        ('{"key":null}', "/key", '{"key":"K"}'),
        ('{"key":{"a":[1]},"b":2}', "/key", '{"key":"K","b":2}'),
        ('{"k\\u0065y" : 1e2 , "b":2}', "/key", '{"k\\u0065y" : "K" , "b":2}'),
        ("{}", "/key", '{"key":"K"}'),
        ("{ \n}", "/key", '{"key":"K" \n}'),
        ('{"a":1}', "/key", '{"a":1,"key":"K"}'),
        ('{\r\n  "a": 1.00\r\n}\n', "/key", '{\r\n  "a": 1.00,"key":"K"\r\n}\n'),
        ('{"a":"}"}', "/key", '{"a":"}","key":"K"}'),
        ('{"a":{}}', "/key", '{"a":{},"key":"K"}'),
        ('{"a":{}}', "/a/key", '{"a":{"key":"K"}}'),
        ('{"a":{"x":1},"b":{"key":2}}', "/a/key", '{"a":{"x":1,"key":"K"},"b":{"key":2}}'),
        ('{"key":"inner","a":{"key":"x"}}', "/a/key", '{"key":"inner","a":{"key":"K"}}'),
        ('[0,{"key":1}, {"key":2}]', "/2/key", '[0,{"key":1}, {"key":"K"}]'),
        ("[ 1 , 2 ]", "/1", '[ 1 , "K" ]'),
        ('{"é":"ü","😀":[]}', "/key", '{"é":"ü","😀":[],"key":"K"}'),
        ('{"a/b":{"m~n":1}}', "/a~1b/m~0n", '{"a/b":{"m~n":"K"}}'),
        ('{"":1}', "/", '{"":"K"}'),
        ('{"0":1}', "/0", '{"0":"K"}'),
        ('{"n":' + "9" * 5000 + "}", "/key", '{"n":' + "9" * 5000 + ',"key":"K"}'),
        ('{"s":"\\ud800"}', "/key", '{"s":"\\ud800","key":"K"}'),
        # no such object
        ("", "/key", None),
        ("1", "/key", None),
        ('"x"', "/key", None),
        ("null", "/key", None),
        ("[]", "/key", None),
        ("[1]", "/1", None),
        ("[1]", "/-", None),
        ("[1]", "/00", None),
        ('{"a":1}', "/a/key", None),
        ('{"a":1}', "/b/key", None),
        ('{"a":[]}', "/a/0/key", None),
        ('{"key":1}', "", None),
        # not strict JSON
        ('{"key":1,"key":2}', "/key", None),
        ('{"a":{"x":1,"\\u0078":2}}', "/key", None),
        ('{"a":1,}', "/key", None),
        ('{"a":NaN}', "/key", None),
        ('\ufeff{"a":1}', "/key", None),
        ('{"a":1}x', "/key", None),
        ("a=1", "/key", None),
    ],
)
def test_splice(body: str, pointer: str, want: str | None) -> None:
    """The value is replaced or the member added, and nothing else changes; None where strict JSON has no such place."""
    assert splice(body.encode(), pointer, "K") == (None if want is None else want.encode())


def test_other_encodings() -> None:
    """Only UTF-8 is JSON between systems (RFC 8259 section 8.1)."""
    assert splice('{"a":"é"}'.encode("latin-1"), "/key", "K") is None
    assert splice('{"a":1}'.encode("utf-16"), "/key", "K") is None


def test_a_bad_pointer_is_a_mistake() -> None:
    """A text that is no pointer is not taken for one that names nothing."""
    for pointer in ("key", "/a~2"):
        with pytest.raises(ValueError, match="JSON pointer"):
            splice(b"{}", pointer, "K")


def test_depth() -> None:
    """The limit of nesting is the same on every interpreter."""
    for depth in (64, 65, 100_000):
        body = b'{"a":' + b"[" * depth + b"]" * depth + b"}"
        assert splice(body, "/key", "K") == (body[:-1] + b',"key":"K"}' if depth < 65 else None)


spacings = st.sampled_from(["", " ", "\n", "\r\n\t"])


@st.composite
def json_texts(draw: st.DrawFn, value: object) -> str:
    """One of the many spellings of a JSON value."""
    space = draw(spacings)
    if isinstance(value, dict):
        members = [f"{space}{draw(json_texts(name))}{space}:{draw(json_texts(item))}{space}" for name, item in value.items()]
        return space + "{" + ",".join(members) + (space if not members else "") + "}" + space
    if isinstance(value, list):
        return space + "[" + ",".join([draw(json_texts(item)) for item in value]) + "]" + space
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


def places(value: object, pointer: str = "") -> list[str]:
    """Pointers to everything in a value, and to one absent member of each object."""
    if isinstance(value, dict):
        escaped = {name: f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}" for name in value}
        inner = [place for name, item in value.items() for place in places(item, escaped[name])]
        return [*escaped.values(), *inner, f"{pointer}/absent member"]
    if isinstance(value, list):
        return [place for index, item in enumerate(value) for place in (f"{pointer}/{index}", *places(item, f"{pointer}/{index}"))]
    return []


def assign(value: Any, pointer: str, text: str) -> None:
    """What splicing means, on a parsed value."""
    *parents, last = [token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/")]
    for token in parents:
        value = value[int(token)] if isinstance(value, list) else value[token]
    value[int(last) if isinstance(value, list) else last] = text


@given(data=st.data(), value=values, text=texts)
def test_splice_is_assignment(data: st.DataObject, value: object, text: str) -> None:
    """In any spelling of any value, at any place: the parsed result has the text there and all else as before; doing it twice is doing
    it once; and the bytes before and behind the text are those of the body.
    """
    candidates = places(value)
    assume(candidates)
    pointer = data.draw(st.sampled_from(candidates))
    body = data.draw(json_texts(value)).encode()
    spliced = splice(body, pointer, text)
    assert spliced is not None
    expected = json.loads(body)
    assign(expected, pointer, text)
    assert json.loads(spliced) == expected
    assert list(json.loads(spliced)) == list(expected)
    assert splice(spliced, pointer, text) == spliced
    assert any(_encloses(body, spliced, at, json.dumps(text).encode()) for at in range(len(spliced)))


def _encloses(body: bytes, spliced: bytes, at: int, text: bytes) -> bool:
    """Whether `text` stands here, between the beginning and the end of the body, but for the name of a new member."""
    before, behind = spliced[:at], spliced[at + len(text) :]
    head = before.removesuffix(b'"absent member":')
    heads = (before,) if head == before else (head, head.removesuffix(b","))
    return spliced.startswith(text, at) and body.endswith(behind) and any(body.startswith(head) for head in heads)


@given(body=st.binary(max_size=60), pointer=st.sampled_from(["/key", "/a/key", "/0", ""]))
def test_any_bytes(body: bytes, pointer: str) -> None:
    """Any bytes are either spliced or left alone, never an error."""
    assert isinstance(splice(body, pointer, "K"), bytes | None)


def test_a_body_is_read_once() -> None:
    """However often, and in however many places, a key is put into it: reading a large one takes a tenth of a second each time."""
    text, calls = JsonText(b'{"items":[' + b"{}," * 200 + b'{}],"id":"k"}'), 0

    def counted(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_name == "unique_members"

    sys.setprofile(counted)
    try:
        text.value()
        for pointer in ("/id", "/key"):
            assert text.with_text(pointer, "K") is not None
        once, calls = calls, 0
        for pointer in ("/id", "/key"):
            assert text.with_text(pointer, "L") is not None
    finally:
        sys.setprofile(None)
    assert once >= 201
    assert calls == 0
