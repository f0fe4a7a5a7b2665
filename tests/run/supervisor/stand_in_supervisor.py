"""A supervisor of stand-in workers, with its admin listener on a Unix socket. Arguments: folder, number of workers, grace in seconds.

Each is forked from a process that has imported what it needs (`tests.support.forking`), and packs the figures of its workers for them.
"""

import asyncio
import socket
import sys
from pathlib import Path

from gateway.config import UnixListener
from gateway.core.policy import Route
from gateway.observe import MetricsObserver, configure
from gateway.operate.admin import make_admin, start_admin
from gateway.run.supervisor import Backoff, Fleet
from tests.support.forking import serve_forks


class Text(str):
    """A configuration that is nothing but a word."""

    __slots__ = ()

    def pack(self) -> bytes:
        return self.encode()


class Words:
    """The file `word` holds the configuration; `bad` is none."""

    accepted = Text("first")

    def __init__(self, folder: Path) -> None:
        self._file = folder / "word"

    def read(self) -> Text | list[str]:
        word = self._file.read_text() if self._file.exists() else "first"
        return ["the word is bad"] if word == "bad" else Text(word)

    def accept(self, candidate: Text) -> None:
        self.accepted = candidate


async def shown() -> object:
    return {"worker": 0}


def write_figures(folder: Path) -> None:
    """What each worker counts: one for each process that ever ran, and one for each that runs now; and the same after a refused reload."""
    observer = MetricsObserver([Route("rest", "/**", "upstream")], access_log_fd=None)
    observer.malformed_request()
    observer.request_started("rest")
    observer.upstream_answered("rest", 200, 0.2)
    (folder / "figures").write_bytes(observer.snapshot())
    observer.reloaded(successful=False)
    (folder / "figures-after-refusal").write_bytes(observer.snapshot())


async def run(folder: Path, workers: int, grace: float) -> int:
    write_figures(folder)
    home = folder / "private"
    home.mkdir()
    fleet = Fleet(
        (sys.executable, "-m", "tests.run.supervisor.stand_in", str(folder)),
        workers,
        home,
        Words(folder),
        grace=grace,
        first=("--first",),
        backoff=Backoff(first=0.02, longest=0.2, reset_after=30.0),
    )
    runner = await start_admin(UnixListener(str(folder / "admin.sock")), make_admin(fleet.ports(shown)))
    try:
        return await fleet.run()
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    chosen, count, seconds = serve_forks(socket.socket(fileno=int(sys.argv[1])))
    configure("info")
    sys.exit(asyncio.run(run(Path(chosen), int(count), float(seconds))))
