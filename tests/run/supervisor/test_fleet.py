"""The supervisor with real processes and real signals; the workers are stand-ins."""

import asyncio
import contextlib
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import aiohttp
import pytest
from pytest_aiohttp.plugin import AiohttpClient

from gateway.operate.admin import AdminPorts, make_admin
from tests.observe.support import Series, parse, value
from tests.support.forking import Forked, nursery

SUPERVISOR = "tests.run.supervisor.stand_in_supervisor"
PATIENCE = 30.0


class Supervisor:
    """A supervisor process, its workers' marks, and its admin listener."""

    def __init__(self, folder: Path, process: Forked) -> None:
        self.folder = folder
        self.process = process

    def marks(self, what: str) -> dict[int, int]:
        """Worker index by pid of each process that left this mark."""
        found = (path.name.split("-")[-2:] for path in self.folder.glob(f"{what}-*"))
        return {int(pid): int(index) for index, pid in found}

    def order(self, what: str, text: str = "") -> None:
        (self.folder / what).write_text(text)

    def cancel(self, what: str) -> None:
        (self.folder / what).unlink()

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not true():
                await asyncio.sleep(0.02)

    async def ask(self, path: str, method: str = "GET", socket: str = "admin.sock") -> tuple[int, bytes]:
        connector = aiohttp.UnixConnector(str(self.folder / socket))
        async with aiohttp.ClientSession(connector=connector) as session, session.request(method, f"http://admin{path}") as response:
            return response.status, await response.read()

    async def ready(self, workers: int) -> dict[int, int]:
        """Wait until this many workers are ready; returns them as `marks`."""
        async with asyncio.timeout(PATIENCE):
            while True:
                assert self.process.returncode is None, "the supervisor has ended"
                with contextlib.suppress(aiohttp.ClientError):
                    status, body = await self.ask("/readyz")
                    checks = json.loads(body)["checks"]
                    if status == 200 and sum(name.startswith("worker ") for name in checks) == workers:
                        return {pid: index for pid, index in self.marks("running").items() if alive(pid)}
                await asyncio.sleep(0.02)

    async def metrics(self) -> Series:
        status, body = await self.ask("/metrics")
        assert status == 200
        return parse(body)

    async def code(self) -> int:
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and is not yet reaped does not."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


Start: TypeAlias = Callable[..., "asyncio.Future[Supervisor]"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="gw-") as path:
        yield Path(path)


