"""Moving what is encrypted to another key: rows and archive, all parts of a record, fenced; and erasure in batches."""

import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from gateway.core.model import RecordKey, Status
from gateway.ports import Retention
from gateway.ports.reconciliation import Unsealable
from gateway.runtime.record_sealing import RecordSealer
from gateway.runtime.sealing import AesSealer
from gateway.store.postgres import PostgresStore
from gateway.store.postgres.reencryption import TABLES, Place
from gateway.store.sealed import SealedStore
from tests.store.contract.harness import PostgresHarness, completed, doubted, intent, packed_response, released, response

OLD, BOTH, NEW = ((b"old",), (b"new", b"old"), (b"new",))
KEPT = Retention(60.0, keep_for=3600.0)


def sealer(keys: Sequence[bytes]) -> RecordSealer:
    return RecordSealer(AesSealer(tuple(keys)), seals=True)


class Harnesses:
    """The same database for processes with different keys."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.made: list[PostgresStore] = []

    def __call__(self, keys: Sequence[bytes]) -> PostgresHarness:
        store = PostgresStore(self.dsn, pool_size=2, timeout=30, sealer=sealer(keys))
        self.made.append(store)
        harness = PostgresHarness(self.dsn, store)
        harness.store = SealedStore(store, sealer(keys))  # type: ignore[assignment]  # the harness of Postgres names its own store
        return harness


@pytest.fixture
async def under(database: str) -> AsyncIterator[Harnesses]:
    harnesses = Harnesses(database)
    yield harnesses
    for store in harnesses.made:
        await store.close()


async def move_all(store: PostgresStore) -> list[bool]:
    moved: list[bool] = []
    for table in TABLES:
        after: tuple[str, str] | None = None
        while (walked := await store.reencryption.walk(table, after)).after is not None:
            moved += [await store.reencryption.move(table, place) for place in walked.stale]
            after = walked.after
    return moved


async def test_all_of_a_record_moves(under: Harnesses) -> None:
    """Answers, targets, captured values, correlations and kept requests; afterwards the former key opens nothing and nobody needs it."""
    before, rotated = under(OLD), under(BOTH)
    archived = await completed(before, response(), KEPT)
    await before.advance(120.0)
    await before.maintenance.reap(10)
    done = await completed(before, packed_response())
    await released(before)
    wanted = replace(intent(captured={"order": "o-1"}, correlation="o-1", target=b"/secret"), sealed=None)
    wanted = replace(wanted, sealed=AesSealer(OLD).seal(b"a request", wanted.key.lookup_digest()))
    await doubted(before, wanted)

    assert await move_all(under.made[1]) == [True] * 4
    assert await move_all(under.made[1]) == []

    after = under(NEW)
    found = await after.store.find(done.key)
    assert found is not None
    assert found.response == packed_response()
    (old,) = await rotated.archived(archived.key)
    assert old.response is not None
    assert sealer(NEW).open_answer(archived.key, old.record_id, old.response) == response()
    shown = await under.made[2].operations.show(wanted.key)
    assert shown is not None
    assert (shown.target, shown.captured) == (b"/secret", {"order": "o-1"})
    (subject,) = await after.reconciliation.find_captured(wanted.key.scope_id.partition(":")[0], "o-1")
    assert subject.fence.key == wanted.key


async def test_what_has_changed_is_left(under: Harnesses) -> None:
    """Its version has moved, or its key is not configured: nothing is written."""
    before = under(OLD)
    lease = await released(before)
    (place,) = (await under.made[0].reencryption.walk("records", None)).stale or [Place(lease.key, lease.record_id, 2)]
    assert not await under.made[0].reencryption.move("records", Place(lease.key, lease.record_id, place.version + 1))
    assert not await under.made[0].reencryption.move("records", Place(lease.key, uuid.uuid4(), place.version))
    under(NEW)
    (place,) = (await under.made[1].reencryption.walk("records", None)).stale
    with pytest.raises(Unsealable):
        await under.made[1].reencryption.move("records", place)


async def test_erasure_goes_on_where_it_was(under: Harnesses) -> None:
    """In batches, by key; a second one finds nothing; what has not ended is counted and keeps its request."""
    harness = under(BOTH)
    scope_id = "pay:header.x"
    for number in range(205):
        await completed(harness, wanted=intent(RecordKey(scope_id, f"k{number:03}")))
    await doubted(harness, intent(RecordKey(scope_id, "z"), captured={"order": "o-1"}))
    other = await completed(harness)
    erase = under.made[0].reencryption.erase
    first = await erase(scope_id, "", "ann", "GDPR-12")
    assert (len(first.keys), first.left) == (200, 1)
    second = await erase(scope_id, first.keys[-1][0], "ann", "GDPR-12")
    assert (len(second.keys), second.left) == (5, 1)
    assert (await erase(scope_id, "", "ann", "GDPR-12")).keys == []
    found = await harness.store.find(RecordKey(scope_id, "k007"))
    assert found is not None
    assert found.response is not None
    assert (found.status, found.response.body, found.response.headers) == (Status.COMPLETED, None, ())
    kept = await harness.store.find(other.key)
    assert kept is not None
    assert kept.response == response()
    lines = await under.made[0].operations.audited(0, 1000)
    assert len(lines) == 205
    assert {line.audit.action for line in lines} == {"erase"}
    assert all(line.key.key.startswith("sha256:") for line in lines)
