"""Values of JSON that a rule compares with: as YAML tells them apart, so `1` is a number and `"1"` is text."""

import math
import re
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from gateway.config.kinds import Found, Kind, Reader, ScalarKind, Schema, report_unusable
from gateway.config.mistakes import Place
from gateway.config.shapes import ListOf
from gateway.config.source import ListNode, MapNode, Node, Refused, Scalar, Tag

JsonValue: TypeAlias = str | int | float | bool | None
_DIGITS = re.compile(r"[-+]?[0-9]{1,40}", re.ASCII)


@dataclass(frozen=True, slots=True)
class JsonScalar(ScalarKind[JsonValue]):
    """A text, a number, true, false or null. A text with a variable in it stays text, and so does 12e4, which has no point. null is spelled
    out: an empty value is a slip.
    """

    accepts: ClassVar[frozenset[Tag]] = frozenset({Tag.TEXT, Tag.INTEGER, Tag.NUMBER, Tag.FLAG})

    def wants(self) -> str:
        return "a text, a number, true, false or null"

    def parse(self, text: str) -> JsonValue:
        return text

    def read(self, reader: Reader, node: Node, place: Place) -> Found[JsonValue] | None:
        match node:
            case Scalar(tag=Tag.NOTHING, text="null"):
                return Found(None, place)
            case Scalar(tag=Tag.FLAG, text=text):
                return Found(text.lower() == "true", place)
            case Scalar(tag=Tag.INTEGER | Tag.NUMBER, text=text):
                return self._number(reader, text, place)
            case _:
                return ScalarKind.read(self, reader, node, place)

    def _number(self, reader: Reader, text: str, place: Place) -> Found[JsonValue] | None:
        if _DIGITS.fullmatch(text):
            return Found(int(text), place)
        number = float(text)
        if not math.isfinite(number):
            reader.report(place, f"{text[:40]} is too large a number")
            return None
        return Found(number, place)

    def schema(self) -> Schema:
        return {"anyOf": [{"type": kind} for kind in ("string", "number", "boolean", "null")]}

    def write(self, value: JsonValue) -> object:
        return value


@dataclass(frozen=True, slots=True)
class JsonValues(Kind[tuple[JsonValue, ...]]):
    """One value, or a list of them."""

    def read(self, reader: Reader, node: Node, place: Place) -> Found[tuple[JsonValue, ...]] | None:
        match node:
            case ListNode():
                return ListOf(JsonScalar(), at_least=1, unique=False).read(reader, node, place)
            case MapNode():
                reader.report(place, "expected a text, a number, true, false or null, or a list of these; found a mapping")
                return None
            case Refused():
                report_unusable(reader, node, place)
                return None
            case Scalar():
                found = JsonScalar().read(reader, node, place)
                return None if found is None else Found((found.value,), place)

    def schema(self) -> Schema:
        return {"anyOf": [JsonScalar().schema(), ListOf(JsonScalar(), at_least=1, unique=False).schema()]}

    def write(self, value: tuple[JsonValue, ...]) -> object:
        return value[0] if len(value) == 1 else list(value)


@dataclass(frozen=True, slots=True)
class Yes(ScalarKind[bool]):
    """`true`: a condition that is named for what it asks. `instead` says what asks the opposite."""

    accepts: ClassVar[frozenset[Tag]] = frozenset({Tag.FLAG})
    instead: str

    def wants(self) -> str:
        return "true"

    def parse(self, text: str) -> bool:
        if text.lower() != "true":
            raise ValueError(f"write true here, or `{self.instead}: true` for the opposite")
        return True

    def schema(self) -> Schema:
        return {"const": True}

    def write(self, value: bool) -> object:  # noqa: FBT001 - the value itself, not a switch
        return value
