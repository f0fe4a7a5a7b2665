"""The sample payments API as the provider: its own events, signed by itself, delivered by itself."""

import json
from dataclasses import replace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient
from pytest_aiohttp.plugin import AiohttpClient

from gateway.core.model import Status
from gateway.core.policy import Route
from gateway.core.reconcile.policy import AnswerPlan, Condition, Rule, Verdict
from gateway.devtools.sample.app import build
from gateway.devtools.sample.events import Hook
from gateway.devtools.sample.ledger import Ledger
from tests.http.connections.house import until
from tests.webhook.conftest import OpenHall
from tests.webhook.house import PATH, POLICY, SECRET, WEBHOOK, Hall, route_with

Sample = TestClient[web.Request, web.Application]


@pytest.fixture
def route() -> Route:
    """A route whose rules know the sample's events."""
    rules = tuple(
        Rule(Verdict.EXECUTED, when=(Condition("/type", values=(kind,)),), answer=AnswerPlan(status, pointer="/data/object"))
        for kind, status in {"charge.succeeded": 201, "charge.failed": 402}.items()
    )
    return route_with(replace(POLICY, webhook=replace(WEBHOOK, find="/data/idempotency_key", rules=rules)))


@pytest.fixture
async def hall(open_hall: OpenHall, route: Route) -> Hall:
    """A hall for the sample's events."""
    return await open_hall(route)


@pytest.fixture
async def sample(hall: Hall, aiohttp_client: AiohttpClient) -> Sample:
    """A sample that sends its events to the hall."""
    return await aiohttp_client(build(Ledger(), hook=Hook(f"http://127.0.0.1:{hall.house.port}{PATH}", SECRET)))


@pytest.mark.parametrize(("amount", "status"), [(100, 201), (10**9, 402)])
async def test_its_event_gives_the_answer_that_its_client_got(hall: Hall, sample: Sample, amount: int, status: int) -> None:
    """What the client of the sample was answered is what the record completes with, but for the line's end."""
    lease = await hall.doubt("k-1")
    charge = {"account": "acme", "amount": amount, "currency": "EUR"}
    async with sample.post("/v1/charges", json=charge, headers={"Idempotency-Key": "k-1"}) as response:
        answered = response.status, await response.json()
    await until(lambda: hall.observer.results == {"applied": 1})
    record = await hall.find(lease)
    assert record.response is not None
    assert record.response.body is not None
    assert (record.status, record.response.status) == (Status.COMPLETED, status)
    assert (record.response.status, json.loads(record.response.body)) == answered


async def test_its_event_comes_again_until_it_is_taken(hall: Hall, sample: Sample) -> None:
    """While the store is away the event is not lost."""
    lease = await hall.doubt("k-1")
    await hall.execute("ALTER TABLE gateway_webhook_events RENAME TO away")
    charge = {"account": "acme", "amount": 100, "currency": "EUR"}
    async with sample.post("/v1/charges", json=charge, headers={"Idempotency-Key": "k-1"}) as response:
        assert response.status == 201
    await until(lambda: hall.observer.results["store_unavailable"])
    await hall.execute("ALTER TABLE away RENAME TO gateway_webhook_events")
    await until(lambda: hall.observer.results["applied"])
    assert (await hall.find(lease)).status is Status.COMPLETED
