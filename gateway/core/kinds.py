"""Kinds of settings: which values a setting may have. A scalar kind parses the text of a value and writes it;
`gateway.config.reader` reads the kinds that hold others.
"""

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, ClassVar

from gateway.core.units import Rate, format_duration, format_rate, format_size, parse_duration, parse_rate, parse_size

_WHOLE = re.compile(r"[-+]?[0-9]{1,18}", re.ASCII)


class Tag(enum.StrEnum):
    """What a plain scalar of the file looks like, in the words of an error message."""

    TEXT = "text"
    INTEGER = "whole number"
    NUMBER = "number"
    FLAG = "flag"
    NOTHING = "nothing"


class Kind:
    """Which values a setting may have."""

    __slots__ = ()

    def write(self, value: Any) -> object:
        """`value` as the file would say it; None where the file has no way to say it."""
        return value


class ScalarKind(Kind):
    """A kind that is one scalar. `secret`: no message repeats it, and a setting of its own has a twin `<name>_file`
    that holds it.
    """

    __slots__ = ()
    accepts: ClassVar[frozenset[Tag]] = frozenset({Tag.TEXT})
    secret: bool = False

    def wants(self) -> str:
        """What is expected, as the object of a sentence."""
        raise NotImplementedError

    def parse(self, text: str) -> Any:
        """Raises ValueError with a message for the user, without the text itself if the kind is secret."""
        raise NotImplementedError


@dataclass(frozen=True)
class Text(ScalarKind):
    """Text that `parser` turns into a value. `pattern` is its form for the schema; leave it out where a pattern cannot
    tell.
    """

    noun: str
    parser: Callable[[str], Any] = str
    pattern: str | None = None
    secret: bool = False

    def wants(self) -> str:
        return self.noun

    def parse(self, text: str) -> Any:
        return self.parser(text)

    def write(self, value: Any) -> object:
        return None if self.secret else str(value)


@dataclass(frozen=True)
class Whole(ScalarKind):
    """A whole number within bounds, both included."""

    accepts: ClassVar[frozenset[Tag]] = frozenset({Tag.INTEGER})
    minimum: int
    maximum: int

    def wants(self) -> str:
        return f"a whole number from {self.minimum} to {self.maximum}"

    def parse(self, text: str) -> int:
        if not _WHOLE.fullmatch(text):
            raise ValueError(f'expected {self.wants()}, found "{shorten(text)}"')
        if not self.minimum <= int(text) <= self.maximum:
            raise ValueError(f"must be from {self.minimum} to {self.maximum}, found {text}")
        return int(text)


@dataclass(frozen=True)
class Flag(ScalarKind):
    """`true` or `false`, and no other spelling."""

    accepts: ClassVar[frozenset[Tag]] = frozenset({Tag.FLAG})

    def wants(self) -> str:
        return "true or false"

    def parse(self, text: str) -> bool:
        if text.lower() not in {"true", "false"}:
            raise ValueError(f'expected true or false, found "{shorten(text)}"')
        return text.lower() == "true"


@dataclass(frozen=True)
class Yes(ScalarKind):
    """`true`: a condition that is named for what it asks. `otherwise` is what to tell of false."""

    accepts: ClassVar[frozenset[Tag]] = frozenset({Tag.FLAG})
    otherwise: str

    def wants(self) -> str:
        return "true"

    def parse(self, text: str) -> bool:
        if text.lower() != "true":
            raise ValueError(self.otherwise)
        return True


@dataclass(frozen=True)
class Choice(ScalarKind):
    """One word of a closed set. `later` are words that a later version will take."""

    words: Mapping[str, Any]

    @classmethod
    def of(cls, values: Iterable[str]) -> "Choice":
        """The words that are these texts, or the values of this enum."""
        return cls({str(value): value for value in values})

    def wants(self) -> str:
        return ("one of " if len(self.words) > 1 else "") + ", ".join(self.words)

    def spellings(self) -> list[object]:
        """Each word as YAML may read it."""
        return list(self.words)

    def parse(self, text: str) -> Any:
        if text in self.words:
            return self.words[text]
        raise ValueError(f'expected {self.wants()}, found "{shorten(text)}"{did_you_mean(text, self.words)}')

    def write(self, value: Any) -> object:
        return next(word for word, meaning in self.words.items() if meaning == value)


@dataclass(frozen=True)
class Duration(ScalarKind):
    """Seconds, written with a unit, within bounds that are themselves durations, both included."""

    accepts: ClassVar[frozenset[Tag]] = frozenset({Tag.TEXT, Tag.INTEGER, Tag.NUMBER})
    minimum: str
    maximum: str

    def wants(self) -> str:
        return "a duration such as 30s"

    def parse(self, text: str) -> float:
        seconds = parse_duration(text)
        if not parse_duration(self.minimum) <= seconds <= parse_duration(self.maximum):
            raise ValueError(f"must be from {self.minimum} to {self.maximum}, found {text}")
        return seconds

    def write(self, value: float) -> object:
        return format_duration(value)


