"""Whether the server that answers may be the authority; its settings may change at any time."""

import logging
from collections.abc import Callable, Mapping, Sequence

from gateway.store.postgres.checks import SETTINGS
from gateway.store.postgres.clock import DatabaseClock
from gateway.store.postgres.lane import Connection, Unfit, begin
from gateway.store.postgres.queries import QUERIES
from gateway.store.postgres.rows import Row

FITNESS_EVERY = 5.0
"""Seconds between two looks at the settings of the server: a person may change them at any time."""

Judge = Callable[[Mapping[str, object]], Sequence[str]]
"""What makes a server unfit, of a row of `checks.SETTINGS`."""

_log = logging.getLogger(__name__)


class Fitness:
    """What a judge says of servers, once there is one. `refused` is what it said last; None if nothing is wrong.
    `timeout` (seconds) bounds a look at a new connection.
    """

    def __init__(self, clock: DatabaseClock, timeout: float) -> None:
        self._clock = clock
        self._timeout = timeout
        self._judge: Judge | None = None
        self._judged = -FITNESS_EVERY
        self.refused: str | None = None

    def hold_to(self, judge: Judge) -> None:
        """From now on ask `judge`."""
        self._judge = judge

    def due(self, now: float) -> bool:
        """Whether it is time for another look, which the caller then takes."""
        if self._judge is None or now < self._judged + FITNESS_EVERY:
            return False
        self._judged = now
        return True

    def problem(self, row: Row) -> str | None:
        """What is wrong, of a row of `SETTINGS`. The log says once when a problem begins."""
        problem = None if self._judge is None else "; ".join(self._judge(dict(row))) or None
        if problem is not None and problem != self.refused:
            _log.error("Postgres is not what it was at the start, which would be refused now: %s", problem)
        self.refused = problem
        return problem

    async def look_at(self, connection: Connection) -> None:
        """Before the first statement of a connection: whether its server is fit, and the clock, if there is no reading of it yet. In a
        transaction, for poolers' sake. Raises `Unfit`.
        """
        if self._clock.known and self._judge is None:
            return
        sent = self._clock.boottime()
        await connection.execute(begin(self._timeout))
        if not self._clock.known:
            self._clock.read(await connection.fetchval(QUERIES["clock"]), sent)
        row = await connection.fetchrow(SETTINGS)
        await connection.execute("COMMIT")
        assert row is not None
        if self.problem(row) is not None:
            raise Unfit
