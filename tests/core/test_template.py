"""The template engine: what it refuses and what it replaces, place by place."""

import json
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.pointers import NOTHING, Json
from gateway.core.template import (
    Pieces,
    Place,
    Slot,
    Unfillable,
    compile_body,
    compile_header,
    compile_target,
    fill,
    fill_anyway,
    sample,
    slots,
)

ANYTHING = st.text(st.characters(), max_size=40)
"""Every code point, lone surrogates and control characters among them."""


def anywhere(name: str, place: Place) -> Slot:
    """A vocabulary in which every placeholder exists, in every place."""
    return Slot(name, place, of_json=name.startswith("found"))


TEMPLATES: dict[Place, Pieces] = {
    Place.PATH: compile_target("/a/{v}?b=1", anywhere),
    Place.QUERY: compile_target("/a?b={v}", anywhere),
    Place.HEADER: compile_header("{v}", anywhere),
    Place.HEADER_STRING: compile_header('a="{v}"', anywhere),
    Place.JSON_STRING: compile_body('{"a": "{v}"}', "application/json", anywhere),
    Place.XML: compile_body('<a b="{v}"/>', "text/xml", anywhere),
    Place.PLAIN: compile_body("a: {v}", "text/plain; charset=utf-8", anywhere),
    Place.FORM: compile_body("a={v}", "application/x-www-form-urlencoded", anywhere),
}


def read_back(place: Place, text: str) -> str:
    """The value that a reader of the filled text finds."""
    match place:
        case Place.PATH:
            return unquote(text.removeprefix("/a/").removesuffix("?b=1"))
        case Place.QUERY:
            return unquote(text.removeprefix("/a?b="))
        case Place.FORM:
            return unquote(text.removeprefix("a="))
        case Place.HEADER_STRING:
            return text.removeprefix('a="').removesuffix('"').replace('\\"', '"').replace("\\\\", "\\")
        case Place.JSON_STRING:
            return str(json.loads(text)["a"])
        case Place.XML:
            return ET.fromstring(text).attrib["b"]
        case Place.PLAIN:
            return text.removeprefix("a: ")
        case _:
            return text


@given(st.sampled_from(list(TEMPLATES)), ANYTHING)
@example(Place.PATH, "a/b")
@example(Place.XML, "\0")
@example(Place.HEADER, "a\r\nb")
def test_a_value_is_unchanged_or_refused(place: Place, value: str) -> None:
    """Whatever `fill` writes, its reader finds the value as it was; else it is refused."""
    assert [slot.place for slot in slots(TEMPLATES[place])] == [place]
    try:
        text = fill(TEMPLATES[place], lambda _: value)
    except Unfillable:
        return
    if place is not Place.HEADER_STRING or "\\" not in value:
        assert read_back(place, text) == value


@given(st.sampled_from(list(TEMPLATES)), ANYTHING)
def test_any_value_can_be_written_anyway(place: Place, value: str) -> None:
    """`fill_anyway` always makes a text that its reader takes, and that is UTF-8; a value that can stand there is not changed."""
    if place is Place.PATH:
        return  # no answer has one
    text = fill_anyway(TEMPLATES[place], {"v": value})
    text.encode()
    read_back(place, text)
    if value.isascii() and value.isalnum():
        assert read_back(place, text) == value


@pytest.mark.parametrize(
    ("value", "name", "want"), [("7", "v", "7"), ("-1", "v", "-1"), ([1, None], "found", "[1,null]"), ("", "found", '""')]
)
def test_outside_of_strings(value: Json, name: str, want: str) -> None:
    """A whole number may stand there, and any part of a document."""
    assert fill(compile_body(f'{{"a":{{{name}}}}}', "application/json", anywhere), lambda _: value) == f'{{"a":{want}}}'


@pytest.mark.parametrize("value", [NOTHING, "", "1.0", "07", "x", None, 1.5, [1], {}])
def test_what_cannot_stand_outside_of_strings(value: Json) -> None:
    """No other value of a client's or of the request may."""
    with pytest.raises(Unfillable, match=r"`\{v\}`"):
        fill(compile_body('{"a":{v}}', "application/json", anywhere), lambda _: value)


def test_a_missing_value_is_empty_or_null() -> None:
    """In an answer that goes out anyway."""
    assert fill_anyway(compile_body('{"a":{v},"b":"{v}"}', "application/json", anywhere), {}) == '{"a":null,"b":""}'


@given(st.sampled_from(list(TEMPLATES)))
def test_a_sample_fits_in_every_place(place: Place) -> None:
    """What `check` fills in to look at a template can stand wherever a value can."""
    assert sample(TEMPLATES[place]) == fill(TEMPLATES[place], lambda _: "1")


def test_a_vocabulary_is_asked_for_each_placeholder() -> None:
    """A place is the template's to say, a name the vocabulary's; its refusal is passed on."""
    asked: list[tuple[str, Place]] = []

    def noted(name: str, place: Place) -> Slot:
        asked.append((name, place))
        if name == "no":
            raise ValueError("there is no such placeholder")
        return Slot(name, place)

    compile_target("/{a}/{captured.b}?{found:/x}", noted)
    compile_body('{"{c}": {d}, "e": 1}', "application/problem+json", noted)
    assert asked == [
        ("a", Place.PATH),
        ("captured.b", Place.PATH),
        ("found:/x", Place.QUERY),
        ("c", Place.JSON_STRING),
        ("d", Place.JSON_VALUE),
    ]
    with pytest.raises(ValueError, match="no such placeholder"):
        compile_header("{no}", noted)
