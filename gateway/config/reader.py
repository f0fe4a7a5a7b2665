"""Reads the nodes of a file by the declarations of `gateway.core.setting`, and reports what is wrong with each, where
it stands.
"""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gateway.config.interpolate import interpolate
from gateway.config.mistakes import Place
from gateway.config.section import Found, Section, names_of
from gateway.config.source import Entry, ListNode, MapNode, Node, Scalar, Unreadable, Unsupported, read_tree
from gateway.core.kinds import (
    DialectName,
    FromFile,
    JsonScalar,
    Kind,
    ListOf,
    LocalPath,
    MapOf,
    Named,
    NoneOr,
    OneOrMany,
    ScalarKind,
    SectionOf,
    Tag,
    Text,
    did_you_mean,
    shorten,
)
from gateway.core.setting import Setting, settings_of, shape_of
from gateway.dialects import names as dialect_names
from gateway.runtime.local_files import LocalFileError, TooLarge, read_local

MAX_SECRET_FILE = 64 * 1024
FREE = "x-"
"""How keys at the top of a file begin that are its writer's own: a place for anchors, of which nothing is read but by their aliases."""

INCLUDE = "include"
INCLUDED = LocalPath("a file path")

_DIGITS = re.compile(r"[-+]?[0-9]{1,40}", re.ASCII)
_PATH = Text("a file path")


