"""`serve --workers N`: the gateway itself under the supervisor."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gateway.devtools.embedded.ports import free_port
from tests.observe.support import Series, parse, value
from tests.support.forking import Forked, nursery
from tests.support.gateway import NO_AUTHORITIES

PATIENCE = 60.0


@dataclass
class Running:
    """A supervisor with two workers, and where to find it."""

    process: asyncio.subprocess.Process | Forked
    url: str
    admin: str

    async def ready(self) -> None:
        async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
            while True:
                assert self.process.returncode is None, "the supervisor has ended"
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"{self.admin}/readyz") as response:
                        checks = (await response.json())["checks"]
                        if response.status == 200 and {"worker 0", "worker 1"} <= checks.keys():
                            return
                await asyncio.sleep(0.05)

    async def metrics(self) -> Series:
        async with aiohttp.ClientSession() as session, session.get(f"{self.admin}/metrics") as response:
            return parse(await response.read())

    async def counted(self, **decisions: int) -> Series:
        """Wait until so many requests are counted: an answer may be here before its worker has counted it."""
        async with asyncio.timeout(PATIENCE):
            while True:
                series = await self.metrics()
                counts = {name: value(series, "requests_total", route="charge", mode="enforce", decision=name) for name in decisions}
                if counts == decisions:
                    return series
                await asyncio.sleep(0.02)


def workers_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.fixture
async def executions() -> list[str]:
    return []


@pytest.fixture
async def config(database: str, tmp_path: Path, executions: list[str]) -> AsyncIterator[Path]:
    """A configuration file with one guarded route to an upstream that counts."""

    async def charge(request: web.Request) -> web.Response:
        executions.append(request.path)
        return web.json_response({"charge": len(executions)}, status=201)

    app = web.Application()
    app.router.add_post("/charges", charge)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    file = tmp_path / "gateway.yaml"
    file.write_text(
        json.dumps(
            {
                "listen": f"127.0.0.1:{free_port()}",
                "admin": {"listen": f"127.0.0.1:{free_port()}"},
                "workers": 2,
                "postgres": {"dsn": database, "allow_unsafe": ["fsync_off", "synchronous_commit_off"]},
                "drain": {"delay": "0s", "timeout": "5s"},
                "upstreams": {
                    "payments": {
                        "url": f"http://127.0.0.1:{runner.addresses[0][1]}",
                        "timeouts": {"connect": "1s", "first_byte": "2s", "read_idle": "2s", "total": "2s"},
                    }
                },
                "routes": [
                    {
                        "id": "charge",
                        "methods": ["POST"],
                        "path": "/charges",
                        "upstream": "payments",
                        "idempotency": {"principal": "none", "settle_timeout": "1s"},
                    }
                ],
            }
        )
    )
    yield file
    await runner.cleanup()


async def whole_start(*command: str, stderr: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **NO_AUTHORITIES}, stdout=asyncio.subprocess.DEVNULL, stderr=stderr
    )


@contextlib.asynccontextmanager
async def started(config: Path, *before: str) -> AsyncIterator[Running]:
    """The gateway with two workers, ready. `before` goes before the command; without it, the supervisor is forked, and the workers alone
    are started as in production.
    """
    settings = json.loads(config.read_text())  # noqa: ASYNC240 - a small file of our own
    command = ("serve", "--config", str(config))
    process: asyncio.subprocess.Process | Forked
    if before:
        process = await whole_start(*before, sys.executable, "-m", "gateway", *command, stderr=asyncio.subprocess.DEVNULL)
    else:
        with config.with_name("output").open("wb") as output:
            process = await nursery().fork(command, output, {**os.environ, **NO_AUTHORITIES})
    try:
        running = Running(process, f"http://{settings['listen']}", f"http://{settings['admin']['listen']}")
        await running.ready()
        yield running
    finally:
        # The second signal ends it at once, and unlike a kill lets it tidy up.
        for _ in range(2):
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        await process.wait()


@pytest.fixture
async def running(config: Path) -> AsyncIterator[Running]:
    async with started(config) as running:
        yield running


async def send(url: str, keys: list[str]) -> list[tuple[int, str | None]]:
    """Each key on a connection of its own, so that both workers get some; returns status and replay mark."""
    answers = []
    for key in keys:
        connector = aiohttp.TCPConnector(force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(f"{url}/charges", json={"amount": 1}, headers={"Idempotency-Key": key}) as response,
        ):
            answers.append((response.status, response.headers.get("Idempotent-Replayed")))
    return answers


async def test_two_workers_are_one_gateway(running: Running, config: Path, executions: list[str]) -> None:
    """Keys executed by one worker are replayed by the other, a killed worker is replaced, and its requests stay counted. They are reloaded
    as one, and end as one.
    """
    keys = [f"key-{number}" for number in range(20)]
    assert await send(running.url, keys) == [(201, None)] * 20
    assert await send(running.url, keys) == [(201, "true")] * 20
    assert len(executions) == 20
    await running.counted(execute=20, replay=20)
    assert len(workers_of(running.process.pid)) == 2
    await kill_one(running)
    assert await send(running.url, keys) == [(201, "true")] * 20
    series = await running.counted(execute=20, replay=40)
    assert value(series, "in_flight", route="charge") == 0
    assert value(series, "worker_restarts_total") == 1
    await reload_both(running, config)
    await stop_both(running, config)


async def reload_both(running: Running, config: Path) -> None:
    """A reload reaches both workers, a bad file is refused by both."""
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{running.admin}/admin/v1/reload") as response:
            assert response.status == 200
        config.write_text("routes: 1\n")  # noqa: ASYNC240 - a small file of our own
        async with session.post(f"{running.admin}/admin/v1/reload") as response:
            assert response.status == 422
            assert all(error.startswith(str(config)) for error in (await response.json())["errors"])
    assert value(await running.metrics(), "config_last_reload_successful") == 0


async def stop_both(running: Running, config: Path) -> None:
    """SIGTERM ends everything with 0. Whatever they had to say was said in the log's format."""
    workers = workers_of(running.process.pid)
    running.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(PATIENCE):
        assert await running.process.wait() == 0
    assert not any(runs(pid) for pid in workers)
    messages = config.with_name("output").read_text().splitlines()
    assert [line for line in messages if not line.startswith("{")] == []


