"""What the sample can do to somebody who wants to find out: late executions, lookups that lie or are away, cancelling, deduplication."""

import asyncio
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient
from pytest_aiohttp.plugin import AiohttpClient

from gateway.devtools.sample.app import build
from gateway.devtools.sample.ledger import Ledger

CHARGE = {"account": "acme", "amount": 100, "currency": "EUR", "reference": "order-1"}
Client = TestClient[Any, Any]


@pytest.fixture
async def client(aiohttp_client: AiohttpClient) -> Client:
    """A client of a sample with fresh books."""
    return await aiohttp_client(build(Ledger()))


async def charge(client: Client, key: str, **headers: str) -> tuple[int, dict[str, Any]]:
    given = {"Idempotency-Key": key, **{f"X-Sample-{name.replace('_', '-')}": value for name, value in headers.items()}}
    async with client.post("/v1/charges", json=CHARGE, headers=given) as response:
        return response.status, await response.json()


async def hung_up(client: Client, key: str, **headers: str) -> None:
    with pytest.raises(aiohttp.ClientConnectionError):
        await charge(client, key, **headers)


async def look(client: Client, key: str) -> tuple[int, dict[str, Any]]:
    async with client.get("/v1/charges", params={"idempotency_key": key}) as response:
        return response.status, await response.json()


async def executions(client: Client, key: str) -> int:
    async with client.get("/v1/executions", params={"idempotency_key": key}) as response:
        count: int = (await response.json())["executions"]
        return count