@dataclass(frozen=True, slots=True)
class Reader:
    """What reading needs: the environment, the folder that relative paths start from, and a place to put mistakes.

    Its methods return None if and only if they reported a mistake.
    """

    env: Mapping[str, str]
    directory: Path
    mistakes: list[tuple[Place, str]] = field(default_factory=list)
    included: dict[str, Place] = field(default_factory=dict)
    """Where each file was included, by its real path; the configuration file itself is its own first line's."""

    def report(self, place: Place, message: str) -> None:
        self.mistakes.append((place, message))

    def read(self, kind: Kind, node: Node, place: Place) -> Found[Any] | None:
        """The value of a node, which stands at `place`, as `kind` has it."""
        match kind:
            case ScalarKind():
                return self._scalar(kind, node, place)
            case ListOf():
                return self._list(kind, node, place)
            case OneOrMany():
                return self._one_or_many(kind, node, place)
            case NoneOr():
                return self._none_or(kind, node, place)
            case Named():
                return self._named(kind, node, place)
            case MapOf():
                return self._map(kind, node, place)
            case SectionOf():
                return self._section(kind.of, node, place)
            case _:
                raise AssertionError(f"{kind} is read with the section that it stands in")

    def entries(self, node: Node, place: Place, remedy: str = "") -> list[Entry] | None:
        """The entries of a mapping, the first of each key; later ones are reported."""
        match node:
            case MapNode():
                first: dict[str, Entry] = {}
                for entry in node.entries:
                    earlier = first.setdefault(entry.key, entry)
                    if earlier is not entry:
                        self.report(place.child(entry.key).at(entry.line, entry.column), f"duplicate key (first in line {earlier.line})")
                return list(first.values())
            case _:
                self._wrong(node, place, "a mapping", secret=True, remedy=remedy)
                return None

    def unusable(self, node: Node, place: Place) -> bool:
        """Whether a node holds no value, or one that YAML alone allows; the reader reports it."""
        match node:
            case Unsupported(message=message):
                self.report(place, message)
            case Scalar(tag=Tag.NOTHING):
                self.report(place, "has no value; write one, or remove the line")
            case _:
                return False
        return True

    def _wrong(self, node: Node, place: Place, wanted: str, *, secret: bool = False, remedy: str = "") -> None:
        if not self.unusable(node, place):
            self.report(place, f"expected {wanted}, found {_describe(node, secret=secret)}{remedy}")

    def _scalar(self, kind: ScalarKind, node: Node, place: Place) -> Found[Any] | None:
        match node:
            case Scalar(tag=Tag.NOTHING, text="null") if isinstance(kind, JsonScalar):
                return Found(None, place)
            case Scalar(tag=Tag.NOTHING):
                self.unusable(node, place)
                return None
            case Scalar(tag=Tag.TEXT, text=text):
                return self._text(kind, text, place)
            case Scalar(tag=tag, text=text) if tag in kind.accepts:
                return self._json_scalar(tag, text, place) if isinstance(kind, JsonScalar) else self._parsed(kind, text, place)
            case _:
                quoted = isinstance(node, Scalar) and Tag.TEXT in kind.accepts and _parses(kind, node.text)
                self._wrong(node, place, kind.wants(), secret=kind.secret, remedy="; put it in quotes" if quoted else "")
                return None

    def _text(self, kind: ScalarKind, text: str, place: Place) -> Found[Any] | None:
        """A text with a variable in it is parsed as whatever its kind wants."""
        try:
            result = interpolate(text, self.env)
        except ValueError as problem:
            self.report(place, str(problem))
            return None
        if not result.from_env and Tag.TEXT not in kind.accepts:
            self._wrong(Scalar(place.line, place.column, Tag.TEXT, text), place, kind.wants(), secret=kind.secret)
            return None
        return self._parsed(kind, result.text, place)

    def _parsed(self, kind: ScalarKind, text: str, place: Place) -> Found[Any] | None:
        """Parse text that holds no variables (any more)."""
        if isinstance(kind, FromFile):
            content = self._secret(text, place)
            return None if content is None else self._parsed(kind.item, content, place)
        try:
            value = kind.parse(text)
            if isinstance(kind, LocalPath) and value is not None:
                value = self._path(kind, value)
        except ValueError as problem:
            self.report(place, str(problem))
            return None
        return Found(value, place)

    def _path(self, kind: LocalPath, text: str) -> str:
        if isinstance(kind, DialectName):
            names = dialect_names()
            if text in names:
                return text
            if "/" not in text and not text.endswith((".yaml", ".yml")):
                remedy = "`idempotency-gateway dialects` lists them, and a file of your own is named by its path, as in ./house.yaml"
                raise ValueError(f'unknown dialect "{shorten(text)}"{did_you_mean(text, names)}; {remedy}')
        return str((self.directory / text).absolute())

    def _json_scalar(self, tag: Tag, text: str, place: Place) -> Found[Any] | None:
        """As YAML tells them apart, so `1` is a number and `"1"` is text."""
        if tag is Tag.FLAG:
            return Found(text.lower() == "true", place)
        number = int(text) if _DIGITS.fullmatch(text) else float(text)
        if not math.isfinite(number):
            self.report(place, f"{text[:40]} is too large a number")
            return None
        return Found(number, place)

    def _secret(self, name: str, place: Place) -> str | None:
        """The text of a secret's file, without one closing line break."""
        try:
            text = re.sub(r"\r?\n\Z", "", read_local(self.directory / name, MAX_SECRET_FILE).decode())
            if text:
                return text
            self.report(place, f"cannot use {name}: it is empty")
        except TooLarge:
            self.report(place, f"cannot use {name}: it is larger than 64KiB")
        except LocalFileError as error:
            self.report(place, f"cannot read {name}: {error}")
        except UnicodeDecodeError:
            self.report(place, f"cannot use {name}: it is not UTF-8 text")
        except ValueError as error:
            self.report(place, f"cannot use {name}: {error}")
        return None

    def _list(self, kind: ListOf, node: Node, place: Place) -> Found[Any] | None:
        if not isinstance(node, ListNode):
            self._wrong(node, place, "a list", secret=True, remedy="; put it in [ ], or begin each item with a dash")
            return None
        if len(node.items) < kind.at_least:
            self.report(place, "the list is empty; name at least one")
            return None
        values: list[Any] = []
        whole = True
        for index, item in enumerate(node.items):
            here = place.item(index).at(item.line, item.column)
            if kind.include and (entry := _include(item)) is not None:
                included = self._included(kind, entry, here.child(INCLUDE).at(entry.value.line, entry.value.column))
                values += () if included is None else included.value
                whole = whole and included is not None
                continue
            found = self.read(kind.item, item, here)
            if found is None:
                whole = False
                continue
            if kind.unique and found.value in values:
                self.report(here, f"`{kind.item.write(found.value)}` is listed twice")
                whole = False
            else:
                values.append(found.value)
        return Found(kind.make(values), place) if kind.keep or whole else None

    def _included(self, kind: ListOf, entry: Entry, place: Place) -> Found[Any] | None:
        """The items of the file that an item names. What it names itself is relative to it."""
        named = self._scalar(INCLUDED, entry.value, place)
        if named is None:
            return None
        if named.value is None:
            self.report(place, "names no file")
            return None
        path: str = named.value
        first = self.included.setdefault(os.path.realpath(path), place)
        if first is not place:
            self.report(place, f"{path} is there already, by {first.told(place)}; a file is included once, and never by itself")
            return None
        root = self.tree(path, place)
        if root is None:
            return None
        return replace(self, directory=Path(path).parent)._list(kind, root, Place(root.line, root.column, file=path))

    def tree(self, path: str, named: Place) -> Node | None:
        """The root of a file that is named at a place."""
        try:
            return read_tree(Path(path))
        except Unreadable as error:
            if error.place is None:
                self.report(named, f"{path}: {error.message}")
            else:
                self.report(replace(error.place, file=path), error.message)
            return None

    def _one_or_many(self, kind: OneOrMany, node: Node, place: Place) -> Found[Any] | None:
        if isinstance(node, ListNode):
            return self.read(kind.several, node, place)
        if isinstance(node, MapNode) and isinstance(kind.item, JsonScalar):
            self.report(place, f"expected {kind.item.wants()}, or a list of these; found a mapping")
            return None
        found = self.read(kind.item, node, place)
        return None if found is None else Found((found.value,), place)

    def _none_or(self, kind: NoneOr, node: Node, place: Place) -> Found[Any] | None:
        if isinstance(node, Scalar) and node.tag is Tag.TEXT and node.text == "none":
            return Found((), place)
        if not isinstance(node, ListNode):
            if not self.unusable(node, place):
                self.report(place, f"expected a list of {kind.noun}s such as [{kind.example}], or none; found {_describe(node)}")
            return None
        if not node.items:
            self.report(place, f"the list is empty; name a {kind.noun} such as {kind.example}, or write none")
            return None
        mistakes = len(self.mistakes)
        found = self.read(kind.several, node, place)
        return found if len(self.mistakes) == mistakes else None

    def _named(self, kind: Named, node: Node, place: Place) -> Found[Any] | None:
        entries = self.entries(node, place)
        if entries is None:
            return None
        mistakes = len(self.mistakes)
        result: dict[str, tuple[str, Any]] = {}
        for entry in entries:
            here = place.child(entry.key).at(entry.line, entry.column)
            there = here.at(entry.value.line, entry.value.column)
            if isinstance(entry.value, Unsupported):
                self.unusable(entry.value, there)
                continue
            name, found = self._parsed(kind.name, entry.key, here), self.read(kind.item, entry.value, there)
            if name is None or found is None:
                continue
            spelled = name.value.lower() if kind.fold else name.value
            if result.setdefault(spelled, (name.value, found.value))[0] != name.value:
                self.report(here, f"`{result[spelled][0]}` is the same name; keep one of them")
        return Found(tuple(result.values()), place) if len(self.mistakes) == mistakes else None

    def _map(self, kind: MapOf, node: Node, place: Place) -> Found[Any] | None:
        """A section that cannot be read stays under its name as a lost one."""
        entries = self.entries(node, place)
        if entries is None:
            return None
        if not entries:
            self.report(place, "name at least one")
        result: dict[str, Section] = {}
        for entry in entries:
            if not isinstance(entry.value, Unsupported):
                self._parsed(kind.name, entry.key, place.child(entry.key).at(entry.line, entry.column))
            here = place.child(entry.key).at(entry.value.line, entry.value.column)
            found = self.read(kind.section, entry.value, here)
            result[entry.key] = Section(kind.of, here, lost=True) if found is None else found.value
        return Found(result, place)

    def _section(self, of: type, node: Node, place: Place) -> Found[Section] | None:
        entries = self.entries(node, place, _keys_such_as(of) if place.path else "")
        if entries is None:
            return None
        if not place.path:
            entries = [entry for entry in entries if not entry.key.startswith(FREE)]
        known: dict[str, Entry] = {}
        names = names_of(of)
        for entry in entries:
            here = place.child(entry.key)
            if isinstance(entry.value, Unsupported):
                known[entry.key] = entry
                self.unusable(entry.value, here.at(entry.value.line, entry.value.column))
            elif entry.key in names:
                known[entry.key] = entry
            else:
                self.report(here.at(entry.line, entry.column), f"unknown key{_meant(of, entry.key)}")
        return Found(self._chosen(self._settings(of, known, place), complete=len(known) == len(entries)), place)

    def _settings(self, of: type, known: Mapping[str, Entry], place: Place) -> Section:
        fields: dict[str, Found[Any]] = {}
        broken: set[str] = set()
        for one in settings_of(of):
            mistakes = len(self.mistakes)
            found = self._setting(one, known, place)
            if found is not None:
                fields[one.name] = found
            elif len(self.mistakes) > mistakes or one.name in known:
                broken.add(one.name)
            if one.required and one.name not in broken and (found is None or found.value is None):
                hint = f" (or `{one.twin}`)" if one.twin else ""
                self.report(place.child(one.name) if found is None else found.place, f"is required{hint}")
                broken.add(one.name)
        return Section(of, place, fields, frozenset(broken))

    def _setting(self, one: Setting, known: Mapping[str, Entry], place: Place) -> Found[Any] | None:
        """The value of a setting or of its twin; None if neither is there, or if what is there was reported."""
        entry, twin = known.get(one.name), known.get(one.twin or "")
        found = None
        if entry is not None and not isinstance(entry.value, Unsupported):
            found = self.read(one.kind, entry.value, place.child(one.name).at(entry.value.line, entry.value.column))
        if one.twin is None or twin is None or isinstance(twin.value, Unsupported):
            return found
        there = place.child(one.twin).at(twin.value.line, twin.value.column)
        path = self.read(_PATH, twin.value, there)
        if path is None or not path.value:
            return found
        if entry is not None and (found is None or found.value is not None):
            self.report(there, f"`{one.name}` is given too; keep one of them")
            return None
        assert isinstance(one.kind, ScalarKind)
        return self._parsed(FromFile(one.kind), path.value, there)

    def _chosen(self, section: Section, *, complete: bool) -> Section:
        """The section with none of its alternatives if two of them are given. `complete`: it had no unknown key."""
        shape = shape_of(section.of)
        given = {name for name, found in section.fields.items() if found.value is not None} | section.broken
        chosen = [one for one in settings_of(section.of) if one.name in shape.one_of and one.name in given]
        if len(chosen) > 1:
            places = sorted((section.place_of(one), one.name) for one in chosen)
            self.report(places[1][0], f"`{places[0][1]}` is given too; keep one of them")
            taken = {one.name for one in chosen}
            fields = {name: found for name, found in section.fields.items() if name not in taken}
            return replace(section, fields=fields, broken=section.broken | taken)
        if shape.some and complete and not given & set(shape.some):
            self.report(section.place, f"{' or '.join(f'`{name}`' for name in shape.some)} is required")
            return replace(section, broken=section.broken | set(shape.some))
        if shape.required and complete and not chosen:
            self.report(section.place, f"one of {', '.join(f'`{name}`' for name in spellings(section.of))} is required")
            return replace(section, broken=section.broken | set(shape.one_of))
        return section


