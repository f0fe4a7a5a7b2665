"""The sample payments API: real balances, no deduplication, failures on demand."""

import asyncio
import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient
from pytest_aiohttp.plugin import AiohttpClient

from gateway.devtools.sample.app import build
from gateway.devtools.sample.ledger import Ledger
from gateway.devtools.sample.variants import MEANINGS

CHARGE = {"account": "acme", "amount": 100, "currency": "EUR"}
Client = TestClient[Any, Any]


@pytest.fixture
async def client(aiohttp_client: AiohttpClient) -> Client:
    """A client of a sample with fresh books."""
    return await aiohttp_client(build(Ledger()))


async def balance(client: Client, account: str = "acme") -> dict[str, Any]:
    async with client.get(f"/v1/accounts/{account}") as response:
        answer: dict[str, Any] = await response.json()
        return answer


async def executions(client: Client, key: str) -> int:
    async with client.get("/v1/charges", params={"idempotency_key": key}) as response:
        count: int = (await response.json())["executions"]
        return count


async def test_a_charge_lowers_the_balance_and_can_be_found(client: Client) -> None:
    """A charge answers 201 with its place and the balance after it, and is there afterwards."""
    async with client.post("/v1/charges", json=CHARGE) as response:
        assert response.status == 201
        made = await response.json()
        assert response.headers["Location"] == f"/v1/charges/{made['id']}"
    assert made["balance"] == 99_900
    async with client.get(f"/v1/charges/{made['id']}") as response:
        assert (await response.json())["amount"] == 100
    assert await balance(client) == {"id": "acme", "balance": 99_900, "charges": 1, "charged": 100, "refunds": 0, "refunded": 0}


async def test_a_second_execution_under_one_key_shows(client: Client) -> None:
    """The sample ignores keys: two requests under one, quoted or bare, are two charges, and it can tell so."""
    for key in ("k-1", '"k-1"'):
        async with client.post("/v1/charges", json=CHARGE, headers={"Idempotency-Key": key}) as response:
            assert response.status == 201
    assert await executions(client, "k-1") == 2
    assert (await balance(client))["balance"] == 99_800


async def test_a_refund_gives_back_no_more_than_was_charged(client: Client) -> None:
    """Refunds raise the balance up to the charge's amount; the next one is refused."""
    async with client.post("/v1/charges", json=CHARGE) as response:
        charge = (await response.json())["id"]
    statuses = []
    for body in ({"charge": charge, "amount": 40}, {"charge": charge}, {"charge": charge}, {"charge": "ch_nope"}):
        async with client.post("/v1/refunds", json=body) as response:
            statuses.append(response.status)
    assert statuses == [201, 201, 422, 404]
    assert (await balance(client))["balance"] == 100_000


async def test_an_overdraft_is_refused(client: Client) -> None:
    """A charge over the balance answers 402 and books nothing."""
    async with client.post("/v1/charges", json={**CHARGE, "amount": 100_001}) as response:
        assert response.status == 402
        assert (await response.json())["error"]["code"] == "insufficient_funds"
    assert (await balance(client))["charges"] == 0


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b"[" * 100_000, 400),
        (b"\xff", 400),
        (b"{}", 422),
        (b'{"account":"a","amount":0,"currency":"EUR"}', 422),
        (b'{"account":"a","amount":1.5,"currency":"EUR"}', 422),
        (b'{"account":"a","amount":true,"currency":"EUR"}', 422),
        (b'{"account":"a","amount":1,"currency":"euro"}', 422),
        (b'{"account":"","amount":1,"currency":"EUR"}', 422),
    ],
)
async def test_a_bad_body_is_refused_as_json(client: Client, body: bytes, status: int) -> None:
    """Bodies that are not JSON are 400, wrong fields 422, both with an error object."""
    async with client.post("/v1/charges", data=body) as response:
        assert response.status == status
        assert set((await response.json())["error"]) == {"code", "message"}


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nope", 404), ("DELETE", "/v1/charges", 405), ("GET", "/v1/charges/x", 404)]
)
async def test_a_wrong_address_is_refused_as_json(client: Client, method: str, path: str, status: int) -> None:
    """Unknown paths, methods and ids answer with an error object."""
    async with client.request(method, path) as response:
        assert response.status == status
        assert set((await response.json())["error"]) == {"code", "message"}


