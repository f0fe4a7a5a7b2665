"""Path patterns compiled together, so that one walk along a path tells which of them it belongs to.

The state of a walk is the number of segments passed and the set of patterns still possible, as bits in file order. A
walk's cost is linear in the number of segments, and grows with the number of patterns only by the width of an integer.
One walk goes through all readings of a path: readings that can still reach the same patterns are one state, so that the
many readings of a doubtful path cost no more than its length.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from gateway.core.path_interpretations import Option
from gateway.core.path_pattern import Pattern

MAX_STATES = 128
"""A path whose readings differ in more ways than this is too ambiguous."""


Bits: TypeAlias = int
"""A set of patterns: bit n is the n-th."""


class State(NamedTuple):
    """Where a walk is. `depth` stops counting where no pattern has segments left."""

    depth: int
    alive: Bits


class _Step(NamedTuple):
    """What one more segment leaves of the patterns: those that spell it, that have a parameter there, that take any
    rest.
    """

    literals: dict[str, Bits]
    parameters: Bits
    rests: Bits


class RouteIndex:
    """Immutable. Patterns are numbered as they are given."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._end = 1 + max((len(pattern.segments) for pattern in patterns), default=0)
        self._steps = tuple(_step(patterns, depth) for depth in range(self._end))
        self._over = tuple(_over(patterns, depth) for depth in range(self._end + 1))
        self.start = State(0, (1 << len(patterns)) - 1)

    def find(self, segments: Iterable[str]) -> Bits:
        """The patterns to which a path of these segments belongs."""
        return self.over(self.walk(self.start, segments))

    def walk(self, state: State, segments: Iterable[str]) -> State:
        """The state some segments later."""
        depth, alive = state
        for segment in segments:
            if not alive or depth == self._end:
                break
            literals, parameters, rests = self._steps[depth]
            alive &= literals.get(segment, 0) | (parameters if segment else 0) | rests
            depth += 1
        return State(depth, alive) if alive else _LOST

    def over(self, state: State) -> Bits:
        """The patterns to which the path belongs if it ends here."""
        return state.alive & self._over[state.depth]

    def find_all(self, parts: Iterable[tuple[Option, ...]], *, host_first: bool, assume: bool) -> set[Bits] | None:
        """To which patterns the path belongs, for each of its readings; None beyond `MAX_STATES`.

        `parts` are those of `gateway.core.path_interpretations`. `host_first`: the first segment may be none of the
        path. Without `assume` the options of that name do not count.
        """
        going, over = {(self.start, False)} | ({(self.start, True)} if host_first else set()), set[State]()
        for options in parts:
            following: set[tuple[State, bool]] = set()
            for option in options:
                if assume or not option.assumed:
                    found = self._advance(going, option)
                    if option.ends:
                        over |= {state for state, _ in found}
                    else:
                        following |= found
            if len(following) > MAX_STATES or len(over) > MAX_STATES:
                return None
            going = following
        return {bits for state in over | {state for state, _ in going} for bits in self._closed(state)}

    def _advance(self, going: set[tuple[State, bool]], option: Option) -> set[tuple[State, bool]]:
        if option.anew:
            return {(self.walk(self.start, option.segments), False)}
        found: set[tuple[State, bool]] = set()
        for state, drops in going:
            if drops and option.segments:
                found.add((self.walk(state, option.segments[1:]), False))
            else:
                found.add((self.walk(state, option.segments), drops))
        return found

    def _closed(self, state: State) -> Iterator[Bits]:
        """A path that ends here, without and with the closing slash that only some upstreams see. The root is nothing
        but a slash.
        """
        if state.depth:
            yield self.over(state)
        yield self.over(self.walk(state, ("",)))


_LOST = State(0, 0)
"""No pattern is possible any more: one state, however it came to that."""


def _step(patterns: Sequence[Pattern], depth: int) -> _Step:
    literals: dict[str, Bits] = {}
    parameters = rests = 0
    for number, pattern in enumerate(patterns):
        bit = 1 << number
        if depth >= len(pattern.segments):
            rests |= bit if pattern.rest else 0
        elif (literal := pattern.segments[depth]) is None:
            parameters |= bit
        else:
            literals[literal] = literals.get(literal, 0) | bit
    return _Step(literals, parameters, rests)


def _over(patterns: Sequence[Pattern], depth: int) -> Bits:
    fits = (len(pattern.segments) == depth or (pattern.rest and len(pattern.segments) < depth) for pattern in patterns)
    return sum(1 << number for number, fit in enumerate(fits) if fit)
