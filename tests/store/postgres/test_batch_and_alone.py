"""A batch means what its rows mean alone: the same answers, the same records, for any mixture of states, routes and retentions."""

import random
import secrets
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import asyncpg
import pytest

from gateway.core.model import Intent, Lease, RecordKey
from gateway.ports import Retention
from gateway.store.postgres.clock import BELIEVE_ANY
from gateway.store.postgres.statements import (
    Doubt,
    Ending,
    Release,
    complete_alone_statement,
    complete_statement,
    completion,
    doubt_statement,
    release_statement,
    reserve_alone_statement,
    reserve_statement,
)
from tests.store.contract.harness import fingerprint, fresh_key, intent, packed_response, response

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]  # generic only in its stubs

Sent: TypeAlias = tuple[str, list[Any]]

RETENTIONS = (Retention(60.0), Retention(3600.0, gone_for=86400.0), Retention(5.0, keep_for=7.0))
ANSWERS = (response(), response(None), response(b"x" * 70_000), packed_response(), response(status=500, headers=((b"A", b"\xff"),)))


class Bench:
    """Statements in a transaction whose now() stands still."""

    def __init__(self, connection: "Connection", chance: random.Random) -> None:
        self.connection = connection
        self.chance = chance

    def intent(self, key: RecordKey) -> Intent:
        chance = self.chance
        return intent(
            key,
            fingerprint(policy=chance.choice(("policy", "another")), version=chance.choice((1, 1, 2))),
            lease=chance.choice((10.0, 30.0)),
            max_execution=chance.choice((0.0, 120.0)),
            reconcilable=chance.random() < 0.5,
            gone_for=chance.choice((None, None, 60.0)),
            observed=chance.random() < 0.3,
            route_id=chance.choice(("create-charge", "refund")),
            captured=chance.choice((None, {"a": "€"}, {"b": "\0"})),
            correlation=chance.choice((None, "c", "\0")),
            sealed=chance.choice((None, b"", b"\x00\xff")),
        )

    async def fill(self) -> list[Intent]:
        """Records in every state, and places where there is none; those who made them."""
        made = [self.intent(fresh_key()) for _ in range(self.chance.randrange(1, 40))]
        for wanted in made:
            await self._fill(wanted, self.chance.choice(("nothing", "tombstone", "running", "completed", "released", "doubted")))
        return made

    async def _fill(self, wanted: Intent, state: str) -> None:
        chance, key = self.chance, wanted.key
        if state == "nothing":
            return
        if state == "tombstone":
            sql = "INSERT INTO gateway_tombstones (digest, route_id, scope, expires_at) VALUES ($1, 'r', 's', now() + $2 * interval '1 s')"
            await self.connection.execute(sql, key.lookup_digest(), chance.choice((-1.0, 60.0)))
            return
        await self.send(reserve_statement([wanted], BELIEVE_ANY))
        kept = chance.choice(RETENTIONS)
        if state == "completed":
            await self.send(complete_statement([self.completion(wanted, wanted.owner, kept)]))
        elif state == "released":
            await self.send(release_statement([Ending(Release(key.scope_id, key.key, wanted.owner, "r"), kept)]))
        elif state == "doubted":
            await self.send(doubt_statement([Doubt(key.scope_id, key.key, wanted.owner, "d")]))
        proved = state in {"running", "doubted"} and chance.random() < 0.3
        await self.connection.execute(
            "UPDATE gateway_records SET locked_until = locked_until - make_interval(secs => $3), created_at = created_at"
            " - make_interval(secs => $3), expires_at = expires_at - make_interval(secs => $3), reconcile_after = reconcile_after"
            " - make_interval(secs => $3), evidence = CASE WHEN $4 THEN jsonb_build_object('of', encode(owner, 'hex')) END"
            " WHERE scope_id = $1 AND idempotency_key = $2",
            key.scope_id,
            key.key,
            chance.choice((0.0, 0.0, 20.0, 100.0, 10_000.0)),
            proved,
        )

    def completion(self, wanted: Intent, owner: bytes, kept: Retention) -> Ending[Any]:
        lease = Lease(wanted.key, UUID(int=0), owner, 1, 0.0, wanted.terms.lease)
        return Ending(completion(lease, self.chance.choice(ANSWERS)), kept)

    def someone(self, wanted: Intent) -> bytes:
        """Mostly the owner."""
        return wanted.owner if self.chance.random() < 0.8 else secrets.token_bytes(16)

    async def send(self, statement: Sent) -> list[asyncpg.Record]:
        sql, arguments = statement
        return await self.connection.fetch(sql, *arguments)

    async def outcome(self, statements: Iterable[Sequence[Sent]], keys: Sequence[str]) -> tuple[list[Any], list[Any]]:
        """What is answered, and what there is then; all of it is undone. New records have no two names alike: theirs is left out.

        Of several statements the first that answers counts, and the others are not sent.
        """
        transaction = self.connection.transaction()
        await transaction.start()
        rows = []
        for tries in statements:
            for statement in tries:
                if answered := await self.send(statement):
                    rows += [[*row] for row in answered]
                    break
        sql = "SELECT to_jsonb(r) - 'record_id' FROM gateway_records AS r WHERE idempotency_key = ANY ($1) ORDER BY idempotency_key"
        there = [row[0] for row in await self.connection.fetch(sql, keys)]
        await transaction.rollback()
        told = [[*row[:2], "new" if isinstance(row[2], UUID) else row[2], *row[3:], *[None] * (5 - len(row))] for row in rows]
        return sorted(told, key=lambda row: bytes(row[0])), there


