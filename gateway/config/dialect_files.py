"""Dialect files: each is read once for a configuration, however many routes name it. Its `idempotency` lies under a
route's own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from gateway.config.checks.policy import check_alone
from gateway.config.mistakes import Place
from gateway.config.names import POLICY, ROUTE, ROUTE_MAP
from gateway.config.reader import Reader
from gateway.config.section import Section
from gateway.config.source import ListNode, MapNode, Node, Scalar, Unsupported, parse_tree
from gateway.core.dialect import DialectError, parse_dialect
from gateway.core.dialect_model import Dialect
from gateway.core.kinds import SectionOf, Tag
from gateway.core.policy import Policy
from gateway.core.setting import setting_of
from gateway.dialects import names, text_of

Plain: TypeAlias = "dict[str, Plain] | list[Plain] | str | int | float | bool | None"


@dataclass(frozen=True, slots=True)
class DialectFile:
    """What a file says: the wire form, its sentence about itself, and fields of `idempotency`."""

    dialect: Dialect
    about: str
    idempotency: Section


def read_dialects(reader: Reader, root: Section) -> dict[str, DialectFile]:
    """The dialects that the routes name, by what names them (`dialect_of`). One with mistakes is missing, and they are
    reported.
    """
    found: dict[str, DialectFile | None] = {}
    for name, place in _named(root):
        if name not in found:
            found[name] = builtin_dialect(name) if name in names() else _read_file(reader, name, place)
    return {name: dialect for name, dialect in found.items() if dialect is not None}


@lru_cache
def builtin_dialect(name: str) -> DialectFile:
    """A dialect that comes with the gateway. `name` must be the name of one."""
    reader = Reader({}, Path())
    dialect = _read(reader, parse_tree(text_of(name).encode()), name)
    assert dialect is not None, reader.mistakes
    return dialect


def dialect_of(section: Section) -> str:
    """What names the dialect of a policy section: its name, or the path of its file."""
    named: object = section.get(POLICY.dialect)
    return named if isinstance(named, str) else Dialect().name


def _named(root: Section) -> Iterator[tuple[str, Place]]:
    """Each dialect that is in use, and where it is named; the default one too."""
    defaults = root.sub(ROUTE_MAP.defaults)
    for route in root.each(ROUTE_MAP.routes):
        if route.given(ROUTE.policy):
            section = route.sub(ROUTE.policy).over(defaults)
            yield dialect_of(section), section.place_of(POLICY.dialect)


def _read_file(reader: Reader, path: str, named: Place) -> DialectFile | None:
    root = reader.tree(path, named)
    return None if root is None else _read(replace(reader, directory=Path(path).parent), root, path)


def _read(reader: Reader, root: Node, file: str) -> DialectFile | None:
    mistakes = len(reader.mistakes)
    top = Place(root.line, root.column, file=file)
    wire, idempotency = _split(root)
    section = _read_idempotency(reader, idempotency, top.child("idempotency"))
    tree = _plain(reader, wire, top)
    dialect = _parse(reader, wire, tree, top) if len(reader.mistakes) == mistakes else None
    if dialect is None or section is None or len(reader.mistakes) > mistakes:
        return None
    assert isinstance(tree, dict)
    return DialectFile(dialect, str(tree["about"]), section)


def _split(root: Node) -> tuple[Node, Node | None]:
    """The tree without its `idempotency`, and that."""
    if not isinstance(root, MapNode):
        return root, None
    taken = next((entry for entry in root.entries if entry.key == "idempotency"), None)
    rest = replace(root, entries=tuple(entry for entry in root.entries if entry is not taken))
    return rest, None if taken is None else taken.value


_A_ROUTES_OWN = {
    setting_of(POLICY.dialect).name: "a dialect cannot name another one; copy the fields that you want from it",
    **dict.fromkeys(
        [
            setting_of(own).name
            for own in (
                POLICY.scope,
                POLICY.mode,
                POLICY.principal,
                POLICY.combine,
                POLICY.hints,
                POLICY.trust_retention,
                POLICY.on_store_outage,
                POLICY.on_unknown,
                POLICY.reconcile,
                POLICY.webhook,
            )
        ],
        "whom to trust, and whether to guard at all, is a route's own word; say it there or in `defaults`",
    ),
}


def _read_idempotency(reader: Reader, node: Node | None, place: Place) -> Section | None:
    if node is None:
        return Section(Policy, place)
    here = place.at(node.line, node.column)
    if isinstance(node, MapNode):
        for entry in node.entries:
            if entry.key in _A_ROUTES_OWN:
                reader.report(here.child(entry.key).at(entry.line, entry.column), _A_ROUTES_OWN[entry.key])
        node = replace(node, entries=tuple(entry for entry in node.entries if entry.key not in _A_ROUTES_OWN))
    found = reader.read(SectionOf(Policy), node, here)
    if found is not None:
        reader.mistakes.extend(check_alone(found.value))
    return None if found is None else found.value


def _plain(reader: Reader, node: Node, place: Place) -> Plain:
    """The tree as plain data. Nothing is put in for variables: a body may hold a dollar sign."""
    match node:
        case Unsupported():
            reader.unusable(node, place)
            return None
        case Scalar():
            return _value(node)
        case ListNode():
            return [_plain(reader, item, place.item(index).at(item.line, item.column)) for index, item in enumerate(node.items)]
        case MapNode():
            result: dict[str, Plain] = {}
            for entry in reader.entries(node, place) or ():
                result[entry.key] = _plain(reader, entry.value, place.child(entry.key).at(entry.value.line, entry.value.column))
            return result


def _value(node: Scalar) -> str | int | float | bool | None:
    match node.tag:
        case Tag.TEXT:
            return node.text
        case Tag.INTEGER if len(node.text) <= 18:
            return int(node.text)
        case Tag.INTEGER | Tag.NUMBER:
            return float(node.text)
        case Tag.FLAG:
            return node.text.lower() == "true"
        case Tag.NOTHING:
            return None


def _parse(reader: Reader, root: Node, tree: Plain, top: Place) -> Dialect | None:
    try:
        return parse_dialect(tree, top.file)[0]
    except DialectError as error:
        for mistake in error.mistakes:
            reader.report(_find(root, mistake.path, top), mistake.message)
        return None


def _find(node: Node, path: Sequence[str], place: Place) -> Place:
    """The place of the value at `path`, or of the last one on the way to it that is there."""
    if not path:
        return place
    here = place.child(path[0])
    for entry in node.entries if isinstance(node, MapNode) else ():
        if entry.key == path[0]:
            return _find(entry.value, path[1:], here.at(entry.value.line, entry.value.column))
    for name in path[1:]:
        here = here.child(name)
    return here
