"""Heads of responses that a parser need not read again, since one of their shape was read before (`gateway.core.head_shapes`)."""

from collections.abc import Sequence

from gateway.core.field_names import VARY
from gateway.core.head_shapes import HeadShapes, length_of

ROOM = 1024 * 1024
"""Bytes that all heads of an upstream may take."""

_LENGTH = b"content-length"

Lines = list[tuple[bytes, bytes]]


class ResponseShape:
    """What final responses of one shape have in common. All have a body of an announced length, and let the connection be used again;
    `patience` is for how many seconds the upstream says that it keeps it.
    """

    __slots__ = ("_length", "_lines", "_places", "patience", "reason", "status")

    def __init__(self, status: int, reason: bytes, lines: Lines, places: list[int], patience: float) -> None:
        """Of one with these field lines, in which the values at these `places` vary, a `Content-Length` among them."""
        self.status = status
        self.reason = reason
        self.patience = patience
        self._lines = [(name, b"" if place in places else value) for place, (name, value) in enumerate(lines)]
        self._places = [(place, lines[place][0]) for place in places]
        self._length = [name.lower() for _, name in self._places].index(_LENGTH)

    def read(self, values: Sequence[bytes]) -> tuple[Lines, int] | None:
        """The field lines of a head with these varying values, and the length of its body. None: the parser has to judge it."""
        length = length_of(values[self._length])
        if length is None:
            return None
        lines = self._lines.copy()
        for (place, name), value in zip(self._places, values):  # noqa: B905 - a shape has as many of both, and the keyword costs as much
            lines[place] = (name, value)
        return lines, length


class ResponseShapes(HeadShapes[ResponseShape]):
    """The shapes of an upstream's responses."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(VARY, ROOM)

    def read(self, head: bytes, ticket: int) -> tuple[ResponseShape, Lines, int, int] | None:
        """A head with its closing empty line: its shape, its field lines, the length of its body, and the ticket for the next one on its
        connection. `ticket` is that of the one before. None: only a parser can tell.
        """
        found = self.find(head, ticket)
        if found is None:
            return None
        shape, values, ticket = found
        read = shape.read(values)
        return None if read is None else (shape, *read, ticket)

    def learn(self, head: bytes, status: int, reason: bytes, lines: Lines, patience: float) -> None:
        """A parser has read this head, which `read` could not, as that of a response that a `ResponseShape` may stand for. It is remembered
        if it comes again.
        """
        glanced = self.glance(head, len(lines))
        if glanced is None:
            return
        shape, values = glanced
        places = [place for place, (name, _) in enumerate(lines) if self.varies(name.lower())]
        if values == [lines[place][1] for place in places] and _LENGTH in [lines[place][0].lower() for place in places]:
            self.keep(shape, ResponseShape(status, reason, lines, places, patience), head, len(lines))
