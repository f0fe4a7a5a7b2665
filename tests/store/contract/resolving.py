"""Builders and shorthands for what the reconciler, webhooks and operators hand in."""

import hashlib
import secrets
from collections.abc import Mapping

from gateway.core.model import Intent, Lease, Record, RecordKey, Status
from gateway.ports import Transition
from gateway.ports.reconciliation import Audit, Doubtful, Entry, Event, Evidence, Fence, Subject
from tests.store.contract.harness import KEPT, LEASE, MAX_EXECUTION, Harness, doubted, found, intent, reserved, response

ROUTE = "create-charge"
HOLD = 20.0
LOOKED = Entry("lookup", "not_yet_known", {"status": 404, "length": 2, "error": None})
EXECUTED = Entry("lookup", "executed", {"status": 200})
NOT_EXECUTED = Entry("lookup", "not_executed", {"status": 404})
TOLD = Entry("webhook", "executed", {"event": "sha256:12"})
PERSON = Entry("operator", "executed", {}, "ada", "seen in the provider's dashboard")
AUDIT = Audit("ada", "resolve", "seen in the provider's dashboard", {"status": 201})
CAPTURED = {"key": "upstream-key-1", "order": "größe-1"}
FOUND_ANSWER = response(b'{"id": "ch_found"}', headers=((b"Content-Type", b"application/json"), (b"X-\xff", b"\x00")))


def event(name: str | None = None, webhook: str = ROUTE, remember: float = 3600.0) -> Event:
    """An event; a new one each time unless it is named."""
    return Event(webhook, hashlib.sha256((name or secrets.token_hex(8)).encode()).digest(), remember)


def fence_of(record: Record) -> Fence:
    return Fence(record.key, record.record_id, record.version)


async def fence(harness: Harness, key: RecordKey) -> Fence:
    """The record as it is now."""
    return fence_of(await found(harness.store, key))


async def in_doubt(harness: Harness, wanted: Intent | None = None, *, due: bool = True) -> Lease:
    """A record in doubt, whose first look is due; its lease."""
    lease = await doubted(harness, wanted)
    if due:
        await harness.advance(LEASE + MAX_EXECUTION + 1)
    return lease


async def taken(harness: Harness, route: str = ROUTE, *, owners: list[bytes] | None = None) -> Doubtful:
    """The one record that is due."""
    (look,) = await harness.reconciliation.take_due(route, 1, HOLD, owners or ())
    return look


async def none_due(harness: Harness, route: str = ROUTE) -> bool:
    assert await harness.reconciliation.due_routes([route]) == frozenset()
    return not await harness.reconciliation.take_due(route, 10, HOLD)


async def buried(harness: Harness, wanted: Intent | None = None) -> Lease:
    """A dead letter; its lease."""
    lease = await in_doubt(harness, wanted)
    look = await taken(harness)
    assert await harness.reconciliation.dead_letter(look.fence, LOOKED) is Transition.DONE
    return lease


async def correlated(harness: Harness, value: str = "order-1", scope: str = "payments") -> list[Subject]:
    return list(await harness.reconciliation.find_captured(scope, value))


def telling(key: RecordKey | None = None, captured: Mapping[str, str] = CAPTURED, value: str = "order-1", **more: object) -> Intent:
    """An intent of a route with a webhook."""
    return intent(key, captured=captured, correlation=value, **more)  # type: ignore[arg-type]  # fields by name


async def proved(harness: Harness, wanted: Intent | None = None) -> Lease:
    """A running attempt of which an event said that it was executed; its lease."""
    lease = await reserved(harness.store, wanted or telling())
    evidence = Evidence(FOUND_ANSWER, TOLD)
    assert await harness.reconciliation.attach(await fence(harness, lease.key), evidence, event()) is Transition.DONE
    return lease


async def status_of(harness: Harness, key: RecordKey) -> Status:
    return (await found(harness.store, key)).status


async def complete_executed(harness: Harness, at: Fence) -> Transition:
    return await harness.reconciliation.conclude_executed(at, FOUND_ANSWER, KEPT, EXECUTED)


async def free(harness: Harness, at: Fence, *, looked: bool = False) -> Transition:
    return await harness.reconciliation.conclude_not_executed(at, "verdict_not_executed", KEPT, NOT_EXECUTED, looked=looked)
