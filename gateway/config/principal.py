"""The principal of a route: `none`, spelled out, or a list of sources that must all be there."""

from dataclasses import dataclass

from gateway.config.kinds import Found, Kind, Reader, Schema, Text, describe, report_unusable
from gateway.config.mistakes import Place
from gateway.config.shapes import Field, ListOf, Struct
from gateway.config.source import ListNode, MapNode, Node, Refused, Scalar, Tag

_LATER = dict.fromkeys(("jwt", "forward_auth", "basic", "client_certificate"), "a principal is read from headers: {header: Authorization}")
_EXPECTED = "expected a list of sources such as [{header: Authorization}], or none"


@dataclass(frozen=True, slots=True)
class PrincipalKind(Kind[tuple[str, ...]]):
    """Header names, in order, in the file's spelling; empty for `none`."""

    header: Text[str]

    @property
    def _source(self) -> Struct:
        return Struct((self._field,), _LATER)

    @property
    def _field(self) -> Field[str]:
        return Field("header", self.header, "A request header; its value is kept as a keyed digest only.", required=True)

    def read(self, reader: Reader, node: Node, place: Place) -> Found[tuple[str, ...]] | None:
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

    def _read_sources(self, reader: Reader, node: ListNode, place: Place) -> Found[tuple[str, ...]] | None:
        mistakes = len(reader.mistakes)
        sources = ListOf(self._source, unique=False).read(reader, node, place)
        if sources is None or len(reader.mistakes) > mistakes:
            return None
        names: list[str] = []
        for section in sources.value:
            name = section.get(self._field)
            if name.lower() in (earlier.lower() for earlier in names):
                reader.report(section.place_of(self._field), f"`{name}` is listed twice")
            names.append(name)
        return Found(tuple(names), place) if len(reader.mistakes) == mistakes else None

    def schema(self) -> Schema:
        return {"anyOf": [{"const": "none"}, {"type": "array", "minItems": 1, "items": self._source.schema()}]}

    def write(self, value: tuple[str, ...]) -> object:
        return [{"header": name} for name in value] or "none"
