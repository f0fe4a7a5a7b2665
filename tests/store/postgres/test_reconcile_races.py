"""Two at one record, in either order: both wait for the row behind somebody else, and go on one after the other."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg
import pytest

from gateway.core.model import Intent, Lease, Record, RecordKey, Status
from gateway.ports import Settled, Transition
from gateway.ports.reconciliation import Entry, Evidence, Fence
from gateway.store.postgres import PostgresStore
from tests.store.contract.harness import KEPT, LEASE, MAX_EXECUTION, age_records, found, intent, remembered, reserved, response
from tests.store.contract.resolving import EXECUTED, FOUND_ANSWER, HOLD, LOOKED, NOT_EXECUTED, ROUTE, TOLD, event, fence_of, telling
from tests.store.postgres.conftest import MakeStore
from tests.store.postgres.watch import until_waiting

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]  # generic only in its stubs

DONE, STALE, ALREADY = Transition.DONE, Transition.STALE, Transition.ALREADY
LATE = response(b"late")
EVIDENCE = Evidence(FOUND_ANSWER, TOLD)


class Scene:
    """A record, and what may be done to it. `fence` and `seen` are the record as everybody saw it before."""

    def __init__(self, store: PostgresStore, lease: Lease, seen: Record) -> None:
        self.store = store
        self.lease = lease
        self.seen = seen
        self.fence: Fence = fence_of(seen)

    async def complete(self) -> object:
        return (await self.store.complete(self.lease, LATE, KEPT)).transition

    async def release(self) -> object:
        return (await self.store.release(self.lease, "connection_refused", KEPT)).transition

    async def doubt(self) -> object:
        settled: Settled = await self.store.doubt(self.lease, "upstream_timeout")
        return settled.transition

    async def claim(self) -> object:
        rival: Intent = intent(self.lease.key, reexecute=True)
        return STALE if await self.store.claim(self.seen, rival) is None else DONE

    async def executed(self) -> object:
        return await self.store.reconciliation.conclude_executed(self.fence, FOUND_ANSWER, KEPT, EXECUTED)

    async def told(self) -> object:
        return await self.store.reconciliation.conclude_executed(self.fence, FOUND_ANSWER, KEPT, TOLD, event())

    async def not_executed(self) -> object:
        return await self.store.reconciliation.conclude_not_executed(self.fence, "x", KEPT, NOT_EXECUTED)

    async def again(self) -> object:
        return await self.store.reconciliation.look_again(self.fence, 0.0, agreed=False, entry=LOOKED)

    async def bury(self) -> object:
        return await self.store.reconciliation.dead_letter(self.fence, LOOKED)

    async def attach(self) -> object:
        return await self.store.reconciliation.attach(self.fence, EVIDENCE, event())


Step: TypeAlias = Callable[[Scene], Awaitable[object]]


async def running(store: PostgresStore, dsn: str) -> Scene:
    lease = await reserved(store, telling())
    return Scene(store, lease, await found(store, lease.key))


async def doubtful(store: PostgresStore, dsn: str) -> Scene:
    lease = await reserved(store, telling())
    await store.doubt(lease, "upstream_timeout")
    await age_records(dsn, LEASE + MAX_EXECUTION + 1)
    return Scene(store, lease, await found(store, lease.key))


async def freed(store: PostgresStore, dsn: str) -> Scene:
    lease = await reserved(store, telling())
    await store.release(lease, "connection_refused", KEPT)
    return Scene(store, lease, await found(store, lease.key))


async def in_order(connection: "Connection", key: RecordKey, steps: list[Callable[[], Awaitable[object]]]) -> list[object]:
    """What each step answers when it began while the row was locked, behind those before it."""
    tasks: list[asyncio.Future[Any]] = []
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("SELECT FROM gateway_records WHERE (scope_id, idempotency_key) = ($1, $2) FOR UPDATE", key.scope_id, key.key)
    for step in steps:
        tasks.append(asyncio.ensure_future(step()))
        await until_waiting(connection, len(tasks))
    await transaction.commit()
    return list(await asyncio.gather(*tasks))


CASES = [
    (doubtful, Scene.executed, Scene.complete, (DONE, STALE)),
    (doubtful, Scene.complete, Scene.executed, (DONE, STALE)),
    (doubtful, Scene.executed, Scene.release, (DONE, STALE)),
    (doubtful, Scene.release, Scene.executed, (DONE, STALE)),
    (doubtful, Scene.not_executed, Scene.complete, (DONE, DONE)),
    (doubtful, Scene.complete, Scene.not_executed, (DONE, STALE)),
    (doubtful, Scene.not_executed, Scene.release, (DONE, ALREADY)),
    (doubtful, Scene.executed, Scene.told, (DONE, STALE)),
    (doubtful, Scene.told, Scene.not_executed, (DONE, STALE)),
    (doubtful, Scene.not_executed, Scene.told, (DONE, STALE)),
    (doubtful, Scene.told, Scene.again, (DONE, STALE)),
    (doubtful, Scene.again, Scene.told, (DONE, STALE)),
    (doubtful, Scene.bury, Scene.complete, (DONE, DONE)),
    (doubtful, Scene.complete, Scene.bury, (DONE, STALE)),
    (doubtful, Scene.claim, Scene.executed, (DONE, STALE)),
    (doubtful, Scene.executed, Scene.claim, (DONE, STALE)),
    (doubtful, Scene.claim, Scene.not_executed, (DONE, STALE)),
    (doubtful, Scene.not_executed, Scene.claim, (DONE, STALE)),
    (doubtful, Scene.claim, Scene.complete, (DONE, STALE)),
    (doubtful, Scene.claim, Scene.claim, (DONE, STALE)),
    (freed, Scene.executed, Scene.claim, (DONE, STALE)),
    (freed, Scene.claim, Scene.executed, (DONE, STALE)),
    (freed, Scene.executed, Scene.complete, (DONE, STALE)),
    (running, Scene.attach, Scene.doubt, (DONE, DONE)),
    (running, Scene.doubt, Scene.attach, (DONE, STALE)),
    (running, Scene.attach, Scene.complete, (DONE, DONE)),
    (running, Scene.complete, Scene.attach, (DONE, STALE)),
    (running, Scene.attach, Scene.attach, (DONE, STALE)),
]


@pytest.mark.parametrize(
    ("prepare", "first", "second", "answers"), CASES, ids=[f"{case[0].__name__}-{case[1].__name__}-{case[2].__name__}" for case in CASES]
)
async def test_one_comes_first(
    prepare: Callable[[PostgresStore, str], Awaitable[Scene]],
    first: Step,
    second: Step,
    answers: tuple[Transition, Transition],
    make_store: MakeStore,
    connection: "Connection",
    database: str,
) -> None:
    """Whoever is first changes the record, and each line of history is of a change that was made."""
    store = make_store()
    scene = await prepare(store, database)
    assert tuple(await in_order(connection, scene.lease.key, [lambda: first(scene), lambda: second(scene)])) == answers
    record = await found(store, scene.lease.key)
    if answers == (DONE, STALE) and first in (Scene.executed, Scene.told, Scene.complete):
        assert record.status is Status.COMPLETED
        assert record.response == (LATE if first is Scene.complete else FOUND_ANSWER)
    lines: dict[Step, Entry] = {
        Scene.executed: EXECUTED,
        Scene.told: TOLD,
        Scene.not_executed: NOT_EXECUTED,
        Scene.again: LOOKED,
        Scene.bury: LOOKED,
        Scene.attach: TOLD,
    }
    made = [lines[step] for step, answer in zip((first, second), answers, strict=True) if answer is DONE and step in lines]
    assert await remembered(database, scene.lease.key) == made
    if prepare is running and first is Scene.attach and second is Scene.doubt:
        (look,) = await store.reconciliation.take_due(ROUTE, 1, HOLD)
        assert look.evidence == EVIDENCE


async def test_a_look_never_waits_for_a_row(make_store: MakeStore, connection: "Connection", database: str) -> None:
    """What somebody else holds is left to them, and the rest is taken."""
    store = make_store()
    scenes = [await doubtful(store, database) for _ in range(3)]
    async with connection.transaction():
        key = scenes[0].lease.key
        await connection.execute(
            "SELECT FROM gateway_records WHERE (scope_id, idempotency_key) = ($1, $2) FOR UPDATE", *(key.scope_id, key.key)
        )
        looks = await store.reconciliation.take_due(ROUTE, 3, HOLD)
    assert {look.fence.key for look in looks} == {scene.lease.key for scene in scenes[1:]}


async def test_many_who_look_take_each_record_once(make_store: MakeStore, database: str) -> None:
    """Several processes drain a backlog of 300 together; looks that act have owners of their own."""
    stores = [make_store() for _ in range(4)]
    leases = await asyncio.gather(*[reserved(stores[0], telling()) for _ in range(300)])
    await asyncio.gather(*[stores[0].doubt(lease, "upstream_timeout") for lease in leases])
    await age_records(database, LEASE + MAX_EXECUTION + 1)

    async def drain(store: PostgresStore) -> list[tuple[RecordKey, bytes]]:
        mine: list[tuple[RecordKey, bytes]] = []
        while True:
            owners = [secrets.token_bytes(16) for _ in range(7)]
            looks = await store.reconciliation.take_due(ROUTE, 7, 600.0, owners)
            if not looks and not await store.reconciliation.due_routes([ROUTE]):
                return mine
            mine += [(look.fence.key, look.owner) for look in looks]

    drained = await asyncio.gather(*[drain(store) for store in stores])
    keys = [key for each in drained for key, _ in each]
    owners = {owner for each in drained for _, owner in each}
    assert len(keys) == len(set(keys)) == len(leases)
    assert len(owners) == 300
    assert not owners & {lease.owner for lease in leases}


async def test_a_verdict_whose_reply_was_lost_is_stale_when_repeated(make_store: MakeStore, database: str) -> None:
    """It was applied once, with one line of history."""
    store = make_store()
    scene = await doubtful(store, database)
    assert await scene.executed() is DONE
    assert await scene.executed() is STALE
    assert await remembered(database, scene.lease.key) == [EXECUTED]