def spellings(of: type) -> list[str]:
    """The keys of a section that stand in place of each other, twins included, in the order of its shape."""
    each = {one.name: one.names for one in settings_of(of)}
    return [name for one in shape_of(of).one_of for name in each[one]]


def _parses(kind: ScalarKind, text: str) -> bool:
    if isinstance(kind, DialectName):
        return text in dialect_names()
    try:
        kind.parse(text)
    except ValueError:
        return False
    return True


def _include(item: Node) -> Entry | None:
    """What names a file, of an item that is nothing else."""
    only = item.entries[0] if isinstance(item, MapNode) and len(item.entries) == 1 else None
    return only if only is not None and only.key == INCLUDE else None


def _keys_such_as(of: type) -> str:
    """What a section holds, for one who wrote a value in its place."""
    ordered = sorted(settings_of(of), key=lambda one: not one.required)
    return "; it has keys, such as " + " and ".join(f"`{one.name}`" for one in ordered[:2])


def _meant(of: type, key: str) -> str:
    """The remedy for a key that a section does not have."""
    if (other := shape_of(of).meant.get(key)) is not None:
        return f"; did you mean `{other}`?"
    below = [one.name for one in settings_of(of) if isinstance(one.kind, SectionOf) and key in names_of(one.kind.of)]
    return f"; it stands within `{below[0]}`" if len(below) == 1 else did_you_mean(key, names_of(of))


def _describe(node: Node, *, secret: bool = False) -> str:
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
        case Unsupported():
            return "something unsupported"
