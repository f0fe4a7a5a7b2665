"""A value that is mostly one and may be several."""

from dataclasses import dataclass
from typing import TypeVar

from gateway.config.kinds import Found, Kind, Reader, ScalarKind, Schema
from gateway.config.mistakes import Place
from gateway.config.shapes import ListOf
from gateway.config.source import ListNode, Node

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OneOrMany(Kind[tuple[T, ...]]):
    """`item`, or a list of one or more. The order counts, and one may be there twice."""

    item: ScalarKind[T]

    @property
    def _list(self) -> ListOf[T]:
        return ListOf(self.item, at_least=1, unique=False)

    def read(self, reader: Reader, node: Node, place: Place) -> Found[tuple[T, ...]] | None:
        if isinstance(node, ListNode):
            return self._list.read(reader, node, place)
        found = self.item.read(reader, node, place)
        return None if found is None else Found((found.value,), place)

    def schema(self) -> Schema:
        return {"anyOf": [self.item.schema(), self._list.schema()]}

    def write(self, value: tuple[T, ...]) -> object:
        return self.item.write(value[0]) if len(value) == 1 else [self.item.write(one) for one in value]
