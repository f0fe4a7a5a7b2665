"""Quotas on the wire: what a refused client is told, and what is left for it."""

import asyncio
import json
from typing import Any

import pytest

from tests.proxy.house import TENANT_B, House, Plan, fresh, replayed
from tests.support.client import Answer
from tests.support.upstream import Exchange

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = """
  - {id: few, path: /few, upstream: payments, methods: [POST], idempotency: {quota: {new_keys: {rate: 2/d, burst: 2}}}}
  - {id: one, path: /one, upstream: payments, methods: [POST], idempotency: {lease: 30s, status_fields: true, quota: {in_flight: 1}}}
  - id: later
    path: /later
    upstream: payments
    methods: [POST]
    idempotency: {execution: prefer, quota: {in_flight: 1, new_keys: {rate: 3/d}}}
  - id: full
    path: /full
    upstream: payments
    methods: [POST]
    idempotency: {execution: async, concurrency: 1, max_pending: {route: 1, principal: 1}, quota: {new_keys: {rate: 3/d}}}
"""


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan(ROUTES, more="encryption_key: 0123456789abcdef0123456789abcdef")


def said(answer: Answer) -> Any:
    """The document of an answer."""
    return json.loads(answer.body)


async def test_new_keys_are_limited_and_what_is_known_is_not(house: House) -> None:
    """Nothing of the refused request is kept or sent: later it runs, once. Its replays, its misuse and other callers are not concerned."""
    first, second, refused = fresh(), fresh(), fresh()
    assert (await house.ask(b"/few", first)).status == 201
    assert (await house.ask(b"/few", second)).status == 201
    answer = await house.ask(b"/few", refused)
    assert (answer.status, answer.problem, said(answer)["retry"]) == (429, "quota-exceeded", "same-key")
    assert said(answer)["violated-policies"] == ["new-keys"]
    assert answer.field("retry-after") == b"60"
    assert answer.field("ratelimit") == b'"new-keys";r=0;t=60'
    assert answer.field("ratelimit-policy") == b'"new-keys";q=2;w=86400'
    assert await house.records(refused) == []
    assert len(house.seen) == 2
    assert replayed(await house.ask(b"/few", first))
    assert (await house.ask(b"/few", second, b'{"other": 1}')).problem == "key-reused"
    assert (await house.ask(b"/few", refused, account=TENANT_B)).status == 201
    assert (await house.ask(b"/few", refused)).problem == "quota-exceeded"
    assert await house.gateway.metric("idempotency_requests_total", route="few", decision="quota_exceeded") == 2
    line = await house.line(answer)
    assert (line["decision"], line["reason"], line["status"]) == ("quota_exceeded", "new-keys", 429)


async def test_a_place_is_free_when_its_attempt_has_ended(house: House) -> None:
    """Whatever it ended with; duplicates of what runs are told as ever."""
    go, came = asyncio.Event(), asyncio.Event()

    async def held(exchange: Exchange) -> None:
        came.set()
        await go.wait()
        await exchange.answer(503)

    house.upstream.behave = held
    running = fresh()
    first = asyncio.create_task(house.ask(b"/one", running))
    await came.wait()
    refused = await house.ask(b"/one", fresh())
    assert (refused.status, said(refused)["violated-policies"]) == (429, ["in-flight"])
    assert refused.field("ratelimit-policy") == b'"in-flight";q=1;qu="concurrent-requests"'
    assert (refused.field("retry-after"), refused.field("idempotency-retry")) == (b"1", b"same-key")
    assert (await house.ask(b"/one", running)).problem == "request-in-progress"
    go.set()
    assert (await first).status == 503
    async with asyncio.timeout(10):
        while (await house.ask(b"/one", fresh())).status == 429:
            await asyncio.sleep(0.02)


async def test_accepted_work_takes_new_keys_and_no_place(house: House) -> None:
    """It gives the place back with the 202, while it runs."""
    go = asyncio.Event()

    async def held(exchange: Exchange) -> None:
        await go.wait()
        await exchange.answer(201)

    house.upstream.behave = held
    prefer = (b"Prefer: respond-async",)
    for _ in range(3):
        async with asyncio.timeout(10):  # Redis hears in the background that the place is free
            while (answer := await house.ask(b"/later", fresh(), more=prefer)).status == 429:
                assert said(answer)["violated-policies"] == ["in-flight"]
                await asyncio.sleep(0.02)
        assert answer.status == 202
    async with asyncio.timeout(10):
        while said(await house.ask(b"/later", fresh(), more=prefer))["violated-policies"] != ["new-keys"]:
            await asyncio.sleep(0.02)
    go.set()


async def test_what_is_not_accepted_takes_no_new_key(house: House) -> None:
    """Too many wait: who asks again and again, as the answer says, begins one operation in the end."""
    go, came = asyncio.Event(), asyncio.Event()

    async def held(exchange: Exchange) -> None:
        came.set()
        await go.wait()
        await exchange.answer(201)

    house.upstream.behave = held
    assert (await house.ask(b"/full", fresh())).status == 202
    await came.wait()
    assert (await house.ask(b"/full", fresh())).status == 202
    third = fresh()
    for _ in range(8):
        assert (await house.ask(b"/full", third)).problem == "too-many-pending"
    go.set()
    async with asyncio.timeout(10):
        while (answer := await house.ask(b"/full", third)).problem == "too-many-pending":
            await asyncio.sleep(0.1)
    assert answer.status in {201, 202}
    assert (await house.ask(b"/full", fresh())).problem == "quota-exceeded"