@pytest.mark.parametrize(
    ("fail", "status", "executed"),
    [("500", 500, 0), ("503", 503, 0), ("429", 429, 0), ("after", 500, 1), ("before", None, 0), ("drop", None, 1), ("reset", None, 1)],
)
async def test_it_fails_as_asked(client: Client, fail: str, status: int | None, executed: int) -> None:
    """Each failure answers, or hangs up, and has or has not executed, as the index says."""
    headers = {"X-Sample-Fail": fail, "Idempotency-Key": "k"}
    if status is None:
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.post("/v1/charges", json=CHARGE, headers=headers)
    else:
        async with client.post("/v1/charges", json=CHARGE, headers=headers) as response:
            assert response.status == status
    assert await executions(client, "k") == executed


async def test_it_cuts_an_answer_as_asked(client: Client) -> None:
    """A truncated answer has a head and half of its body; the operation was executed."""
    headers = {"X-Sample-Fail": "truncate", "Idempotency-Key": "k"}
    async with client.post("/v1/charges", json=CHARGE, headers=headers) as response:
        assert response.status == 201
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
    assert await executions(client, "k") == 1


async def test_a_delay_comes_between_execution_and_answer(client: Client) -> None:
    """A slow request has executed long before it answers, and goes on when its client hangs up."""
    slow = asyncio.create_task(client.post("/v1/charges", json=CHARGE, headers={"X-Sample-Delay": "60s", "Idempotency-Key": "k"}))
    async with asyncio.timeout(10):
        while await executions(client, "k") == 0:
            pass
    assert not slow.done()
    slow.cancel()
    async with client.post("/v1/charges", json=CHARGE, headers={"X-Sample-Delay": "5ms"}) as response:
        assert response.status == 201


@pytest.mark.parametrize("header", [{"X-Sample-Delay": "soon"}, {"X-Sample-Delay": "61s"}, {"X-Sample-Fail": "oddly"}])
async def test_a_wrong_variant_is_refused(client: Client, header: dict[str, str]) -> None:
    """A variant that the sample does not know is 400, and nothing is executed."""
    async with client.post("/v1/charges", json=CHARGE, headers=header) as response:
        assert response.status == 400
    assert (await balance(client))["charges"] == 0


async def test_the_index_describes_every_variant(client: Client) -> None:
    """`GET /` names each failure that can be asked for."""
    async with client.get("/") as response:
        index = await response.json()
    assert set(index["request_headers"]["X-Sample-Fail"]) == set(MEANINGS)


def test_the_command_serves_and_keeps_its_books(tmp_path: Path) -> None:
    """`python -m gateway.devtools.sample` says where it listens, ends on SIGTERM with 0, and goes on with the state it kept."""
    for expected in (99_900, 99_800):
        argv = [sys.executable, "-m", "gateway.devtools.sample", "--port", "0", "--state", str(tmp_path / "books.json")]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            with urllib.request.urlopen(url + "/v1/charges", json.dumps(CHARGE).encode(), 10) as response:
                assert json.load(response)["balance"] == expected
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0


def test_a_state_that_is_not_ours_is_named(tmp_path: Path) -> None:
    """A file with other contents ends the command with 1 and its name, without a traceback."""
    file = tmp_path / "books.json"
    file.write_text("[]")
    argv = [sys.executable, "-m", "gateway.devtools.sample", "--port", "0", "--state", str(file)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"sample payments API: {file} is not a state of the sample\n")
