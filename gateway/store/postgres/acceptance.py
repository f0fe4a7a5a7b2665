"""`gateway.ports.accepted.Acceptance` over Postgres, and `Store.park`: each is one statement of `accepted.sql`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gateway.core.model import Earlier, Fingerprint, Intent, Lease, RecordKey, Status, StoredResponse, Terms, Tombstone
from gateway.core.shards import ShardOf
from gateway.ports import Transition
from gateway.ports.accepted import Ended, Parked, Promise, Standing, Taken
from gateway.ports.reconciliation import Unsealable
from gateway.runtime.record_sealing import NOTHING_OPENS, RecordSealer
from gateway.store.postgres.batching import AnyBatcher, Batcher, batcher_for
from gateway.store.postgres.calls import Calls
from gateway.store.postgres.clock import DatabaseClock
from gateway.store.postgres.lane import Lane
from gateway.store.postgres.lanes import Lanes
from gateway.store.postgres.queries import QUERIES, ROWS
from gateway.store.postgres.resolving_rows import response_arguments
from gateway.store.postgres.rows import Row, decode_captured

WIDTH = 2
"""Statements of `accept` that may be under way at once."""

_PARKED = {word.value: word for word in Parked}


class Accepting(NamedTuple):
    """One row of the `accept` statement, and its terms."""

    row: tuple[Any, ...]
    promise: Promise
    limited: bool

    @property
    def terms(self) -> tuple[Any, ...]:
        promise, kept = self.promise, self.promise.retention
        limits = (promise.per_route, promise.per_principal) if self.limited else (None, None)
        return (promise.pending_for, kept.seconds, kept.gone_for, kept.keep_for, *limits)


def accept_statement(batch: Sequence[Accepting]) -> tuple[str, list[Any]]:
    terms = [accepting.terms for accepting in batch]
    shared = terms[:1] if all(each == terms[0] for each in terms) else terms
    return ROWS["accept"].bind((), [accepting.row for accepting in batch], shared)


class PostgresAcceptance:
    """Made by `PostgresStore`, whose connections it shares."""

    def __init__(self, calls: Calls, lanes: Lanes, sealer: RecordSealer = NOTHING_OPENS, shard_of: ShardOf | None = None) -> None:
        self._calls = calls
        self._sealer = sealer

        def batcher(width: int) -> AnyBatcher[Accepting, Parked]:
            def make() -> Batcher[Accepting, Parked]:
                return Batcher("accept", lanes, _accept(calls.clock), calls.observer, width=width)

            return batcher_for(make, shard_of, lambda accepting: str(accepting.row[0]))

        self._accepts = batcher(WIDTH)
        # As in `PostgresStore`: what may wait for an upstream's transaction holds up nobody else.
        self._apart = batcher(1)

    async def accept(self, lease: Lease, promise: Promise) -> Transition:
        """As the port says."""
        row = (lease.key.scope_id, lease.key.key, lease.owner, None, None, False, False)
        return Transition((await self._submit(lease, Accepting(row, promise, limited=False))).value)

    async def park(self, lease: Lease, reason: str, delay: float, promise: Promise, *, unstarted: bool = False) -> Parked:
        """As `Store.park`."""
        row = (lease.key.scope_id, lease.key.key, lease.owner, reason, delay, True, unstarted)
        return await self._submit(lease, Accepting(row, promise, limited=unstarted))

    async def _submit(self, lease: Lease, accepting: Accepting) -> Parked:
        accepts = self._apart if lease.intent is not None and lease.intent.terms.co_commits else self._accepts
        parked = await accepts.submit(lease.owner, accepting, 0, self._calls.deadline())
        assert parked is not None, "each row of the statement has an answer"
        return parked

    async def take(self, terms: Terms, limit: int, owners: Sequence[bytes], *, doubtful: float | None = None) -> Sequence[Taken]:
        """As the port says."""
        query, clock = "take" if doubtful is None else "take_doubtful", self._calls.clock

        async def work(lane: Lane) -> Sequence[Taken]:
            sent = clock.boottime()
            arguments = [terms.route_id, limit, terms.lease, list(owners), terms.max_execution, terms.reconcilable]
            arguments += [] if doubtful is None else [doubtful]
            rows = await lane.fetch(QUERIES[query], *arguments, clock.limits())
            for row in rows:
                clock.read(row["now_us"], sent)
            return [_taken(row, sent, terms, doubtful=doubtful is not None) for row in sorted(rows, key=lambda row: row["n"])]

        taken = await self._calls.run("take", work)
        return [_opened(one, self._sealer) for one in taken]

    async def give_back(self, owners: Sequence[bytes]) -> int:
        """As the port says."""
        return len(await self._calls.fetch("take", "give_back", list(owners)))

    async def abandon(self, limit: int, answer: StoredResponse) -> Sequence[Ended]:
        """As the port says."""
        rows = await self._calls.fetch("abandon", "abandon_pending", limit, *response_arguments(answer))
        return [Ended(row["route_id"], row["request_id"]) for row in rows]

    async def cancel(self, standing: Standing, answer: StoredResponse) -> Transition:
        """As the port says."""
        key = standing.key
        (row,) = await self._calls.fetch("cancel", "cancel_pending", key.scope_id, key.key, standing.record_id, *response_arguments(answer))
        return Transition(row["transition"])

    async def standing(self, key: RecordKey) -> Standing | None:
        """As the port says."""
        for row in await self._calls.fetch("find", "standing", key.scope_id, key.key):
            return Standing(
                key,
                row["record_id"],
                row["version"],
                Status(row["status"]),
                row["attempt"],
                row["created_at_us"],
                row["recovery_point"],
                row["lease_live"],
                row["expired"],
                row["dead_lettered"],
                row["due_in"],
                row["reconcile_in"],
            )
        return None

    async def tombstone(self, key: RecordKey) -> Tombstone | None:
        """As the port says."""
        rows = await self._calls.fetch("find", "buried", key.lookup_digest())
        return Tombstone(key, *rows[0]) if rows else None


def _accept(clock: DatabaseClock) -> Any:
    async def statement(lane: Lane, batch: Sequence[Accepting]) -> Mapping[bytes, Parked]:
        sent = clock.boottime()
        sql, arguments = accept_statement(batch)
        rows = await lane.fetch(sql, *arguments)
        clock.read(rows[0][1], sent)
        return {owner: _PARKED[word] for owner, _, word in rows}

    return statement


def _opened(taken: Taken, sealer: RecordSealer) -> Taken:
    """What no key opens stays sealed: nor does its request open, and it waits."""
    key = taken.lease.key
    try:
        return replace(taken, captured=sealer.open_captured(key, taken.captured), target=sealer.open_target(key, taken.target))
    except Unsealable:
        return taken


def _taken(row: Row, sent: float, terms: Terms, *, doubtful: bool) -> Taken:
    earlier = Earlier.DOUBTED if doubtful else Earlier.JUDGED if row["judged"] else Earlier.NOTHING
    key = RecordKey(row["scope_id"], row["idempotency_key"])
    fingerprint = Fingerprint(row["fingerprint_version"], row["fingerprint_policy"], row["request_fingerprint"])
    intent = Intent(key, fingerprint, row["owner"], terms, row["request_id"], row["request_method"], row["request_target"])
    return Taken(
        Lease(key, row["record_id"], row["owner"], row["attempt"], sent, terms.lease, earlier, intent),
        row["route_id"],
        row["request_id"],
        row["request_method"],
        row["request_target"],
        fingerprint,
        decode_captured(row["captured"]),
        row["correlation"],
        row["request_sealed"],
        max(row["waited"], 0.0),
        max(row["pending_left"], 0.0),
    )
