"""Paths of files and folders, relative to the configuration file's own folder."""

from dataclasses import dataclass

from gateway.config.kinds import Found, Reader, ScalarKind, Schema
from gateway.config.mistakes import Place
from gateway.config.source import Node


@dataclass(frozen=True, slots=True)
class LocalPath(ScalarKind[str | None]):
    """An absolute path, or None for an empty text. Whether anything is there is judged later, together with what it is for."""

    noun: str

    def wants(self) -> str:
        return self.noun

    def parse(self, text: str) -> str | None:
        if "\0" in text:
            raise ValueError("a path cannot hold a NUL character")
        return text or None

    def read(self, reader: Reader, node: Node, place: Place) -> Found[str | None] | None:
        found = ScalarKind.read(self, reader, node, place)
        if found is None or found.value is None:
            return found
        return Found(str((reader.directory / found.value).absolute()), found.place)

    def schema(self) -> Schema:
        return {"type": "string"}

    def write(self, value: str | None) -> object:
        return value
