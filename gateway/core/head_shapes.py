"""Heads that come again and again, alike but for the values of a few fields: found by one look instead of being parsed. Pure.

A client sends one head with all its requests, with another key, trace and length in each. The *shape* of a head is all of its bytes but the
values of the fields that may vary. Two heads of one shape are parsed alike, apart from these values: each is plain text (visible ASCII,
with spaces inside), no other byte of the head differs, and no field that varies decides how a head is read, but for `Content-Length`, whose
value a reader has to judge. So a parser, which alone knows what a head is, reads the first ones of a shape, and what it found is
remembered.
"""

import re
import struct
from collections.abc import Collection, Sequence
from typing import Generic, TypeAlias, TypeVar

from gateway.core.field_names import FORWARDED_FAMILIES, STEER
from gateway.core.memo import Memo

LONGEST = 4096
"""Bytes of a head that may be remembered."""

SHAPES = 512
GLANCES = 4096
_CUTS = 32
"""For so many lengths of its values it is remembered where they are in a head of one shape."""

S = TypeVar("S")

Shape: TypeAlias = tuple[bytes, ...]
"""All of a head but the values that vary: what stands before the first such field, its name, what stands between it and the next, and so
on.
"""

_PLAIN = re.compile(rb"[ -~]*").fullmatch


class Cut(Generic[S]):
    """Heads of one shape whose values have the same lengths, so that each stands where it stood in the last one: nearly all that come on a
    connection. `known` is what is known of the shape, `size` the length of such a head; `take_apart` gives its parts, every other of which
    is a value; `between` are the others.
    """

    __slots__ = ("between", "known", "size", "take_apart")

    def __init__(self, known: S, parts: Sequence[bytes]) -> None:
        """Of a head in these parts."""
        self.known = known
        self.between = tuple(parts[::2])
        self.size = sum(map(len, parts))
        self.take_apart = struct.Struct("".join([f"{len(part)}s" for part in parts])).unpack


class HeadShapes(Generic[S]):
    """What is known of heads, by their shape. `varying` are lower-case names of fields; those that `STEER` are left out.

    A shape is remembered when it comes for the second time: one that varies elsewhere, too, comes once. What clients invent cannot fill the
    memory, as in `Memo`.
    """

    __slots__ = ("_glances", "_names", "_shapes", "_split")

    def __init__(self, varying: Collection[bytes]) -> None:
        self._names: frozenset[bytes] = frozenset()
        self._shapes: Memo[Shape, tuple[S, Memo[tuple[int, ...], Cut[S]]]] = Memo(SHAPES)
        self._glances: Memo[int, None] = Memo(GLANCES)
        self.vary(varying)

    def vary(self, varying: Collection[bytes]) -> None:
        """From now on these fields vary. All shapes are forgotten."""
        self._names = frozenset([name for name in varying if name not in STEER and not name.startswith(FORWARDED_FAMILIES)])
        self._split = re.compile(rb"(\r\n%b:[ \t]*)([!-~](?:[ -~]*[!-~])?)(?=\r\n)" % any_of(self._names)).split
        self._shapes.clear()
        self._glances.clear()

    def varies(self, name: bytes) -> bool:
        """Whether fields of this lower-case name may vary."""
        return name in self._names

    def find(self, head: bytes, last: Cut[S] | None = None) -> tuple[Cut[S], Sequence[bytes]] | None:
        """What is known of a head with its closing empty line, and the values of its varying fields, in their order. `last` is the cut of
        the head before it, if there was one.
        """
        if last is not None and last.size == len(head):
            parts = last.take_apart(head)
            values: Sequence[bytes] = parts[1::2]
            if parts[::2] == last.between and _PLAIN(text := b"".join(values)) and (b" " not in text or _stripped(values)):
                return last, values
        shape, values = self._parts(head)
        found = self._shapes.get(shape)
        if found is None:
            return None
        known, cuts = found
        lengths = tuple(map(len, values))
        return cuts.get(lengths) or cuts.keep(lengths, Cut(known, _in_turn(shape, values))), values

    def glance(self, head: bytes) -> tuple[Shape, list[bytes]] | None:
        """The shape of a head that `find` did not know, and the values that vary in it, if the shape is worth being remembered by now."""
        if len(head) > LONGEST:
            return None
        parted = self._parts(head)
        seen = hash(parted[0])
        if seen in self._glances:
            return parted
        self._glances.keep(seen, None)
        return None

    def keep(self, shape: Shape, known: S) -> None:
        """Remember what was found out of the heads of a shape."""
        self._shapes.keep(shape, (known, Memo(_CUTS)))

    def _parts(self, head: bytes) -> tuple[Shape, list[bytes]]:
        parts = self._split(head)
        values = parts[2::3]
        del parts[2::3]
        return tuple(parts), values


def _stripped(values: Sequence[bytes]) -> bool:
    """Whether no value begins or ends with a space: what the pattern finds does not."""
    return all(value == value.strip(b" ") for value in values)


def _in_turn(shape: Shape, values: Sequence[bytes]) -> list[bytes]:
    """The parts of a head: what stands before the first value, that value, what stands between it and the next, and so on."""
    parts = [shape[-1]] * (2 * len(values) + 1)
    parts[:-1:2] = [before + name for before, name in zip(shape[:-1:2], shape[1::2], strict=True)]
    parts[1::2] = values
    return parts


def any_of(names: Collection[bytes]) -> bytes:
    """A pattern for any of these lower-case names, in whatever case. It looks at each letter once, where a choice between whole names tries
    one after the other.
    """
    longer: dict[bytes, list[bytes]] = {}
    for name in sorted(names):
        if name:
            longer.setdefault(name[:1], []).append(name[1:])
    choices = [_letter(first) + any_of(rests) for first, rests in longer.items()]
    if not choices:
        return b""
    choice = choices[0] if len(choices) == 1 and b"" not in names else b"(?:%b)" % b"|".join(choices)
    return choice + b"?" if b"" in names else choice


def _letter(letter: bytes) -> bytes:
    return b"[%b%b]" % (letter, letter.upper()) if letter.isalpha() else re.escape(letter)
