"""JSON read in one way only, and numbers by their own text."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.pointers import NOTHING, Json, at, split_pointer
from gateway.core.strict_json import AS_PYTHON, AS_TEXTS, AS_WRITTEN, DuplicateName, Number, read, refuse_lone_surrogates, write
from tests.core.jsons import json_texts, texts, values


def plain(value: Json) -> Json:
    """The value with numbers as decimals."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return Decimal(value) if isinstance(value, Number) else value


@given(values)
def test_reads_what_json_reads(value: Json) -> None:
    """A JSON text has the value that every reader finds, with numbers exact."""
    text = json.dumps(value)
    assert plain(read(text.encode())) == json.loads(text, parse_float=Decimal, parse_int=Decimal)


@given(json_texts)
def test_is_no_more_generous_than_json(text: str) -> None:
    """What is read at all is JSON to the standard library too, and its compact form is read alike and written alike."""
    try:
        value = read(text.encode())
    except ValueError:
        return
    json.loads(text)
    compact = write(value)
    assert read(compact.encode()) == value
    assert write(read(compact.encode())) == compact
    assert len(compact) <= len(text) or "\\" in text


@given(json_texts)
def test_every_decoder_takes_the_same_texts(text: str) -> None:
    """What a caller makes of numbers does not decide which texts are JSON."""
    taken: set[bool] = set()
    for numbers in (AS_WRITTEN, AS_TEXTS, AS_PYTHON):
        try:
            read(text.encode(), numbers)
        except ValueError:
            taken.add(False)
        else:
            taken.add(True)
    assert len(taken) == 1


@given(st.lists(texts, min_size=1, unique=True), st.data())
def test_names_what_stands_twice(names: list[str], data: st.DataObject) -> None:
    """The error names the member that an object has twice."""
    again = data.draw(st.sampled_from(names))
    members = ",".join(f"{json.dumps(name)}:1" for name in [*names, again])
    with pytest.raises(DuplicateName) as error:
        read(f"[{{{members}}}]".encode())
    assert error.value.name == again


@pytest.mark.parametrize("body", [b'"\\ud800"', b'{"\\udc00":1}', b'[[{"a":"x\\ud83d"}]]'])
def test_lone_surrogates_can_be_refused(body: bytes) -> None:
    """They are read, wherever they stand, and refused for a caller that cannot keep them."""
    value = read(body)
    with pytest.raises(ValueError, match="surrogates"):
        refuse_lone_surrogates(value)


@given(values)
def test_texts_with_utf8_are_not_refused(value: Json) -> None:
    """A pair of surrogates is one character, and no lone one."""
    refuse_lone_surrogates(read(json.dumps(value).encode()))


@pytest.mark.parametrize(
    "number", ["0", "-0", "1.10", "1e2", "1E+02", "12345678901234567890", "0.1000000000000000055511151231257827", "9" * 5000]
)
def test_keeps_numbers_as_written(number: str) -> None:
    """No number goes through a double, nor through an interpreter's limit on digits."""
    assert write(read(f'{{"n" : {number} }}'.encode())) == f'{{"n":{number}}}'


@pytest.mark.parametrize("number", ["0", "-1", "7", "9007199254740991", "-9007199254740991"])
def test_whole_numbers_are_texts(number: str) -> None:
    """To who wants texts only a whole number is one, if every reader has the same (RFC 7493 section 2.2)."""
    assert read(f'{{"n":{number}}}'.encode(), AS_TEXTS) == {"n": number}


@pytest.mark.parametrize(
    "number", ["-0", "9007199254740992", "-9007199254740992", "12345678901234567890", "9" * 5000, "-" + "9" * 5000, "1.0", "1e2", "1e9999"]
)
def test_other_numbers_are_no_texts(number: str) -> None:
    """What most readers make another number of would name something else to them."""
    value = at(read(f'{{"n":{number}}}'.encode(), AS_TEXTS), ["n"])
    assert isinstance(value, float)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b'{"a":1,"a":1}',
        b'{"a":{"b":1,"\\u0062":2}}',
        b'{"a":NaN}',
        b"[-Infinity]",
        b'{"a":1}{',
        b"\xef\xbb\xbf{}",
        b'"\xff"',
        '{"a":"ü"}'.encode("latin-1"),
        '{"a":1}'.encode("utf-16"),
        b"[01]",
        b"'a'",
        b'{"a":"\n"}',
        b"[" * 65 + b"7" + b"]" * 65,
        b"[" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    ],
)
def test_refuses(body: bytes) -> None:
    """What two readers could read differently, and what no reader should have to read, is no JSON."""
    for numbers in (AS_WRITTEN, AS_TEXTS, AS_PYTHON):
        with pytest.raises(ValueError):  # noqa: PT011 - any of the reader's reasons
            read(body, numbers)


def test_takes_the_greatest_depth() -> None:
    """64 levels are read; a scalar or an empty list may stand in the innermost."""
    assert at(read(b"[" * 64 + b"7" + b"]" * 64), ["0"] * 64) == "7"


@pytest.mark.parametrize(
    ("pointer", "want"),
    [
        ("", '{"a":[1,{"b/c":null}],"0":"z","":true,"*":"star"}'),
        ("/a/0", "1"),
        ("/a/1/b~1c", "null"),
        ("/0", '"z"'),
        ("/", "true"),
        ("/*", '"star"'),
        ("/a/00", None),
        ("/a/-", None),
        ("/a/2", None),
        ("/a/-1", None),
        ("/b", None),
        ("/0/0", None),
        ("/a/1/b~1c/x", None),
    ],
)
def test_points(pointer: str, want: str | None) -> None:
    """A pointer names one value or nothing (RFC 6901); null is something."""
    found = at(read(b'{"a":[1,{"b/c":null}],"0":"z","":true,"*":"star"}'), split_pointer(pointer))
    assert (None if found is NOTHING else write(found)) == want


@given(st.dictionaries(texts, st.integers(), min_size=1))
def test_points_at_every_member(members: dict[str, int]) -> None:
    """Whatever a member is called, its escaped name is its pointer."""
    document = read(json.dumps(members).encode())
    for name, value in members.items():
        assert at(document, split_pointer("/" + name.replace("~", "~0").replace("/", "~1"))) == str(value)


def test_writes_lone_surrogates_as_escapes() -> None:
    """A text that has no UTF-8 is written by its escape, all others by their characters."""
    assert write(read(b'["\\ud800","\\u00e9\\""]')) == '["\\ud800","é\\""]'
