"""A worker as the supervisor sees one, without the gateway in it. Run with a folder in which it leaves marks and finds orders.

Orders are files: `exit` (exit at the start with this status), `stubborn` (ignore SIGTERM), `reload-fails`, `adopt-fails-0`, `not-ready`.
Marks are files `<what>-<worker>-<pid>`; `word-…` holds the configuration that the worker has.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from aiohttp import web

from gateway.config import UnixListener
from gateway.core.policy import Route
from gateway.observe import MetricsObserver
from gateway.operate.admin import AdminPorts, make_admin, start_admin

FOLDER = Path(sys.argv[1])
INDEX = os.environ["GATEWAY_WORKER"]


def mark(what: str) -> None:
    with (FOLDER / f"{what}-{INDEX}-{os.getpid()}").open("a") as file:
        file.write(" ".join(["once", *sys.argv[2:]]) + "\n")


def has(word: str) -> None:
    """Leave a mark of the configuration in use."""
    (FOLDER / f"word-{INDEX}-{os.getpid()}").write_text(word)


def ordered(what: str) -> bool:
    return (FOLDER / what).exists()


class Worker:
    def __init__(self) -> None:
        self.observer = MetricsObserver([Route("rest", "/**", "upstream")], access_log_fd=None)
        self.stop = asyncio.Event()
        self.draining = False
        self.prepared = ""

    async def readiness(self) -> Mapping[str, str | None]:
        return {"postgres": "timeout" if ordered("not-ready") else None, "draining": "stopping" if self.draining else None}

    async def config(self) -> object:
        return {"worker": int(INDEX)}

    async def reload(self) -> Sequence[str]:
        return ["nobody asks this of a worker"]

    async def prepare(self, request: web.Request) -> web.Response:
        mark("prepared")
        self.prepared = (await request.read()).decode()
        errors = [f"bad in {INDEX}"] if ordered(f"reload-fails-{INDEX}") else ["bad"] if ordered("reload-fails") else []
        return web.json_response({"errors": errors}, status=422 if errors else 200)

    async def adopt(self, _: web.Request) -> web.Response:
        if ordered(f"adopt-fails-{INDEX}"):
            return web.json_response({"errors": ["no"]}, status=422)
        has(self.prepared)
        return web.json_response({"errors": []})

    async def abandon(self, _: web.Request) -> web.Response:
        mark("abandoned")
        self.observer.reloaded(successful=False)
        return web.json_response({"errors": []})

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self.observer.snapshot())

    def told_to_stop(self) -> None:
        mark("terminated")
        self.draining = True
        if not ordered("stubborn"):
            self.stop.set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.told_to_stop)
        loop.add_signal_handler(signal.SIGHUP, mark, "hung-up")
        loop.add_reader(int(os.environ["GATEWAY_WORKER_PARENT_FD"]), self.orphaned)
        # One for each process that ever ran, and one for each that runs now.
        self.observer.malformed_request()
        self.observer.request_started("rest")
        self.observer.upstream_answered("rest", 200, 0.2)
        app = make_admin(AdminPorts(self.readiness, self.observer.exposition, self.config, self.reload))
        app.router.add_post("/worker/prepare", self.prepare)
        app.router.add_post("/worker/adopt", self.adopt)
        app.router.add_post("/worker/abandon", self.abandon)
        app.router.add_get("/worker/metrics", self.metrics)
        runner = await start_admin(UnixListener(os.environ["GATEWAY_WORKER_SOCKET"]), app)
        with os.fdopen(int(os.environ["GATEWAY_WORKER_CONFIG_FD"])) as snapshot:
            has(snapshot.read())
        mark("running")
        await self.stop.wait()
        await runner.cleanup()

    def orphaned(self) -> None:
        asyncio.get_running_loop().remove_reader(int(os.environ["GATEWAY_WORKER_PARENT_FD"]))
        mark("orphaned")
        self.stop.set()


if ordered("exit"):
    mark("exited")
    sys.exit(int((FOLDER / "exit").read_text()))


async def main() -> None:
    await Worker().run()


asyncio.run(main())
