"""The batched statements: what they are given, and what their answers mean for each caller."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from gateway.core.model import SEALED, Earlier, Intent, Lease, Record, Status, StoredResponse, Tombstone
from gateway.core.packing import PLAIN
from gateway.core.timeline import Limits
from gateway.ports import OBSERVED_DOUBT_KEPT, Retention, Settled, StoreUnavailable, Transition
from gateway.store.postgres.clock import DatabaseClock
from gateway.store.postgres.lane import Lane, unavailable
from gateway.store.postgres.queries import ROWS
from gateway.store.postgres.resolving_rows import retention_arguments
from gateway.store.postgres.rows import (
    Unreadable,
    decode_record,
    encode_headers,
    intent_row,
    intent_terms,
    schema_version,
    terms_row,
    tombstone_digest,
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
    """One row of the `complete` statement, its columns in order; a tuple, since one is made for every request."""

    scope_id: str
    key: str
    owner: bytes
    status: int
    reason: bytes
    headers: bytes
    body: bytes | None
    body_encoding: int
    body_length: int
    body_digest: bytes
    schema_version: int

    def smaller(self) -> "Completion | None":
        """What to store when this is refused: first without the body, then without headers, too."""
        if self.body_encoding == SEALED:
            return self._replace(body=b"") if self.body else None  # what its head says of the body stays
        if self.body is not None:
            return self._replace(body=None, body_encoding=PLAIN, schema_version=schema_version(PLAIN))
        return self._replace(headers=b"") if self.headers else None


class Release(NamedTuple):
    """One row of the `release` statement, its columns in order."""

    scope_id: str
    key: str
    owner: bytes
    reason: str


class Doubt(NamedTuple):
    """One row of the `doubt` statement, its columns in order."""

    scope_id: str
    key: str
    owner: bytes
    reason: str


End = TypeVar("End", Completion, Release)


class Ending(NamedTuple, Generic[End]):
    """A completion or a release, and what becomes of its record afterwards: the row of its statement, and its terms.

    `whole`: False for a completion that leaves out what was refused.
    """

    row: End
    retention: Retention
    whole: bool = True


def completion(lease: Lease, response: StoredResponse) -> Completion:
    encoding = PLAIN if response.body is None else response.encoding
    return Completion(
        lease.key.scope_id,
        lease.key.key,
        lease.owner,
        response.status,
        response.reason,
        encode_headers(response.headers),
        response.body,
        encoding,
        response.body_length,
        response.body_digest,
        schema_version(encoding),
    )


def smaller(ending: Ending[Completion]) -> Ending[Completion] | None:
    """What to store when this is refused."""
    row = ending.row.smaller()
    return None if row is None else Ending(row, ending.retention, whole=False)


Sent: TypeAlias = tuple[str, list[Any]]
"""A statement and its arguments."""


def reserve_statement(intents: Sequence[Intent], limits: Limits) -> Sent:
    if any(intent.terms.gone_for is not None for intent in intents):
        asking = [(*intent_row(intent), tombstone_digest(intent)) for intent in intents]
        return ROWS["reserve_or_gone"].bind((INLINE_BYTES, *limits), asking, intent_terms(intents))
    return ROWS["reserve"].bind((INLINE_BYTES, *limits), [intent_row(intent) for intent in intents], intent_terms(intents))


def reserve_alone_statement(intent: Intent) -> Sent:
    """For an intent that asks for no tombstone. It answers as `reserve`, or nothing where there is a record."""
    return ROWS["reserve_alone"].bind((), (intent_row(intent),), (terms_row(intent),))


def complete_statement(endings: Sequence[Ending[Completion]]) -> Sent:
    return ROWS["complete"].bind((), [ending.row for ending in endings], _retentions(endings))


def complete_alone_statement(ending: Ending[Completion]) -> Sent:
    """It answers as `complete`, or nothing where it changed nothing."""
    return ROWS["complete_alone"].bind((), (ending.row,), (retention_arguments(ending.retention),))


def release_statement(endings: Sequence[Ending[Release]]) -> Sent:
    return ROWS["release"].bind((), [ending.row for ending in endings], _retentions(endings))


def doubt_statement(doubts: Sequence[Doubt]) -> Sent:
    return ROWS["doubt"].bind((OBSERVED_DOUBT_KEPT,), doubts)


class Statements:
    """Batched statements; each reads its answers' clock. What nearly always happens has a statement of its own for one row, which
    takes the server about two thirds of the time; where it does nothing, the statement for any number of rows finds out why.
    """

    def __init__(self, clock: DatabaseClock) -> None:
        self._clock = clock

    async def reserve(self, lane: Lane, intents: Sequence[Intent]) -> Mapping[bytes, Reserved | StoreUnavailable]:
        """Owners that are absent from the answer lost a race that this statement could not see the end of."""
        alone = intents[0]
        if len(intents) > 1 or alone.terms.gone_for is not None:
            return await self._reserve(lane, intents)
        sent = self._clock.boottime()
        sql, arguments = reserve_alone_statement(alone)
        for row in await lane.fetch(sql, *arguments):
            self._clock.read(row[1], sent)
            return {alone.owner: Lease(alone.key, row[2], alone.owner, 1, sent, alone.terms.lease, Earlier.NOTHING, alone)}
        try:
            return await self._reserve(lane, intents)
        except StoreUnavailable as error:  # there is a record
            raise unavailable(error.reason, may_have_landed=error.may_have_landed, asked=True) from error

    async def _reserve(self, lane: Lane, intents: Sequence[Intent]) -> Mapping[bytes, Reserved | StoreUnavailable]:
        sent = self._clock.boottime()
        sql, arguments = reserve_statement(intents, self._clock.limits())
        rows = await lane.fetch(sql, *arguments)
        if rows:
            self._clock.read(rows[0][1], sent)
        by_owner = {intent.owner: intent for intent in intents}
        answers: dict[bytes, Reserved | StoreUnavailable] = {}
        for row in rows:
            owner, record_id, found = row[0], row[2], row[3]
            intent = by_owner[owner]
            if record_id is not None:
                answers[owner] = Lease(intent.key, record_id, owner, 1, sent, intent.terms.lease, Earlier.NOTHING, intent)
            elif found is None:
                answers.setdefault(owner, Tombstone(intent.key, *row[4]))  # a record that began under an older one is what counts
            elif not isinstance(answers.get(owner), Lease):  # a lease wins over a row that was deleted after the statement's snapshot
                answers[owner] = _found(intent, found, self._clock.behind())
        return answers

    async def complete(self, lane: Lane, endings: Sequence[Ending[Completion]]) -> Mapping[bytes, Settled]:
        if len(endings) > 1:
            return await self._settle(lane, *complete_statement(endings))
        answers = await self._settle(lane, *complete_alone_statement(endings[0]))
        if not answers:
            answers = await self._settle(lane, *complete_statement(endings))
        if endings[0].whole:
            return answers
        return {owner: replace(settled, whole=False) for owner, settled in answers.items()}  # what was refused is repeated alone

    async def release(self, lane: Lane, endings: Sequence[Ending[Release]]) -> Mapping[bytes, Settled]:
        return await self._settle(lane, *release_statement(endings))

    async def doubt(self, lane: Lane, doubts: Sequence[Doubt]) -> Mapping[bytes, Settled]:
        return await self._settle(lane, *doubt_statement(doubts))

    async def _settle(self, lane: Lane, sql: str, arguments: list[Any]) -> Mapping[bytes, Settled]:
        sent = self._clock.boottime()
        rows = await lane.fetch(sql, *arguments)
        if rows:
            self._clock.read(rows[0][1], sent)
        return {row[0]: _settled(row[2], row[3]) for row in rows}


def _retentions(endings: Sequence[Ending[Any]]) -> list[tuple[Any, ...]]:
    """The terms of `complete` and `release`: one for all, as nearly always, or those of each."""
    first = endings[0].retention
    if all(ending.retention is first or ending.retention == first for ending in endings):
        return [retention_arguments(first)]
    return [retention_arguments(ending.retention) for ending in endings]


def _settled(word: str, expires_at_us: int | None) -> Settled:
    transition = _TRANSITIONS[word]
    if transition is Transition.DONE or transition is Transition.ALREADY:
        return Settled(transition, expires_at_us)
    return Settled(transition)


def _found(intent: Intent, found: tuple[Any, ...], behind: float) -> Reserved | StoreUnavailable:
    if found[-1]:
        return BODY_LEFT_OUT
    try:
        record = decode_record(intent.key, found, behind)
    except Unreadable:
        return unavailable("error", may_have_landed=False, asked=True)
    return InTheWay(record) if record.observed and not intent.terms.observed and record.status is not Status.COMPLETED else record
