"""YAML text -> a tree of nodes that know where they stand.

Scalars are told apart as in the YAML 1.2 core schema: only `true` and `false` are flags, so `no`, `on` and `12:30` are
text. Anchors and aliases are allowed; merge keys (`<<`) and tags are not. Duplicate keys stay in the tree: the
reader of a mapping knows its path and reports them.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import yaml

from gateway.config.mistakes import Place
from gateway.core.kinds import Tag
from gateway.runtime.local_files import LocalFileError, TooLarge, read_local

MAX_FILE = 4 * 1024 * 1024

_YAML = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class Scalar:
    line: int
    column: int
    tag: Tag
    text: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One `key: value` of a mapping; `line` and `column` are the key's."""

    line: int
    column: int
    key: str
    value: "Node"


@dataclass(frozen=True, slots=True)
class ListNode:
    line: int
    column: int
    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class MapNode:
    line: int
    column: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Unsupported:
    """YAML that is well formed and that a configuration may not use."""

    line: int
    column: int
    message: str


Node: TypeAlias = Scalar | ListNode | MapNode | Unsupported


class SyntaxMistake(Exception):
    """The text is not YAML. `line` and `column` are 1-based."""

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.column = column
        self.message = message


class _Loader(yaml.SafeLoader):
    """The safe loader with the implicit types of the YAML 1.2 core schema alone."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - pyyaml's own extension point, filled below and never changed after


_Loader.add_implicit_resolver(f"{_YAML}null", re.compile(r"(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(f"{_YAML}bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver(f"{_YAML}int", re.compile(r"[-+]?[0-9]+$"), list("-+0123456789"))
_Loader.add_implicit_resolver(f"{_YAML}float", re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?$"), list("-+.0123456789"))

_TAGS = {
    f"{_YAML}str": Tag.TEXT,
    f"{_YAML}int": Tag.INTEGER,
    f"{_YAML}float": Tag.NUMBER,
    f"{_YAML}bool": Tag.FLAG,
    f"{_YAML}null": Tag.NOTHING,
}


_REMEDIES = {
    "mapping values are not allowed": "; each `:` and each `-` needs a space after it, here and in the line before",
    "expected <block end>": "; indent this line as those that it belongs to",
    "cannot start any token": "; quote this value, and indent by spaces",
}


def compose(text: str) -> Node | None:
    """The document's root node, or None for an empty document. Raises `SyntaxMistake`, with the position."""
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            return None if root is None else _Convert().node(root)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise _syntax_mistake(error, text) from None
    except yaml.reader.ReaderError as error:
        raise SyntaxMistake(*position(text, error.position), "this character is not allowed in YAML") from None
    except RecursionError:
        raise SyntaxMistake(1, 1, "the document is nested too deeply") from None


def position(text: str, offset: int) -> tuple[int, int]:
    """1-based line and column of a character offset."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def _syntax_mistake(error: yaml.MarkedYAMLError, text: str) -> SyntaxMistake:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    message = error.problem or ""
    if error.context:
        message = f"{message} ({error.context})" if not message.startswith("but ") else f"{error.context}, {message}"
    lines = text.splitlines()
    if error.context in {"while parsing a flow mapping", "while parsing a flow sequence"} and line <= len(lines) and "{" in lines[line - 1]:
        message += "; inside { } and [ ] put a value that contains braces in quotes"
    message += next((remedy for said, remedy in _REMEDIES.items() if said in message), "")
    return SyntaxMistake(line, column, message)


@dataclass(slots=True)
class _Convert:
    """Each pyyaml node is converted once, however many aliases name it: aliases to aliases stay small."""

    done: dict[int, Node] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)

    def node(self, raw: yaml.Node) -> Node:
        line, column = raw.start_mark.line + 1, raw.start_mark.column + 1
        if id(raw) in self.open:
            return Unsupported(line, column, "this alias contains itself")
        if id(raw) not in self.done:
            self.open.add(id(raw))
            self.done[id(raw)] = self._convert(raw, line, column)
            self.open.discard(id(raw))
        return self.done[id(raw)]

    def _convert(self, raw: yaml.Node, line: int, column: int) -> Node:
        match raw:
            case yaml.ScalarNode() if raw.tag in _TAGS:
                return Scalar(line, column, _TAGS[raw.tag], raw.value)
            case yaml.SequenceNode() if raw.tag == f"{_YAML}seq":
                return ListNode(line, column, tuple(self.node(item) for item in raw.value))
            case yaml.MappingNode() if raw.tag == f"{_YAML}map":
                return MapNode(line, column, tuple(self._entry(key, value) for key, value in raw.value))
            case _:
                return Unsupported(line, column, f"the tag {raw.tag.replace(_YAML, '!!')} is not supported")

    def _entry(self, key: yaml.Node, value: yaml.Node) -> Entry:
        line, column = key.start_mark.line + 1, key.start_mark.column + 1
        if not isinstance(key, yaml.ScalarNode):
            return Entry(line, column, "?", Unsupported(line, column, "a key must be text"))
        if key.value == "<<" and key.style is None:
            return Entry(
                line,
                column,
                "<<",
                Unsupported(line, column, "merge keys are not supported; use an alias for the whole value, or `defaults`"),
            )
        return Entry(line, column, key.value, self.node(value))


class Unreadable(Exception):
    """No tree. `place` is where in the file the reason is; None if the file itself cannot be had."""

    def __init__(self, place: Place | None, message: str) -> None:
        super().__init__(message)
        self.place = place
        self.message = message


def read_tree(path: Path) -> Node:
    """The root of a file of UTF-8 text, at most 4MiB. Raises `Unreadable`."""
    return parse_tree(_read(path))


def parse_tree(raw: bytes) -> Node:
    """The root of a file with this content. Raises `Unreadable`, always with a place."""
    try:
        root = compose(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8-sig")
        raise Unreadable(Place(*position(before, len(before))), "the file is not UTF-8 text") from None
    except SyntaxMistake as mistake:
        raise Unreadable(Place(mistake.line, mistake.column), mistake.message) from None
    if root is None:
        raise Unreadable(Place(1, 1), "the file is empty")
    return root


def _read(path: Path) -> bytes:
    try:
        return read_local(path, MAX_FILE)
    except TooLarge:
        raise Unreadable(None, "the file is larger than 4MiB") from None
    except LocalFileError as error:
        raise Unreadable(None, f"cannot read the file: {error}") from None
