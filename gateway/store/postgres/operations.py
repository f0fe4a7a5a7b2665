"""What operators see and change: `gateway.ports.reconciliation.Operations` over Postgres.

They may wait longer than traffic, and are kept out of its way: one call at a time, hence one connection, whatever they ask for.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

from gateway.core.model import RecordKey, Status, StoredResponse
from gateway.ports import Retention, StoreObserver, Transition
from gateway.ports.reconciliation import Audit, AuditLine, Entry, Fence, Listed, Page, Remembered, Selection, Shown, Unsealable
from gateway.runtime.outlasting import outlasting
from gateway.runtime.record_sealing import NOTHING_OPENS, RecordSealer
from gateway.store.postgres.calls import Calls
from gateway.store.postgres.clock import DatabaseClock
from gateway.store.postgres.cursors import FIRST_INSTANT, Position, read_cursor, to_instant, write_cursor
from gateway.store.postgres.lane import STORE, DataRefused, Lane, unavailable
from gateway.store.postgres.lanes import Lanes
from gateway.store.postgres.queries import JUDGING, QUERIES
from gateway.store.postgres.rows import RESPONSE_COLUMNS, SEALED_SCHEMA_VERSION, Row, decode_captured, decode_headers, decode_response

T = TypeVar("T")

TIMEOUT = 10.0
"""Seconds that an operator's call may take, the wait for those before it included."""

SCANNED = 2000
"""How many candidates one page looks at; `operations.sql` has the same number."""

OPERATION = "operate"
_DEAD_LETTER = "dead_letter"
_BY_INSTANT = {
    Status.PENDING.value: "list_pending",
    Status.IN_PROGRESS.value: "list_in_progress",
    Status.UNKNOWN.value: "list_unknown",
    Status.FAILED_RETRYABLE.value: "list_failed_retryable",
    _DEAD_LETTER: "list_dead_letters",
}
_BEYOND = "\U0010ffff"
"""After every scope id, which begins with a scope's name."""

_TRANSITIONS = {transition.value: transition for transition in Transition}