def lone_reserve(wanted: Intent) -> Sequence[Sent]:
    """What is sent for an intent that has no company."""
    whole = reserve_statement([wanted], BELIEVE_ANY)
    return (whole,) if wanted.terms.gone_for is not None else (reserve_alone_statement(wanted), whole)


@pytest.mark.parametrize("seed", range(8))
async def test_a_batch_means_what_its_rows_mean_alone(connection: "Connection", seed: int) -> None:
    """Whether the rows of a batch agree in their terms or not, and whether any of them asks for tombstones."""
    chance = random.Random(seed)
    bench = Bench(connection, chance)
    transaction = connection.transaction()
    await transaction.start()
    there = await bench.fill()
    keys = [wanted.key.key for wanted in there]
    agreed = chance.random() < 0.4
    asking = [intent(wanted.key) if agreed else bench.intent(wanted.key) for wanted in there]
    kept = [RETENTIONS[0] if agreed else chance.choice(RETENTIONS) for _ in there]
    completions = [bench.completion(wanted, bench.someone(wanted), one) for wanted, one in zip(there, kept, strict=True)]
    releases = [
        Ending(Release(wanted.key.scope_id, wanted.key.key, bench.someone(wanted), "r"), one)
        for wanted, one in zip(there, kept, strict=True)
    ]
    doubts = [Doubt(wanted.key.scope_id, wanted.key.key, bench.someone(wanted), "d") for wanted in there]
    for batch, alone in (
        (reserve_statement(asking, BELIEVE_ANY), [(reserve_statement([one], BELIEVE_ANY),) for one in asking]),
        (reserve_statement(asking, BELIEVE_ANY), [lone_reserve(one) for one in asking]),
        (complete_statement(completions), [(complete_statement([one]),) for one in completions]),
        (complete_statement(completions), [(complete_alone_statement(one), complete_statement([one])) for one in completions]),
        (release_statement(releases), [(release_statement([one]),) for one in releases]),
        (doubt_statement(doubts), [(doubt_statement([one]),) for one in doubts]),
    ):
        assert await bench.outcome([(batch,)], keys) == await bench.outcome(alone, keys)
    await transaction.rollback()
