"""Two tenants: whatever one of them does, no byte that the other gets tells of it."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
import pytest_asyncio

from gateway.core.model import RecordKey
from tests.proxy.house import TENANT_A, TENANT_B, House, Plan, fresh, holding, plain, replayed
from tests.support.client import Answer
from tests.support.gateway import running
from tests.support.services import Services
from tests.support.upstream import CountingUpstream, Exchange

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEFAULTS = """
  lease: 2s
  principal: [{header: X-Account}]
  status_fields: true
  expose_headers: true
  duplicates: 10m
  mark_duplicates: true
  forward_key: derived
  on_expired: gone
"""
ROUTES = """
  - {id: field, path: /field, upstream: payments, idempotency: {}}
  - {id: query, path: /query, upstream: payments, idempotency: {key: {query: id}}}
  - {id: body, path: /body, upstream: payments, idempotency: {key: {json_pointer: /id}}}
  - {id: waits, path: /waits, upstream: payments, idempotency: {in_flight: wait, wait: 10s}}
  - {id: executes, path: /executes, upstream: payments, idempotency: {on_expired: execute}}
"""

SITUATIONS = ("completed", "in progress", "unknown", "released", "expired", "tombstone", "reset")
CASES = [
    *((b"/field", state) for state in SITUATIONS),
    *((path, state) for path in (b"/query", b"/body", b"/waits") for state in ("completed", "in progress")),
    *((b"/executes", state) for state in ("expired", "tombstone")),
]
"""(path, what became of A's key)."""


@dataclass(frozen=True, slots=True)
class Worlds:
    """A gateway that both tenants use, and one on a fresh database, in which A never was."""

    shared: House
    alone: House


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan(ROUTES, defaults=DEFAULTS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lonely(standing: House, services: Services, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    upstream = CountingUpstream()
    await upstream.start()
    dsn = services.migrated_database(services.postgres())
    assert redis_url.endswith("/0")
    setup = replace(standing.setup, postgres=dsn, redis=redis_url[:-1] + "1", upstream_port=upstream.port)
    async with running(setup, tmp_path_factory.mktemp("alone")) as gateway:
        yield House(gateway, setup, upstream)
    await upstream.stop()
    services.drop_database(services.postgres(), dsn)


@pytest.fixture
def worlds(house: House, lonely: House) -> Worlds:
    for one in (house, lonely):
        one.upstream.behave = echo
        one.seen.clear()
    return Worlds(house, lonely)


async def echo(exchange: Exchange) -> None:
    """Answers that depend on the request alone."""
    exchange.execute()
    await exchange.answer(201, json.dumps({"echo": exchange.seen.body.decode()}).encode())


async def ask(house: House, path: bytes, key: bytes, body: bytes, account: bytes) -> Answer:
    match path:
        case b"/query":
            return await house.ask(path + b"?id=" + key, None, body, account=account)
        case b"/body":
            return await house.ask(path, None, body[:-1] + b',"id":"%b"}' % key, account=account)
        case _:
            return await house.ask(path, key, body, account=account)


async def situation(house: House, name: str, path: bytes, key: bytes, body: bytes) -> asyncio.Task[Answer] | None:
    """Bring tenant A's key into this state. A task is to be awaited once the upstream is let go."""
    if name == "in progress":
        house.upstream.executed.clear()
        task = asyncio.create_task(ask(house, path, key, body, TENANT_A))
        await house.upstream.executed.wait()
        return task
    statuses = {"unknown": 503, "released": 429}

    async def behave(exchange: Exchange) -> None:
        exchange.execute()
        if name == "reset":
            exchange.reset()
        else:
            await exchange.answer(statuses.get(name, 201), b"{}")

    house.upstream.behave = behave
    await ask(house, path, key, body, TENANT_A)
    if name == "expired":
        await house.query("UPDATE gateway_records SET expires_at = now() - interval '1 second' WHERE idempotency_key = $1", key.decode())
    if name == "tombstone":
        (row,) = await house.query("DELETE FROM gateway_records WHERE idempotency_key = $1 RETURNING scope_id", key.decode())
        digest = RecordKey(row["scope_id"], key.decode()).lookup_digest()
        await house.query("INSERT INTO gateway_tombstones VALUES ($1, 'field', now() + interval '1 hour')", digest)
        answer = await ask(house, path, key, body, TENANT_A)
        assert answer.status in {201, 410}  # the former as long as Redis remembers
    return None


async def of_b(house: House, path: bytes, key: bytes, body: bytes) -> list[tuple[object, ...]]:
    """All that tenant B gets to see under a key: a first answer, its replay, a mismatch; and the keys that its upstream saw."""
    answers = [await ask(house, path, key, one, TENANT_B) for one in (body, body, b'{"else":1}')]
    assert [answer.status for answer in answers] == [201, 201, 422]
    assert [replayed(answer) for answer in answers] == [False, True, False]
    seen = [(one.value("idempotency-key"), one.target, one.body) for one in house.seen if one.value("x-account") == TENANT_B]
    decisions = [(line["decision"], line["attempt"], line["settlement"]) for line in [await house.line(answer) for answer in answers]]
    return [*map(plain, answers), *seen, *decisions]


@pytest.mark.parametrize(("path", "state"), CASES)
async def test_all_pairs_of_key_and_body(worlds: Worlds, path: bytes, state: str) -> None:
    """Keys equal or not, bodies equal or not, whatever became of A's: B sees what it would see in a fresh database."""
    for same_key in (True, False):
        for same_body in (True, False):
            await assert_untold(worlds, path, state, same_key=same_key, same_body=same_body)


async def assert_untold(worlds: Worlds, path: bytes, state: str, *, same_key: bool, same_body: bool) -> None:
    shared, alone = worlds.shared, worlds.alone
    key, body = fresh(), b'{"amount":100,"of":"%b"}' % fresh()
    others = (key if same_key else fresh(), body if same_body else b'{"amount":7,"of":"%b"}' % fresh())
    shared.seen.clear()
    alone.seen.clear()
    released = asyncio.Event()
    shared.upstream.behave = holding(released)
    task = await situation(shared, state, path, key, body)
    shared.upstream.behave = echo
    told = await of_b(shared, path, *others)
    released.set()
    if task is not None:
        assert (await task).status == 201
    assert told == await of_b(alone, path, *others)
    mine = {one.value("idempotency-key") for one in shared.seen if one.value("x-account") == TENANT_A}
    theirs = {one.value("idempotency-key") for one in shared.seen if one.value("x-account") == TENANT_B}
    assert not mine & theirs - {None}


async def test_what_b_does_changes_nothing_for_a(worlds: Worlds) -> None:
    """A's record replays as before, after B has used, misused and completed its own key of the same text."""
    house, key, body = worlds.shared, fresh(), b'{"amount":1}'
    first = await ask(house, b"/field", key, body, TENANT_A)
    await of_b(house, b"/field", key, body)
    again = await ask(house, b"/field", key, body, TENANT_A)
    assert (again.status, again.body) == (first.status, first.body)
    assert again.field("original-request") == first.field("x-request-id")
