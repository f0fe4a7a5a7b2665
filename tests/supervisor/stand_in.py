"""A worker as the supervisor sees one, without the gateway in it. Run with a folder in which it leaves marks and finds orders.

Orders are files: `exit` (exit at the start with this status), `stubborn` (ignore SIGTERM), `reload-fails`, `not-ready`. Marks are files
`<what>-<worker>-<pid>`.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway.admin import AdminPorts, make_admin, start_admin
from gateway.config import UnixListener
from gateway.core.policy import Route
from gateway.observe import MetricsObserver

FOLDER = Path(sys.argv[1])
INDEX = os.environ["GATEWAY_WORKER"]


def mark(what: str) -> None:
    with (FOLDER / f"{what}-{INDEX}-{os.getpid()}").open("a") as file:
        file.write(" ".join(["once", *sys.argv[2:]]) + "\n")


def ordered(what: str) -> bool:
    return (FOLDER / what).exists()


class Worker:
    def __init__(self) -> None:
        self.observer = MetricsObserver([Route("rest", "/**", "upstream")], access_log_fd=None)
        self.stop = asyncio.Event()
        self.draining = False

    async def readiness(self) -> Mapping[str, str | None]:
        return {"postgres": "timeout" if ordered("not-ready") else None, "draining": "stopping" if self.draining else None}

    async def config(self) -> object:
        return {"worker": int(INDEX)}

    async def reload(self) -> Sequence[str]:
        mark("reloaded")
        return [f"bad in {INDEX}"] if ordered(f"reload-fails-{INDEX}") else ["bad"] if ordered("reload-fails") else []

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
        runner = await start_admin(UnixListener(os.environ["GATEWAY_WORKER_SOCKET"]), app)
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
