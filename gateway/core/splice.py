"""One string of a JSON text set by splicing: every byte outside of it stays as the client wrote it.

A body is changed only where an upstream wants its key in there. Parsing it and writing it anew would change numbers,
escapes, member order and white space, and with them digests and signatures over the rest that only the upstream
understands.

Only strict JSON (`strict_json`) is changed, since a text that two readers read differently has no single place for a
key. The canonical form asks for more: here no number is judged.
"""

import json
import re
from collections.abc import Iterator
from typing import TypeAlias

from gateway.core.pointers import Json, split_pointer
from gateway.core.strict_json import Number, decoder, read

_SPACE = re.compile(r"[ \t\n\r]*")

_Span: TypeAlias = tuple[int, int, bool]
"""Start and end of a value, and whether it is there; else both are the place for it."""


def _whole(text: str) -> Number:
    """In a function of Python's, so that other threads get their turn between two numbers of a long text."""
    return Number(text)


def _unread(_: str) -> int:
    return 0


_DECODER = decoder(_whole, _unread)
"""Whole numbers are `Number`, every other number is 0, unread."""


def splice(body: bytes, pointer: str, text: str) -> bytes | None:
    """`JsonText(body).with_text(pointer, text)`."""
    return JsonText(body).with_text(pointer, text)


class JsonText:
    """A body that may be strict JSON, read at most once, and the places in it, each looked for at most once.

    Reading takes a tenth of a second or more for a body of a million small values, so a request shares one of these.
    """

    __slots__ = ("_places", "_value", "body")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self._value: Json | ValueError = None
        self._places: dict[str, tuple[str, _Span | None]] = {}

    def value(self) -> Json:
        """Whole numbers as `Number`, every other number as 0. Raises ValueError if the body is not strict JSON."""
        if self._value is None:
            try:
                self._value = read(self.body, _DECODER)
            except ValueError as error:
                self._value = error
        if isinstance(self._value, ValueError):
            raise self._value
        return self._value

    def find(self, pointer: str) -> None:
        """Look for a place ahead of time, in whatever thread. Raises ValueError if the pointer is none."""
        if pointer in self._places:
            return
        tokens = split_pointer(pointer)
        try:
            self.value()
        except ValueError:
            self._places[pointer] = "", None
            return
        source = self.body.decode()
        self._places[pointer] = source, _place(source, tokens)

    def with_text(self, pointer: str, text: str) -> bytes | None:
        """The body with the value at a JSON pointer set to the string `text`; nothing else of it changes.

        What is there is replaced, whatever it is; a member that is absent is added at the end of its object. None if
        the body is not strict JSON, or has no such object. Arrays are not extended. Raises ValueError if the pointer is
        none.
        """
        self.find(pointer)
        source, span = self._places[pointer]
        if span is None:
            return None
        start, end, there = span
        comma = "" if source[start - 1] == "{" else ","
        spliced = json.dumps(text) if there else f"{comma}{json.dumps(split_pointer(pointer)[-1])}:{json.dumps(text)}"
        return (source[:start] + spliced + source[end:]).encode()


def _place(source: str, tokens: list[str]) -> _Span | None:
    at = _skip(source, 0)
    span: _Span | None = None
    for token in tokens:
        if span is not None and not span[2]:
            return None
        span = _span(source, at, token)
        if span is None:
            return None
        at = span[0]
    return span


def _span(source: str, at: int, token: str) -> _Span | None:
    """Where the value that begins at `at` has its part called `token`: start, end, and whether it is there at all.

    If it is not, both are the place for a new member; None if there is none.
    """
    if source[at] not in "{[":
        return None
    end = at + 1
    for name, start, stop in _parts(source, at):
        if name == token:
            return start, stop, True
        end = stop
    return (end, end, False) if source[at] == "{" else None


def _parts(source: str, at: int) -> Iterator[tuple[str, int, int]]:
    """The members or elements of the strict JSON value that begins at `at`: name or index, start and end of
    each value.
    """
    named, index = source[at] == "{", 0
    at = _skip(source, at + 1)
    while source[at] not in "}]":
        name = str(index)
        if named:
            name, at = _DECODER.raw_decode(source, at)
            at = _skip(source, _skip(source, at) + 1)
        _, end = _DECODER.raw_decode(source, at)
        yield name, at, end
        at = _skip(source, end)
        if source[at] == ",":
            at = _skip(source, at + 1)
        index += 1


def _skip(source: str, at: int) -> int:
    found = _SPACE.match(source, at)
    assert found is not None, "white space may be empty"
    return found.end()