@dataclass(frozen=True)
class Size(ScalarKind):
    """Bytes, from `minimum` to `maximum`, which are themselves sizes, both included."""

    accepts: ClassVar[frozenset[Tag]] = frozenset({Tag.TEXT, Tag.INTEGER})
    maximum: str
    minimum: str = "0B"

    def wants(self) -> str:
        return "a size such as 1MiB"

    def parse(self, text: str) -> int:
        size, least = parse_size(text), parse_size(self.minimum)
        if not least <= size <= parse_size(self.maximum):
            bounds = f"from {self.minimum} to {self.maximum}" if least else f"at most {self.maximum}"
            raise ValueError(f"must be {bounds}, found {text}")
        return size

    def write(self, value: int) -> object:
        return format_size(value)


@dataclass(frozen=True)
class RateWord(ScalarKind):
    """So many in a second, a minute, an hour or a day; at most `maximum`, which is itself a rate."""

    maximum: str

    def wants(self) -> str:
        return "a rate such as 50/s"

    def parse(self, text: str) -> Rate:
        rate, most = parse_rate(text), parse_rate(self.maximum)
        if rate.count * most.seconds > most.count * rate.seconds:
            raise ValueError(f"must be at most {self.maximum}, found {text}")
        return rate

    def write(self, value: Rate) -> object:
        return format_rate(value)


@dataclass(frozen=True)
class LocalPath(ScalarKind):
    """The absolute path of a file or folder, or None for an empty text. A relative one starts at the configuration
    file's folder.
    """

    noun: str

    def wants(self) -> str:
        return self.noun

    def parse(self, text: str) -> str | None:
        if "\0" in text:
            raise ValueError("a path cannot hold a NUL character")
        return text or None

    def write(self, value: str) -> object:
        return value or None


@dataclass(frozen=True)
class DialectName(LocalPath):
    """The name of a dialect that comes with the gateway, or the path of a file."""

    noun: str = "the name of a dialect, or a file such as ./house.yaml"

    def parse(self, text: str) -> str:
        return super().parse(text) or ""

    def write(self, value: Any) -> object:
        return value.name


@dataclass(frozen=True)
class FromFile(ScalarKind):
    """The path of a file that holds the value. A value from a file is never interpolated."""

    item: ScalarKind

    def wants(self) -> str:
        return "a file path"

    def parse(self, text: str) -> str:
        return text


@dataclass(frozen=True)
class JsonScalar(ScalarKind):
    """A text, a number, true, false or null. A text with a variable in it stays text, and so does 12e4, which has no
    point. null is spelled out: an empty value is a slip.
    """

    accepts: ClassVar[frozenset[Tag]] = frozenset({Tag.TEXT, Tag.INTEGER, Tag.NUMBER, Tag.FLAG})

    def wants(self) -> str:
        return "a text, a number, true, false or null"

    def parse(self, text: str) -> str:
        return text


@dataclass(frozen=True)
class ListOf(Kind):
    """A list. One wrong item spoils it, unless `keep`: then the good ones are kept, to be judged further. `include`: an item
    `{include: FILE}` stands for the items of the list that this file holds.
    """

    item: Kind
    at_least: int = 0
    unique: bool = True
    keep: bool = False
    include: bool = False

    def make(self, values: Iterable[Any]) -> Any:
        return tuple(values)

    def write(self, value: Iterable[Any]) -> object:
        written = [self.item.write(one) for one in value]
        return written if len(written) >= self.at_least else None


@dataclass(frozen=True)
class SetOf(ListOf):
    """A list whose order does not count."""

    def make(self, values: Iterable[Any]) -> Any:
        return frozenset(values)

    def write(self, value: Iterable[Any]) -> object:
        return super().write(sorted(value))


@dataclass(frozen=True)
class OneOrMany(Kind):
    """One `item`, or a list of one or more. The order counts, and one may be there twice."""

    item: ScalarKind

    @property
    def several(self) -> ListOf:
        return ListOf(self.item, at_least=1, unique=False)

    def write(self, value: tuple[Any, ...]) -> object:
        return self.item.write(value[0]) if len(value) == 1 else self.several.write(value)


@dataclass(frozen=True)
class NoneOr(Kind):
    """`none`, spelled out, which is the empty list; or a list of `item`, one or more, of which a wrong one spoils all.
    `example` is one.
    """

    item: Kind
    noun: str
    example: str

    @property
    def several(self) -> ListOf:
        return ListOf(self.item, at_least=1, unique=False)


@dataclass(frozen=True)
class Named(Kind):
    """A mapping from names to values, in order, as pairs. Two names that differ in letter case alone are two, unless
    `fold`.
    """

    name: Text
    item: ScalarKind
    fold: bool = False

    def write(self, value: Iterable[tuple[str, Any]]) -> object:
        return {name: self.item.write(one) for name, one in value}


@dataclass(frozen=True)
class SectionOf(Kind):
    """A mapping with the settings of a dataclass."""

    of: type

    def write(self, value: Any) -> None:
        """A section has no default of its own: its settings have theirs."""


@dataclass(frozen=True)
class MapOf(Kind):
    """A mapping from names to sections, one or more."""

    name: Text
    of: type

    @property
    def section(self) -> SectionOf:
        return SectionOf(self.of)


@dataclass(frozen=True)
class Inline(Kind):
    """The settings of `of` stand among those of the section itself. What they say is the value."""

    of: type


def did_you_mean(word: str, known: Iterable[str]) -> str:
    close = get_close_matches(word, list(known), n=1)
    return f"; did you mean `{close[0]}`?" if close else ""


def shorten(text: str) -> str:
    """One line, at most 40 characters."""
    line = " ".join(text.split())
    return line if len(line) <= 40 else line[:39] + "…"
