"""What a value of the file may be. Each kind reads a node, reports what is wrong with it, and describes itself as JSON Schema."""

import abc
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import ClassVar, Generic, TypeAlias, TypeVar

from gateway.config.interpolate import interpolate
from gateway.config.mistakes import Place
from gateway.config.source import ListNode, MapNode, Node, Refused, Scalar, Tag
from gateway.config.units import format_duration, format_size, parse_duration, parse_size

T = TypeVar("T")
Schema: TypeAlias = dict[str, object]

_WHOLE = re.compile(r"[-+]?[0-9]{1,18}", re.ASCII)
INTERPOLATED: Schema = {"$ref": "#/$defs/interpolated"}


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """A value that was read, and where it stands."""

    value: T
    place: Place


@dataclass(frozen=True, slots=True)
class Reader:
    """What reading needs: the environment, the folder that relative paths start from, and a place to put mistakes."""

    env: Mapping[str, str]
    directory: Path
    mistakes: list[tuple[Place, str]] = field(default_factory=list)

    def report(self, place: Place, message: str) -> None:
        self.mistakes.append((place, message))


class Kind(abc.ABC, Generic[T]):
    """One kind of value. `read` returns None if and only if it reported a mistake."""

    @abc.abstractmethod
    def read(self, reader: Reader, node: Node, place: Place) -> Found[T] | None: ...

    @abc.abstractmethod
    def schema(self) -> Schema: ...

    @abc.abstractmethod
    def write(self, value: T) -> object:
        """`value` as one would write it in the file, for the schema's defaults."""
        ...


class ScalarKind(Kind[T]):
    """A kind that is one scalar. A text with a variable in it is parsed as whatever this kind wants."""

    accepts: ClassVar[frozenset[Tag]] = frozenset({Tag.TEXT})
    secret: bool = False

    @abc.abstractmethod
    def wants(self) -> str:
        """What is expected, as the object of a sentence."""
        ...

    @abc.abstractmethod
    def parse(self, text: str) -> T:
        """Raises ValueError with a message for the user, without the text itself if the kind is secret."""
        ...

    def read(self, reader: Reader, node: Node, place: Place) -> Found[T] | None:
        match node:
            case Scalar(tag=Tag.NOTHING) | Refused():
                report_unusable(reader, node, place)
                return None
            case Scalar(tag=Tag.TEXT, text=text):
                return self._read_text(reader, text, place)
            case Scalar(tag=tag, text=text) if tag in self.accepts:
                return self.read_plain(reader, text, place)
            case Scalar() | ListNode() | MapNode():
                self._report_type(reader, node, place)
                return None

    def read_plain(self, reader: Reader, text: str, place: Place) -> Found[T] | None:
        """Parse text that holds no variables (any more)."""
        try:
            return Found(self.parse(text), place)
        except ValueError as problem:
            reader.report(place, str(problem))
            return None

    def _read_text(self, reader: Reader, text: str, place: Place) -> Found[T] | None:
        try:
            result = interpolate(text, reader.env)
        except ValueError as problem:
            reader.report(place, str(problem))
            return None
        if not result.from_env and Tag.TEXT not in self.accepts:
            self._report_type(reader, Scalar(place.line, place.column, Tag.TEXT, text), place)
            return None
        return self.read_plain(reader, result.text, place)

    def _report_type(self, reader: Reader, node: Node, place: Place) -> None:
        remedy = "; put it in quotes" if isinstance(node, Scalar) and Tag.TEXT in self.accepts and self._would_parse(node.text) else ""
        reader.report(place, f"expected {self.wants()}, found {describe(node, secret=self.secret)}{remedy}")

    def _would_parse(self, text: str) -> bool:
        try:
            self.parse(text)
        except ValueError:
            return False
        return True


def report_unusable(reader: Reader, node: Scalar | Refused, place: Place) -> None:
    match node:
        case Refused(message=message):
            reader.report(place, message)
        case Scalar():
            reader.report(place, "has no value; write one, or remove the line")


def describe(node: Node, *, secret: bool = False) -> str:
    """A node in the words of an error message; the content of a secret is left out."""
    match node:
        case Scalar(tag=tag) if secret:
            return f"a {tag}" if tag is not Tag.TEXT else "text"
        case Scalar(tag=Tag.TEXT, text=text):
            return f'text "{shorten(text)}"'
        case Scalar(text=text):
            return text[:40]
        case ListNode():
            return "a list"
        case MapNode():
            return "a mapping"
        case Refused():
            return "something unsupported"


