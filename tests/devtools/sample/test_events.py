"""The sample's webhooks: signed, sent again until they are taken, and nothing without a webhook."""

import asyncio
import hashlib
import hmac
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from aiohttp import web
from pytest_aiohttp.plugin import AiohttpClient, AiohttpServer

from gateway.devtools.sample.app import build
from gateway.devtools.sample.events import Hook
from gateway.devtools.sample.ledger import Ledger, load

CHARGE = {"account": "acme", "amount": 100, "currency": "EUR", "reference": "order-1"}
SECRET = b"whsec_sample"


class Receiver:
    """Takes events; answers `statuses` in turn, then 204."""

    def __init__(self, statuses: list[int]) -> None:
        self.statuses = statuses
        self.events: list[dict[str, Any]] = []

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        at, signature = (part.partition("=")[2] for part in request.headers["Stripe-Signature"].split(","))
        assert hmac.compare_digest(signature, hmac.new(SECRET, at.encode() + b"." + body, hashlib.sha256).hexdigest())
        self.events.append(json.loads(body))
        return web.Response(status=self.statuses.pop(0) if self.statuses else 204)

    async def has(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.events) < count:
                await asyncio.sleep(0.01)


async def serve(aiohttp_server: AiohttpServer, receiver: Receiver) -> Hook:
    app = web.Application()
    app.router.add_post("/hook", receiver.take)
    server = await aiohttp_server(app)
    return Hook(str(server.make_url("/hook")), SECRET)


async def test_executions_are_told_until_somebody_takes_them(aiohttp_server: AiohttpServer, aiohttp_client: AiohttpClient) -> None:
    """An event has the key, the reference and the answer that the client got; it keeps its id over redeliveries."""
    receiver = Receiver([500, 302])
    client = await aiohttp_client(build(Ledger(), hook=await serve(aiohttp_server, receiver)))
    async with client.post("/v1/charges", json=CHARGE, headers={"Idempotency-Key": "k"}) as response:
        answer = await response.json()
    await receiver.has(3)
    assert len({event["id"] for event in receiver.events}) == 1
    event = receiver.events[-1]
    assert event["type"] == "charge.succeeded"
    assert event["data"] == {"idempotency_key": "k", "reference": "order-1", "status": 201, "object": answer}
    async with client.get("/v1/events") as response:
        (delivery,) = (await response.json())["events"]
    assert delivery["id"] == event["id"]


async def test_a_declined_charge_is_told_as_failed(aiohttp_server: AiohttpServer, aiohttp_client: AiohttpClient) -> None:
    """The event of a failure has its status and its answer; an event that was not wanted does not come."""
    receiver = Receiver([])
    client = await aiohttp_client(build(Ledger(), hook=await serve(aiohttp_server, receiver)))
    async with client.post("/v1/charges", json=CHARGE, headers={"Idempotency-Key": "silent", "X-Sample-Webhook": "none"}):
        pass
    async with client.post(
        "/v1/charges", json={**CHARGE, "amount": 10**9}, headers={"Idempotency-Key": "k", "X-Sample-Webhook": "50ms"}
    ) as response:
        answer = await response.json()
    await receiver.has(1)
    event = receiver.events[0]
    assert (event["type"], event["data"]["idempotency_key"], event["data"]["status"]) == ("charge.failed", "k", 402)
    assert event["data"]["object"] == answer


async def test_nobody_is_told_without_a_webhook(aiohttp_client: AiohttpClient) -> None:
    """Without a webhook there are no events."""
    client = await aiohttp_client(build(Ledger()))
    async with client.post("/v1/charges", json=CHARGE):
        pass
    async with client.get("/v1/events") as response:
        assert await response.json() == {"events": []}


async def test_a_sample_ends_while_it_redelivers(aiohttp_client: AiohttpClient) -> None:
    """A webhook that is away keeps no sample from ending."""
    client = await aiohttp_client(build(Ledger(), hook=Hook("http://127.0.0.1:9/", SECRET)))
    async with client.post("/v1/charges", json=CHARGE) as response:
        assert response.status == 201
    await client.close()


def test_outcomes_outlive_a_restart(tmp_path: Path) -> None:
    """Outcomes and cancelled keys are among the books; a state from before there were any is read."""
    file = tmp_path / "books.json"
    file.write_text('{"balances": {}, "charges": [], "refunds": [], "executions": {}}')
    ledger = load(file)
    ledger.charge("acme", 1, "EUR", "k", "order-1")
    ledger.cancel("gone")
    again = load(file)
    assert (again.charges, again.cancelled, again.executions["k"]) == (ledger.charges, {"gone"}, 1)


def test_the_command_wants_both_of_url_and_secret() -> None:
    """A webhook without its secret is a mistake on the command line."""
    argv = [sys.executable, "-m", "gateway.devtools.sample", "--webhook-url", "http://127.0.0.1:9/"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--webhook-url and --webhook-secret come together" in done.stderr
