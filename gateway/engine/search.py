"""One request's search for what there is of its key: what it has asked, and where it waits."""

from contextlib import AbstractContextManager
from typing import NamedTuple, TypeAlias

from gateway.core.decision import Decision, InProgress
from gateway.core.model import Intent, Lease, Record, Tombstone
from gateway.engine.waiting import Place

ROUNDS = 3
"""How often a request reserves again after another one was faster. Then somebody else is at it: `request-in-progress`."""

Found: TypeAlias = Lease | Record | Tombstone | Decision | None
"""What a request knows of its key. None: nothing, or nothing any more, so it reserves. A `Lease` and a `Decision` end the search."""


class Statement(NamedTuple):
    """One reserve or claim on its way, and when it was sent."""

    intent: Intent
    sent: float


class Search:
    """How far one request is with its key. `place` is where it waits for another attempt; `mine`: of those who wait there, it is this one's
    turn to do what one must do for all. `seen`: something was there. `executes`: the request belongs to an attempt.
    """

    __slots__ = ("_leave", "executes", "mine", "place", "rounds", "seen", "started", "statement")

    def __init__(self, started: float) -> None:
        self.started = started
        self.statement: Statement | None = None
        self.place: Place | None = None
        self.mine = True
        self.rounds = 0
        self.seen = False
        self.executes = False
        self._leave: AbstractContextManager[Place] | None = None

    def begin(self, statement: Statement) -> Intent:
        """Another reserve is sent."""
        self.statement = statement
        self.rounds += 1
        return statement.intent

    def wait(self, at: AbstractContextManager[Place]) -> None:
        """From now on it is this place that says what there is."""
        self._leave, self.place = at, at.__enter__()

    def leave(self) -> None:
        """It waits no more."""
        if self._leave is not None:
            self._leave.__exit__(None, None, None)

    @property
    def over(self) -> bool:
        """Whether others were faster as often as it is put up with."""
        return self.place is None and self.rounds > ROUNDS

    async def next(self, found: Record) -> Found:
        """What there is after `found`, as the next look says. None: reserve, where nobody waits, or the record is gone and it is this
        one's turn.
        """
        if self.place is None:
            return None
        while (seen := await self.place.next()) is not None:
            self.mine = seen.mine
            if seen.found is not None or seen.mine:
                return seen.found
        return InProgress(found)
