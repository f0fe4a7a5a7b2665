"""What operators see of accepted work, and what their verdicts make of it."""

from collections.abc import AsyncIterator

import pytest

from gateway.core.model import RecordKey, Status
from gateway.ports import Transition
from gateway.ports.accepted import Parked
from gateway.ports.reconciliation import Audit, Fence, Selection
from gateway.store.postgres import PostgresStore
from tests.store.contract.accepted_contract import PROMISE, sealed
from tests.store.contract.harness import KEPT, LEASE, MAX_EXECUTION, PostgresHarness, found, reserved

AUDIT = Audit("ada", "release", "not in the ledger")


@pytest.fixture
async def harness(every_database: str) -> AsyncIterator[PostgresHarness]:
    store = PostgresStore(every_database, pool_size=2, timeout=30)
    yield PostgresHarness(every_database, store)
    await store.close()


async def test_what_waits_is_listed_page_by_page(harness: PostgresHarness) -> None:
    """By its state, the first to be given up first; narrowed by route like the others."""
    for number in range(5):
        lease = await reserved(harness.store, sealed(RecordKey("pay:none", f"k{number}"), route="pay" if number else "other"))
        assert await harness.store.park(lease, "no_slot", 0.0, PROMISE, unstarted=True) is Parked.DONE
    await reserved(harness.store, sealed(RecordKey("pay:none", "runs")))
    listed: list[str] = []
    cursor: str | None = None
    while True:
        page = await harness.store.operations.select(Selection(state="pending"), cursor, 2)
        listed += [one.key.key for one in page.records]
        cursor = page.cursor
        if cursor is None:
            break
    assert listed == [f"k{number}" for number in range(5)]
    narrowed = await harness.store.operations.select(Selection(state="pending", route="other"), None, 10)
    assert [(one.key.key, one.status, one.attempt) for one in narrowed.records] == [("k0", Status.PENDING, 0)]


async def test_a_release_returns_accepted_work(harness: PostgresHarness) -> None:
    """A person says that it was not executed: it waits to be run once more, judged, and no retry is needed."""
    lease = await reserved(harness.store, sealed())
    await harness.acceptance.accept(lease, PROMISE)
    await harness.store.doubt(lease, "upstream_timeout")
    await harness.advance(LEASE + MAX_EXECUTION + 1)
    record = await found(harness.store, lease.key)
    assert await harness.store.operations.release(Fence.of(record), KEPT, AUDIT) is Transition.DONE
    after = await found(harness.store, lease.key)
    assert (after.status, after.judged, after.due_in, after.expires_in) == (Status.PENDING, True, 0.0, None)
    shown = await harness.store.operations.show(lease.key)
    assert shown is not None
    assert [remembered.entry.what for remembered in shown.history] == ["released"]


async def test_what_waits_is_neither_released_nor_deleted_nor_requeued(harness: PostgresHarness) -> None:
    """Its client may cancel it; an operator lets it end by itself."""
    lease = await reserved(harness.store, sealed())
    await harness.store.park(lease, "no_slot", 0.0, PROMISE, unstarted=True)
    fence, operations = Fence.of(await found(harness.store, lease.key)), harness.store.operations
    assert await operations.release(fence, KEPT, AUDIT) is Transition.STALE
    assert await operations.delete(fence, AUDIT) is Transition.STALE
    assert await operations.requeue(fence, AUDIT) is Transition.STALE
    assert (await found(harness.store, lease.key)).status is Status.PENDING