class PostgresOperations:
    """Shares the store's `lanes`. Raises `StoreUnavailable` and, for a cursor that is none, ValueError."""

    def __init__(self, lanes: Lanes, observer: StoreObserver, clock: DatabaseClock, sealer: RecordSealer = NOTHING_OPENS) -> None:
        self._lanes = lanes
        self._sealer = sealer
        self._clock = clock
        self._calls = Calls(lanes, TIMEOUT, observer, clock)
        self._one = asyncio.Lock()

    async def select(self, selection: Selection, cursor: str | None, limit: int) -> Page:
        """As `Operations.select`. A page may have fewer than `limit` records before the end: it looks at `SCANNED` candidates at most."""
        query, arguments = _listing(selection, None if cursor is None else read_cursor(selection, cursor), limit)
        rows = await self.in_turn(lambda lane: lane.fetch(QUERIES[query], *arguments))
        records = [_known(_listed(row), self._sealer) for row in rows if row["record_id"] is not None]
        return Page(records, _following(selection, rows, records, limit))

    async def show(self, key: RecordKey, *, body: bool = False, audit: Audit | None = None) -> Shown | None:
        """As `Operations.show`."""
        said = (None, None, None, None) if audit is None else (audit.actor, audit.action, audit.reason, _json(audit.detail))

        async def work(lane: Lane) -> Shown | None:
            rows = await lane.fetch(QUERIES["show"], key.scope_id, key.key, body, *said, self._clock.limits())
            return _shown(rows[0], body=body) if rows else None

        shown = await self.in_turn(work)
        return None if shown is None else _opened(shown, self._sealer, body=body)

    async def requeue(self, fence: Fence, audit: Audit) -> Transition:
        """As `Operations.requeue`."""
        return await self._change("operator_requeue", fence, audit)

    async def look_now(self, fence: Fence, audit: Audit) -> Transition:
        """As `Operations.look_now`."""
        return await self._change("operator_look_now", fence, audit)

    async def release(self, fence: Fence, retention: Retention, audit: Audit) -> Transition:
        """As `Operations.release`. STALE also against evidence that it was executed, and for observed records."""
        return await self._change("operator_release", fence, audit, retention.seconds, retention.gone_for, retention.keep_for)

    async def delete(self, fence: Fence, audit: Audit) -> Transition:
        """As `Operations.delete`. A tombstone of the same key goes, too."""
        return await self._change("operator_delete", fence, audit, fence.key.lookup_digest())

    async def audited(self, after: int, limit: int) -> Sequence[AuditLine]:
        """As `Operations.audited`. Lines of transactions that are under way may still appear below the last id that was seen."""
        rows = await self.in_turn(lambda lane: lane.fetch(QUERIES["audited"], after, limit))
        return [_audit_line(row) for row in rows]

    async def audited_last(self, after: int, before: int, limit: int) -> Sequence[AuditLine]:
        """As `Operations.audited_last`."""
        rows = await self.in_turn(lambda lane: lane.fetch(QUERIES["audited_last"], after, before, limit))
        return [_audit_line(row) for row in rows]

    async def write_audit(self, key: RecordKey, record_id: UUID, audit: Audit) -> None:
        """As `Operations.write_audit`."""
        arguments = (key.scope_id, key.key, record_id, audit.actor, audit.action, audit.reason, _json(audit.detail))
        await self.in_turn(lambda lane: lane.fetch(QUERIES["write_audit"], *arguments))

    async def _change(self, query: str, fence: Fence, audit: Audit, *more: Any) -> Transition:
        arguments = (fence.key.scope_id, fence.key.key, fence.record_id, fence.version, audit.actor, audit.action, audit.reason)
        limits = [self._clock.limits()] if query in JUDGING else []
        rows = await self.in_turn(lambda lane: lane.fetch(QUERIES[query], *arguments, _json(audit.detail), *more, *limits))
        return _TRANSITIONS[rows[0]["transition"]]

    async def in_turn(self, work: Callable[[Lane], Awaitable[T]]) -> T:
        """Wait for the turn and run, in a task of its own: the statement of a caller that is cancelled keeps its turn to its end."""
        return await outlasting(self._lanes.spawn(self._in_turn(work)), DataRefused)

    async def _in_turn(self, work: Callable[[Lane], Awaitable[T]]) -> T:
        deadline = self._calls.deadline()
        try:
            async with asyncio.timeout_at(deadline):
                await self._one.acquire()
        except TimeoutError:
            self._calls.observer.store_error(STORE, OPERATION, "overloaded")
            raise unavailable("overloaded", may_have_landed=False) from None
        try:
            return await self._calls.run(OPERATION, work, deadline)
        finally:
            self._one.release()


def _listing(selection: Selection, after: Position | None, limit: int) -> tuple[str, tuple[Any, ...]]:
    """The statement and its arguments."""
    low, high = _scope_ids(selection)
    first, narrowed = (limit, selection.route, low, high), _narrowed(selection)
    query = _BY_INSTANT.get(selection.state or "")
    if selection.key is not None:
        scope_id = "" if after is None else after.scope_id
        return "list_by_key", (*first, scope_id, selection.key, selection.state, narrowed)
    if query is None:
        scope_id, key, _ = after or Position(low, "")
        return "list_all", (*first, scope_id, key, selection.state, narrowed)
    scope_id, key, at = after or Position("", "")
    return query, (*first, scope_id, key, at or FIRST_INSTANT, narrowed)


def _scope_ids(selection: Selection) -> tuple[str, str]:
    """From which scope id, and up to below which."""
    if selection.scope_id is not None:
        if selection.scope is not None and not selection.scope_id.startswith(f"{selection.scope}:"):
            return "", ""
        return selection.scope_id, f"{selection.scope_id}\x01"  # no text of Postgres has a NUL, so that nothing lies between
    return ("", _BEYOND) if selection.scope is None else (f"{selection.scope}:", f"{selection.scope};")


def _narrowed(selection: Selection) -> str | None:
    """What no index serves, for $8 of the lists."""
    instants = {"since": selection.since, "until": selection.until}
    found = {name: instant.isoformat() for name, instant in instants.items() if instant is not None}
    if selection.request_id is not None:
        found["request_id"] = selection.request_id
    if selection.trace_id is not None:
        found["trace_id"] = selection.trace_id
    if selection.digests is not None:
        found["from_digest"], found["to_digest"] = (digest.hex() for digest in selection.digests)
    return json.dumps(found) if found else None


