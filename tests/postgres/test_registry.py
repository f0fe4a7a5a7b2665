import asyncio
from dataclasses import replace

from gateway.core.model import RecordKey
from gateway.ports import Transition
from gateway.store.postgres import ScopeClaim
from tests.contract.harness import RETENTION, age_records, intent, reserved, response
from tests.postgres.conftest import MakeStore

CLAIM = ScopeClaim("payments", "header:authorization", "Idempotency-Key lenient", "check-1")
CHANGED = replace(CLAIM, principal="none", secret_check="check-2")
POLICY = (b"p" * 32, 1, "body=auto")


async def test_a_new_scope_is_registered_and_compares_equal_after(make_store: MakeStore) -> None:
    """The same configuration registers again and again without a word."""
    registry = make_store().registry
    for _ in range(2):
        assert await registry.register([CLAIM, CLAIM], [POLICY, POLICY]) == []
    assert await registry.register([], []) == []


async def test_fingerprint_policies_are_found_by_digest(make_store: MakeStore) -> None:
    """A record's own policy can be read back as long as the database knows it."""
    registry = make_store().registry
    await registry.register([], [POLICY])
    assert await registry.fingerprint_policy(POLICY[0]) == (1, "body=auto")
    assert await registry.fingerprint_policy(b"?") is None


async def test_a_change_with_live_records_is_refused(make_store: MakeStore) -> None:
    """The message names the scope and what changed; nothing is written, not even what is new."""
    store = make_store()
    await store.registry.register([CLAIM], [])
    await reserved(store, intent(RecordKey("payments:header.x", "k")))
    for _ in range(2):
        (message,) = await store.registry.register([CHANGED], [POLICY])
        assert "'payments'" in message
        assert "principal and digest secret" in message
        assert "key settings" not in message
    assert await store.registry.fingerprint_policy(POLICY[0]) is None


async def test_a_change_can_be_accepted(make_store: MakeStore) -> None:
    """Whoever says so may move a scope: then the new meaning is the registered one."""
    store = make_store()
    await store.registry.register([CLAIM], [])
    await reserved(store, intent(RecordKey("payments:header.x", "k")))
    assert await store.registry.register([CHANGED], [], accept_change=True) == []
    assert await store.registry.register([CHANGED], []) == []
    assert len(await store.registry.register([CLAIM], [])) == 1


async def test_a_change_without_live_records_is_written(make_store: MakeStore, database: str) -> None:
    """Expired records, and those of scopes whose names merely begin alike, are no obstacle."""
    store = make_store()
    await store.registry.register([CLAIM], [])
    lease = await reserved(store, intent(RecordKey("payments:header.x", "k")))
    assert (await store.complete(lease, response(), RETENTION)).transition is Transition.DONE
    for scope in ("payments-eu:none", "payment:none", "paymentsx:none", "payments"):
        await reserved(store, intent(RecordKey(scope, "k")))
    assert len(await store.registry.register([CHANGED], [])) == 1
    await age_records(database, RETENTION + 1)
    assert await store.registry.register([CHANGED], []) == []
    assert await store.registry.register([CHANGED], []) == []


async def test_a_record_in_doubt_is_live(make_store: MakeStore, database: str) -> None:
    """However old, an unknown record's retries must find it."""
    store = make_store()
    await store.registry.register([CLAIM], [])
    lease = await reserved(store, intent(RecordKey("payments:header.x", "k"), reconcilable=False))
    await store.doubt(lease, "upstream_timeout")
    await age_records(database, 1e6)
    assert len(await store.registry.register([CHANGED], [])) == 1


async def test_concurrent_starts_agree(make_store: MakeStore) -> None:
    """Many processes that start at once register the same scopes without an error."""
    stores = [make_store() for _ in range(4)]
    claims = [replace(CLAIM, scope=f"scope-{n}") for n in range(20)]
    answers = await asyncio.gather(*[store.registry.register(claims, [POLICY]) for store in stores])
    assert answers == [[]] * 4
