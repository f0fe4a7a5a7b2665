"""The records that operators have deleted, as far as this process knows: their entries are no answers if they come back
in Redis.

Theory of operation. A deletion commits at the authority first, with the id of the record's life, and then takes the
entry out of Redis. Redis can lose that again: its server starts from an older copy of its data, or a replica is
promoted that had not received it. The entry is back then, genuine to the byte. So each entry names its record's life,
and the authority keeps a list of deleted lives.

* The process reads what is new in the list once a second. So it believes an entry that came back for about a second at
  most.
* It believes an entry only if it has read the list since the era of the entry's place began (`Topology.era`): the list
  then holds what was acknowledged in an earlier one. So a restart, a promotion or a slot that moves, which the process
  sees as a new connection or a new map, leaves no gap.
* While the authority is away, the list stays as it was, so that replays go on, but the process does not believe what
  is of a new era.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from uuid import UUID

from gateway.ports import Clock, StoreUnavailable

EVERY = 1.0
"""Seconds between two readings."""

Read = Callable[[int], Awaitable[tuple[int, Mapping[UUID, int]]]]
"""Given a number, the last one there is, and the deleted lives above it with their expiry (microseconds, on the
authority's clock).
"""

_log = logging.getLogger(__name__)


class Deletions:
    """The deleted lives whose entries might still be there. `last_era` is the last one that has begun in Redis (from 1
    on), `now_us` is `Store.now_us`.
    """

    def __init__(self, read: Read, last_era: Callable[[], int], now_us: Callable[[], int | None], clock: Clock) -> None:
        self._read = read
        self._last_era = last_era
        self._now_us = now_us
        self._clock = clock
        self._lives: dict[UUID, int] = {}
        self._last = 0
        self._read_in = 0

    def believes(self, record_id: UUID, era: int) -> bool:
        """Whether no operator has deleted this life, whose entry was read from Redis just now, in this era of it."""
        return era <= self._read_in and record_id not in self._lives

    def deleted(self, record_id: UUID) -> bool:
        """Whether this life is known to be deleted."""
        return record_id in self._lives

    async def refresh(self) -> None:
        """Read what is new. Raises `StoreUnavailable`; then all is read anew next time, since another authority may
        answer.
        """
        era = self._last_era()
        try:
            last, lives = await self._read(self._last)
            if last < self._last:
                self._last = 0
                last, lives = await self._read(0)
        except StoreUnavailable:
            self._last = 0
            raise
        if lives:
            now_us = self._now_us() or 0
            self._lives = {life: ends for life, ends in {**self._lives, **lives}.items() if ends > now_us}
        self._last, self._read_in = last, era

    async def run(self) -> None:
        """Read for ever."""
        while True:
            try:
                await self.refresh()
            except StoreUnavailable:
                pass  # counted by the store
            except Exception:
                _log.exception("The deletions could not be read")
            await self._clock.sleep(EVERY)


def none_deleted(_: UUID) -> bool:
    """As `Deletions.deleted`, where nobody reads the list: the seconds for which a process remembers an answer count alone."""
    return False