@pytest.fixture
async def start(folder: Path) -> AsyncIterator[Callable[..., "asyncio.Task[Supervisor]"]]:
    """Starts a supervisor; whatever is left of it and its workers is killed at the end."""
    started: list[Supervisor] = []

    async def launch(workers: int, grace: float) -> Supervisor:
        with os.fdopen(os.dup(2), "wb") as output:
            process = await nursery(SUPERVISOR).fork([str(folder), str(workers), str(grace)], output, os.environ)
        started.append(Supervisor(folder, process))
        return started[0]

    yield lambda workers=2, grace=20.0: asyncio.ensure_future(launch(workers, grace))
    for supervisor in started:
        with contextlib.suppress(ProcessLookupError):
            supervisor.process.kill()
        await supervisor.process.wait()
        for pid in supervisor.marks("running"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


async def test_workers_look_like_one(start: Start) -> None:
    """Health, configuration and metrics of all workers come from one listener; counters add up, gauges too."""
    supervisor = await start(workers=3)
    workers = await supervisor.ready(3)
    assert sorted(workers.values()) == [0, 1, 2]
    assert await supervisor.ask("/livez") == (200, b"ok\n")
    assert json.loads((await supervisor.ask("/admin/v1/config"))[1]) == {"worker": 0}
    series = await supervisor.metrics()
    assert value(series, "malformed_requests_total") == 3
    assert value(series, "in_flight", route="rest") == 3
    assert value(series, "upstream_duration_seconds_bucket", route="rest", code_class="2xx", le="0.25") == 3
    assert value(series, "requests_total", route="rest", mode="off", decision="bypass") == 0
    assert value(series, "config_last_reload_successful") == 1
    assert value(series, "workers") == 3


async def test_a_stand_in_tells_of_its_readiness_as_an_admin_listener_does(start: Start, aiohttp_client: AiohttpClient) -> None:
    """Else the supervisor would be tested with workers that there are none of."""
    supervisor = await start(workers=1)
    await supervisor.ready(1)
    (socket,) = (supervisor.folder / "private").iterdir()
    wrong: str | None = None

    async def readiness() -> Mapping[str, str | None]:
        return {"postgres": wrong, "draining": None}

    async def unused() -> Sequence[str]:
        return []

    admin = await aiohttp_client(make_admin(AdminPorts(readiness, lambda _: (b"", ""), unused, unused)))
    for wrong in (None, "timeout"):
        if wrong:
            supervisor.order("not-ready")
        async with admin.get("/readyz") as response:
            expected = response.status, await response.json()
        status, body = await supervisor.ask("/readyz", socket=str(socket))
        assert (status, json.loads(body)) == expected


async def test_a_killed_worker_is_replaced_and_its_counts_stay(start: Start) -> None:
    """After kill -9, again and again, the worker is back, no counter has gone down, and the dead leave no gauge and no file."""
    supervisor = await start(workers=2)
    dead: set[int] = set()
    for round_number in range(1, 4):
        workers = await supervisor.ready(2)
        victim = next(pid for pid, index in workers.items() if index == 0)
        os.kill(victim, signal.SIGKILL)
        dead.add(victim)
        await supervisor.until(lambda count=round_number: len(supervisor.marks("running")) == 2 + count)  # type: ignore[misc]  # a bound value
        await supervisor.until(lambda: not dead & {pid for pid in dead if alive(pid)})
        await supervisor.ready(2)
        series = await supervisor.metrics()
        assert value(series, "malformed_requests_total") == 2 + round_number
        assert value(series, "upstream_duration_seconds_count", route="rest", code_class="2xx") == 2 + round_number
        assert value(series, "in_flight", route="rest") == 2
        assert value(series, "worker_restarts_total") == round_number
        assert all(path.is_socket() for path in (supervisor.folder / "private").iterdir())
    first = [path.read_text() for path in supervisor.folder.glob("running-*")]
    assert sorted(first) == ["once\n"] * 3 + ["once --first\n"] * 2, "arguments of the first start are not repeated once one has been ready"


async def test_sigterm_drains_all(start: Start) -> None:
    """SIGTERM reaches every worker once; when they have ended the supervisor exits 0."""
    supervisor = await start(workers=2)
    workers = await supervisor.ready(2)
    supervisor.process.send_signal(signal.SIGTERM)
    assert await supervisor.code() == 0
    assert supervisor.marks("terminated") == workers
    signals = [path.read_text() for path in supervisor.folder.glob("terminated-*")]
    assert signals == ["once --first\n"] * 2, "a second signal would cut requests off"
    assert not any(alive(pid) for pid in workers)


async def test_it_is_not_ready_while_it_drains(start: Start) -> None:
    """From the signal on readiness fails, while metrics and liveness go on until the workers have ended."""
    supervisor = await start(workers=2)
    await supervisor.ready(2)
    supervisor.order("stubborn")
    supervisor.process.send_signal(signal.SIGINT)
    await supervisor.until(lambda: len(supervisor.marks("terminated")) == 2)
    status, body = await supervisor.ask("/readyz")
    assert status == 503
    assert json.loads(body)["checks"]["draining"] == "the gateway is stopping"
    assert (await supervisor.ask("/livez"))[0] == 200
    assert value(await supervisor.metrics(), "workers") == 2


async def test_a_second_signal_ends_it_now(start: Start) -> None:
    """Workers that do not end are killed by a second signal, and the exit status is 1."""
    supervisor = await start(workers=2, grace=600.0)
    workers = await supervisor.ready(2)
    supervisor.order("stubborn")
    supervisor.process.send_signal(signal.SIGTERM)
    await supervisor.until(lambda: len(supervisor.marks("terminated")) == 2)
    supervisor.process.send_signal(signal.SIGTERM)
    assert await supervisor.code() == 1
    assert not any(alive(pid) for pid in workers)


async def test_a_drain_has_an_end(start: Start) -> None:
    """Workers that are still busy when the grace is over are killed, and the exit status is 1."""
    supervisor = await start(workers=2, grace=0.5)
    workers = await supervisor.ready(2)
    supervisor.order("stubborn")
    supervisor.process.send_signal(signal.SIGTERM)
    assert await supervisor.code() == 1
    assert not any(alive(pid) for pid in workers)


@pytest.mark.parametrize("status", [69, 78])
async def test_a_start_that_cannot_succeed_is_not_repeated(start: Start, folder: Path, status: int) -> None:
    """If workers say at the start that a service or the configuration is bad, the supervisor gives up with that status."""
    (folder / "exit").write_text(str(status))
    supervisor = await start(workers=2)
    assert await supervisor.code() == status
    assert len(supervisor.marks("exited")) <= 2


async def test_other_failures_are_tried_again(start: Start, folder: Path) -> None:
    """A worker that ends otherwise is started again, until it can run."""
    (folder / "exit").write_text("1")
    supervisor = await start(workers=1)
    await supervisor.until(lambda: len(supervisor.marks("exited")) >= 3)
    supervisor.cancel("exit")
    await supervisor.ready(1)


async def test_a_bad_configuration_later_does_not_end_it(start: Start) -> None:
    """Once a worker has been ready, one that cannot start again does not take the others down."""
    supervisor = await start(workers=2)
    workers = await supervisor.ready(2)
    supervisor.order("exit", "78")
    victim, survivor = sorted(workers)
    os.kill(victim, signal.SIGKILL)
    await supervisor.until(lambda: len(supervisor.marks("exited")) >= 2)
    assert [pid for pid in workers if alive(pid)] == [survivor]
    status, body = await supervisor.ask("/readyz")
    assert (status, json.loads(body)["checks"]["workers"]) == (503, "1 of 2 serve")
    supervisor.cancel("exit")
    await supervisor.ready(2)


def words(supervisor: Supervisor) -> dict[int, str]:
    """The configuration that each living worker has, by pid."""
    found = {int(path.name.rpartition("-")[2]): path.read_text() for path in supervisor.folder.glob("word-*")}
    return {pid: word for pid, word in found.items() if alive(pid)}


async def test_sighup_reloads_every_worker(start: Start) -> None:
    """The supervisor reads the configuration once, and every worker adopts it; a signal of their own means nothing to workers."""
    supervisor = await start(workers=2)
    workers = await supervisor.ready(2)
    assert list(words(supervisor).values()) == ["first", "first"]
    supervisor.order("word", "second")
    supervisor.process.send_signal(signal.SIGHUP)
    await supervisor.until(lambda: list(words(supervisor).values()) == ["second", "second"])
    assert words(supervisor).keys() == workers.keys(), "nobody was started anew for it"


async def test_a_reload_is_adopted_by_all_or_by_none(start: Start) -> None:
    """Mistakes that all workers agree on are listed once, others with the worker that has them. Whoever had prepared drops it."""
    supervisor = await start(workers=2)
    workers = await supervisor.ready(2)
    supervisor.order("word", "second")
    for order, errors in (("reload-fails", ["bad"]), ("reload-fails-1", ["worker 1: bad in 1"])):
        supervisor.order(order)
        status, body = await supervisor.ask("/admin/v1/reload", "POST")
        assert (status, json.loads(body)["errors"]) == (422, errors)
        supervisor.cancel(order)
        assert supervisor.marks("abandoned") == workers
        assert list(words(supervisor).values()) == ["first", "first"]
    assert value(await supervisor.metrics(), "config_last_reload_successful") == 0
    assert (await supervisor.ask("/admin/v1/reload", "POST"))[0] == 200
    assert list(words(supervisor).values()) == ["second", "second"]


async def test_a_successor_serves_what_its_siblings_serve(start: Start) -> None:
    """Also after a reload that was refused: it gets the configuration that was accepted last, not the file."""
    supervisor = await start(workers=2)
    await supervisor.ready(2)
    supervisor.order("word", "second")
    assert (await supervisor.ask("/admin/v1/reload", "POST"))[0] == 200
    supervisor.order("word", "bad")
    status, body = await supervisor.ask("/admin/v1/reload", "POST")
    assert (status, json.loads(body)["errors"]) == (422, ["the word is bad"])
    victim = min(words(supervisor))
    os.kill(victim, signal.SIGKILL)
    await supervisor.until(lambda: len(supervisor.marks("running")) == 3)
    await supervisor.ready(2)
    assert list(words(supervisor).values()) == ["second", "second"]


async def test_a_worker_that_cannot_adopt_is_replaced(start: Start) -> None:
    """Its siblings serve the new configuration by then, so it must not go on with the old one."""
    supervisor = await start(workers=2)
    workers = await supervisor.ready(2)
    stubborn = next(pid for pid, index in workers.items() if index == 0)
    supervisor.order("adopt-fails-0")
    supervisor.order("word", "second")
    assert (await supervisor.ask("/admin/v1/reload", "POST"))[0] == 200
    await supervisor.until(lambda: not alive(stubborn))
    await supervisor.until(lambda: len(supervisor.marks("running")) == 3)
    await supervisor.ready(2)
    assert list(words(supervisor).values()) == ["second", "second"]


async def test_a_worker_that_is_not_ready_makes_all_not_ready(start: Start) -> None:
    """Requests may reach any worker, so a failing check of one shows, by name."""
    supervisor = await start(workers=2)
    await supervisor.ready(2)
    supervisor.order("not-ready")
    status, body = await supervisor.ask("/readyz")
    assert status == 503
    checks = json.loads(body)["checks"]
    assert checks == {"draining": "ok", "workers": "0 of 2 serve", "worker 0": "postgres: timeout", "worker 1": "postgres: timeout"}


async def test_workers_learn_that_their_supervisor_was_killed(start: Start) -> None:
    """After kill -9 of the supervisor every worker sees the end of its pipe, also one that was started later than others."""
    supervisor = await start(workers=2)
    workers = await supervisor.ready(2)
    os.kill(next(iter(workers)), signal.SIGKILL)
    await supervisor.until(lambda: len(supervisor.marks("running")) == 3)
    workers = await supervisor.ready(2)
    supervisor.process.kill()
    await supervisor.until(lambda: supervisor.marks("orphaned") == workers)
    await supervisor.until(lambda: not any(alive(pid) for pid in workers))
