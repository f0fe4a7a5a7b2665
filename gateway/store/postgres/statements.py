"""The batched statements: what they are given, and what their answers mean for each caller."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from gateway.core.model import Intent, Lease, Record, Status, StoredResponse, Tombstone
from gateway.core.packing import PLAIN
from gateway.ports import OBSERVED_DOUBT_KEPT, Retention, Settled, StoreUnavailable, Transition
from gateway.store.postgres.clock import DatabaseClock
from gateway.store.postgres.lane import Lane, unavailable
from gateway.store.postgres.queries import QUERIES
from gateway.store.postgres.rows import (
    Row,
    Unreadable,
    columns,
    decode_record,
    encode_headers,
    intent_row,
    schema_version,
    tombstone_digests,
)

INLINE_BYTES = 64 * 1024
"""Stored answers up to this size (headers and packed body) are part of a reserve's answer; larger ones are read one by one.

So the answers to a batch of reserves (at most `batching.ROWS_MAX` of them) have at most 8 MiB of headers and bodies in all.
"""

_TRANSITIONS = {transition.value: transition for transition in Transition}


class BodyLeftOut:
    """The record is completed, with an answer that is too large for a batch."""


BODY_LEFT_OUT = BodyLeftOut()


class InTheWay(NamedTuple):
    """An observed record that the intent is to take over."""

    record: Record


Reserved: TypeAlias = Lease | Record | Tombstone | BodyLeftOut | InTheWay


class Completion(NamedTuple):
    """One row of the `complete` statement, its arguments in order; a tuple, since one is made for every request."""

    scope_id: str
    key: str
    owner: bytes
    retention: float
    status: int
    reason: bytes
    headers: bytes
    body: bytes | None
    body_encoding: int
    body_length: int
    body_digest: bytes
    schema_version: int
    gone_for: float | None
    keep_for: float | None

    def smaller(self) -> "Completion | None":
        """What to store when this is refused: first without the body, then without headers, too."""
        if self.body is not None:
            return self._replace(body=None, body_encoding=PLAIN, schema_version=schema_version(PLAIN))
        return self._replace(headers=b"") if self.headers else None


class Release(NamedTuple):
    """One row of the `release` statement, its arguments in order."""

    scope_id: str
    key: str
    owner: bytes
    reason: str
    retention: float
    gone_for: float | None
    keep_for: float | None


class Doubt(NamedTuple):
    """One row of the `doubt` statement, its arguments in order."""

    scope_id: str
    key: str
    owner: bytes
    reason: str


def completion(lease: Lease, response: StoredResponse, retention: Retention) -> Completion:
    encoding = PLAIN if response.body is None else response.encoding
    return Completion(
        lease.key.scope_id,
        lease.key.key,
        lease.owner,
        retention.seconds,
        response.status,
        response.reason,
        encode_headers(response.headers),
        response.body,
        encoding,
        response.body_length,
        response.body_digest,
        schema_version(encoding),
        retention.gone_for,
        retention.keep_for,
    )


class Statements:
    """Batched statements; each reads its answers' clock."""

    def __init__(self, clock: DatabaseClock) -> None:
        self._clock = clock

    async def reserve(self, lane: Lane, intents: Sequence[Intent]) -> Mapping[bytes, Reserved | StoreUnavailable]:
        """Owners that are absent from the answer lost a race that this statement could not see the end of."""
        sent = self._clock.boottime()
        asking = any(intent.terms.gone_for is not None for intent in intents)
        arguments = (*columns(map(intent_row, intents)), INLINE_BYTES)
        if asking:
            rows = await lane.fetch(QUERIES["reserve_or_gone"], *arguments, tombstone_digests(intents), self._clock.limits())
        else:
            rows = await lane.fetch(QUERIES["reserve"], *arguments, self._clock.limits())
        if rows:
            self._clock.read(rows[0]["now_us"], sent)
        by_owner = {intent.owner: intent for intent in intents}
        answers: dict[bytes, Reserved | StoreUnavailable] = {}
        for row in rows:
            owner: bytes = row["asked_by"]
            intent = by_owner[owner]
            if asking and (route := row["tombstone_route"]) is not None:
                tombstone = Tombstone(intent.key, route, row["expires_in"], row["expires_at_us"])
                answers.setdefault(owner, tombstone)  # a record that began under an older tombstone is what counts
            elif row["version"] is None:
                answers[owner] = Lease(intent.key, row["record_id"], owner, 1, sent, intent.terms.lease)
            elif not isinstance(answers.get(owner), Lease):  # a lease wins over a row that was deleted after the statement's snapshot
                answers[owner] = _found(intent, row, self._clock.behind())
        return answers

    async def complete(self, lane: Lane, settles: Sequence[Completion]) -> Mapping[bytes, Settled]:
        return await self._settle(lane, QUERIES["complete"], *columns(settles))

    async def release(self, lane: Lane, settles: Sequence[Release]) -> Mapping[bytes, Settled]:
        return await self._settle(lane, QUERIES["release"], *columns(settles))

    async def doubt(self, lane: Lane, settles: Sequence[Doubt]) -> Mapping[bytes, Settled]:
        return await self._settle(lane, QUERIES["doubt"], *columns(settles), OBSERVED_DOUBT_KEPT)

    async def _settle(self, lane: Lane, query: str, *arguments: Any) -> Mapping[bytes, Settled]:
        sent = self._clock.boottime()
        rows = await lane.fetch(query, *arguments)
        self._clock.read(rows[0][1], sent)
        return {owner: _settled(transition, expires_at_us) for owner, _, transition, expires_at_us in rows}


def _settled(word: str, expires_at_us: int | None) -> Settled:
    transition = _TRANSITIONS[word]
    return Settled(transition, expires_at_us if transition in (Transition.DONE, Transition.ALREADY) else None)


def _found(intent: Intent, row: Row, behind: float) -> Reserved | StoreUnavailable:
    if row["body_left_out"]:
        return BODY_LEFT_OUT
    try:
        record = decode_record(intent.key, row, behind)
    except Unreadable:
        return unavailable("error", may_have_landed=False, asked=True)
    return InTheWay(record) if row["observed"] and not intent.terms.observed and record.status is not Status.COMPLETED else record
