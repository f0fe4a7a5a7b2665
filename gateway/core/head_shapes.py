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
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from gateway.core.field_names import CLIENT_ADDRESSES, FORWARDED_FAMILIES, STEER
from gateway.core.memo import Memo

LONGEST = 2048
"""Bytes of a head that may be remembered."""

MOST_LINES = 48
"""Its field lines."""

ROOM = 4 * 1024 * 1024
"""Bytes that all heads of a listener may take."""

_CUTS = 16
_CUT_COST, _CUT_VALUE_COST = 500, 85
"""For so many lengths of its values it is remembered where they stand in a head of one shape, in so many bytes each, and for each value."""

_STRANGE = 64
"""After so many heads with values of other lengths, those take the place of the ones that are known."""

_GLANCES = 4096
_PATIENT = 32
_RESTS = 7
"""After so many heads in a row that are not known, so many are not looked up: what comes once gains nothing by it."""

_REFUSALS = 8192
"""After so many shapes for which there was no room, those that nobody has asked for meanwhile make room."""

_LENGTH_DIGITS = 15

S = TypeVar("S")

Shape: TypeAlias = tuple[bytes, ...]
"""All of a head but the values that vary: what stands before the first such field, its name, what stands between it and the next, and so
on.
"""

_PLAIN = re.compile(rb"[ -~]*").fullmatch


class Remembered(Generic[S]):
    """One shape. `known` is what is known of it, `between` what stands around its values, `cost` the bytes that it may take, `used` whether
    it was asked for since the last clearance, `gone` that it is not remembered any more. `cuts` are the numbers of those that are known, by
    lengths, each of which takes `cut_cost` bytes; `strange` says how many heads had others since they were all found.
    """

    __slots__ = ("between", "cost", "cut_cost", "cuts", "gone", "known", "strange", "used")

    def __init__(self, known: S, shape: Shape, cost: int) -> None:
        self.known = known
        self.between = (*[before + name for before, name in zip(shape[:-1:2], shape[1::2], strict=True)], shape[-1])
        self.cost = cost
        self.cuts: dict[tuple[int, ...], int] = {}
        self.cut_cost = _CUT_COST + _CUT_VALUE_COST * len(shape[1::2])
        self.strange = 0
        self.gone = False
        self.used = True


class Cut(NamedTuple, Generic[S]):
    """Heads of one shape whose values have the same lengths, so that each stands where it stood in the last one: nearly all that come on a
    connection. `size` is the length of such a head; `take_apart` gives its parts, every other of which is a value.
    """

    size: int
    take_apart: struct.Struct
    of: Remembered[S]


