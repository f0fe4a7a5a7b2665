"""The principal of a route: `none`, spelled out, or a list of sources."""

from dataclasses import dataclass

from gateway.config.kinds import Found, Kind, Reader, Schema, describe, report_unusable
from gateway.config.mistakes import Place
from gateway.config.principal_fields import SOURCE, SourceFields
from gateway.config.shapes import ListOf, Section
from gateway.config.source import ListNode, MapNode, Node, Refused, Scalar, Tag

_SOURCES = ListOf(SOURCE, at_least=1, unique=False)
_EXPECTED = "expected a list of sources such as [{header: Authorization}], or none"


@dataclass(frozen=True, slots=True)
class PrincipalKind(Kind[tuple[Section, ...]]):
    """Sources in order, each a section with one field of `SourceFields`; empty for `none`."""

    def read(self, reader: Reader, node: Node, place: Place) -> Found[tuple[Section, ...]] | None:
        match node:
            case Scalar(tag=Tag.TEXT, text="none"):
                return Found((), place)
            case Refused() | Scalar(tag=Tag.NOTHING):
                report_unusable(reader, node, place)
            case Scalar() | MapNode():
                reader.report(place, f"{_EXPECTED}; found {describe(node)}")
            case ListNode(items=()):
                reader.report(place, "the list is empty; name a source such as {header: Authorization}, or write none")
            case ListNode():
                return self._read_sources(reader, node, place)
        return None

    def _read_sources(self, reader: Reader, node: ListNode, place: Place) -> Found[tuple[Section, ...]] | None:
        """One mistake spoils the whole list: who asks is nothing to be judged in part."""
        mistakes = len(reader.mistakes)
        found = _SOURCES.read(reader, node, place)
        for section in () if found is None else found.value:
            if section.get(SourceFields.BASIC) is False:
                reader.report(section.place_of(SourceFields.BASIC), "write true, or remove this source")
        return found if len(reader.mistakes) == mistakes else None

    def schema(self) -> Schema:
        return {"anyOf": [{"const": "none"}, _SOURCES.schema()]}

    def write(self, value: tuple[Section, ...]) -> object:
        raise NotImplementedError("a principal has no default")
