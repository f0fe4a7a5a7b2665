"""Request heads that a parser need not read again, since one of their shape was read before (`gateway.core.head_shapes`)."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from gateway.core.head_shapes import HeadShapes, Remembered, length_of
from gateway.core.headers import Fields
from gateway.http.head_parser import HeadParser

_LENGTH = b"content-length"
_VERSION = b" HTTP/1.1"
_METHODS = {name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")}
_TARGET = re.compile(rb"/[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*").fullmatch
"""What the parser takes for a request line whatever comes behind it."""


class RequestShape:
    """What request heads of one shape have in common, as `HeadParser` has it: all but methods and targets. None of them is chunked or asks
    for another protocol.

    `count` is the number of their field lines, `size` the bytes of such a head. `varies` are the lower-case names of those whose values
    differ. `known` is the handler's: what it found out that holds for all of them; None at first. `of` is what stands for it among the
    shapes.
    """

    __slots__ = ("_length", "_shapes", "_spelled", "_steady", "_varying", "count", "keep_alive", "known", "of", "size", "varies", "version")

    upgrade = False
    chunked = False
    of: Remembered["RequestShape"]

    def __init__(self, head: HeadParser, places: list[int], shapes: "RequestShapes", size: int) -> None:
        """Of a head in which the values at these `places` vary. It will be one of `shapes`."""
        self._shapes = shapes
        self.size = size
        lines = head.fields.lines
        self.version = head.version
        self.keep_alive = head.keep_alive
        self.count = len(lines)
        self.known: Any = None  # each handler's own type
        # Without the values of this one head, which are a caller's.
        self._steady = {name.lower(): b"" if place in places else value for place, (name, value) in enumerate(lines)}
        self._spelled = [(name, name.lower()) for name, _ in lines]
        self._varying = [lines[place][0].lower() for place in places]
        self.varies = frozenset(self._varying)
        self._length = self._varying.index(_LENGTH) if _LENGTH in self.varies else None

    def take(self, cost: int) -> bool:
        """Whether there is room for so many bytes more that a handler finds out. They are taken then."""
        return self._shapes.take(self.of, cost)

    def read(self, values: Sequence[bytes]) -> tuple[Fields, int] | None:
        """The fields of a head with these varying values, and the length of its body. None: the parser has to judge it."""
        length = 0
        if self._length is not None:
            announced = length_of(values[self._length])
            if announced is None:
                return None
            length = announced
        first = self._steady.copy()
        for name, value in zip(self._varying, values):  # noqa: B905 - a shape has as many of both, and the keyword costs as much as all this
            first[name] = value
        return Fields.spelled(self._spelled, first), length


class ReadRequest(NamedTuple):
    """A request's head, read by its shape. `length` is that of its body. `ticket` is for the next head on its connection."""

    shape: RequestShape
    method: str
    target: bytes
    fields: Fields
    length: int
    ticket: int


class RequestShapes(HeadShapes[RequestShape]):
    """The shapes of a listener's requests: what stands behind the target, since targets have ids in them."""

    __slots__ = ()

    def read(self, head: bytes, most: int, ticket: int) -> ReadRequest | None:
        """A head of at most `most` field lines, with its closing empty line. `ticket` is that of the one before. None: only a parser can
        tell.
        """
        method, target, rest = _split(head)
        if method is None:
            self.forget_missed()
            return None
        found = self.find(rest, ticket)
        if found is None:
            return None
        shape, values, ticket = found
        read = shape.read(values) if shape.count <= most else None
        return None if read is None else ReadRequest(shape, method, target, *read, ticket)

    def learn(self, head: bytes, parser: HeadParser) -> None:
        """A parser has read this head, which `read` could not. It is remembered if it comes again, and was read as simply."""
        lines, (method, _, rest) = parser.fields.lines, _split(head)
        if method is None or parser.chunked or parser.upgrade or parser.fields.repeated:
            return
        glanced = self.glance(rest, len(lines))
        if glanced is None:
            return
        shape, values = glanced
        places = [place for place, (name, _) in enumerate(lines) if self.varies(name.lower())]
        if values == [lines[place][1] for place in places]:
            known = RequestShape(parser, places, self, len(rest))
            known.of = self.keep(shape, known, rest, len(lines))


def _split(head: bytes) -> tuple[str | None, bytes, bytes]:
    """Method, target, and what stands behind the version; no method where only the parser can tell."""
    start, _, rest = head.partition(_VERSION)
    name, _, target = start.partition(b" ")
    return _METHODS.get(name) if _TARGET(target) is not None else None, target, rest
