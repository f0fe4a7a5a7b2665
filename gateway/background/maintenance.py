"""Background work that every process runs: no leader to elect, since rows that others hold are skipped.

* The sweeper turns lapsed leases into `unknown`. Each is logged and counted: a worker died, or lost Postgres for longer than a lease. After
  (re)connecting it waits one lease first, so that owners who outlived an outage can renew.
* The reaper deletes expired records, leaves tombstones and archived records where their routes said so, and purges those in their turn. It
  never touches what is in progress or, on a route that enforces, in doubt. It rests after each batch, so that requests do not wait for it.
* The counter reads the figures for the gauges.
"""

from collections.abc import Awaitable, Callable

from gateway.ports import Clock, Maintenance, Observer, Randomness, StoreUnavailable

SWEEP, REAP = "sweep", "reap"
SWEEP_EVERY = 1.0
REAP_EVERY = 5.0
COUNT_EVERY = 15.0
BATCH = 500
REAP_BATCH = 200
REAP_REST = 9.0
"""How long the reaper rests after a batch, times what the batch took: one process takes a tenth of one session of Postgres, also while
millions of records expire together. Less by one each minute that a reaping lasts, so that no backlog grows for ever. A process that was
frozen during a batch rests `REAP_EVERY` at most.
"""


def rest_after(batch: float, lasted: float) -> float:
    """Seconds of rest after a batch of so many seconds, in a reaping that has lasted so many."""
    return batch * max(0.0, REAP_REST - lasted // 60)


class Background:
    """The periodic work of one process over one authority.

    `connected_since` gives CLOCK_BOOTTIME of the last (re)connection to it, None while it is away.
    """

    def __init__(
        self,
        maintenance: Maintenance,
        clock: Clock,
        randomness: Randomness,
        observer: Observer,
        *,
        connected_since: Callable[[], float | None],
        longest_lease: Callable[[], float],
    ) -> None:
        self._maintenance = maintenance
        self._clock = clock
        self._randomness = randomness
        self._observer = observer
        self._connected_since = connected_since
        self._longest_lease = longest_lease

    async def run_sweeper(self) -> None:
        """Sweep for ever, about every second."""
        await self._every(SWEEP_EVERY, SWEEP, self.sweep)

    async def run_reaper(self) -> None:
        """Reap for ever, about every five seconds."""
        await self._every(REAP_EVERY, REAP, self.reap)

    async def run_counter(self) -> None:
        """Count for ever, about every fifteen seconds."""
        await self._every(COUNT_EVERY, "count", self.count)

    async def sweep(self) -> int | None:
        """One sweep, in batches until nothing lapsed is left. Returns how many leases had lapsed; None while owners may have to renew."""
        await self._maintenance.watch_clock()
        since = self._connected_since()
        if since is None or self._clock.boottime() < since + self._longest_lease():
            return None
        total = 0
        while True:
            swept = await self._maintenance.sweep(BATCH)
            if swept:
                self._observer.swept(swept)
            total += len(swept)
            if len(swept) < BATCH:
                return total
            self._observer.background_ran(SWEEP)  # a long backlog is no standstill

    async def reap(self) -> int:
        """One reaping, then one purge, in batches until nothing is left of either. Returns how many records were reaped."""
        total, began = 0, self._clock.boottime()
        while count := await self._rested(self._maintenance.reap, began):
            self._observer.reaped(count)
            total += count
        while await self._rested(self._maintenance.purge, began):
            pass
        return total

    async def _rested(self, work: Callable[[int], Awaitable[int]], since: float) -> int:
        """What one batch took away, after a rest if it was something. `since`: when the reaping began."""
        began = self._clock.boottime()
        if count := await work(REAP_BATCH):
            now = self._clock.boottime()
            self._observer.background_ran(REAP)  # a long backlog is no standstill
            await self._clock.sleep(min(rest_after(now - began, now - since), REAP_EVERY))
        return count

    async def count(self) -> int:
        self._observer.counted(await self._maintenance.counts())
        return 0

    async def _every(self, seconds: float, name: str, work: Callable[[], Awaitable[int | None]]) -> None:
        """With jitter, so that processes do not run in step. A store that is away is counted by itself; anything else is reported."""
        while True:
            await self._clock.sleep(seconds * (0.5 + self._randomness.jitter()))
            try:
                if await work() is not None:
                    self._observer.background_ran(name)
            except StoreUnavailable:
                continue
            except Exception as error:  # background work must outlive whatever one round meets
                self._observer.background_failed(name, error)