def shorten(text: str) -> str:
    """One line, at most 40 characters."""
    line = " ".join(text.split())
    return line if len(line) <= 40 else line[:39] + "…"


@dataclass(frozen=True, slots=True)
class Text(ScalarKind[T]):
    """Text that `parser` turns into a value. `pattern` is its form for the schema; leave it out where a pattern cannot tell."""

    noun: str
    parser: Callable[[str], T]
    pattern: str | None = None
    secret: bool = False

    def wants(self) -> str:
        return self.noun

    def parse(self, text: str) -> T:
        return self.parser(text)

    def schema(self) -> Schema:
        if self.pattern is None:
            return {"type": "string"}
        return {"anyOf": [{"type": "string", "pattern": self.pattern}, INTERPOLATED]}

    def write(self, value: T) -> object:
        return None if value is None else str(value)


@dataclass(frozen=True, slots=True)
class Whole(ScalarKind[int]):
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

    def schema(self) -> Schema:
        return {"anyOf": [{"type": "integer", "minimum": self.minimum, "maximum": self.maximum}, INTERPOLATED]}

    def write(self, value: int) -> object:
        return value


@dataclass(frozen=True, slots=True)
class Flag(ScalarKind[bool]):
    """`true` or `false`, and no other spelling."""

    accepts: ClassVar[frozenset[Tag]] = frozenset({Tag.FLAG})

    def wants(self) -> str:
        return "true or false"

    def parse(self, text: str) -> bool:
        if text.lower() not in {"true", "false"}:
            raise ValueError(f'expected true or false, found "{shorten(text)}"')
        return text.lower() == "true"

    def schema(self) -> Schema:
        return {"anyOf": [{"type": "boolean"}, INTERPOLATED]}

    def write(self, value: bool) -> object:  # noqa: FBT001 - the value itself, not a switch
        return value


@dataclass(frozen=True, slots=True)
class Choice(ScalarKind[T]):
    """One word of a closed set. `later` are words that a later version will take."""

    words: Mapping[str, T]
    later: frozenset[str] = frozenset()

    def wants(self) -> str:
        return ("one of " if len(self.words) > 1 else "") + ", ".join(self.words)

    def parse(self, text: str) -> T:
        if text in self.words:
            return self.words[text]
        if text in self.later:
            raise ValueError(f'"{shorten(text)}" is not supported yet; expected {self.wants()}')
        raise ValueError(f'expected {self.wants()}, found "{shorten(text)}"{did_you_mean(text, self.words)}')

    def schema(self) -> Schema:
        return {"anyOf": [{"enum": list(self.words)}, INTERPOLATED]}

    def write(self, value: T) -> object:
        return next(word for word, meaning in self.words.items() if meaning == value)


@dataclass(frozen=True, slots=True)
class Version(Choice[str]):
    """A version of TLS: a word that looks like a number, quoted or not."""

    accepts: ClassVar[frozenset[Tag]] = frozenset({Tag.TEXT, Tag.NUMBER})

    def parse(self, text: str) -> str:
        if text not in self.words:
            raise ValueError(f'"{shorten(text)}" is not spoken here; {" and ".join(self.words)} are')
        return text

    def schema(self) -> Schema:
        return {"anyOf": [{"enum": [*self.words, *map(float, self.words)]}, INTERPOLATED]}


@dataclass(frozen=True, slots=True)
class Duration(ScalarKind[float]):
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

    def schema(self) -> Schema:
        pattern = r"^[0-9]{1,12}(\.[0-9]{1,3})?(ms|s|m|h|d)$"
        return {"anyOf": [{"type": "string", "pattern": pattern}, INTERPOLATED], "x-minimum": self.minimum, "x-maximum": self.maximum}

    def write(self, value: float) -> object:
        return format_duration(value)


@dataclass(frozen=True, slots=True)
class Size(ScalarKind[int]):
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

    def schema(self) -> Schema:
        pattern = r"^[0-9]{1,15}(B|KB|MB|GB|KiB|MiB|GiB)?$"
        plain: Schema = {"type": "integer", "minimum": parse_size(self.minimum), "maximum": parse_size(self.maximum)}
        bounds: Schema = {"x-minimum": self.minimum, "x-maximum": self.maximum}
        return {"anyOf": [{"type": "string", "pattern": pattern}, plain, INTERPOLATED], **bounds}

    def write(self, value: int) -> object:
        return format_size(value)


def did_you_mean(word: str, known: Mapping[str, object] | frozenset[str]) -> str:
    close = get_close_matches(word, list(known), n=1)
    return f"; did you mean `{close[0]}`?" if close else ""