async def post(client: Client, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    async with client.post(path, json=body) as response:
        return response.status, await response.json()


async def executed(client: Client, key: str) -> None:
    async with asyncio.timeout(10):
        while await executions(client, key) == 0:
            await asyncio.sleep(0.01)


async def test_a_late_execution_happens_after_its_client_has_gone(client: Client) -> None:
    """A lookup shows nothing before the execution, and everything after it."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await charge(client, "k", Execute_After="500ms")
    assert (await look(client, "k"))[1] == {"idempotency_key": "k", "executions": 0, "outcome": None, "charges": []}
    await executed(client, "k")
    _, found = await look(client, "k")
    assert (found["executions"], found["outcome"]["status"], found["outcome"]["body"]["reference"]) == (1, 201, "order-1")


async def test_a_late_execution_may_hang_up_at_once(client: Client) -> None:
    """`late` closes the connection without an answer, and executes all the same."""
    await hung_up(client, "k", Fail="late", Execute_After="100ms")
    await executed(client, "k")
    assert await executions(client, "k") == 1


async def test_a_hidden_execution_is_shown_after_as_many_lookups(client: Client) -> None:
    """That many lookups by the key see nothing; the truth is told all the time, and other keys are no matter."""
    await charge(client, "k", Hide="2")
    await charge(client, "other")
    seen = []
    for _ in range(3):
        assert await executions(client, "k") == 1
        assert (await look(client, "other"))[1]["executions"] == 1
        seen.append((await look(client, "k"))[1]["executions"])
    assert seen == [0, 0, 1]


async def test_a_declined_charge_has_an_outcome(client: Client) -> None:
    """What the books refuse was executed: a lookup tells its answer."""
    async with client.post("/v1/charges", json={**CHARGE, "amount": 100_001}, headers={"Idempotency-Key": "k"}) as response:
        answer = await response.json()
    _, found = await look(client, "k")
    assert (found["executions"], found["charges"], found["outcome"]) == (1, [], {"status": 402, "body": answer})


async def test_lookups_are_away_as_asked(client: Client) -> None:
    """An outage is of lookups, or of everything, for a while or until it is ended; the truth is told meanwhile."""
    await charge(client, "k", Down="60s")
    assert (await look(client, "k"))[0] == 503
    assert (await charge(client, "k2"))[0] == 201
    assert await executions(client, "k") == 1
    assert await post(client, "/v1/outage", {"for": "0s"}) == (200, {"for": 0, "of": "lookup"})
    assert (await look(client, "k"))[0] == 200
    await post(client, "/v1/outage", {"for": "60s", "of": "everything"})
    assert (await charge(client, "k3"))[0] == 503
    assert (await post(client, "/v1/charges/cancel", {"idempotency_key": "k"}))[0] == 503
    assert await executions(client, "k3") == 0


@pytest.mark.parametrize("body", [{}, {"for": "soon"}, {"for": "61s"}, {"for": "1s", "of": "me"}, {"for": "1s", "of": []}])
async def test_an_outage_that_is_none_is_refused(client: Client, body: dict[str, Any]) -> None:
    """A wrong outage is 422 and changes nothing."""
    assert (await post(client, "/v1/outage", body))[0] == 422
    assert (await look(client, "k"))[0] == 200


async def test_what_is_cancelled_is_never_executed(client: Client) -> None:
    """A late execution that was cancelled is refused; one that comes afterwards is another one."""
    running = asyncio.create_task(charge(client, "k", Execute_After="500ms"))
    async with asyncio.timeout(10):
        while (await post(client, "/v1/charges/cancel", {"idempotency_key": '"k"'}))[0] != 200 or not running.done():
            await asyncio.sleep(0.01)
    status, refused = await running
    assert (status, refused["error"]["code"], await executions(client, "k")) == (409, "cancelled", 0)
    assert (await charge(client, "k"))[0] == 201
    status, told = await post(client, "/v1/charges/cancel", {"idempotency_key": "k"})
    assert (status, told["state"], told["outcome"]["status"], told["outcome"]["body"]["account"]) == (409, "executed", 201, "acme")


async def test_what_is_cancelled_for_good_stays_so(client: Client) -> None:
    """A key cancelled for good executes nothing, ever."""
    assert (await post(client, "/v1/charges/cancel", {"idempotency_key": "k", "for_good": True}))[0] == 200
    assert (await charge(client, "k"))[0] == 409
    assert await executions(client, "k") == 0
    assert (await post(client, "/v1/charges/cancel", {"idempotency_key": "k", "for_good": 1}))[0] == 422


async def test_it_deduplicates_as_asked(client: Client) -> None:
    """One execution and one answer for a key; 409 while it runs; a failure is for the first request alone."""
    both = [asyncio.create_task(charge(client, "k", Deduplicate="yes", Execute_After="1s")) for _ in range(2)]
    refused, first = sorted([await task for task in both], key=lambda answer: -answer[0])
    assert (refused[0], refused[1]["error"]["code"], first[0]) == (409, "in_progress", 201)
    assert await charge(client, "k", Deduplicate="yes") == first
    await hung_up(client, "k2", Deduplicate="yes", Fail="drop")
    assert (await charge(client, "k2", Deduplicate="yes", Fail="drop"))[0] == 201
    await hung_up(client, "k3", Deduplicate="yes", Fail="before")
    assert (await charge(client, "k3", Deduplicate="yes", Fail="before"))[0] == 201
    assert [await executions(client, key) for key in ("k", "k2", "k3")] == [1, 1, 1]


async def test_a_sample_that_deduplicates_can_be_told_not_to(aiohttp_client: AiohttpClient) -> None:
    """The header is stronger than the command's option."""
    client = await aiohttp_client(build(Ledger(), deduplicate=True))
    assert await charge(client, "k") == await charge(client, "k")
    await charge(client, "k", Deduplicate="no")
    assert await executions(client, "k") == 2
    async with client.get("/v1/executions") as response:
        assert await response.json() == {"most": 2, "executions": {"k": 2}}


@pytest.mark.parametrize(("name", "value"), [("Hide", "-1"), ("Hide", "1001"), ("Deduplicate", "maybe"), ("Execute_After", "61s")])
async def test_a_wrong_variant_is_refused(client: Client, name: str, value: str) -> None:
    """A header that the sample does not understand is 400, and nothing is executed."""
    assert (await charge(client, "k", **{name: value}))[0] == 400
    assert await executions(client, "k") == 0


async def test_refunds_are_looked_up_as_charges_are(client: Client) -> None:
    """By the key that made them, or by the account."""
    _, made = await charge(client, "k1")
    async with client.post("/v1/refunds", json={"charge": made["id"], "amount": 40}, headers={"Idempotency-Key": "k2"}) as response:
        refund = await response.json()
    for query, found in (
        ({"idempotency_key": "k2"}, [refund["id"]]),
        ({"account": "acme"}, [refund["id"]]),
        ({"account": "other"}, []),
        ({"idempotency_key": "k3"}, []),
    ):
        async with client.get("/v1/refunds", params=query) as response:
            assert [one["id"] for one in (await response.json())["refunds"]] == found