class HeadShapes(Generic[S]):
    """What is known of heads, by their shape, in at most `room` bytes. `varying` are lower-case names of fields; those that `STEER` are
    left out.

    A shape is remembered when it comes for the second time: one that varies elsewhere, too, comes once. While there is no room, none is,
    and those that are known stay: others do not drive them out, and where more callers come than there is room for, what is not known costs
    hardly more than without all this. What does not vary may hold credentials, which stay in memory until their shape makes room, or the
    fields that vary change.
    """

    __slots__ = (
        "_cuts",
        "_glances",
        "_held",
        "_missed",
        "_names",
        "_number",
        "_refused",
        "_rest",
        "_room",
        "_shapes",
        "_split",
        "_unknown",
    )

    def __init__(self, varying: Collection[bytes], room: int = ROOM) -> None:
        self._room = room
        self._names: frozenset[bytes] = frozenset()
        self._shapes: dict[Shape, Remembered[S]] = {}
        self._cuts: dict[int, Cut[S]] = {}
        self._number = 0  # of the last cut
        self._held = 0
        self._refused = 0
        self._glances: Memo[int, None] = Memo(_GLANCES)
        self._unknown = 0  # heads in a row
        self._rest = 0  # so many more are not looked up
        self._missed: tuple[bytes, Shape, list[bytes]] | None = None  # the last head that was, in its parts
        self.vary(varying)

    def vary(self, varying: Collection[bytes]) -> None:
        """From now on these fields vary. All shapes are forgotten."""
        families = [name for name in varying if name.startswith(FORWARDED_FAMILIES) and name not in CLIENT_ADDRESSES]
        self._names = frozenset(varying) - STEER - frozenset(families)
        self._split = re.compile(rb"(\r\n%b:[ \t]*)([!-~][ -~]*+(?<! ))(?=\r\n)" % any_of(self._names)).split
        for remembered in self._shapes.values():
            remembered.gone = True
        self._shapes.clear()
        self._cuts.clear()
        self._glances.clear()
        self._missed, self._held, self._refused = None, 0, 0

    def varies(self, name: bytes) -> bool:
        """Whether fields of this lower-case name may vary."""
        return name in self._names

    def find(self, head: bytes, ticket: int) -> tuple[S, Sequence[bytes], int] | None:
        """What is known of a head with its closing empty line, the values of its varying fields, in their order, and a ticket for the next
        head that comes the same way. `ticket` is that of the one before it, 0 if there is none.
        """
        cut = self._cuts.get(ticket)
        if cut is not None and cut.size == len(head):
            parts = cut.take_apart.unpack(head)
            values: tuple[bytes, ...] = parts[1::2]
            # What the pattern finds neither begins nor ends with a space.
            if parts[::2] == cut.of.between and _PLAIN(b"".join(values)) and tuple(map(bytes.strip, values)) == values:
                cut.of.used = True
                return cut.of.known, values, ticket
        return self._search(head)

    def forget_missed(self) -> None:
        """A head came that is not looked up: `glance` is of none."""
        self._missed = None

    def glance(self, head: bytes, lines: int) -> tuple[Shape, list[bytes]] | None:
        """The shape of a head of so many field lines that `find` has just not known, and the values that vary in it, if it is to be
        remembered.
        """
        missed, self._missed = self._missed, None
        if missed is None or missed[0] != head or lines > MOST_LINES:
            return None
        seen = hash(missed[1])
        if seen not in self._glances:
            self._glances.keep(seen, None)
            return None
        return missed[1:] if self._has_room(_cost(head, lines)) else None

    def keep(self, shape: Shape, known: S, head: bytes, lines: int) -> Remembered[S]:
        """Remember what was found out of the heads of a shape."""
        remembered = self._shapes[shape] = Remembered(known, shape, _cost(head, lines))
        self._held += remembered.cost
        self._unknown = self._rest = 0
        return remembered

    def take(self, remembered: Remembered[S], cost: int) -> bool:
        """Whether there is room for so many bytes more that are found out of a shape. They are the shape's then."""
        if remembered.gone or not self._has_room(cost) or remembered.gone:  # looking for room may have done away with it
            return False
        remembered.cost += cost
        self._held += cost
        return True

    def _search(self, head: bytes) -> tuple[S, Sequence[bytes], int] | None:
        self._missed = None
        if self._rest or len(head) > LONGEST:
            self._rest = max(0, self._rest - 1)
            return None
        parts = self._split(head)
        values = parts[2::3]
        del parts[2::3]
        shape = tuple(parts)
        found = self._shapes.get(shape)
        if found is None:
            self._missed = head, shape, values
            self._unknown += 1
            if self._unknown > _PATIENT:
                self._rest = _RESTS
            return None
        self._unknown, found.used = 0, True
        return found.known, values, self._ticket(found, values)

    def _ticket(self, of: Remembered[S], values: Sequence[bytes]) -> int:
        lengths = tuple(map(len, values))
        number = of.cuts.get(lengths)
        if number is None:
            if len(of.cuts) >= _CUTS:
                of.strange += 1
                if of.strange <= _STRANGE:
                    return 0
                self._drop_cuts(of)
            if self._held + of.cut_cost > self._room:
                return 0
            self._number = number = self._number + 1
            of.cuts[lengths] = number
            self._held += of.cut_cost
            sizes = [len(of.between[0])]
            for length, after in zip(lengths, of.between[1:], strict=True):
                sizes += length, len(after)
            self._cuts[number] = Cut(sum(sizes), struct.Struct("".join([f"{size}s" for size in sizes])), of)
        return number

    def _drop_cuts(self, of: Remembered[S]) -> None:
        for number in of.cuts.values():
            del self._cuts[number]
        self._held -= of.cut_cost * len(of.cuts)
        of.cuts.clear()
        of.strange = 0

    def _has_room(self, cost: int) -> bool:
        if self._held + cost <= self._room:
            return True
        self._refused += 1
        if self._refused > _REFUSALS:
            self._clear_out()
        return self._held + cost <= self._room

    def _clear_out(self) -> None:
        """Forget what was not asked for since the last time."""
        self._refused = 0
        for shape, remembered in [*self._shapes.items()]:
            if not remembered.used:
                self._drop_cuts(remembered)
                del self._shapes[shape]
                remembered.gone = True
                self._held -= remembered.cost
            remembered.used = False


def _cost(head: bytes, lines: int) -> int:
    """Bytes that a shape takes: its parts, its fields by name, and what is found out of it. Measured, and more."""
    return 6 * len(head) + 300 * lines + 2500


def length_of(digits: bytes) -> int | None:
    """A `Content-Length`; None for what a parser has to judge."""
    return int(digits) if digits.isdigit() and len(digits) <= _LENGTH_DIGITS else None


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
