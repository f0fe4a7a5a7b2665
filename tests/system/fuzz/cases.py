"""What one client sends on one connection, and how: the unit of fuzzing, and the strategies that make it."""

import itertools
import json
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.system.fuzz.messages import TEMPLATES
from tests.system.fuzz.mutations import BYTES, KINDS, PIECES
from tests.system.fuzz.reader import Request, Stream

LATE, EARLY, RESET = "late", "early", "reset"
"""How the client ends: after its answers, right behind its last byte, or by a reset there."""


@dataclass(frozen=True, slots=True)
class Case:
    """`cuts` are where the bytes are split into writes of their own."""

    raw: bytes
    cuts: tuple[int, ...] = ()
    end: str = LATE

    def pieces(self, raw: bytes) -> list[bytes]:
        """`raw`, which is as long as the case's own bytes, as it is written."""
        at = [0, *sorted(cut % len(raw) for cut in self.cuts), len(raw)] if raw else []
        return [raw[start:stop] for start, stop in itertools.pairwise(at) if stop > start]

    def dump(self) -> str:
        """One line of text, from which `load` makes the case again."""
        return json.dumps([self.raw.decode("latin-1"), list(self.cuts), self.end])


@dataclass(frozen=True, slots=True)
class Played:
    """What became of one case. `raw` are the bytes that were sent, `stream` what they say, `seen` what the upstream got of them."""

    case: Case
    raw: bytes
    stream: Stream
    received: bytes
    stuck: bool
    seen: tuple[tuple[int, Request], ...]


def load(text: str) -> Case:
    """The case that `Case.dump` wrote."""
    raw, cuts, end = json.loads(text)
    return Case(raw.encode("latin-1"), tuple(cuts), end)


_PLACE = st.integers(0, 9999)
_NOISE = st.lists(
    st.sampled_from([*PIECES["methods"], *PIECES["targets"], *PIECES["versions"], *PIECES["endings"], *PIECES["chunkings"], *BYTES])
    | st.binary(max_size=8),
    min_size=1,
    max_size=12,
).map(b"".join)


@st.composite
def messages(draw: st.DrawFn, serial: int, faults: tuple[int, ...]) -> bytes:
    """One request: a valid one, spoilt in so many ways."""
    message = TEMPLATES[draw(st.integers(0, len(TEMPLATES) - 1))](serial)
    for _ in range(draw(st.sampled_from(faults))):
        draw(st.sampled_from(draw(st.sampled_from(KINDS))))(message, draw(_PLACE))
    return message.render()


def _change_byte(draw: st.DrawFn, raw: bytes) -> bytes:
    """Replace, insert or remove one byte."""
    at = draw(_PLACE) % (len(raw) + 1)
    kept = at + draw(st.integers(0, 1))
    return raw[:at] + draw(st.sampled_from((b"", *BYTES))) + raw[kept:]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A connection: one to four requests or some noise, in one write or several, whole or broken off."""
    last = draw(st.sampled_from((0, 0, 0, 1, 1, 2, 3)))
    pieces = [*(draw(messages(serial, (0, 0, 0, 1))) for serial in range(last)), draw(messages(last, (0, 1, 1, 1, 2, 3)))]
    kind = draw(st.integers(0, 15))
    if kind == 9:
        pieces[-1] = draw(_NOISE)
    raw = b"".join(pieces)
    if kind in {10, 11}:
        raw = _change_byte(draw, raw)
    elif kind == 12:
        raw = raw[: draw(_PLACE) % (len(raw) + 1)]
    cuts = draw(st.lists(_PLACE, max_size=3)) if kind % 4 == 1 else []
    return Case(raw, tuple(cuts), EARLY if kind == 6 else RESET if kind == 15 else LATE)


class Batch:
    """Connections that are there at the same time. Not shown in full: a failure names the ones that matter."""

    def __init__(self, cases: list[Case]) -> None:
        self.cases = cases

    def __repr__(self) -> str:
        return f"{len(self.cases)} connections"


@st.composite
def batches(draw: st.DrawFn, most: int) -> Batch:
    """From one to so many connections."""
    return Batch([draw(cases()) for _ in range(draw(st.integers(1, most)))])
