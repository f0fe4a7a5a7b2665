"""Searches all states of a model, breadth first, so that each way is a shortest one."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

S = TypeVar("S", bound=Hashable)
S_contra = TypeVar("S_contra", contravariant=True)


class Promises(Protocol[S_contra]):
    """Names the promises that a state breaks. `ended`: no step leads on from it."""

    def __call__(self, state: S_contra, /, *, ended: bool) -> Iterator[str]: ...


@dataclass(slots=True)
class Explored:
    """What a search found: how many states, and for each broken promise the shortest way there."""

    states: int = 0
    complete: bool = True
    broken: dict[str, list[str]] = field(default_factory=dict)


def search(
    first: S,
    steps_of: Callable[[S], Iterable[tuple[str, S]]],
    broken_by: Promises[S],
    *,
    until_broken: bool = False,
    limit: int = 500_000,
) -> Explored:
    """All states that can be reached from `first`; `until_broken`: up to the first broken promise."""
    came: dict[S, tuple[S, str] | None] = {first: None}
    queue = deque([first])
    found = Explored()
    while queue:
        state = queue.popleft()
        steps = list(steps_of(state))
        for promise in broken_by(state, ended=not steps):
            found.broken.setdefault(promise, _way(came, state))
        for label, then in steps:
            if then not in came:
                came[then] = (state, label)
                queue.append(then)
        if len(came) > limit or (until_broken and found.broken):
            found.complete = False
            break
    found.states = len(came)
    return found


def _way(came: dict[S, tuple[S, str] | None], state: S) -> list[str]:
    labels: list[str] = []
    while (before := came[state]) is not None:
        state, label = before
        labels.append(label)
    return labels[::-1]
