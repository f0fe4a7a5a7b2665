"""What is wrong with a configuration file, and exactly where."""

import json
import re
from dataclasses import dataclass

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.<-]{1,64}")


@dataclass(frozen=True, slots=True)
class Place:
    """A spot in the file: 1-based line and column (in characters), and the path of the value in the file's tree."""

    line: int
    column: int
    path: str = ""

    def child(self, name: str) -> "Place":
        """The place of a key of this mapping, as far as it is known before the key is looked up."""
        shown = name if _PLAIN_NAME.fullmatch(name) else json.dumps(name[:64])
        return Place(self.line, self.column, f"{self.path}.{shown}" if self.path else shown)

    def item(self, index: int) -> "Place":
        return Place(self.line, self.column, f"{self.path}[{index}]")

    def at(self, line: int, column: int) -> "Place":
        return Place(line, column, self.path)


@dataclass(frozen=True, slots=True)
class Mistake:
    """One finding. `str()` gives `file:line:column: path: message`; without a path for YAML syntax; `file: message` without a place."""

    file: str
    place: Place | None
    message: str

    def __str__(self) -> str:
        if self.place is None:
            return f"{self.file}: {self.message}"
        path = f"{self.place.path}: " if self.place.path else ""
        return f"{self.file}:{self.place.line}:{self.place.column}: {path}{self.message}"


class ConfigErrors(Exception):
    """Every mistake of one file, in file order. `str()` is one line each; no line holds a secret of the file or the environment."""

    def __init__(self, mistakes: tuple[Mistake, ...]) -> None:
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = mistakes
