"""An upstream that executes and hides it, gateways that die while they find out: each key ends as the truth demands, executed at most
once.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import pytest

from tests.support.books import Books, keeping_books
from tests.support.client import Answer, ask
from tests.support.gateway import Gateway, Setup, running

RECONCILE = """
      reconcile:
        probe: lookup
        request: {{method: GET, path: "/v1/charges?idempotency_key={{key}}"}}
        rules:
          - {{when: [{{pointer: /charges, not_empty: true}}], verdict: executed, answer: {{status: 201, pointer: /charges/0}}}}
          - {{when: [{{pointer: /outcome/status, exists: true}}], verdict: executed, answer: {{status: 402, pointer: /outcome}}}}
          - {{status: [200], when: [{{pointer: /executions, equals: 0}}], verdict: not_executed}}
        looks: 2
        apart: 500ms
        first: 500ms
        longest: 2s
        attempts: {attempts}
        max_age: {max_age}
        timeout: 2s
"""
ROUTES = """
  - id: pay
    methods: [POST]
    path: /v1/charges
    upstream: payments
    idempotency:
      principal: [{{header: Authorization}}]
{reconcile}
  - {{id: rest, path: /**, upstream: payments}}
"""


@pytest.fixture
async def books(tmp_path: Path) -> AsyncIterator[Books]:
    async with keeping_books(tmp_path) as books:
        yield books


def setup_of(database: str, books: Books, redis: str = "", *, max_execution: str = "1s", attempts: int = 30, max_age: str = "60s") -> Setup:
    routes = ROUTES.format(reconcile=RECONCILE.format(attempts=attempts, max_age=max_age))
    timeouts = f"{{connect: 1s, first_byte: 1s, read_idle: 1s, total: {max_execution}}}"
    return Setup(database, books.port, redis, routes, defaults="{lease: 1s}", timeouts=timeouts, max_execution=max_execution)


async def charge(port: int, key: str, *more: str, amount: int = 100) -> Answer:
    body = json.dumps({"account": "acme", "amount": amount, "currency": "EUR"}).encode()
    head = [
        "POST /v1/charges HTTP/1.1",
        "Host: gateway.test",
        "Authorization: Bearer t",
        f"Idempotency-Key: {key}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *more,
    ]
    return await ask(port, "\r\n".join(head).encode() + b"\r\n\r\n" + body)


async def settled(port: int, key: str, *, amount: int = 100, seconds: float = 40.0) -> Answer:
    """Retry as a client does until the answer is something else than `outcome-unknown` or `request-in-progress`."""
    async with asyncio.timeout(seconds):
        while True:
            answer = await charge(port, key, amount=amount)
            if answer.problem not in {"outcome-unknown", "request-in-progress"}:
                return answer
            await asyncio.sleep(0.2)


SITUATIONS = {
    "executes and drops the connection": (("X-Sample-Fail: drop",), True, "1s"),
    "drops before executing": (("X-Sample-Fail: before",), False, "1s"),
    "executes three seconds after the client timed out": (("X-Sample-Fail: late", "X-Sample-Execute-After: 3s"), True, "5s"),
    "lies in the first lookup": (("X-Sample-Fail: drop", "X-Sample-Hide: 1"), True, "1s"),
    "is down for a while": (("X-Sample-Fail: drop", "X-Sample-Down: 4s"), True, "1s"),
}


@pytest.mark.parametrize("name", SITUATIONS)
async def test_each_situation_ends_as_the_truth_demands(name: str, database: str, redis_db: str, books: Books, tmp_path: Path) -> None:
    """What was executed is completed with its answer, what was not is free for a retry; in the end each key was executed once."""
    trouble, executed, max_execution = SITUATIONS[name]
    async with running(setup_of(database, books, redis_db, max_execution=max_execution), tmp_path) as gateway:
        first = await charge(gateway.port, "k1", *trouble)
        assert first.problem == "outcome-unknown"
        answer = await settled(gateway.port, "k1")
        assert answer.status == 201
        assert answer.field("idempotent-replayed") == (b"true" if executed else None)
        assert json.loads(answer.body)["account"] == "acme"
        assert await books.executions("k1") == 1
        again = await charge(gateway.port, "k1")
        assert (again.status, again.body, again.field("idempotent-replayed")) == (201, answer.body, b"true")
        assert await gateway.metric("idempotency_reconcile_total", route="pay", result="resolved") == 1
    assert (await books.get("/v1/accounts/acme"))["balance"] == 100_000 - 100


async def test_a_declined_payment_was_executed(database: str, books: Books, tmp_path: Path) -> None:
    """It completes with the failure as its answer: a retry never charges."""
    async with running(setup_of(database, books), tmp_path) as gateway:
        assert (await charge(gateway.port, "k1", amount=99_999)).status == 201
        assert (await charge(gateway.port, "k2", "X-Sample-Fail: drop", amount=99_999)).problem == "outcome-unknown"
        answer = await settled(gateway.port, "k2", amount=99_999)
        assert (answer.status, answer.field("idempotent-replayed")) == (402, b"true")
        assert await books.executions("k2") == 1


async def test_an_upstream_that_stays_away_leaves_dead_letters(database: str, books: Books, tmp_path: Path) -> None:
    """After the last look the record is a person's turn; its retries are refused, with no time to come back."""
    async with running(setup_of(database, books, attempts=3), tmp_path) as gateway:
        await charge(gateway.port, "k1", "X-Sample-Fail: drop", "X-Sample-Down: 60s")
        async with asyncio.timeout(30):
            while await gateway.metric("idempotency_reconcile_total", route="pay", result="dead_lettered") != 1:
                await asyncio.sleep(0.2)
        answer = await charge(gateway.port, "k1")
        assert (answer.status, answer.problem, answer.field("retry-after")) == (409, "outcome-unknown", None)
        assert await books.executions("k1") == 1


async def test_gateways_killed_at_random_lose_no_verdict_and_apply_none_twice(
    database: str, redis_db: str, books: Books, tmp_path: Path
) -> None:
    """Two gateways, one of them killed again and again while they find out about forty keys."""
    chance = random.Random(4)
    keys = [f"key-{number}" for number in range(40)]
    troubles = {
        key: chance.choice([("X-Sample-Fail: drop",), ("X-Sample-Fail: before",), ("X-Sample-Fail: late", "X-Sample-Execute-After: 1s")])
        for key in keys
    }
    setup = setup_of(database, books, redis_db, max_execution="2s", attempts=200)
    async with AsyncExitStack() as stack:
        gateways: list[Gateway] = [await stack.enter_async_context(running(setup, tmp_path, f"gateway-{number}")) for number in range(2)]
        first = await asyncio.gather(*(charge(chance.choice(gateways).port, key, *troubles[key]) for key in keys))
        assert {answer.problem for answer in first} <= {"outcome-unknown", "upstream-unreachable"}
        doubtful = {key for key, answer in zip(keys, first, strict=True) if answer.problem == "outcome-unknown"}
        assert len(doubtful) > len(keys) // 2, "a machine that is busy for longer than a lease does not send all of them"
        for number in range(6):
            await asyncio.sleep(chance.uniform(0.3, 1.5))
            gateways[number % 2].kill()
            gateways[number % 2] = await stack.enter_async_context(running(setup, tmp_path, f"gateway-{number + 2}"))
        answers = await asyncio.gather(*(settled(chance.choice(gateways).port, key, seconds=90) for key in keys))
    executed = {key for key in doubtful if troubles[key] != ("X-Sample-Fail: before",)}
    assert {answer.status for answer in answers} == {201}
    assert {key for key, answer in zip(keys, answers, strict=True) if answer.field("idempotent-replayed")} >= executed
    assert [await books.executions(key) for key in keys] == [1] * len(keys)
    connection = await asyncpg.connect(database)
    try:
        rows = await connection.fetch(
            "SELECT r.idempotency_key AS key, r.status, r.attempt, count(h.id) AS verdicts FROM gateway_records r"
            " LEFT JOIN gateway_history h ON h.record_id = r.record_id AND h.what = 'executed' GROUP BY 1, 2, 3"
        )
    finally:
        await connection.close()
    assert {row["key"]: (row["status"], row["attempt"], row["verdicts"]) for row in rows} == {
        key: ("completed", 1, 1) if key in executed else ("completed", 2, 0) for key in keys
    }
