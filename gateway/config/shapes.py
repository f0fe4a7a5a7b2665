"""Kinds that hold other kinds: lists, mappings with free names, and sections with a fixed table of fields."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, cast

from gateway.config.alternatives import NONE, Alternatives, hidden
from gateway.config.kinds import Found, Kind, Reader, ScalarKind, Schema, Text, describe, did_you_mean, report_unusable
from gateway.config.mistakes import Place
from gateway.config.secret_files import read_secret
from gateway.config.source import Entry, ListNode, MapNode, Node, Refused, Scalar, Tag

T = TypeVar("T")
_PATH_TEXT = Text("a file path", str)


@dataclass(frozen=True, slots=True)
class Field(Generic[T]):
    """One key of a section. `default` stands in when the file says nothing; `twin` adds a `<name>_file` that holds the value."""

    name: str
    kind: Kind[T]
    doc: str
    default: T | None = None
    required: bool = False
    twin: bool = False

    @property
    def twin_name(self) -> str:
        return f"{self.name}_file"


@dataclass(frozen=True, slots=True)
class Section:
    """The fields that the file gives in one place. `broken` names those whose mistakes were reported already.

    `lost` is a section that is there and could not be read at all: then every field counts as broken. `under` holds values that stand in
    for what the file does not give, before the defaults do: it has no say in where something stands, nor in whether it is given.
    """

    place: Place
    fields: Mapping[str, Found[Any]] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    lost: bool = False
    alternatives: Alternatives = NONE
    under: "Section | None" = None

    def given(self, wanted: Field[Any]) -> bool:
        """Whether the file says something here, right or wrong."""
        return self.lost or wanted.name in self.fields or wanted.name in self.broken

    def sound(self, *wanted: Field[Any]) -> bool:
        """Whether these fields can be judged further: given and read, or not given."""
        return not self.lost and not any(one.name in self.broken for one in wanted)

    def get(self, wanted: Field[T]) -> T:
        """The value, or the default where the file gives none or a broken one."""
        found = self.fields.get(wanted.name)
        if found is None and self._shows_through(wanted):
            assert self.under is not None
            return self.under.get(wanted)
        return cast("T", wanted.default if found is None else found.value)

    def has(self, wanted: Field[Any]) -> bool:
        """Whether there is a value other than the default, or a broken one."""
        return self.given(wanted) or (self._shows_through(wanted) and self.under is not None and self.under.has(wanted))

    def _shows_through(self, wanted: Field[Any]) -> bool:
        hides = wanted.name in self.broken or wanted.name in hidden(self.alternatives, self.fields, self.broken)
        return self.under is not None and not self.lost and not hides

    def place_of(self, wanted: Field[Any]) -> Place:
        found = self.fields.get(wanted.name)
        return self.place.child(wanted.name) if found is None else found.place

    def sub(self, wanted: "Field[Section]") -> "Section":
        """A nested section; an empty one where the file gives none."""
        found = self.fields.get(wanted.name)
        under = self.under.sub(wanted) if self.under is not None else None
        if found is not None:
            return replace(cast("Section", found.value), under=under)
        return Section(self.place.child(wanted.name), lost=not self.sound(wanted), under=under)

    def over(self, below: "Section") -> "Section":
        """The same section with `below` filling in what it leaves out, field by field, in nested sections too."""
        left_out = self.broken | hidden(self.alternatives, self.fields, self.broken)
        fields = {name: found for name, found in below.fields.items() if name not in left_out}
        for name, found in self.fields.items():
            under = fields.get(name)
            if isinstance(found.value, Section) and under is not None:
                fields[name] = Found(found.value.over(under.value), found.place)
            else:
                fields[name] = found
        broken = self.broken | (below.broken - self.fields.keys() - left_out)
        alternatives = self.alternatives if self.alternatives.names else below.alternatives
        return Section(self.place, fields, broken, self.lost or below.lost, alternatives, self.under)


@dataclass(frozen=True, slots=True)
class ListOf(Kind[tuple[T, ...]]):
    """A list. One wrong item spoils it, unless `keep`: then the good ones are kept, so that they can be judged further."""

    item: Kind[T]
    at_least: int = 0
    unique: bool = True
    keep: bool = False

    def read(self, reader: Reader, node: Node, place: Place) -> Found[tuple[T, ...]] | None:
        match node:
            case Refused() | Scalar(tag=Tag.NOTHING):
                report_unusable(reader, node, place)
                return None
            case Scalar() | MapNode():
                reader.report(place, f"expected a list, found {describe(node, secret=True)}")
                return None
            case ListNode():
                return self._read_items(reader, node, place)

    def _read_items(self, reader: Reader, node: ListNode, place: Place) -> Found[tuple[T, ...]] | None:
        if len(node.items) < self.at_least:
            reader.report(place, "the list is empty; name at least one")
            return None
        values: list[T] = []
        for index, item in enumerate(node.items):
            here = place.item(index).at(item.line, item.column)
            found = self.item.read(reader, item, here)
            if found is None:
                continue
            if self.unique and found.value in values:
                reader.report(here, f"`{self.item.write(found.value)}` is listed twice")
            else:
                values.append(found.value)
        return Found(tuple(values), place) if self.keep or len(values) == len(node.items) else None

    def schema(self) -> Schema:
        result: Schema = {"type": "array", "items": self.item.schema()}
        if self.at_least:
            result["minItems"] = self.at_least
        if self.unique:
            result["uniqueItems"] = True
        return result

    def write(self, value: tuple[T, ...]) -> object:
        return [self.item.write(one) for one in value]


@dataclass(frozen=True, slots=True)
class Struct(Kind[Section]):
    """A section. `meant` maps keys that people write by mistake to the ones that they mean. Of `some`, if any, at least one is given."""

    table: tuple[Field[Any], ...]
    alternatives: Alternatives = NONE
    meant: Mapping[str, str] = field(default_factory=dict)
    some: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, namespace: type, alternatives: Alternatives = NONE, meant: Mapping[str, str] | None = None, some: tuple[str, ...] = ()
    ) -> "Struct":
        """The section whose fields are the `Field` attributes of a class, in order."""
        return cls(tuple(value for value in vars(namespace).values() if isinstance(value, Field)), alternatives, meant or {}, some)

    def read(self, reader: Reader, node: Node, place: Place) -> Found[Section] | None:
        entries = read_entries(reader, node, place)
        if entries is None:
            return None
        names = {name for one in self.table for name in ((one.name, one.twin_name) if one.twin else (one.name,))}
        known: dict[str, Entry] = {}
        for entry in entries:
            if isinstance(entry.value, Refused) or entry.key in names:
                known[entry.key] = entry
            else:
                remedy = (
                    f"; did you mean `{self.meant[entry.key]}`?" if entry.key in self.meant else did_you_mean(entry.key, frozenset(names))
                )
                reader.report(place.child(entry.key).at(entry.line, entry.column), f"unknown key{remedy}")
        section = self._section(reader, known, place)
        return Found(self._choose(reader, section, complete=len(known) == len(entries)), place)

    def _choose(self, reader: Reader, section: Section, *, complete: bool) -> Section:
        """The section with none of its alternatives if two of them are given. `complete`: it had no unknown key."""
        given = {name for name, found in section.fields.items() if found.value is not None} | section.broken
        chosen = self.alternatives.among(given)
        if len(chosen) > 1:
            places = sorted((section.place_of(one), one.name) for one in self.table if one.name in chosen)
            reader.report(places[1][0], f"`{places[0][1]}` is given too; keep one of them")
            fields = {name: found for name, found in section.fields.items() if name not in chosen}
            return replace(section, fields=fields, broken=section.broken | set(chosen))
        if self.some and complete and not given & set(self.some):
            words = " or ".join(f"`{name}`" for name in self.some)
            reader.report(section.place, f"{words} is required")
            return replace(section, broken=section.broken | set(self.some))
        if self.alternatives.required and complete and not chosen:
            reader.report(section.place, f"one of {self.alternatives.words()} is required")
            return replace(section, broken=section.broken | set(self.alternatives.names))
        return section

    def _section(self, reader: Reader, known: dict[str, Entry], place: Place) -> Section:
        fields: dict[str, Found[Any]] = {}
        broken: set[str] = set()
        for entry in known.values():
            if isinstance(entry.value, Refused):
                reader.report(place.child(entry.key).at(entry.value.line, entry.value.column), entry.value.message)
        for one in self.table:
            mistakes = len(reader.mistakes)
            found = _read_field(reader, one, known, place)
            if found is not None:
                fields[one.name] = found
            elif len(reader.mistakes) > mistakes or one.name in known:
                broken.add(one.name)
            if one.required and one.name not in broken and (found is None or found.value is None):
                reader.report(place.child(one.name) if found is None else found.place, "is required" + _twin_hint(one))
                broken.add(one.name)
        return Section(place, fields, frozenset(broken), alternatives=self.alternatives)

    def schema(self) -> Schema:
        properties: Schema = {}
        for one in self.table:
            described: Schema = {"description": one.doc, **one.kind.schema()}
            if one.default is not None:
                described["default"] = one.kind.write(one.default)
            properties[one.name] = described
            if one.twin:
                properties[one.twin_name] = {"type": "string", "description": f"A file that holds `{one.name}`, relative to this file."}
        result: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
        required = [one.name for one in self.table if one.required and not one.twin]
        if required:
            result["required"] = required
        twins = [{"anyOf": [{"required": [one.name]}, {"required": [one.twin_name]}]} for one in self.table if one.required and one.twin]
        choice = self.alternatives.schema() if self.alternatives.names else {}
        some = {"anyOf": [{"required": [name]} for name in self.some]} if self.some else {}
        return {**result, **choice, **some, **({"allOf": twins} if twins else {})}

    def write(self, value: Section) -> object:
        raise NotImplementedError("sections have no default of their own")


@dataclass(frozen=True, slots=True)
class MapOf(Kind[Mapping[str, Section]]):
    """A mapping from names to sections. A section that cannot be read stays under its name as a lost one."""

    name: Text[str]
    section: Struct

    def read(self, reader: Reader, node: Node, place: Place) -> Found[Mapping[str, Section]] | None:
        entries = read_entries(reader, node, place)
        if entries is None:
            return None
        if not entries:
            reader.report(place, "name at least one")
        result: dict[str, Section] = {}
        for entry in entries:
            if not isinstance(entry.value, Refused):
                self.name.read_plain(reader, entry.key, place.child(entry.key).at(entry.line, entry.column))
            here = place.child(entry.key).at(entry.value.line, entry.value.column)
            found = self.section.read(reader, entry.value, here)
            result[entry.key] = Section(here, lost=True) if found is None else found.value
        return Found(result, place)

    def schema(self) -> Schema:
        return {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"pattern": self.name.pattern or ""},
            "additionalProperties": self.section.schema(),
        }

    def write(self, value: Mapping[str, Section]) -> object:
        raise NotImplementedError("named sections have no default")


def read_entries(reader: Reader, node: Node, place: Place) -> list[Entry] | None:
    """The entries of a mapping, the first of each key; later ones are reported."""
    match node:
        case Refused() | Scalar(tag=Tag.NOTHING):
            report_unusable(reader, node, place)
            return None
        case Scalar() | ListNode():
            reader.report(place, f"expected a mapping, found {describe(node, secret=True)}")
            return None
        case MapNode():
            first: dict[str, Entry] = {}
            for entry in node.entries:
                earlier = first.setdefault(entry.key, entry)
                if earlier is not entry:
                    reader.report(place.child(entry.key).at(entry.line, entry.column), f"duplicate key (first in line {earlier.line})")
            return list(first.values())


def _read_field(reader: Reader, one: Field[Any], known: dict[str, Entry], place: Place) -> Found[Any] | None:
    """The value of a field or of its twin; None if neither is there, or if what is there was reported."""
    entry = known.get(one.name)
    found = None
    if entry is not None and not isinstance(entry.value, Refused):
        found = one.kind.read(reader, entry.value, place.child(one.name).at(entry.value.line, entry.value.column))
    twin = known.get(one.twin_name) if one.twin else None
    if twin is None or isinstance(twin.value, Refused):
        return found
    there = place.child(one.twin_name).at(twin.value.line, twin.value.column)
    path = _PATH_TEXT.read(reader, twin.value, there)
    if path is None or not path.value:
        return found
    if entry is not None and (found is None or found.value is not None):
        reader.report(there, f"`{one.name}` is given too; keep one of them")
        return None
    assert isinstance(one.kind, ScalarKind)
    text = read_secret(reader, path)
    return None if text is None else one.kind.read_plain(reader, text, there)


def _twin_hint(one: Field[Any]) -> str:
    return f" (or `{one.twin_name}`)" if one.twin else ""