async def kill_one(running: Running) -> None:
    """kill -9 of a worker; waits for its successor."""
    before = workers_of(running.process.pid)
    os.kill(before[0], signal.SIGKILL)
    async with asyncio.timeout(PATIENCE):
        while len(set(workers_of(running.process.pid)) - {before[0]}) < 2:
            await asyncio.sleep(0.02)
    await running.ready()


async def test_a_successor_serves_the_map_of_its_siblings(running: Running, config: Path, executions: list[str]) -> None:
    """A file that a reload refused is not what the successor of a killed worker reads, and not one that is gone either."""
    text = config.read_text()  # noqa: ASYNC240 - a small file of our own
    assert await send(running.url, ["before"]) == [(201, None)]
    changed = json.loads(text)
    changed["routes"][0]["idempotency"]["key"] = {"header": "X-Other-Key"}
    for damaged in (json.dumps(changed), "routes: 1\n"):
        config.write_text(damaged)  # noqa: ASYNC240 - as above
        async with aiohttp.ClientSession() as session, session.post(f"{running.admin}/admin/v1/reload") as response:
            assert response.status == 422
        await kill_one(running)
    config.unlink()  # noqa: ASYNC240 - as above
    await kill_one(running)
    keys = [f"key-{number}" for number in range(12)]
    assert await send(running.url, keys) == [(201, None)] * 12
    assert await send(running.url, [*keys, "before"]) == [(201, "true")] * 13
    assert len(executions) == 13


async def test_no_disk_is_needed_once_it_runs(config: Path, executions: list[str]) -> None:
    """With files limited to 60 KiB: a crashed worker is replaced, a reload adds routes, and the metrics go on."""
    async with started(config, "sh", "-c", 'ulimit -f 120 && exec "$@"', "sh") as running:
        await kill_one(running)
        settings = json.loads(config.read_text())  # noqa: ASYNC240 - a small file of our own
        more = [{**settings["routes"][0], "id": f"more-{n}", "path": f"/more/{n}"} for n in range(20)]
        config.write_text(json.dumps({**settings, "routes": [*settings["routes"], *more]}))  # noqa: ASYNC240 - as above
        async with aiohttp.ClientSession() as session, session.post(f"{running.admin}/admin/v1/reload") as response:
            assert response.status == 200
        await kill_one(running)
        assert await send(running.url, ["a", "b"]) == [(201, None)] * 2
        series = await running.counted(execute=2)
        assert value(series, "worker_restarts_total") == 2
        assert value(series, "workers") == 2


async def test_an_admin_port_in_use_is_said_at_once(config: Path) -> None:
    """If the admin listener cannot be opened no worker is started, and the exit status is 69."""
    settings = json.loads(config.read_text())  # noqa: ASYNC240 - a small file of our own
    with socket.create_server(("127.0.0.1", int(settings["admin"]["listen"].rpartition(":")[2]))):
        process = await whole_start(sys.executable, "-m", "gateway", "serve", "--config", str(config), stderr=asyncio.subprocess.PIPE)
        async with asyncio.timeout(PATIENCE):
            _, stderr = await process.communicate()
    assert process.returncode == 69
    assert [json.loads(line)["level"] for line in stderr.splitlines()] == ["error"]


async def test_workers_that_cannot_start_end_the_supervisor(config: Path) -> None:
    """If the proxy port is taken by somebody else the supervisor ends with the workers' own status."""
    settings = json.loads(config.read_text())  # noqa: ASYNC240 - a small file of our own
    with socket.create_server(("127.0.0.1", int(settings["listen"].rpartition(":")[2]))):
        with config.with_name("output").open("wb") as output:
            process = await nursery().fork(["serve", "--config", str(config)], output, {**os.environ, **NO_AUTHORITIES})
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 69
