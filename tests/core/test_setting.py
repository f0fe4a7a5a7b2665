"""Settings are declared once: what is derived from a declaration, and that every declaration of the program holds
together.
"""

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.mistakes import Place
from gateway.config.model import Config
from gateway.config.reader import Reader
from gateway.config.section import Section
from gateway.config.source import compose
from gateway.core.hints import Hint
from gateway.core.kinds import Choice, DialectName, Duration, Inline, ListOf, MapOf, ScalarKind, SectionOf, SetOf, Size, Text, Whole
from gateway.core.setting import Form, Key, Setting, Shape, names, setting_of, settings_of
from gateway.core.units import format_duration, format_size


class Colour(enum.StrEnum):
    """A closed set."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Where(Form[str]):
    """Two settings that stand for one value."""

    SHAPE: ClassVar = Shape(one_of=("host", "path"))

    host: Annotated[str | None, Text("a host"), "A host."] = None
    path: Annotated[str | None, Text("a path"), "A path."] = None

    def value(self) -> str:
        return self.host or f"unix:{self.path}"


@dataclass(frozen=True, slots=True)
class House:
    """One of each sort of declaration."""

    where: Annotated[str, Inline(Where)]
    floors: Annotated[int, Whole(1, 9), "How many."]
    colour: Annotated[Colour, "Which."] = Colour.RED
    open: Annotated[bool, Key("opened"), "Whether."] = False
    rest: Annotated[float, Duration("1s", "1h"), "How long."] = 90.0
    doors: Annotated[frozenset[int], SetOf(Whole(1, 99)), "Which."] = frozenset()
    key: Annotated[str | None, Text("text", secret=True), "The key."] = field(default=None, repr=False)
    made: str = "here"


def read(text: str) -> tuple[House | None, list[str]]:
    reader, node = Reader({}, Path()), compose(text)
    assert node is not None
    found = reader.read(SectionOf(House), node, Place(1, 1))
    messages = [f"{place.path}: {message}" for place, message in reader.mistakes]
    return (None if found is None or messages else found.value.make(House)), messages


def test_a_declaration_is_all_that_a_setting_needs() -> None:
    """The value is read by it, with its default, its other name and its form; what is no setting keeps its own default."""
    assert read("{floors: 3, path: /run, opened: true, doors: [2, 1], colour: blue}") == (
        House("unix:/run", 3, Colour.BLUE, open=True, doors=frozenset({1, 2})),
        [],
    )
    assert [one.name for one in settings_of(House)] == ["host", "path", "floors", "colour", "opened", "rest", "doors", "key"]


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("{}", ["floors: is required"]),
        ("{floors: 10}", ["floors: must be from 1 to 9, found 10"]),
        ("{floors: 1, colur: red}", ["colur: unknown key; did you mean `colour`?"]),
        ("{floors: 1, colour: rad}", ['colour: expected one of red, blue, found "rad"; did you mean `red`?']),
        ("{floors: 1, open: true}", ["open: unknown key; did you mean `opened`?"]),
        ("{floors: 1, made: there}", ["made: unknown key"]),
        ("{floors: 1, host: a, path: b}", ["path: `host` is given too; keep one of them"]),
        ("{floors: 1, rest: 2h}", ["rest: must be from 1s to 1h, found 2h"]),
        ("{floors: 1, doors: [1, 1]}", ["doors[1]: `1` is listed twice"]),
        ("{floors: 1, key: [hidden]}", ["key: expected text, found a list"]),
    ],
)
def test_its_mistakes_come_from_the_declaration(text: str, messages: list[str]) -> None:
    """Range, name, alternatives and type, each with its remedy."""
    assert read(text) == (None, messages)


def test_a_setting_is_named_by_its_declaration() -> None:
    """By the attribute of its class: a rule needs no text, and a type checker knows the type."""
    house = names(House)
    assert (setting_of(house.open).name, setting_of(house.rest).default) == ("opened", 90.0)
    section = Section(House, Place(1, 1))
    assert section.get(house.rest) == 90.0
    assert section.place_of(house.open).path == "opened"


def every_setting(of: type = Config) -> list[Setting]:
    found = []
    for one in settings_of(of):
        found.append(one)
        match one.kind:
            case SectionOf(of=inner) | MapOf(of=inner) | ListOf(item=SectionOf(of=inner)):
                found += every_setting(inner)
            case _:
                pass
    return found


@pytest.mark.parametrize("one", [one for one in every_setting() if isinstance(one.kind, ScalarKind)], ids=lambda one: one.name)
def test_every_default_is_what_the_file_could_say(one: Setting) -> None:
    """It is in the range of its own kind, and reads back as itself."""
    written = one.write(one.default)
    if written is not None and not isinstance(one.kind, DialectName):
        assert isinstance(one.kind, ScalarKind)
        assert one.kind.parse(str(written)) == one.default
    assert one.text.endswith(".")


@given(st.integers(1, 10**9), st.integers(1, 10**9), st.integers(0, 10**9))
def test_a_number_is_taken_exactly_within_its_bounds(one: int, other: int, value: int) -> None:
    """Whole numbers, durations and sizes alike: both bounds included."""
    least, most = sorted((one, other))
    kinds: list[tuple[ScalarKind, str, float]] = [
        (Whole(least, most), str(value), value),
        (Duration(format_duration(least / 1000), format_duration(most / 1000)), format_duration(value / 1000), value / 1000),
        (Size(format_size(most), format_size(least)), format_size(value), value),
    ]
    for kind, text, meant in kinds:
        if least <= value <= most:
            assert kind.parse(text) == meant
        else:
            with pytest.raises(ValueError, match="must be"):
                kind.parse(text)


@given(st.sets(st.text("abc", min_size=1), min_size=1), st.text("abc"))
def test_a_choice_takes_its_words_alone(words: set[str], text: str) -> None:
    """Each word means what it is, and is written so."""
    kind = Choice.of(sorted(words))
    if text in words:
        assert kind.write(kind.parse(text)) == text
    else:
        with pytest.raises(ValueError, match="expected"):
            kind.parse(text)


@pytest.mark.parametrize("one", [one for one in every_setting() if one.optional and one.default is None], ids=lambda one: one.name)
def test_a_setting_that_may_be_none_is_none_where_the_file_says_nothing(one: Setting) -> None:
    """Also one without a default, such as the field of a hint whose body alone tells: an empty text is another value."""
    assert one.blank is None


def test_a_hint_of_the_body_alone_has_no_header() -> None:
    """With an empty one in its place it never applied, and the answer that it takes for a refusal was kept."""
    assert setting_of(names(Hint).header).blank is None