def _following(selection: Selection, rows: Sequence[Row], records: Sequence[Listed], limit: int) -> str | None:
    """The cursor of the next page: after the last record of a full one, else after the last candidate, if there may be more."""
    if not rows:
        return None
    if len(records) == limit:
        last = rows[-1]
        return write_cursor(selection, Position(last["scope_id"], last["idempotency_key"], last["at"]))
    if rows[0]["scanned"] < SCANNED:
        return None
    return write_cursor(selection, Position(rows[0]["last_scope_id"], rows[0]["last_key"], rows[0]["last_at"]))


def _listed(row: Row) -> Listed:
    return Listed(
        key=RecordKey(row["scope_id"], row["idempotency_key"]),
        record_id=row["record_id"],
        version=row["version"],
        status=Status(row["status"]),
        route_id=row["route_id"],
        request_id=row["request_id"],
        method=row["request_method"],
        attempt=row["attempt"],
        observed=row["observed"],
        reason=row["last_error_code"],
        created_at=row["created_at"],
        locked_until=row["locked_until"],
        unknown_since=row["unknown_since"],
        doubtful_until=row["doubtful_until"],
        reconcile_after=row["reconcile_after"],
        looks=row["reconcile_attempts"],
        dead_lettered_at=row["dead_lettered_at"],
        completed_at=row["completed_at"],
        expires_at=row["expires_at"],
        response_status=row["response_status_code"] or None,  # 0: it is sealed
        response_length=row["response_body_length"],
        captured=decode_captured(row["captured"]),
    )


def _known(listed: Listed, sealer: RecordSealer) -> Listed:
    """With what is captured in clear, or without it if no key opens it."""
    try:
        return replace(listed, captured=sealer.open_captured(listed.key, listed.captured))
    except Unsealable:
        return replace(listed, captured={})


def _shown(row: Row, *, body: bool) -> Shown:
    """Raises `Unreadable`."""
    return Shown(
        listed=_listed(row),
        target=row["request_target"],
        recovery_point=row["recovery_point"],
        recovery_data=row["recovery_data"],
        completed_by=row["completed_by"],
        captured=decode_captured(row["captured"]),
        fingerprint_version=row["fingerprint_version"],
        fingerprint=row["request_fingerprint"],
        response=_response(row, body=body) if row["status"] == Status.COMPLETED else None,
        history=[_remembered(line) for line in json.loads(row["history"] or "[]")],
        at=row["at"],
        evidence=row["proved"],
    )


def _opened(shown: Shown, sealer: RecordSealer, *, body: bool) -> Shown:
    """What no key opens is shown sealed, as it is. A short body comes with its head: it is for those alone who asked for it."""
    key, response = shown.listed.key, shown.response
    try:
        captured, target = sealer.open_captured(key, shown.captured), sealer.open_target(key, shown.target)
        if response is None:
            return replace(shown, captured=captured, target=target)
        response = sealer.open_answer(key, shown.listed.record_id, response)
    except Unsealable:
        return shown
    response = response if body else response.without_body()
    listed = replace(shown.listed, response_status=response.status)
    return replace(shown, listed=listed, captured=captured, target=target, response=response)


def _response(row: Row, *, body: bool) -> StoredResponse:
    """Without the body nothing depends on how it is packed."""
    if body or row["response_schema_version"] == SEALED_SCHEMA_VERSION:
        values = dict(row) if body else {**row, "response_body": b""}
        return decode_response([values[column] for column in RESPONSE_COLUMNS])
    return StoredResponse(
        row["response_status_code"],
        row["response_reason"],
        decode_headers(row["response_headers"]),
        None,
        row["response_body_length"],
        row["response_body_digest"],
    )


def _remembered(line: Sequence[Any]) -> Remembered:
    at, source, what, detail, actor, reason = line
    return Remembered(to_instant(at), Entry(source, what, detail, actor, reason))


def _audit_line(row: Row) -> AuditLine:
    audit = Audit(row["actor"], row["action"], row["reason"], json.loads(row["detail"]))
    return AuditLine(row["id"], row["at"], audit, RecordKey(row["scope_id"], row["idempotency_key"]), row["record_id"])


def _json(detail: Mapping[str, object]) -> str:
    return json.dumps(dict(detail))
