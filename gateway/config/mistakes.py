"""What is wrong with a configuration file, and exactly where."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gateway.core.visible import visible

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.<-]{1,64}")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A spot in a file: 1-based line and column (in characters), and the path of the value in the file's tree.

    `file` is empty in the configuration file itself, and else names the file beside it that is meant.
    """

    line: int
    column: int
    path: str = ""
    file: str = ""

    def child(self, name: str) -> "Place":
        """The place of a key of this mapping, as far as it is known before the key is looked up."""
        shown = name if _PLAIN_NAME.fullmatch(name) else json.dumps(name[:64])
        return replace(self, path=f"{self.path}.{shown}" if self.path else shown)

    def item(self, index: int) -> "Place":
        return replace(self, path=f"{self.path}[{index}]")

    def told(self, beside: "Place") -> str:
        """Where it is, for a finding that stands at another place."""
        return f"line {self.line}" if self.file == beside.file else f"{self.file or 'the configuration file'}, line {self.line}"

    def at(self, line: int, column: int) -> "Place":
        return replace(self, line=line, column=column)


@dataclass(frozen=True, slots=True)
class Mistake:
    """One finding. `str()` gives `file:line:column: path: message`; without a path for YAML syntax; `file: message`
    without a place.

    It is one line: what cannot be printed, of a value that the message repeats, is escaped.
    """

    file: str
    place: Place | None
    message: str

    def __str__(self) -> str:
        if self.place is None:
            return visible(f"{self.file}: {self.message}")
        path = f"{self.place.path}: " if self.place.path else ""
        return visible(f"{self.file}:{self.place.line}:{self.place.column}: {path}{self.message}")


class ConfigErrors(Exception):
    """Every mistake of a configuration file and of those that it names, in file order.

    `str()` is one line each; no line holds a secret of a file or of the environment.
    """

    def __init__(self, mistakes: tuple[Mistake, ...]) -> None:
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = mistakes


def in_order(file: str, found: Iterable[tuple[Place, str]]) -> tuple[Mistake, ...]:
    """Findings as mistakes, each once, those of the configuration `file` first."""
    ordered = sorted(dict.fromkeys(found), key=lambda one: (one[0].file, one[0].line, one[0].column))
    return tuple(Mistake(place.file or file, place, message) for place, message in ordered)
