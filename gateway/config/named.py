"""Mappings with free names whose values are one text each, and secrets that stand in files of their own."""

from dataclasses import dataclass
from typing import TypeVar

from gateway.config.kinds import Found, Kind, Reader, ScalarKind, Schema, Text
from gateway.config.mistakes import Place
from gateway.config.secret_files import read_secret
from gateway.config.shapes import ListOf, read_entries
from gateway.config.source import Node, Refused

T = TypeVar("T")
_PATH = Text("a file path", str)


@dataclass(frozen=True, slots=True)
class FromFile(ScalarKind[T]):
    """The path of a file that holds the value, relative to the configuration file's folder. Paths and contents are kept apart: a value
    from a file is never interpolated.
    """

    item: ScalarKind[T]

    def wants(self) -> str:
        return "a file path"

    def parse(self, text: str) -> T:
        return self.item.parse(text)

    def read(self, reader: Reader, node: Node, place: Place) -> Found[T] | None:
        path = _PATH.read(reader, node, place)
        text = None if path is None else read_secret(reader, path)
        return None if text is None else self.item.read_plain(reader, text, place)

    def schema(self) -> Schema:
        return {"type": "string"}

    def write(self, value: T) -> object:
        raise NotImplementedError("what a file holds is not written back")


@dataclass(frozen=True, slots=True)
class Named(Kind[tuple[tuple[str, T], ...]]):
    """A mapping from names to values, in order. Two names that differ in letter case alone are two, unless `fold`."""

    name: Text[str]
    item: ScalarKind[T]
    fold: bool = False

    def read(self, reader: Reader, node: Node, place: Place) -> Found[tuple[tuple[str, T], ...]] | None:
        entries = read_entries(reader, node, place)
        if entries is None:
            return None
        mistakes = len(reader.mistakes)
        result: dict[str, tuple[str, T]] = {}
        for entry in entries:
            here = place.child(entry.key).at(entry.line, entry.column)
            if isinstance(entry.value, Refused):
                reader.report(here.at(entry.value.line, entry.value.column), entry.value.message)
                continue
            name = self.name.read_plain(reader, entry.key, here)
            found = self.item.read(reader, entry.value, here.at(entry.value.line, entry.value.column))
            if name is None or found is None:
                continue
            spelled = name.value.lower() if self.fold else name.value
            if result.setdefault(spelled, (name.value, found.value))[0] != name.value:
                reader.report(here, f"`{result[spelled][0]}` is the same name; keep one of them")
        return Found(tuple(result.values()), place) if len(reader.mistakes) == mistakes else None

    def schema(self) -> Schema:
        return {"type": "object", "propertyNames": {"pattern": self.name.pattern or ""}, "additionalProperties": self.item.schema()}

    def write(self, value: tuple[tuple[str, T], ...]) -> object:
        return {name: self.item.write(one) for name, one in value}


def files_of(item: ScalarKind[T]) -> ListOf[T]:
    """A list of files that hold one value each."""
    return ListOf(FromFile(item), at_least=1, unique=False)
