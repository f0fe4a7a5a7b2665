"""An upstream that takes part, its worker killed at each of its steps: one ride, one charge, one receipt, and the answer."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from aiohttp.test_utils import TestServer

from gateway.devtools.embedded.ports import free_port
from gateway.devtools.sample.app import build
from gateway.devtools.sample.ledger import Ledger
from gateway.devtools.sample.rides import DIE, Die
from gateway.store import co_commit
from tests.support.client import Answer, ask
from tests.support.gateway import Gateway, Setup, running

ROUTES = """
  - id: create-ride
    methods: [POST]
    path: /v1/rides
    upstream: payments
    idempotency: {{principal: none, lease: 500ms, on_unknown: resume, participate: {participate}}}
  - {{id: rest, path: /**, upstream: payments}}
"""
PROGRESS = {
    Die.AT_ONCE: None,
    Die.BEFORE_RIDE_COMMITS: None,
    Die.AFTER_RIDE: None,
    Die.AFTER_CHARGE: "ride_created",
    Die.AFTER_CHARGE_POINT: "charge_created",
    Die.BEFORE_RECEIPT_COMMITS: "charge_created",
    Die.AFTER_COMMIT: "charge_created",
}
CO_COMMIT = {**PROGRESS, Die.AFTER_RIDE: "ride_created"}
del CO_COMMIT[Die.AFTER_COMMIT]
"""Where the second attempt resumes, by the step at which the first was killed. Not there: there is no second one."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A gateway in front of the rides API, and the provider behind that."""

    gateway: Gateway
    ledger: Ledger

    async def book(self, die: Die) -> Answer:
        body = b'{"rider":"alice","amount":100}'
        head = f"POST /v1/rides HTTP/1.1\r\nHost: g\r\nIdempotency-Key: {die}\r\n{DIE}: {die}\r\nContent-Length: {len(body)}\r\n\r\n"
        return await ask(self.gateway.port, head.encode() + body)

    async def booked(self, die: Die) -> Mapping[str, Any]:
        answer = await ask(self.gateway.port, f"GET /v1/rides?idempotency_key={die} HTTP/1.1\r\nHost: g\r\n\r\n".encode())
        found: dict[str, Any] = json.loads(answer.body)
        return found


async def answers(port: int) -> None:
    """Wait until the rides API does."""
    async with asyncio.timeout(30):
        while True:
            try:
                await ask(port, b"GET /v1/rides HTTP/1.1\r\nHost: g\r\n\r\n")
            except OSError:
                await asyncio.sleep(0.05)
            else:
                return


@asynccontextmanager
async def scene(database: str, folder: Path, *, progress: bool, commits: bool) -> AsyncIterator[Scene]:
    ledger, port, progress_port = Ledger(), free_port(), free_port()
    connection = await asyncpg.connect(database)
    await co_commit.install(database, await connection.fetchval("SELECT current_user"))
    await connection.close()
    participate = f"{{progress: {str(progress).lower()}, co_commit: {str(commits).lower()}}}"
    setup = Setup(
        database,
        port,
        routes=ROUTES.format(participate=participate),
        timeouts="{connect: 2s, first_byte: 3s, read_idle: 3s, total: 3s}",
        max_execution="3s",
        more=f"progress: {{listen: 127.0.0.1:{progress_port}}}",
    )
    async with TestServer(build(ledger)) as provider, running(setup, folder) as gateway:
        arguments = ["--port", str(port), "--provider", str(provider.make_url("")).rstrip("/")]
        arguments += ["--progress", f"http://127.0.0.1:{progress_port}"] if progress else []
        arguments += ["--co-commit"] if commits else []
        environment = {**os.environ, "GATEWAY_POSTGRES_DSN": database}
        rides = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "gateway.devtools.sample.rides", *arguments, env=environment
        )
        try:
            await answers(port)
            yield Scene(gateway, ledger)
        finally:
            rides.terminate()
            await rides.wait()


@pytest.mark.parametrize(
    ("progress", "commits", "resumed"),
    [(True, False, PROGRESS), (False, True, CO_COMMIT), (True, True, CO_COMMIT)],
    ids=["progress", "co-commit", "both"],
)
async def test_killed_at_each_step(database: str, tmp_path: Path, progress: bool, commits: bool, resumed: Mapping[Die, str | None]) -> None:
    """The retry resumes where it stopped. After a commit of the answer there is no doubt: its first client gets it."""
    async with scene(database, tmp_path, progress=progress, commits=commits) as stage:
        first = {die: await stage.book(die) for die in Die}
        assert {die for die, answer in first.items() if answer.status == 201} == Die.__members__.values() - resumed.keys()
        assert {answer.problem for die, answer in first.items() if die in resumed} == {"outcome-unknown"}
        for die in Die:
            async with asyncio.timeout(30):
                while (answer := await stage.book(die)).status == 409:
                    await asyncio.sleep(0.2)
            assert answer.status == 201, answer
            assert (await stage.book(die)).body == answer.body
            if die not in resumed:
                assert answer.body == first[die].body
            found = await stage.booked(die)
            assert len(found["rides"]) == len(found["receipts"]) == 1
            assert stage.ledger.executions[die] == 1
            assert json.loads(answer.body)["charge"] == found["receipts"][0]["charge"]
            numbers = [(attempt["number"], attempt["resumed_at"]) for attempt in found["attempts"]]
            assert numbers == [(1, None), *([(2, resumed[die])] if die in resumed else [])]
        assert len(stage.ledger.charges) == len(Die)
