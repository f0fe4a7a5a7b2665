"""The authority: `gateway.ports.Store` and `gateway.ports.Maintenance` over Postgres.

Each transition is one statement of `reserve.sql` or `settle.sql`. Reserves and settles travel in batches (`batching`), everything else
alone, all over the same few connections (`lanes`). There is no session state: no SET, LISTEN, temporary table or session lock.

Memory: of stored headers and bodies, as packed, at most this much is on its way from Postgres at any time, however many callers wait:

* reserves: `WIDTH` statements of `ROWS_MAX` answers of `INLINE_BYTES`, 16 MiB;
* looks at single records: one of `INLINE_BYTES` for each connection of the pool, half a MiB for 8;
* larger answers, whoever asks for them: `finding.LARGE_READS`, each as large as the largest that was stored (`limits.response_body`).

The driver puts an answer together from its pieces, so each counts about twice while it arrives. What has arrived belongs to the caller.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import assert_never
from uuid import UUID

from gateway.core.model import Earlier, Intent, Lease, Record, RecordKey, StoredResponse, Tombstone
from gateway.core.shards import ShardOf
from gateway.ports import (
    OBSERVED_DOUBT_KEPT,
    TOMBSTONE_AFTER,
    Answered,
    Counts,
    Doubted,
    Retention,
    RouteDoubt,
    RoutePending,
    Settled,
    StoreObserver,
    StoreUnavailable,
    Swept,
)
from gateway.ports.accepted import Parked, Promise
from gateway.runtime.record_sealing import NOTHING_OPENS, RecordSealer
from gateway.store.hosts import Hosts
from gateway.store.migrate import MigrationError, pending
from gateway.store.null_observer import NullObserver
from gateway.store.postgres.acceptance import PostgresAcceptance
from gateway.store.postgres.approvals import PostgresApprovals
from gateway.store.postgres.batching import AnyBatcher, Batcher, batcher_for
from gateway.store.postgres.calls import Calls
from gateway.store.postgres.checks import SETTINGS
from gateway.store.postgres.clock import DatabaseClock
from gateway.store.postgres.connecting import Connecting
from gateway.store.postgres.finding import Finder
from gateway.store.postgres.fitness import Fitness, Judge
from gateway.store.postgres.lane import STORE, Connection, Lane, unavailable
from gateway.store.postgres.lanes import Lanes
from gateway.store.postgres.operations import PostgresOperations
from gateway.store.postgres.participation import PostgresParticipation
from gateway.store.postgres.queries import QUERIES
from gateway.store.postgres.reconciliation import PostgresReconciliation
from gateway.store.postgres.reencryption import PostgresReencryption
from gateway.store.postgres.registry import Registry
from gateway.store.postgres.restore import put_back
from gateway.store.postgres.rows import Row, claim_arguments, columns, intent_size
from gateway.store.postgres.statements import (
    BodyLeftOut,
    Completion,
    Doubt,
    Ending,
    InTheWay,
    Release,
    Reserved,
    Statements,
    completion,
    smaller,
)

ROUNDS = 3
"""How often a reserve is sent, at most, when races leave it without an answer."""

WIDTH = 2
"""Statements of one kind that may be under way at once."""

REAPED_BYTES = 16 * 1024 * 1024
"""Stored answers, in bytes, that one statement of the reaper deletes or archives, so that it ends long before its deadline."""

COUNT_EXACTLY = 10_000
"""Completed records are counted up to this many, and estimated above."""

_log = logging.getLogger(__name__)


_boottime = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


def _wallclock() -> float:
    return time.time()  # noqa: TID251 - to compare with the database's, which is a wall clock, too


@dataclass(frozen=True, slots=True)
class Batches:
    """Where calls travel together."""

    reserves: AnyBatcher[Intent, Reserved]
    completes: AnyBatcher[Ending[Completion], Settled]
    releases: AnyBatcher[Ending[Release], Settled]
    doubts: AnyBatcher[Doubt, Settled]

    @classmethod
    def of(cls, lanes: Lanes, statements: Statements, observer: StoreObserver, width: int, shard_of: ShardOf | None) -> "Batches":
        def reserves() -> Batcher[Intent, Reserved]:
            return Batcher("reserve", lanes, statements.reserve, observer, width=width)

        def completes() -> Batcher[Ending[Completion], Settled]:
            return Batcher("complete", lanes, statements.complete, observer, width=width, smaller=smaller)

        def releases() -> Batcher[Ending[Release], Settled]:
            return Batcher("release", lanes, statements.release, observer, width=width)

        def doubts() -> Batcher[Doubt, Settled]:
            return Batcher("doubt", lanes, statements.doubt, observer, width=width)

        return cls(
            batcher_for(reserves, shard_of, lambda intent: intent.key.scope_id),
            batcher_for(completes, shard_of, lambda ending: ending.row.scope_id),
            batcher_for(releases, shard_of, lambda ending: ending.row.scope_id),
            batcher_for(doubts, shard_of, lambda doubt: doubt.scope_id),
        )


class PostgresStore:
    """Records in the database at `dsn`, over at most `pool_size` connections, opened when needed. Belongs to one event loop.

    `timeout` (seconds) bounds every call: waiting for a connection, and the statement, also when the peer stalls. With
    `prepared_statements=False` it works behind a pooler in transaction mode.

    `sealer`: for what `reconciliation`, `acceptance` and `operations` write and read of sealed records; for the store's own methods
    `gateway.store.sealed` does it.

    `shard_of`: in which part of a divided database a scope is; then no batch mixes parts.

    What its clock says is believed as far as `gateway.core.timeline` goes; `clock_horizon` and `accept_clock` are `DatabaseClock`'s.
    """

    def __init__(
        self,
        dsn: str,
        *,
        pool_size: int = 8,
        timeout: float = 2.0,
        prepared_statements: bool = True,
        application_name: str = "idempotency-gateway",
        boottime: Callable[[], float] = _boottime,
        wallclock: Callable[[], float] = _wallclock,
        clock_horizon: Callable[[], float] = lambda: 0.0,
        accept_clock: bool = False,
        observer: StoreObserver | None = None,
        sealer: RecordSealer = NOTHING_OPENS,
        shard_of: ShardOf | None = None,
    ) -> None:
        hosts = self._hosts = Hosts(dsn, self._moved)

        self._observer = observer or NullObserver()
        self._clock = DatabaseClock(boottime, wallclock, self._observer, horizon=clock_horizon, accept=accept_clock)
        self.now_us = self._clock.now_us  # itself, as in the stores around this one: each replay asks
        self._fitness = Fitness(self._clock, timeout)
        connecting = Connecting(
            hosts, self._fitness, timeout=timeout, prepared_statements=prepared_statements, application_name=application_name
        )
        self._lanes = Lanes(
            connecting.connect,
            size=pool_size,
            timeout=timeout,
            explicit=not prepared_statements,
            boottime=boottime,
            stuck=connecting.stuck,
            former=hosts.former,
            failed=lambda reason: self._observer.store_error(STORE, "connect", reason),
            where=lambda: hosts.tried,
        )
        self._calls = Calls(self._lanes, timeout, self._observer, self._clock)
        self._finder = Finder(self._calls, self._lanes)
        self.registry = Registry(self._lanes, timeout, self._clock)
        self.reconciliation = PostgresReconciliation(self._calls, sealer)
        self.participation = PostgresParticipation(self._calls)
        self.acceptance = PostgresAcceptance(self._calls, self._lanes, sealer, shard_of)
        self.operations = PostgresOperations(self._lanes, self._observer, self._clock, sealer)
        self.approvals = PostgresApprovals(self.operations.in_turn, sealer)
        self.reencryption = PostgresReencryption(self._calls, sealer)
        statements = Statements(self._clock)
        self._batches = Batches.of(self._lanes, statements, self._observer, WIDTH, shard_of)
        # Upstreams that commit answers may hold their records locked: who waits for that holds up nobody else, and one
        # connection for each kind of statement.
        self._apart = Batches.of(self._lanes, statements, self._observer, 1, shard_of)

    def hold_to(self, judge: Judge) -> None:
        """From now on use no server that `judge` finds unfit: each connection is looked at when it is opened, and all of them again when
        what `watch_clock` sees of the settings is another.
        """
        self._fitness.hold_to(judge)

    @property
    def connected_since(self) -> float | None:
        """The `boottime` reading at the first answer after the last outage; None during one, and before the first connection."""
        return self._lanes.connected_since

    async def reserve(self, intent: Intent) -> Lease | Record | Tombstone:
        deadline = self._calls.deadline()
        batches = self._apart if intent.terms.co_commits else self._batches
        found = await batches.reserves.submit(intent.owner, intent, intent_size(intent), deadline)
        if isinstance(found, Lease | Record | Tombstone):
            return found
        try:
            return await self._look_again(intent, found, deadline)
        except StoreUnavailable as error:
            # Whatever could not be sent now: this intent was sent, and somebody else's record was in its way.
            raise unavailable(error.reason, may_have_landed=error.may_have_landed, asked=True) from error

    async def _look_again(self, intent: Intent, found: BodyLeftOut | InTheWay | None, deadline: float) -> Lease | Record | Tombstone:
        """Read the record whose body was left out, take over the observed one, or repeat the statement that a race left without an
        answer (it inserted nothing).
        """
        batches = self._apart if intent.terms.co_commits else self._batches
        for _ in range(ROUNDS - 1):
            match found:
                case InTheWay(record):
                    settled: Lease | Record | None = await self._claim("new_life", record, intent, deadline)
                case BodyLeftOut():
                    settled = await self._finder.find_large(intent.key, deadline)
                case None:
                    settled = None
                case _:
                    assert_never(found)
            if settled is not None:
                return settled
            answer = await batches.reserves.submit(intent.owner, intent, intent_size(intent), deadline)
            if isinstance(answer, Lease | Record | Tombstone):
                return answer
            found = answer
        raise unavailable("error", may_have_landed=False, asked=True)

    async def claim(self, found: Record, intent: Intent) -> Lease | None:
        query = "new_life" if found.expired else "retry"
        return await self._claim(query, found, intent, self._calls.deadline())

    async def _claim(self, query: str, found: Record, intent: Intent, deadline: float) -> Lease | None:
        fresh = query == "new_life"
        arguments = claim_arguments(found, intent) if fresh else (*claim_arguments(found, intent), intent.terms.reexecute)
        earlier = Earlier.NOTHING if fresh else found.earlier  # the fence sees to it that what was found holds

        async def work(lane: Lane) -> Lease | None:
            sent = self._clock.boottime()
            for row in await lane.fetch(QUERIES[query], *arguments, self._clock.limits()):
                self._clock.read(row["now_us"], sent)
                return Lease(found.key, row["record_id"], intent.owner, row["attempt"], sent, intent.terms.lease, earlier, intent)
            return None

        return await self._calls.run("claim", work, deadline)

    async def lapse(self, found: Record) -> bool:
        key = found.key
        rows = await self._fetch("lapse", key.scope_id, key.key, found.record_id, found.version, OBSERVED_DOUBT_KEPT)
        return bool(rows)

    async def find(self, key: RecordKey) -> Record | None:
        return await self._finder.find(key, self._calls.deadline())

    async def complete(self, lease: Lease, response: StoredResponse, retention: Retention) -> Settled:
        row = completion(lease, response)
        size = len(row.headers) + (0 if row.body is None else len(row.body))
        batches = self._apart if lease.intent is not None and lease.intent.terms.co_commits else self._batches
        return _settled(await batches.completes.submit(lease.owner, Ending(row, retention), size, self._calls.deadline()))

    async def release(self, lease: Lease, reason: str, retention: Retention) -> Settled:
        key = lease.key
        row = Release(key.scope_id, key.key, lease.owner, reason)
        batches = self._apart if lease.intent is not None and lease.intent.terms.co_commits else self._batches
        return _settled(await batches.releases.submit(lease.owner, Ending(row, retention), 0, self._calls.deadline()))

    async def doubt(self, lease: Lease, reason: str) -> Settled:
        item = Doubt(lease.key.scope_id, lease.key.key, lease.owner, reason)
        batches = self._apart if lease.intent is not None and lease.intent.terms.co_commits else self._batches
        return _settled(await batches.doubts.submit(lease.owner, item, 0, self._calls.deadline()))

    async def park(self, lease: Lease, reason: str, delay: float, promise: Promise, *, unstarted: bool = False) -> Parked:
        return await self.acceptance.park(lease, reason, delay, promise, unstarted=unstarted)

    async def restore(self, lease: Lease, intent: Intent, end: Answered | Doubted) -> Settled:
        settled = await put_back(self._calls, lease, intent, end)
        if settled is not None:
            return settled
        # What is there may be this very record: an earlier sending whose reply was lost.
        if isinstance(end, Answered):
            return await self.complete(lease, end.response, end.retention)
        return await self.doubt(lease, end.reason)

    async def renew(self, leases: Sequence[Lease]) -> frozenset[bytes]:
        if not leases:
            return frozenset()
        rows = await self._fetch("renew", *columns((lease.key.scope_id, lease.key.key, lease.owner, lease.duration) for lease in leases))
        return frozenset(row["owner"] for row in rows)

    async def sweep(self, limit: int) -> Sequence[Swept]:
        rows = await self._fetch("sweep", limit, OBSERVED_DOUBT_KEPT)
        return [
            Swept(RecordKey(row["scope_id"], row["idempotency_key"]), row["route_id"], row["request_id"], row["attempt"]) for row in rows
        ]

    async def reap(self, limit: int) -> int:
        (row,) = await self._fetch("reap", limit, REAPED_BYTES, TOMBSTONE_AFTER)
        return int(row["reaped"])

    async def purge(self, limit: int) -> int:
        (row,) = await self._fetch("purge", limit, REAPED_BYTES)
        await self._fetch("purge_deletions")
        return int(row["purged"])

    async def deletions(self, after: int) -> tuple[int, Mapping[UUID, int]]:
        """The number of the last deletion by an operator, and the lives that were deleted after number `after`, with their expiry
        (microseconds since the epoch). Deletions that are under way have numbers above the last.
        """
        rows = await self._fetch("deletions", after)
        return rows[0]["last"], {row["record_id"]: row["expires_at_us"] for row in rows if row["record_id"] is not None}

    async def watch_clock(self) -> None:
        """As the port says."""
        sent = self._clock.boottime()
        (row,) = await self._fetch("clock")
        self._clock.read(row["now_us"], sent)
        if self._fitness.due(sent):
            await self.unfit()

    async def counts(self) -> Counts:
        (row,) = await self._fetch("counts", COUNT_EXACTLY)
        by_route = tuple(RouteDoubt(*doubt) for doubt in row["by_route"])
        return Counts(**{**row, "by_route": by_route, "pending_by_route": tuple(RoutePending(*each) for each in row["pending_by_route"])})

    async def ready(self) -> str | None:
        """None if this store can serve; else why not: unreachable, in recovery, or a schema that is behind or ahead."""

        async def check(connection: Connection) -> str | None:
            if await connection.fetchval("SELECT pg_is_in_recovery()"):
                return "Postgres is in recovery: this is a standby"
            try:
                missing = await pending(connection)
            except MigrationError as error:
                return str(error)
            return f"the schema is behind: {missing[0]} is not applied, run `migrate`" if missing else None

        try:
            return await self._calls.run("ready", lambda lane: lane.together(check))
        except StoreUnavailable as error:
            return self._fitness.refused or f"Postgres is unreachable: {error.reason}"

    async def unfit(self) -> str | None:
        """What is wrong with the server that answers now, by the judge of `hold_to`; None if nothing. It is used no more then. Raises
        `StoreUnavailable`.
        """

        async def ask(connection: Connection) -> Row | None:
            return await connection.fetchrow(SETTINGS)

        row = await self._calls.run("ready", lambda lane: lane.together(ask))
        assert row is not None
        if (problem := self._fitness.problem(row)) is not None:
            self._lanes.retire(disown=False)
        return problem

    async def close(self) -> None:
        """Refuse new calls, let running statements end, close all connections. Takes at most about `timeout`."""
        await self._lanes.close()

    def _moved(self) -> None:
        _log.warning("Postgres failed over: a server answers that was promoted since; connections to the former one are given up")
        self._lanes.retire(disown=True)

    async def _fetch(self, query: str, *arguments: object) -> list[Row]:
        return await self._calls.fetch(query, query, *arguments)


def _settled(settled: Settled | None) -> Settled:
    assert settled is not None  # the statement has a row for every settle
    return settled
