"""`gateway.ports.reconciliation.Reconciliation` over Postgres: each method is one statement of `reconcile.sql`."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from gateway.core.model import RecordKey, StoredResponse
from gateway.ports import Retention, Transition
from gateway.ports.reconciliation import Audit, Doubtful, Entry, Event, Evidence, Fence, Subject, Unsealable
from gateway.runtime.record_sealing import NOTHING_OPENS, RecordSealer
from gateway.store.postgres.calls import Calls
from gateway.store.postgres.lane import STORE, DataRefused, Lane, unavailable
from gateway.store.postgres.queries import QUERIES
from gateway.store.postgres.resolving_rows import (
    audit_arguments,
    decode_doubtful,
    decode_subject,
    encode_detail,
    encode_evidence,
    entry_arguments,
    event_arguments,
    fence_arguments,
    response_arguments,
    retention_arguments,
)
from gateway.store.postgres.rows import Row, Unreadable, storable

VERDICT = "verdict"
"""The operation that each step of a record is counted under."""


class PostgresReconciliation:
    """Made by `PostgresStore`, whose connections it shares; a statement at a time for each call, and none while anybody looks."""

    def __init__(self, calls: Calls, sealer: RecordSealer = NOTHING_OPENS) -> None:
        self._calls = calls
        self._sealer = sealer

    async def due_routes(self, route_ids: Sequence[str]) -> frozenset[str]:
        """Those of the routes that have a record for `take_due` now: one statement, however many they are."""
        return frozenset(row["route_id"] for row in await self._calls.fetch("due_routes", "due_routes", list(route_ids)))

    async def take_due(self, route_id: str, limit: int, hold: float, owners: Sequence[bytes] = ()) -> Sequence[Doubtful]:
        rows = await self._calls.fetch("take_due", "take_due", route_id, limit, hold, list(owners))
        taken: list[Doubtful] = []
        for row in sorted(rows, key=lambda row: row["n"]):
            try:
                taken.append(decode_doubtful(row, self._calls.clock.behind(), self._sealer))
            except (Unreadable, Unsealable):  # a later release's evidence, or another key's: left to whoever reads it, and held meanwhile
                self._calls.observer.store_error(STORE, "take_due", "error")
        return taken

    async def conclude_executed(
        self,
        fence: Fence,
        response: StoredResponse,
        retention: Retention,
        entry: Entry,
        event: Event | None = None,
        audit: Audit | None = None,
    ) -> Transition:
        """As the port says. A body that Postgres refuses is left out, rather than the verdict lost."""
        response = self._sealed(fence, response)
        written = (*retention_arguments(retention), *entry_arguments(entry), *event_arguments(event), *audit_arguments(audit))

        async def work(lane: Lane) -> list[Row]:
            sql, limits = QUERIES["conclude_executed"], self._calls.clock.limits()
            try:
                return await lane.fetch(sql, *fence_arguments(fence), *response_arguments(response), *written, limits)
            except DataRefused:
                if not response.body:
                    raise
            return await lane.fetch(sql, *fence_arguments(fence), *response_arguments(response.without_body()), *written, limits)

        (row,) = await self._calls.run(VERDICT, work)
        return Transition(row["transition"])

    async def conclude_not_executed(
        self,
        fence: Fence,
        reason: str,
        retention: Retention,
        entry: Entry,
        event: Event | None = None,
        audit: Audit | None = None,
        *,
        looked: bool = False,
    ) -> Transition:
        """As the port says. STALE, too, where there is evidence of execution."""
        written = (*entry_arguments(entry), *event_arguments(event), *audit_arguments(audit))
        return await self._step(VERDICT, "conclude_not_executed", fence, reason, *retention_arguments(retention), looked, *written)

    async def look_again(
        self, fence: Fence, seconds: float, *, agreed: bool | None, entry: Entry, event: Event | None = None, ended: bool | None = None
    ) -> Transition:
        return await self._step(VERDICT, "look_again", fence, seconds, agreed, *entry_arguments(entry), *event_arguments(event), ended)

    async def dead_letter(self, fence: Fence, entry: Entry) -> Transition:
        return await self._step(VERDICT, "dead_letter", fence, *entry_arguments(entry))

    async def abandon(self, route_ids: Sequence[str], overdue: float, limit: int, entry: Entry) -> Sequence[str]:
        written = (entry.source, entry.what, encode_detail(entry.detail))
        rows = await self._calls.fetch("abandon", "abandon", list(route_ids), overdue, limit, *written)
        return [row["route_id"] for row in rows]

    async def find_captured(self, scope: str, value: str, limit: int = 2) -> Sequence[Subject]:
        if storable(value) is None:
            return ()  # nor could any record have it
        found: list[Row] = []
        for held in self._sealer.correlations(scope, value):
            found += await self._calls.fetch("find_captured", "find_captured", scope, held, limit)
        try:
            return [decode_subject(row, self._sealer) for row in found[:limit]]
        except Unsealable as error:
            raise unavailable("error", may_have_landed=False) from error

    async def attach(self, fence: Fence, evidence: Evidence, event: Event | None) -> Transition:
        written = (*entry_arguments(evidence.entry), *event_arguments(event))
        kept = Evidence(self._sealed(fence, evidence.response), evidence.entry)
        return await self._step(VERDICT, "attach", fence, encode_evidence(kept), *written)

    async def seen(self, event: Event) -> bool:
        return bool(await self._calls.fetch("event", "seen", event.webhook, event.digest))

    async def remember(self, event: Event) -> None:
        await self._calls.fetch("event", "remember", *event_arguments(event))

    async def note(self, key: RecordKey, record_id: UUID, entry: Entry) -> None:
        await self._calls.fetch("note", "note", key.scope_id, key.key, record_id, *entry_arguments(entry))

    def _sealed(self, fence: Fence, response: StoredResponse) -> StoredResponse:
        return self._sealer.seal_answer(fence.key, fence.record_id, response)

    async def _step(self, operation: str, query: str, fence: Fence, *arguments: Any) -> Transition:
        (row,) = await self._calls.fetch(operation, query, *fence_arguments(fence), *arguments)
        return Transition(row["transition"])
