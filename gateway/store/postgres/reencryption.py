"""Moving encrypted values to the present key, and the erasure of what is stored of one caller."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from gateway.core.model import SEALED, RecordKey
from gateway.runtime.record_sealing import RecordSealer, SealedParts
from gateway.store.postgres.calls import Calls
from gateway.store.postgres.queries import QUERIES
from gateway.store.postgres.rows import RESPONSE_COLUMNS, Row, decode_captured, decode_response, encode_captured

OPERATION = "reencrypt"
_READ = {"records": "sealed_record", "archive": "sealed_archived"}
_MOVE = {"records": "move_record", "archive": "move_archived"}
TABLES = tuple(_READ)


class Place(NamedTuple):
    """Where something is encrypted under another key than the present one."""

    key: RecordKey
    record_id: UUID
    version: int


@dataclass(frozen=True, slots=True)
class Walked:
    """A part of a walk. `after`: where the next begins, None at the end. `evident`: how many have evidence under another key."""

    stale: Sequence[Place]
    scanned: int
    evident: int
    after: tuple[str, str] | None


class Erased(NamedTuple):
    """A batch of an erasure: the keys, each with whether it had an answer; and how many operations have not ended."""

    keys: Sequence[tuple[str, bool]]
    left: int


class PostgresReencryption:
    """Made by `PostgresStore`, whose connections it shares. Raises `StoreUnavailable`."""

    def __init__(self, calls: Calls, sealer: RecordSealer) -> None:
        self._calls = calls
        self._sealer = sealer

    async def walk(self, table: str, after: tuple[str, str] | None) -> Walked:
        """Look at the next places of a table, one of `TABLES`."""
        scope_id, key = after or ("", "")
        rows = await self._calls.fetch(OPERATION, f"walk_{table}", scope_id, key, self._sealer.present)
        stale = [
            Place(RecordKey(row["scope_id"], row["idempotency_key"]), row["record_id"], row["version"]) for row in rows if row["stale"]
        ]
        last = (rows[-1]["scope_id"], rows[-1]["idempotency_key"]) if rows else None
        return Walked(stale, len(rows), sum(row["evident"] for row in rows), last)

    async def move(self, table: str, place: Place) -> bool:
        """Whether what is there is under the present key now. False: it has changed meanwhile. Raises `Unsealable`."""
        key = place.key
        fence = (key.scope_id, key.key, place.record_id, place.version)
        rows = await self._calls.fetch(OPERATION, _READ[table], *fence)
        if not rows:
            return False
        moved = self._moved(place, rows[0])
        return bool(await self._calls.run(OPERATION, lambda lane: lane.fetch(QUERIES[_MOVE[table]], *fence, *moved)))

    def _moved(self, place: Place, row: Row) -> tuple[object, ...]:
        sealed = SealedParts(row["request_target"], decode_captured(row["captured"]) or None, row["correlation"], row["request_sealed"])
        parts = self._sealer.reseal_request(place.key, sealed)
        reason, body, digest = row["response_reason"], row["response_body"], row["response_body_digest"]
        if row["response_body_encoding"] == SEALED and row["response_schema_version"] is not None:
            answer = decode_response([row[column] for column in RESPONSE_COLUMNS])
            answer = self._sealer.reseal_answer(place.key, place.record_id, answer)
            reason, body, digest = answer.reason, answer.body, answer.body_digest
        return (reason, body, digest, parts.target, encode_captured(parts.captured), parts.correlation, parts.request)

    async def erase(self, scope_id: str, after: str, actor: str, reason: str) -> Erased:
        """Drop what is stored of at most 200 ended operations of a caller, audited in the same step."""
        rows = await self._calls.fetch("erase", "erase", scope_id, after, actor, reason)
        keys = [(row["idempotency_key"], row["completed"]) for row in rows if row["idempotency_key"] is not None]
        return Erased(keys, rows[0]["left_over"])
